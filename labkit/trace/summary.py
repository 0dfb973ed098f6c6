"""Summary of a run as plain values: the output of `--json`, and the values of a row in the table of runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .header import RULES
from .ledger import ledger
from .overlap import overlap
from .query import bytes_sent, judged_on, last_evaluation, phases, samples_applied, staleness, time_to_accuracy, updates
from .role_states import workers_of
from .schema import seconds
from .trace import Trace

PARTS = {"evaluations": "test set", "validations": "validation part"}


def summary(trace: Trace) -> dict[str, Any]:
    """Return the summary of the run, as printed by `--json`. Times are in seconds, sizes in bytes."""
    ending = trace.ending or {}
    header = trace.header
    took = seconds(ending.get("time", trace.now))
    steps, book = updates(trace), ledger(trace)
    gradients, samples = book["applied"], samples_applied(trace)
    loss, accuracy, overlapped = ending.get("loss"), ending.get("accuracy"), overlap(trace)
    if not ending:
        seen = last_evaluation(trace, trained=False)
        _, loss, accuracy = seen or (None, None, None)
    _, *validated = last_evaluation(trace, trained=False, table="validations") or (None, None, None)

    def rate(n: float) -> float | None:
        return n / took if took > 0 else None

    return {
        "strategy": header.strategy.name,
        "engine": header.cluster.engine,
        "workers": len(workers_of(trace)),
        "servers": trace.kinds.count("server"),
        "seed": header.seed,
        "updates": steps,
        "gradients": gradients,
        "seconds": took,
        "wall_seconds": ending.get("wall_seconds"),
        "updates_per_second": rate(steps),
        "gradients_per_second": rate(gradients),
        "samples_per_second": rate(samples),
        "staleness": {k: v for k, v in staleness(trace).items() if k != "unknown"},
        "loss": _number(loss),
        "accuracy": _number(accuracy),
        "validation_loss": _number(validated[0]),
        "validation_accuracy": _number(validated[1]),
        "baseline_accuracy": _number(header.baseline_accuracy),
        "time_to_accuracy": time_to_accuracy(trace),
        "bytes_sent": bytes_sent(trace),
        "ledger": book,
        "phases": phases(trace),
        "communication": {"hidden": seconds(overlapped.hidden), "exposed": seconds(overlapped.exposed)}
        if overlapped
        else None,
        "parameters_sha256": ending.get("parameters_sha256"),
        "stopped_by": ending.get("stopped_by"),
        "stopped_on": stopped_on(trace),
    }


def stopped_on(trace: Trace) -> str | None:
    """Return the samples on which a rule of the budget has ended the run; None if it was no such rule, or has no samples."""
    if (trace.ending or {}).get("stopped_by") not in RULES or trace.header.problem.curvature is not None:
        return None
    return PARTS[judged_on(trace)]


def _number(value: float | None) -> float | None:
    """None if `value` is not finite, because JSON has no NaN."""
    return float(value) if value is not None and np.isfinite(value) else None
