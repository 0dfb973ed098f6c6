"""Resumes a run from the checkpoints of another run: determines the initial states of its roles.

The processes of the earlier run have ended, and its accounting is not available. Versions, samples and optimizer states
continue, but the gradients of the new run are counted from 0. No instance of the earlier run takes part in the new run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import BadInput, shown
from ....formatting import listed
from ....roles.evaluator import Evaluator
from ....roles.group_restart import group_restart_states, restarts_as_group, whole_replicas
from ...plan import Plan, copied_shard
from ...storage.store import Store

InitialState = tuple[dict[str, Any] | None, bool]


def resumed_states(plan: Plan, store: Store) -> tuple[dict[str, InitialState], list[str]]:
    """Return ({role: (initial state, False)}, notes) for the roles with a shard, their backups and the chief.

    The members of a group use the newest version that all of them have saved. Other roles use their newest checkpoint,
    and backups use the newest checkpoint of their server. `store`: the store of the new run, which also reads
    checkpoints of earlier runs. The notes name damaged files, and what is used instead.

    Raises `BadInput` if all checkpoints of a shard are damaged; of whole replicas, those of all replicas.
    """
    roles = plan.layout.roles
    grouped = restarts_as_group(plan.layout)
    absent = plan.elastic.absent if plan.elastic and grouped else ()
    owners = [spec for spec in roles if spec.shard is not None and spec.name not in absent]
    objective = plan.problem.objective() if owners else None
    saved, damage = {}, {}
    for spec in owners:
        like = copied_shard(plan, spec, lambda: 0, objective, plan.strategy)
        saved[spec.name], damage[spec.name] = store.read_all(spec.name, like.check_state)
    evaluation, damage["chief"] = (None, "") if grouped else store.read("chief", Evaluator.check_state)
    without = [spec.name for spec in owners if damage[spec.name] and not saved[spec.name]]
    if without and not (whole_replicas(plan.layout) and any(saved.values())):
        raise BadInput(
            f"The run in {shown(store.location)} cannot be resumed: no checkpoint of {listed(without)} is left "
            f"({'; '.join(damage[name] for name in without)}). Without these files it starts from the first weights."
        )
    if grouped:
        members = [spec.name for spec in roles if spec.name not in absent]
        states = dict(group_restart_states(plan.layout, {}, lambda role: saved.get(role, {}), members))
    else:
        newest = {name: next(iter(found.values()), None) for name, found in saved.items()}
        states = {spec.name: newest.get(roles[spec.backs or 0].name) for spec in roles if spec.backs is not None}
        states |= newest | {spec.name: evaluation for spec in roles if spec.kind == "chief"}
    notes = [f"{name} starts from {_described(states.get(name))}: {text}" for name, text in damage.items() if text]
    return {role: (_plain(state), False) for role, state in states.items()}, notes


def _described(state: Mapping[str, Any] | None) -> str:
    if state is None:
        return "no checkpoint"
    return (
        f"its checkpoint of update {state['version']}"
        if "version" in state
        else f"its evaluation of update {state['update']}"
    )


def _plain(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if state is None else without_accounting(state)


def without_accounting(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `state` without its records of contained gradients and of their senders."""
    lists = ("rounds_by_incarnation", "applied", "last", "dropped", "unreported_drops", "contained")
    reset = {"rounds": 0, "incarnation": 0, **{name: [] for name in lists}}
    return {**state, **{name: value for name, value in reset.items() if name in state}}
