"""A worker's compressor: error feedback as proved by Stich et al., for any rate schedule, and messages of the right size."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import labkit as lk
from labkit.nn import ParameterLayout
from labkit.nn.codecs import QSGD, Float16, PowerSGD, SignSGD, TopK
from labkit.roles.compressor import Compressor, check_codec, compressor_of

SHAPES = ((12, 20), (20,), (20, 10), (10,))
SIZE = 470
WITH_MEMORY = [TopK(0.01), TopK(5), SignSGD(), PowerSGD(2)]
ALL = [*WITH_MEMORY, QSGD(), Float16()]


def compressor(codec, rate=lambda version: 0.1, shapes=(SHAPES,), dtype="float64"):
    return Compressor(codec, shapes, dtype, rate)


def gradients(count, size=SIZE, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) for _ in range(count))


RATES = {
    "constant": lambda v: 0.1,
    "schedule": lambda v: 0.1 * (1 - v / 1000),
    "changed": lambda v: 0.1 if v < 300 else 0.7 if v < 600 else 0.001,
    "zero for a while": lambda v: 0.1 * (v % 100 < 50),
}


@pytest.mark.slow
def test_what_is_not_sent_stays_in_the_memory():
    """x - memory = x0 - sum of rate x gradient, after each of 1,000 steps."""
    for codec, course in product(WITH_MEMORY, RATES):
        rate = RATES[course]
        mine = compressor(codec, rate)
        x = exact = np.full(SIZE, 3.0)
        for step, gradient in enumerate(gradients(1000)):
            sent = codec.decode(mine.encode(gradient, 0, step), SIZE, "float64")
            x = x - rate(step) * sent
            exact = exact - rate(step) * gradient
            if step % 50 == 49 and mine.memory:
                assert np.abs(x - mine.memory[0] - exact).max() <= 1e-9, (course, codec)
        assert np.abs(x - mine.memory[0] - exact).max() <= 1e-9, (course, codec)
        assert mine.memory[0].any(), (course, codec)


@pytest.mark.parametrize("codec", WITH_MEMORY, ids=repr)
def test_the_first_message_is_of_the_gradient_alone_and_the_second_of_what_is_owed_too(codec):
    mine, other = compressor(codec, [0.1, 0.4].__getitem__), compressor(codec)
    first, second = gradients(2)
    text = mine.encode(first, 0, 0)
    assert all(np.array_equal(a, b) for a, b in zip(text, other.encode(first)))
    left = first - codec.decode(text, SIZE, "float64")
    assert np.allclose(mine.memory[0], 0.1 * left, rtol=1e-12, atol=1e-15)
    wanted = second + 0.1 * left / 0.4  # a quarter as many steps of the new length
    again = compressor(codec)
    again.encode(first)  # so that its other state is the same
    again.memory.clear()
    text = mine.encode(second, 0, 1)
    assert np.allclose(
        codec.decode(text, SIZE, "float64"), codec.decode(again.encode(wanted), SIZE, "float64"), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("codec", [QSGD(), Float16()], ids=repr)
def test_unbiased_codecs_keep_no_error_feedback(codec):
    mine = compressor(codec)
    for gradient in gradients(3):
        mine.encode(gradient)
    assert mine.memory == {}


def test_a_gradient_that_is_not_finite_is_sent_and_not_remembered():
    for codec, bad in product(WITH_MEMORY, [np.nan, np.inf]):
        mine = compressor(codec)
        good, broken, after = gradients(3)
        mine.encode(good)
        memory = mine.memory[0].copy()
        broken[[3, 240]] = bad
        assert not np.isfinite(codec.decode(mine.encode(broken), SIZE, "float64")).all(), (bad, codec)
        assert np.array_equal(mine.memory[0], memory), (bad, codec)
        assert np.isfinite(codec.decode(mine.encode(after), SIZE, "float64")).all(), (bad, codec)


def test_parts_are_encoded_apart():
    shapes = (((300,),), ((170,),))
    mine, alone = compressor(TopK(0.1), shapes=shapes), compressor(TopK(0.1), shapes=shapes[:1])
    for gradient in gradients(5):
        first, second = gradient[:300], gradient[300:]
        assert [len(a) for a in mine.encode(second, 1)] == [17, 17]
        assert all(np.array_equal(a, b) for a, b in zip(mine.encode(first, 0), alone.encode(first)))
    assert sorted(mine.memory) == [0, 1]


def test_timing_only_compressors_send_the_size():
    """Timing-only: the same shapes as of real values; arrays without storage."""
    for codec in ALL:
        mine = compressor(codec, dtype="float32")
        null = np.broadcast_to(np.float32(0), (SIZE,))
        real = compressor(codec, dtype="float32").encode(next(gradients(1)).astype("float32"))
        blank = mine.encode(null)
        assert [(a.shape, a.dtype) for a in blank] == [(a.shape, a.dtype) for a in real], codec
        assert all(set(a.strides) == {0} for a in blank), codec
        push = lk.Gradient(null, 0, ((0, 0),), 8, (slice(0, SIZE),), compressor=mine).push(0)
        assert push.__dict__["timing_only_bytes"] == sum(a.nbytes for a in real) == codec.nbytes(SHAPES, "float32"), (
            codec
        )
        if codec.linear:
            vectors = list(mine.sum_over_workers(null, 4))
            assert [(v.shape, v.dtype) for v in vectors] == list(codec.sums(SHAPES, "float32")), codec
            assert all(v.strides == (0,) for v in vectors), codec


def together(compressors, vectors):
    """All members' `sum_over_workers`, side by side, as an all-reduce would."""
    rounds = [c.sum_over_workers(v, len(vectors)) for c, v in zip(compressors, vectors)]
    for parts in zip(*rounds, strict=True):
        total = np.sum(parts, axis=0, dtype=parts[0].dtype)
        for part in parts:
            part[:] = total


