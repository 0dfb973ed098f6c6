"""Data sets for training: split, standardised, contiguous, read-only.

    x_standardised = (x - mean) / scale,    with mean and scale of the *training* part only,

so that no information leaks from the held-out part. Constant features get scale 1, so they become 0. `raw` is the
inverse of `standardise`. The targets of a regression are standardised by the same rule if they are a user's: with targets of some
hundred, as years or prices, gradients are so large that training diverges at common learning rates. All sums are computed in
float64 for any dtype of the data set, and values that are not standardised are float64: a float32 has 7 digits, which are used up
by an offset, as that of a time in seconds since 1970.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..errors import BadInput
from ..formatting import count_text
from ..random_streams import HOLD_OUT, VALIDATION, data_stream
from .checks import check_sample_weights
from .mapped import MappedFile, MappedSamples, blocks, selected, standardised
from .moments import Moments


class Described:
    """What data in memory and data on a cluster have in common."""

    classes: int | None
    mean: np.ndarray
    scale: np.ndarray
    sample_shape: tuple[int, ...]
    target_mean: np.ndarray | float
    target_scale: np.ndarray | float
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
    def class_counts(self) -> np.ndarray | None:
        """The numbers of training and of held-out samples of each class, shape (2, classes); None if they are not known."""
        raise NotImplementedError

    @property
    def has_sample_weights(self) -> bool:
        """Whether the training samples have weights."""
        raise NotImplementedError

    @property
    def n_validation(self) -> int:
        """The number of samples of the validation part; 0 without one."""
        return 0

    @property
    def baseline_accuracy(self) -> float | None:
        """The held-out accuracy of a constant answer, the most frequent class of the training samples; None if unknown."""
        if self.class_counts is None:
            return None
        train, test = self.class_counts
        return float(test[train.argmax()] / test.sum())

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) if samples are pictures in shades of grey; else None."""
        return (self.sample_shape[0], self.sample_shape[1]) if len(self.sample_shape) == 2 else None

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
        return np.ascontiguousarray(standardised(x, self.mean, self.scale, self.dtype))

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

    @property
    def has_standardised_targets(self) -> bool:
        """Whether the targets in `y_train` and `y_test` differ from those in the source."""
        return changes(self.target_mean, self.target_scale)

    def raw_targets(self, y: np.ndarray) -> np.ndarray:
        """Undo the standardisation of the targets of a regression.

        Parameters
        ----------
        y : ndarray
            Targets as in `y_train`, of shape (n,) or (n, k).

        Returns
        -------
        ndarray
            The targets as they are in the source, of the same shape: float64 if they were standardised, else `y`.
        """
        return unscaled(y, self.target_mean, self.target_scale)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Described):
    """Training and held-out samples, in memory or in a file; `from_arrays`, `from_csv` and `from_npy` make it.

    Parameters
    ----------
    name : str
        The name of the data set.
    x_train : ndarray
        The features of the training samples, float32 or float64 of shape (n, d), C-contiguous, read-only. Of `from_npy` an
        array-like object: ``x_train[rows]`` and ``np.asarray(x_train)`` read samples from the file.
    y_train : ndarray
        Their labels, int64 of shape (n,), or targets of a regression, floats of shape (n,) or (n, k). A user's targets are
        standardised; `raw_targets` undoes it. Predictions have the same shape.
    x_test, y_test : ndarray
        The held-out samples, in the same form.
    classes : int or None
        The number of classes; None for a regression.
    mean, scale : ndarray
        The mean and the standard deviation of each feature in the training samples, float64 of shape (d,); 0 and 1 if the data
        set is not standardised.
    sample_shape : tuple of int, default: ()
        The shape of one sample in the source, as (height, width, 3), of which a row of x has all numbers; () if it is a row.
    about : str, default: ""
        One sentence with source and licence.
    extra : dict, optional
        Further facts, such as an exact solution, and the names of classes and features ("class_names", "feature_names").
    target_mean, target_scale : ndarray or float, default: 0.0 and 1.0
        The mean and the standard deviation of each target of a regression in the training samples, float64 of shape () or (k,); 0
        and 1 if they are not standardised.
    x_validation, y_validation : ndarray, optional
        The samples that `Problem.validation` has taken from the training samples, in the same form; None without it.
    sample_weights : ndarray, optional
        The weights of the training samples, of shape (n,), with mean 1.

    Examples
    --------
    >>> data = lk.Problem("digits").dataset
    >>> data.x_train.shape, data.x_test.shape, data.image_shape, data.outputs
    ((1438, 64), (359, 64), (8, 8), 10)
    """

    name: str
    x_train: Any  # an array, or `MappedSamples`
    y_train: np.ndarray
    x_test: Any  # an array, or `MappedSamples`
    y_test: np.ndarray
    classes: int | None
    mean: np.ndarray
    scale: np.ndarray
    sample_shape: tuple[int, ...] = ()
    about: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    target_mean: np.ndarray | float = 0.0
    target_scale: np.ndarray | float = 1.0
    x_validation: Any = None
    y_validation: np.ndarray | None = None
    sample_weights: np.ndarray | None = None

    @property
    def training(self) -> tuple[np.ndarray, np.ndarray]:
        """The training samples as workers get them: x, and y, which has the fields "y" and "weight" if samples have weights."""
        if self.sample_weights is None:
            return self.x_train, self.y_train
        return self.x_train, weighted(self.y_train, self.sample_weights)

    @property
    def n_train(self) -> int:
        """The number of training samples."""
        return len(self.x_train)

    @property
    def n_validation(self) -> int:
        return 0 if self.x_validation is None else len(self.x_validation)

    @property
    def has_sample_weights(self) -> bool:
        return self.sample_weights is not None

    @property
    def evaluated(self) -> tuple[np.ndarray, ...]:
        """The arrays that the chief evaluates: ``(x_test, y_test)``, then those of the validation part, if there is one."""
        if self.x_validation is None or self.y_validation is None:
            return self.x_test, self.y_test
        return self.x_test, self.y_test, self.x_validation, self.y_validation

    def with_validation(self, fraction: float, seed: int) -> Dataset:
        """Take a validation part from the training samples.

        Parameters
        ----------
        fraction : float
            The share of the training samples; of every class the same share.
        seed : int
            Decides which samples.

        Returns
        -------
        Dataset
            A data set with fewer training samples, in the same order and standardised as before, and the same held-out samples.
        """
        labelled = self.classes is not None
        train, part = hold_out(self.x_train, self.y_train, fraction, seed, labelled, VALIDATION)
        kept, taken = np.sort(train.rows), np.sort(part.rows)
        weights = self.sample_weights
        if weights is not None:
            weights = check_sample_weights(weights, len(weights), kept, weights.dtype)
        return replace(
            self, x_train=selected(self.x_train, kept), y_train=selected(self.y_train, kept),
            x_validation=selected(self.x_train, taken), y_validation=selected(self.y_train, taken), sample_weights=weights,
        )  # fmt: skip

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
    def class_counts(self) -> np.ndarray | None:
        if self.classes is None:
            return None
        return np.stack([np.bincount(y, minlength=self.classes) for y in (self.y_train, self.y_test)])

    def __repr__(self) -> str:
        where = f", in {self.x_train.file.path}" if isinstance(self.x_train, MappedSamples) else ""
        return f"<Dataset {self.name}: {sizes_text(self)}{where}>"


