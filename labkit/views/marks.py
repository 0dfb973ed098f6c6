"""Who was disturbed, and when: what the marks of a trace say, in the short words of a figure."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..trace.marks import conditions, factors, marks_until, short, shortened, slowed, spells
from ..trace.trace import Trace

__all__ = ["conditions", "factors", "knob_steps", "mark_labels", "short", "slow_spans", "slowed", "spells"]

MOST_LETTERS = 30
SILENT = ("warning", "note", "regroup", "fenced")  # kinds of marks that are for the log only
SAID = {
    "kill": "{} killed", "lost": "{} lost", "left": "{} left", "joined": "{} joined", "restart": "{} is back",
    "freeze": "{} frozen", "thaw": "{} thawed", "cut": "{} cut off", "reconnect": "{} reconnected",
}  # fmt: skip
BETWEEN = {"cut": "{}–{} cut", "reconnect": "{}–{} reconnected"}


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
    """(time, label) of everything that a person or a fault did during the run, up to `t`, and of who came back. What
    held from the start is no event; what follows at once from another mark, and what roles and engines remark, is for
    the log.
    """
    found: list[tuple[int, str]] = []
    gone: dict[str, int] = {}  # who is gone -> since when
    for mark in marks_until(trace, t):
        kind, name, time = mark["kind"], mark.get("name", ""), mark["time"]
        known = gone.get(name)
        if kind in ("kill", "lost", "left"):
            gone.setdefault(name, time)
        elif kind in ("restart", "joined"):
            gone.pop(name, None)
        follows = kind in ("lost", "left") and known is not None
        if mark["role"] >= 0 or time <= 0 or kind in SILENT or follows:
            continue
        label = _label(mark)
        found.append((time, label if len(label) <= MOST_LETTERS else label[: MOST_LETTERS - 1].rstrip() + "…"))
    return found


def _label(mark: dict[str, Any]) -> str:
    kind, name, peer = mark["kind"], short(mark.get("name", "")), mark.get("peer")
    if kind == "slow" and "factor" in mark:
        factor = mark["factor"]
        how = "as before" if factor == 1 else f"{factor:g}x slower" if factor > 1 else f"{1 / factor:.3g}x faster"
        return f"{name} {how}"
    if name and peer is not None and kind in BETWEEN:
        return BETWEEN[kind].format(name, short(peer))
    if name and kind in ("delay", "drop"):
        who = f"{name}–{short(peer)}" if peer is not None else name
        if (kind == "delay" and "seconds" in mark) or "delay" in mark:
            late = mark.get("seconds", mark.get("delay"))
            return f"{who} {late:g} s late" if late else f"{who} in time again"
        chance = mark.get("chance", mark.get("drop", 0.0))
        return f"{who} {100 * chance:g}% lost" if chance else f"{who} loses nothing"
    if name and kind in SAID:
        lost = re.search(r"(\d+) updates?\b[^:,]* rolled back", mark["text"])
        return SAID[kind].format(name) + (f", −{lost[1]} updates" if lost else "")
    return shortened(mark["text"])


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
