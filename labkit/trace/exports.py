"""Exports of a trace: `.npz` for storage, Chrome trace JSON for Perfetto, data frames for analysis.

Every export is a function of the trace only. A trace that was saved and loaded gives bit-identical numbers. No file uses
pickle, so reading a file never executes code from the file. Files are written atomically.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, check_installed, shown
from ..files import whole_file
from ..formats import Mismatch, check, check_format, open_arrays
from ..interrupts import DeferredInterrupt
from ..paths import as_path, writing
from .events import Event
from .file_form import (
    COUNTERS,
    ENDING,
    EVENTS,
    FORMAT,
    HEADER,
    KIND,
    OLDEST,
    about_form,
    check_codes,
    check_names,
    table_form,
    tables_of,
)
from .header import TraceHeader
from .overlap import NO_LAYER, BackwardPieces
from .prediction_history import PredictionHistory
from .recorder import Counters
from .schema import ALL, CATEGORIES, COMPUTE, NANO, PHASES, REASONS, RESTORED, TABLES, UNKNOWN, Column, seconds
from .trace import Trace, check_trace

if TYPE_CHECKING:
    import pandas

TEXTS = ("about", "header", "events", "counters", "ending")

# .npz ---------------------------------------------------------------------------------------------------------------


def save_npz(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write a whole trace to a file, from which `load_npz` reads it.

    Rows are sorted by role, so that equal runs give equal files. The file is written atomically, and without pickle.

    Parameters
    ----------
    trace : Trace
        The trace.
    path : str or path-like
        The file. No extension is added to the name.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    BadInput
        If the file cannot be written.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=20)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
    >>> path = lk.save_npz(run.trace, "run.npz")
    >>> lk.ledger(lk.load_npz(path)) == lk.ledger(run.trace)
    True
    """
    with check_trace(trace).lock:
        arrays = {name: _by_role(table.rows()) for name, table in trace.tables.items()}
        about = {
            "kind": KIND, "format": FORMAT, "now": trace.now, "until": sorted(trace.reported_until.items()),
            "columns": {name: list(table.columns) for name, table in trace.tables.items()},
            "spilled": {name: table.spilled for name, table in trace.tables.items()},
            "skipped": {name: table.skipped for name, table in trace.tables.items()},
            "thinned": trace.predictions.thinned,
        }  # fmt: skip
        counters = {str(instance): c.to_dict() for instance, c in sorted(trace.instances.items())}
        events = [e.to_dict() for e in sorted(trace.events, key=lambda event: (event.time, event.recorder))]
        values = (about, trace.header.to_dict(), events, counters, trace.ending)
        predictions = trace.predictions.arrays()
    members = {f"table.{name}": rows for name, rows in arrays.items()} | predictions
    for name, value in zip(TEXTS, values):
        members[name] = np.frombuffer(json.dumps(_plain(value), allow_nan=False).encode(), np.uint8)
    with _new_file(path) as file:
        np.savez_compressed(file, **members)  # type: ignore[arg-type]
    return Path(path)


def load_npz(path: str | os.PathLike[str]) -> Trace:
    """Read a trace that `save_npz` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    Trace
        A trace that gives bit-identical numbers and pictures.

    Raises
    ------
    BadInput
        If the file is missing or damaged, is not a labkit trace, or has another format.

    Examples
    --------
    >>> lk.load_npz("missing.npz")
    Traceback (most recent call last):
        ...
    labkit.errors.BadInput: There is no file 'missing.npz'.
    """
    with open_arrays(path, "a labkit trace") as file:
        about: Any = file.read_json("about", {"kind": KIND, "format": int})
        check_format(shown(as_path("path", path)), about["format"], FORMAT, OLDEST)
        check(about, about_form(about["format"]), "about")
        tables = tables_of(about["format"])
        for table in tables:
            file.fits(f"table.{table}", table_form(table))
        plain: Any = file.read_json("header", HEADER)
        texts = {name: file.read_json(name, form) for name, form in zip(TEXTS[2:], (EVENTS, COUNTERS, ENDING))}
        rows = {table: file.read(f"table.{table}", table_form(table)) for table in tables}
        return _rebuilt(about, TraceHeader.from_dict(plain), texts, rows, PredictionHistory.of(file, about["thinned"]))


