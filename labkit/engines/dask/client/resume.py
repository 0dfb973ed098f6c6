"""Resumes a run from the checkpoints of another run: determines the initial states of its roles.

The processes of the earlier run have ended, and its accounting is not available. Versions, samples and optimizer states
continue, but the gradients of the new run are counted from 0. No instance of the earlier run takes part in the new run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....roles.group_restart import group_restart_states, restarts_as_group
from ...plan import Plan
from ...storage.store import Store

__all__ = ["resumed_states", "without_accounting"]

InitialState = tuple[dict[str, Any] | None, bool]


def resumed_states(plan: Plan, store: Store) -> dict[str, InitialState]:
    """Return {role: (initial state, False)} of the roles with a shard, their backups and the chief.

    The members of a group use the newest version that all of them have saved. Other roles use their newest checkpoint,
    and backups use the newest checkpoint of their server. `store`: the store of the new run, which also reads
    checkpoints of earlier runs.
    """
    roles = plan.layout.roles
    if restarts_as_group(plan.layout):
        absent = plan.elastic.absent if plan.elastic else ()
        members = [spec.name for spec in roles if spec.name not in absent]
        states = group_restart_states(plan.layout, {}, lambda role: _checkpoints(store, role), members)
        return {role: (_plain(state), False) for role, state in states.items()}
    found: dict[str, InitialState] = {}
    for spec in roles:
        owner = spec if spec.backs is None else roles[spec.backs]
        if owner.shard is not None or owner.kind == "chief":
            newest = store.read(owner.name)
            found[spec.name] = (None if newest is None else _plain(newest[0]), False)
    return found


def _checkpoints(store: Store, role: str) -> dict[int, Any]:
    found = {tag: store.read(role, tag) for tag in store.all_tags(role)}
    return {tag: state[0] for tag, state in found.items() if state is not None}


def _plain(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if state is None else without_accounting(state)


def without_accounting(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `state` without its records of contained gradients and of their senders."""
    lists = ("eras", "applied", "last", "dropped", "unheard", "held")
    reset = {"rounds": 0, "incarnation": 0, **{name: [] for name in lists}}
    return {**state, **{name: value for name, value in reset.items() if name in state}}
