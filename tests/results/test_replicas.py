"""Replicas that are averaged periodically: local SGD, elastic averaging, gossip. The NumPy oracle holds all replicas
in one array.

In virtual time; results without assumptions about time are in tests/contract/test_replicas.py, for both engines.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.engines.distributions import Sampler
from labkit.random_streams import BATCHES, COMPUTE_TIME, role_stream
from labkit.trace import ledger, query

pytestmark = pytest.mark.sample(2, slow=3)

BOWL = lk.Problem(
    "quadratic", batch_size=4, seed=2,
    options={"samples": 100, "dimension": 4, "noise": 1.0, "curvature": (0.5, 2.0, 1.0, 0.1)},
)  # fmt: skip
MOONS = lk.Problem("moons", hidden=(5,), batch_size=8, dtype="float64", seed=1, options={"samples": 200})
TIMING = lk.Problem("quadratic", timing_only=True, options={"dimension": 1000, "samples": 1})
M = 8000  # bytes
RANDOM_TIMES = {"compute": lk.distributions.LogNormal(0.01, 0.6)}


def trained(strategy, updates, problem=BOWL, workers=4, servers=None, **setup):
    cluster = lk.SimulatedCluster(workers=workers, servers=servers, **(setup or RANDOM_TIMES))
    return lk.train(problem, strategy, cluster, lk.Budget(updates=updates)).wait()


def gradients(problem, workers):
    """g(worker, w): the gradient of the worker's next mini-batch at w, without an engine."""
    data, objective = problem.dataset, problem.objective()
    labels = data.y_train if data.classes is not None else len(data.x_train)
    endless = [
        Batches(data.x_train[p], data.y_train[p], problem.batch_size, role_stream(problem.seed, "worker", i, BATCHES))
        for i, p in enumerate(problem.partition.split(labels, workers, problem.seed))
    ]

    def gradient(worker, w):
        batch, out = next(endless[worker]), np.empty(objective.size)
        objective.gradient(np.ascontiguousarray(w), batch.x, batch.y, out)
        return out

    return gradient


def start(problem, workers):
    """X, shape (workers, size): every replica's first parameters."""
    return np.tile(problem.objective().start(problem.seed), (workers, 1))


# local SGD --------------------------------------------------------------------------------------------------------


def local_sgd(problem, workers, rate, steps, averages, momentum=0.0, decay=0.0, outer=(0.0, 0.0, 1.0)):
    """X after `steps` steps: each worker by itself, and an outer step wherever `averages(step)`, step = 1, 2, ...

    `outer`: the momentum, the part of it that looks ahead (Nesterov's is the momentum), and the rate of the outer steps.
    """
    x, v, gradient = start(problem, workers), 0.0, gradients(problem, workers)
    model, velocity = x[0], 0.0
    for step in range(1, steps + 1):
        v = momentum * v + np.array([gradient(i, x[i]) for i in range(workers)])
        x = x * (1 - rate * decay) - rate * v
        if averages(step):
            change = model - x.mean(axis=0)
            velocity = outer[0] * velocity + change
            model = model - outer[2] * (velocity if not outer[1] else change + outer[1] * velocity)
            x = np.tile(model, (workers, 1))
    return x


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
@pytest.mark.parametrize(("H", "post_local"), [(1, 0), (4, 0), (3, 7), (1000, 5), (1000, 0)])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.8, "decay": 0.02}], ids=["sgd", "momentum, decay"])
def test_local_sgd_is_its_recurrence(H, post_local, options, algorithm):
    """On a neural network, replicas drift apart. Every worker keeps its momentum, which is not averaged."""
    steps = 29
    optimizer = lk.Momentum(options["momentum"]) if options else lk.SGD()
    strategy = lk.LocalSGD(
        learning_rate=0.2, H=H, post_local=post_local, optimizer=optimizer, weight_decay=options.get("decay", 0.0),
        algorithm=algorithm,
    )  # fmt: skip
    run = trained(strategy, steps, MOONS)
    x = local_sgd(MOONS, 4, 0.2, steps, lambda t: t <= post_local or t % H == 0, **options)
    np.testing.assert_allclose(run.result().parameters, x.mean(axis=0), rtol=0, atol=1e-12)


