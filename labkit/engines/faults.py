"""What goes wrong, as values: a fault says what, to whom and when; each engine carries it out.

    lk.Kill("worker-1", at=2.0)                             kill:worker-1@2
    lk.Slow("worker-2", 5, during=(2, 4))                   slow:worker-2:5@2-4
    lk.Drop("worker", "server", 0.05)                       drop:worker:server:0.05

Law: a fault is a finite list of commands, `commands(plan)`, each with its time; the same plan gives the same list, so a run
with faults can be kept, repeated and compared like any other. A time is engine seconds from the beginning of the run, or,
of a fault that is injected into one, from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Self

from ..errors import BadInput, nearest, shown
from ..knobs import knob
from ..roles.context import stream
from ..roles.layout import RoleSpec
from .fault import EVERYBODY, Command, During, Fault, Lasting, OnLinks, Who, check_who, named
from .parts import Plan, check_factor, find_role

__all__ = [
    "FAULTS",
    "Delay",
    "Drop",
    "Freeze",
    "Kill",
    "Partition",
    "Preempt",
    "Slow",
    "parse_fault",
    "schedule_faults",
]

MOST = 10_000  # preemptions of one fault
FOR_GOOD = "for-good"


@dataclass(frozen=True)
class Kill(Fault):
    """At `at` the process that plays `role` is gone. It comes back by itself; `restart=False`: it stays away."""

    role: str = knob("worker-0")
    at: float = knob(0.0, low=0.0, high=1e9)
    restart: bool = knob(True)

    verbs, word, parts, example = ("kill",), "kill", ("role",), "kill:worker-1@2.0"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        find_role(self.role, plan.role_ids)
        return [(self.at, "kill", {"role": self.role, "restart": self.restart})]

    def spelled(self) -> str:
        """See `Fault.spelled`."""
        words, at, when = super().spelled().partition("@")
        return (words if self.restart else f"{words}:{FOR_GOOD}") + at + when

    @classmethod
    def parsed(cls, words: list[str], when: str, text: str) -> Self:
        """See `Fault.parsed`."""
        stays = len(words) == 2 and words[1] == FOR_GOOD
        made = super().parsed(words[:1] if stays else words, when, text)
        return replace(made, restart=not stays)


@dataclass(frozen=True)
class Freeze(Lasting):
    """From `at` on the process that plays `role` stands still; until `until`, if given."""

    role: str = knob("worker-0")
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("freeze", "thaw"), "freeze", ("role",), "freeze:worker-1@1-3"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        find_role(self.role, plan.role_ids)
        return self._both([("freeze", {"role": self.role})], [("thaw", {"role": self.role})])


@dataclass(frozen=True)
class Slow(Lasting):
    """From `at` (engine seconds) on, `role` computes `factor` times slower; until `until`, if given."""

    role: str = knob("worker-0")
    factor: float = knob(2.0, low=0.001, high=1000.0)
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("slow",), "slow", ("role", "factor"), "slow:worker-2:5@2.0-4.0"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        find_role(self.role, plan.role_ids)
        slow, usual = ({"role": self.role, "factor": check_factor(factor)} for factor in (self.factor, 1.0))
        return self._both([("slow", slow)], [("slow", usual)])


@dataclass(frozen=True)
class Delay(OnLinks):
    """What `a` and `b` say to each other comes `seconds` later, from `at` on; until `until`, if given."""

    a: Who
    b: Who = EVERYBODY
    seconds: float = knob(0.1, low=0.0, high=1e6)
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("delay",), "delay", ("a", "b", "seconds"), "delay:worker-1:server-0:0.1@2-4"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        made = [
            [("delay", {"role": r, "seconds": s, "peer": p}) for r, p in self._ends(plan)] for s in (self.seconds, 0.0)
        ]
        return self._both(*made)


@dataclass(frozen=True)
class Drop(OnLinks):
    """Whatever passes between `a` and `b` is lost with this `chance`, time and again, and sent again until it has arrived
    and that is known; from `at` on, until `until`, if given."""

    a: Who
    b: Who = EVERYBODY
    chance: float = knob(0.1, low=0.0, high=0.95)
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("drop",), "drop", ("a", "b", "chance"), "drop:worker:server:0.05"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        made = [
            [("drop", {"role": r, "chance": c, "peer": p}) for r, p in self._ends(plan)] for c in (self.chance, 0.0)
        ]
        return self._both(*made)


@dataclass(frozen=True)
class Partition(OnLinks):
    """Nothing passes between the roles of `a` and those of `b`, from `at` on; until `until`, if given.

    "*" is everybody outside of the other group, which stays whole. One role against "*" is cut off from the client, too.
    """

    a: Who
    b: Who = EVERYBODY
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("cut", "reconnect"), "partition", ("a", "b"), "partition:worker-1:*@2-4"

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        ends = [{"role": role, "peer": peer} for role, peer in self._ends(plan)]
        return self._both([("cut", dict(end)) for end in ends], [("reconnect", dict(end)) for end in ends])

    def _ends(self, plan: Plan) -> list[tuple[str, str | None]]:
        group = named(self.b if self.a == EVERYBODY else self.a, plan)
        if EVERYBODY not in (self.a, self.b) or len(group) == 1:
            return super()._ends(plan)
        others = [role for role in plan.role_ids if role not in group]
        if not others:
            raise BadInput(f"{self!r}: there is nobody outside of that group.")
        return [(role, other) for role in group for other in others]


@dataclass(frozen=True)
class Preempt(Lasting):
    """Machines are taken away at random, and come back: each of `roles` is killed at exponential times, `rate` times a
    second on average.

    The times follow from the run's seed, the role and this fault, and from nothing else. They end with `until`, with the
    budget's seconds, or after 10,000 preemptions, whichever comes first.
    """

    rate: float = knob(0.01, low=1e-9, high=1e3)
    roles: Who = "worker"
    at: float = knob(0.0, low=0.0, high=1e9)
    until: float | None = knob(None, low=0.0, high=1e9)
    during: During = field(default=None, repr=False)

    verbs, word, parts, example = ("kill",), "preempt", ("roles", "rate"), "preempt:worker:0.01"

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", check_who("Preempt", "roles", self.roles))
        super().__post_init__()

    def commands(self, plan: Plan) -> list[Command]:
        """See `Fault.commands`."""
        names = tuple(plan.role_ids) if self.roles == EVERYBODY else named(self.roles, plan)
        roles = [plan.layout.roles[plan.role_ids[name]] for name in names]
        return list(islice(merge(*(self._of(role, plan) for role in roles), key=itemgetter(0)), MOST))

    def _of(self, role: RoleSpec, plan: Plan) -> Iterator[Command]:
        luck, at = stream(plan.seed, role.kind, role.index, "preempt", more=self.spelled().encode()), self.at
        end = min(limit for limit in (self.until, plan.budget.seconds, 1e9) if limit is not None)
        while True:
            at += float(luck.exponential(1.0 / self.rate))
            if at >= end:
                return
            yield at, "kill", {"role": role.name, "restart": True}


FAULTS: dict[str, type[Fault]] = {kind.word: kind for kind in (Kill, Freeze, Slow, Delay, Drop, Partition, Preempt)}


def parse_fault(text: str) -> Fault:
    """`slow:worker-2:5@2-4` -> `Slow("worker-2", 5, at=2, until=4)`: the inverse of `Fault.spelled`.

    `word:part:part`, and, if it is not for the whole run, `@start` or `@start-stop` in seconds. "worker-0,worker-1" are two
    roles, "*" is everybody else, and `kill:worker-1:for-good@2` does not come back.
    """
    head, at, when = text.strip().partition("@")
    word, *words = (part.strip() for part in head.split(":"))
    if word not in FAULTS:
        examples = ", ".join(kind.example for kind in FAULTS.values())
        raise BadInput(f"{nearest('fault', word, FAULTS)} They are written as {examples}.")
    if at and not when.strip():
        raise BadInput(f"{shown(text)}: give a time after the @, as in {FAULTS[word].example!r}.")
    return FAULTS[word].parsed(words, when, text)


def _several(faults: Any) -> list[Any]:
    """The faults, or the one fault, that were given."""
    if isinstance(faults, str):
        return [faults]
    try:
        return list(faults)
    except Exception:  # a single fault; of anything else the caller says that it is none
        return [faults]


def schedule_faults(faults: Any, plan: Plan, since: float = 0.0) -> list[Command]:
    """The commands of all faults (or of a single one, or of texts), in the order of their times, counted from `since`."""
    commands: list[Command] = []
    for fault in _several(faults):
        fault = parse_fault(fault) if isinstance(fault, str) else fault
        if isinstance(fault, type) or not hasattr(fault, "commands"):
            raise BadInput(f"faults: {shown(fault)} is not a fault; give for example lk.Slow('worker-0', 5, at=2.0).")
        commands.extend((since + at, *what) for at, *what in fault.commands(plan))
    return sorted(commands, key=itemgetter(0))
