"""Codecs in whole runs: error feedback is lossless in total, bytes equal the closed forms, and digits are learned."""

import numpy as np
import pytest

import labkit as lk
from labkit.nn.codecs import QSGD, Float16, PowerSGD, SignSGD, TopK
from labkit.roles.compressor import Compressor
from labkit.roles.gradient import Model
from labkit.strategies.halving_doubling import HalvingDoubling

pytestmark = pytest.mark.sample(3)

M = 4_000_000
VECTOR = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": M // 4, "samples": 1})
ALL = [TopK(0.01), SignSGD(), QSGD(4), Float16(), PowerSGD(2)]


# error feedback -------------------------------------------------------------------------------------------------------


@pytest.fixture
def watched(monkeypatch):
    """{version: [gradient of each worker]} and {version: [memory of each worker after its message]}."""
    gradients: dict[int, list] = {}
    owed: dict[int, list] = {}
    compute, encode = Model.gradient, Compressor.encode

    def seen(model, parameters, batch, accumulate):
        gradient = compute(model, parameters, batch, accumulate)
        gradients.setdefault(parameters.read[0][1], []).append(gradient.values.copy())
        return gradient

    def recording_encode(compressor, values, part=0, version=None):
        message = encode(compressor, values, part, version)
        owed.setdefault(version, []).append(compressor.memory[part].copy())
        return message

    monkeypatch.setattr(Model, "gradient", seen)
    monkeypatch.setattr(Compressor, "encode", recording_encode)
    return gradients, owed


@pytest.mark.sample(1, slow=3)
@pytest.mark.parametrize("course", ["constant", "schedule", "live"])
@pytest.mark.parametrize("codec", [TopK(0.01), SignSGD(), PowerSGD(1)], ids=repr)
def test_error_feedback_loses_nothing_in_a_run(watched, codec, course):
    """x - mean memory = x0 - sum of rate x mean gradient, after 1,000 steps of two workers and a server."""
    problem = lk.Problem("moons", hidden=(12,), batch_size=8, dtype="float64")
    schedule = lk.schedules.Cosine(1000, 0.01) if course == "schedule" else lk.schedules.Constant()
    strategy = lk.SyncPS(learning_rate=0.2, codec=codec, schedule=schedule)
    run = lk.train(problem, strategy, lk.SimulatedCluster(workers=2, compute=1.0), lk.Budget(updates=1000))
    rates = [0.2 * schedule(v) for v in range(1000)]
    if course == "live":
        run.advance(400.5)  # all workers compute on version 400
        run.set(learning_rate=0.03)
        rates[400:] = [0.03] * 600
    run.wait()
    gradients, owed = watched
    exact = problem.objective().start(0)
    for version, rate in enumerate(rates):
        assert len(gradients[version]) == 2
        exact = exact - rate * np.mean(gradients[version], axis=0)
    memory = np.mean(owed[999], axis=0)
    assert np.abs(memory).max() > 1e-6
    assert np.abs(run.result().parameters - memory - exact).max() <= 1e-9


# bytes ----------------------------------------------------------------------------------------------------------------


def pushed(codec, problem=VECTOR, workers=2, servers=1):
    """Bytes of each push, by receiver."""
    cluster = lk.SimulatedCluster(workers=workers, servers=servers, compute=0.01)
    trace = lk.train(problem, lk.SyncPS(codec=codec), cluster, lk.Budget(updates=3)).wait().trace
    kind, count = trace.column("messages", "kind", "bytes")
    return count[kind == trace.header.messages.index("Push")].tolist()


def test_top_k_sends_d_over_2k_times_fewer_bytes():
    d, k = M // 4, 10_000
    plain, few = pushed(None), pushed(TopK(k))
    assert set(plain) == {M}
    assert set(few) == {8 * k}
    assert plain[0] / few[0] == d / (2 * k) == 50
    assert set(pushed(TopK(0.01))) == set(few)