OUTER = {"sgd": (0.0, 0.0, 0.6), "momentum:0.7": (0.7, 0.0, 0.5), "nesterov:0.9": (0.9, 0.9, 0.7)}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize(("H", "post_local"), [(1, 0), (4, 0), (3, 7)])
@pytest.mark.parametrize("workers", [1, 4])
def test_diloco_is_its_recurrence(outer, H, post_local, workers):
    strategy = lk.LocalSGD(
        learning_rate=0.2, H=H, post_local=post_local, optimizer="momentum:0.8", outer=outer, outer_rate=OUTER[outer][2]
    )
    run = trained(strategy, 29, MOONS, workers)
    due = {t for t in range(1, 29) if t <= post_local or t % H == 0}  # a model is evaluated before an outer step
    x = local_sgd(MOONS, workers, 0.2, 29, due.__contains__, momentum=0.8, outer=OUTER[outer])
    np.testing.assert_allclose(run.result().parameters, x.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_with_an_outer_step_of_sgd_at_rate_one_diloco_is_local_sgd_to_the_last_bit(optimizer):
    """In float32, where x - (x - mean) is seldom the mean."""
    problem = lk.Problem("moons", hidden=(5,), batch_size=8)
    one, other = (
        trained(lk.LocalSGD(learning_rate=0.2, optimizer=optimizer, **outer), 40, problem).result().parameters.tobytes()
        for outer in ({}, {"outer": lk.SGD(), "outer_rate": 1.0})
    )
    assert one == other
    assert trained(lk.LocalSGD(learning_rate=0.2, outer="momentum:0"), 40, problem).result().parameters.tobytes() != one


@pytest.mark.sample(1)
@pytest.mark.parametrize("partition", ["even", "by-label:0.3"])
def test_diloco_reaches_a_lower_loss_with_a_twentieth_of_the_communication(partition):
    """On digits with 4 workers, 200 steps: 3 outer steps of DiLoCo (H = 50) against 199 averages (H = 1) and against 3."""
    problem = lk.Problem("digits", partition=partition)
    diloco = {"outer": "nesterov:0.9", "outer_rate": 0.7}
    often, rare, outer = (
        trained(lk.LocalSGD(learning_rate=0.02, H=H, **options), 200, problem, compute=0.01).summary()
        for H, options in ((1, {}), (50, {}), (50, diloco))
    )
    sent = [made["bytes_sent"]["worker"]["training"] for made in (often, rare, outer)]
    assert sent[1] == sent[2] < sent[0] / 20
    assert outer["loss"] < 0.8 * min(often["loss"], rare["loss"])


def test_local_sgd_is_synchronous_only_with_one_local_step():
    one = trained(lk.LocalSGD(learning_rate=0.2, H=1), 40, MOONS).result().parameters
    for sync in (lk.RingAllReduce(learning_rate=0.2), lk.SyncPS(learning_rate=0.2)):
        np.testing.assert_allclose(trained(sync, 40, MOONS).result().parameters, one, rtol=0, atol=1e-12)
    four = trained(lk.LocalSGD(learning_rate=0.2, H=4), 40, MOONS).result().parameters
    assert np.abs(four - one).max() > 1e-4


@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("H", [1, 2, 7, 1000])
@pytest.mark.parametrize("steps", [40, 41])
def test_with_equal_hessians_the_mean_does_not_depend_on_the_local_steps(H, workers, steps):
    """Also between two averages, where the replicas are apart."""
    local = trained(lk.LocalSGD(learning_rate=0.3, H=H), steps, workers=workers)
    sync = trained(lk.SyncPS(learning_rate=0.3), steps, workers=workers)
    np.testing.assert_allclose(local.result().parameters, sync.result().parameters, rtol=0, atol=1e-12)


@pytest.mark.parametrize("H", [1, 2, 5, 10])
def test_local_sgd_with_h_local_steps_sends_h_times_less_than_the_ring(H):
    workers, steps = 4, 100
    ring = query.bytes_sent(trained(lk.RingAllReduce(), steps + 1, TIMING, workers).trace)["worker"]
    local = trained(lk.LocalSGD(H=H), steps + (H > 1), TIMING, workers).trace  # the last average is not waited for
    sent = query.bytes_sent(local)["worker"]
    assert ring["training"] == (steps + 1) * 2 * (workers - 1) * M
    if H > 1:
        assert sent["training"] == steps // H * 2 * (workers - 1) * M
    else:
        assert sent["training"] >= (steps - 1) * 2 * (workers - 1) * M
    assert sent["startup"] == ring["startup"] == 0


@pytest.mark.parametrize("H", [1, 4, 16])
def test_h_steps_of_a_worker_are_more_even_than_one(H):
    """The slowest of the sums sets the pace: a round takes the largest of the workers' sums of H draws, to the ns."""
    workers, rounds = 8, 12
    trace = trained(lk.LocalSGD(H=H), rounds * H, TIMING, workers, compute=lk.distributions.Exponential(1.0)).trace
    samplers = [
        Sampler(lk.distributions.Exponential(1.0), role_stream(0, "worker", i, COMPUTE_TIME)) for i in range(workers)
    ]
    draws = np.array([[s.next() for _ in range(rounds * H)] for s in samplers]).reshape(workers, rounds, H)
    role, version, time = trace.column("applies", "role", "version", "time")
    last = max(time[(version == rounds * H) & (role == w)].item() for w in trace.role_ids("worker"))
    assert last == draws.sum(axis=2).max(axis=0).sum()


def test_a_gradient_counts_as_applied_once_the_mean_of_the_replicas_holds_it():
    """41 steps, averages at 4, 8 ... 40: 40 of each worker are in all replicas, the 41st is in one of four, and so with a
    quarter of its weight in the mean.
    """
    entries = ledger(trained(lk.LocalSGD(H=4), 41).trace)
    assert entries["closes"]
    assert (entries["applied"], entries["partly_applied"]) == (164, 0)
    entries = ledger(trained(lk.LocalSGD(H=4), 41, workers=1).trace)
    assert (entries["applied"], entries["partly_applied"]) == (41, 0)


# elastic averaging ----------------------------------------------------------------------------------------------------


def easgd(problem, workers, rate, a, tau, pulls, momentum=0.0, decay=0.0):
    """(z, X) after `pulls` elastic updates of equal workers in turn: the paper's equations, one by one."""
    x, gradient = start(problem, workers), gradients(problem, workers)
    z, v, t = x[0].copy(), np.zeros_like(x), [0] * workers
    for pull in range(pulls + workers):  # those at t = 0 have no effect, and do not count
        i = pull % workers
        for _ in range(tau):
            old, force = x[i].copy(), 0.0
            if t[i] % tau == 0:
                force = a * (old - z)
                z = z + force
            v[i] = momentum * v[i] + gradient(i, old)
            x[i] = old * (1 - rate * decay) - rate * v[i] - force
            t[i] += 1
    return z, x


@pytest.mark.parametrize("problem", [BOWL, MOONS], ids=["bowl", "network"])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(("workers", "tau"), [(1, 1), (1, 3), (2, 1), (2, 4), (4, 2)])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.5, "decay": 0.03}], ids=["sgd", "momentum, decay"])
@pytest.mark.parametrize("spring", [{"rho": 1.5}, {"beta": 0.8}], ids=["rho", "beta"])
def test_easgd_of_equal_workers_is_its_recurrence(problem, servers, workers, tau, options, spring):
    """Workers finish together and are served in their order, so pull k is worker k mod N's. The model is the centre."""
    optimizer = lk.Momentum(options["momentum"]) if options else lk.SGD()
    decay = options.get("decay", 0.0)
    strategy = lk.EASGD(learning_rate=0.1, **spring, tau=tau, optimizer=optimizer, weight_decay=decay)
    run = trained(strategy, 24, problem, workers, servers, compute=0.01)
    z, _ = easgd(problem, workers, 0.1, 0.15 if "rho" in spring else 0.8 / workers, tau, 24, **options)
    np.testing.assert_allclose(run.result().parameters, z, rtol=0, atol=1e-12)


