"""Data sets by name: the standard digits, points as given by the formula, correct labels."""

import subprocess
import sys
from importlib import resources

import numpy as np
import pytest

import labkit as lk
from labkit.data import NAMES, dataset_options, load
from labkit.data.digits import read_digits
from tests.refusals import check_refused


def test_the_digits_file_is_small_and_names_its_source():
    files = resources.files("labkit.data") / "files"
    assert len((files / "digits.npz").read_bytes()) <= 60_000
    note = (files / "digits.txt").read_text()
    for fact in ("10.24432/C50P49", "CC BY 4.0", "Alpaydin", "Kaynak"):
        assert fact in note
        assert fact in note + load("digits").about


def test_digits_are_standardized_and_split():
    digits = load("digits")
    assert digits.x_train.shape == (1438, 64)
    assert digits.x_test.shape == (359, 64)
    assert digits.x_train.dtype == digits.x_test.dtype == np.float32
    assert digits.y_train.dtype == digits.y_test.dtype == np.int64
    assert (digits.features, digits.outputs, digits.classes, digits.image_shape) == (64, 10, 10, (8, 8))
    assert (digits.n_train, digits.n_test) == (1438, 359)
    everything = np.concatenate([digits.raw(digits.x_train), digits.raw(digits.x_test)])
    stored = read_digits()[0]
    assert sorted(map(tuple, np.round(everything).astype(int))) == sorted(map(tuple, stored.astype(int)))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("quadratic", "clicks")])
def test_standardised_by_the_training_part_alone(name):
    made = load(name, dtype="float64", seed=1)
    plain = load(name, dtype="float64", seed=1, standardize=False)
    varies = plain.x_train.std(axis=0) > 0
    assert np.allclose(made.x_train.mean(axis=0), 0)
    assert np.allclose(made.x_train.std(axis=0), varies.astype(float))
    assert np.allclose(made.mean, plain.x_train.mean(axis=0))
    assert np.allclose(made.x_test, made.standardise(plain.x_test))
    assert np.allclose(made.raw(made.x_test), plain.x_test)
    assert np.array_equal(plain.mean, np.zeros(plain.features))
    assert np.array_equal(plain.scale, np.ones(plain.features))


@pytest.mark.parametrize("name", NAMES)
def test_data_depend_on_the_seed_and_are_read_only(name):
    option = {} if name in ("digits", "clicks") else {"noise": 0.1}
    first, again, other = load(name, **option), load(name, **option), load(name, seed=1, **option)
    assert np.array_equal(first.x_train, again.x_train)
    assert np.array_equal(first.y_test, again.y_test)
    assert not np.array_equal(first.x_train, other.x_train)
    assert first.x_train.flags.c_contiguous
    assert first.about.endswith(".")
    with pytest.raises(ValueError, match="read-only"):
        first.x_train[0, 0] = 1


def test_points_lie_on_their_curves():
    plain = {"noise": 0, "standardize": False, "dtype": "float64", "samples": 90}
    moons = load("moons", **plain)
    upper = moons.y_train == 0
    centre = np.where(upper[:, None], [0, 0], [1, 0.5])
    assert np.allclose(np.linalg.norm(moons.x_train - centre, axis=1), 1)
    assert (moons.x_train[upper, 1] >= 0).all()
    assert (moons.x_train[~upper, 1] <= 0.5).all()
    circles = load("circles", factor=0.3, **plain)
    assert np.allclose(np.linalg.norm(circles.x_train, axis=1), np.where(circles.y_train == 0, 1, 0.3))
    spirals = load("spirals", arms=3, turns=2, **plain)
    radius = np.linalg.norm(spirals.x_train, axis=1)
    angle = np.arctan2(spirals.x_train[:, 1], spirals.x_train[:, 0]) / (2 * np.pi)
    arm = (angle - 2 * radius) % 1 * 3
    assert np.allclose(np.round(arm) % 3, spirals.y_train)
    assert np.allclose(arm, np.round(arm), atol=1e-9)
    assert spirals.classes == 3
    assert sorted(np.bincount(np.concatenate([spirals.y_train, spirals.y_test]))) == [30, 30, 30]


