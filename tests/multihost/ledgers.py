"""Functions that the client's program on a host calls on a run, for the test to check: plain numbers, as in JSON."""

from __future__ import annotations

from typing import Any

from labkit.trace.schema import TRAINING


def moves(run: Any, more: int = 20) -> None:
    """Wait until the run has applied this many more updates."""
    goal = run.summary()["updates"] + more
    run.wait_for(lambda run: run.summary()["updates"] >= goal)


def computes(run: Any, role: str) -> None:
    """Wait until this role has computed another gradient, in its present incarnation."""
    ids = run.plan.role_ids
    key = ids[role] + run.engine.members.incarnation[role] * len(ids)
    count = run.trace.instances[key].computed
    run.wait_for(lambda run: run.trace.instances[key].computed > count)


def awaited(run: Any, kind: str, role: str | None = None) -> dict[str, Any]:
    """Wait for an event; the event."""
    event = run.wait_for(kind, role)
    return event.to_dict() | {"text": str(event)}


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
