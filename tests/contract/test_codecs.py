"""Codecs, and other all-reduce algorithms, on both engines."""

from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.nn.codecs import QSGD, Float16, PowerSGD, SignSGD, TopK
from labkit.strategies.halving_doubling import HalvingDoubling
from tests.contract.scripts import QUADRATIC, Script

pytestmark = pytest.mark.sample(2)

DIGITS = lk.Problem("digits", hidden=(32,), batch_size=32, seed=0)
SHAPES = ((64, 32), (32,), (32, 10), (10,))
SIZE = 64 * 32 + 32 + 32 * 10 + 10
ALL = [TopK(0.05), SignSGD(), QSGD(4), Float16(), PowerSGD(2)]


def pushes(run):
    """Bytes of every push that arrived."""
    kind, count = run.trace.column("messages", "kind", "bytes")
    return set(count[kind == run.trace.header.messages.index("Push")].tolist())


@pytest.mark.parametrize("codec", ALL, ids=repr)
def test_training_with_encoded_gradients_reaches_a_high_accuracy(simulated, codec):
    run = simulated.wait(DIGITS, lk.SyncPS(learning_rate=0.2, codec=codec), lk.Budget(updates=120), workers=2)
    assert run.summary()["updates"] == 120
    assert run.summary()["accuracy"] > 0.85
    by_hand = {
        TopK: 8 * round(0.05 * SIZE), SignSGD: -(-SIZE // 8) + 4, QSGD: SIZE // 2 + 4 * -(-SIZE // 512),
        Float16: 2 * SIZE, PowerSGD: 4 * (2 * (64 + 32) + 32 + 2 * (32 + 10) + 10),
    }  # fmt: skip
    assert pushes(run) == {by_hand[type(codec)]} == {codec.nbytes(SHAPES, "float32")}


@pytest.mark.parametrize("codec", [TopK(0.05), QSGD(4)], ids=repr)
def test_several_shards_get_parts_that_are_coded_apart(simulated, codec):
    run = simulated.wait(
        DIGITS, lk.AsyncPS(learning_rate=0.1, codec=codec), lk.Budget(updates=120), workers=2, servers=2
    )
    assert run.summary()["accuracy"] > 0.7
    assert pushes(run) == {codec.nbytes(((SIZE // 2,),), "float32")}


@pytest.mark.parametrize("codec", [TopK(0.05), PowerSGD(2)], ids=repr)
def test_timing_only_sends_the_same_number_of_bytes(simulated, codec):
    null = lk.Problem("digits", hidden=(32,), batch_size=32, timing_only=True)
    run = simulated.wait(null, lk.SyncPS(codec=codec), lk.Budget(updates=5), workers=2)
    assert pushes(run) == {codec.nbytes(SHAPES, "float32")}


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize("codec", [Float16(), PowerSGD(2)], ids=repr)
@pytest.mark.parametrize("strategy", [lk.RingAllReduce, HalvingDoubling])
def test_all_reduce_of_coded_gradients(simulated, strategy, codec, timing_only):
    problem = lk.Problem("digits", hidden=(32,), batch_size=32, seed=0, timing_only=timing_only)
    run = simulated.wait(problem, strategy(learning_rate=0.2, codec=codec), lk.Budget(updates=120), workers=2)
    assert run.summary()["updates"] == 120
    if not timing_only:
        assert run.summary()["accuracy"] > 0.85
    # two workers: each half of the sum is sent once in each direction
    count, category, sender = run.trace.column("messages", "bytes", "category", "sender")
    sizes = [shape[0] * kind.itemsize for shape, kind in codec.sums(SHAPES, "float32")]
    a_step = count[(category == 0) & (sender == 0)][: 2 * len(sizes)]
    assert abs(int(a_step.sum()) - sum(sizes)) <= 4 * len(sizes)  # a value more in one half than in the other
    both = count[(category == 0) & (count > 0)]
    assert set(both.tolist()) <= {size // 2 + odd for size in sizes for odd in (-2, -1, 0, 1, 2)}


def member(rank):
    return np.random.default_rng(rank).standard_normal(1001)


@dataclass(frozen=True)
class Added(Script):
    """Vectors that are summed by halving and doubling; the result is reported."""

    async def play(self, ctx, rank):
        n = len(ctx.peers("worker"))
        for length in (1, 3, 1001):
            values = member(rank)[:length]
            assert await lk.all_reduce(ctx, values, algorithm="halving-doubling") is values
            assert np.abs(values - np.sum([member(r)[:length] for r in range(n)], axis=0)).max() <= 1e-10
            ctx.note("sum", **{str(i): float(v) for i, v in enumerate(values[::17])})


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
def test_halving_doubling_is_numpys_sum_and_the_same_bits_for_all(simulated, workers):
    run = simulated.wait(QUADRATIC, Added(), lk.Budget(seconds=60), workers=workers)
    assert run.stopped_by == "finished"
    sums = [event.numbers for event in run.trace.events if str(event) == "sum"]
    assert len(sums) == 3 * workers
    assert len({tuple(s.values()) for s in sums if len(s) > 1}) == 1


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
def test_training_with_halving_doubling_equals_training_with_a_ring(simulated, workers):
    problem = lk.Problem("moons", hidden=(6,), batch_size=8, dtype="float64")
    ends = [
        simulated.wait(problem, strategy(learning_rate=0.3), lk.Budget(updates=15), workers=workers).result().parameters
        for strategy in (HalvingDoubling, lk.RingAllReduce)
    ]
    assert np.abs(ends[0] - ends[1]).max() <= 1e-10


class Unknown(Script):
    async def play(self, ctx, rank):
        await lk.all_reduce(ctx, np.zeros(3), algorithm="halving")


def test_an_unknown_all_reduce_is_named(simulated):
    with pytest.raises(lk.LabkitError, match=r"no all-reduce 'halving'\. Did you mean 'halving-doubling'"):
        simulated.wait(QUADRATIC, Unknown(), lk.Budget(seconds=60), workers=2)
