"""Group restart: the states from which roles that restart together begin, on every engine.

Roles of strategies without servers (rings, local replicas, split models) exchange messages in rounds. If a role is lost, its
round cannot end. All roles therefore end their present incarnation and start the next incarnation together, with these states:

- synchronized replicas: the state of the survivor that has applied the most updates. No applied gradient is lost.
- local replicas: the mean of the survivors, which is the model. Each survivor keeps the state of its optimizer, and all have the
  outer optimizer of the survivor that has taken the most outer steps. The gradients and samples that the mean contains are
  divided equally among the replicas, so that their sums are those of the model.
- parts of a split model: the newest version that all parts have saved; the initial weights if there is none.

If no replica has survived, all replicas start from the last checkpoint. All parts of a split model are saved at the same
versions, every `SAVE_EVERY` updates, so that a common version exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..trace.recorder import Recorder
from ..trace.schema import ALL, CANCELLED
from .layout import Layout, RoleSpec

SAVE_EVERY = 50  # updates between two checkpoints of the parts of a split model

State = Mapping[str, Any]


def restarts_as_group(layout: Layout) -> bool:
    """Return whether all roles restart when one of them is lost."""
    return bool(layout.replication)


def whole_replicas(layout: Layout) -> bool:
    """Return whether every role with parameters has the whole model, so that the others can continue without it."""
    owners = [role for role in layout.roles if role.shard is not None]
    return restarts_as_group(layout) and len({str(role.part) for role in owners}) == 1 and not layout.groups


def not_waited_for(layout: Layout, spec: RoleSpec, on_loss: str) -> bool:
    """Return whether the other roles continue without a lost role until it is restarted; otherwise they wait for it."""
    if spec.backs is not None:
        return True
    spared = (spec.computes and not restarts_as_group(layout)) or (spec.kind != "chief" and whole_replicas(layout))
    return on_loss == "continue" and spared


def group_restart_states(
    layout: Layout, survivors: Mapping[str, State], saved: Callable[[str], Mapping[int, State]],
    members: Iterable[str],
) -> dict[str, State | None]:  # fmt: skip
    """Return {role with a shard: the state from which it starts, or None for the initial weights}.

    `survivors`: {role: the present state of its shard}. `saved(role)` returns {version: state} of the role's checkpoints.
    `members`: the roles that restart.
    """
    owners = [role.name for role in layout.roles if role.shard is not None and role.name in set(members)]
    if not whole_replicas(layout):
        return _common_states(layout, owners, saved)
    if not survivors:
        newest = [(version, state) for owner in owners for version, state in saved(owner).items()]
        last = max(newest, key=lambda pair: pair[0])[1] if newest else None
        if last is None or layout.replication == "synchronized":
            return dict.fromkeys(owners, last)
        survivors = {"": last}
    if layout.replication == "synchronized":
        ahead = max(survivors.values(), key=lambda state: int(state["version"]))
        # Synchronized replicas differ only in how far they are; the one that is ahead has all steps of the others.
        return dict.fromkeys(owners, ahead)
    states = list(survivors.values())
    mean, behind = _mean(states), min(states, key=lambda state: int(state["version"]))
    counts = _divided(states, mean["applied"], len(owners))
    return {owner: {**survivors.get(owner, behind), **mean, **count} for owner, count in zip(owners, counts)}


def _common_states(layout: Layout, owners: list[str], saved: Callable[[str], Mapping[int, State]]) -> dict[str, Any]:
    saved_states = {owner: saved(owner) for owner in owners}
    common = set.intersection(*(set(states) for states in saved_states.values())) if owners else set()
    if not common:
        return dict.fromkeys(owners)
    return {owner: states[max(common)] for owner, states in saved_states.items()}


def _mean(states: list[State]) -> dict[str, Any]:
    """Return the mean of replicas, which contains every gradient that one of them contains."""
    last: dict[int, list[int]] = {}
    for state in states:
        for instance, count, step in state["applied"]:
            before = last.get(instance, [0, -1])
            last[instance] = [max(before[0], count), max(before[1], step)]
    mixed: dict[str, Any] = {"applied": [[instance, *count] for instance, count in last.items()]}
    if "values" in states[0]:
        total = states[0]["values"].copy()
        for state in states[1:]:
            total += state["values"]
        mixed["values"] = total / total.dtype.type(len(states))
    if "outer_steps" in states[0]:
        ahead = max(states, key=lambda state: int(state["outer_steps"][0]))
        mixed |= {name: array for name, array in ahead.items() if name.startswith("outer")}
    return mixed


def _divided(states: list[State], applied: list[list[int]], replicas: int) -> list[dict[str, int]]:
    """Return for each of the `replicas` its part of the gradients in `applied`, and of their samples.

    The batches of replicas that are gone are counted with the mean size of those of the others.
    """
    total, known = sum(count for _, count, _ in applied), sum(int(state["gradients"]) for state in states)
    samples = sum(int(state["samples"]) for state in states)
    samples = round(total * samples / known) if known else samples
    return [
        {
            name: number // replicas + (place < number % replicas)
            for name, number in (("gradients", total), ("samples", samples))
        }
        | {"replicas": replicas}
        for place in range(replicas)
    ]


def newest_version(states: Mapping[str, State | None]) -> int:
    """Return the version from which a group continues: that of its newest initial state."""
    return max((int(state["version"]) for state in states.values() if state is not None), default=0)


def drop_unapplied(recorder: Recorder, now: int, name: str, states: Mapping[str, State | None]) -> None:
    """Record which gradients of an instance of role `name` are dropped ("cancelled") because the instance ends: those that
    are neither in flight nor contained in `states`, from which the group restarts; without `states`, the role leaves the run.
    """
    counters, held, role, roles = recorder.counters, 0, recorder.role, recorder.roles
    state = states.get(name) or next((one for one in states.values() if one is not None), None)
    if state is not None:
        rounds = dict(map(tuple, state["rounds_by_incarnation"])) | {state["incarnation"]: state["rounds"]}
        applied = {instance: step for instance, _, step in state["applied"]}
        held = max(rounds.get(recorder.incarnation, 0), applied.get(role + recorder.incarnation * roles, -1) + 1)
    first = max(counters.released, held)
    if counters.computed > first:
        count = counters.computed - first
        recorder.drop(ALL, now, role, recorder.incarnation, counters.computed - 1, count, CANCELLED)
    counters.released = counters.computed