QUADRATIC = lk.Problem("quadratic", partition="shared")  # f(x) = x^2 / 2 without noise, from x = 1


def factor(rate, a, workers):
    """By how much a round grows in the long run, tau = 1: the largest eigenvalue of the linear map of (x_1 ... x_N,
    z).
    """
    whole = np.eye(workers + 1)
    for i in range(workers):
        turn = np.eye(workers + 1)
        turn[i, i], turn[i, -1] = 1 - rate - a, a
        turn[-1, i], turn[-1, -1] = a, 1 - a
        whole = turn @ whole
    return np.abs(np.linalg.eigvals(whole)).max()


@pytest.mark.parametrize(("workers", "limit"), [(1, 0.364), (4, 1.746)])
def test_easgd_is_stable_up_to_the_papers_rate(workers, limit):
    """beta = .9, tau = 1: a <= (4 - 2 rate) / (4 - rate), section 4 of the paper; the runs and the eigenvalues agree
    with it.
    """
    a = 0.9 / workers
    bound = (4 - 4 * a) / (2 - a)
    assert bound == pytest.approx(limit, abs=6e-4)
    for rate, stable in ((0.97 * bound, True), (1.03 * bound, False)):
        assert bool(factor(rate, a, workers) < 1) is stable
        strategy = lk.EASGD(learning_rate=rate, tau=1)
        assert strategy.beta == 0.9
        run = trained(strategy, 300 * workers, QUADRATIC, workers, compute=0.01)
        loss = run.trace.column("evaluations", "loss")
        late, later = loss[len(loss) // 2 : 3 * len(loss) // 4].max(), loss[3 * len(loss) // 4 :].max()
        assert bool(later < late / 2) is stable, (rate, late, later)
        assert bool(later > late * 2) is not stable


def test_easgd_with_a_stiff_spring_diverges_as_the_papers_recurrence_does():
    """rate .5, rho 1.8: a = .9 is above (4 - 1) / (4 - .5) = .857."""
    run = trained(lk.EASGD(learning_rate=0.5, rho=1.8, tau=1), 60, QUADRATIC, 1, compute=0.01)
    assert abs(run.result().parameters[0]) > 10
    z, _ = easgd(QUADRATIC, 1, 0.5, 0.9, 1, 60)
    np.testing.assert_allclose(run.result().parameters, z, rtol=1e-9)


def test_the_ledger_of_easgd_balances():
    run = trained(lk.EASGD(tau=3, learning_rate=0.05), 50, workers=3, servers=2)
    entries = ledger(run.trace)
    assert entries["closes"]
    assert run.summary()["updates"] == 50
    assert set(run.trace.column("applies", "count").tolist()) == {3}
    assert query.samples_applied(run.trace) == 50 * 3 * BOWL.batch_size
    assert entries["applied"] + entries["partly_applied"] >= 150


def test_easgd_sends_tau_times_fewer_messages():
    """An elastic update sends M and receives M, every tau steps."""
    sent = query.bytes_sent(trained(lk.EASGD(tau=5), 40, TIMING, 1, compute=0.01).trace)
    assert sent["worker"]["training"] == 40 * M
    assert (sent["server"]["training"], sent["server"]["startup"]) == (40 * M, M)


def test_easgd_converges_below_the_bound_of_the_spring():
    """N a < 1, no noise: all end at the minimum, the centre with them."""
    bowl = lk.Problem("quadratic", batch_size=1, options={"samples": 1, "dimension": 3}, partition="shared")
    run = trained(lk.EASGD(learning_rate=0.2, rho=1.0, tau=2), 600, bowl, 4)
    minimum = bowl.objective().minimum(bowl.dataset.x_train)
    np.testing.assert_allclose(run.result().parameters, minimum, rtol=0, atol=1e-9)


# gossip ---------------------------------------------------------------------------------------------------------------


def adjacency(graph, n):
    """A[i, j] = 1 if i and j are neighbours: rings, boards and complete graphs as matrices."""
    index = np.arange(n)
    if graph == "complete":
        a = np.ones((n, n))
    elif graph == "ring":
        distance = (index[:, None] - index[None, :]) % n
        a = (distance == 1) | (distance == n - 1)
    else:
        columns = max(c for c in range(1, n + 1) if n % c == 0 and c * c <= n)
        row, column = index // columns, index % columns
        a = np.abs(row[:, None] - row[None, :]) + np.abs(column[:, None] - column[None, :]) == 1
    a = np.array(a, float)
    np.fill_diagonal(a, 0)
    return a


def mixing(graph, n):
    """W by Metropolis's rule."""
    a = adjacency(graph, n)
    degree = a.sum(axis=1)
    w = a / (1 + np.maximum(degree[:, None], degree[None, :]))
    return w + np.diag(1 - w.sum(axis=1))


def dpsgd(problem, graph, workers, rate, steps):
    """[X(0), X(1), ...]: X <- W X - rate G(X), and the mean gradient of every step."""
    x, w, gradient = start(problem, workers), mixing(graph, workers), gradients(problem, workers)
    path, means = [x], []
    for step in range(steps):
        g = np.array([gradient(i, x[i]) for i in range(workers)])
        x = w @ x - (rate(step) if callable(rate) else rate) * g
        path.append(x)
        means.append(g.mean(axis=0))
    return path, means


@pytest.mark.parametrize("graph", ["ring", "grid", "complete"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 9])
def test_dpsgd_is_the_matrix_recurrence_and_the_mean_moves_by_the_mean_gradient(graph, workers):
    path, means = dpsgd(MOONS, graph, workers, 0.3, 20)
    for before, after, g in zip(path, path[1:], means):
        np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0) - 0.3 * g, rtol=0, atol=1e-12)
    run = trained(lk.DPSGD(learning_rate=0.3, graph=graph), 20, MOONS, workers)
    np.testing.assert_allclose(run.result().parameters, path[-1].mean(axis=0), rtol=0, atol=1e-12)
    for i in range(workers):  # and not only the mean: every replica
        mine = run.engine.roles[f"worker-{i}"].shard.snapshot(False, True)
        np.testing.assert_allclose(mine.values, path[-1][i], rtol=0, atol=1e-12)
        assert mine.version == 20


