"""`lk.advise`: its step times equal closed forms and those of long runs with another seed; its texts say why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import labkit as lk
from labkit.forecasts.advice.collectives import BOUND, FORMS, closed_form
from labkit.forecasts.advice.inputs import gather_inputs
from labkit.formatting import bytes_text
from labkit.nn.split import split_pairs
from labkit.strategies import STRATEGIES
from labkit.trace.query import Cumulative

M = 4_000_000
FLAT = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": M // 4, "samples": 1})
CLICKS = lk.Problem("clicks", timing_only=True, batch_size=64)
LAYERS = lk.Problem(
    lk.from_arrays(np.zeros((64, 400), "float32"), np.arange(64) % 2), hidden=(400, 400, 400), timing_only=True
)
NETWORK = {"latency": 50e-6, "bandwidth": 125e6}
EIGHT = {"workers": 8, "compute": 0.005}


def step(problem, strategy, **cluster):
    """The advised seconds of a step."""
    return lk.advise(problem, lk.SimulatedCluster(**cluster), [strategy]).best.step


def long_run(problem, strategy, cluster, steps, one, seed=99):
    """Seconds of a step of N gradients: between two applications of a run with another seed, without its first fifth."""
    cluster = cluster if strategy.uses_servers else replace(cluster, servers=None)
    run = lk.train(problem, strategy, cluster, lk.Budget(seconds=1e8), seed=seed).advance(steps * one)
    times, totals, _ = Cumulative().gross(run.trace, run.trace.watermark()).instants()
    first = len(times) // 5
    return cluster.workers * (times[-1] - times[first]) / (totals[-1] - totals[first]) / 1e9


# closed forms ---------------------------------------------------------------------------------------------------------

H8 = math.fsum(1 / i for i in range(1, 9))
EQUAL = lk.Problem(  # eight equal layers
    lk.from_arrays(np.zeros((64, 16), "float32"), np.arange(64) % 16), hidden=(16,) * 7, timing_only=True, batch_size=32
)


@pytest.mark.parametrize(
    ("problem", "strategy", "cluster", "seconds"),
    [
        # c + N s, where pulls queue behind the pushes of all workers; without pulls of their own they do not
        (FLAT, lk.Downpour(n_push=1, n_fetch=1), EIGHT | {"server_time": 0.001}, 0.013),
        (FLAT, lk.AsyncPS(), EIGHT | {"server_time": 0.001}, 0.008),
        (FLAT, lk.SyncPS(), EIGHT | {"server_time": 0.001}, 0.006),
        # a ring, halving and doubling, one server: 8 ranks, 4,000,000 bytes, 50 us, 125 MB/s (m = 32 ms)
        (FLAT, lk.RingAllReduce(), EIGHT | NETWORK | {"compute": 0.0}, 56.7e-3),
        (FLAT, lk.HalvingDoubling(), EIGHT | NETWORK | {"compute": 0.0}, 56.3e-3),
        (FLAT, lk.SyncPS(), EIGHT | NETWORK | {"compute": 0.0}, 288.1e-3),
        (FLAT, lk.SyncPS(), EIGHT | NETWORK | {"servers": 4}, 5e-3 + 2 * 50e-6 + 32e-3 * (1 + 8 / 4)),
        (FLAT, lk.AsyncPS(), EIGHT | NETWORK, 8 * 32e-3),
        (FLAT, lk.AsyncPS(), EIGHT | {"compute": 0.5} | NETWORK, 0.5 + 2 * 50e-6 + 2 * 32e-3),
        # groups that restart together, and one straggler of eight: (N - 1 + 1/f)/N of the rate
        (FLAT, lk.KAsync(K=2), EIGHT, 0.005),
        (FLAT, lk.AsyncPS(), EIGHT | {"slow": {"worker-3": 5}}, 0.005 * 8 / 7.2),
        (FLAT, lk.SyncPS(), EIGHT | {"slow": {"worker-3": 5}}, 0.025),
        (FLAT, lk.LocalSGD(H=4), EIGHT | NETWORK, 5e-3 + 56.7e-3 / 4),
        (FLAT, lk.LocalSGD(H=50), EIGHT | NETWORK, 5e-3 + 56.7e-3 / 50),
        # communication once for k mini-batches of each worker
        (FLAT, lk.RingAllReduce(accumulate=4), EIGHT | NETWORK, 5e-3 + 56.7e-3 / 4),
        (FLAT, lk.SyncPS(accumulate=4), EIGHT | NETWORK | {"compute": 0.0}, 288.1e-3 / 4),
        (FLAT, lk.AsyncPS(accumulate=10), EIGHT | NETWORK, 8 * 32e-3 / 10),
        (FLAT, lk.KSync(K=2), {"workers": 1000, "compute": 0.01}, 0.01 * 500),
        # 4 equal stages, 8 micro-batches, a forward of 1 and a backward of 2: 33, interleaved 28.5
        (EQUAL, lk.Pipeline(order="gpipe", micro_batches=8), {"workers": 4, "compute": 96.0}, 4 * 33),
        (EQUAL, lk.Pipeline(order="1f1b", micro_batches=8), {"workers": 4, "compute": 96.0}, 4 * 33),
        (EQUAL, lk.Pipeline(order="interleaved", micro_batches=8), {"workers": 4, "compute": 96.0}, 4 * 28.5),
        (EQUAL, lk.PipeDream(), {"workers": 4, "compute": 96.0}, 96.0),
    ],
)  # fmt: skip
def test_with_constant_times_a_step_equals_its_closed_form(problem, strategy, cluster, seconds):
    row = lk.advise(problem, lk.SimulatedCluster(**cluster), [strategy]).best
    assert row.step == pytest.approx(seconds, rel=2e-5)
    assert row.error == 0
    assert row.gradients_per_second == pytest.approx(cluster["workers"] / seconds, rel=2e-5)


@pytest.mark.sample(2, slow=2)
@pytest.mark.parametrize(
    ("strategy", "compute", "seconds"),
    [  # order statistics of eight times, and what follows from them
        (lk.SyncPS(), lk.distributions.Exponential(1.0), H8),
        (lk.SyncPS(), lk.distributions.ShiftedExponential(0.5, 0.5), 0.5 + 0.5 * H8),
        (lk.SyncPS(), lk.distributions.Uniform(0.0, 1.0), 8 / 9),
        (lk.RingAllReduce(), lk.distributions.Exponential(1.0), H8),
        (lk.SSP(s=0), lk.distributions.Exponential(1.0), H8),
        (lk.SSP(s=10**6), lk.distributions.Exponential(1.0), 1.0),
        (lk.AsyncPS(), lk.distributions.Exponential(1.0), 1.0),
        (lk.KSync(K=4), lk.distributions.Exponential(1.0), 2 * (1 / 8 + 1 / 7 + 1 / 6 + 1 / 5)),
        (lk.KSync(K=4), lk.distributions.Uniform(0.0, 1.0), 2 * 4 / 9),
        (lk.BackupWorkers(b=3), lk.distributions.Exponential(1.0), 8 / 5 * (H8 - 1 - 1 / 2 - 1 / 3)),
        (lk.KBatchSync(K=4), lk.distributions.Exponential(1.0), 1.0),
    ],
)  # fmt: skip
def test_with_random_times_the_interval_contains_the_expectation(strategy, compute, seconds):
    row = lk.advise(FLAT, lk.SimulatedCluster(workers=8, compute=compute), [strategy]).best
    assert 0 < row.error <= 0.05 * row.step
    assert abs(row.step - seconds) < 1.5 * row.error  # of a 95% interval: 1 of 300


@pytest.mark.slow
def test_precision_is_spent_on_strategies_that_may_be_the_fastest():
    cluster = lk.SimulatedCluster(workers=8, compute=lk.distributions.Exponential(0.01))
    rows = lk.advise(FLAT, cluster, [lk.SyncPS(), lk.AsyncPS(), lk.SSP(s=100), lk.KSync(K=4)]).rows
    assert {row.strategy.name for row in rows[:2]} == {
        "AsyncPS",
        "SSP",
    }  # the same, if no worker is 100 gradients ahead
    assert all(row.error <= 0.02 * row.step for row in rows[:2])
    assert all(0.02 * row.step < row.error <= 0.05 * row.step for row in rows[2:])


@pytest.mark.slow
def test_a_time_without_a_variance_makes_the_advice_doubtful():
    heavy, light = (
        lk.advise(FLAT, lk.SimulatedCluster(workers=4, compute=lk.distributions.Pareto(0.01, alpha)), ["async-ps"])
        for alpha in (1.5, 2.5)
    )
    assert heavy.doubts == ("pareto:0.01:1.5 has no variance, so step times may be outside of their intervals",)
    assert light.doubts == ()


def test_a_random_server_time_enters_with_its_distribution():
    """Two shards update at the same time; a step waits for the slower one: the maximum of two exponentials, s (1 + 1/2)."""
    cluster = lk.SimulatedCluster(workers=1, servers=2, compute=0.01, server_time=lk.distributions.Exponential(0.02))
    row = lk.advise(FLAT, cluster, [lk.SyncPS()]).best
    assert abs(row.step - (0.01 + 0.02 * 1.5)) < 1.5 * row.error


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
    assert step(FLAT, lk.DPSGD(), workers=2, compute=lk.distributions.Exponential(0.005)) == pytest.approx(
        6.25e-3, rel=0.02
    )


@pytest.mark.slow
def test_pipeline_replicas_of_a_hybrid_wait_for_the_slowest():
    """One stage each, one micro-batch: a forward of X/3 and a backward of 2Y/3, X and Y exponential with mean 1."""
    t = np.linspace(0.0, 40.0, 400_001)
    done = 1 - (2 * np.exp(-1.5 * t) - np.exp(-3 * t))  # a sum of two exponentials, of rates 3 and 1.5
    slowest = np.trapezoid(1 - done**4, t)
    found = step(LAYERS, lk.Hybrid(shape="4x1", micro_batches=1), workers=4, compute=lk.distributions.Exponential(1.0))
    assert found == pytest.approx(slowest, rel=0.02)


def test_tensor_parallel_ranks_wait_for_the_slowest_after_every_third_of_a_pair():
    """Two ranks, times uniform on (0, 2): the larger of two has the mean 4/3."""
    shares = sum(pair.share for pair in split_pairs(LAYERS.objective().network, 0, 2))
    found = step(LAYERS, lk.TensorParallel(), workers=2, compute=lk.distributions.Uniform(0.0, 2.0))
    assert found == pytest.approx(2 * shares * 4 / 3, rel=0.02)


# long runs ------------------------------------------------------------------------------------------------------------

BUSY = {"workers": 8, "servers": 4, "compute": lk.distributions.Exponential(0.02), "latency": 1e-3, "bandwidth": 2e8}
HARD = [  # configurations in which the means of times and idle links forecast too little
    (FLAT, lk.SyncPS(), BUSY | {"server_time": lk.distributions.Exponential(0.01)}),
    (FLAT, lk.SyncPS(), BUSY | {"servers": 8, "server_time": lk.distributions.LogNormal(0.01, 0.8)}),
    (LAYERS, lk.TensorParallel(), {"workers": 4, "compute": 0.01, "server_time": lk.distributions.Exponential(0.01)}),
    (FLAT, lk.KBatchSync(K=4), BUSY | {"servers": 1}),
    (FLAT, lk.KBatchAsync(K=4), BUSY | {"servers": 1}),
    (FLAT, lk.HalvingDoubling(), {"workers": 6, "compute": lk.distributions.Exponential(0.02), **NETWORK}),
    (FLAT, lk.Downpour(), BUSY | {"server_time": lk.distributions.Exponential(0.005)}),
    (CLICKS, lk.SparsePS(), BUSY | {"bandwidth": 1e8}),
]


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize(("problem", "strategy", "cluster"), HARD, ids=lambda value: getattr(value, "name", ""))
def test_a_step_equals_that_of_a_longer_run_with_another_seed(problem, strategy, cluster):
    row = lk.advise(problem, lk.SimulatedCluster(**cluster), [strategy]).best
    found = long_run(problem, strategy, lk.SimulatedCluster(**cluster), 1500, row.step)
    assert row.step == pytest.approx(found, rel=0.035)  # of two estimates with half-widths of 2% and 1.5%


@pytest.mark.sample(0, slow=0)
@pytest.mark.parametrize("problem", [FLAT, LAYERS, CLICKS], ids=["flat", "layers", "table"])
def test_the_first_place_is_that_of_long_runs(problem):
    cluster = lk.SimulatedCluster(**BUSY, server_time=lk.distributions.Exponential(0.002))
    rows = lk.advise(problem, cluster).rows
    found = [long_run(problem, row.strategy, cluster, 300, row.step) for row in rows]
    assert found[0] <= 1.02 * min(found)


# collectives that are not simulated ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sample(slow=7)
@pytest.mark.parametrize("workers", [2, 6, 9])
@pytest.mark.parametrize("compute", [0.01, lk.distributions.Exponential(0.01)], ids=["constant", "exponential"])
@pytest.mark.parametrize(
    "strategy",
    [*(cls() for cls in FORMS), lk.HalvingDoubling(accumulate=3), lk.BucketedAllReduce(accumulate=3)],
    ids=repr,
)
def test_closed_forms_are_within_their_bound_of_the_simulator(strategy, compute, workers):
    cluster = lk.SimulatedCluster(
        workers=workers, compute=compute, server_time=0.001, latency=1e-4 * workers, bandwidth=1e9 / workers
    )
    form = closed_form(strategy, gather_inputs(LAYERS, cluster))
    row = lk.advise(LAYERS, cluster, [strategy]).best
    assert row.simulated
    assert form.step == pytest.approx(row.step, rel=2e-3 if compute == 0.01 else BOUND)


def test_a_step_with_too_many_messages_has_a_closed_form_and_says_so():
    cluster = lk.SimulatedCluster(workers=1000, compute=0.01, **NETWORK)
    advice = lk.advise(FLAT, cluster, ["ring-all-reduce", "local-sgd", lk.RingAllReduce(codec="float16")])
    ring = advice["RingAllReduce"]
    assert not ring.simulated
    assert ring.step == pytest.approx(0.01 + 1998 * 50e-6 + 1.998 * 32e-3, rel=1e-9)
    assert ring.explanation.startswith("closed form, not simulated (an update sends 1,998,000 messages)")
    assert ring.time_text == "174 ms"
    random = lk.advise(FLAT, replace(cluster, compute=lk.distributions.Exponential(0.01)), ["ring-all-reduce"]).best
    assert random.time_text.endswith(" ± 10%")
    for name in ("halving-doubling", "bucketed-all-reduce"):
        row = lk.advise(FLAT, replace(cluster, compute=lk.distributions.Exponential(0.01)), [name]).best
        assert (row.simulated, row.error) == (False, BOUND * row.step)
    assert advice.refused[0][0] == "RingAllReduce"
    assert "there is no closed form" in advice.refused[0][1]


# strategies of users ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Halves(lk.ServerStrategy):
    """A server that waits for half of the workers, and answers these only."""

    async def server(self, ctx, shard):
        async for push in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(push, lk.Pull):
                ctx.send(push, shard.weights())
                continue
            pushes = [push] + [await ctx.recv(lk.Push) for _ in range(len(ctx.peers("worker")) // 2 - 1)]
            for one in pushes:
                await ctx.compute(shard.apply, one, self.learning_rate)
            for one in pushes:
                ctx.send(one, shard.weights())

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            weights = await lk.push_pull(ctx, await ctx.compute(model.gradient, weights, batch))


class Broken(lk.AsyncPS):
    """A worker that fails after a few gradients."""

    async def worker(self, ctx, model):
        await ctx.compute(model.gradient, await lk.pull(ctx), next(ctx.batches()))
        raise ArithmeticError("no third root")


class Silent(lk.AsyncPS):
    """A worker that sends nothing."""

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            await ctx.compute(model.gradient, weights, batch)


def test_a_strategy_of_a_user_is_simulated():
    row = lk.advise(FLAT, lk.SimulatedCluster(workers=4, compute=0.01), [Halves()]).best
    assert (row.label, row.step, row.formula) == ("Halves", 0.01, "")
    assert row.explanation.startswith("100% computing")


def test_codecs_are_simulated():
    cluster = lk.SimulatedCluster(**EIGHT, **NETWORK)
    plain, half = (lk.advise(FLAT, cluster, [lk.RingAllReduce(codec=codec)]).best for codec in (None, "float16"))
    assert half.bytes == pytest.approx(plain.bytes / 2, rel=0.01)
    assert half.step < 0.6 * plain.step


def test_a_strategy_that_fails_is_refused_with_its_error():
    refused = lk.advise(FLAT, lk.SimulatedCluster(workers=2), [lk.SyncPS(), Broken(), Silent()]).refused
    assert [name for name, _ in refused] == ["Broken", "Silent"]
    assert "no third root" in refused[0][1]
    assert refused[1][1].startswith("it applied no gradients")


# explanations ----------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_step_are_those_of_its_closed_form():
    cluster = lk.SimulatedCluster(**EIGHT, **NETWORK, server_time=0.001)
    ring, server = (lk.advise(FLAT, cluster, [name]).best for name in ("ring-all-reduce", "sync-ps"))
    assert (ring.compute, ring.update, ring.latency, ring.wire) == pytest.approx(
        (5e-3, 1e-3, 14 * 50e-6, 56e-3), rel=1e-6
    )
    assert (server.compute, server.update, server.latency, server.wire) == pytest.approx(
        (5e-3, 1e-3, 2 * 50e-6, 9 * 32e-3), rel=1e-6
    )
    assert server.waiting == pytest.approx(1 - 5e-3 / server.step, rel=1e-6)
    assert server.bytes == pytest.approx(8 * M)
    assert "the link of server-0, 8" not in server.explanation  # 87% of the time is no saturation
    for row in lk.advise(LAYERS, cluster).rows:
        parts = (row.compute, row.update, row.latency, row.wire, row.wait)
        assert sum(parts) == pytest.approx(row.step)
        assert min(parts) >= 0


@pytest.mark.parametrize(
    ("cluster", "bottleneck"),
    [
        ({}, "computing, 100% of the time"),
        (NETWORK, "the link of server-0, 100% of the time"),
        ({"server_time": 0.002}, "the updates of server-0, 100% of the time"),
        ({"latency": 1.0}, "latency"),
    ],
)
def test_the_bottleneck_is_named(cluster, bottleneck):
    row = lk.advise(FLAT, lk.SimulatedCluster(**EIGHT, **cluster), ["async-ps"]).best
    assert row.explanation.endswith(f"; bottleneck: {bottleneck}")


def test_staleness_is_measured():
    rows = lk.advise(FLAT, lk.SimulatedCluster(**EIGHT), ["async-ps", "sync-ps", "downpour"])
    assert [rows[name].staleness for name in ("AsyncPS", "SyncPS", "Downpour")] == [7, 0, 3.5]


def test_memory_is_that_of_the_layout():
    """Parameters, gradient and momentum of 12 parameters in 3 equal layers, at the node that needs most."""
    size, momentum = LAYERS.objective().size * 4, "momentum:0.9"
    cluster = lk.SimulatedCluster(workers=2, servers=1, compute=0.01)
    cases = [
        (lk.SyncPS(), 2), (lk.SyncPS(optimizer="adam"), 3), (lk.RingAllReduce(), 2), (lk.RingAllReduce(optimizer=momentum), 3),
        (lk.FSDP(), 1), (lk.FSDP(optimizer=momentum), 1.5), (lk.SyncPS(accumulate=2), 3), (lk.RingAllReduce(accumulate=2), 3),
    ]  # fmt: skip
    for strategy, vectors in cases:
        assert lk.advise(LAYERS, cluster, [strategy]).best.memory == pytest.approx(vectors * size, rel=2e-3), strategy
    stages = [
        part.size
        for part in (role.part for role in lk.PipeDream().layout(LAYERS, replace(cluster, servers=None).spec).roles[:2])
    ]
    assert lk.advise(LAYERS, cluster, [lk.PipeDream()]).best.memory == 4 * max(stages[0] * 3, stages[1] * 2)
    table = lk.advise(CLICKS, cluster, ["sparse-ps", "sync-ps"])
    assert table["SparsePS"].memory < table["SyncPS"].memory


# texts ----------------------------------------------------------------------------------------------------------------


def test_every_strategy_is_ranked_somewhere():
    cluster = lk.SimulatedCluster(workers=4, servers=2, compute=0.01)
    named = {row.strategy.name for problem in (LAYERS, CLICKS) for row in lk.advise(problem, cluster).rows}
    assert named == {strategy.__name__ for strategy in STRATEGIES.values()}


def test_the_same_arguments_give_the_same_advice():
    cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.LogNormal(0.01, 0.5), **NETWORK)
    one, other = (lk.advise("digits", cluster, ["ssp", "pipeline", "easgd"]) for _ in range(2))
    assert one == other
    assert str(one) == str(other)


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
    assert lk.advise(LAYERS, cluster, ["sync-ps"]).answers[0].startswith("Dense or sparse? Dense:")
    assert "below it" in lk.advise(CLICKS, cluster, ["sync-ps"]).answers[0]


@pytest.mark.slow
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
    assert f"the whole model needs {bytes_text(least)} per node of 1 kB, and even" in tight.answers[2]


def test_one_worker_has_no_communication():
    advice = lk.advise("digits", lk.SimulatedCluster(workers=1, compute=0.01, latency=1e-4, bandwidth=1e8))
    assert advice["DPSGD"].step == pytest.approx(0.01)
    assert {"BackupWorkers", "KSync", "Hybrid"} <= {name for name, _ in advice.refused}


def test_textbook_formulas_are_shown_with_their_conditions():
    cluster = lk.SimulatedCluster(workers=8, compute=0.001, **NETWORK)
    text = str(lk.advise(FLAT, cluster))
    assert "c* + s + 2(N-1) a + 2(N-1)/N m, if: " in text
    assert "c + N s, if: constant times" in text
    assert "Server or all-reduce? All-reduce: synchronously, HalvingDoubling takes 57.3 ms" in text
    refused = text[text.index("cannot run here") :].splitlines()
    assert any(line.split()[:3] == ["TensorParallel", "TensorParallel", "splits"] for line in refused)


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
        ({"strategies": ["ssp", 3]}, "strategies=3: give a lk.Strategy"),
        ({"strategies": ["sspp"]}, "Did you mean 'ssp'"),
        ({"strategies": ["sparse-ps"]}, "No strategy can run here: .*embedding table"),
        ({"problem": 3}, "problem=3: give a lk.Problem"),
        ({"cluster": lk.SimulatedCluster}, "cluster=.*: give a lk.SimulatedCluster or"),
    ],
)
def test_invalid_arguments_are_refused_with_what_is_allowed(arguments, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.advise(**{"problem": FLAT, "cluster": lk.SimulatedCluster(workers=2)} | arguments)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("workers", "shape"), [(4, "2x2"), (6, "3x2"), (9, "3x3")])
def test_the_default_shape_of_hybrid_divides_the_number_of_workers(workers, shape):
    wide = lk.advise(LAYERS, lk.SimulatedCluster(workers=workers, compute=0.01))
    assert f"Hybrid shape={shape}" in [row.label for row in wide.rows]
