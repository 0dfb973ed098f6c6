"""Recorder of one role: it writes rows to flat buffers, and keeps cumulative counters, which are exact even if rows are
skipped.

The engine that drives a role owns its `Recorder`. The same class is used in virtual time and on a cluster. `take()`
empties the buffers into a batch, which `Trace.append` accepts. A batch for another process contains only raw bytes and
plain values.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from struct import Struct
from typing import Any, Protocol, Self

from .events import Event
from .schema import ALL, CATEGORIES, INTEGER_TABLES, PHASES, REASONS, RESTORED, TABLES

# Packs a row of integers: `recorder.spans += SPAN(phase, start, end, step)`. Packing a row of 6 takes 0.12 us;
# `array("q").extend` of a tuple took 0.27 us (`timeit`).
_PACKERS = {name: Struct(f"={len(TABLES[name].names)}q").pack for name in INTEGER_TABLES}
SPAN, APPLY, MESSAGE, PROGRESS, DROP, PIECE, COMMUNICATION = (
    _PACKERS[name] for name in ("spans", "applies", "messages", "progress", "drops", "pieces", "communications")
)
LIMITED = ("spans", "applies", "messages", "pieces", "communications")  # tables whose rows may be left out of a batch
_DROP_ROW = Struct(f"={len(TABLES['drops'].names)}q")
_BY_WIDTH = {len(TABLES[name].names): _PACKERS[name] for name in INTEGER_TABLES}


@dataclass(slots=True, eq=False)
class Counters:
    """Cumulative counters of a role, all integers.

    - `phases`: nanoseconds by phase. `bytes`: payload bytes sent, by category. `messages`: number of messages sent.
      `drops`: number of gradients dropped, by reason.
    - `computed`: number of gradients computed. `released`: number of gradients released (sent, applied or dropped).
      `steps`: number of mini-batches processed for gradients that another role counts.
    - Of the shard of the role: `applied` {instance of the sender: [gradients, last step]}; `staleness` {value:
      gradients}; `updates`, `gradients` and `samples`: numbers applied to the shard; `version`: its number of updates;
      `rounds`: number of gradients of all workers together that were applied; `rounds_by_incarnation`: {incarnation:
      rounds} of earlier incarnations that a restored shard holds; `duplicates`: number of pushes that were received
      again.
    - `last_received`: {instance of the sender: step of its last gradient that was received}. The number of an instance is
      role + incarnation x roles.
    - `reads`: {reader: version} of the readers whose gradient is outstanding. `outstanding`: number of other outstanding
      readers, summed over the updates. `residual`: sum, over dropped gradients, of the number of updates between read and
      drop. Together they are one side of the conservation law of staleness (`query.staleness_identity`).
    - `open`: [phase, since], the work in progress at the time of the report, which is not a span yet. `communicating`:
      [number, since] of each communication in progress (`Context.communication`), in one list.
    - Of a role that computes a gradient in pieces: `activations`, the maximum number of (micro-)batches whose activations it
      has held at once; of a pipeline stage: `stashed`, the maximum number of versions of its weights that it has held at once.
    - Of a shard of rows: `rows`, the number of rows touched; `row_pulls` and `row_pushes`, the numbers of pulls and
      pushes of single rows; `hot`, [[row, pulls, pushes], ...] of the rows that were pulled most often.
    """

    phases: list[int] = field(default_factory=lambda: [0] * len(PHASES))
    bytes: list[int] = field(default_factory=lambda: [0] * len(CATEGORIES))
    drops: list[int] = field(default_factory=lambda: [0] * len(REASONS))
    messages: int = 0
    computed: int = 0
    released: int = 0
    steps: int = 0
    shard: int = -1
    updates: int = 0
    gradients: int = 0
    samples: int = 0
    version: int = 0
    rounds: int = 0
    duplicates: int = 0
    outstanding: int = 0
    residual: int = 0
    open: list[int] = field(default_factory=list)
    communicating: list[int] = field(default_factory=list)
    activations: int = 0
    stashed: int = 0
    rows: int = 0
    row_pulls: int = 0
    row_pushes: int = 0
    hot: list[list[int]] = field(default_factory=list)
    applied: dict[int, list[int]] = field(default_factory=dict)
    staleness: dict[int, int] = field(default_factory=dict)
    reads: dict[int, int] = field(default_factory=dict)
    last_received: dict[int, int] = field(default_factory=dict)
    rounds_by_incarnation: dict[int, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the counters as plain numbers, lists and dicts with string keys."""
        return {each.name: _copied(getattr(self, each.name), str) for each in fields(self)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Counters:
        """Restore the counters from the output of `to_dict`."""
        return cls(**{each.name: _copied(plain[each.name], int) for each in fields(cls)})


def _copied(value: Any, key: type) -> Any:
    if isinstance(value, dict):
        return {key(k): _copied(v, key) for k, v in value.items()}
    return list(value) if isinstance(value, (list, tuple)) else value


# Counters taken from the newest incarnation of a restarted role, because a restored shard continues its counts.
NEWEST = frozenset({
    "applied", "communicating", "gradients", "hot", "last_received", "open", "reads", "rounds", "rounds_by_incarnation", "rows",
    "samples", "shard", "updates", "version",
})  # fmt: skip


def combine_counters(instances: Sequence[Counters]) -> Counters:
    """Combine the counters of the incarnations of a role, oldest first: work done is summed, and state is that of the
    newest one.
    """
    last = instances[-1]
    if len(instances) == 1:
        return last
    made = Counters()
    for name in (each.name for each in fields(Counters)):
        values = [getattr(instance, name) for instance in instances]
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


class RowBuffer(Protocol):
    def __iadd__(self, row: bytes, /) -> Self: ...

    def extend(self, row: Sequence[int], /) -> None: ...

    def __len__(self) -> int:
        """In bytes."""


class _Rows(bytearray):
    __slots__ = ()

    def extend(self, row: Sequence[int]) -> None:  # type: ignore[override]
        """Add a row where speed does not matter."""
        self += _BY_WIDTH[len(row)](*row)


class _DiscardedRows:
    """The rows of a run that is not recorded."""

    def __iadd__(self, row: bytes) -> Self:
        return self

    def extend(self, row: Sequence[int], /) -> None:
        pass

    def __len__(self) -> int:
        return 0


class Recorder:
    """The rows and counters of one role instance.

    `record`: whether rows of all tables are kept. If False, the recorder keeps counters, events, predictions, and the
    rows of drops, progress, norms and evaluations only. `roles`: the number of roles in the run, which determines the
    numbers of instances.
    """

    __slots__ = (
        "applies",
        "communications",
        "counters",
        "drops",
        "evaluations",
        "events",
        "gradient_noise",
        "hottest",
        "incarnation",
        "messages",
        "norms",
        "number",
        "pieces",
        "predictions",
        "progress",
        "record",
        "role",
        "roles",
        "spans",
        "unacknowledged",
        "validations",
    )

    spans: RowBuffer
    applies: RowBuffer
    messages: RowBuffer
    pieces: RowBuffer
    communications: RowBuffer
    drops: _Rows
    progress: _Rows
    norms: array[float]
    gradient_noise: array[float]
    evaluations: array[float]
    validations: array[float]

    def __init__(self, role: int, incarnation: int = 0, record: bool = True, roles: int = 1 << 30):
        self.role, self.incarnation, self.record, self.roles = role, incarnation, record, roles
        self.counters = Counters()
        # called when a batch is taken; returns a few rows of many
        self.hottest: Callable[[], list[list[int]]] | None = None
        self.events: list[Event] = []
        self.predictions: list[tuple[int, int, bytes, bytes]] = []  # see `trace.prediction_history.PredictedClasses`
        self.number = 0  # number of batches taken
        # Rows of drops in batches that are not acknowledged: (number of the batch, rows). None: batches cannot get lost.
        self.unacknowledged: deque[tuple[int, bytes]] | None = None
        for name in TABLES:
            self._empty(name)

    def _empty(self, name: str) -> None:
        # A run that is not recorded keeps these two: the ledger needs the row of every drop, because the counters have only
        # totals by reason, and curves are drawn from the progress.
        kept = self.record or name in ("drops", "progress")
        setattr(self, name, array("d") if name not in INTEGER_TABLES else _Rows() if kept else _DiscardedRows())

    def rows_waiting(self) -> int:
        """Return the total number of values in the buffers of all tables."""
        integers = sum(len(getattr(self, name)) for name in INTEGER_TABLES) // 8
        floats = sum(len(getattr(self, name)) for name in TABLES if name not in INTEGER_TABLES)
        return integers + floats + len(self.events) + len(self.predictions)

    def span(self, phase: int, start: int, end: int, step: int = -1) -> None:
        """Record that the role was in `phase` from `start` to `end` (ns). Empty spans are not recorded."""
        if end > start:
            self.counters.phases[phase] += end - start
            self.spans += SPAN(phase, start, end, step)

    def apply(
        self, shard: int, time: int, sender: int, step: int, count: int, samples: int, staleness: int, version: int,
        incarnation: int = 0,
    ) -> None:  # fmt: skip
        """Record that `count` gradients of `sender`, up to number `step`, were applied to `shard`, which then is at
        `version`.
        """
        c = self.counters
        c.gradients += count
        c.samples += samples
        c.staleness[staleness] = c.staleness.get(staleness, 0) + count
        if sender == ALL:
            c.rounds = step + 1
        else:  # a new list each time, so that a copy of the counters keeps the old one
            instance = sender + incarnation * self.roles if incarnation else sender
            held = c.applied.get(instance)
            c.applied[instance] = [count if held is None else count + held[0], step]
        self.applies += APPLY(shard, time, sender, step, count, samples, staleness, version)

    def drop(self, shard: int, time: int, sender: int, incarnation: int, step: int, count: int, why: int) -> None:
        """Record that `count` gradients of `sender`, up to number `step`, will never be applied to `shard`."""
        self.counters.drops[why] += count
        self.drops += DROP(shard, time, sender, incarnation, step, count, why)

    def acknowledge(self, number: int) -> None:
        """Discard the unacknowledged rows of all batches up to this number, because these batches have arrived in the
        trace.
        """
        waiting = self.unacknowledged
        while waiting and waiting[0][0] <= number:
            waiting.popleft()

    def unreported_drops(self) -> list[list[int]]:
        """Return the rows of drops, as lists, that are not reported yet, or whose batch is not acknowledged."""
        raw = b"".join(rows for _, rows in self.unacknowledged or ()) + bytes(self.drops)
        return [list(row) for row in _DROP_ROW.iter_unpack(raw)]

    def repeat_drops(self, rows: Sequence[Sequence[int]]) -> None:
        """Report rows of drops that an earlier incarnation has counted but may not have reported."""
        for row in rows:
            self.drops += DROP(*row)

    def event(self, event: Event) -> None:
        self.events.append(replace(event, recorder=self.role))

    def begin(self, now: int) -> None:
        """Set the time of the events of the preparation, during which the role had no engine time, to `now` (ns)."""
        self.events = [replace(event, time=now) for event in self.events]

    def add_predictions(self, time: int, update: int, samples: bytes, grid: bytes) -> None:
        """Record the predictions of the model of `update` for the held-out samples and for the cells of the grid, one
        byte each.
        """
        self.predictions.append((time, update, samples, grid))

    def restored(self, now: int) -> None:
        """Report the initial state of a restored shard, so that it is not counted as work."""
        if self.counters.shard >= 0:
            self.progress += PROGRESS(now, RESTORED, self.counters.gradients)
            self._progress(now)

    def _progress(self, now: int) -> None:
        """Report the gradients applied so far, by sender. These counts are exact even if rows of `applies` are skipped."""
        c = self.counters
        if c.shard >= 0:
            counts: dict[int, int] = {}
            for instance, (count, _) in c.applied.items():
                counts[instance % self.roles] = counts.get(instance % self.roles, 0) + count
            for sender, count in counts.items():
                self.progress += PROGRESS(now, sender, count)
            self.progress += PROGRESS(now, ALL, c.gradients)

    def take(self, until: int, limit: int | None = None, plain: bool = True) -> dict[str, Any]:
        """Empty the buffers into a batch, and return it. `until` (ns): the role reports nothing more about earlier times.

        `limit`: the maximum size in bytes of spans, applies and messages together, of which each has a third, as has each
        of the other tables of `LIMITED`. Further rows are left out and counted in `skipped`. Drops, evaluations, norms,
        events, predictions and counters are never left out. `plain`: whether the
        batch contains only bytes and plain values, as it must if it is sent to another process. If False, buffers and
        counters are not copied.
        """
        # only processes skip rows; in virtual time the rows of `applies` are complete
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
            if limit is not None and name in LIMITED:
                width = 8 * len(table.names)
                keep = limit // 3 // width * width
                if keep < len(raw):
                    skipped[name] = (len(raw) - keep) // width
                    raw = raw[:keep]
            tables[name] = raw
            # a new buffer, because the batch may contain the old one itself
            self._empty(name)
        batch = {
            "role": self.role, "incarnation": self.incarnation, "until": until, "tables": tables, "skipped": skipped,
            "events": [event.to_dict() for event in self.events] if plain else self.events, "predictions": self.predictions,
            "counters": self.counters.to_dict() if plain else self.counters,
        }  # fmt: skip
        if self.unacknowledged is not None:
            batch["number"] = self.number
        self.events, self.predictions = [], []
        return batch
