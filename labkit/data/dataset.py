"""Data sets for training: split, standardised, contiguous, read-only.

    x_standardised = (x - mean) / scale,    with mean and scale of the *training* part only,

so that no information leaks from the held-out part. Constant features get scale 1, so they become 0. `raw` is the
inverse of `standardise`. All sums are computed in float64 for any dtype of the data set, and values that are not standardised
are float64: a float32 has 7 digits, which are used up by an offset, as that of a time in seconds since 1970.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import BadInput
from ..random_streams import HOLD_OUT, data_stream

Pair = tuple[np.ndarray, np.ndarray]


class Described:
    """What data in memory and data on a cluster have in common."""

    classes: int | None
    mean: np.ndarray
    scale: np.ndarray
    extra: dict[str, Any]

    @property
    def features(self) -> int:
        """The number of features of a sample: the width of the network's input."""
        return len(self.mean)

    @property
    def outputs(self) -> int:
        """The width of the network's output: the number of classes or, in a regression, of targets."""
        return self.classes if self.classes is not None else math.prod(self.target_shape)

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one target: () for a label, and for a regression whose targets were given as (n,); else (k,)."""
        raise NotImplementedError

    @property
    def baseline_accuracy(self) -> float | None:
        """The held-out accuracy of a constant answer, the most frequent class of the training samples; None if unknown."""
        raise NotImplementedError

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their ids; empty if the labels are numbers."""
        return tuple(self.extra.get("class_names", ()))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, from a header or a data frame; empty if they have none."""
        return tuple(self.extra.get("feature_names", ()))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of x, and in a regression also of y: float32 or float64."""
        raise NotImplementedError

    def standardise(self, x: np.ndarray) -> np.ndarray:
        """Standardise samples: subtract the mean and divide by the standard deviation of the training samples.

        Parameters
        ----------
        x : ndarray
            Samples as they are in the source, of shape (n, d).

        Returns
        -------
        ndarray
            Standardised samples of the same shape, in the data set's dtype.
        """
        return np.ascontiguousarray((x - self.mean) / self.scale, dtype=self.dtype)

    def raw(self, x: np.ndarray) -> np.ndarray:
        """Undo `standardise`.

        Parameters
        ----------
        x : ndarray
            Standardised samples, of shape (n, d) or (d,).

        Returns
        -------
        ndarray
            The samples as they are in the source, of the same shape: float64, whatever the data set's dtype is (ids are whole
            numbers).
        """
        # float32 would lose the digits of features with an offset, such as years
        return np.ascontiguousarray(
            x * self.scale + self.mean, dtype=np.float64 if self.dtype.kind == "f" else self.dtype
        )


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Described):
    """Training and held-out samples in memory; `from_arrays` and `from_csv` make it.

    Parameters
    ----------
    name : str
        The name of the data set.
    x_train : ndarray
        The features of the training samples, float32 or float64 of shape (n, d), C-contiguous, read-only.
    y_train : ndarray
        Their labels, int64 of shape (n,), or targets of a regression, floats of shape (n,) or (n, k), as they were given.
        Predictions have the same shape.
    x_test, y_test : ndarray
        The held-out samples, in the same form.
    classes : int or None
        The number of classes; None for a regression.
    mean, scale : ndarray
        The mean and the standard deviation of each feature in the training samples, float64 of shape (d,); 0 and 1 if the data
        set is not standardised.
    image_shape : tuple of int, optional
        (height, width) if samples are pictures.
    about : str, default: ""
        One sentence with source and licence.
    extra : dict, optional
        Further facts, such as an exact solution, and the names of classes and features ("class_names", "feature_names").

    Examples
    --------
    >>> data = lk.Problem("digits").dataset
    >>> data.x_train.shape, data.x_test.shape, data.image_shape, data.outputs
    ((1438, 64), (359, 64), (8, 8), 10)
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int | None
    mean: np.ndarray
    scale: np.ndarray
    image_shape: tuple[int, int] | None = None
    about: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def n_train(self) -> int:
        """The number of training samples."""
        return len(self.x_train)

    @property
    def n_test(self) -> int:
        """The number of held-out samples."""
        return len(self.x_test)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.x_train.dtype

    @property
    def target_shape(self) -> tuple[int, ...]:
        return tuple(self.y_train.shape[1:])

    @property
    def baseline_accuracy(self) -> float | None:
        return None if self.classes is None else float(np.mean(self.y_test == np.bincount(self.y_train).argmax()))

    def __repr__(self) -> str:
        what = f"{self.classes} classes" if self.classes is not None else f"{self.outputs} targets"
        return f"<Dataset {self.name}: {self.n_train} + {self.n_test} samples of {self.features} {self.dtype.name}, {what}>"


def hold_out(x: np.ndarray, y: np.ndarray, test_fraction: float, seed: int) -> tuple[Pair, Pair]:
    """Split at random, by the seed, into ((x_train, y_train), (x_test, y_test)), with at least one sample in each."""
    samples = len(x)
    if samples < 2:
        raise BadInput(f"There is {samples} sample; at least 2 are needed, one to train on and one to hold out.")
    held = min(max(round(samples * test_fraction), 1), samples - 1)
    order = data_stream(seed, HOLD_OUT).permutation(samples)
    test, train = order[:held], order[held:]
    return (x[train], y[train]), (x[test], y[test])


def scale_of(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the standard deviation, or 1 where it is only rounding error, so that a constant feature is not amplified."""
    deviation = np.sqrt(variance)
    constant = deviation <= 64 * np.finfo(np.float64).eps * np.abs(mean)
    return np.where(constant, 1.0, deviation)


def build(
    name: str,
    train: Pair,
    test: Pair,
    classes: int | None,
    *,
    standardize: bool,
    dtype: np.dtype[Any],
    image_shape: tuple[int, int] | None = None,
    about: str = "",
    extra: dict[str, Any] | None = None,
) -> Dataset:
    """Make a `Dataset` of pairs that are already split and checked. Raises `BadInput` if a value is too large for `dtype`."""
    x = train[0]
    mean, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        if standardize:
            mean = x.mean(axis=0, dtype=np.float64)
            scale = scale_of(mean, x.var(axis=0, dtype=np.float64))
        parts = [_frozen((values - mean) / scale, dtype) for values in (train[0], test[0])]
        kind = dtype if classes is None else np.dtype(np.int64)
        targets = [_frozen(values, kind) for values in (train[1], test[1])]
    if not all(np.isfinite(a).all() for a in (mean, scale, *parts, *targets)):
        raise BadInput(f"Some values are too large for {dtype}; scale them down" + _or_float64(dtype))
    return Dataset(
        name, parts[0], targets[0], parts[1], targets[1], classes, mean, scale, image_shape, about, dict(extra or {})
    )


def _frozen(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a contiguous read-only copy, which thousands of simulated workers can share."""
    copy = np.array(values, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy


def _or_float64(dtype: np.dtype[Any]) -> str:
    return ", or ask for dtype='float64'." if dtype == np.float32 else "."
