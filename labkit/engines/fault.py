"""What every fault is made of: its times, the roles it means, and its text.

A fault's text is `word:part:part@start-stop`, as in `slow:worker-2:5@2-4`; what is as usual is left out. Law:
`parse_fault(fault.spelled()) == fault`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, ClassVar, Self

from ..errors import BadInput, nearest, shown
from ..knobs import check_knobs
from .parts import Plan

__all__ = ["EVERYBODY", "Command", "During", "Fault", "Lasting", "OnLinks", "Who", "check_who", "named"]

Command = tuple[float, str, dict[str, Any]]  # (when, the engine's method, its arguments)
Who = str | tuple[str, ...]
During = tuple[float, float | None] | None

EVERYBODY = "*"
NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
TIMES = re.compile(rf"({NUMBER})(?:-({NUMBER})?)?")


class Fault:
    """What all faults have in common. `verbs`: the methods of an engine that it calls.

    `word`: what its text begins with; `parts`: the fields between the colons; `example`: such a text.
    """

    verbs: ClassVar[tuple[str, ...]] = ()
    word: ClassVar[str] = ""
    parts: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = ""
    at: float

    def __post_init__(self) -> None:
        check_knobs(self)

    def commands(self, plan: Plan) -> list[Command]:
        """(when, the engine's method, its arguments), in the order of time. `BadInput` if a role is not there."""
        raise NotImplementedError("a fault says what it does")

    def spelled(self) -> str:
        """The fault as text, as the command line takes it."""
        until = getattr(self, "until", None)
        when = (
            ""
            if not self.at and until is None
            else f"@{_text(self.at)}" + ("" if until is None else f"-{_text(until)}")
        )
        return ":".join([self.word, *(_text(getattr(self, part)) for part in self.parts)]) + when

    @classmethod
    def parsed(cls, words: list[str], when: str, text: str) -> Self:
        """The fault that these words between colons, and this text after "@", describe."""
        wrong = BadInput(f"{shown(text)} is not a fault as {cls.example!r}.")
        if len(words) == len(cls.parts) - 1 and "b" in cls.parts:
            words = [words[0], EVERYBODY, *words[1:]]
        times = TIMES.fullmatch(when.strip()) if when else None
        if len(words) != len(cls.parts) or (when and times is None) or not all(words):
            raise wrong
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        given: dict[str, Any] = {}
        for part, word in zip(cls.parts, words):
            kind = known[part].type
            try:
                given[part] = word if kind == "str" else float(word) if kind == "float" else tuple(word.split(","))
            except ValueError:
                raise wrong from None
        if times is not None:
            given["at"] = float(times[1])
            if times[2] is not None:
                if "until" not in known:
                    raise wrong
                given["until"] = float(times[2])
        return cls(**given)


class Lasting(Fault):
    """A fault with an end. `during=(start, stop)` is another way to say `at=start, until=stop`."""

    until: float | None
    during: During

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.during is not None:
            if self.at or self.until is not None:
                raise BadInput(
                    f"{name}: during={shown(self.during)} and at= or until= say one thing twice; give one of them."
                )
            if not isinstance(self.during, (tuple, list)) or len(self.during) != 2:
                raise BadInput(f"{name}: during={shown(self.during)} is not allowed; give (start, stop) in seconds.")
            for field, value in zip(("at", "until"), self.during):
                object.__setattr__(self, field, value)
            object.__setattr__(self, "during", None)  # one form for one fault: equal faults are equal
        check_knobs(self)
        if self.until is not None and self.until <= self.at:
            raise BadInput(f"{name}(at={self.at:g}, until={self.until:g}): it has to end after it has begun.")

    def _both(self, begin: list[tuple[str, dict[str, Any]]], end: list[tuple[str, dict[str, Any]]]) -> list[Command]:
        """What is done when it begins, and what undoes it if it ends."""
        undone = [] if self.until is None else [(self.until, *command) for command in end]
        return [(self.at, *command) for command in begin] + undone


class OnLinks(Lasting):
    """A fault of what lies between roles, in both directions.

    `a`, `b`: a role's name, a kind of role ("worker": all workers), a tuple of these, or "*", everybody else.
    """

    a: Who
    b: Who

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            object.__setattr__(self, name, check_who(type(self).__name__, name, getattr(self, name)))
        super().__post_init__()

    def _ends(self, plan: Plan) -> list[tuple[str, str | None]]:
        """(role, peer) of every link, each once; peer None: everybody."""
        if EVERYBODY in (self.a, self.b):
            near = self.b if self.a == EVERYBODY else self.a
            return [(role, None) for role in named(near, plan)]
        pairs: dict[frozenset[str], tuple[str, str | None]] = {}
        far = named(self.b, plan)
        for role in named(self.a, plan):
            for peer in far:
                if role != peer:
                    pairs.setdefault(frozenset((role, peer)), (role, peer))
        if not pairs:
            raise BadInput(f"{self!r}: nothing lies between a role and itself; name two.")
        return list(pairs.values())


def check_who(owner: str, name: str, who: Any) -> Who:
    """A name, or several: as text, or a tuple of at least two."""
    several = tuple(who) if isinstance(who, (tuple, list)) else (who,)
    if (
        not several
        or not all(isinstance(one, str) and one for one in several)
        or (len(several) > 1 and EVERYBODY in several)
    ):
        raise BadInput(
            f"{owner}: {name}={shown(who)} is not allowed; give a role ('worker-1'), a kind ('worker'), a tuple of them, or '*'."
        )
    return several[0] if len(several) == 1 else several


def named(who: Who, plan: Plan) -> tuple[str, ...]:
    """The roles that are meant, each once; `BadInput` with the nearest name if there is none. "*" is everybody."""
    if who == EVERYBODY:
        return tuple(plan.role_ids)
    kinds: dict[str, list[str]] = {}
    for role in plan.layout.roles:
        kinds.setdefault(role.kind, []).append(role.name)
    meant: dict[str, None] = {}
    for one in (who,) if isinstance(who, str) else who:
        if one not in plan.role_ids and one not in kinds:
            raise nearest("role", one, {*plan.role_ids, *kinds})
        meant |= dict.fromkeys([one] if one in plan.role_ids else kinds[one])
    return tuple(meant)


def _text(value: Any) -> str:
    """A number as short as it is exact; names with commas in between."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return ",".join(value) if isinstance(value, tuple) else str(value)
