"""Correction of stale gradients, and less frequent communication: equality with sequential training, stability, Downpour.

Every run is replayed in NumPy from the log of applied gradients: version by version, each gradient computed at the
weights recorded in the log. The replay keeps all versions; what the server keeps is under test.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.trace import ledger, query

pytestmark = pytest.mark.sample(3, slow=4)

CURVATURE = (0.5, 3.0, 1.0, 2.0, 0.1)
BOWL = lk.Problem(
    "quadratic", batch_size=4, seed=5, options={"samples": 64, "dimension": 5, "noise": 1.0, "curvature": CURVATURE}
)
MOONS = lk.Problem("moons", hidden=(5,), batch_size=8, dtype="float64", options={"samples": 150})
COMPUTE = {
    "compute": lk.distributions.LogNormal(0.01, 0.8),
    "slow": {"worker-0": 3.0},
    "server_time": lk.distributions.Exponential(0.0005),
}


@dataclass(frozen=True)
class TrueHessian:
    """A compensation with the exact curvature of the bowl, of the part with the gradient's size."""

    def state(self, size, dtype):
        return {}

    def curvature(self, gradient, state):
        whole = np.array(CURVATURE)
        return {5: whole, 2: whole[:2], 3: whole[2:]}[len(gradient)]

    def compensate(self, gradient, now, then, state):
        return gradient + self.curvature(gradient, state) * (now - then)


def trained(strategy, updates, problem=BOWL, workers=4, servers=1, **distribution):
    cluster = lk.SimulatedCluster(workers=workers, servers=servers, **(distribution or COMPUTE))
    return lk.train(problem, strategy, cluster, lk.Budget(updates=updates)).wait()


def batches(problem, workers):
    """batch(worker, step), made without an engine."""
    data = problem.dataset
    labels = data.y_train if data.classes is not None else len(data.x_train)
    parts = problem.partition.split(labels, workers, problem.seed)
    endless = [
        Batches(data.x_train[p], data.y_train[p], problem.batch_size, role_stream(problem.seed, "worker", i, BATCHES))
        for i, p in enumerate(parts)
    ]
    made = [[] for _ in endless]

    def batch(worker, step):
        while len(made[worker]) <= step:
            made[worker].append(next(endless[worker]))
        return made[worker][step]

    return batch


def log(run, shard):
    """[[(worker, step, staleness), ...] of every update of a shard, in the order in which they were added]."""
    role, version, sender, step, stale = run.trace.column("applies", "role", "version", "sender", "step", "staleness")
    first = run.trace.role_ids("worker")[0]
    updates = [[] for _ in range(int(version[role == shard].max()))]
    for v, who, k, behind in zip(*(c[role == shard].tolist() for c in (version, sender, step, stale))):
        updates[v - 1].append((who - first, k, behind))
    return updates


def replayed(run, problem, workers, rate, correct, servers=1, sequential=False):
    """The parameters, by NumPy: `correct(g, now, then, staleness, memory)` is the paper's rule. `sequential`: every
    gradient is taken at today's weights, as one process would.
    """
    objective, batch = problem.objective(), batches(problem, workers)
    edges = [objective.size * i // servers for i in range(servers + 1)]
    final = np.empty(objective.size)
    for shard in range(servers):
        part, memory = slice(edges[shard], edges[shard + 1]), {}
        history, out = [objective.start(problem.seed)], np.empty(objective.size)
        for update in log(run, shard):
            total, now = 0.0, history[-1]
            for who, step, behind in update:
                then = now if sequential else history[len(history) - 1 - behind]
                objective.gradient(then, batch(who, step).x, batch(who, step).y, out)
                total = total + correct(out.copy(), now, then, behind, memory)
            history.append(now - rate * total / len(update))
        final[part] = history[-1][part]  # the bowl's parameters are independent
    return final


def as_it_is(g, now, then, behind, memory):
    return g


def reads_of(run):
    """[[version, ...] of the weights sent to each worker, in order]: the server applies pushes one by one, so the weights
    hold what was applied by the time they were sent.
    """
    role, sender, kind, sent = run.trace.column("messages", "role", "sender", "kind", "sent")
    applied = np.sort(run.trace.column("applies", "time"))
    given = (sender == 0) & (kind == run.trace.header.messages.index("Weights"))
    workers = run.trace.role_ids("worker")
    return [np.searchsorted(applied, np.sort(sent[given & (role == w)]), side="right") for w in workers]


STALE = [lk.AsyncPS, lk.SSP, lk.KAsync, lk.KBatchAsync]


@pytest.mark.parametrize("strategy", STALE)
@pytest.mark.parametrize("servers", [1, 2])
def test_the_replay_is_the_run_when_nothing_is_corrected(strategy, servers):
    run = trained(strategy(learning_rate=0.1), 150, servers=servers)
    np.testing.assert_allclose(
        run.result().parameters, replayed(run, BOWL, 4, 0.1, as_it_is, servers), rtol=0, atol=1e-12
    )
    assert query.staleness(run.trace)["mean"] > 0.7


# equality with sequential training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STALE)
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 1), (4, 2), (7, 2)])
def test_correction_with_the_true_hessian_equals_sequential_training(strategy, workers, servers):
    """On a quadratic, g + H (now - then) is the gradient at `now`: the run is SGD in one process on the same batches."""
    options = (
        {"K": 3}
        if issubclass(strategy, lk.KAsync) and workers > 3
        else {"K": 1}
        if issubclass(strategy, lk.KAsync)
        else {}
    )
    run = trained(
        strategy(learning_rate=0.1, compensation=TrueHessian(), **options), 200, workers=workers, servers=servers
    )
    alone = replayed(run, BOWL, workers, 0.1, as_it_is, servers, sequential=True)
    np.testing.assert_allclose(run.result().parameters, alone, rtol=0, atol=1e-12)
    plain = replayed(run, BOWL, workers, 0.1, as_it_is, servers)
    if workers > 1:
        assert np.abs(plain - alone).max() > 1e-3  # it makes a difference
    for server in run.trace.role_ids("server"):
        kept = run.engine.roles[run.trace.roles[server]].shard.parameters.correction.kept
        assert len(kept) <= 2 * workers + 1


