"""The rate of a run on a cluster, computed from its trace, between the warm-up and the end.

Every report of a role has its cumulative counts, and the engine time up to which the counts are complete. Two reports
of the shard therefore give an exact rate for any level of recording, without start, stop and delays of the client.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import labkit as lk

NANO = 1_000_000_000
REPORT_TIMEOUT_S = 20.0  # timeout for the expected report, in seconds


@dataclass(frozen=True)
class Window:
    """A window of engine time: `duration` seconds, beginning at `warm_up`."""

    warm_up: float
    duration: float


def gradient_rate(problem: lk.Problem, strategy: lk.Strategy, cluster: lk.DaskCluster, window: Window) -> float:
    """Return the gradients applied per second of engine time within `window`."""
    longest = lk.Budget(seconds=window.warm_up + window.duration + REPORT_TIMEOUT_S)
    with lk.train(problem, strategy, cluster, longest, checkpoint=False) as run:
        began, before = _report(run, window.warm_up)
        ended, after = _report(run, began / NANO + window.duration)
    return (after - before) * NANO / (ended - began)


def _report(run: lk.Run, at: float) -> tuple[int, int]:
    """Return (engine time in ns, gradients applied) of the shard's first report for a time of at least `at` seconds."""
    trace = run.trace
    shard = trace.observed[0]
    give_up = time.monotonic() + at + REPORT_TIMEOUT_S
    while time.monotonic() < give_up:
        latest = _latest_counters(trace, shard)
        if latest is not None and latest[0] >= at * NANO:
            return latest
        if run.done:
            run.wait()  # raises the error that ended the run, if any
            raise RuntimeError(f"the run ended early: {run.stopped_by}")
        time.sleep(0.02)
    raise RuntimeError(f"{trace.roles[shard]} did not report for {REPORT_TIMEOUT_S:g} s")


def _latest_counters(trace: Any, shard: int) -> tuple[int, int] | None:
    with trace.lock:
        counters = trace.counters.get(shard)
        return None if counters is None else (trace.reported_until[shard], counters.gradients)
