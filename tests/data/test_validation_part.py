"""The validation part: which samples it has, and which problems cannot have one."""

import dask.array as da
import numpy as np
import pytest

import labkit as lk


def own():
    """600 samples, of which the first feature is the number; three classes, of which one is rare."""
    x = np.stack([np.arange(600.0), np.ones(600)], axis=1)
    return lk.from_arrays(x, np.where(np.arange(600) % 20 == 0, 2, np.arange(600) % 2), standardize=False)


def numbers(x):
    return x[:, 0].astype(int).tolist()


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_the_part_is_taken_from_the_training_samples_of_every_class(fraction):
    data = own()
    whole, part = lk.Problem(data).dataset, lk.Problem(data, validation=fraction).dataset
    kept, taken = numbers(part.x_train), numbers(part.x_validation)
    assert sorted(kept + taken) == sorted(numbers(whole.x_train))
    assert kept == [number for number in numbers(whole.x_train) if number in set(kept)]  # in the same order
    assert (numbers(part.x_test), part.y_test.tolist()) == (numbers(whole.x_test), whole.y_test.tolist())
    label = dict(zip(numbers(whole.x_train), whole.y_train.tolist()))
    assert part.y_train.tolist() == [label[number] for number in kept]
    assert part.y_validation.tolist() == [label[number] for number in taken]
    for c in range(3):
        assert (part.y_validation == c).sum() == round(fraction * (whole.y_train == c).sum())
    assert (part.n_train, part.n_validation, part.n_test) == (len(kept), len(taken), whole.n_test)


def test_the_seed_decides_the_part():
    data = own()
    parts = [numbers(lk.Problem(data, validation=0.2, seed=seed).dataset.x_validation) for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


@pytest.mark.parametrize("data", ["digits", "linear-regression", "clicks"])
def test_data_sets_by_name_have_the_same_test_set(data):
    plain, part = lk.Problem(data).dataset, lk.Problem(data, validation=0.25).dataset
    assert np.array_equal(plain.x_test, part.x_test)
    assert np.array_equal(plain.mean, part.mean)
    assert part.n_train + part.n_validation == plain.n_train
    assert part.n_validation == pytest.approx(0.25 * plain.n_train, abs=6)


def test_without_a_part_nothing_is_taken():
    data = own()
    assert lk.Problem(data).dataset is data
    assert (data.n_validation, data.x_validation) == (0, None)
    assert "validation" not in lk.Problem(data).describe()
    assert lk.Problem(data, validation=0.1).describe()["validation"] == 0.1


def test_problems_that_cannot_have_one():
    lazy = lk.from_dask(da.ones((40, 2), chunks=(20, 2)), da.arange(40, chunks=20) % 2, classes=2)
    for data, words in [("quadratic", "has no samples"), (lazy, "stay on the cluster")]:
        with pytest.raises(lk.BadInput, match=words):
            lk.Problem(data, validation=0.1)
    for wrong in (-0.1, 0.95, np.nan, "some"):
        with pytest.raises(lk.BadInput, match="validation"):
            lk.Problem("digits", validation=wrong)


def test_weights_follow_their_samples_and_have_the_mean_1_again():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(200, 2)), rng.uniform(1, 3, 200)
    data = lk.from_arrays(
        x, rng.integers(0, 2, 200), x_test=x[:9], y_test=[0, 1] * 4 + [0], sample_weights=weights, standardize=False
    )
    part = lk.Problem(data, validation=0.25).dataset
    by_sample = {tuple(row): weight for row, weight in zip(data.x_train, weights)}
    expected = np.array([by_sample[tuple(row)] for row in part.x_train])
    np.testing.assert_allclose(part.sample_weights, expected / expected.mean(), rtol=1e-6)
    assert len(part.sample_weights) == part.n_train == 150
