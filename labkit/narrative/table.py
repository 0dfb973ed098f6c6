"""One run as a table row, and several rows as CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from ..formatting import bytes_text, short
from ..trace.events import (
    LinkEvent,
    OptionsSet,
    RoleEvent,
    RoleLimited,
    RoleSlowed,
)
from ..trace.header import RecordedProblem, TraceHeader
from ..trace.role_states import events_until
from ..trace.schema import seconds
from ..trace.summary import summary
from ..trace.trace import Trace

# Keys of a row, and their headings with the unit, in the order of the file.
COLUMNS: dict[str, str] = {
    "run": "run", "strategy": "strategy", "engine": "engine", "workers": "workers", "servers": "servers",
    "rate": "learning rate", "batch": "batch (samples)", "data": "data", "settings": "other settings",
    "pace": "gradient time (distribution, s)", "commands": "faults and option changes", "seed": "seed", "loss": "final loss",
    "accuracy": "accuracy (0 to 1)", "goal": "target accuracy (0 to 1)", "time_to_accuracy": "time to target accuracy (s)",
    "gradients": "gradients applied", "gradients_per_second": "gradients per second (1/s)",
    "staleness_mean": "mean staleness (updates)", "staleness_p95": "95th percentile of staleness (updates)",
    "bytes_sent": "sent (bytes)", "seconds": "duration (s)", "stopped_by": "stopped by",
}  # fmt: skip

VARIANT_OPTIONS = ("K", "s", "b", "H", "tau", "graph", "shape", "order", "dense")  # options that identify the variant
OWN_COLUMN = ("learning_rate", "eval_every")  # the first has a separate column, the second does not affect training


def run_row(trace: Trace) -> dict[str, Any]:
    """Return the run so far as {key of `COLUMNS` except "run": plain value}. Times are in seconds, sizes in bytes.

    Values that do not exist are None, for example the time to an accuracy that was not reached.
    """
    seen, header = summary(trace), trace.header
    return {
        "strategy": seen["strategy"], "engine": seen["engine"], "workers": seen["workers"], "servers": seen["servers"],
        "rate": header.strategy.options.get("learning_rate"), "batch": header.problem.batch_size, "data": _data(header.problem),
        "settings": _settings(header), "pace": _distribution(header.cluster.compute),
        "commands": _commands(trace),
        "seed": seen["seed"], "loss": seen["loss"], "accuracy": seen["accuracy"], "goal": header.budget.target_accuracy,
        "time_to_accuracy": seen["time_to_accuracy"], "gradients": seen["gradients"],
        "gradients_per_second": seen["gradients_per_second"], "staleness_mean": seen["staleness"]["mean"],
        "staleness_p95": seen["staleness"]["p95"],
        "bytes_sent": sum(count for kinds in seen["bytes_sent"].values() for count in kinds.values()),
        "seconds": seen["seconds"], "stopped_by": seen["stopped_by"],
    }  # fmt: skip


def runs_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as comma-separated text, with a first line of headings with units.

    `rows`: results of `run_row`, each optionally with the number of the run as "run".

    The columns and their order are always the same. Missing values are empty. Lines end with CR LF, as in RFC 4180.
    """
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\r\n")
    writer.writerow(COLUMNS.values())
    for row in rows:
        writer.writerow(["" if row.get(name) is None else row[name] for name in COLUMNS])
    return made.getvalue()


def _data(problem: RecordedProblem) -> str:
    """Return the name of the data and the options that differ from the default, for example `digits` or `digits,
    by-label`.
    """
    options = [f"{name}={value}" for name, value in problem.options.items()]
    options += [f"class_weights={problem.class_weights}"] if problem.class_weights else []
    share = problem.partition
    return ", ".join([problem.data, *options, *([share] if share != "Even()" else [])])


def _settings(header: TraceHeader) -> str:
    """Return the variant of the strategy and the options that differ from the default, as text.

    For example `K=2, optimizer=Momentum(momentum=0.9), latency=0.01 s`.
    """
    options, usual = header.strategy.options, header.strategy.usual
    said = [f"{name}={options[name]}" for name in VARIANT_OPTIONS if name in options]
    others = [
        name for name in usual if name not in (*VARIANT_OPTIONS, *OWN_COLUMN) and options.get(name) != usual[name]
    ]
    said += [f"{name}={options[name]}" for name in others]
    said.append("=".join(header.problem.architecture))
    for name, unit in (("latency", "s"), ("bandwidth", "bytes/s")):
        if value := getattr(header.cluster, name):
            said.append(f"{name}={value:g} {unit}")
    return ", ".join(said)


def _distribution(distribution: str | None) -> str:
    if not distribution:
        return "full speed"
    return distribution.removeprefix("deterministic:")


def _commands(trace: Trace) -> str:
    """Return the commands and faults of the run with their times: `w2 x5 at 5 s; learning_rate = 0.05 at 8 s`."""
    said = []
    for event in events_until(trace, trace.now):
        at = f" at {seconds(event.time):.3g} s" if event.time > 0 else ""
        match event:
            case RoleLimited(name=name, bandwidth=bandwidth):
                said.append(f"{short(name)} {'no limit' if bandwidth is None else bytes_text(bandwidth) + '/s'}{at}")
            case RoleSlowed(name=name, factor=factor):
                said.append(f"{short(name)} x{factor:g}{at}")
            case OptionsSet():
                said.append(f"{event}{at}")
            case RoleEvent(name=name) | LinkEvent(name=name) if event.command:
                said.append(f"{event.command} {short(name)}{at}")
    return "; ".join(said)