@pytest.mark.parametrize(("graph", "workers"), [("ring", 5), ("ring", 8), ("grid", 6), ("grid", 9), ("complete", 6)])
def test_dpsgd_without_gradients_agrees_as_fast_as_the_second_eigenvalue(graph, workers):
    """Three steps that drive the replicas apart, then the rate is 0: X <- W X, so the distance from the mean shrinks by
    the second largest eigenvalue, at least, at every step, and on a ring by no more than that in the end.
    """

    def apart(steps):
        strategy = lk.DPSGD(learning_rate=0.5, graph=graph, schedule=lk.schedules.StepDecay(3, factor=0.0))
        run = trained(strategy, steps, workers=workers, compute=0.01)
        x = np.array([run.engine.roles[f"worker-{i}"].shard.snapshot(False, True).values for i in range(workers)])
        return x

    eigen = np.sort(np.abs(np.linalg.eigvalsh(mixing(graph, workers))))[::-1]
    assert eigen[0] == pytest.approx(1)
    x = {steps: apart(steps) for steps in (3, 4, 8, 15)}
    mean = x[3].mean(axis=0)
    far = {steps: np.linalg.norm(v - mean) for steps, v in x.items()}
    assert far[3] > 0.01
    for steps in (4, 8, 15):
        expected = np.linalg.matrix_power(mixing(graph, workers), steps - 3) @ x[3]
        np.testing.assert_allclose(x[steps], expected, rtol=0, atol=1e-12)
        assert far[steps] <= eigen[1] ** (steps - 3) * far[3] + 1e-12
    if graph == "ring":
        assert (far[15] / far[8]) == pytest.approx(eigen[1] ** 7, rel=0.2)


