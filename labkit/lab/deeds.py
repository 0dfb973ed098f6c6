"""What was done to a run as a short text, and back: `slow:worker-2:5.0@5.0,kill:worker-1:for-good@6.5,restart:worker-1@8.0`.

Law: in virtual time each deed has the turn of the run's loop before which it was done (`@5.0#731`), so what comes out
is the same run, to the last bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..trace.vocabulary import NANO

__all__ = ["Did", "done", "number", "undone"]

FOR_GOOD = "for-good"
ROLES = ("restart", "freeze", "thaw", "join", "leave")  # commands about one role and nothing else
AMOUNTS = {"slow": "factor", "delay": "seconds", "drop": "chance"}
LINKS = ("cut", "reconnect", "delay", "drop")  # commands that may name a peer
DEED = re.compile(r"([\w-]+):([^@]+)@([\d.e+-]+)(?:#(\d+))?")


@dataclass(frozen=True)
class Did:
    """Something that was done to a run, as a fault that does it again: the engine's method, its arguments, and when.

    `turn`: of a run in virtual time, the turn of its loop before which it was done: several things happen at one time.
    """

    at: float
    verb: str
    arguments: tuple[tuple[str, Any], ...]
    turn: int | None = None

    def commands(self, plan: Any) -> list[tuple[Any, ...]]:
        """What the engine is told, and when."""
        told = (self.at, self.verb, dict(self.arguments))
        return [told if self.turn is None else (*told, self.turn)]


# written --------------------------------------------------------------------------------------------------------------


def done(run: Any) -> str:
    """What was done to a run, one after the other. `BadInput` if faults were injected by a program."""
    if hasattr(run.engine, "commands"):
        commands = [(at, verb, arguments, f"#{turn}") for at, verb, arguments, turn in run.engine.commands]
    else:
        with run.engine.trace.lock:
            marks = [mark for mark in run.engine.trace.marks if mark["role"] < 0 and mark["time"] > 0]
        commands = _from_marks(sorted(marks, key=lambda mark: mark["time"]))
    return ",".join(filter(None, (_did(*command) for command in commands)))


def _from_marks(marks: list[dict[str, Any]]) -> list[tuple[float, str, dict[str, Any], str]]:
    """What was done to a real run: marks that somebody made, without those of what followed by itself."""
    found: list[tuple[float, str, dict[str, Any], str]] = []
    away: set[str] = set()
    for mark in marks:
        verb, role = mark["kind"], mark.get("name", "")
        arguments: dict[str, Any] = {"role": role}
        if verb == "set":
            knobs = dict(part.split(" = ") for part in mark["text"].split(", "))
            arguments = {name: number(value) for name, value in knobs.items()}
        elif verb == "kill":
            arguments["restart"] = mark.get("restart", True)
            away = away | {role} if not arguments["restart"] else away
        elif verb == "restart":  # of those that come back by themselves it is no deed
            if role not in away:
                continue
            away = away - {role}
        elif verb in AMOUNTS and (AMOUNTS[verb] in mark or verb in mark):
            arguments[AMOUNTS[verb]] = mark.get(AMOUNTS[verb], mark.get(verb))
        elif verb in AMOUNTS or verb not in (*ROLES, *LINKS):
            continue
        if verb in LINKS:
            arguments["peer"] = mark.get("peer")
        found.append((mark["time"] / NANO, verb, arguments, ""))
    return found


def _did(at: float, verb: str, arguments: dict[str, Any], turn: str) -> str:
    when = f"@{at!r}{turn}"
    if verb == "set":
        return ",".join(f"set:{name}:{value!r}{when}" for name, value in arguments.items())
    if verb == "inject":
        raise BadInput("Faults were injected into this run by a program: what was done to it has no short text.")
    words = [verb, str(arguments.get("role"))]
    if verb in AMOUNTS:
        words.append(repr(float(arguments[AMOUNTS[verb]])))
    elif verb == "kill" and not arguments.get("restart", True):
        words.append(FOR_GOOD)
    elif verb not in ("kill", *ROLES, *LINKS):
        return ""
    if verb in LINKS and arguments.get("peer") is not None:
        words.append(arguments["peer"])
    return ":".join(words) + when


# read -----------------------------------------------------------------------------------------------------------------


def undone(text: str) -> tuple[Did, ...]:
    """What a run that is started with these faults will have done to it: the inverse of `done`."""
    return tuple(_read(part) for part in filter(None, text.split(",")))


def _read(part: str) -> Did:
    match = DEED.fullmatch(part)
    arguments = _arguments(match[1], match[2].split(":")) if match is not None else None
    if match is None or arguments is None:
        raise BadInput(f"{part!r} is not something that is done to a run; one reads slow:worker-2:5@5.0.")
    return Did(float(match[3]), match[1], tuple(arguments.items()), None if match[4] is None else int(match[4]))


def _arguments(verb: str, words: list[str]) -> dict[str, Any] | None:
    """What the engine's method is given; None if that is no such thing."""
    name, *more = words
    if not all(words):
        return None
    if verb == "set" and len(more) == 1:
        return {name: number(more[0])}
    if verb == "kill" and more in ([], [FOR_GOOD]):
        return {"role": name, "restart": not more}
    if verb in ROLES and not more:
        return {"role": name}
    found: dict[str, Any] = {"role": name}
    if verb in AMOUNTS:
        if not more:
            return None
        found[AMOUNTS[verb]] = number(more.pop(0))
    elif verb not in LINKS:
        return None
    if verb in LINKS and len(more) <= 1:
        found["peer"] = more.pop() if more else None
    return None if more else found


def number(text: str | None) -> Any:
    """True, 4, 0.5, inf; or the text itself, which is then refused by whoever takes numbers."""
    if text is None:
        return None
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
