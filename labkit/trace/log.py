"""A run's log in words: what people did, what was remarked, and which accuracies were passed, one line an event.

A function of the trace and of nothing else; terminal, files and the lab show the same lines.
"""

from __future__ import annotations

import math
from typing import Any

from .trace import Trace
from .vocabulary import seconds

__all__ = ["MILESTONES", "log_lines"]

MILESTONES = (0.5, 0.75, 0.9, 0.95, 0.99)  # accuracies worth a line, beside the budget's


def log_lines(trace: Trace) -> list[str]:
    """`5.00 s you slowed worker-2 x5`, `5.92 s accuracy passed 95%`, `12.00 s stopped by seconds`: in order of time."""
    with trace.lock:
        events = [(mark["time"], mark_text(trace, mark)) for mark in trace.marks] + _milestones(trace)
        ending = trace.ending
    lines = sorted(events, key=lambda event: event[0])
    if ending is not None:
        first_line = (ending.get("why") or "").split("\n", 1)[0]
        lines.append((ending["time"], f"stopped by {ending['stopped_by']}" + (f": {first_line}" if first_line else "")))
    return [f"{seconds(time):.2f} s {text}" for time, text in lines]


def mark_text(trace: Trace, mark: dict[str, Any]) -> str:
    """One mark, as a person would say it."""
    if mark["kind"] == "slow" and "factor" in mark:
        factor = mark["factor"]
        if factor == 1:
            return f"you gave {mark['name']} its own speed back"
        return f"you {'slowed' if factor > 1 else 'sped up'} {mark['name']} x{factor if factor > 1 else 1 / factor:g}"
    if mark["kind"] == "set":
        return f"you set {mark['text']}"
    if mark["kind"] == "note" and mark["role"] >= 0:
        numbers = ", ".join(f"{name} = {value:g}" for name, value in mark.get("numbers", {}).items())
        return f"{trace.roles[mark['role']]}: {mark['text']}" + (f" ({numbers})" if numbers else "")
    return str(mark["text"])


def _milestones(trace: Trace) -> list[tuple[float, str]]:
    """When accuracy first passed a milestone; of several passed at once, the highest. And when the loss was lost."""
    goals = sorted({*MILESTONES, trace.header["budget"].get("accuracy") or MILESTONES[-1]})
    found: list[tuple[float, str]] = []
    for time, loss, accuracy in zip(*(c.tolist() for c in trace.column("evaluations", "time", "loss", "accuracy"))):
        if not math.isfinite(loss):
            found.append((time, "the loss is no longer a finite number"))
            break
        passed = [goal for goal in goals if accuracy >= goal]
        if passed:
            found.append((time, f"accuracy passed {100 * passed[-1]:g}%"))
            goals = goals[len(passed) :]
    return found
