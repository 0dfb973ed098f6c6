"""Simulators in the benchmarks implement the same model: equal updates, staleness, and end time to the nanosecond."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import labkit as lk
from labkit.engines.simulated.network import Links
from labkit.trace.schema import STARTUP, TRAINING

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = (lk.Deterministic(0.01), lk.Exponential(0.01))
GENERAL, LEAN = "SimPy, nodes and links", "SimPy, this algorithm only"


@pytest.fixture(autouse=True)
def _needs_simpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("simpy")
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("peer", [GENERAL, LEAN])
@pytest.mark.parametrize("links", [False, True], ids=["no links", "links"])
@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: distribution.describe())
@pytest.mark.parametrize("workers", [1, 8, 30])
def test_simpy_ends_at_the_nanosecond_of_labkit_with_equal_staleness(
    workers: int, distribution: object, links: bool, peer: str
) -> None:
    from benchmarks.simulator import Case, labkit_run, simpy_outcome

    case = Case(workers, 20 * workers, distribution, links)
    ours, theirs = labkit_run(case).wait(), simpy_outcome(case, peer)
    counters = ours.trace.counters
    assert theirs.virtual == ours.trace.ending["time"]
    assert sum(theirs.staleness.values()) == counters[0].updates == case.updates
    assert theirs.staleness == counters[0].staleness
    if distribution == lk.Deterministic(0.01):
        mean = sum(value * count for value, count in theirs.staleness.items()) / case.updates
        assert mean == pytest.approx(workers - 1, rel=0.05)  # less than N - 1 in the first round only
    if peer == GENERAL:
        nodes = ["server", *(f"node-{i}" for i in range(workers))]
        sent = [counters[i].bytes[TRAINING] + counters[i].bytes[STARTUP] for i in range(workers + 1)]
        assert [theirs.sent[node] for node in nodes] == sent


def test_the_benchmark_has_both_peers() -> None:
    from benchmarks.simulator import PEERS

    assert list(PEERS) == [GENERAL, LEAN]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("latency", [0, 700, 50_000])
def test_random_traffic_arrives_at_the_same_times_as_in_labkit(seed: int, latency: int) -> None:
    """All pairs of nodes communicate: every egress and ingress is contended, and messages wait for both."""
    import simpy

    from benchmarks.peers.simpy_nodes import Cluster

    rng, env, nodes = random.Random(seed), simpy.Environment(), 5
    cluster, network = Cluster(env, latency, per_byte=1.0), Links(nodes, latency * 1e-9, 1e9)
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
    assert arrived == expected