def test_bytes_of_the_other_codecs():
    d = M // 4
    assert set(pushed(SignSGD())) == {d // 8 + 4}
    assert set(pushed(QSGD(4))) == {d // 2 + 4 * -(-d // 512)}
    assert set(pushed(Float16())) == {M // 2}
    assert set(pushed(PowerSGD())) == {M}  # a vector is no matrix
    assert set(pushed(TopK(0.01), servers=4)) == {8 * 2500}  # each part by itself


def test_power_sgd_sends_the_bytes_of_its_formula_in_a_run():
    """512 x 512 between 512 units and 512: 128 times fewer bytes than the matrix; biases as they are."""
    problem = lk.Problem("digits", hidden=(512, 512), timing_only=True)
    shapes = [(64, 512), (512, 512), (512, 10)]
    coded, plain = 4 * 2 * (2 * 512 + 512 + 64 + 512 + 10), 4 * (512 + 512 + 10)
    assert set(pushed(PowerSGD(2), problem)) == {coded + plain}
    assert 4 * 512 * 512 / (4 * 2 * (512 + 512)) == 128
    assert set(pushed(None, problem)) == {4 * sum(a * b for a, b in shapes) + plain}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("strategy", [lk.RingAllReduce, HalvingDoubling])
def test_bytes_of_an_all_reduce(strategy, workers):
    """2(N-1)/N of the summed values: float16; or the factors P and the biases, then the factors Q."""
    problem = lk.Problem("digits", hidden=(64,), timing_only=True)
    first, second = 2 * (64 + 64) + 64 + 10, 2 * (64 + 10)  # values
    d = 64 * 64 + 64 + 64 * 10 + 10
    for codec, sizes in (("float16", [2 * d]), ("power-sgd:2", [4 * first, 4 * second]), (None, [4 * d])):
        cluster = lk.SimulatedCluster(workers=workers, compute=1.0)
        trace = lk.train(problem, strategy(codec=codec), cluster, lk.Budget(updates=1)).wait().trace
        count, category, sent = trace.column("messages", "bytes", "category", "sent")
        assert count[(category == 0) & (sent < 1.5e9)].sum() == sum(2 * (workers - 1) * size for size in sizes)


# learning -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL, ids=repr)
@pytest.mark.parametrize("strategy", [lk.SyncPS, lk.AsyncPS], ids=["sync", "async"])
def test_digits_are_learned_with_every_codec(strategy, codec):
    problem = lk.Problem("digits", hidden=(64,), batch_size=32, seed=0)
    made = strategy(learning_rate=0.3 if strategy is lk.SyncPS else 0.1, codec=codec)
    run = lk.train(problem, made, lk.SimulatedCluster(workers=4), lk.Budget(updates=1000, accuracy=0.95)).wait()
    assert run.stopped_by == "accuracy"


@pytest.mark.parametrize("codec", ["float16", "power-sgd:2"])
@pytest.mark.parametrize("strategy", [lk.RingAllReduce, HalvingDoubling])
def test_digits_are_learned_with_linear_codecs_in_an_all_reduce(strategy, codec):
    problem = lk.Problem("digits", hidden=(64,), batch_size=32, seed=0)
    made = strategy(learning_rate=0.3, codec=codec)
    run = lk.train(problem, made, lk.SimulatedCluster(workers=4), lk.Budget(updates=1000, accuracy=0.95)).wait()
    assert run.stopped_by == "accuracy"


def test_the_loss_of_a_diverging_run_shows_the_divergence():
    """Neither the memory nor the codec hides it. float16 has a largest value, so with it the loss can grow without overflow."""
    problem = lk.Problem("digits", hidden=(16,), batch_size=32)
    for codec in (None, *ALL):
        made = lk.SyncPS(learning_rate=10.0, reduce="sum", codec=codec, optimizer="momentum:0.999")
        run = lk.train(problem, made, lk.SimulatedCluster(workers=4), lk.Budget(updates=400)).wait()
        assert run.stopped_by == "diverged" or run.summary()["loss"] > 1e6


# refusals -------------------------------------------------------------------------------------------------------------


def test_codecs_that_do_not_fit_are_refused_before_anything_starts():
    for codec in (TopK(), "sign-sgd", "qsgd:4"):
        for strategy in (lk.RingAllReduce, HalvingDoubling):
            with pytest.raises(lk.BadInput, match="is not linear: sums of its messages are not messages of a sum"):
                strategy(codec=codec)
    with pytest.raises(lk.BadInput, match="There is no codec 'top'"):
        lk.SyncPS(codec="top")
    with pytest.raises(lk.BadInput, match="codec=3 is not a codec"):
        lk.AsyncPS(codec=3)
    for strategy in (lk.SyncPS, lk.AsyncPS):
        with pytest.raises(lk.BadInput, match="PowerSGD makes factors of whole matrices, and servers=2 cut them"):
            lk.train(lk.Problem("moons"), strategy(codec=PowerSGD()), lk.SimulatedCluster(workers=2, servers=2))
