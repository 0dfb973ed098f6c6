"""Every strategy on both engines: one run each, of which several statements are checked. In virtual time every strategy meets
every kind of budget, with several shapes, reaches an accuracy, and a split model equals one process.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.nn.codecs import QSGD, Float16, PowerSGD, TopK
from labkit.random_streams import BATCHES, role_stream
from labkit.strategies import FAMILIES, FIRST, STRATEGIES
from labkit.trace import query
from tests.contract.engines import over
from tests.contract.scripts import learned
from tests.contract.statements import closed, computed_the_same, evaluated, staleness_is_conserved, stopped_after

SPLIT = ("tensor-parallel", "pipeline")  # one gradient a step, computed by all workers together
SPARSE = ("sparse-ps",)
OTHERS = [name for name in STRATEGIES if name not in SPLIT + SPARSE]
DEEP = lk.Problem("digits", hidden=(32, 32, 32), batch_size=32, seed=1, dtype="float64")
MOONS = lk.Problem("moons", hidden=(8, 6, 5), batch_size=8, dtype="float64", options={"samples": 100})  # 80 to train on
CLICKS = lk.Problem("clicks", hidden=(8,), batch_size=8, dtype="float64", options={"rows": 3000, "samples": 3000})
UPDATES = 20


@dataclass(frozen=True)
class Case:
    """A strategy, the number of gradients in one of its updates by hand, and its shape."""

    strategy: lk.Strategy
    gradients: int
    workers: int = 3
    servers: int | None = None
    budget: str = "updates"  # what ends the run, always after 20 updates
    same: bool = False  # its parameters and messages do not depend on time
    whole: bool = True  # all shards apply the same gradients
    divided: bool = False  # workers divide a batch of 8 samples for each

    @property
    def problem(self):
        if self.divided:
            return replace(MOONS, batch_size=8 * self.workers, partition="global-batch")
        return CLICKS if isinstance(self.strategy, lk.SparsePS) else MOONS

    def limit(self, budget):
        """A budget of this kind that is used up by exactly 20 updates."""
        samples = UPDATES * self.gradients * 8
        limits = {"updates": UPDATES, "samples": samples, "epochs": samples / len(self.problem.dataset.y_train)}
        return lk.Budget(**{budget: limits[budget]})


# One of each, with the options that need most of an engine. The number of gradients of an update is by hand.
CASES = {
    "sync-ps": Case(lk.SyncPS(codec=TopK(0.2)), 3, servers=2, same=True),
    "async-ps": Case(lk.AsyncPS(optimizer="momentum:0.5", learning_rate=0.02), 1, servers=2, whole=False),
    "ssp": Case(lk.SSP(s=1), 1, servers=1, budget="samples"),
    "backup-workers": Case(lk.BackupWorkers(b=1), 2, servers=2, whole=False),
    "ring-all-reduce": Case(lk.RingAllReduce(codec=PowerSGD(2)), 3, same=True, budget="epochs"),
    "local-sgd": Case(lk.LocalSGD(H=4, post_local=3, outer="nesterov:0.9", outer_rate=0.7), 3, same=True),
    "tensor-parallel": Case(lk.TensorParallel(), 1, workers=2, same=True),
    "pipeline": Case(lk.Pipeline(micro_batches=2), 1, same=True, budget="samples"),
    "hybrid": Case(lk.Hybrid(between="server"), 2, workers=4, same=True),
    "k-sync": Case(lk.KSync(K=2), 2, servers=1, budget="samples"),
    "k-batch-sync": Case(lk.KBatchSync(K=2), 2, workers=2, servers=1),
    "k-async": Case(lk.KAsync(K=2), 2, servers=1),
    "k-batch-async": Case(lk.KBatchAsync(K=2), 2, workers=2, servers=2, whole=False),
    "downpour": Case(lk.Downpour(n_push=2, n_fetch=2), 2, workers=2, servers=1, budget="samples"),
    "easgd": Case(lk.EASGD(tau=2), 2, workers=1, servers=2, same=True),
    "halving-doubling": Case(lk.HalvingDoubling(codec=Float16()), 3, same=True, divided=True),
    "bucketed-all-reduce": Case(lk.BucketedAllReduce(), 3, same=True),
    "dpsgd": Case(lk.DPSGD(), 3, same=True),
    "adpsgd": Case(lk.ADPSGD(), 3, budget="samples"),
    "sparse-ps": Case(lk.SparsePS(), 3, servers=2, same=True),
    "pipedream": Case(lk.PipeDream(), 1, same=True),
    "fsdp": Case(lk.FSDP(), 2, workers=2, same=True),
}
# In virtual time, other options too.
MORE = CASES | {
    "sync-ps, qsgd": Case(lk.SyncPS(codec=QSGD(4)), 3, servers=1),
    "async-ps, defaults": Case(lk.AsyncPS(), 1, servers=1),
    "downpour, defaults": Case(lk.Downpour(), 1, servers=1),
    "backup-workers, none": Case(lk.BackupWorkers(b=0), 3, servers=1),
    "k-sync, 1": Case(lk.KSync(K=1), 1, servers=1),
    "k-async, 1": Case(lk.KAsync(K=1), 1, servers=1),
    "ring-all-reduce, defaults": Case(lk.RingAllReduce(), 3),
    "bucketed-all-reduce, layers": Case(lk.BucketedAllReduce(bucket_size=1, optimizer="adam", clip_norm=0.5), 3),
    "local-sgd, defaults": Case(lk.LocalSGD(), 3),
    "local-sgd, 1": Case(lk.LocalSGD(H=1), 3),
    "local-sgd, post-local": Case(lk.LocalSGD(H=100, post_local=2), 3),
    "adpsgd, complete": Case(lk.ADPSGD(graph="complete"), 3),
    "hybrid, tensor": Case(lk.Hybrid(split="tensor", between="server"), 2, workers=4),
    "hybrid, all-reduce": Case(lk.Hybrid(micro_batches=2), 2, workers=4),
    "sparse-ps, asynchronous": Case(lk.SparsePS(dense="server", synchronous=False), 1, servers=2, whole=False),
}
ROUNDS = (
    lk.SyncPS,
    lk.RingAllReduce,
    lk.BucketedAllReduce,
    lk.LocalSGD,
    lk.DPSGD,
    lk.ADPSGD,
    lk.FSDP,
)  # of one gradient a worker


def test_the_registry_begins_with_nine_and_has_each_strategy_once():
    assert list(STRATEGIES)[:9] == list(FIRST) == [
        "sync-ps", "async-ps", "ssp", "backup-workers", "ring-all-reduce", "local-sgd", "tensor-parallel", "pipeline",
        "hybrid",
    ]  # fmt: skip
    assert sum(map(len, FAMILIES.values())) == len(STRATEGIES) == len(set(STRATEGIES.values()))
    asked = "k-sync k-batch-sync k-async k-batch-async easgd halving-doubling dpsgd adpsgd sparse-ps pipedream fsdp"
    assert set(asked.split()) <= set(STRATEGIES)
    assert {name: type(case.strategy) for name, case in CASES.items()} == STRATEGIES


@over("case", CASES, quick=FIRST, slow=[name for name in CASES if name not in FIRST])
def test_one_run_of_every_strategy(engine, case):
    run = engine.wait(case.problem, case.strategy, case.limit(case.budget), case.workers, case.servers, time=0.005)
    stopped_after(run, UPDATES, case.gradients, case.budget, case.whole)
    assert query.samples_applied(run.trace) == UPDATES * case.gradients * 8
    evaluated(run)
    if isinstance(case.strategy, lk.AsyncPS):
        staleness_is_conserved(run)
    if case.same and not engine.simulated:
        cluster = lk.SimulatedCluster(workers=case.workers, servers=case.servers)
        computed_the_same(run, lk.train(case.problem, case.strategy, cluster, case.limit("updates")).wait())


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", MORE.values(), ids=MORE)
def test_budgets_of_every_kind_and_shapes_of_every_size(simulated, case):
    for budget in ("updates", "samples", "epochs"):
        run = simulated.wait(case.problem, case.strategy, case.limit(budget), case.workers, case.servers)
        stopped_after(run, UPDATES, case.gradients, budget, case.whole)
        assert query.samples_applied(run.trace) == UPDATES * case.gradients * 8
        evaluated(run)
    run = simulated.wait(case.problem, case.strategy, lk.Budget(seconds=0.25), case.workers, case.servers)
    assert run.stopped_by == "seconds"
    assert 0.25 <= run.summary()["seconds"] < 0.2501
    assert run.summary()["updates"] > 0
    closed(run)
    evaluated(run)
    run = simulated.train(case.problem, case.strategy, lk.Budget(updates=10**6), case.workers, case.servers)
    assert run.step().stop().stop().stopped_by == "user"
    assert run.summary()["updates"] >= 1
    closed(run)


@pytest.mark.sample(17)
@pytest.mark.parametrize("name", [name for name, case in MORE.items() if not isinstance(case.strategy, lk.Hybrid)])
def test_fewer_and_more_workers_and_servers(simulated, name):
    case, strategy = MORE[name], MORE[name].strategy
    for workers, servers in ((1, 1), (3, 1), (2, 2)):
        each, servers = case.gradients, servers if strategy.uses_servers else None
        if isinstance(strategy, lk.BackupWorkers):
            each = workers - strategy.b
        elif isinstance(strategy, ROUNDS) or (isinstance(strategy, lk.SparsePS) and strategy.synchronous):
            each = workers
        if each < 1 or (isinstance(strategy, lk.KSync | lk.KAsync) and workers < strategy.K):
            continue  # it needs more workers
        run = simulated.wait(case.problem, strategy, lk.Budget(updates=21), workers, servers)
        whole = servers in (None, 1) or isinstance(strategy, lk.SyncPS)
        entries = stopped_after(run, 21, each, whole=whole and (workers == 1 or not isinstance(strategy, lk.EASGD)))
        if type(strategy) in (lk.AsyncPS, lk.SyncPS, lk.RingAllReduce):  # update 22 is refused, whoever computed for it
            over = entries["computed"] - entries["applied"] - entries["partly_applied"]
            assert over == entries["in_flight"] + entries["dropped"].get("after the end", 0) <= workers


@over("name", {name: name for name in ("async-ps", "sync-ps", "ring-all-reduce", "adpsgd", "pipeline", "sparse-ps")},
      quick=("async-ps",), slow=("sync-ps", "ring-all-reduce", "adpsgd", "pipeline", "sparse-ps"))  # fmt: skip
def test_steps_a_killed_worker_and_the_users_stop(engine, name):
    """In whichever state a pause has stopped the shards, a step advances all of them, and no role waits for a paused one. A
    worker that was killed returns, and the run continues.
    """
    case = CASES[name]
    run = engine.train(case.problem, case.strategy, lk.Budget(updates=10**6), case.workers, case.servers, time=0.005)
    for _ in range(2):
        before = run.step().summary()["updates"]
        made = run.step().summary()["updates"] - before
        if name == "async-ps" or (name != "adpsgd" and not engine.simulated):  # replicas of AD-PSGD step one by one
            assert made == 1
        assert made >= 0
        run.resume()
    run.kill("worker-1").wait_for("restarted", "worker-1", incarnation=1)
    before = run.summary()["updates"]
    run.wait_for(lambda run: run.summary()["updates"] >= before + 5)
    assert run.stop().stopped_by == "user"
    assert run.trace.ending["lost"] == []
    closed(run)


@over("strategy", {s.name: s for s in [type(case.strategy)(learning_rate=0.3) for name, case in CASES.items()
                   if name not in ("downpour", "sparse-ps")]}, quick=("AsyncPS",))  # fmt: skip
def test_a_run_ends_at_its_target_accuracy(engine, strategy):
    closed(learned(engine, strategy))


@pytest.mark.sample(slow=6)
@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_digits_to_95_percent(simulated, name):
    """PipeDream and Hybrid are split as well, but use more than one gradient at a time: they are tested here."""
    problem = lk.Problem("digits", hidden=STRATEGIES[name].suggested_problem.get("hidden", (64,)), seed=1)
    run = simulated.wait(problem, STRATEGIES[name](), lk.Budget(accuracy=0.95, seconds=50), workers=4, time=0.001)
    assert run.stopped_by == "accuracy"
    right = run.result().predict(problem.dataset.raw(problem.dataset.x_test)) == problem.dataset.y_test
    assert right.mean() >= 0.95
    closed(run)


@pytest.mark.parametrize("name", SPLIT)
def test_a_split_model_is_one_process(simulated, name):
    """The oracle is a loop over the same mini-batches in NumPy, without strategy or engine."""
    run = simulated.wait(DEEP, STRATEGIES[name](learning_rate=0.1), lk.Budget(updates=30), workers=4)
    net, weights = DEEP.objective(), DEEP.objective().start(DEEP.seed)
    out = np.empty_like(weights)
    data = DEEP.dataset
    batches = Batches(data.x_train, data.y_train, DEEP.batch_size, role_stream(DEEP.seed, "worker", 0, BATCHES))
    for _ in range(30):
        batch = next(batches)
        net.gradient(weights, batch.x, batch.y, out)
        weights -= 0.1 * out
    np.testing.assert_allclose(run.result().parameters, weights, rtol=0, atol=1e-10)
    assert closed(run)["applied"] == 30
