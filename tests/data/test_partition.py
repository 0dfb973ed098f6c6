"""Partitions: no worker is empty, no sample is assigned twice, the seed determines the result."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.data import ByLabel, BySize, ByWeight, DataPartition, Even, Shared, partition_as_text, partition_by_name
from labkit.errors import BadInput
from tests.refusals import check_refused

EXCLUSIVE = st.one_of(
    st.just(Even()),
    st.builds(ByLabel, alpha=st.floats(0.001, 100)),
    st.builds(BySize, skew=st.floats(0, 10)),
)


@settings(max_examples=150, deadline=None)
@given(how=EXCLUSIVE, n=st.integers(1, 200), data=st.data(), seed=st.integers(0, 99), classes=st.integers(1, 6))
def test_every_sample_is_in_one_share_and_no_share_is_empty(how, n, data, seed, classes):
    workers = data.draw(st.integers(1, n))
    labels = np.random.default_rng(seed).integers(classes, size=n)
    shares = how.split(labels, workers, seed)
    assert len(shares) == workers
    assert sorted(np.concatenate(shares)) == list(range(n))
    assert min(len(s) for s in shares) >= 1
    again = how.split(labels, workers, seed)
    assert all(np.array_equal(a, b) for a, b in zip(shares, again))


@given(n=st.integers(1, 500), workers=st.integers(1, 40))
def test_even_sizes_differ_by_at_most_one(n, workers):
    if workers > n:
        with pytest.raises(BadInput, match=f"{n} samples for {workers} workers"):
            Even().split(n, workers, 0)
        return
    sizes = [len(s) for s in Even().split(n, workers, 0)]
    assert max(sizes) - min(sizes) <= 1


def test_ten_thousand_batches_over_ten_workers_are_a_thousand_each():
    assert [len(s) / 32 for s in Even().split(10_000 * 32, 10, seed=3)] == [1000.0] * 10


def test_even_mixes_and_depends_on_the_seed():
    first = Even().split(1000, 4, 0)[0]
    assert 400 < first.mean() < 600
    assert not np.array_equal(first, Even().split(1000, 4, 1)[0])


def test_alpha_controls_the_label_skew():
    labels = np.arange(4000) % 10

    def purity(alpha):
        shares = ByLabel(alpha).split(labels, 8, seed=0)
        return np.mean([np.bincount(labels[s], minlength=10).max() / len(s) for s in shares])

    assert purity(1e6) < 0.12 < 0.4 < purity(0.05)


def test_sizes_follow_the_weights():
    assert list(BySize(skew=1.0).sizes(1100, 3)) == [600, 300, 200]
    assert list(BySize(skew=0.0).sizes(10, 3)) == [4, 3, 3]
    assert list(ByWeight((1, 3)).sizes(400, 2)) == [100, 300]
    assert list(ByWeight((1e-300, 1e300, 1)).sizes(10, 3)) == [1, 8, 1]
    assert list(ByWeight([1, 2, 4]).sizes(10, 3)) == [1, 3, 6]  # 1.43, 2.86, 5.71: two are left, for .86 and .71
    assert list(ByWeight((1, 1)).sizes(3, 2)) == [2, 1]


@settings(max_examples=150, deadline=None)
@given(weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=8), n=st.integers(8, 3000), seed=st.integers(0, 99))
def test_shares_follow_the_weights_within_one_sample(weights, n, seed):
    shares = ByWeight(weights).split(n, len(weights), seed)
    assert sorted(np.concatenate(shares)) == list(range(n))
    exact = np.array(weights) * n / sum(weights)
    sizes = np.array([len(share) for share in shares])
    assert min(sizes) >= 1
    if min(exact) >= 1:
        assert max(abs(sizes - exact)) < 1  # the property of largest remainders that is called quota


def test_shared_gives_all_samples_to_every_worker():
    assert all(np.array_equal(s, np.arange(5)) for s in Shared().split(5, 9, 0))


def test_partitions_are_made_from_their_names():
    assert partition_by_name("even") == Even()
    assert partition_by_name("by-label") == ByLabel(0.5)
    assert partition_by_name("by-label:0.1") == ByLabel(0.1)
    assert partition_by_name("by-size:2") == BySize(2.0)
    assert partition_by_name("shared") == Shared()
    assert partition_by_name("by-weight:1,2.5") == ByWeight((1.0, 2.5))
    assert partition_by_name(BySize(3.0)) == BySize(3.0)


def test_partitions_are_written_as_text_and_parsed_back():
    for text, made in [
        ("even", Even()),
        ("shared", Shared()),
        ("by-label:0.5", ByLabel()),
        ("by-size:2", BySize(2.0)),
        ("by-weight:1,2,4", ByWeight((1, 2, 4))),
        ("by-weight:0.1,0.3333333333333333", ByWeight((0.1, 1 / 3))),
    ]:
        assert partition_as_text(made) == text, (text, made)
        assert partition_by_name(text) == made, (text, made)


def test_a_user_defined_partition_has_no_text():
    class Mine(DataPartition):
        pass

    assert partition_as_text(Mine()) is None


def test_bad_input():
    check_refused(
        [
            (lambda: partition_by_name("evn"), "Did you mean 'even'"),
            (lambda: partition_by_name("even:2"), "takes no number"),
            (lambda: partition_by_name("by-label:x"), "by-label:ALPHA"),
            (lambda: partition_by_name("by-label:-1"), "alpha=-1.0 is not allowed"),
            (lambda: partition_by_name("by-weight"), "write by-weight:1,2,4, one number for each worker"),
            (lambda: partition_by_name("by-weight:1,x"), "write by-weight:1,2,4"),
            (lambda: ByWeight((1, -1)), "finite numbers above 0"),
            (lambda: ByWeight(()), "one for each worker, as lk.partitions.ByWeight"),
            (lambda: ByWeight(3), "finite numbers above 0"),
            (lambda: ByWeight((1, 2)).split(10, 3, 0), "2 weights for 3 workers"),
            (lambda: ByLabel().split(10, 2, 0), "needs class labels"),
            (lambda: ByLabel().split(np.zeros((10, 1)), 2, 0), "needs class labels"),
            (lambda: Even().split(10, 0, 0), "workers=0 is not allowed"),
            (lambda: Even().split(10, 2, -1), "seed=-1 is not allowed"),
            (lambda: ByLabel().split(np.zeros(3, int), 4, 0), "3 samples for 4 workers"),
            (lambda: Shared().split(0, 4, 0), "no samples"),
        ]
    )
