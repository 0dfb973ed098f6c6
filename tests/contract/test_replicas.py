"""Replicas with local steps and averaging: the contract of tests/contract on both engines, and results that need no
assumption about time (local SGD, elastic averaging of one worker, D-PSGD's matrix recurrence).
"""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.trace import query
from tests.contract.statements import closed
from tests.contract.test_results import shares
from tests.contract.test_runs import MOONS

pytestmark = pytest.mark.sample(2)

STRATEGIES = [
    lk.LocalSGD(H=4), lk.LocalSGD(H=1), lk.LocalSGD(H=100, post_local=2), lk.DPSGD(), lk.ADPSGD(), lk.EASGD(tau=2),
]  # fmt: skip
NAMES = ["local sgd", "local sgd, 1", "post-local", "d-psgd", "ad-psgd", "easgd"]
TOGETHER = (lk.LocalSGD, lk.DPSGD)  # no replica gets far ahead of another


def test_gradients_that_came_after_the_end_are_in_no_replica(simulated):
    """The first worker reaches its budget long before the other, and continues; what it computes then is dropped, also if
    averages are made afterwards. No average was made before the end; the model, which is the mean of both, holds all eight.
    """
    run = simulated.wait(MOONS, lk.LocalSGD(H=6), lk.Budget(updates=4), 2, time=0.01, slow={"worker-1": 3.0})
    entries = closed(run)
    assert (entries["applied"], entries["partly_applied"]) == (8, 0)


@pytest.mark.parametrize("strategy", [lk.ADPSGD(), lk.ADPSGD(graph="complete"), lk.EASGD(tau=2)])
def test_one_step_after_the_other(simulated, strategy):
    """Every step is an update; replicas that send requests to each other (AD-PSGD) step together, else one would wait for
    the answer of a paused one.
    """
    run = simulated.train(MOONS, strategy, lk.Budget(updates=10**6), workers=3, time=0.002)
    before = run.step().summary()["updates"]
    assert before >= 1
    for _ in range(5):
        made = run.step().summary()["updates"]
        assert made == before + 1
        before = made
    run.stop()
    closed(run)


# the parameters -------------------------------------------------------------------------------------------------------

DIGITS = lk.Problem("digits", hidden=(16,), batch_size=8, dtype="float64", seed=3)
BOWL = lk.Problem(
    "quadratic", batch_size=4, seed=2,
    options={"samples": 100, "dimension": 4, "noise": 1.0, "curvature": (0.5, 2.0, 1.0, 0.1)},
)  # fmt: skip


def parameters(engine, strategy, updates, workers, servers=None, problem=DIGITS, **more):
    run = engine.wait(problem, strategy, lk.Budget(updates=updates), workers, servers, **more)
    assert run.summary()["updates"] == updates
    return run.result().parameters


@pytest.mark.parametrize("workers", [1, 4])
def test_local_sgd_with_one_local_step_is_synchronous(simulated, workers):
    local = parameters(simulated, lk.LocalSGD(learning_rate=0.2, H=1), 50, workers)
    sync = parameters(simulated, lk.SyncPS(learning_rate=0.2), 50, workers)
    ring = parameters(simulated, lk.RingAllReduce(learning_rate=0.2), 50, workers)
    np.testing.assert_allclose(local, sync, rtol=0, atol=1e-12)
    np.testing.assert_allclose(local, ring, rtol=0, atol=1e-12)


@pytest.mark.parametrize("H", [3, 1000])
@pytest.mark.parametrize("updates", [30, 31])
def test_with_equal_hessians_the_mean_does_not_depend_on_the_local_steps(simulated, H, updates):
    local = parameters(simulated, lk.LocalSGD(learning_rate=0.3, H=H), updates, 3, problem=BOWL)
    sync = parameters(simulated, lk.SyncPS(learning_rate=0.3), updates, 3, problem=BOWL)
    np.testing.assert_allclose(local, sync, rtol=0, atol=1e-12)


def gradients(problem, workers):
    """g(worker, w): the gradient of the worker's next mini-batch at w, without an engine."""
    objective, data = problem.objective(), problem.dataset
    if data.classes is None:
        parts = problem.partition.split(len(data.x_train), workers, problem.seed)
        endless = [
            Batches(
                data.x_train[p], data.y_train[p], problem.batch_size, role_stream(problem.seed, "worker", i, BATCHES)
            )
            for i, p in enumerate(parts)
        ]
    else:
        endless = shares(problem, workers)

    def gradient(worker, w):
        batch, out = next(endless[worker]), np.empty(objective.size)
        objective.gradient(np.ascontiguousarray(w), batch.x, batch.y, out)
        return out

    return gradient


