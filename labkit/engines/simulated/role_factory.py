"""Creates the roles of a plan in virtual time, and the components of each incarnation."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...errors import BadInput
from ...roles.evaluator import Evaluator
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ..cluster_spec import ClusterSpec
from ..distributions import Deterministic
from ..plan import Plan, batch_maker, build_parts, local_data, make_coroutine, split
from ..role_core import Membership
from .event_loop import EventLoop
from .network import Network
from .role import Cores, Endings, SimulatedContext, SimulatedRole

__all__ = ["RoleFactory", "check_time_passes"]


class RoleFactory:
    """Creates the roles of one run. The roles share one copy of the strategy, whose options may change, and one objective
    (in virtual time no two roles compute at once). `evaluator`: the evaluator of the chief's newest instance.
    """

    evaluator: Evaluator

    def __init__(self, plan: Plan, cluster: ClusterSpec, loop: EventLoop, network: Network, members: Membership):
        self._plan, self._cluster, self._loop, self._network, self._members = plan, cluster, loop, network, members
        self._clock = loop.clock
        problem = plan.problem
        self._objective = problem.objective()
        dataset = None if problem.timing_only else local_data(problem)
        self._shares = None if dataset is None else split(dataset, problem, plan.layout.shares, plan.elastic)
        self._test = None if dataset is None else (dataset.x_test, dataset.y_test)

    def make_roles(self, endings: Endings) -> list[SimulatedRole]:
        """Return the roles of the layout, in its order, before their first incarnation."""
        plan, cluster = self._plan, self._cluster
        assert cluster.compute is not None  # in virtual time a gradient has a distribution
        strategy = copy.copy(plan.strategy)
        node_numbers = {name: i for i, name in enumerate(plan.layout.nodes)}
        roles_of_node = Counter(spec.node for spec in plan.layout.roles)
        cores = {node: Cores(cluster.cores) for node, roles in roles_of_node.items() if roles > 1}
        by_name: dict[str, SimulatedRole] = {}
        for spec in plan.layout.roles:
            role = SimulatedRole(
                spec, node_numbers[spec.node], self._recorder(spec.name, 0), plan.role_ids, plan.message_set, self._members,
                strategy, self._loop, self._network, by_name, endings,
            )  # fmt: skip
            role.cores = cores.get(spec.node)
            role.draw_times(plan.seed, cluster.compute, cluster.server_time, Deterministic(cluster.evaluation_time))
            by_name[spec.name] = role
        return list(by_name.values())

    def _recorder(self, name: str, incarnation: int) -> Recorder:
        ids = self._plan.role_ids
        return Recorder(ids[name], incarnation, record=self._plan.record, roles=len(ids))

    def prepare(self, role: SimulatedRole, incarnation: int, state: Mapping[str, Any] | None = None) -> None:
        """Create the components and the context of an incarnation of `role`. `state`: restores its shard."""
        plan, spec = self._plan, role.spec
        if incarnation:
            role.next_incarnation(self._recorder(role.name, incarnation))
        self._members.incarnations[role.name] = incarnation
        parts = build_parts(
            plan, spec, role.recorder, self._clock, lambda _: role.send_snapshot(), self._objective, role.strategy,
            self._test, incarnation,
        )  # fmt: skip
        share = self._shares[spec.data] if self._shares is not None and spec.data is not None else None
        batches = batch_maker(plan, spec, share, incarnation, lambda: self._members.peers.get("worker", ()))
        context = SimulatedContext(role, plan.seed, batches)
        context.incarnation = incarnation
        context.restored = role.state if incarnation else None
        role.shard = next((p for p in parts if isinstance(p, Shard) and spec.backs is None), None)
        if role.shard is not None and incarnation:
            role.shard.restore(state)
        if spec.kind == "chief":
            evaluator: Evaluator = parts[0]
            if incarnation:
                evaluator.restore(role.state)
                evaluator.stop_requested = self.evaluator.stop_requested
            self.evaluator = evaluator
        role.context = context
        role.make_coroutine = partial(make_coroutine, role.strategy, plan, spec, context, parts)


def check_time_passes(plan: Plan, cluster: ClusterSpec) -> None:
    """Raise `BadInput` if no operation takes time and the budget has no limit of updates or samples: time would not advance."""
    lengthless = [
        distribution is None or (isinstance(distribution, Deterministic) and distribution.seconds == 0)
        for distribution in (cluster.compute, cluster.server_time)
    ]
    if (
        all(lengthless)
        and not cluster.latency
        and np.isinf(cluster.bandwidth)
        and plan.limits.updates is None
        and plan.limits.samples is None
    ):
        raise BadInput(
            "Nothing takes time on this cluster, so virtual time would stand still: give a Budget(updates=...), or a "
            "distribution."
        )
