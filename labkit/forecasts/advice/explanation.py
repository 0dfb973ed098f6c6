"""What the trace of a steady state says about its steps: the critical path, waiting, the bottleneck, staleness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...formatting import listed
from ...trace import Trace
from ...trace.critical_path import PathParts, critical_path
from ...trace.query import busy_share, staleness_between, traffic, traffic_by_node
from ...trace.role_states import workers_of
from ...trace.schema import APPLY
from ..steady_state import SteadyState
from .inputs import Inputs

BUSY = 0.9  # share of time from which a link, a server or the workers are the bottleneck


@dataclass(frozen=True)
class Explanation:
    """Why a step takes its time. `parts`: those of the step on the critical path, in seconds. `waiting`: the share of time in
    which workers wait. `bytes`: those of a step through the busiest direction of any node's link. `staleness`: the mean, or None.
    `text`: the parts, the waiting and the bottleneck in words.
    """

    parts: PathParts
    waiting: float
    bytes: float
    staleness: float | None
    text: str


def explain(steady: SteadyState, f: Inputs) -> Explanation:
    """Explain the steps of a steady state."""
    trace, (first, last) = steady.trace, steady.window
    _, stale, count = staleness_between(trace, first + 1, last)
    moved = traffic_by_node(trace, traffic(trace, first, last))
    node = max(moved, key=lambda one: max(moved[one]))
    link = max(moved[node]) * steady.step
    busy = busy_share(trace, (first, last), workers_of(trace))
    waiting = 0.0 if busy is None else 1.0 - busy
    path = critical_path(trace, first, last)
    length = sum(path) or 1.0
    names = ("computing", "updates", "latency", "transfer", "waiting without a message")
    ordered = sorted(zip(path, names), reverse=True)
    transfer = f.transfer_seconds(link) / steady.step if steady.step else 0.0
    occupied = max(
        (1 - waiting, "computing"), (transfer, f"the link of {trace.roles[node]}"), _updating(trace, first, last)
    )
    bottleneck = f"{occupied[1]}, {min(occupied[0], 1.0):.0%} of the time" if occupied[0] >= BUSY else ordered[0][1]
    shares = listed([f"{part / length:.0%} {name}" for part, name in ordered if part >= 0.005 * length])
    wait = f"; workers wait {waiting:.0%} of the time" if waiting >= 0.005 else ""
    return Explanation(
        PathParts(*(steady.step / length * seconds for seconds in path)), waiting, link,
        float(np.average(stale, weights=count)) if len(stale) else None, f"{shares}{wait}; bottleneck: {bottleneck}",
    )  # fmt: skip


def _updating(trace: Trace, first: int, last: int) -> tuple[float, str]:
    """Return (share of the time from `first` to `last` ns, "the updates of" the role that spends this share, the largest)."""
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    took = (np.minimum(end, last) - np.maximum(start, first)).clip(0) * (phase == APPLY)
    shares = np.bincount(role, took, len(trace.roles)) / (last - first)
    return float(shares.max()), f"the updates of {trace.roles[int(shares.argmax())]}"
