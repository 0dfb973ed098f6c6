"""Staleness of asynchronous servers: equal workers, conservation, exponential times.

The oracles are closed forms, and for random times the conservation law, checked gradient by gradient: with fused
push-pull a worker reads right after its own update, so its next gradient is as stale as the number of updates between.
"""

from collections import Counter

import numpy as np
import pytest

import labkit as lk
from labkit.trace import ledger, query

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


def run(workers, updates, servers=1, strategy=None, **cluster):
    cluster = lk.SimulatedCluster(workers=workers, servers=servers, **cluster)
    return lk.train(TIMING, strategy or lk.AsyncPS(), cluster, lk.Budget(updates=updates)).wait().trace


def applies(trace, shard_role=0):
    """(staleness, sender, version, time) of the updates of one shard, in the order in which they were applied."""
    role, stale, sender, version, time = trace.column("applies", "role", "staleness", "sender", "version", "time")
    mine = role == shard_role
    assert version[mine].tolist() == list(range(1, mine.sum() + 1))
    return stale[mine], sender[mine], version[mine], time[mine]


@pytest.mark.parametrize(("workers", "rounds"), [(1, 5), (8, 6), pytest.param(10_000, 2, marks=pytest.mark.slow)])
def test_equal_workers_have_constant_staleness(workers, rounds):
    stale = applies(run(workers, workers * rounds))[0]
    assert stale[:workers].tolist() == list(range(workers))
    assert set(stale[workers:].tolist()) == {workers - 1}


@pytest.mark.parametrize("workers", [2, 5, 8])
def test_equal_workers_that_push_then_pull_read_the_same_version(workers):
    """All pushes of an instant are served before all pulls, so in each round all workers have read the same version."""
    trace = run(workers, workers * 10, strategy=lk.Downpour())
    stale = applies(trace)[0]
    assert stale.reshape(10, workers).tolist() == [list(range(workers))] * 10
    assert query.staleness(trace)["mean"] == (workers - 1) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("updates", "servers", "server_time"),
    [
        (20_000, 1, None),
        (20_000, 1, lk.distributions.Exponential(0.002)),
        (10_000, 3, lk.distributions.LogNormal(0.001, 1.0)),
    ],
    ids=["free server", "slow server", "three shards"],
)
def test_mean_staleness_is_conserved(updates, servers, server_time):
    """N = 8, lognormal compute, one worker 4x slower: the mean is N - 1, except for gradients outstanding at the end."""
    workers = 8
    trace = run(
        workers,
        updates,
        servers,
        compute=lk.distributions.LogNormal(0.01, 0.8),
        server_time=server_time,
        slow={"worker-3": 4.0},
    )
    for shard in range(servers):
        stale, sender, version, _ = applies(trace, shard)
        last = dict.fromkeys(
            trace.role_ids("worker"), 0
        )  # what each worker has read: first version 0, then its own update's
        for s, who, v in zip(stale.tolist(), sender.tolist(), version.tolist()):
            assert s == v - 1 - last[who]
            last[who] = v
        residual = sum(updates - v for v in last.values())
        assert int(stale.sum()) == (workers - 1) * updates - residual
        left, right = query.staleness_identity(trace, shard)
        assert left == right == int(stale.sum())
        assert stale.mean() == pytest.approx(workers - 1, abs=0.01 if updates == 100_000 else 0.1)
        slowest, fastest = (
            Counter(sender.tolist())[trace.roles.index("worker-3")],
            Counter(sender.tolist()).most_common(1)[0][1],
        )
        assert fastest > 2 * slowest  # the identity was checked at least once
    assert query.staleness(trace)["mean"] == pytest.approx(workers - 1, abs=0.1)
    assert ledger(trace)["closes"]


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.Downpour()], ids=["AsyncPS", "Downpour"])
@pytest.mark.parametrize(
    "compute", [lk.distributions.Deterministic(0.01), lk.distributions.Exponential(0.01)], ids=["equal", "random"]
)
@pytest.mark.parametrize("network", [{}, {"latency": 0.003, "bandwidth": 1e5}], ids=["free", "slow network"])
def test_the_identity_of_staleness_holds_for_any_reads(strategy, compute, network):
    trace = run(5, 300, 2, strategy, compute=compute, **network)
    for shard in (0, 1):
        left, right = query.staleness_identity(trace, shard)
        assert left == right == int(applies(trace, shard)[0].sum())


def test_the_identity_of_staleness_detects_a_wrong_staleness():
    """A worker reports newer weights than it used: the gradients' versions are false, the log of reads and updates is not."""

    class WrongStaleness(lk.AsyncPS):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                gradient = await ctx.compute(model.gradient, weights, batch)
                if ctx.name == "worker-1" and gradient.step == 7:
                    (generation, version), *_ = gradient.read
                    gradient.read = ((generation, version + 1),)
                weights = await lk.push_pull(ctx, gradient)

    left, right = query.staleness_identity(
        run(4, 200, strategy=WrongStaleness(), compute=lk.distributions.Exponential(0.01)), 0
    )
    assert left == right - 1


@pytest.mark.slow
def test_exponential_times_give_geometric_staleness():
    workers, updates = 8, 100_000
    stale = applies(run(workers, updates, compute=lk.distributions.Exponential(0.01)))[0]
    p = 1 / workers
    for k in range(12):
        assert np.mean(stale == k) == pytest.approx(p * (1 - p) ** k, abs=0.005)
    assert stale.var() == pytest.approx(workers * (workers - 1), abs=3)
