"""Operations on one block of rows: plain functions of NumPy arrays, which run inside Dask tasks.

The rows of a block are shuffled by (seed, block). The first rows of the shuffled order are held out; the remaining
rows, in this order, are the block's training rows. Every task that needs the order recomputes it, so that no indices
are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from ..random_streams import BLOCK, data_stream
from .checks import first_bad, label_error
from .dataset import scale_of, weighted
from .mapped import standardised

CLASSES = 10_000  # the most whose samples are counted


@dataclass(frozen=True)
class HoldOut:
    """The rule by which rows are held out; it is the same for all blocks."""

    seed: int
    test_fraction: float
    classes: int | None
    dtype: str

    def rows(self, block: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices (training rows, held-out rows) of a block of `count` rows.

        The number of held-out rows is rounded at random, so that small blocks hold out the right fraction on average.
        """
        rng = data_stream(self.seed, BLOCK.format(block=block))
        held = int(count * self.test_fraction + rng.random())
        order = rng.permutation(count)
        return order[held:], order[:held]


@dataclass(frozen=True)
class Survey:
    """Statistics of a range of blocks. The size of a survey does not depend on the number of rows.

    rows, train: the numbers of rows and of training rows of each block. mean: (d,) float64, of the training rows, in a
    regression (d + k,), with its k targets. m2: the same shape, the sum of their squared deviations from the mean. error: the
    first error as (block, row in the block or None, description). labels: the number of training and of held-out rows of each
    class, (2, classes); without columns if it is a regression, or has many classes. weight: the sum of the weights of the
    training rows.
    """

    rows: tuple[int, ...]
    train: tuple[int, ...]
    mean: np.ndarray
    m2: np.ndarray
    error: tuple[int, int | None, str] | None = None
    labels: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    weight: float = 0.0

    @property
    def n_train(self) -> int:
        return sum(self.train)

    def standard(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (mean, scale) of the training rows, (d,) each."""
        return self.mean, scale_of(self.mean, self.m2 / self.n_train)


def survey(block: int, x: Any, y: Any, weights: Any, hold_out: HoldOut, standardize: bool) -> Survey:
    """Check one block, x (n, d), y (n,) or (n, k) and weights (n,) or None, and compute its statistics."""
    x, y, weights = np.asarray(x), np.asarray(y), None if weights is None else np.asarray(weights)
    error = _first_error(x, y, weights, hold_out, standardize)
    train, test = hold_out.rows(block, len(x))
    classes = hold_out.classes or 0
    moments = (x,) if hold_out.classes is not None else (x, y.reshape(len(y), -1))
    width = sum(part.shape[1] for part in moments)
    if error:
        return Survey((len(x),), (len(train),), np.zeros(width), np.zeros(width), (block, *error))
    counted = 0 < classes <= CLASSES
    labels = np.zeros((2, classes if counted else 0), np.int64)
    for found, rows in zip(labels, (train, test) if counted else ()):
        found += np.bincount(y[rows].astype(np.int64), minlength=classes)
    if not len(train):
        return Survey((len(x),), (0,), np.zeros(width), np.zeros(width), labels=labels)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.concatenate([part[train].mean(axis=0, dtype=np.float64) for part in moments])
        m2 = np.concatenate([part[train].var(axis=0, dtype=np.float64) for part in moments]) * len(train)
        weight = 0.0 if weights is None else float(weights[train].sum(dtype=np.float64))
    return Survey((len(x),), (len(train),), mean, m2, labels=labels, weight=weight)


def _first_error(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray | None, hold_out: HoldOut, standardize: bool
) -> tuple[int | None, str] | None:
    """Return the first error in a block as (row or None, description); None if the block has no error."""
    for what, a in (("y", y), ("sample_weights", weights)):
        if a is not None and len(x) != len(a):
            return None, f"x has {len(x)} rows and {what} has {len(a)}; both must have the same number"
    for what, a in (("x", x), ("y", y), ("sample_weights", weights)):
        bad = None if a is None else first_bad(a)
        if bad:
            (row, *column), value = bad
            where = f" in column {column[0]}" if column else ""
            return row, f"{what} is {value}{where}; every value must be finite"
    if weights is not None and weights.min(initial=0) < 0:
        row = int(weights.argmin())
        return row, f"sample_weights is {weights[row]}; a weight is at least 0"
    if hold_out.classes is not None:
        wrong = label_error(y, hold_out.classes)
        if wrong:
            return wrong[0], f"y is {wrong[1]}"
    if not standardize and x.size and np.abs(x).max() > np.finfo(hold_out.dtype).max:
        return int(np.abs(x).max(axis=1).argmax()), f"x is too large for {hold_out.dtype}; scale it down"
    return None


def merge(parts: list[Survey]) -> Survey:
    return reduce(_merge_two, parts)


def _merge_two(a: Survey, b: Survey) -> Survey:
    """Combine means and squared deviations of two samples: Chan, Golub, LeVeque, "Updating Formulae", 1979."""
    total = max(a.n_train + b.n_train, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        step = b.mean - a.mean
        mean = a.mean + step * (b.n_train / total)
        m2 = a.m2 + b.m2 + step**2 * (a.n_train * b.n_train / total)
    labels = a.labels + b.labels if a.labels.shape == b.labels.shape else a.labels[:, :0]
    return Survey(a.rows + b.rows, a.train + b.train, mean, m2, a.error or b.error, labels, a.weight + b.weight)


def labels_of(block: int, y: Any, hold_out: HoldOut) -> np.ndarray:
    """Return the labels of the block's training rows, in the order of these rows: (n,) int64."""
    y = np.asarray(y)
    return y[hold_out.rows(block, len(y))[0]].astype(np.int64)


def take(
    block: int,
    x: Any,
    y: Any,
    weights: Any,
    hold_out: HoldOut,
    standard: tuple[Any, ...],
    plan: Any,
    worker: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return one worker's rows of a block, standardised: x (m, d) and y (m,) int64 or floats like y, perhaps `weighted`.

    standard: mean and scale of the features, and of the targets, and the mean of the weights. plan: "test" (the held-out rows,
    which have no weights), None (all training rows), or the worker of each training row.
    """
    x, y = np.asarray(x), np.asarray(y)
    train, test = hold_out.rows(block, len(x))
    if isinstance(plan, str):
        rows = test
    elif plan is None:
        rows = train
    else:
        rows = train[plan == worker]
    mean, scale, target_mean, target_scale, mean_weight = standard
    values = standardised(x[rows], mean, scale, hold_out.dtype)
    if hold_out.classes is not None:
        targets = y[rows].astype(np.int64)
    else:
        targets = standardised(y[rows], target_mean, target_scale, hold_out.dtype)
    if weights is None or isinstance(plan, str):
        return values, targets
    return values, weighted(targets, (np.asarray(weights)[rows] / mean_weight).astype(hold_out.dtype))


def join(pieces: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([x for x, _ in pieces]), np.concatenate([y for _, y in pieces])
