"""Who was disturbed, and when: what the marks of a trace say, in the short words of a figure."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..trace.trace import Trace

__all__ = ["factors", "knob_steps", "mark_labels", "short", "slow_spans", "slowed"]

MOST_LETTERS = 30
_WORDS = {"worker": "w", "server": "s", "stage": "st", "replica": "r"}
_NAME = re.compile(r"\b(worker|server|stage|replica)-(\d+)\b")


def short(name: str) -> str:
    """`w2` for worker-2, `s0` for server-0; other names as they are."""
    match = _NAME.fullmatch(name)
    return _WORDS[match[1]] + match[2] if match else name


def _marks(trace: Trace, t: int) -> list[dict[str, Any]]:
    with trace.lock:
        marks = list(trace.marks)
    return sorted((m for m in marks if m["time"] <= t), key=lambda m: m["time"])


def factors(trace: Trace, t: int) -> dict[int, list[tuple[int, float]]]:
    """{role: [(time, how many times slower from then on), ...]} of every role that was ever slowed, in order."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    found: dict[int, list[tuple[int, float]]] = {}
    for mark in _marks(trace, t):
        if mark["kind"] == "slow" and mark.get("name") in ids:
            found.setdefault(ids[mark["name"]], []).append((mark["time"], float(mark["factor"])))
    return found


def slowed(trace: Trace, t: int) -> dict[int, float]:
    """{role: factor} of the roles that are slowed at time `t`."""
    return {role: steps[-1][1] for role, steps in factors(trace, t).items() if steps[-1][1] != 1.0}


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
    for mark in _marks(trace, t):
        if mark["role"] >= 0 or mark["time"] <= 0 or mark["kind"] in ("warning", "note"):
            continue
        label = _NAME.sub(lambda match: short(match[0]), mark["text"])
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
    for mark in _marks(trace, t):
        found = re.search(rf"(?:^|, ){re.escape(name)} = ([^,]+)", mark["text"]) if mark["kind"] == "set" else None
        if found:
            steps.append((mark["time"], float(found[1])))
    return steps