@pytest.mark.parametrize("graph", ["ring", "grid", "complete"])
@pytest.mark.parametrize("workers", [1, 2, 4, 6, 9])
def test_dpsgd_sends_its_model_once_to_every_neighbour_a_step(graph, workers):
    def sent(steps):
        trace = trained(lk.DPSGD(graph=graph), steps, TIMING, workers, compute=0.01).trace
        return np.array([trace.counters[w].bytes[0] + trace.counters[w].bytes[1] for w in trace.role_ids("worker")])

    degree = adjacency(graph, workers).sum(axis=1)
    assert ((sent(12) - sent(2)) / 10).tolist() == (degree * M).tolist()


def test_dpsgd_hides_the_network_behind_the_compute_and_waits_for_neighbours_only():
    """One latency a step, while it computes: 10 ms a step, not 13. A slow worker holds up its neighbours, these theirs:
    a worker d hops away is at most d steps ahead.
    """
    trace = trained(lk.DPSGD(graph="ring"), 10, TIMING, 6, compute=0.01, latency=0.003).trace
    assert trace.column("applies", "time").max() == 10 * 10_000_000
    trace = trained(lk.DPSGD(graph="ring"), 10, TIMING, 6, compute=0.01, latency=0.013).trace
    assert trace.column("applies", "time").max() == 10 * 13_000_000
    trace = trained(lk.DPSGD(graph="ring"), 12, TIMING, 7, compute=0.01, slow={"worker-0": 10.0}).trace
    role, version, time = trace.column("applies", "role", "version", "time")
    for t in np.unique(time).tolist():
        steps = [int(version[(role == w) & (time <= t)].max(initial=0)) for w in trace.role_ids("worker")]
        assert all(steps[w] - steps[0] <= min(w, 7 - w) for w in range(7))
    assert max(time[(version == 4)].tolist()) == 400_000_000  # all at the slow one's pace