@pytest.mark.parametrize("servers", [1, 2])
def test_downpour_with_the_true_hessian_equals_sequential_training(servers):
    run = trained(lk.Downpour(learning_rate=0.1, compensation=TrueHessian()), 150, servers=servers)
    alone = replayed(run, BOWL, 4, 0.1, as_it_is, servers, sequential=True)
    np.testing.assert_allclose(run.result().parameters, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 3), (3, 3), (4, 1), (4, 2), (3, 2)])
def test_several_gradients_a_read_or_several_reads_a_push_are_corrected(n_push, n_fetch):
    """A push is compensated from the oldest weights in it to today's, however often its worker has read since. The
    worker's local steps in between do not affect the server.
    """
    objective, batch = BOWL.objective(), batches(BOWL, 4)
    hessian, rate = np.array(CURVATURE), 0.02
    strategy = lk.Downpour(learning_rate=rate, n_push=n_push, n_fetch=n_fetch, compensation=TrueHessian())
    run = trained(strategy, 100)
    history = [objective.start(5)]  # the server's; and of each worker: [local weights, steps made, sum]
    out, seen = np.empty(5), [[None, 0, np.zeros(5)] for _ in range(4)]
    reads = reads_of(run)  # of each worker, the versions that it was given
    for ((who, last, behind),) in log(run, 0):
        mine = seen[who]
        oldest = len(history) - 1 - behind
        for step in range(last - n_push + 1, last + 1):
            if step % n_fetch == 0:
                version = reads[who][step // n_fetch]
                mine[0] = history[version].copy()
            objective.gradient(mine[0], batch(who, step).x, batch(who, step).y, out)
            mine[2] += out
            mine[0] = mine[0] - rate * out
        change = mine[2] + hessian * (history[-1] - history[oldest])
        history.append(history[-1] - rate * change)
        mine[2] = np.zeros(5)
    np.testing.assert_allclose(run.result().parameters, history[-1], rtol=0, atol=1e-12)


# the papers' rules ----------------------------------------------------------------------------------------------------


def constant(g, now, then, behind, memory):
    return g + 0.3 * g * g * (now - then)


def adaptive(g, now, then, behind, memory):
    memory["mean"] = 0.9 * memory.get("mean", 0.0) + (1 - 0.9) * g * g
    return g + 0.7 / np.sqrt(memory["mean"] + 1e-7) * g * g * (now - then)


def aware(g, now, then, behind, memory):
    return g / behind if behind > 0 else g


def both(g, now, then, behind, memory):
    return aware(constant(g, now, then, behind, memory), now, then, behind, memory)


@pytest.mark.parametrize("strategy", STALE)
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"compensation": lk.DelayCompensation(0.3)}, constant),
        ({"compensation": lk.AdaptiveCompensation(0.7, decay=0.9)}, adaptive),
        ({"staleness_aware": True}, aware),
        ({"compensation": "constant:0.3", "staleness_aware": True}, both),
    ],
    ids=["constant", "adaptive", "aware", "both"],
)
@pytest.mark.parametrize(("problem", "servers"), [(BOWL, 2), (MOONS, 1)], ids=["bowl, 2 shards", "network"])
def test_every_asynchronous_server_does_what_the_papers_write(strategy, options, rule, problem, servers):
    rate = 0.05 if problem is BOWL else 0.3
    run = trained(strategy(learning_rate=rate, **options), 120, problem, servers=servers)
    there, plain = (replayed(run, problem, 4, rate, r, servers) for r in (rule, as_it_is))
    np.testing.assert_allclose(run.result().parameters, there, rtol=0, atol=1e-11)
    assert np.abs(there - plain).max() > 1e-5


