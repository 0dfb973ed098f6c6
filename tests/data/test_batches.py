"""Mini-batches: all of one size, without replacement within an epoch, from the worker's random stream, never overwritten."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.data import Batches, NullBatches, Shared
from tests.refusals import check_refused


def made(n, size, seed=0):
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    return x, Batches(x, np.arange(n), size, np.random.default_rng(seed))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 60), size=st.integers(1, 150), seed=st.integers(0, 9))
def test_batches_are_consecutive_slices_of_shuffled_epochs(n, size, seed):
    """Oracle: the stream shuffles one index array again and again; batches are that endless row, cut into pieces."""
    x, batches = made(n, size, seed)
    rng, order, row = np.random.default_rng(seed), np.arange(n), []
    for k in range(9):
        while len(row) < (k + 1) * size:
            rng.shuffle(order)
            assert sorted(order) == list(range(n))
            row += order.tolist()
        batch = next(batches)
        assert batch.y.tolist() == row[k * size : (k + 1) * size]
        assert batch.samples == len(batch.x) == len(batch.y) == size
        assert batch.epoch == k * size // n
        assert np.array_equal(batch.x, x[batch.y])


def test_no_epoch_is_shuffled_before_it_is_needed():
    class Counting:
        shuffles = 0

        def shuffle(self, order):
            self.shuffles += 1

    x, rng = np.zeros((8, 1)), Counting()
    batches = Batches(x, np.zeros(8), 4, rng)
    assert rng.shuffles == 0
    assert [(next(batches).epoch, rng.shuffles) for _ in range(5)] == [(0, 1), (0, 1), (1, 2), (1, 2), (2, 3)]


def test_each_epoch_has_an_order_of_its_own():
    _, batches = made(100, 100)
    first, second = next(batches).y, next(batches).y
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.arange(100))


def test_batches_are_not_overwritten_by_later_ones():
    x, batches = made(64, 8)
    kept = [next(batches) for _ in range(40)]
    assert all(np.array_equal(b.x, x[b.y]) for b in kept)
    assert not any(np.shares_memory(b.x, x) for b in kept)


def test_x_is_contiguous_and_keeps_its_dtype():
    batch = next(made(10, 4)[1])
    assert batch.x.flags.c_contiguous
    assert batch.x.dtype == np.float32
    assert batch.y.dtype == np.int64


def test_one_more_worker_does_not_change_the_batches_of_the_others():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20)

    def labels(workers):
        shares = Shared().split(y, workers, 0)
        made = [Batches(x[s], y[s], 6, np.random.default_rng([0, i])) for i, s in enumerate(shares)]
        return [[next(b).y.tolist() for _ in range(9)] for b in made]

    assert labels(4)[:3] == labels(3)
    assert labels(3)[0] != labels(3)[1]


def test_null_batches_have_shape_and_no_memory():
    batches = NullBatches(64, 32)
    batch = next(batches)
    assert batch is next(batches)
    assert batch.x.shape == (32, 64)
    assert batch.x.dtype == np.float32
    assert batch.y.shape == (32,)
    assert batch.y.dtype == np.int64
    assert batch.samples == 32
    assert batch.x.strides == (0, 0)
    assert batch.y.strides == (0,)
    assert not batch.x.any()


def test_bad_input():
    check_refused(
        [
            (lambda: made(5, 0), "batch_size=0"),
            (lambda: made(5, 2.5), "batch_size=2.5"),
            (lambda: Batches(np.zeros((3, 2)), np.zeros(2), 1, np.random.default_rng(0)), "3 samples and y has 2"),
            (lambda: Batches(np.zeros((0, 2)), np.zeros(0), 1, np.random.default_rng(0)), "at least 1"),
            (lambda: NullBatches(0, 3), "features=0"),
        ]
    )
