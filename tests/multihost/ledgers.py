"""Functions that the client's program on a host calls on a run, for the test to check: plain numbers, as in JSON."""

from __future__ import annotations

import time
from typing import Any

from labkit.trace.schema import TRAINING


def until(condition: Any, limit: float) -> bool:
    """Whether `condition()` came true within `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def moves(run: Any, more: int = 20, limit: float = 120.0) -> bool:
    """Whether the run applies this many more updates within the limit."""
    goal = run.summary()["updates"] + more
    return until(lambda: run.stopped_by is not None or run.summary()["updates"] >= goal, limit)


def book(run: Any) -> dict[str, Any]:
    """The ledger, as numbers."""
    found = run.summary().book
    return {name: _plain(value) for name, value in dict(found).items()}


def sent(run: Any) -> dict[str, int]:
    """Payload bytes of training messages sent by each role: weights, gradients, partial sums."""
    counters = run.trace.counters
    return {role: int(counters[i].bytes[TRAINING]) for role, i in run.engine.plan.role_ids.items() if i in counters}


def incarnations(run: Any) -> dict[str, list[int]]:
    """The incarnations of every role that appear in the trace."""
    found: dict[str, list[int]] = {}
    ids = list(run.engine.plan.role_ids)
    for incarnation in sorted(run.trace.instances):
        found.setdefault(ids[incarnation % len(ids)], []).append(incarnation // len(ids))
    return found


def events(run: Any, *kinds: str) -> list[dict[str, Any]]:
    """The events of these kinds, in order."""
    return [event.to_dict() | {"text": str(event)} for event in run.trace.events if event.kind in kinds]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return value.item() if hasattr(value, "item") else value
