"""Discrete events of a run: one frozen dataclass for each kind of event.

High-rate records (spans, applied gradients, messages) are rows of packed tables, see `trace.vocabulary`. What happens seldom
is an `Event` in `Trace.events`: a role that was lost, a link that was cut, an option that was changed. Everything that is
known about an event stands in its fields; `str(event)` makes one sentence of them, and no code reads a number back out of it.
Only `Note`, `EngineWarning` and `ConnectionRefused` carry free text.

Between processes, and in files, an event is a plain dict: `to_dict` and `from_dict`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

__all__ = [
    "EVENTS", "ConnectionRefused", "EngineWarning", "Event", "GradientRefused", "GroupRestarted", "LinkCut", "LinkDelayed",
    "LinkEvent", "LinkLossy", "LinkReconnected", "Note", "OptionsSet", "RoleEvent", "RoleFenced", "RoleFrozen", "RoleJoined",
    "RoleKilled", "RoleLeft", "RoleLost", "RoleRestarted", "RoleSlowed", "RoleThawed", "RoleUnplaced", "RunPaused", "RunWaits",
]  # fmt: skip

ENGINE = -1  # as `recorder`: the engine itself, or a person at the controls

SOURCES = ("", "first weights", "checkpoint", "evaluation", "backup")  # what a restarted role begins with


@dataclass(frozen=True)
class Event:
    """`time` in ns of engine time. `recorder`: the number of the role that recorded it; -1 is the engine.

    `kind` is the name of the class in files and tables.
    """

    kind: ClassVar[str] = ""

    time: int
    recorder: int = field(default=ENGINE, kw_only=True)

    def __str__(self) -> str:
        """The event as one sentence, with full role names."""
        return self.kind

    def to_dict(self) -> dict[str, Any]:
        """The event as plain JSON: its fields, and its `kind`."""
        return {"kind": self.kind} | {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @staticmethod
    def from_dict(plain: dict[str, Any]) -> Event:
        """The event that `to_dict` described. `ValueError` if the kind, a field or the type of a value is wrong."""
        known = EVENTS.get(plain.get("kind", ""))
        if known is None:
            raise ValueError(f"there is no event of kind {plain.get('kind')!r}")
        return known._of({name: value for name, value in plain.items() if name != "kind"})

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        allowed = _field_types(cls)  # type: ignore[arg-type]  # a class is hashable
        for name, value in values.items():
            if name not in allowed or not _fits(value, allowed[name]):
                raise ValueError(f"an event of kind {cls.kind!r} has no {name}={value!r}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"an event of kind {cls.kind!r} lacks a field: {error}") from None


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


@functools.cache
def _field_types(cls: type[Event]) -> dict[str, tuple[type, ...]]:
    """{field: the types that a value may have}; a float may be written as an int."""
    found = {}
    for name, hint in typing.get_type_hints(cls).items():
        if typing.get_origin(hint) is ClassVar:
            continue
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = tuple(typing.get_origin(kind) or kind for kind in kinds)
        found[name] = (*plain, int) if float in plain else plain
    return found


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    return (bool in kinds) if isinstance(value, bool) else isinstance(value, kinds)


# roles ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoleEvent(Event):
    """Something happened to the role `name`."""

    name: str


@dataclass(frozen=True)
class RoleKilled(RoleEvent):
    """The process of a role was ended. `restart`: its next incarnation begins by itself. `absent`: it was lost already."""

    kind = "killed"

    restart: bool = True
    absent: bool = False

    def __str__(self) -> str:
        return f"killed {self.name}"


@dataclass(frozen=True)
class RoleLost(RoleEvent):
    """An incarnation of a role was declared lost. `reason`: "was killed", "was silent for 5 s"."""

    kind = "lost"

    incarnation: int
    reason: str

    def __str__(self) -> str:
        return f"lost {self.name}: it {self.reason}"


@dataclass(frozen=True)
class RoleRestarted(RoleEvent):
    """The next incarnation of a lost role has begun.

    `source`: what it begins with, one of `SOURCES` ("" for a role that keeps no state); `update`: the update that this state
    belongs to; `age`: how many seconds before the loss it was saved. `rolled_back`: updates that the lost incarnation had
    applied and that are gone; `at_least`: only those that it had reported are counted. `remark`: on the checkpoint.
    """

    kind = "restarted"

    incarnation: int
    source: str = ""
    update: int | None = None
    age: float | None = None
    rolled_back: int = 0
    at_least: bool = False
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.name} restarted{self.with_what}"

    @property
    def with_what(self) -> str:
        """What it begins with, as the end of a sentence: `, restored from update 240: 12 updates are rolled back`."""
        if self.source == "backup":
            return ", restored from its backup"
        begins = {
            "first weights": ", restored from the first weights",
            "checkpoint": f", restored from update {self.update}",
            "evaluation": f", restored from its evaluation of update {self.update}",
        }.get(self.source, "")
        if begins and self.remark:
            begins += f" ({self.remark})"
        if begins and self.age is not None:
            begins += f" of {self.age:.2f} s before"
        if self.rolled_back:
            reported = " that were reported" if self.at_least else ""
            begins += f": {self.rolled_back} updates{reported} are rolled back"
        return begins


@dataclass(frozen=True)
class RoleLeft(RoleEvent):
    """A role takes no part any more, and the others go on without it. `reason`: why, if it did not leave by order."""

    kind = "left"

    reason: str = ""

    def __str__(self) -> str:
        return f"the others go on without {self.name}" + (f", which {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class RoleJoined(RoleEvent):
    """A role takes part from now on."""

    kind = "joined"

    incarnation: int

    def __str__(self) -> str:
        return f"{self.name} takes part"


@dataclass(frozen=True)
class RoleUnplaced(RoleEvent):
    """A role was asked to join, and no Dask worker is free for it yet."""

    kind = "unplaced"

    def __str__(self) -> str:
        return f"{self.name} will take part when a Dask worker is free for it"


@dataclass(frozen=True)
class RoleFrozen(RoleEvent):
    """The process of a role was stopped where it stood."""

    kind = "frozen"

    def __str__(self) -> str:
        return f"froze {self.name}"


@dataclass(frozen=True)
class RoleThawed(RoleEvent):
    """A frozen process was continued."""

    kind = "thawed"

    def __str__(self) -> str:
        return f"thawed {self.name}"


@dataclass(frozen=True)
class RoleFenced(RoleEvent):
    """An incarnation that was declared lost was heard of again; its messages are refused and it was told to leave."""

    kind = "fenced"

    incarnation: int
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.after} after it had been declared lost: its place is taken, and it was told to leave"


@dataclass(frozen=True)
class RoleSlowed(RoleEvent):
    """A role computes `factor` times slower from now on; 1 is its own speed."""

    kind = "slowed"

    factor: float

    def __str__(self) -> str:
        return f"{self.name} computes {self.factor:g}x slower"


# links ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkEvent(Event):
    """Something happened to the link between the role `name` and the role `peer`, or (None) to all links of `name`."""

    name: str
    peer: str | None

    @property
    def far(self) -> str:
        """The other end, in words."""
        return self.peer or "all others"


@dataclass(frozen=True)
class LinkCut(LinkEvent):
    """Nothing passes any more."""

    kind = "cut"

    def __str__(self) -> str:
        return f"cut {self.name} off from {self.far}"


@dataclass(frozen=True)
class LinkReconnected(LinkEvent):
    """Messages pass again."""

    kind = "reconnected"

    def __str__(self) -> str:
        return f"reconnected {self.name} with {self.far}"


@dataclass(frozen=True)
class LinkDelayed(LinkEvent):
    """Messages take `seconds` longer; 0 is no delay any more."""

    kind = "delayed"

    seconds: float

    def __str__(self) -> str:
        return f"messages between {self.name} and {self.far} come {self.seconds:g} s later"


@dataclass(frozen=True)
class LinkLossy(LinkEvent):
    """Each transmission is lost with this `chance` (0 to 1) and sent again; 0 is no loss any more."""

    kind = "lossy"

    chance: float

    def __str__(self) -> str:
        return f"messages between {self.name} and {self.far} are lost with chance {self.chance:g}"


# the run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptionsSet(Event):
    """Options of the strategy were changed: {name: new value}."""

    kind = "set"

    options: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.options.items())


@dataclass(frozen=True)
class RunPaused(Event):
    """All roles were held."""

    kind = "paused"

    def __str__(self) -> str:
        return "paused"


@dataclass(frozen=True)
class RunWaits(Event):
    """The run waits for roles that do not come back by themselves. `awaited`: which, and why. `name`: if it is one role."""

    kind = "waits"

    awaited: str
    name: str = ""

    def __str__(self) -> str:
        return f"waits for {self.awaited}"


@dataclass(frozen=True)
class GroupRestarted(Event):
    """All `workers` members of a group began their next incarnation together, from the state of `update`."""

    kind = "group restarted"

    workers: int
    update: int

    def __str__(self) -> str:
        return f"{self.workers} workers go on together from update {self.update}"


@dataclass(frozen=True)
class GradientRefused(RoleEvent):
    """A shard refused a gradient of the role `name`, its number `step`. `reason`: "does not fit: ..."."""

    kind = "gradient refused"

    step: int
    reason: str

    def __str__(self) -> str:
        return f"refused a gradient of {self.name}, step {self.step}: it {self.reason}"


@dataclass(frozen=True)
class ConnectionRefused(Event):
    """A role refused a connection, or what came over one."""

    kind = "connection refused"

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Note(Event):
    """A remark of a role (`ctx.note`) or of the engine, with numbers to plot or to check."""

    kind = "note"

    text: str
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EngineWarning(Event):
    """Something did not go as it should, and the run goes on."""

    kind = "warning"

    text: str

    def __str__(self) -> str:
        return self.text


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        RoleKilled, RoleLost, RoleRestarted, RoleLeft, RoleJoined, RoleUnplaced, RoleFrozen, RoleThawed, RoleFenced, RoleSlowed,
        LinkCut, LinkReconnected, LinkDelayed, LinkLossy, OptionsSet, RunPaused, RunWaits, GroupRestarted, GradientRefused,
        ConnectionRefused, Note, EngineWarning,
    )
}  # fmt: skip