def _rebuilt(
    about: dict[str, Any], header: TraceHeader, texts: dict[str, Any], rows: dict[str, np.ndarray],
    predictions: PredictionHistory,
) -> Trace:  # fmt: skip
    """Create a trace from the contents of a file. Raises `Mismatch` if they do not fit each other."""
    known = {role.name for role in header.layout.roles}
    for field, names in (("layout.observed", header.layout.observed), ("absent", header.absent)):
        for name in names:
            if name not in known:
                raise Mismatch(f"header.{field} names {shown(name)}, which is no role")
    trace = Trace(header, keep=max(4_000_000, *(len(r) + 1 for r in rows.values())))
    roles = len(trace.roles)
    for name, values in rows.items():
        table = trace.tables[name]
        check_codes(name, values, roles, len(header.messages), len(header.layers))
        numbers, starts = np.unique(values[:, 0], return_index=True)
        for role, first, last in zip(numbers.tolist(), starts, [*starts[1:], len(values)]):
            table.append(int(role), values[first:last, 1:].tobytes())
        table.spilled, table.skipped = about["spilled"][name], about["skipped"][name]
    trace.events, trace.predictions = [Event.from_dict(plain) for plain in texts["events"]], predictions
    check_names(trace.events, trace.roles)
    for instance, plain in sorted(texts["counters"].items(), key=lambda item: int(item[0])):
        trace.set_counters(int(instance), Counters.from_dict(plain))
    trace.reported_until = dict(about["until"])
    if not set(trace.reported_until) <= set(range(roles)):
        raise Mismatch("about.until has numbers of no role")
    trace.ending, trace.now = texts["ending"], about["now"]
    return trace


def _by_role(rows: np.ndarray) -> np.ndarray:
    """Return the rows sorted by role, in their order for each role. The result does not depend on how often roles
    reported.
    """
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _plain(value: object) -> object:
    """Convert `value` for JSON: NumPy numbers to Python numbers, and values that are not finite to None."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Perfetto -----------------------------------------------------------------------------------------------------------


def to_perfetto(trace: Trace, path: str | os.PathLike[str], arrows: int = 20_000) -> Path:
    """Write a trace as Chrome trace JSON for https://ui.perfetto.dev.

    There is one process per node, and one thread per role, with another one for its communications if it has tasks. Spans are
    slices, those of a piece of a backward pass with its layer; messages are arrows; staleness, updates, loss and
    accuracy are counters; events are instants. Times are in microseconds of engine time.

    Parameters
    ----------
    trace : Trace
        The trace.
    path : str or path-like
        The file.
    arrows : int, default: 20_000
        The largest number of messages that are written, at least 0: the first ones of those that took time or carried training
        data.

    Returns
    -------
    Path
        The path.

    Raises
    ------
    BadInput
        If the file cannot be written.

    Examples
    --------
    >>> import json
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=20)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, budget).wait()
    >>> path = lk.to_perfetto(run.trace, "run.json")
    >>> sorted(json.loads(path.read_text()))
    ['displayTimeUnit', 'otherData', 'traceEvents']
    """
    if not isinstance(arrows, int) or isinstance(arrows, bool) or arrows < 0:
        raise BadInput(f"arrows={shown(arrows)} is not allowed; it is a whole number, at least 0.")
    header, (skipped, messages) = check_trace(trace).header, _arrow_rows(trace, arrows)
    other = {
        "strategy": header.strategy.name, "engine": header.cluster.engine, "seed": header.seed,
        "messages_left_out": skipped,
    }  # fmt: skip
    with _new_file(path) as file:
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(_plain(other))},"traceEvents":[\n'.encode())
        first = True
        for event in _events(trace, messages):
            file.write((b"" if first else b",\n") + json.dumps(event, separators=(",", ":"), allow_nan=False).encode())
            first = False
        file.write(b"\n]}\n")
    return Path(path)


def _events(trace: Trace, messages: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yield every event of the file. Process and thread numbers start at 1, because 0 is the idle process."""
    pids = {node: i + 1 for i, node in enumerate(dict.fromkeys(trace.nodes))}
    where = [{"pid": pids[node], "tid": i + 1} for i, node in enumerate(trace.nodes)]
    for node, pid in pids.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": node}}
    for name, at in zip(trace.roles, where):
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": at["tid"]}}
    columns = trace.column("spans", "role", "phase", "start", "end", "step")
    role, phase, start, end, _ = columns
    work, layers = phase == COMPUTE, np.full(len(role), NO_LAYER)
    layers[work] = BackwardPieces().layers(trace, role[work], start[work], end[work])
    for who, what, begin, over, step, layer in zip(*(c.tolist() for c in (*columns, layers))):
        more: dict[str, Any] = {"args": {"step": step}} if step >= 0 else {}
        if layer != NO_LAYER:
            more["args"]["backward"] = trace.header.layers[layer]
        when = {"ts": _us(begin), "dur": _us(over - begin)}
        yield {"ph": "X", "name": PHASES[what], "cat": "span", **when, **where[who], **more}
    yield from _communications(trace, where)
    yield from _arrows(trace, messages, where)
    yield from _counters(trace, where)
    for event in list(trace.events):
        at = where[event.recorder] if event.recorder >= 0 else {"pid": 1, "tid": 1}
        yield {"ph": "i", "name": str(event), "cat": event.kind, "ts": _us(event.time), "s": "g", **at}


