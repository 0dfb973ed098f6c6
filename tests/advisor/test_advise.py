"""`lk.advise`: its forecasts agree with the simulator, for every strategy and in their ranking."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.advisor.advise import FORMULAS, candidate_strategies
from labkit.advisor.estimate import time_text
from labkit.advisor.order_statistics import OrderStatistics
from labkit.formatting import bytes_text
from labkit.nn.split import split_pairs
from labkit.strategies import STRATEGIES

M = 4_000_000
FLAT = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": M // 4, "samples": 1})
CLICKS = lk.Problem("clicks", timing_only=True, batch_size=64)
LAYERS = lk.Problem(
    lk.from_arrays(np.zeros((64, 400), "float32"), np.arange(64) % 2), hidden=(400, 400, 400), timing_only=True
)
NETWORK = {"latency": 50e-6, "bandwidth": 125e6}

# Grids of model, workers, servers, latency, bandwidth, time of a gradient, and of server work: compute-bound, bound by
# latency, by links, by one server.
GRIDS = {
    "one busy server": (FLAT, {"workers": 8, "compute": 0.001, **NETWORK}),
    "four servers": (FLAT, {"workers": 8, "servers": 4, "compute": 0.01, "latency": 50e-6, "bandwidth": 1e9}),
    "server work": (FLAT, {"workers": 5, "servers": 2, "compute": 0.05, "latency": 1e-3, "bandwidth": 125e6,
                           "server_time": 0.001}),
    "long gradients": (FLAT, {"workers": 6, "compute": 0.5, "latency": 1e-3, "bandwidth": 125e6}),
    "layers": (LAYERS, {"workers": 4, "compute": 0.01, "latency": 1e-4, "bandwidth": 1e9}),
    "layers, slow links": (LAYERS, {"workers": 4, "compute": 0.01, "latency": 1e-3, "bandwidth": 1e8}),
    "two workers": (LAYERS, {"workers": 2, "compute": 0.1, "latency": 1e-4, "bandwidth": 1e8}),
    "sparse": (CLICKS, {"workers": 4, "servers": 2, "compute": 0.01, "latency": 1e-4, "bandwidth": 1e8}),
}  # fmt: skip

# Exact to the nanosecond's rounding, wherever chunks are equal; the others' messages queue in random order.
EXACT = {
    "SyncPS", "AsyncPS", "SSP", "BackupWorkers", "KSync", "RingAllReduce", "HalvingDoubling", "EASGD", "TensorParallel",
    "Pipeline", "Hybrid", "FSDP",
}  # fmt: skip


def simulated(strategy, problem, cluster, row, rounds=40):
    """Seconds of a step of N gradients: from the applications in the trace, sender by sender, after a third of them."""
    if not strategy.uses_servers:
        cluster = replace(cluster, servers=None)
    run = lk.train(problem, strategy, cluster, lk.Budget(seconds=1e6)).advance(rounds * 2.5 * row.step)
    layout = run.trace.header.layout
    role, sender, time, count = run.trace.column("applies", "role", "sender", "time", "count")
    counted = role == role.min() if layout.replication != "local" else role >= 0
    rate, h = 0.0, getattr(strategy, "H", 1)
    for pair in set(zip(role[counted].tolist(), sender[counted].tolist())):
        selected = (role == pair[0]) & (sender == pair[1])
        at, counts = time[selected] / 1e9, count[selected].astype(float)
        if (
            layout.replication == "synchronized" and strategy.name != "SparsePS"
        ):  # one row a step, for any number of gradients
            counts[:] = row.update_gradients
        start = len(at) // 3
        at, counts = at[start:], counts[start:]
        last = (len(at) - 1) // h * h if len(at) else 0  # whole rounds of local steps
        if last > 0:
            rate += counts[1 : last + 1].sum() / (at[last] - at[0])
    return cluster.workers / rate


@pytest.fixture(scope="module")
def outcomes():
    """{grid: [(forecast, simulated step)]}, made once."""
    made = {}

    def of(name):
        if name not in made:
            problem, shape = GRIDS[name]
            cluster = lk.SimulatedCluster(**shape)
            rows = lk.advise(problem, cluster).rows
            made[name] = [(row, simulated(row.strategy, problem, cluster, row)) for row in rows]
        return made[name]

    return of


def test_every_strategy_has_a_formula():
    assert set(STRATEGIES.values()) == set(FORMULAS)


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS)
def test_forecast_step_times_agree_with_the_simulator(outcomes, grid):
    for row, measured in outcomes(grid):
        assert row.step == pytest.approx(measured, rel=0.05), row.label
        if row.strategy.name in EXACT:
            assert row.step == pytest.approx(measured, rel=2e-5), row.label


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS)
def test_the_ranking_agrees_with_the_simulator(outcomes, grid):
    """If two forecasts differ by more than 10%, the simulator ranks them in the same order."""
    for (a, time_a), (b, time_b) in itertools.combinations(outcomes(grid), 2):
        assert a.step <= b.step
        if b.step > 1.1 * a.step:
            assert time_a < time_b, (a.label, b.label)


@pytest.mark.slow
def test_the_ranking_agrees_with_the_simulator_for_random_times():
    cluster = lk.SimulatedCluster(workers=8, compute=lk.Exponential(0.1), latency=1e-4, bandwidth=1e9)
    rows = [row for row in lk.advise(FLAT, cluster).rows if row.strategy.name != "KBatchSync"]
    pairs = [(row, simulated(row.strategy, FLAT, cluster, row, rounds=400)) for row in rows]
    for (a, time_a), (b, time_b) in itertools.combinations(pairs, 2):
        if b.step > 1.1 * a.step:
            assert time_a < time_b, (a.label, b.label)


# closed forms ---------------------------------------------------------------------------------------------------------


def test_communication_times_equal_the_published_ones():
    """A ring, and halving and doubling, at 8 ranks, 4,000,000 bytes, 50 us, 125 MB/s; and one server."""
    advice = lk.advise(FLAT, lk.SimulatedCluster(workers=8, compute=0.0, **NETWORK), ["ring-all-reduce", "sync-ps"])
    assert advice["RingAllReduce"].step == pytest.approx(56.7e-3, rel=1e-12)
    assert advice["RingAllReduce"].bytes == 7_000_000
    assert advice["SyncPS"].step == pytest.approx(288.1e-3, rel=1e-12)
    halving = lk.advise(FLAT, lk.SimulatedCluster(workers=8, compute=0.0, **NETWORK), ["halving-doubling"]).best
    assert halving.step == pytest.approx(56.3e-3, rel=1e-12)
    assert (halving.compute, halving.latency, halving.wire) == pytest.approx((0, 6 * 50e-6, 56e-3))


def test_waiting_times_equal_the_published_ones():
    """Waiting for all or some workers: exponential times, free links."""
    eight = lk.SimulatedCluster(workers=8, compute=lk.Exponential(1.0))
    strategies = [lk.SyncPS(), lk.KSync(K=4), lk.KBatchSync(K=4), lk.SSP(s=0), lk.SSP(s=10**6)]
    steps = {row.label: row.step * row.update_gradients / 8 for row in lk.advise(FLAT, eight, strategies).rows}
    assert steps["SyncPS"] == pytest.approx(2.717857, rel=1e-6)
    assert steps["KSync K=4"] == pytest.approx(0.634524, rel=1e-5)
    assert steps["KBatchSync K=4"] == pytest.approx(0.5, rel=0.02)
    assert steps["SSP s=0"] * 8 == pytest.approx(2.717857, rel=1e-6)
    assert steps["SSP s=1000000"] * 8 == pytest.approx(1.0, rel=1e-6)
    hundred = lk.SimulatedCluster(workers=100, compute=lk.Exponential(1.0))
    assert lk.advise(FLAT, hundred, [lk.BackupWorkers(b=4)]).best.compute * 0.96 == pytest.approx(3.1040, rel=1e-4)


def test_an_acknowledgement_in_downpour_waits_behind_the_weights_for_another_worker():
    """A step is a gradient, the push, the weights for the other worker and the own ones: c + 3 m."""
    cluster = lk.SimulatedCluster(workers=4, servers=1, compute=0.05, latency=0.0, bandwidth=125e6)
    strategy = lk.Downpour(n_push=1, n_fetch=1)
    (row,) = lk.advise(FLAT, cluster, [strategy]).rows
    sender, time = (
        lk.train(FLAT, strategy, cluster, lk.Budget(updates=60)).wait().trace.column("applies", "sender", "time")
    )
    measured = np.diff(time[sender == sender[-1]])[-1] / 1e9
    assert row.step == pytest.approx(measured) == pytest.approx(0.05 + 3 * M / 125e6)


def test_gossip_of_two_workers_with_exponential_times_has_the_exact_mean():
    """Each begins its next iteration when it is done and the other has begun this one. With mean 1 and the second d behind, the
    first needs X, the second (Y - d)+ from the first one's start: 0, or exponential again. Either way the next d is exponential,
    so the chance of the latter is E[exp(-d)] = 1/2, and an iteration takes 1/2 x E[X] + 1/2 x E[max(X, Y)] = 5/4.
    """
    two = lk.SimulatedCluster(workers=2, compute=lk.Exponential(0.005))
    assert lk.advise(FLAT, two, [lk.DPSGD()]).best.step == pytest.approx(6.25e-3, rel=0.02)


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_pipeline_replicas_of_a_hybrid_wait_for_the_slowest(replicas):
    """One stage each, one micro-batch: a forward of X/3 and a backward of 2Y/3, X and Y exponential with mean 1."""
    cluster = lk.SimulatedCluster(workers=replicas, compute=lk.Exponential(1.0))
    strategy = lk.Hybrid(shape=f"{replicas}x1", micro_batches=1)
    t = np.linspace(0.0, 40.0, 400_001)
    done = 1 - (2 * np.exp(-1.5 * t) - np.exp(-3 * t))  # a sum of two exponentials, of rates 3 and 1.5
    slowest = np.trapezoid(1 - done**replicas, t)
    assert lk.advise(LAYERS, cluster, [strategy]).best.step == pytest.approx(slowest, rel=0.04)


def test_tensor_parallel_replicas_of_a_hybrid_wait_for_the_slowest():
    """Two ranks each: of every third of a pair the slower of two; of all of that the slower of two replicas."""
    cluster = lk.SimulatedCluster(workers=4, compute=lk.Uniform(0.0, 2.0))
    pairs = [pair.share for pair in split_pairs(LAYERS.objective().network, 0, 2)]
    rng, total = np.random.default_rng(5), np.zeros((100_000, 2))
    for share in pairs:
        for third in (1, 2):
            total += share * third / 3 * rng.uniform(0.0, 2.0, (100_000, 2, 2)).max(axis=2)
    found = lk.advise(LAYERS, cluster, [lk.Hybrid(shape="2x2", split="tensor")]).best.step
    assert found == pytest.approx(2 * total.max(axis=1).mean(), rel=0.01)  # two updates of two gradients


def test_pipeline_lengths_equal_the_published_ones():
    """Pipeline schedules: 4 equal stages, 8 micro-batches, a forward of 1 and a backward of 2: 33, interleaved 28.5."""
    data = lk.from_arrays(np.zeros((64, 16), "float32"), np.arange(64) % 16)
    problem = lk.Problem(data, hidden=(16,) * 7, timing_only=True, batch_size=32)
    cluster = lk.SimulatedCluster(workers=4, compute=96.0)
    orders = {"gpipe": 33, "1f1b": 33, "interleaved": 28.5}
    for order, length in orders.items():
        best = lk.advise(problem, cluster, [lk.Pipeline(order=order, micro_batches=8)]).best
        assert best.step / 4 == pytest.approx(length, rel=1e-9)


def test_order_statistics_equal_their_closed_forms():
    """Uniform on (0, 1): k / (n + 1); exponential: H_n - H_(n-k), also from quantiles."""
    uniform = OrderStatistics(lk.Uniform(0.0, 1.0))
    for k, n in ((1, 1), (3, 7), (8, 8), (100, 100)):
        assert uniform.order(k, n) == pytest.approx(k / (n + 1), rel=0.01)
    assert uniform.expected_last_end([0.0, 10.0]) == pytest.approx(10.5, rel=1e-3)
    assert uniform.expected_last_end([0.0, 1e-9]) == pytest.approx(2 / 3, rel=0.01)
    assert OrderStatistics(lk.Exponential(2.0)).slowest(4) == pytest.approx(2 * (1 + 1 / 2 + 1 / 3 + 1 / 4))
    assert OrderStatistics(lk.Measured((1.0, 3.0))).slowest(2) == pytest.approx(2.5, rel=0.01)


# texts ----------------------------------------------------------------------------------------------------------------


def test_strategies_that_do_not_fit_into_memory_come_last():
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, **NETWORK)
    free, tight = lk.advise(LAYERS, cluster), lk.advise(LAYERS, cluster, memory=2_000_000)
    assert all(row.fits for row in free.rows)
    fits = [row.fits for row in tight.rows]
    assert fits == sorted(fits, reverse=True)
    assert 0 < sum(fits) < len(fits)
    assert {row.strategy.name for row in tight.rows if row.fits} >= {"TensorParallel", "Pipeline"}
    assert tight.answers[2].startswith("Split the model? Yes: the whole model needs")
    assert "too much" in str(tight)
    assert "too much" not in str(free)


def test_an_embedding_table_is_sparse_and_dense_layers_are_dense():
    cluster = lk.SimulatedCluster(workers=4, compute=0.01, latency=1e-4, bandwidth=1e8)
    sparse = lk.advise(CLICKS, cluster)
    assert sparse.best.strategy.name == "SparsePS"
    assert sparse.answers[0].startswith("Dense or sparse? Sparse:")
    assert lk.advise(LAYERS, cluster).answers[0].startswith("Dense or sparse? Dense:")
    assert "below it" in lk.advise(LAYERS, cluster, density=0.01).answers[0]
    everything = lk.advise(CLICKS, cluster, ["sparse-ps", "ring-all-reduce"], density=1.0)
    assert everything["SparsePS"].step > everything["RingAllReduce"].step


def test_equal_times_are_answered_with_either_and_sparse_rows_belong_on_servers():
    free = lk.advise(CLICKS, lk.SimulatedCluster(workers=4, compute=0.01))
    assert free.answers[0].startswith("Dense or sparse? Either:")
    assert free.answers[1].startswith("Server or all-reduce? Either:")
    wired = lk.advise(CLICKS, lk.SimulatedCluster(workers=4, compute=0.01, latency=1e-4, bandwidth=1e8))
    assert wired.answers[1].startswith(
        "Server or all-reduce? Servers for the rows of the embedding table, an all-reduce for the rest"
    )


def test_if_no_strategy_fits_the_error_names_the_smallest_memory():
    tight = lk.advise(LAYERS, lk.SimulatedCluster(workers=4, compute=0.01, **NETWORK), memory=1000)
    least = min(row.memory for row in tight.rows if row.strategy.name == "RingAllReduce")
    split = min(tight.rows, key=lambda row: row.memory)
    assert split.strategy.name == "TensorParallel"
    assert f"the whole model needs {bytes_text(least)} per node of 1 kB, and even TensorParallel" in tight.answers[2]


def test_k_async_with_equal_times_is_averaged_over_whole_periods():
    for workers, k in ((4, 2), (6, 3), (8, 2)):
        row = lk.advise(FLAT, lk.SimulatedCluster(workers=workers, compute=0.01), [lk.KAsync(K=k)]).best
        assert row.step == pytest.approx(0.01, rel=1e-9)


def test_one_worker_has_no_communication():
    advice = lk.advise("digits", lk.SimulatedCluster(workers=1, compute=0.01, latency=1e-4, bandwidth=1e8))
    assert advice["DPSGD"].step == pytest.approx(0.01)
    assert {"BackupWorkers", "KSync", "Hybrid"} <= {name for name, _ in advice.refused}


def test_formulas_are_shown_with_their_numbers():
    cluster = lk.SimulatedCluster(workers=8, compute=0.001, **NETWORK)
    text = str(lk.advise(FLAT, cluster))
    assert "c* + s + 2(N-1) a + 2(N-1)/N m = 1 ms + 0 + 14 x 50 us + 1.75 x 32 ms" in text
    assert "Server or all-reduce? All-reduce: synchronously, HalvingDoubling takes 57.3 ms" in text
    refused = text[text.index("cannot run here") :].splitlines()
    assert any(line.split()[:3] == ["TensorParallel", "TensorParallel", "splits"] for line in refused)
    for row in lk.advise(LAYERS, cluster).rows:
        assert row.compute + row.latency + row.wire == pytest.approx(row.step)
        assert min(row.compute, row.latency, row.wire) > -1e-9
        assert row.formula


def test_advice_for_a_dask_cluster_starts_no_processes():
    cluster = lk.DaskCluster(workers=4)
    advice = lk.advise(lk.Problem("digits", hidden=(8,)), cluster)
    assert advice.rows
    assert not cluster.runs
    paced = lk.advise(FLAT, lk.DaskCluster(workers=4, pace=0.02), ["ring-all-reduce"], latency=0.0, bandwidth=math.inf)
    assert paced.best.step == pytest.approx(0.02)
    with pytest.raises(lk.BadInput, match="give compute="):
        lk.advise(FLAT, cluster)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory": 0}, "memory=0: give bytes"),
        ({"density": 2}, "at most 1"),
        ({"strategies": ["ssp", 3]}, "3 is neither a strategy"),
        ({"strategies": ["sspp"]}, "Did you mean 'ssp'"),
        ({"strategies": ["sparse-ps"]}, "No strategy can run here: .*embedding table"),
    ],
)
def test_invalid_arguments_are_refused_with_what_is_allowed(arguments, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.advise(FLAT, lk.SimulatedCluster(workers=2), **arguments)


def test_user_defined_strategies_and_codecs_are_refused():
    class UserDefined(lk.Strategy):
        pass

    strategies = [lk.SyncPS(), UserDefined(), lk.RingAllReduce(codec="float16")]
    assert lk.advise(FLAT, lk.SimulatedCluster(workers=2), strategies).refused == (
        ("UserDefined", "there is no formula for a user-defined strategy; simulate it."),
        ("RingAllReduce", "the formulas do not include codecs; simulate it."),
    )


def test_arguments_that_are_not_a_problem_or_a_cluster_are_refused():
    assert lk.advise("digits", lk.SimulatedCluster(workers=2), ["sync-ps"]).best.label == "SyncPS"
    with pytest.raises(lk.BadInput, match="give a problem"):
        lk.advise(3, lk.SimulatedCluster(workers=2))
    with pytest.raises(lk.BadInput, match="give a cluster"):
        lk.advise(FLAT, lk.SimulatedCluster)


def test_the_default_shape_of_hybrid_divides_the_number_of_workers():
    shapes = {n: {s.name: s for s in candidate_strategies(None, n)}["Hybrid"].shape for n in (4, 6, 9)}
    assert shapes == {4: "2x2", 6: "3x2", 9: "3x3"}


def test_time_text_has_a_unit_and_three_digits():
    assert [time_text(t) for t in (0, 5e-5, 0.0123, 2.0)] == ["0", "50 us", "12.3 ms", "2 s"]
