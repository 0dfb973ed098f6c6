"""Who was disturbed, and when: what the marks of a trace say, in the short words of a figure."""

from __future__ import annotations

import re

import numpy as np

from ..trace.marks import factors, marks_until, short, shortened, slowed
from ..trace.trace import Trace

__all__ = ["factors", "knob_steps", "mark_labels", "short", "slow_spans", "slowed"]

MOST_LETTERS = 30


def slow_spans(trace: Trace, t: int, role: np.ndarray, start: np.ndarray) -> np.ndarray:
    """For each span (of `role`, begun at `start` ns): was its role slowed when it began?"""
    slow = np.zeros(len(role), dtype=bool)
    for who, steps in factors(trace, t).items():
        mine = np.flatnonzero(role == who)
        times = np.array([time for time, _ in steps])
        values = np.array([1.0, *(factor for _, factor in steps)])
        slow[mine] = values[np.searchsorted(times, start[mine], side="right")] != 1.0
    return slow


def mark_labels(trace: Trace, t: int) -> list[tuple[int, str]]:
    """(time, label) of everything that a person or a fault did during the run, up to `t`. What held from the start is
    no event, and what roles and engines remark is for the log.
    """
    found = []
    for mark in marks_until(trace, t):
        if mark["role"] >= 0 or mark["time"] <= 0 or mark["kind"] in ("warning", "note"):
            continue
        label = shortened(mark["text"])
        if mark["kind"] == "slow" and "factor" in mark:
            factor = mark["factor"]
            label = f"{short(mark['name'])} " + (
                "as before" if factor == 1 else f"{factor:g}x slower" if factor > 1 else f"{1 / factor:.3g}x faster"
            )
        found.append((mark["time"], label if len(label) <= MOST_LETTERS else label[: MOST_LETTERS - 1].rstrip() + "…"))
    return found


def knob_steps(trace: Trace, name: str, t: int) -> list[tuple[int, float]]:
    """[(time, value), ...] of a knob that is a number: as the run began, and as it was set since, up to `t`. Empty if the
    strategy has no such knob.
    """
    begun = trace.header["strategy"]["knobs"].get(name)
    if isinstance(begun, bool) or not isinstance(begun, (int, float)):
        return []
    steps = [(0, float(begun))]
    for mark in marks_until(trace, t):
        found = re.search(rf"(?:^|, ){re.escape(name)} = ([^,]+)", mark["text"]) if mark["kind"] == "set" else None
        if found:
            steps.append((mark["time"], float(found[1])))
    return steps