# gossip without waiting -----------------------------------------------------------------------------------------------


def replicas(run, workers):
    """The parameters of all replicas now, shape (workers, size)."""
    return np.array([run.engine.roles[f"replica-{i}"].shard.values for i in range(workers)])


@pytest.mark.parametrize("graph", ["ring", "grid", "complete"])
@pytest.mark.parametrize("workers", [3, 4, 5, 6, 8, 9])
def test_adpsgd_averaging_keeps_the_total_and_brings_all_together(graph, workers):
    """Some steps drive the replicas apart, then the rate is 0. On no graph may a part of the workers be left out."""
    strategy = lk.ADPSGD(learning_rate=0.5, graph=graph, schedule=lk.schedules.StepDecay(3, factor=0.0))
    cluster = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Uniform(0.005, 0.015))
    run = lk.train(BOWL, strategy, cluster, lk.Budget(seconds=100))
    run.advance(0.06)
    x = replicas(run, workers)
    assert min(run.engine.roles[f"replica-{i}"].shard.version for i in range(workers)) >= 3
    spread = [np.abs(x - x.mean(axis=0)).max()]
    assert spread[0] > 1e-3
    for _ in range(4):
        run.advance(1.0)
        later = replicas(run, workers)
        np.testing.assert_allclose(later.sum(axis=0), x.sum(axis=0), rtol=0, atol=1e-12)
        spread.append(np.abs(later - later.mean(axis=0)).max())
    assert spread[-1] < 1e-4 * spread[0]
    run.stop()


def test_adpsgd_with_one_worker_is_sgd():
    run = trained(lk.ADPSGD(learning_rate=0.3), 30, MOONS, 1)
    gradient, w = gradients(MOONS, 1), start(MOONS, 1)[0]
    for _ in range(30):
        w = w - 0.3 * gradient(0, w)
    np.testing.assert_allclose(run.result().parameters, w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", ["ring", "grid", "complete"])
@pytest.mark.parametrize("workers", range(1, 10))
def test_adpsgd_never_locks(graph, workers):
    for setup in (
        {"compute": 0.01},
        {"compute": lk.distributions.Exponential(0.01), "latency": 0.02, "bandwidth": 1e6},
    ):
        run = trained(lk.ADPSGD(graph=graph), 12, TIMING, workers, **setup)
        assert run.stopped_by == "updates"
        assert ledger(run.trace)["closes"]


@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_adpsgd_a_slow_worker_does_not_slow_the_others(graph):
    """The others compute exactly as many gradients, at the same times, as without it."""

    def spans(slow):
        cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.LogNormal(0.01, 0.5), slow=slow)
        trace = lk.train(TIMING, lk.ADPSGD(graph=graph), cluster, lk.Budget(seconds=3.0)).wait().trace
        role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
        return [
            list(zip(start[mine].tolist(), end[mine].tolist()))
            for mine in ((role == w) & (phase == 0) for w in trace.role_ids("worker"))
        ]

    even, uneven = spans({}), spans({"worker-2": 10.0})
    for i in (0, 1, 3):
        assert even[i] == uneven[i]
        assert len(even[i]) > 250
    assert len(uneven[2]) < 40
    sync = trained(lk.DPSGD(graph=graph), 30, TIMING, 4, compute=0.01, slow={"worker-2": 10.0}).trace
    assert sync.now >= 30 * 90_000_000  # where D-PSGD has the pace of the slowest


