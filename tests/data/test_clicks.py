"""Clicks: ids follow the distribution within sampling error, labels can be learned, no array is as long as the table."""

import tracemalloc
from itertools import product

import numpy as np
import pytest

from labkit.data import Clicks, draw_zipf, load
from tests.refusals import check_refused


def zipf_probabilities(exponent, ids):
    p = 1.0 / np.arange(1, ids + 1) ** exponent
    return p / p.sum()


def test_drawn_ids_follow_the_zipf_distribution():
    for ids, exponent in product([2, 50], [0.0, 0.5, 1.0, 1.2, 3.0]):
        draws = 200_000
        counts = np.bincount(draw_zipf(np.random.default_rng(1), exponent, ids, draws), minlength=ids)
        expected = draws * zipf_probabilities(exponent, ids)
        assert len(counts) == ids, (exponent, ids)
        several = expected > 5
        chi = (np.square(counts - expected) / expected)[several].sum()
        assert chi < several.sum() + 4 * np.sqrt(2 * several.sum()), (exponent, ids)


def test_distinct_ids_of_a_batch():
    """E[U] = sum 1 - (1 - p)^n: 621.60 of 1,000 draws from 100,000 ids; uniform 995.02 (theory, section 8)."""
    for exponent, want in ((1.0, 621.60), (0.0, 995.02)):
        assert (1 - (1 - zipf_probabilities(exponent, 100_000)) ** 1000).sum() == pytest.approx(want, abs=0.005)
        rng = np.random.default_rng(0)
        seen = [len(np.unique(draw_zipf(rng, exponent, 100_000, 1000))) for _ in range(200)]
        assert np.mean(seen) == pytest.approx(want, rel=0.01)


def test_a_data_set_of_ids():
    data = load("clicks", rows=500, samples=1000, fields=3)
    assert (data.x_train.shape, data.x_test.shape, data.classes, data.features) == ((800, 3), (200, 3), 2, 3)
    assert data.x_train.dtype == data.y_train.dtype == np.int64
    assert data.x_train.min() == 0
    assert data.x_train.max() < 500
    assert not data.x_train.flags.writeable
    assert np.array_equal(data.raw(data.x_test), data.x_test)
    assert set(np.unique(data.y_train)) == {0, 1}
    assert data.extra["embedding"] == {"rows": 500, "columns": 8, "fields": 3}


def test_the_seed_decides():
    one, same, other = (load("clicks", samples=200, seed=seed) for seed in (4, 4, 5))
    assert np.array_equal(one.x_train, same.x_train)
    assert np.array_equal(one.y_test, same.y_test)
    assert not np.array_equal(one.x_train, other.x_train)


def test_the_baseline_is_the_best_constant_and_the_formula_is_far_better():
    data = load("clicks")
    share = data.y_train.mean()
    entropy = -np.mean(np.where(data.y_test == 1, np.log(share), np.log(1 - share)))
    assert data.extra["baseline_loss"] == pytest.approx(entropy)
    assert data.extra["baseline_accuracy"] == pytest.approx(1 - data.y_test.mean())
    assert data.extra["best_loss"] < data.extra["baseline_loss"] / 2
    assert data.extra["best_accuracy"] > data.extra["baseline_accuracy"] + 0.2
    nothing = load("clicks", strength=0.0)
    assert nothing.extra["best_loss"] == pytest.approx(nothing.extra["baseline_loss"], abs=0.01)


def test_ten_million_rows_cost_no_memory():
    tracemalloc.start()
    data = load("clicks", rows=10_000_000, samples=2000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.x_train.max() > 1_000_000
    assert peak < 4_000_000


def test_options_are_checked():
    cases = [{"rows": 1}, {"zipf": -1.0}, {"fields": 0}, {"sample": 10}]
    check_refused((lambda options=options: load("clicks", **options), "") for options in cases)


def test_draws_of_a_recipe_have_its_shape():
    assert Clicks(rows=100, fields=5).draw(np.random.default_rng(0), 7).shape == (7, 5)
