"""Simulators in the benchmarks implement the same model: equal updates, staleness, and end time to the nanosecond."""

from __future__ import annotations

import random
from itertools import product

import pytest
import simpy

import labkit as lk
from benchmarks.peers.simpy_nodes import Cluster
from benchmarks.simulator import PEERS, Case, labkit_run, simpy_outcome
from labkit.engines.simulated.network import LinkTimes
from labkit.trace.schema import STARTUP, TRAINING

DISTRIBUTIONS = (lk.distributions.Deterministic(0.01), lk.distributions.Exponential(0.01))
GENERAL, LEAN = "SimPy, nodes and links", "SimPy, this algorithm only"


def test_simpy_ends_at_the_nanosecond_of_labkit_with_equal_staleness() -> None:
    for workers, distribution, links, peer in product([1, 8, 30], DISTRIBUTIONS, [False, True], [GENERAL, LEAN]):
        case = Case(workers, 20 * workers, distribution, links)
        ours, theirs = labkit_run(case).wait(), simpy_outcome(case, peer)
        counters = ours.trace.counters
        assert theirs.virtual == ours.trace.ending["time"], (peer, links, distribution, workers)
        assert sum(theirs.staleness.values()) == counters[0].updates == case.updates, (
            peer,
            links,
            distribution,
            workers,
        )
        assert theirs.staleness == counters[0].staleness, (peer, links, distribution, workers)
        if distribution == lk.distributions.Deterministic(0.01):
            mean = sum(value * count for value, count in theirs.staleness.items()) / case.updates
            assert mean == pytest.approx(workers - 1, rel=0.05)  # less than N - 1 in the first round only
        if peer == GENERAL:
            nodes = ["server", *(f"node-{i}" for i in range(workers))]
            sent = [counters[i].bytes[TRAINING] + counters[i].bytes[STARTUP] for i in range(workers + 1)]
            assert [theirs.sent[node] for node in nodes] == sent, (peer, links, distribution, workers)


def test_the_benchmark_has_both_peers() -> None:
    assert list(PEERS) == [GENERAL, LEAN]


def random_traffic(seed: int, latency: int) -> tuple[dict[int, int], dict[int, int]]:
    """The times of arrival of messages by their number, in SimPy and in labkit."""
    rng, env, nodes = random.Random(seed), simpy.Environment(), 5
    cluster, network = Cluster(env, latency, per_byte=1.0), LinkTimes(nodes, latency * 1e-9, 1e9)
    roles = [cluster.role(f"role-{i}", f"node-{i}") for i in range(nodes)]
    sends = [(rng.randrange(100_000), *rng.sample(range(nodes), 2), rng.randrange(5_000)) for _ in range(200)]
    expected = {
        number: network.arrival(at, source, target, size)
        for number, (at, source, target, size) in enumerate(sorted(sends))
    }
    arrived = {}

    def sender() -> simpy.events.ProcessGenerator:
        for number, (at, source, target, size) in enumerate(sorted(sends)):
            yield env.timeout(at - env.now)
            roles[source].send(f"role-{target}", "push", number, size)

    def receiver(role: object) -> simpy.events.ProcessGenerator:
        while True:
            message = yield role.recv("push")
            arrived[message.version] = env.now

    env.process(sender())
    for role in roles:
        env.process(receiver(role))
    env.run()
    return arrived, expected


def test_random_traffic_arrives_at_the_same_times_as_in_labkit() -> None:
    """All pairs of nodes communicate: every egress and ingress is contended, and messages wait for both."""
    for seed, latency in product(range(5), (0, 700, 50_000)):
        arrived, expected = random_traffic(seed, latency)
        assert arrived == expected, (seed, latency)