@pytest.mark.parametrize("eval_every", [4, 1000])
def test_local_sgd_is_its_recurrence_at_every_evaluation_interval(simulated, eval_every):
    strategy = lk.LocalSGD(learning_rate=0.2, H=4, post_local=3, optimizer=lk.Momentum(0.5), eval_every=eval_every)
    found = parameters(simulated, strategy, 26, 3)
    gradient, x, v = gradients(DIGITS, 3), np.tile(DIGITS.objective().start(3), (3, 1)), 0.0
    for step in range(1, 27):
        v = 0.5 * v + np.array([gradient(i, x[i]) for i in range(3)])
        x = x - 0.2 * v
        if step <= 3 or step % 4 == 0:
            x = np.tile(x.mean(axis=0), (3, 1))
    np.testing.assert_allclose(found, x.mean(axis=0), rtol=0, atol=1e-12)


def test_easgd_of_one_worker_is_its_recurrence(simulated):
    found = parameters(simulated, lk.EASGD(learning_rate=0.2, rho=1.5, tau=3), 20, 1, 2)
    gradient, x = gradients(DIGITS, 1), DIGITS.objective().start(3)
    z = x.copy()
    for step in range(61):
        force = 0.3 * (x - z) if step % 3 == 0 else 0.0
        x, z = x - 0.2 * gradient(0, x) - force, z + force
    np.testing.assert_allclose(found, z, rtol=0, atol=1e-12)


W = {  # Metropolis weights by hand
    ("ring", 4): [[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]],  # / 3
    ("complete", 3): [[1, 1, 1]] * 3,  # / 3
    ("grid", 3): [[2, 1, 0], [1, 1, 1], [0, 1, 2]],  # / 3: a line
}


@pytest.mark.parametrize(("graph", "workers"), list(W))
@pytest.mark.parametrize("eval_every", [3, 1000])
def test_dpsgd_is_the_matrix_recurrence(simulated, graph, workers, eval_every):
    """X <- W X - rate G(X); with 31 steps the chief's snapshots come in between, and after the end replicas still average."""
    strategy = lk.DPSGD(learning_rate=0.2, graph=graph, eval_every=eval_every)
    found = parameters(simulated, strategy, 31, workers)
    gradient, x = gradients(DIGITS, workers), np.tile(DIGITS.objective().start(3), (workers, 1))
    w = np.array(W[graph, workers]) / 3
    for _ in range(31):
        g = np.array([gradient(i, x[i]) for i in range(workers)])
        x, before = w @ x - 0.2 * g, x
        np.testing.assert_allclose(x.mean(axis=0), before.mean(axis=0) - 0.2 * g.mean(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found, x.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("graph", "workers"), [("ring", 4), ("ring", 5), ("grid", 4), ("complete", 3)])
def test_adpsgd_never_deadlocks_and_its_ledger_balances(simulated, graph, workers):
    run = simulated.wait(
        MOONS, lk.ADPSGD(graph=graph), lk.Budget(updates=15), workers, time=lk.distributions.Exponential(0.003),
        slow={"worker-1": 4.0},
    )  # fmt: skip
    entries = closed(run)
    assert run.summary()["updates"] == 15
    assert (entries["applied"], entries["partly_applied"]) == (15 * workers, 0)
    sent = query.bytes_sent(run.trace)["replica"]
    assert sent["training"] > 10 * sent["startup"]


def test_adpsgd_a_slow_worker_does_not_slow_the_others(simulated):
    """The others compute at their own pace: 20 ms a gradient where the slow one takes 200 ms."""
    run = simulated.wait(MOONS, lk.ADPSGD(), lk.Budget(seconds=0.6), 3, time=0.02, slow={"worker-1": 10.0})
    computed = [run.trace.counters[w].computed for w in run.trace.role_ids("worker")]
    assert computed == [30, 3, 30]  # with D-PSGD they would be at most one ahead
    closed(run)


@pytest.mark.parametrize(
    ("strategy", "shape", "message"),
    [
        (lk.LocalSGD(), {"servers": 2}, "LocalSGD has no servers and was given servers=2; leave servers out, or 0"),
        (lk.DPSGD(), {"servers": 1}, "DPSGD has no servers and was given servers=1"),
        (lk.ADPSGD(), {"servers": 1}, "ADPSGD has no servers and was given servers=1"),
        (lk.EASGD(), {"servers": 0}, "EASGD keeps its parameters on servers and was given servers=0"),
    ],
)
def test_impossible_shapes_are_refused_before_anything_starts(simulated, strategy, shape, message):
    with pytest.raises(lk.BadInput, match=message):
        simulated.train(MOONS, strategy, lk.Budget(updates=5), **{"workers": 2, **shape})
