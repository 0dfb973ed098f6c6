"""Creates the roles of a plan in virtual time, and the components of each incarnation."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BadInput
from ...nn.index_sets import Boxes
from ...random_streams import DRIFT, HOST, role_stream
from ...roles.evaluator import Evaluator
from ...roles.layout import RoleSpec
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ...trace.schema import nanoseconds
from ..cluster_spec import ClusterSpec
from ..costs import Costs
from ..distributions import Deterministic, Sampler
from ..plan import Plan, batch_maker, build_parts, local_data, make_coroutine, split
from ..role_core import KnownMembers
from .event_loop import EventLoop
from .hosts import HostedRole, HostNetwork
from .network import LinkTimes, SimulatedNetwork
from .role import Cores, SimulatedContext, SimulatedRole
from .scheduler import Host

if TYPE_CHECKING:
    from .run import SimulatedRun


class RoleFactory:
    """Creates the roles of one run. The roles share one copy of the strategy, whose options may change, and one objective
    (in virtual time no two roles compute at once). `evaluator`: the evaluator of the chief's newest instance.
    """

    evaluator: Evaluator

    def __init__(
        self, plan: Plan, cluster: ClusterSpec, loop: EventLoop, network: SimulatedNetwork, members: KnownMembers
    ):
        self._plan, self._cluster, self._loop, self._network, self._members = plan, cluster, loop, network, members
        self._clock = loop.clock
        problem = plan.problem
        self._objective = problem.objective()
        dataset = None if problem.timing_only else local_data(problem)
        self._shares = None if dataset is None else split(dataset, problem, plan.layout.shares, plan.elastic)
        self._test = None if dataset is None else dataset.evaluated

    def make_roles(self, run: SimulatedRun) -> list[SimulatedRole]:
        """Return the roles of the layout, in its order, before their first incarnation."""
        strategy = copy.copy(self._plan.strategy)
        if self._cluster.costs is not None:
            return self._make_hosted_roles(self._cluster.costs, strategy, run)
        return self._make_plain_roles(strategy, run)

    def _make_plain_roles(self, strategy: Any, run: SimulatedRun) -> list[SimulatedRole]:
        """Return roles whose work takes drawn times, and whose messages take no processor time."""
        plan, cluster = self._plan, self._cluster
        assert cluster.compute is not None  # in virtual time a gradient has a distribution
        node_numbers = {name: i for i, name in enumerate(plan.layout.nodes)}
        roles_of_node = Counter(spec.node for spec in plan.layout.roles)
        cores = {node: Cores(cluster.cores) for node, roles in roles_of_node.items() if roles > 1}
        by_name: dict[str, SimulatedRole] = {}
        for spec in plan.layout.roles:
            role = SimulatedRole(
                spec, node_numbers[spec.node], self._recorder(spec.name, 0), plan.role_ids, plan.message_set, self._members,
                strategy, self._loop, self._network, by_name, run,
            )  # fmt: skip
            role.cores = cores.get(spec.node)
            role.draw_times(plan.seed, cluster.compute, cluster.server_time, Deterministic(cluster.evaluation_time))
            by_name[spec.name] = role
        return list(by_name.values())

    def _make_hosted_roles(self, costs: Costs, strategy: Any, run: SimulatedRun) -> list[SimulatedRole]:
        """Return roles that are processes on hosts. Nodes are placed in turn on the hosts. On a single host with more roles than
        cores, roles that compute are pinned to the cores in turn, as on a local `DaskCluster`."""
        plan, cluster = self._plan, self._cluster
        assert isinstance(self._network, HostNetwork)
        node_numbers = {name: i for i, name in enumerate(plan.layout.nodes)}
        host_of = {node: i % costs.hosts for node, i in node_numbers.items()}
        roles_of = Counter(host_of[spec.node] for spec in plan.layout.roles)
        pinned = costs.pinned and costs.hosts == 1 and 1 < costs.cores < len(plan.layout.roles)
        parameters = self._objective.size
        samples = sum(len(x) for x in (self._test or ())[::2])
        whole = parameters * np.dtype(self._objective.dtype).itemsize
        hosts = [_host(self._loop, costs, i, roles_of[i], whole, plan.seed) for i in range(costs.hosts)]
        by_name: dict[str, SimulatedRole] = {}
        for spec in plan.layout.roles:
            role = HostedRole(
                spec, node_numbers[spec.node], self._recorder(spec.name, 0), plan.role_ids, plan.message_set, self._members,
                strategy, self._loop, self._network, by_name, run,
            )  # fmt: skip
            core = spec.index if pinned and spec.computes else None
            role.place(hosts[host_of[spec.node]], costs, self._network, core)
            role.draw_costs(
                plan.seed, parameters, plan.batch_size, costs.update(whole * _share(spec, parameters)),
                costs.evaluation(parameters, samples), cluster.compute, cluster.server_time,
            )  # fmt: skip
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


def _host(loop: EventLoop, costs: Costs, number: int, roles: int, size: int, seed: int) -> Host:
    """Return a host of a cluster with costs, on which `roles` are placed. `size`: bytes of the parameters of the network."""
    drifts = []
    if costs.drift_time and not isinstance(costs.drift, Deterministic):
        for core in range(costs.cores):
            factors = Sampler(costs.drift, role_stream(seed, HOST, number, DRIFT, more=(core,)))
            drifts.append(partial(_factor, factors))
    return Host(
        number, loop, costs.cores, costs.speed(number), 1e9 * costs.time_slice, 1e9 * costs.min_slice, costs.cold_factor(size),
        costs.background * roles, drifts, max(1, nanoseconds(costs.drift_time)),
    )  # fmt: skip


def _factor(factors: Sampler) -> float:
    return max(1e-3, factors.next() / 1e9)


def _share(spec: RoleSpec, parameters: int) -> float:
    held = Boxes.of(spec.part).size if spec.part is not None else parameters
    return held / parameters if parameters else 0.0


def make_network(loop: EventLoop, plan: Plan, cluster: ClusterSpec, kind_ids: Mapping[type, int]) -> SimulatedNetwork:
    """Return the network of a run: between its nodes, or, on a cluster with costs, between and within its hosts."""
    if cluster.costs is None:
        return SimulatedNetwork(
            loop, LinkTimes(len(plan.layout.nodes), cluster.latency, cluster.bandwidth), kind_ids, plan.seed
        )
    links = LinkTimes(cluster.costs.hosts, cluster.latency, cluster.bandwidth)
    return HostNetwork(loop, links, kind_ids, plan.seed, nanoseconds(cluster.costs.latency))


def check_time_passes(plan: Plan, cluster: ClusterSpec) -> None:
    """Raise `BadInput` if no operation takes time and the budget has no limit of updates or samples: time would not advance."""
    if cluster.costs is not None and cluster.costs.take_time:
        return
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
