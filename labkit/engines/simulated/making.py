"""From a plan to roles in virtual time, each with its laws, its parts and the coroutine it will be."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import BadInput
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ..laws import Deterministic
from ..parts import Plan, batch_maker, begin, build_parts, local_data, split
from .roles import SimulatedContext, SimulatedRole

__all__ = ["Kit", "bare_roles", "begin_role", "check_time_passes", "shared_cores"]


def bare_roles(plan: Plan, cluster: Any) -> list[SimulatedRole]:
    """The roles of the layout, in order, with laws of time and one strategy, the engine's own: its live knobs may
    change."""
    strategy, nodes = copy.copy(plan.strategy), _nodes(plan)
    made = []
    for i, spec in enumerate(plan.layout.roles):
        role = SimulatedRole(
            i, spec, nodes[spec.node], Recorder(i, record=plan.record, roles=len(plan.layout.roles)), strategy
        )
        role.laws(plan.seed, cluster.compute, cluster.server_time, Deterministic(cluster.evaluation_time))
        made.append(role)
    return made


def shared_cores(plan: Plan, cores: int) -> dict[int, list[int]]:
    """{node: until when each of its cores is busy} of the nodes on which several roles compete."""
    homes = Counter(role.node for role in plan.layout.roles)
    return {i: [0] * cores for name, i in _nodes(plan).items() if homes[name] > 1}


def _nodes(plan: Plan) -> dict[str, int]:
    return {name: i for i, name in enumerate(plan.layout.nodes)}


@dataclass(frozen=True)
class Kit:
    """What parts are made of: `objective` keeps buffers; `shares` of the data, and the held-out part."""

    objective: Any
    shares: Any
    test: Any

    @classmethod
    def of(cls, plan: Plan) -> Kit:
        """What the roles of `plan` share."""
        problem = plan.problem
        dataset = None if problem.timing_only else local_data(problem)
        shares = split(dataset, problem, plan.layout.shares, plan.elastic) if dataset is not None else None
        return cls(problem.objective(), shares, (dataset.x_test, dataset.y_test) if dataset is not None else None)


def begin_role(run: Any, role: SimulatedRole, incarnation: int, state: Any = None, same: bool = False) -> None:
    """Give an incarnation of a role its parts and its posts. `state`: what its shard is restored from; `same`: nothing of
    it was lost."""
    plan, spec, kit = run.plan, role.spec, run.kit
    if incarnation:
        role.recorder = Recorder(role.id, incarnation, plan.record, len(plan.layout.roles))
        role.counters, role.returned, role.latest = role.recorder.counters, False, (role, None)
    parts = build_parts(
        plan, spec, role.recorder, run.clock, run.watch, kit.objective, role.strategy, kit.test, incarnation
    )
    present = partial(run.peers.get, "worker", ())
    share = kit.shares[spec.data] if kit.shares is not None and spec.data is not None else None
    context = SimulatedContext(run, role, run.peers, plan.seed, batch_maker(plan, spec, share, incarnation, present))
    context.incarnation = incarnation
    context.restored = role.state if incarnation else None
    role.shard = next((p for p in parts if isinstance(p, Shard) and spec.backs is None), None)
    if role.shard is not None:
        if incarnation:
            role.shard.restore(state, same)
        run._keeps(role)
    if spec.kind == "chief":
        judge, before = parts[0], run.judge
        if before is not None:
            judge.restore(role.state)
            judge.hurry = before.hurry
        run.judge = judge
    role.begin = partial(begin, role.strategy, plan, spec, context, parts)


def check_time_passes(plan: Plan, cluster: Any) -> None:
    """`BadInput` if nothing takes time and nothing but time, or luck, would end the run."""
    lengthless = [
        law is None or (isinstance(law, Deterministic) and law.seconds == 0)
        for law in (cluster.compute, cluster.server_time)
    ]
    if (
        all(lengthless)
        and not cluster.latency
        and np.isinf(cluster.bandwidth)
        and plan.limits.updates is None
        and plan.limits.samples is None
    ):
        raise BadInput(
            "Nothing takes time on this cluster, so virtual time would stand still: give a Budget(updates=...), or a law."
        )