def _communications(trace: Trace, where: list[dict[str, int]]) -> Iterator[dict[str, Any]]:
    """Yield the communications of tasks, each role's in a thread of its own, because they begin and end within its spans."""
    rows = trace.column("communications", "role", "number", "start", "end", "hidden")
    for role in np.unique(rows[0]).tolist():
        at = {"pid": where[role]["pid"], "tid": len(where) + where[role]["tid"]}
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": f"{trace.roles[role]}, communication"}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": where[role]["tid"]}}
        for _, number, start, end, hidden in np.stack(rows, axis=1)[rows[0] == role].tolist():
            when, args = {"ts": _us(start), "dur": _us(end - start)}, {"number": number, "hidden_us": _us(hidden)}
            yield {"ph": "X", "name": f"bucket {number}", "cat": "communication", **when, **at, "args": args}


def _arrow_rows(trace: Trace, arrows: int) -> tuple[int, np.ndarray]:
    """Return (number of messages left out, the rows of the messages that are drawn, sorted by send time)."""
    columns = ("sender", "role", "kind", "category", "bytes", "sent", "received")
    rows = np.stack(trace.column("messages", *columns), axis=1)
    rows = rows[(rows[:, 3] == CATEGORIES.index("training")) | (rows[:, 6] > rows[:, 5])]
    rows = rows[np.argsort(rows[:, 5], kind="stable")]
    return max(0, len(rows) - arrows), rows[:arrows]


def _arrows(trace: Trace, messages: np.ndarray, where: list[dict[str, int]]) -> Iterator[dict[str, Any]]:
    """Yield the events of each message: slices without duration at the sender and at the receiver, and the arrow between
    them.

    The slices are needed because an arrow connects two slices, and a role has no slice of work when it sends or receives.
    """
    kinds = trace.header.messages
    for number, (sender, to, kind, category, size, sent, received) in enumerate(messages.tolist()):
        about = {"bytes": size, "from": trace.roles[sender], "to": trace.roles[to], "category": CATEGORIES[category]}
        flow = {"name": kinds[kind], "cat": "message", "id": number + 1}
        for phase, verb, at, role in (("s", "send", sent, sender), ("f", "receive", received, to)):
            here = {"ts": _us(at), **where[role]}
            yield {"ph": "X", "name": f"{verb} {kinds[kind]}", "cat": "message", "dur": 0, **here, "args": about}
            yield {"ph": phase, **flow, **here, **({"bp": "e"} if phase == "f" else {})}


