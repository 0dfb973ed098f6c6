"""Who was disturbed, and when: what the marks of a trace say, as values."""

from __future__ import annotations

import re
from typing import Any

from .trace import Trace

__all__ = ["away", "factors", "marks_until", "short", "shortened", "slowed"]

_WORDS = {"worker": "w", "server": "s", "stage": "st", "replica": "r"}
_NAME = re.compile(r"\b(worker|server|stage|replica)-(\d+)\b")


def short(name: str) -> str:
    """`w2` for worker-2, `s0` for server-0; other names as they are."""
    match = _NAME.fullmatch(name)
    return _WORDS[match[1]] + match[2] if match else name


def shortened(text: str) -> str:
    """`text` with every name of a role in its short form."""
    return _NAME.sub(lambda match: short(match[0]), text)


def marks_until(trace: Trace, t: int) -> list[dict[str, Any]]:
    """The marks with a time of at most `t` ns, in order; those of one time in the order in which they were made."""
    with trace.lock:
        marks = list(trace.marks)
    return sorted((m for m in marks if m["time"] <= t), key=lambda m: m["time"])


def away(trace: Trace, t: int | None = None) -> set[int]:
    """The roles that take no part now (or at `t`, ns): they have left, or were lost and the others go on without them."""
    last = {}
    with trace.lock:
        marks = [m for m in trace.marks if m["kind"] in ("left", "joined", "restart")]
    for mark in marks:
        if t is None or mark["time"] <= t:
            last[mark["name"]] = mark["kind"]
    return {i for i, name in enumerate(trace.roles) if last.get(name) == "left"}


def factors(trace: Trace, t: int) -> dict[int, list[tuple[int, float]]]:
    """{role: [(time, how many times slower from then on), ...]} of every role that was ever slowed, in order."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    found: dict[int, list[tuple[int, float]]] = {}
    for mark in marks_until(trace, t):
        if mark["kind"] == "slow" and mark.get("name") in ids:
            found.setdefault(ids[mark["name"]], []).append((mark["time"], float(mark["factor"])))
    return found


def slowed(trace: Trace, t: int) -> dict[int, float]:
    """{role: factor} of the roles that are slowed at time `t`."""
    return {role: steps[-1][1] for role, steps in factors(trace, t).items() if steps[-1][1] != 1.0}
