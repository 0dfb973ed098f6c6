"""The append-only record of a run.

Engines append rows, and all other components only read them. Every plot, number, verdict and export is a function of a
`Trace` only. Old rows may be dropped ("spilled") to bound memory. Counters are never dropped, so totals stay exact.
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Iterable
from typing import Any, Protocol, overload

import numpy as np

from ..description import Description, HasDescription
from ..errors import BadInput, nearest, shown
from ..formatting import count_text, duration
from ..table import Table as ShownTable
from .events import Event, RoleFrozen, RoleLeft, RoleLost
from .header import TraceHeader
from .prediction_history import PredictedClasses, PredictionHistory
from .recorder import Counters, combine_counters
from .schema import TABLES, TableSchema

CONTENTS = {
    "spans": "what each role did, and when", "applies": "gradients applied, with staleness", "messages": "messages, with times",
    "progress": "gradients applied so far, as shards report them", "drops": "gradients not applied, and why",
    "norms": "norms of gradients and weights", "gradient_noise": "norms of gradients on the same weights, and of their mean",
    "evaluations": "loss and accuracy on held-out data",
    "validations": "loss and accuracy on the validation part",
    "pieces": "backward passes by layer", "communications": "communications of tasks, hidden and exposed",
}  # fmt: skip
USES = "lk.to_frames(trace): data frames; lk.save_npz, lk.to_perfetto: files; lk.ledger(trace): what became of each gradient."


class TraceTable:
    """A table of append-only columns. `table.column("start")` is one column of all rows that are kept, shape (rows,).

    `keep`: the maximum number of rows. When it is reached, all rows but the newest `keep` / 2 are dropped. `spilled`: the
    number of rows dropped so far. `skipped`: the number of rows that roles never reported. An array that was returned
    does not change later: new rows are written after its last row, or all rows are copied to new memory.
    """

    def __init__(self, name: str, schema: TableSchema, keep: int):
        self.name, self.columns = name, tuple(column.name for column in schema.columns)
        self.dtype, self.keep = np.dtype(schema.dtype), keep
        self.spilled = 0
        self.skipped = 0
        self._data = np.empty((0, len(self.columns)), self.dtype)
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, role: int, raw: bytes) -> None:
        values = np.frombuffer(raw, self.dtype).reshape(-1, len(self.columns) - 1)
        if self._rows + len(values) > len(self._data):
            self._make_room(len(values))
        added = self._data[self._rows : self._rows + len(values)]
        added[:, 0] = role
        added[:, 1:] = values
        self._rows += len(values)

    def _make_room(self, more: int) -> None:
        rows = self.rows()
        if len(rows) + more > self.keep:
            # Half of the rows at once: dropping just the oldest ones would move all others for every batch.
            rows = rows[max(0, len(rows) - self.keep // 2) :]
            self.spilled += self._rows - len(rows)
        capacity = max(min(2 * (len(rows) + more), self.keep), len(rows) + more, 64)
        # a new array, because columns that were returned are views of the old one
        self._data = np.empty((capacity, len(self.columns)), self.dtype)
        self._data[: len(rows)] = rows
        self._rows = len(rows)

    def rows(self) -> np.ndarray:
        """Shape (rows, columns)."""
        return self._data[: self._rows]

    def column(self, name: str) -> np.ndarray:
        """Shape (rows,)."""
        return self.rows()[:, self.columns.index(name)]


class Trace(HasDescription):
    """The record of one run: tables with the high-rate rows, counters, and discrete events.

    Every number, picture and export is made from it. Times are integers in ns of engine time. Old rows may be dropped to bound
    memory; counters are never dropped, so totals are exact.

    Parameters
    ----------
    header : TraceHeader
        The description of the run: problem, strategy, cluster, layout, budget, seed.
    keep : int, default: 4_000_000
        The largest number of rows of a table.

    Attributes
    ----------
    header : TraceHeader
        The description of the run, as `run.trace.header.problem.batch_size`.
    roles, kinds, nodes : tuple of str
        The name, the kind and the node of each role.
    observed : tuple of int
        The numbers of the roles whose shards make up the evaluated model.
    tables : dict of str to Table
        "spans", "applies", "messages", "progress", "drops", "norms", "gradient_noise", "evaluations", "validations",
        "pieces" and "communications"; see `column`.
    counters : dict of int to Counters
        The counters of each role, of all its incarnations together.
    instances : dict of int to Counters
        The newest counters of incarnation k of role i, at i + k * len(roles).
    events : list of Event
        The discrete events in the order in which they were reported.
    predictions : PredictionHistory
        The predictions of the model for the evaluation samples.
    reported_until : dict of int to int
        The time up to which each role has reported.
    now : int
        The newest of these times.
    ending : dict or None
        None while the run is live, then {"stopped_by", "why", "time", ...}.

    See Also
    --------
    to_frames : The tables as data frames.
    save_npz, load_npz : Write a trace to a file, and read it.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=3), lk.Budget(updates=100)
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, budget).wait()
    >>> run.trace.roles
    ('server-0', 'worker-0', 'worker-1', 'worker-2', 'chief')
    >>> float(run.trace.column("applies", "staleness").mean())
    1.97
    """

    def __init__(self, header: TraceHeader, keep: int = 4_000_000):
        self.header = header
        self.roles: tuple[str, ...] = tuple(r.name for r in header.layout.roles)
        self.kinds: tuple[str, ...] = tuple(r.kind for r in header.layout.roles)
        self.nodes: tuple[str, ...] = tuple(r.node for r in header.layout.roles)
        self.observed: tuple[int, ...] = tuple(map(self.roles.index, header.layout.observed))
        self.lock = threading.RLock()
        # all drops are kept: the ledger classifies each dropped gradient by its row
        self.tables = {
            name: TraceTable(name, schema, keep if name != "drops" else 1 << 62) for name, schema in TABLES.items()
        }
        self.events: list[Event] = []
        self.predictions = PredictionHistory()
        self.counters: dict[int, Counters] = {}
        self.instances: dict[int, Counters] = {}
        self._instances_of: dict[int, list[int]] = {}
        self.reported_until: dict[int, int] = {}
        self._silent_since: dict[str, int] = {}  # ns: the newest loss or freeze of a role, which ends its reports
        self.ending: dict[str, Any] | None = None
        self.now = 0

    def __repr__(self) -> str:
        rows = ", ".join(f"{len(table):,} {name}" for name, table in self.tables.items() if len(table))
        return f"<Trace of {self.header.strategy.name}, {self.now / 1e9:.2f} s: {rows}>"

    def _described(self) -> Description:
        kinds = [count_text(self.kinds.count(kind), kind) for kind in dict.fromkeys(self.kinds)]
        ending = self.ending
        state = "still recorded" if ending is None else f"ended: {ending['stopped_by']}"
        rows = [(name, len(table), CONTENTS[name]) for name, table in self.tables.items() if len(table)]
        rows.append(("events", len(self.events), "faults, commands, restarts, notes"))
        dropped = sum(table.spilled + table.skipped for table in self.tables.values())
        more = (f"{count_text(dropped, 'row')} more were counted only, to bound memory.",) if dropped else ()
        return Description(
            f"Trace of {self.header.strategy.name} on {self.header.problem.data}",
            (("roles", ", ".join(kinds)), ("duration", f"{duration(self.now)} of engine time, {state}")),
            (ShownTable(["table", "rows", "contents"], rows),),
            (*more, USES),
        )

    def append(self, batch: dict[str, Any]) -> None:
        """Add the rows, events and counters that a role reports.

        Parameters
        ----------
        batch : dict
            A batch taken from a `Recorder`.
        """
        role = batch["role"]
        with self.lock:
            for name, raw in batch["tables"].items():
                self.tables[name].append(role, raw)
            for name, count in batch["skipped"].items():
                self.tables[name].skipped += count
            for event in batch["events"]:
                self.event(event if isinstance(event, Event) else Event.from_dict(event))
            for predicted in batch["predictions"]:
                self.predictions.add(*predicted)
            counters = batch["counters"]
            made = counters if isinstance(counters, Counters) else Counters.from_dict(counters)
            self.set_counters(role + batch["incarnation"] * len(self.roles), made)
            self.reported_until[role] = max(self.reported_until.get(role, 0), batch["until"])
            self.now = max(self.now, batch["until"])

    def set_counters(self, instance: int, counters: Counters) -> None:
        """Store the newest counters of one role instance.

        Parameters
        ----------
        instance : int
            The number of the instance, as in `instances`.
        counters : Counters
            Its counters.
        """
        known = self._instances_of.setdefault(instance % len(self.roles), [])
        if instance not in known:
            insort(known, instance)
        self.instances[instance] = counters
        self.counters[instance % len(self.roles)] = combine_counters([self.instances[number] for number in known])

    def mark_reported(self, roles: Iterable[int], until: int) -> None:
        """Record that roles have no more rows up to a time.

        Parameters
        ----------
        roles : iterable of int
            The numbers of the roles.
        until : int
            The time in ns.
        """
        with self.lock:
            self.reported_until.update(dict.fromkeys(roles, until))
            self.now = max(self.now, until)

    def predictions_at(self, t: int) -> PredictedClasses | None:
        """Return the newest predictions for the evaluation samples at a time.

        Parameters
        ----------
        t : int
            The time in ns.

        Returns
        -------
        PredictedClasses or None
            The predictions; None before the first evaluation.
        """
        with self.lock:
            return self.predictions.at(t)

    def event(self, event: Event) -> None:
        """Add an event of the engine or of a user command.

        Parameters
        ----------
        event : Event
            The event.
        """
        with self.lock:
            self.events.append(event)
            if isinstance(event, RoleLost | RoleLeft | RoleFrozen):
                self._silent_since[event.name] = event.time

    def end(self, **ending: Any) -> None:
        """Mark the run as ended. Nothing is appended after this.

        Parameters
        ----------
        **ending : object
            The values of the attribute `ending`.
        """
        with self.lock:
            self.ending = ending
            self.now = max(self.now, ending["time"])

    def watermark(self, silence: int = 1_000_000_000) -> int:
        """Return the time up to which all roles have reported.

        Parameters
        ----------
        silence : int, default: 1_000_000_000
            Roles that have not reported for this time (ns) are ignored, and so are roles that were lost or frozen and have not
            reported since.

        Returns
        -------
        int
            The time in ns.
        """
        with self.lock:
            if self.ending is not None:
                return self.ending["time"]
            since, ended = self.now - silence, self._silent_since
            # A lost or frozen role is not waited for, not even for `silence`: figures would stand still just when something
            # happens.
            current = [
                t for role, t in self.reported_until.items() if t > max(since, ended.get(self.roles[role], since))
            ]
            return min(current, default=self.now)

    @overload
    def column(self, table: str, name: str, /) -> np.ndarray: ...

    @overload
    def column(self, table: str, name: str, second: str, /, *names: str) -> list[np.ndarray]: ...

    def column(self, table: str, *names: str) -> np.ndarray | list[np.ndarray]:
        """Return columns of a table.

        All columns of one call have the same rows, even if the run is live.

        Parameters
        ----------
        table : str
            The name of the table.
        *names : str
            The names of one or several columns.

        Returns
        -------
        ndarray or list of ndarray
            The column, of shape (rows,), or a list of the columns. Roles, phases and kinds are numbers, times are in ns.

        Raises
        ------
        BadInput
            If there is no such table or column; the message lists the names.
        """
        if table not in self.tables:
            raise nearest("table", table, self.tables)
        for name in names:
            if name not in self.tables[table].columns:
                raise nearest(f"column of {table}", name, self.tables[table].columns)
        with self.lock:
            rows, columns = self.tables[table].rows(), self.tables[table].columns
        # without the lock: rows that were returned are never written again
        picked = [rows[:, columns.index(name)] for name in names]
        return picked[0] if len(picked) == 1 else picked

    def role_ids(self, kind: str) -> list[int]:
        """Return the numbers of all roles of a kind, in order.

        Parameters
        ----------
        kind : str
            The kind, as "worker".

        Returns
        -------
        list of int
            The indices in `roles`.
        """
        return [i for i, k in enumerate(self.kinds) if k == kind]


def check_trace(trace: object, name: str = "trace") -> Trace:
    """Return `trace` if it is a `Trace`; otherwise raise `BadInput` with the argument's `name`."""
    if not isinstance(trace, Trace):
        raise BadInput(
            f"{name}={shown(trace)} is not allowed; give the trace of a run, as run.trace or lk.load_npz(path)."
        )
    return trace


class Traced(Protocol):
    @property
    def trace(self) -> Trace: ...


RunOrTrace = Traced | Trace
