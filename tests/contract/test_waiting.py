"""Strategies that wait for some workers, and servers that correct stale gradients: the contract of tests/contract on both
engines, and results that need no assumption about time (SSP without slack, correction of stale gradients).
"""

from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.trace import query
from tests.contract.engines import over
from tests.contract.statements import closed
from tests.contract.test_runs import MOONS

pytestmark = pytest.mark.sample(3)

STRATEGIES = [
    lk.SSP(s=1), lk.BackupWorkers(b=0), lk.KSync(K=1), lk.KBatchSync(K=2), lk.KAsync(K=1), lk.KBatchAsync(K=2),
    lk.Downpour(n_push=2, n_fetch=2),
]  # fmt: skip
NAMES = ["ssp", "backup workers", "k-sync", "k-batch-sync", "k-async", "k-batch-async", "downpour"]
ASYNCHRONOUS = lk.AsynchronousServer  # each shard applies pushes in a different order


@over(
    "strategy",
    {repr(s): s for s in (lk.BackupWorkers(b=1), lk.BackupWorkers(b=1, give_up=False), lk.KSync(K=2), lk.KAsync(K=2))},
    slow=[repr(lk.BackupWorkers(b=1))],
)
@pytest.mark.parametrize("servers", [1, 2])
def test_a_step_uses_gradients_of_the_first_two_of_three_workers(engine, strategy, servers):
    """The first two of three, with one worker much slower; every step is made of two different workers' gradients."""
    run = engine.wait(MOONS, strategy, lk.Budget(updates=21), 3, servers, time=0.004, slow={"worker-2": 4.0})
    entries = closed(run)
    for shard in range(servers):
        role, version, sender = run.trace.column("applies", "role", "version", "sender")
        for v in range(1, 22):
            assert len(set(sender[(role == shard) & (version == v)].tolist())) == 2
    if not isinstance(strategy, lk.KAsync | lk.KBatchAsync):
        assert query.staleness(run.trace)["max"] == 0
        assert {"late", "cancelled"} & set(entries["dropped"])
        assert entries["applied"] + entries["partly_applied"] >= 42


# SSP, from each shard's own log ---------------------------------------------------------------------------------------


@over("bound", {f"{s}-{n}": (s, n) for s in (0, 1, 3) for n in (1, 2)}, slow=["1-2"])
def test_a_read_of_ssp_contains_all_updates_up_to_clock_i_minus_s_minus_1(engine, bound):
    """No clocks are compared: each gradient records the version it was computed on, each shard the gradients of each
    version. A read that has all workers' updates up to i - s - 1 is a start within the bound.
    """
    s, servers = bound
    run = engine.wait(
        MOONS, lk.SSP(s=s, learning_rate=0.02), lk.Budget(updates=60), 3, servers,
        time=lk.distributions.LogNormal(0.003, 0.8), slow={"worker-1": 3.0},
    )  # fmt: skip
    closed(run)
    assert run.trace.tables["applies"].skipped == 0
    ahead = 0
    for shard in range(servers):
        role, sender, step, stale, version = run.trace.column(
            "applies", "role", "sender", "step", "staleness", "version"
        )
        order = np.argsort(version[role == shard])
        mine = [c[role == shard][order] for c in (sender, step, stale, version)]
        for who, i, behind, v in zip(*(c.tolist() for c in mine)):
            seen = mine[0][: v - 1 - behind]
            counts = [int((seen == w).sum()) for w in run.trace.role_ids("worker")]
            assert min(counts) >= i - s
            assert counts[who - run.trace.role_ids("worker")[0]] == i  # its own, all of them
            ahead = max(ahead, i - min(counts))
    if engine.simulated:
        assert ahead == s  # the bound is reached, too


def every_read_is_of_a_whole_round(run):
    """Whether each gradient of round i was computed on the version that the first i rounds made. A read may contain more: on
    processes the first push of one worker may arrive before the first pull of another.
    """
    step, stale, version = run.trace.column("applies", "step", "staleness", "version")
    return bool((version - 1 - stale == len(run.trace.role_ids("worker")) * step).all())


def test_without_slack_the_parameters_are_the_synchronous_sum(simulated):
    problem = lk.Problem("moons", hidden=(6,), batch_size=8, dtype="float64", options={"samples": 200})
    ssp = simulated.wait(problem, lk.SSP(s=0, learning_rate=0.05), lk.Budget(updates=60), 3, 2, time=0.01)
    assert every_read_is_of_a_whole_round(ssp)
    sync = simulated.wait(problem, lk.SyncPS(learning_rate=0.05, reduce="sum"), lk.Budget(updates=20), 3, 2)
    np.testing.assert_allclose(ssp.result().parameters, sync.result().parameters, rtol=0, atol=1e-12)


