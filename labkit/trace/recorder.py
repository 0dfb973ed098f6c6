"""One role's pen: rows go to flat buffers, counters are cumulative and never sampled.

The engine that drives a role owns its `Recorder`; the same object is used in virtual and in real time. `take()` empties
the buffers into a batch that a `Trace` understands; a batch holds raw bytes and plain numbers only.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any, Self

from .events import Event
from .vocabulary import CATEGORIES, EVERYONE, INTEGER_TABLES, PHASES, REASONS, RESTORED, TABLES

__all__ = ["MESSAGE", "SPAN", "Counters", "Recorder", "together"]

# A row of whole numbers as bytes: `recorder.spans += SPAN(phase, start, end, step)`. Packing a row of 6 takes 0.12 us;
# `array("q").extend` of a tuple took 0.27 us (`timeit`).
_PACKERS = {name: Struct(f"={len(TABLES[name].names)}q").pack for name in INTEGER_TABLES}
SPAN, APPLY, MESSAGE, PROGRESS, DROP = (
    _PACKERS[name] for name in ("spans", "applies", "messages", "progress", "drops")
)
_DROP_ROW = Struct(f"={len(TABLES['drops'].names)}q")
_BY_WIDTH = {len(TABLES[name].names): _PACKERS[name] for name in INTEGER_TABLES}


_EXPORTED = {"released": "handed", "last_received": "taken"}  # counters that files spell otherwise


class Counters:
    """What a role has done so far, in whole numbers.

    - `phases`: nanoseconds by phase. `bytes`: payload bytes sent by category. `messages`, `drops`: how many.
    - `computed`, `released`: gradients computed, and released (sent, applied or dropped), by step. `steps`: mini-batches that
      it has worked on for a gradient which another role counts.
    - Of its shard: `applied` {instance of the sender: [gradients, last step]}; `staleness` {value: gradients}; `updates`,
      `gradients`, `samples` applied to it; `rounds` of gradients of all workers, `eras` {incarnation: rounds} of those that a
      restored shard holds from before; `duplicates`: pushes that arrived again.
    - `last_received` {instance of the sender: step of its last gradient that was received}. The number of an instance is
      role + incarnation x roles.
    - `reads` {reader: version} of the readers whose gradient is outstanding; `outstanding`: how many there were besides the one
      served, added up over the updates; `residual`: the updates between a read and now of gradients that were then dropped.
      These are the two sides of the conservation law of staleness.
    - `open` [phase, since]: the work under way at the moment of the report, which is no span yet.
    - Of a pipeline stage: `activations`, the most micro-batches whose activations it has held at once; `stashed`, the most
      versions of its weights.
    - Of a shard of rows: `rows` touched; `row_pulls`, `row_pushes` of single rows; `hot` [[row, pulls, pushes], ...] of those
      that were pulled most.
    """

    __slots__ = (
        "activations",
        "applied",
        "bytes",
        "computed",
        "drops",
        "duplicates",
        "eras",
        "gradients",
        "hot",
        "last_received",
        "messages",
        "open",
        "outstanding",
        "phases",
        "reads",
        "released",
        "residual",
        "rounds",
        "row_pulls",
        "row_pushes",
        "rows",
        "samples",
        "shard",
        "staleness",
        "stashed",
        "steps",
        "updates",
        "version",
    )

    def __init__(self) -> None:
        self.phases = [0] * len(PHASES)
        self.bytes = [0] * len(CATEGORIES)
        self.drops = [0] * len(REASONS)
        self.messages = 0
        self.computed = self.released = self.steps = 0
        self.shard = -1
        self.updates = self.gradients = self.samples = self.version = self.rounds = self.duplicates = 0
        self.outstanding = self.residual = 0
        self.open: list[int] = []
        self.activations = self.stashed = 0
        self.rows = self.row_pulls = self.row_pushes = 0
        self.hot: list[list[int]] = []
        self.applied: dict[int, list[int]] = {}
        self.staleness: dict[int, int] = {}
        self.reads: dict[int, int] = {}
        self.last_received: dict[int, int] = {}
        self.eras: dict[int, int] = {}

    def to_dict(self) -> dict[str, Any]:
        """A copy made of plain numbers, lists and dicts with text keys."""
        plain: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, dict):
                value = {str(k): list(v) if isinstance(v, list) else v for k, v in value.items()}
            plain[_EXPORTED.get(name, name)] = list(value) if isinstance(value, list) else value
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Counters:
        """The inverse of `to_dict`."""
        made = cls()
        for name in cls.__slots__:
            key = _EXPORTED.get(name, name)
            if key not in plain:  # a file of an older labkit
                continue
            value = plain[key]
            if isinstance(value, dict):
                value = {int(k): list(v) if isinstance(v, (list, tuple)) else v for k, v in value.items()}
            setattr(made, name, list(value) if isinstance(value, (list, tuple)) else value)
        return made


# Of a role that was restarted: what only its newest life knows, because a restored shard goes on counting.
NEWEST = frozenset({
    "applied", "eras", "gradients", "hot", "last_received", "open", "reads", "rounds", "rows", "samples", "shard", "updates",
    "version",
})  # fmt: skip


def together(lives: Sequence[Counters]) -> Counters:
    """The counters of a role that has had several lives, oldest first: what it did is added up, what it has is the last."""
    last = lives[-1]
    if len(lives) == 1:
        return last
    made = Counters()
    for name in Counters.__slots__:
        values = [getattr(life, name) for life in lives]
        if name in NEWEST:
            value = values[-1]
        elif name in ("activations", "stashed"):
            value = max(values)
        elif name == "staleness":
            value = {key: sum(v.get(key, 0) for v in values) for key in dict.fromkeys(k for v in values for k in v)}
        elif isinstance(values[0], list):
            value = [sum(column) for column in zip(*values)]
        else:
            value = sum(values)
        setattr(made, name, value)
    return made


class _Rows(bytearray):
    """Rows of one table, as bytes."""

    __slots__ = ()

    def extend(self, row: Any) -> None:
        """Add a row given as a tuple, where speed does not matter."""
        self += _BY_WIDTH[len(row)](*row)


class _Blind:
    """A buffer that keeps nothing: the row tables of a run that is not recorded."""

    def __iadd__(self, row: bytes) -> Self:
        return self

    def extend(self, row: Any) -> None:
        pass

    def __len__(self) -> int:
        return 0


class Recorder:
    """The rows and counters of one life of a role. `record=False` keeps the counters, drops and evaluations only.

    `roles`: how many there are in the run, which makes the number of a life.
    """

    __slots__ = (
        "applies",
        "counters",
        "drops",
        "evaluations",
        "events",
        "hottest",
        "incarnation",
        "looks",
        "messages",
        "norms",
        "number",
        "progress",
        "record",
        "role",
        "roles",
        "spans",
        "unacknowledged",
    )

    spans: Any
    applies: Any
    messages: Any
    drops: Any
    progress: Any
    norms: Any
    evaluations: Any

    def __init__(self, role: int, incarnation: int = 0, record: bool = True, roles: int = 1 << 30):
        self.role, self.incarnation, self.record, self.roles = role, incarnation, record, roles
        self.counters = Counters()
        self.hottest: Callable[[], list[list[int]]] | None = None  # asked when a batch is taken: few rows of many
        self.events: list[Event] = []
        self.looks: list[tuple[int, int, bytes, bytes]] = []  # see `trace.looks.Look`
        self.number = 0  # of the batches taken
        # Rows of drops in batches whose arrival is not confirmed: (number of the batch, rows). None: batches cannot get lost.
        self.unacknowledged: deque[tuple[int, bytes]] | None = None
        for name in TABLES:
            self._empty(name)

    def _empty(self, name: str) -> None:
        kept = self.record or name in ("drops", "progress")
        setattr(self, name, array("d") if name not in INTEGER_TABLES else _Rows() if kept else _Blind())

    def rows_waiting(self) -> int:
        """Numbers in the buffers, all tables together."""
        integers = sum(len(getattr(self, name)) for name in INTEGER_TABLES) // 8
        floats = sum(len(getattr(self, name)) for name in TABLES if name not in INTEGER_TABLES)
        return integers + floats + len(self.events) + len(self.looks)

    def span(self, phase: int, start: int, end: int, step: int = -1) -> None:
        """The role was in `phase` from `start` to `end` (ns). Empty spans are not rows."""
        if end > start:
            self.counters.phases[phase] += end - start
            self.spans += SPAN(phase, start, end, step)

    def apply(
        self, shard: int, time: int, sender: int, step: int, count: int, samples: int, staleness: int, version: int,
        incarnation: int = 0,
    ) -> None:  # fmt: skip
        """`count` gradients of `sender`, the last numbered `step`, were applied to `shard`, which is now at `version`."""
        c = self.counters
        c.gradients += count
        c.samples += samples
        c.staleness[staleness] = c.staleness.get(staleness, 0) + count
        if sender == EVERYONE:
            c.rounds = step + 1
        else:  # a new pair each time: a copy of the counters keeps the old one
            life = sender + incarnation * self.roles if incarnation else sender
            held = c.applied.get(life)
            c.applied[life] = [count if held is None else count + held[0], step]
        self.applies += APPLY(shard, time, sender, step, count, samples, staleness, version)

    def drop(self, shard: int, time: int, sender: int, incarnation: int, step: int, count: int, why: int) -> None:
        """`count` gradients of `sender`, the last numbered `step`, will never be applied to `shard`."""
        self.counters.drops[why] += count
        self.drops += DROP(shard, time, sender, incarnation, step, count, why)

    def acknowledged(self, number: int) -> None:
        """The batches up to this number are in the trace."""
        waiting = self.unacknowledged
        while waiting and waiting[0][0] <= number:
            waiting.popleft()

    def unheard(self) -> list[list[int]]:
        """The rows of drops, as lists, that the trace may not have: those not reported yet, or not acknowledged."""
        raw = b"".join(rows for _, rows in self.unacknowledged or ()) + bytes(self.drops)
        return [list(row) for row in _DROP_ROW.iter_unpack(raw)]

    def repeat(self, rows: Sequence[Sequence[int]]) -> None:
        """Report rows of drops that an earlier incarnation has counted, and may not have reported."""
        for row in rows:
            self.drops += DROP(*row)

    def event(self, event: Event) -> None:
        """Something that happens seldom; see `trace.events`. It is recorded as this role's."""
        self.events.append(replace(event, recorder=self.role))

    def look(self, time: int, update: int, samples: bytes, grid: bytes) -> None:
        """What the model of `update` said about the held-out samples and on the grid: a byte each."""
        self.looks.append((time, update, samples, grid))

    def restored(self, now: int) -> None:
        """Report what a shard that was restored begins with, so that it is not counted as work."""
        if self.counters.shard >= 0:
            self.progress += PROGRESS(now, RESTORED, self.counters.gradients)
            self._progress(now)

    def _progress(self, now: int) -> None:
        """What has been applied so far, by sender: exact where rows of `applies` are left out."""
        c = self.counters
        if c.shard >= 0:
            counts: dict[int, int] = {}
            for life, (count, _) in c.applied.items():
                counts[life % self.roles] = counts.get(life % self.roles, 0) + count
            for sender, count in counts.items():
                self.progress += PROGRESS(now, sender, count)
            self.progress += PROGRESS(now, EVERYONE, c.gradients)

    def take(self, until: int, limit: int | None = None, plain: bool = True) -> dict[str, Any]:
        """Empty the buffers into a batch. `until` (ns): the role has nothing more to say about the time before.

        `limit`: bytes allowed for spans, applies and messages together; what is above it is left out and counted in
        `skipped`. Drops, evaluations, norms, events, looks and counters are never left out.
        `plain=False`: the batch stays in this process, so buffers and counters go as they are.
        """
        if plain:
            self._progress(until)
        self.number += 1
        if self.unacknowledged is not None and len(self.drops):
            self.unacknowledged.append((self.number, bytes(self.drops)))
        if self.hottest is not None:
            self.counters.hot = self.hottest()
        tables: dict[str, bytes | bytearray] = {}
        skipped: dict[str, int] = {}
        for name, table in TABLES.items():
            rows = getattr(self, name)
            if not len(rows):
                continue
            raw = rows if not plain and name in INTEGER_TABLES else bytes(rows)
            if limit is not None and name in ("spans", "applies", "messages"):
                width = 8 * len(table.names)
                keep = limit // 3 // width * width
                if keep < len(raw):
                    skipped[name] = (len(raw) - keep) // width
                    raw = raw[:keep]
            tables[name] = raw
            self._empty(name)
        batch = {
            "role": self.role, "incarnation": self.incarnation, "until": until, "tables": tables, "skipped": skipped,
            "events": [event.to_dict() for event in self.events] if plain else self.events, "looks": self.looks,
            "counters": self.counters.to_dict() if plain else self.counters,
        }  # fmt: skip
        if self.unacknowledged is not None:
            batch["number"] = self.number
        self.events, self.looks = [], []
        return batch
