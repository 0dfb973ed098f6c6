"""What labkit does with large packages that it does not need: SciPy's sparse arrays, columns and files of Arrow, scikit-learn's
digits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn import datasets, metrics, utils

import labkit as lk
from labkit.confusion import confusion_of
from labkit.data import from_arrays
from labkit.data.digits import read_digits

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3


def test_the_digits_are_those_of_scikit_learn() -> None:
    theirs, (images, labels) = datasets.load_digits(), read_digits()
    assert np.array_equal(images, theirs.data)
    assert np.array_equal(labels, theirs.target)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix"])
def test_sparse_arrays_are_refused_with_the_way_out(kind: str) -> None:
    with pytest.raises(lk.BadInput, match=rf"x is a sparse {kind}.* x\.toarray\(\)"):
        from_arrays(getattr(scipy.sparse, kind)(X), Y)


def test_columns_of_arrow_are_taken() -> None:
    x, y = pandas.DataFrame(X, columns=["p", "q"]), pandas.Series(Y)
    made = from_arrays(x.astype("double[pyarrow]"), y.astype("int64[pyarrow]"), standardize=False)
    plain = from_arrays(X, Y, standardize=False)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(made, name), getattr(plain, name)), name


def test_a_parquet_file_holds_the_data_frame_of_a_sweep(tmp_path: Path) -> None:
    problem = lk.Problem("moons", hidden=(3,), options={"samples": 60})
    clusters = [lk.SimulatedCluster(workers=workers) for workers in (1, 2)]
    sweep = lk.sweep(problem, lk.AsyncPS(), clusters, lk.Budget(updates=4), seeds=2, progress=False)
    assert pandas.read_parquet(sweep.to_parquet(tmp_path / "sweep.parquet")).equals(sweep.frame())


def test_measures_of_a_confusion_matrix_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 5, (2, 400))
    found = confusion_of(labels, predicted, tuple("abcde"))
    assert found.counts.tolist() == metrics.confusion_matrix(labels, predicted).tolist()
    assert found.accuracy == metrics.accuracy_score(labels, predicted)
    assert found.balanced_accuracy == metrics.balanced_accuracy_score(labels, predicted)
    np.testing.assert_allclose(found.recall, metrics.recall_score(labels, predicted, average=None))
    np.testing.assert_allclose(found.precision, metrics.precision_score(labels, predicted, average=None))


def test_balanced_class_weights_are_those_of_scikit_learn() -> None:
    problem = lk.Problem("digits", class_weights="balanced")
    labels = problem.dataset.y_train
    expected = utils.compute_class_weight("balanced", classes=np.arange(10), y=labels)
    np.testing.assert_allclose(problem.objective().loss.class_weights, expected)  # type: ignore[attr-defined]
