"""What holds for the record of every run that is over, whatever its engine, strategy and faults."""

from __future__ import annotations

from typing import Any

from labkit.trace import ledger
from labkit.trace.schema import TABLES


def balanced(run: Any) -> dict[str, Any]:
    """The ledger of a run that is over: it balances, and no row or event lies outside the time of the run."""
    entries: dict[str, Any] = ledger(run.trace)
    assert entries["closes"] is True, (entries, [str(event) for event in run.trace.events])
    assert entries["missing"] == 0, entries
    wrong = times_out_of_range(run.trace)
    assert wrong == [], wrong
    return entries


def times_out_of_range(trace: Any) -> list[str]:
    """The times of rows, events and predictions before 0 or after the end of the run.

    The end itself is compared with the wall time of the run, if it has one: engine time does not count pauses. In virtual time a
    message has a row from the time at which it is sent, so its arrival may lie after the end.
    """
    end, wall = trace.ending["time"], trace.ending["wall_seconds"]
    found = [] if wall is None or end <= wall * 1e9 else [f"the end is at {end} ns, after {wall} s of wall time"]
    for name, schema in TABLES.items():
        for column in schema.columns:
            if column.unit != "ns" or (wall is None and column.name == "received"):
                continue
            times = trace.column(name, column.name)
            found += [f"{name}.{column.name}: {time}" for time in times[(times < 0) | (times > end)].tolist()]
    found += [f"event {event.kind}: {event.time}" for event in trace.events if not 0 <= event.time <= end]
    return found + [f"predictions: {one.time}" for one in trace.predictions if not 0 <= one.time <= end]