def sizes_text(data: Any) -> str:
    """Return sizes as text: `1438 + 359 samples of 64 float32, 10 classes`, with the number of a validation part between both."""
    what = f"{data.classes} classes" if data.classes is not None else count_text(data.outputs, "target")
    part = f" + {data.n_validation}" if data.n_validation else ""
    return f"{data.n_train}{part} + {data.n_test} samples of {data.features} {data.dtype.name}, {what}"


class Subset(NamedTuple):
    """A part of the samples: the `rows` of x (n, d) and y (n,) or (n, k), in this order. `file`: in which x is; None: none."""

    x: Any  # an array, or `MappedSamples`
    y: np.ndarray
    rows: np.ndarray
    file: MappedFile | None = None

    @classmethod
    def whole(cls, x: np.ndarray, y: np.ndarray) -> Subset:
        return cls(x, y, np.arange(len(x)))

    @property
    def samples(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> np.ndarray:
        return self.y[self.rows]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in the part, their x), a block of the source at a time, in its order."""
        return blocks(self.x, self.rows, self.x.shape[1])


def hold_out(
    x: Any, y: np.ndarray, fraction: float, seed: int, stratify: bool = False, stream: str = HOLD_OUT
) -> tuple[Subset, Subset]:
    """Split at random, by the seed, into the parts (kept, held out), with at least one sample in each.

    `fraction`: of the samples that are held out. `stratify`: whether it is held out of every class of the labels y (n,), but no
    sample of a class that has only one.
    """
    samples = len(x)
    if samples < 2:
        raise BadInput(f"There is {samples} sample; at least 2 are needed, one to train on and one to hold out.")
    order = data_stream(seed, stream).permutation(samples)
    if stratify:
        # of class c, the first held[c] in the order
        count = np.bincount(y)
        held = np.minimum(np.maximum(np.rint(count * fraction), 1), count - 1)
        labels = y[order]
        by_class = np.argsort(labels, kind="stable")
        rank = np.empty(samples, np.int64)
        rank[by_class] = np.arange(samples) - np.repeat(np.cumsum(count) - count, count)
        chosen = rank < held[labels]
        if not chosen.any():
            raise BadInput(
                "A stratified split needs a class with at least 2 samples, one to train on and one to hold out."
            )
        return Subset(x, y, order[~chosen]), Subset(x, y, order[chosen])
    several = min(max(round(samples * fraction), 1), samples - 1)
    return Subset(x, y, order[several:]), Subset(x, y, order[:several])


def weighted(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return targets y (n,) or (n, k) with weights (n,), as workers get them: an array with the fields "y" and "weight"."""
    made = np.empty(len(y), [("y", y.dtype, y.shape[1:]), ("weight", weights.dtype)])
    made["y"], made["weight"] = y, weights
    return made