def test_what_is_not_sent_in_an_all_reduce_stays_in_the_memories():
    """The same with PowerSGD inside an all-reduce: x - mean of the memories = x0 - sum of rate x mean gradient."""
    rate = RATES["changed"]
    compressors = [compressor(PowerSGD(2), rate) for _ in range(3)]
    streams = [gradients(1000, seed=seed) for seed in range(3)]
    x = exact = np.ones(SIZE)
    for step in range(1000):
        vectors = [next(s) for s in streams]
        exact = exact - rate(step) * np.mean(vectors, axis=0)
        for c in compressors:
            c.version = step
        together(compressors, vectors)
        assert np.array_equal(vectors[0], vectors[1])
        x = x - rate(step) * vectors[2] / 3
    owed = np.mean([c.memory[0] for c in compressors], axis=0)
    assert np.abs(x - owed - exact).max() <= 1e-9
    assert owed.any()


def test_halves_of_large_values_do_not_overflow_in_a_sum():
    compressors, vectors = [compressor(Float16()) for _ in range(8)], [np.full(SIZE, 60000.0) for _ in range(8)]
    together(compressors, vectors)
    assert vectors[0] == pytest.approx(480_000, rel=2e-3)


def test_a_push_is_coded_when_it_is_made():
    """Its part, at the rate of the version it was computed on; several steps' gradients as one."""
    seen = []
    mine = compressor(TopK(2), lambda version: seen.append(version) or 0.1, (((4,),), ((3,),)))
    values = np.array([1.0, -5.0, 3.0, 0.5, 2.0, 0.0, -7.0])
    gradient = lk.Gradient(values, 4, ((0, 7), (0, 9)), 16, (slice(0, 4), slice(4, 7)), count=2, compressor=mine)
    pushes = [gradient.push(shard) for shard in (0, 1)]
    assert seen == [7, 9]
    assert [[a.tolist() for a in p.values] for p in pushes] == [[[1, 2], [-5.0, 3.0]], [[0, 2], [2.0, -7.0]]]
    assert [(p.step, p.version, p.count, p.samples) for p in pushes] == [(4, 7, 2, 16), (4, 9, 2, 16)]
    assert mine.memory[0].tolist() == [0.1, 0, 0, 0.05]


def test_the_compressor_that_a_strategy_asks_for():
    objective = SimpleNamespace(
        layout=ParameterLayout({"a.weight": (12, 20), "a.bias": (20,)}), dtype=np.dtype("float32")
    )
    strategy = SimpleNamespace(name="S", codec=None, learning_rate=0.5, schedule=lk.schedules.StepDecay(10, 0.1))
    parts = (slice(0, 260),)
    assert compressor_of(strategy, objective, parts, np.random.default_rng) is None
    strategy.codec = PowerSGD(2)
    made = compressor_of(strategy, objective, parts, np.random.default_rng)
    assert made.shapes == (((12, 20), (20,)),)
    assert [made.rate(v) for v in (0, 10)] == [0.5, pytest.approx(0.05)]
    strategy.learning_rate = 2.0  # live
    assert made.rate(0) == 2.0
    strategy.codec = TopK()
    assert compressor_of(strategy, objective, (slice(0, 100), slice(100, 260)), np.random.default_rng).shapes == (
        ((100,),), ((160,),),
    )  # fmt: skip


def test_power_sgd_needs_whole_matrices():
    check_codec(SimpleNamespace(name="SyncPS", codec=PowerSGD()), 1)
    check_codec(SimpleNamespace(name="SyncPS", codec=TopK()), 3)
    check_codec(SimpleNamespace(name="SyncPS"), 3)
    with pytest.raises(lk.BadInput, match="SyncPS: PowerSGD makes factors of whole matrices, and servers=3 cut them"):
        check_codec(SimpleNamespace(name="SyncPS", codec=PowerSGD()), 3)
