"""Discrete events of a run: one frozen dataclass for each kind of event.

High-rate records (spans, applied gradients, messages) are rows of packed tables, see `trace.schema`. Rare occurrences are
`Event` objects in `Trace.events`: a lost role, a cut link, a changed option. All information about an event is in its
fields. `str(event)` formats the fields as one sentence, which no code parses. Only `Note`, `EngineWarning` and
`ConnectionRefused` carry free text.

Between processes, and in files, an event is a plain dict: `to_dict` and `from_dict`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from ..formatting import bandwidth_text, speed

ENGINE = -1  # as `recorder`: the engine itself, or a user command

SOURCES = ("", "first weights", "checkpoint", "evaluation", "backup")  # initial state of a restarted role


@dataclass(frozen=True)
class Event:
    """Base class of events.

    `time`: in ns of engine time. `recorder`: the number of the role that recorded the event; -1 (`ENGINE`) is the engine
    or a user command.

    `kind`: the name of the class in files and tables, and what a role is after an event of it. `command`: the word of the command
    that causes it; "" if it has other causes.
    """

    kind: ClassVar[str] = ""
    command: ClassVar[str] = ""

    time: int
    recorder: int = field(default=ENGINE, kw_only=True)

    def __str__(self) -> str:
        return self.kind

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a dict of plain JSON values: its fields and its `kind`."""
        return {"kind": self.kind} | {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @staticmethod
    def from_dict(plain: dict[str, Any]) -> Event:
        """Restore an event from the output of `to_dict`. Raises `ValueError` if the kind, a field or the type of a value
        is wrong.
        """
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


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, dict) else value


@functools.cache
def _field_types(cls: type[Event]) -> dict[str, tuple[type, ...]]:
    """Return {field: allowed types of its value}. An int is allowed for a float."""
    found = {}
    for name, hint in typing.get_type_hints(cls).items():
        if typing.get_origin(hint) is ClassVar:
            continue
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        plain = tuple(typing.get_origin(kind) or kind for kind in kinds)
        found[name] = (*plain, int) if float in plain else plain
    return found


def _fits(value: object, kinds: tuple[type, ...]) -> bool:
    return (bool in kinds) if isinstance(value, bool) else isinstance(value, kinds)


# roles ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RoleEvent(Event):
    name: str


@dataclass(frozen=True)
class RoleKilled(RoleEvent):
    """The process of a role was killed.

    `restart`: whether its next incarnation starts automatically. `absent`: whether the role was already lost.
    """

    kind, command = "killed", "kill"

    restart: bool = True
    absent: bool = False

    def __str__(self) -> str:
        return f"killed {self.name}"


@dataclass(frozen=True)
class RoleLost(RoleEvent):
    """An incarnation of a role was declared lost. `reason`: as the end of a sentence, for example "was killed" or "was
    silent for 5 s".
    """

    kind = "lost"

    incarnation: int
    reason: str

    def __str__(self) -> str:
        return f"lost {self.name}: it {self.reason}"