def test_the_bound_may_change_during_a_run(simulated):
    run = simulated.train(MOONS, lk.SSP(s=3), lk.Budget(updates=300), 3, time=0.005, slow={"worker-1": 5.0})
    run.step().set(s=0)
    run.resume().wait()
    assert [str(m) for m in run.trace.events if m.kind == "set"] == ["s = 0"]
    sender, step = run.trace.column("applies", "sender", "step")
    late = [step[sender == w].max() for w in run.trace.role_ids("worker")]
    assert max(late) - min(late) <= 1
    closed(run)


# correction of stale gradients ----------------------------------------------------------------------------------------

CURVATURE = (0.5, 3.0, 1.0, 2.0, 0.1)
BOWL = lk.Problem(
    "quadratic", batch_size=4, seed=5, options={"samples": 64, "dimension": 5, "noise": 1.0, "curvature": CURVATURE}
)


@dataclass(frozen=True)
class TrueHessian:
    """A compensation with the exact curvature of the bowl."""

    def state(self, size, dtype):
        return {}

    def compensate(self, gradient, now, then, state):
        whole = np.array(CURVATURE)
        return gradient + {5: whole, 2: whole[:2], 3: whole[2:]}[len(gradient)] * (now - then)


@over(
    "shape", {f"{kind.__name__}-{n}": (kind, n) for kind in (lk.AsyncPS, lk.KBatchAsync) for n in (1, 2)}, quick=["AsyncPS-2"],
    slow=["KBatchAsync-2"],
)  # fmt: skip
def test_correction_with_the_true_hessian_equals_sequential_training(engine, shape):
    """One process that takes the same batches in the order in which they were applied, each at its newest weights."""
    strategy, servers = shape
    run = engine.wait(
        BOWL, strategy(learning_rate=0.1, compensation=TrueHessian()), lk.Budget(updates=80), 4, servers,
        time=lk.distributions.LogNormal(0.01, 0.8),  # on a cluster so slow that every row is reported
    )  # fmt: skip
    assert query.staleness(run.trace)["max"] > 1
    edges, found = [5 * i // servers for i in range(servers + 1)], np.empty(5)
    objective, out, first = BOWL.objective(), np.empty(5), run.trace.role_ids("worker")[0]
    for shard in range(servers):
        endless, made = shares_of(BOWL, 4), [[] for _ in range(4)]
        role, version, sender, step = run.trace.column("applies", "role", "version", "sender", "step")
        mine, w = role == shard, objective.start(5)
        for v in range(1, 81):
            chosen, total = np.flatnonzero(mine & (version == v)), 0.0
            for row in chosen.tolist():
                who = int(sender[row]) - first
                while len(made[who]) <= step[row]:
                    made[who].append(next(endless[who]))
                batch = made[who][int(step[row])]
                objective.gradient(w, batch.x, batch.y, out)
                total = total + out
            w = w - 0.1 * total / len(chosen)
        found[edges[shard] : edges[shard + 1]] = w[edges[shard] : edges[shard + 1]]
    np.testing.assert_allclose(run.result().parameters, found, rtol=0, atol=1e-12)


def shares_of(problem, workers):
    """Each worker's batches, of a problem without labels."""
    x, y = problem.dataset.x_train, problem.dataset.y_train
    parts = problem.partition.split(len(x), workers, problem.seed)
    return [
        Batches(x[p], y[p], problem.batch_size, role_stream(problem.seed, "worker", i, BATCHES))
        for i, p in enumerate(parts)
    ]


# refused before anything starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "shape", "message"),
    [
        (lk.KSync(K=3), {}, r"KSync\(K=3\) with workers=2: K is at most 2 here"),
        (lk.KAsync(K=3), {}, r"KAsync\(K=3\) with workers=2: K is at most 2 here"),
        (lk.BackupWorkers(b=2), {}, r"BackupWorkers\(b=2\) with workers=2: b is at most 1 here"),
        (lk.SSP(), {"servers": 0}, "SSP keeps its parameters on servers and was given servers=0"),
    ],
)
def test_impossible_shapes_are_refused_before_anything_starts(simulated, strategy, shape, message):
    with pytest.raises(lk.BadInput, match=message):
        simulated.train(MOONS, strategy, lk.Budget(updates=5), **{"workers": 2, **shape})