def changes(mean: np.ndarray | float, scale: np.ndarray | float) -> bool:
    """Return whether standardising with this mean and scale changes values."""
    return bool(np.any(mean) or np.any(np.not_equal(scale, 1.0)))


def unscaled(values: np.ndarray, mean: np.ndarray | float, scale: np.ndarray | float) -> np.ndarray:
    """Return `values * scale + mean` in float64; `values` itself if they were not standardised."""
    if not changes(mean, scale):
        return values
    found: np.ndarray = np.asarray(values, np.float64) * scale + mean
    return found


def build(
    name: str,
    train: Subset,
    test: Subset,
    classes: int | None,
    *,
    standardize: bool,
    dtype: np.dtype[Any],
    standardize_targets: bool = False,
    sample_shape: tuple[int, ...] = (),
    about: str = "",
    extra: dict[str, Any] | None = None,
    sample_weights: np.ndarray | None = None,
) -> Dataset:
    """Make a `Dataset` of parts that are already checked. Raises `BadInput` if a value is too large for `dtype`.

    Beside the result, memory is needed for a block only.
    """
    width, y = train.x.shape[1], train.targets
    mean, scale = np.zeros(width), np.ones(width)
    target_mean: Any = 0.0
    target_scale: Any = 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        if standardize:
            mean, scale = reduce(Moments.join, (Moments.of(x) for _, x in train.blocks())).standard()
        if standardize_targets and classes is None:
            target_mean, target_scale = Moments.of(y).standard()
        parts = [_standardised(part, mean, scale, dtype) for part in (train, test)]
        kind = dtype if classes is None else np.dtype(np.int64)
        targets = [
            _frozen(values if classes is not None else (values - target_mean) / target_scale, kind)
            for values in (y, test.targets)
        ]
    if not all(finite for _, finite in parts) or not all(
        np.isfinite(a).all() for a in (mean, scale, target_mean, target_scale, *targets)
    ):
        raise BadInput(f"Some values are too large for {dtype}; scale them down" + _or_float64(dtype))
    return Dataset(
        name, parts[0][0], targets[0], parts[1][0], targets[1], classes, mean, scale, sample_shape, about,
        dict(extra or {}), target_mean, target_scale, sample_weights=sample_weights,
    )  # fmt: skip


def _standardised(
    part: Subset, mean: np.ndarray, scale: np.ndarray, dtype: np.dtype[Any]
) -> tuple[np.ndarray | MappedSamples, bool]:
    """Return the part's x, standardised, read-only, and whether all values are finite. What is in a file stays there."""
    if part.file is not None:
        # the largest values decide, because a larger value is never standardised to a smaller one
        finite = np.isfinite(standardised(part.file.bounds, mean, scale, dtype)).all()
        return MappedSamples(part.file, part.rows, mean, scale, dtype), bool(finite)
    x, finite = np.empty((part.samples, len(mean)), dtype), True
    for places, values in part.blocks():
        x[places] = found = standardised(values, mean, scale, dtype)
        finite = finite and bool(np.isfinite(found).all())
    x.flags.writeable = False
    return x, finite


def _frozen(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a contiguous read-only copy, which thousands of simulated workers can share."""
    copy = np.array(values, dtype=dtype, order="C")
    copy.flags.writeable = False
    return copy


def _or_float64(dtype: np.dtype[Any]) -> str:
    return ", or ask for dtype='float64'." if dtype == np.float32 else "."