def test_adpsgd_is_evaluated_as_often_with_a_slow_worker():
    """The mean of the replicas is a model at every moment; waiting until all have made equally many steps would let a
    slow worker delay the evaluation of the others.
    """

    def evaluations(slow):
        cluster = lk.SimulatedCluster(workers=4, compute=0.01, slow=slow)
        trace = lk.train(MOONS, lk.ADPSGD(learning_rate=0.3), cluster, lk.Budget(seconds=3.0)).wait().trace
        return trace.column("evaluations", "time")

    even, uneven = evaluations({}), evaluations({"worker-3": 10.0})
    assert np.diff(np.unique(uneven)).max() <= 0.1e9 + 1  # a fast replica's ten steps
    assert np.array_equal(np.unique(even), np.unique(uneven))
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, slow={"worker-3": 10.0})
    run = lk.train(MOONS, lk.ADPSGD(learning_rate=0.3), cluster, lk.Budget(updates=12)).wait()
    shown = [run.engine.roles[f"replica-{i}"].shard.snapshot(False, True).values for i in range(4)]
    np.testing.assert_allclose(run.result().parameters, np.mean(shown, axis=0), rtol=0, atol=1e-14)
    assert run.trace.ending["update"] == 12


def test_adpsgd_sends_training_and_not_start_up():
    """A gradient costs M to the worker's replica and M back; every second one M to a neighbour and M back."""
    trace = trained(lk.ADPSGD(graph="ring"), 50, TIMING, 4, compute=0.01).trace
    kinds = trace.header.messages
    kind, category, count = trace.column("messages", "kind", "category", "bytes")
    mixes = kind == kinds.index("Mix")
    assert mixes.sum() == 2 * 2 * 50
    assert (count[mixes] == M).all()
    assert (category[mixes] == 0).mean() > 0.98  # all except the first one of a replica without steps
    assert query.bytes_sent(trace)["worker"]["training"] == 4 * 50 * M


# refused before anything starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (
            lambda: lk.LocalSGD(),
            {"servers": 2},
            "LocalSGD has no servers and was given servers=2; leave servers out, or 0",
        ),
        (lambda: lk.DPSGD(), {"servers": 1}, "DPSGD has no servers and was given servers=1"),
        (lambda: lk.ADPSGD(), {"servers": 1}, "ADPSGD has no servers and was given servers=1"),
        (lambda: lk.EASGD(), {"servers": 0}, "EASGD keeps its parameters on servers and was given servers=0"),
        (lambda: lk.LocalSGD(H=0), {}, r"LocalSGD: H=0 is not allowed; H is a whole number from 1 to"),
        (lambda: lk.LocalSGD(H=2.5), {}, r"H=2\.5 is not allowed"),
        (lambda: lk.LocalSGD(post_local=-1), {}, r"post_local=-1 is not allowed; post_local is a whole number from 0"),
        (
            lambda: lk.LocalSGD(algorithm="tree"),
            {},
            "algorithm='tree' is not allowed; .* one of 'ring', 'halving-doubling'",
        ),
        (lambda: lk.EASGD(tau=0), {}, r"EASGD: tau=0 is not allowed; tau is a whole number from 1"),
        (lambda: lk.EASGD(rho=0.0), {}, r"rho=0\.0 is not allowed; rho is a number from 0.000001"),
        (lambda: lk.DPSGD(graph="star"), {}, "graph='star' is not allowed; graph is one of 'ring', 'grid', 'complete'"),
        (lambda: lk.ADPSGD(graph=None), {}, "graph=None is not allowed; graph is one of"),
    ],
)
def test_impossible_options_are_refused_with_the_possible_ones(make, shape, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.train(TIMING, make(), lk.SimulatedCluster(workers=4, **shape), lk.Budget(updates=5))


def test_servers_of_none_are_allowed_where_there_are_none():
    assert trained(lk.DPSGD(), 3, TIMING, 2, 0, compute=0.01).stopped_by == "updates"
