"""A model refuses numbers that do not fit its dtype, as in scikit-learn, without a NumPy warning."""

import numpy as np
import pytest

import labkit as lk

pytestmark = pytest.mark.filterwarnings("error")


def model(data="moons", **options):
    problem = lk.Problem(data, hidden=(8,), **options)
    run = lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=2, compute=0.1), lk.Budget(updates=3))
    return run.wait().result()


def refused(call, *words):
    with pytest.raises(lk.BadInput) as caught:
        call()
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
@pytest.mark.parametrize(("dtype", "value"), [("float32", 1e300), ("float32", -3.5e38), ("float64", 1.7e308)])
def test_too_large_for_the_dtype(method, dtype, value):
    ask = getattr(model(dtype=dtype), method)
    refused(lambda: ask([[0.0, 0.0], [value, 0.0]]), "sample 1 ", dtype)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(method, value):
    refused(lambda: getattr(model(), method)([[0.0, 0.0], [0.0, value]]), "sample 1 holds a number that is not finite")


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_an_overflow_inside_the_network(method):
    made = model(dtype="float32")
    made.parameters = made.parameters * np.float32(1e4)
    refused(
        lambda: getattr(made, method)([[0.0, 0.0], [1e36, -1e36]]),
        "sample 1 makes the network's output infinite",
        "float32",
    )


def test_large_samples_that_fit_are_answered():
    made = model()
    x = np.array([[1e6, -1e6], [-1e6, 1e6]])
    p = made.predict_proba(x)
    assert np.isfinite(p).all()
    assert np.allclose(p.sum(axis=1), 1)
    assert (made.predict(x) == p.argmax(axis=1)).all()


def test_parameters_that_are_not_finite_are_no_mistake_of_the_sample():
    made = model()
    made.parameters = np.full_like(made.parameters, np.nan)
    assert np.isnan(made.predict_proba([[0.0, 0.0]])).all()
    assert made.predict([[0.0, 0.0]]).shape == (1,)
