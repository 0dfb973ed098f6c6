"""Gradient accumulation on both engines: the parameters, the samples, the ledger, the gradient noise, and a worker that is killed
meanwhile.
"""

import numpy as np

import labkit as lk
from tests.contract.engines import over

BATCH, K, UPDATES = 4, 3, 10
PROBLEM = lk.Problem("moons", hidden=(6, 5), batch_size=BATCH, dtype="float64", seed=3, options={"samples": 200})
SYNCHRONOUS = {
    "sync-ps": lk.SyncPS(accumulate=K), "ring": lk.RingAllReduce(accumulate=K),
    "bucketed": lk.BucketedAllReduce(accumulate=K, bucket_size=1),
}  # fmt: skip


def loop(workers):
    """The parameters after steps on batches of K x BATCH samples of each worker, joined here; and the gradients of the
    mini-batches, shape (updates, workers, K, parameters).
    """
    objective = PROBLEM.objective()
    weights, streams, made = objective.start(PROBLEM.seed), PROBLEM.batches(workers), np.empty(objective.size)
    gradients = np.empty((UPDATES, workers, K, objective.size))
    for update in range(UPDATES):
        batches = [[next(stream) for _ in range(K)] for stream in streams]
        for worker, k in np.ndindex(workers, K):
            objective.gradient(weights, *batches[worker][k][:2], gradients[update, worker, k])
        objective.gradient(weights, *(np.concatenate([b[i] for own in batches for b in own]) for i in (0, 1)), made)
        weights -= 0.1 * made
    return weights, gradients


def noise(gradients, server):
    """The rows of the gradient noise in one update: of each worker's mini-batches; and of the workers' gradients, at the server
    or at each worker, which knows the length of its own gradient only.
    """
    squares, means = (gradients**2).sum(axis=-1).mean(axis=1), (gradients.mean(axis=1) ** 2).sum(axis=-1)
    whole = (gradients.mean(axis=(0, 1)) ** 2).sum()
    rows = [(K, BATCH, *each) for each in zip(squares, means)]
    return rows + [(len(gradients), K * BATCH, each, whole) for each in ([means.mean()] if server else means)]


@over("strategy", SYNCHRONOUS, quick=("sync-ps", "bucketed"), slow=("ring",))
def test_the_parameters_are_those_of_larger_batches(engine, strategy):
    run = engine.wait(PROBLEM, strategy, lk.Budget(samples=UPDATES * 2 * K * BATCH), workers=2)
    weights, gradients = loop(2)
    np.testing.assert_allclose(run.result().parameters, weights, rtol=0, atol=1e-12)
    summary = run.summary()
    assert (summary["updates"], summary["gradients"]) == (UPDATES, 2 * UPDATES)
    assert summary["ledger"]["closes"]
    count, samples = run.trace.column("applies", "count", "samples")
    assert (samples == count * K * BATCH).all()
    step, *columns = run.trace.column("gradient_noise", "step", "batches", "samples", "square", "mean_square")
    measured = range(0, UPDATES, run.plan.norms_every)
    assert {each for each in step if each < UPDATES} == set(measured)  # on processes also of gradients after the end
    for update in measured:
        found = np.stack(columns, axis=1)[step == update]
        np.testing.assert_allclose(
            sorted(found.tolist()), sorted(noise(gradients[update], strategy.uses_servers)), rtol=1e-9
        )


@over(
    "strategy",
    SYNCHRONOUS | {"async-ps": lk.AsyncPS(accumulate=K)},
    quick=("sync-ps",),
    slow=("ring", "bucketed", "async-ps"),
)
def test_a_killed_worker_begins_a_new_gradient(engine, strategy):
    """Mini-batches of the lost incarnation are in no gradient: all have the samples of K, wherever the kill comes."""
    run = engine.train(PROBLEM, strategy, lk.Budget(updates=10**6), workers=2, time=0.01)  # it is stopped
    run.wait_for(lambda run: run.summary()["updates"] >= 5)
    run.kill("worker-1").wait_for("restarted", "worker-1", incarnation=1)
    before = run.summary()["updates"]
    run.wait_for(lambda run: run.summary()["updates"] >= before + 5)
    run.stop()
    assert run.summary()["ledger"]["closes"]
    count, samples = run.trace.column("applies", "count", "samples")
    assert (samples == count * K * BATCH).all()
