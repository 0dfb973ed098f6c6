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
from .dataset import weighted
from .mapped import standardised
from .moments import Moments

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

    rows, train: the numbers of rows and of training rows of each block. moments: of the training rows, in a regression with
    their k targets, (d + k,). error: the first error as (block, row in the block or None, description). labels: the number of
    training and of held-out rows of each class, (2, classes); without columns if it is a regression, or has many classes.
    weight: the sum of the weights of the training rows.
    """

    rows: tuple[int, ...]
    train: tuple[int, ...]
    moments: Moments
    error: tuple[int, int | None, str] | None = None
    labels: np.ndarray = field(default_factory=lambda: np.zeros((2, 0), np.int64))
    weight: float = 0.0


def survey(block: int, x: Any, y: Any, weights: Any, hold_out: HoldOut, standardize: bool) -> Survey:
    """Check one block, x (n, d), y (n,) or (n, k) and weights (n,) or None, and compute its statistics."""
    x, y, weights = np.asarray(x), np.asarray(y), None if weights is None else np.asarray(weights)
    error = _first_error(x, y, weights, hold_out, standardize)
    train, test = hold_out.rows(block, len(x))
    classes = hold_out.classes or 0
    both = (x,) if hold_out.classes is not None else (x, y.reshape(len(y), -1))
    if error:
        none = np.zeros(sum(part.shape[1] for part in both))
        return Survey((len(x),), (len(train),), Moments(0, none, none), (block, *error))
    counted = 0 < classes <= CLASSES
    labels = np.zeros((2, classes if counted else 0), np.int64)
    for found, rows in zip(labels, (train, test) if counted else ()):
        found += np.bincount(y[rows].astype(np.int64), minlength=classes)
    with np.errstate(over="ignore", invalid="ignore"):
        _, means, m2s = zip(*(Moments.of(part[train]) for part in both))
        weight = 0.0 if weights is None else float(weights[train].sum(dtype=np.float64))
    moments = Moments(len(train), np.concatenate(means), np.concatenate(m2s))
    return Survey((len(x),), (len(train),), moments, labels=labels, weight=weight)


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
    with np.errstate(over="ignore", invalid="ignore"):
        moments = a.moments.join(b.moments)
    labels = a.labels + b.labels if a.labels.shape == b.labels.shape else a.labels[:, :0]
    return Survey(a.rows + b.rows, a.train + b.train, moments, a.error or b.error, labels, a.weight + b.weight)


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