def test_compensation_combines_with_momentum_and_weight_decay():
    """Corrections change the gradient; the optimizer is independent of them."""
    options = {"optimizer": lk.Momentum(0.5), "weight_decay": 0.01, "compensation": TrueHessian()}
    run = trained(lk.AsyncPS(learning_rate=0.05, **options), 150)
    objective, batch = BOWL.objective(), batches(BOWL, 4)
    w, v, out = objective.start(5), np.zeros(5), np.empty(5)
    for ((who, step, _),) in log(run, 0):
        objective.gradient(w, batch(who, step).x, batch(who, step).y, out)
        v = 0.5 * v + out
        w = w * (1 - 0.05 * 0.01) - 0.05 * v
    np.testing.assert_allclose(run.result().parameters, w, rtol=0, atol=1e-12)


# stable rates --------------------------------------------------------------------------------------------


def dip(rate, workers, updates, **options):
    """|w| after each update, of equal workers with constant times on f = w^2 / 2, from w = 1."""
    problem = lk.Problem("quadratic", batch_size=1, options={"samples": 1, "dimension": 1}, partition="shared")

    class Noting(lk.AsyncPS):
        async def server(self, ctx, shard):
            async for request in ctx.inbox(lk.Push, lk.Pull):
                if isinstance(request, lk.Push) and await ctx.compute(shard.apply, request, self.learning_rate):
                    ctx.note("w", w=shard.values[0])
                ctx.send(request.sender, shard.weights())

    strategy = Noting(learning_rate=rate, eval_every=10**6, **options)
    run = lk.train(problem, strategy, lk.SimulatedCluster(workers=workers), lk.Budget(updates=updates)).wait()
    return np.array([event.numbers["w"] for event in run.trace.events if str(event) == "w"])


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_staleness_aware_is_the_delay_recurrence_with_the_rate_divided(workers):
    """tau = t in the first round, N - 1 from then on; rate / tau if tau > 0."""
    w = [1.0]
    for t in range(80):
        tau = min(t, workers - 1)
        w.append(w[-1] - 0.3 / max(tau, 1) * w[t - tau])
    np.testing.assert_allclose(dip(0.3, workers, 80, staleness_aware=True), w[1:], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize(("workers", "times"), [(1, 1), (2, 1), (4, 3), (8, 7)])
def test_a_rate_divided_by_the_staleness_is_stable_as_many_times_further(workers, times):
    """Every gradient has staleness tau = N - 1 after the first round, so the edge is tau x 2 sin(pi / (2 (2 tau + 1)));
    tau = 0 and tau = 1 change nothing.
    """
    tau = workers - 1
    bound = times * 2 * math.sin(math.pi / (2 * (2 * tau + 1)))

    def stable(rate):  # over whole periods an unstable path grows and a stable one shrinks
        w = np.abs(dip(rate, workers, 3000, staleness_aware=True))
        return w[-300:].max() < w[1200:1500].max()

    for change in (-0.02, -0.001, 0.001, 0.02):
        assert stable(bound + change * times) == (change < 0)


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("rate", [0.05, 0.22, 1.0, 1.9, 2.1])
def test_with_the_true_hessian_the_stable_rates_are_those_of_one_process(workers, rate):
    """w(t) = (1 - rate)^t: it converges below 2, where eight plain workers diverge from .209 on."""

    @dataclass(frozen=True)
    class One(TrueHessian):
        def curvature(self, gradient, state):
            return np.ones(1)

    w = dip(rate, workers, 60, compensation=One())
    np.testing.assert_allclose(w, (1 - rate) ** np.arange(1, 61), rtol=1e-9, atol=1e-12)


# Downpour -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(0.6)], ids=["sgd", "momentum"])
@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (3, 3), (1, 4), (4, 1), (2, 3), (6, 4)])
@pytest.mark.parametrize(
    ("problem", "servers"), [(BOWL, 2), (MOONS, 1), (MOONS, 2)], ids=["bowl", "network", "network, 2"]
)
def test_downpour_is_its_pseudo_code(problem, servers, n_push, n_fetch, optimizer):
    """One worker, line by line: fetch every n_fetch steps, step on the local weights, push the accumulated gradients."""
    rate, updates = 0.05, 12
    strategy = lk.Downpour(learning_rate=rate, n_push=n_push, n_fetch=n_fetch, optimizer=optimizer)
    run = trained(strategy, updates, problem, workers=1, servers=servers)
    objective, batch = problem.objective(), batches(problem, 1)
    m = getattr(optimizer, "momentum", 0.0)
    there = objective.start(problem.seed)
    accrued, out, mine = np.zeros(objective.size), np.empty(objective.size), np.zeros(objective.size)
    velocity = {"server": np.zeros(objective.size), "worker": np.zeros(objective.size)}
    for step in range(n_push * updates):
        if step % n_fetch == 0:
            mine = there.copy()
        objective.gradient(mine, batch(0, step).x, batch(0, step).y, out)
        accrued += out
        velocity["worker"] = m * velocity["worker"] + out
        mine -= rate * velocity["worker"]
        if (step + 1) % n_push == 0:
            velocity["server"] = m * velocity["server"] + accrued
            there = there - rate * velocity["server"]
            accrued[:] = 0
    np.testing.assert_allclose(run.result().parameters, there, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n_push", "n_fetch"), [(3, 3), (1, 4), (4, 1)])
def test_the_ledger_of_downpour_balances(n_push, n_fetch):
    """A push of n gradients counts as n, an update is a push, and samples are those of all n."""
    run = trained(lk.Downpour(n_push=n_push, n_fetch=n_fetch, learning_rate=0.01), 60, workers=3, servers=2)
    entries, summary = ledger(run.trace), run.summary()
    assert entries["closes"]
    assert summary["updates"] == 60
    assert entries["applied"] + entries["partly_applied"] >= n_push * 60
    assert entries["applied"] <= n_push * 60
    assert query.samples_applied(run.trace) == 60 * n_push * BOWL.batch_size
    count = run.trace.column("applies", "count")
    assert set(count.tolist()) == {n_push}
    assert sum(run.trace.counters[s].gradients for s in run.trace.role_ids("server")) == 2 * 60 * n_push


@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (5, 5), (2, 6), (6, 2)])
def test_downpour_sends_n_times_fewer_messages(n_push, n_fetch):
    """A step of a worker sends M / n_push bytes, and receives M / n_fetch."""
    size, steps = 1000, 600
    problem = lk.Problem("quadratic", timing_only=True, options={"dimension": size, "samples": 1})
    cluster = lk.SimulatedCluster(workers=1, servers=2)
    strategy = lk.Downpour(n_push=n_push, n_fetch=n_fetch)
    trace = lk.train(problem, strategy, cluster, lk.Budget(updates=steps // n_push)).wait().trace
    sent = query.bytes_sent(trace)
    assert sent["worker"]["training"] == steps // n_push * size * 8
    # the last fetch comes after the last push, when the run is over, or is in flight
    assert sent["server"]["startup"] == size * 8
    fetched = sent["server"]["training"] / (size * 8)
    assert steps // n_fetch - 1 <= fetched <= steps // n_fetch


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    "distribution", [COMPUTE, {"compute": 0.01, "server_time": 0.003, "latency": 0.001}], ids=["random", "equal"]
)
def test_downpour_of_single_steps_is_push_then_pull(servers, distribution):
    """With one step between two exchanges a worker needs no local weights, and no time for them."""

    class PushThenPull(lk.Downpour):
        async def worker(self, ctx, model):
            weights = await lk.pull(ctx)
            for batch in ctx.batches():
                gradient = await ctx.compute(model.gradient, weights, batch)
                await lk.push(ctx, gradient)
                weights = await lk.pull(ctx)

    a, b = (trained(kind(), 100, servers=servers, **distribution) for kind in (PushThenPull, lk.Downpour))
    for name in ("spans", "applies", "messages", "drops"):
        assert np.array_equal(a.trace.tables[name].rows(), b.trace.tables[name].rows())
    assert a.summary()["parameters_sha256"] == b.summary()["parameters_sha256"]


def test_mean_staleness_is_known_only_if_push_and_pull_are_one_operation():
    assert lk.AsyncPS().mean_staleness(8) == 7
    for options in ({}, {"n_push": 2}, {"n_fetch": 2}):
        assert lk.Downpour(**options).mean_staleness(8) is None