def _counters(trace: Trace, where: list[dict[str, int]]) -> Iterator[dict[str, Any]]:
    columns = trace.column("applies", "role", "time", "staleness", "version")
    for role, time, stale, version in zip(*(c.tolist() for c in columns)):
        at = {"ph": "C", "ts": _us(time), "pid": where[role]["pid"]}
        yield {**at, "name": f"updates {trace.roles[role]}", "args": {"updates": version}}
        if stale != UNKNOWN:
            yield {**at, "name": f"staleness {trace.roles[role]}", "args": {"staleness": stale}}
    for table, part in (("evaluations", ""), ("validations", "validation ")):
        columns = trace.column(table, "role", "time", "loss", "accuracy")
        for role, time, *seen in zip(*(c.tolist() for c in columns)):
            for name, value in zip(("loss", "accuracy"), seen):
                if math.isfinite(value):
                    at = {"ph": "C", "ts": _us(time), "pid": where[int(role)]["pid"]}
                    yield {**at, "name": part + name, "args": {name: value}}


def _us(nanoseconds: float) -> float:
    return nanoseconds / 1000


# data frames --------------------------------------------------------------------------------------------------------


def to_frames(trace: Trace) -> dict[str, pandas.DataFrame]:
    """Return the tables of a trace as data frames.

    Roles, phases and kinds are names; times are in seconds. The sender is "everyone" for all workers together, and "restored" for
    the initial state of a restored shard. The shard is -1 for all shards. Unknown staleness is a missing value.

    Parameters
    ----------
    trace : Trace
        The trace.

    Returns
    -------
    dict of str to pandas.DataFrame
        A data frame for every table of the trace, and one for the "events".

    Raises
    ------
    BadInput
        If pandas is not installed.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=3, slow={"worker-2": 3})
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=200)).wait()
    >>> frames = lk.to_frames(run.trace)
    >>> sorted(frames)
    ['applies', 'communications', 'drops', 'evaluations', 'events', 'gradient_noise', 'messages', 'norms', 'pieces',
     'progress', 'spans', 'validations']
    >>> frames["applies"].groupby("sender")["staleness"].mean().round(1).to_dict()
    {'worker-0': 1.3, 'worker-1': 1.3, 'worker-2': 5.9}
    """
    check_installed("Data frames need", "pandas")
    with DeferredInterrupt():
        import pandas as pd
    names = _names(check_trace(trace))
    frames = {}
    for name, table in TABLES.items():
        picked = trace.column(name, *(column.name for column in table.columns))
        frames[name] = pd.DataFrame({c.name: _readable(c, v, names) for c, v in zip(table.columns, picked)})
    stale = frames["applies"]["staleness"].astype("Int64")
    frames["applies"]["staleness"] = stale.mask(stale == UNKNOWN)
    events = [(seconds(e.time), names["role"].get(e.recorder), e.kind, str(e)) for e in list(trace.events)]
    frames["events"] = pd.DataFrame(events, columns=["time", "recorder", "kind", "text"])
    return frames


def _names(trace: Trace) -> dict[str, dict[int, str]]:
    """Return {unit of a column: {number: name}}."""

    def numbered(names: Iterable[str]) -> dict[int, str]:
        return dict(enumerate(names))

    roles = numbered(trace.roles)
    return {
        "role": roles, "sender": {**roles, ALL: "everyone", RESTORED: "restored"}, "phase": numbered(PHASES),
        "reason": numbered(REASONS), "category": numbered(CATEGORIES), "message": numbered(trace.header.messages),
        "layer": numbered(trace.header.layers),
    }  # fmt: skip


def _readable(column: Column, values: np.ndarray, names: dict[str, dict[int, str]]) -> np.ndarray | list[str]:
    """Replace codes by names and nanoseconds by seconds. Other numbers are unchanged."""
    if column.unit in names:
        return [names[column.unit].get(int(v), str(int(v))) for v in values]
    if column.unit == "ns":
        return values / NANO
    return values.astype(np.int64) if column.name in ("step", "update") else values


# files --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open the file `path` for writing, see `whole_file`. Raises `BadInput` if it cannot be written."""
    with writing(path), whole_file(as_path("path", path)) as file:
        yield file