@dataclass(frozen=True)
class RoleRestarted(RoleEvent):
    """The next incarnation of a lost role has started.

    `source`: the origin of its initial state, one of `SOURCES` ("" for a stateless role). `update`: the update of this
    state. `age`: seconds between saving the state and the loss. `rolled_back`: number of updates that the lost
    incarnation had applied and that the initial state does not contain. `at_least`: whether only reported updates are
    counted, so that more may be lost. `remark`: a note about the checkpoint.
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
        """The initial state as the end of a sentence, for example `, restored from update 240: 12 updates are rolled
        back`.
        """
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
    """A role left the run, and the other roles continue without it. `reason`: why it left, or "" if it left on command."""

    kind = "left"

    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name} left" + (f": it {self.reason}" if self.reason else "") + "; the others continue"


@dataclass(frozen=True)
class RoleJoined(RoleEvent):
    kind = "joined"

    incarnation: int

    def __str__(self) -> str:
        return f"{self.name} joined"


@dataclass(frozen=True)
class RoleUnplaced(RoleEvent):
    """A role waits to join, because no Dask worker is free for it yet."""

    kind = "unplaced"

    def __str__(self) -> str:
        return f"{self.name} joins when a Dask worker is free"


@dataclass(frozen=True)
class RoleFrozen(RoleEvent):
    """The process of a role was suspended."""

    kind, command = "frozen", "freeze"

    def __str__(self) -> str:
        return f"froze {self.name}"


@dataclass(frozen=True)
class RoleThawed(RoleEvent):
    """A suspended process was resumed."""

    kind, command = "thawed", "thaw"

    def __str__(self) -> str:
        return f"thawed {self.name}"


@dataclass(frozen=True)
class RoleFenced(RoleEvent):
    """A message arrived from an incarnation that was declared lost. Its messages are rejected, and it must exit.

    `after`: what the incarnation did, as the middle of the sentence.
    """

    kind = "fenced"

    incarnation: int
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.after} after it was declared lost; it was replaced and ordered to stop"


@dataclass(frozen=True)
class RoleSlowed(RoleEvent):
    """A role computes `factor` times slower from now on; 1 is its normal speed."""

    kind, command = "slowed", "slow"

    factor: float

    def __str__(self) -> str:
        return f"{self.name} computes " + ("at normal speed" if self.factor == 1 else speed(self.factor))


@dataclass(frozen=True)
class RoleLimited(RoleEvent):
    """The node of a role sends and receives at most `bandwidth` bytes/s from now on; None: its bandwidth is not limited."""

    kind, command = "limited", "limit"

    bandwidth: float | None

    def __str__(self) -> str:
        return f"{self.name} " + bandwidth_text(self.bandwidth)


# links ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkEvent(Event):
    """An event of the link between the roles `name` and `peer`. If `peer` is None, it is an event of all links of `name`."""

    name: str
    peer: str | None

    @property
    def far(self) -> str:
        """The other end of the link, as text."""
        return self.peer or "all others"


@dataclass(frozen=True)
class LinkCut(LinkEvent):
    """The link no longer delivers messages."""

    kind, command = "cut", "cut"

    def __str__(self) -> str:
        return f"cut {self.name} off from {self.far}"


@dataclass(frozen=True)
class LinkReconnected(LinkEvent):
    """The link delivers messages again."""

    kind, command = "reconnected", "reconnect"

    def __str__(self) -> str:
        return f"reconnected {self.name} with {self.far}"


@dataclass(frozen=True)
class LinkDelayed(LinkEvent):
    """Messages take `seconds` longer. A value of 0 removes the delay."""

    kind, command = "delayed", "delay"

    seconds: float

    def __str__(self) -> str:
        return f"messages between {self.name} and {self.far} are delayed by {self.seconds:g} s"


@dataclass(frozen=True)
class LinkLossy(LinkEvent):
    """Each transmission is lost with probability `chance` (0 to 1), and is then retransmitted. A `chance` of 0 removes
    the fault.
    """

    kind, command = "lossy", "drop"

    chance: float

    def __str__(self) -> str:
        return f"messages between {self.name} and {self.far} are lost with probability {self.chance:g}"


# the run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptionsSet(Event):
    """Options of the strategy were changed: {name: new value}."""

    kind, command = "set", "set"

    options: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.options.items())


@dataclass(frozen=True)
class RunPaused(Event):
    """All roles were paused."""

    kind, command = "paused", "pause"

    def __str__(self) -> str:
        return "paused"


@dataclass(frozen=True)
class RunWaits(Event):
    """The run waits for roles that do not restart automatically.

    `awaited`: the roles and the reason, as text. `name`: the name of the role, if the run waits for one role only.
    """

    kind = "waits"

    awaited: str
    name: str = ""

    def __str__(self) -> str:
        return f"waits for {self.awaited}"


@dataclass(frozen=True)
class GroupRestarted(Event):
    """All members of a group restarted together. `workers`: number of members. `update`: the update of their initial
    state.
    """

    kind = "group restarted"

    workers: int
    update: int

    def __str__(self) -> str:
        return f"{self.workers} workers restarted from update {self.update}"


@dataclass(frozen=True)
class GradientRefused(RoleEvent):
    """A shard rejected gradient number `step` of the role `name`. `reason`: as the end of a sentence, for example "does
    not fit: ...".
    """

    kind = "gradient refused"

    step: int
    reason: str

    def __str__(self) -> str:
        return f"refused a gradient of {self.name}, step {self.step}: it {self.reason}"


@dataclass(frozen=True)
class ConnectionRefused(Event):
    """A role rejected a connection, or data received over a connection."""

    kind = "connection refused"

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Note(Event):
    """A note of a role (`ctx.note`) or of the engine. `numbers`: {name: value} to plot or to check."""

    kind = "note"

    text: str
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class EngineWarning(Event):
    kind = "warning"

    text: str

    def __str__(self) -> str:
        return self.text


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        RoleKilled, RoleLost, RoleRestarted, RoleLeft, RoleJoined, RoleUnplaced, RoleFrozen, RoleThawed, RoleFenced, RoleSlowed,
        RoleLimited,
        LinkCut, LinkReconnected, LinkDelayed, LinkLossy, OptionsSet, RunPaused, RunWaits, GroupRestarted, GradientRefused,
        ConnectionRefused, Note, EngineWarning,
    )
}  # fmt: skip
