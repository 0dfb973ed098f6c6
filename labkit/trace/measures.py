"""Numbers about a run. Every one is a function of its trace, and of nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .ledger import ledger
from .role_states import absent
from .trace import Trace
from .vocabulary import CATEGORIES, PHASES, UNKNOWN, seconds

__all__ = [
    "bytes_sent", "hot_rows", "phases", "row_load", "samples_applied", "staleness", "staleness_identity", "staleness_law",
    "staleness_rows", "summary", "time_to_accuracy", "updates",
]  # fmt: skip


def _shards(trace: Trace) -> list[Any]:
    gone = (
        absent(trace) if trace.header["layout"]["replicated"] else ()
    )  # a replica that has left is no part of the model
    return [c for role, c in trace.counters.items() if c.shard >= 0 and role not in gone]


def updates(trace: Trace) -> int:
    """Steps applied to the whole model: the fewest of any shard. Of an ended run: those that the returned parameters hold,
    where its ending says so (`returned`, see `ledger`), as the shards may have applied more, or less, since.
    """
    ending = trace.ending or {}
    if (ending.get("returned") or {}).get("held"):
        return int(ending["update"])
    return min((c.updates for c in _shards(trace)), default=0)


def samples_applied(trace: Trace) -> int:
    """Training samples in the gradients applied: the fewest of any shard; of replicas that step by themselves, all. Of an
    ended run: those that the returned parameters hold, as in `updates`.
    """
    ending = trace.ending or {}
    if (ending.get("returned") or {}).get("held") and ending.get("samples") is not None:  # older files do not say
        return int(ending["samples"])
    seen = [c.samples for c in _shards(trace)]
    return sum(seen) if trace.header["layout"].get("copies") == "own" else min(seen, default=0)


def staleness(trace: Trace) -> dict[str, Any]:
    """Mean, max, 50th and 95th percentile and histogram of staleness over all gradients applied, shard by shard.

    Gradients of unknown staleness (their weights were of another generation) are counted in `unknown`, not as 0.
    """
    histogram: dict[int, int] = {}
    shards = _shards(trace)
    layout = trace.header["layout"]
    parts = [role["part"] for role in layout["roles"] if role["shard"] is not None]
    if layout.get("copies") == "equal" and parts.count(parts[0]) == len(parts):
        shards = shards[:1]  # replicas that apply the same gradients: one speaks for all
    for counters in shards:
        for value, count in list(counters.staleness.items()):  # a copy: a live run goes on counting
            histogram[value] = histogram.get(value, 0) + count
    unknown = histogram.pop(UNKNOWN, 0)
    values = np.array(sorted(histogram), dtype=np.int64)
    counts = np.array([histogram[v] for v in values.tolist()], dtype=np.int64)
    total = int(counts.sum())
    if not total:
        return {"mean": None, "max": None, "p50": None, "p95": None, "histogram": {}, "unknown": unknown}
    cumulated = np.cumsum(counts)
    return {
        "mean": float(values @ counts) / total,
        "max": int(values[-1]),
        "p50": int(values[np.searchsorted(cumulated, 0.50 * total)]),
        "p95": int(values[np.searchsorted(cumulated, 0.95 * total)]),
        "histogram": {str(v): int(c) for v, c in zip(values.tolist(), counts.tolist())},
        "unknown": unknown,
    }


def staleness_law(trace: Trace) -> tuple[float, str] | None:
    """(mean staleness, in words) that the strategy's own law demands, as the header says; None where no law is known.

    The number is the header's. The words name its formula where that gives this number, N being the workers that draw
    batches of their own.
    """
    strategy = trace.header["strategy"]
    mean = strategy.get("mean_staleness")
    if mean is None:
        return None
    if mean == 0:
        return mean, "always 0"
    others = len({role["data"] for role in trace.header["layout"]["roles"] if role["data"] is not None}) - 1
    together = strategy.get("knobs", {}).get("K")
    number = f"{mean:,.0f}" if mean == round(mean) else f"{mean:.4g}"
    if math.isclose(mean, others):
        return mean, f"mean = N − 1 = {number}"
    if isinstance(together, int) and math.isclose(mean * together, others):
        return mean, f"mean = (N − 1) / K = {number}"
    return mean, f"mean = {number}"


def staleness_rows(trace: Trace, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sender, staleness, gradients) of what was applied in [first, last] ns; unknown staleness left out."""
    time, sender, stale, count = trace.column("applies", "time", "sender", "staleness", "count")
    seen = (time >= first) & (time <= last) & (stale != UNKNOWN)
    return sender[seen], stale[seen], count[seen]


