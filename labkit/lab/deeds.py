"""What was done to a run as a short text, and back: `slow:worker-2:5.0@5.0,kill:worker-1:for-good@6.5,restart:worker-1@8.0`.

Law: in virtual time each deed has the turn of the run's loop before which it was done (`@5.0#731`), so what comes out
is the same run, to the last bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..trace.events import (
    Event,
    LinkCut,
    LinkDelayed,
    LinkEvent,
    LinkLossy,
    LinkReconnected,
    OptionsSet,
    RoleEvent,
    RoleFrozen,
    RoleKilled,
    RoleRestarted,
    RoleSlowed,
    RoleThawed,
)
from ..trace.vocabulary import NANO

__all__ = ["Did", "done", "number", "undone"]

FOR_GOOD = "for-good"
ROLES = ("restart", "freeze", "thaw", "join", "leave")  # commands about one role and nothing else
AMOUNTS = {"slow": "factor", "delay": "seconds", "drop": "chance"}
LINKS = ("cut", "reconnect", "delay", "drop")  # commands that may name a peer
VERBS: dict[type[Event], str] = {
    RoleFrozen: "freeze", RoleThawed: "thaw", LinkCut: "cut", LinkReconnected: "reconnect",
    LinkDelayed: "delay", LinkLossy: "drop",
}  # fmt: skip
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
            events = [event for event in run.engine.trace.events if event.recorder < 0 and event.time > 0]
        commands = _from_events(sorted(events, key=lambda event: event.time))
    return ",".join(filter(None, (_did(*command) for command in commands)))


def _from_events(events: list[Event]) -> list[tuple[float, str, dict[str, Any], str]]:
    """What was done to a real run: events that somebody made, without those of what followed by itself."""
    found: list[tuple[float, str, dict[str, Any], str]] = []
    away: set[str] = set()
    for event in events:
        verb, arguments = "", {}
        match event:
            case OptionsSet(options=options):
                verb, arguments = "set", dict(options)
            case RoleKilled(name=role, restart=restart):
                verb, arguments = "kill", {"role": role, "restart": restart}
                away = away if restart else away | {role}
            case RoleRestarted(name=role) if role in away:  # of those that come back by themselves it is no deed
                verb, arguments, away = "restart", {"role": role}, away - {role}
            case RoleSlowed(name=role, factor=factor):
                verb, arguments = "slow", {"role": role, "factor": factor}
            case RoleEvent(name=role) if type(event) in VERBS:
                verb, arguments = VERBS[type(event)], {"role": role}
            case LinkEvent(name=role, peer=peer):
                amounts = {name: getattr(event, name) for name in ("seconds", "chance") if hasattr(event, name)}
                verb, arguments = VERBS[type(event)], {"role": role} | amounts | {"peer": peer}
        if verb:
            found.append((event.time / NANO, verb, arguments, ""))
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