def test_the_quadratic_data_set_has_the_given_noise_and_curvature():
    plain = load("quadratic")
    assert plain.x_train.shape == (1000, 1)
    assert plain.x_train.dtype == np.float64
    assert not plain.x_train.any()
    assert not plain.y_train.any()
    assert (plain.classes, plain.outputs, plain.extra["start"]) == (None, 1, 1.0)
    noisy = load("quadratic", samples=5000, dimension=2, noise=3, curvature=(1, 4), start=2.0, standardize=True)
    assert np.allclose(noisy.x_train.std(axis=0), 3, rtol=0.05)
    assert np.array_equal(noisy.extra["curvature"], [1.0, 4.0])
    w = noisy.extra["solution"]
    gradient = np.mean(noisy.extra["curvature"] * (w - noisy.x_train), axis=0)
    assert np.allclose(gradient, 0)
    assert load("quadratic", samples=1).n_train == 1
    assert load("quadratic", dtype="float32").dtype == np.float32


def test_linear_regression_contains_its_exact_solution():
    line = load("linear-regression", samples=400, dimension=3, noise=0.5, dtype="float64")
    answer = line.extra["solution"]
    rest = line.x_train @ answer["weights"] + answer["bias"] - line.y_train
    assert np.allclose(line.x_train.T @ rest, 0, atol=1e-8)  # the normal equations
    assert np.allclose(rest.sum(), 0, atol=1e-8)
    assert np.isclose(np.mean(rest**2), answer["mean_squared_error"])
    exact = load("linear-regression", noise=0, standardize=False, dtype="float64")
    assert np.allclose(exact.extra["solution"]["weights"], exact.extra["true_weights"])
    assert np.allclose(exact.extra["solution"]["bias"], exact.extra["true_bias"])


def test_options_are_known():
    assert list(dataset_options("spirals")) == ["samples", "noise", "arms", "turns"]
    assert not dataset_options("digits")


def test_bad_input():
    cases = [
        ("digit", {}, "Did you mean 'digits'"),
        ("moons", {"sample": 5}, "Did you mean 'samples'"),
        ("digits", {"noise": 1}, "digits has no option 'noise'"),
        ("moons", {"samples": 3}, "samples=3 is not allowed; samples is a whole number from 4"),
        ("moons", {"noise": -1}, "noise=-1 is not allowed"),
        ("spirals", {"arms": 1}, "arms=1 is not allowed"),
        ("quadratic", {"curvature": 0}, "curvature=0 is not allowed"),
        ("quadratic", {"curvature": (1, 2)}, "or 1 of them"),
        ("quadratic", {"curvature": "steep"}, "curvature='steep'"),
        ("digits", {"dtype": "float16"}, "allowed: float32, float64"),
        ("digits", {"dtype": "flat"}, "allowed: float32, float64"),
        ("digits", {"seed": 0.5}, "seed=0.5 is not allowed"),
        ("digits", {"test_fraction": 0}, "above 0 and below 1"),
        ("digits", {"test_fraction": "half"}, "above 0 and below 1"),
    ]
    check_refused(
        (lambda name=name, options=options: load(name, **options), message) for name, options, message in cases
    )


def test_importing_data_imports_no_heavy_package():
    code = """
import sys, labkit.data
labkit.data.load("digits")
print([m for m in ("dask", "distributed", "sklearn", "scipy", "pandas") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_data_set_is_a_line_where_it_is_shown():
    assert repr(load("digits")) == "<Dataset digits: 1438 + 359 samples of 64 float32, 10 classes>"


def test_an_unknown_data_set_is_refused_with_the_available_ones():
    with pytest.raises(lk.BadInput) as refused:
        lk.Problem("mnist")
    assert "Did you mean" not in str(refused.value)
    assert "digits" in str(refused.value)
    assert "lk.from_arrays" in str(refused.value)