def staleness_identity(trace: Trace, shard_role: int) -> tuple[int, int]:
    """Both sides of the conservation law of staleness, for the shard of one role. Where each read is followed by one
    gradient, they are equal, whatever the times were:

    sum(staleness) = sum over updates of (readers outstanding before it - 1) - counters at the end, where a reader is
    outstanding from its read until its gradient is applied or dropped, and its counter is the updates applied in
    between. For every update adds one to the counters of all outstanding readers but the one that it serves, and takes
    that one's away.

    The left side is what gradients said of themselves, the right side is counted from who read and who was served.
    Neither is sampled.
    """
    c = trace.counters[shard_role]
    left = sum(value * count for value, count in c.staleness.items() if value != UNKNOWN)
    return left, c.outstanding - c.residual - sum(c.version - read for read in c.reads.values())


def time_to_accuracy(trace: Trace, accuracy: float | None = None) -> float | None:
    """Seconds until an evaluation first reached `accuracy` (the budget's, or .95)."""
    goal = accuracy if accuracy is not None else trace.header["budget"].get("accuracy", 0.95)
    time, reached = trace.column("evaluations", "time", "accuracy")
    hits = np.flatnonzero(reached >= goal)
    return seconds(float(time[hits[0]])) if len(hits) else None


def bytes_sent(trace: Trace) -> dict[str, dict[str, int]]:
    """Payload bytes sent, by kind of role and by why they were sent."""
    sums: dict[str, dict[str, int]] = {}
    for role, counters in sorted(trace.counters.items()):
        into = sums.setdefault(trace.kinds[role], dict.fromkeys(CATEGORIES, 0))
        for name, count in zip(CATEGORIES, counters.bytes):
            into[name] += count
    return sums


def hot_rows(trace: Trace, most: int = 10) -> list[tuple[int, int, float]]:
    """(row, pulls, share of all pulls) of the rows of a table that were pulled most, the hottest first.

    Every server reports a few dozen of its rows, so `most` beyond 32 may leave some out; shares are of all pulls.
    """
    counters = _shards(trace)
    total = sum(c.row_pulls for c in counters)
    hot = sorted(
        ((pulls, row) for c in counters for row, pulls, _ in list(c.hot)), key=lambda both: (-both[0], both[1])
    )
    return [(row, pulls, pulls / total) for pulls, row in hot[:most] if pulls]


def row_load(trace: Trace) -> list[tuple[str, int, int, float]]:
    """(server, rows touched, pulls and pushes of single rows, share of them) of every server of an embedding table."""
    servers = [(i, trace.counters[i]) for i in trace.role_ids("server") if i in trace.counters]
    total = sum(c.row_pulls + c.row_pushes for _, c in servers)
    if not total:
        return []
    loads = [(i, c, c.row_pulls + c.row_pushes) for i, c in servers]
    return [(trace.roles[i], c.rows, load, load / total) for i, c, load in loads]


def phases(trace: Trace) -> dict[str, dict[str, float]]:
    """Seconds by kind of role and phase, added up over the roles of the kind."""
    sums: dict[str, dict[str, int]] = {}
    for role, counters in sorted(trace.counters.items()):
        into = sums.setdefault(trace.kinds[role], dict.fromkeys(PHASES, 0))
        for name, count in zip(PHASES, counters.phases):
            into[name] += count
    return {kind: {name: seconds(ns) for name, ns in spent.items() if ns} for kind, spent in sums.items()}


def summary(trace: Trace) -> dict[str, Any]:
    """The run in numbers: the object that `--json` prints. Times in seconds, sizes in bytes."""
    ending = trace.ending or {}
    header, cluster = trace.header, trace.header["cluster"]
    took = seconds(ending.get("time", trace.now))
    steps, book = updates(trace), ledger(trace)
    gradients, samples = book["applied"], samples_applied(trace)
    loss, accuracy = ending.get("loss"), ending.get("accuracy")
    if not ending:
        seen = trace.column("evaluations", "loss", "accuracy")
        if len(seen[0]):
            loss, accuracy = float(seen[0][-1]), float(seen[1][-1])

    def rate(n: float) -> float | None:
        return n / took if took > 0 else None

    return {
        "strategy": header["strategy"]["name"],
        "engine": cluster["engine"],
        "workers": trace.kinds.count("worker"),
        "servers": trace.kinds.count("server"),
        "seed": header["seed"],
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
        "time_to_accuracy": time_to_accuracy(trace),
        "bytes_sent": bytes_sent(trace),
        "ledger": book,
        "phases": phases(trace),
        "parameters_sha256": ending.get("parameters_sha256"),
        "stopped_by": ending.get("stopped_by"),
    }


def _number(value: float | None) -> float | None:
    """A finite number, or None: JSON knows no NaN."""
    return float(value) if value is not None and np.isfinite(value) else None
