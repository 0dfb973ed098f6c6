"""A preview of the data for the trace header, from which figures are drawn: a few samples, and the number of samples per share.

The preview is a few thousand numbers at most, because the header is saved. If there is nothing to show, it is the reason as a
sentence.
"""

from __future__ import annotations

from math import floor, isqrt, log10
from typing import Any

import numpy as np

from ..roles.probe import ProbeInputs
from ..trace.header import RecordedPlane, RecordedSamples, RecordedShares
from ..trace.prediction_history import NO_ANSWER

# number of held-out samples that are probed, and of training points that are drawn in the plane
SAMPLES, POINTS = 18, 200
SIDE, FEWEST = 40, 12  # maximum and minimum number of cells along a side of the grid
WORK = 30_000_000  # multiply-adds of one grid: about a millisecond
DOTS = 16  # largest height and width of a picture
MARGIN = 0.06  # margin around the training data, as a fraction of their range
GROUPS, CLASSES = 64, 32  # rows and columns of the table of shares
ROWS = 1 << 20  # samples that are read at once
MOST_COUNTED = 200_000  # training samples; partitioning this many took 10 ms


def reason_not_shown(problem: Any, record: bool) -> str:
    """Return, as a sentence, why no samples of this problem can be shown; "" if they can be shown."""
    if problem.timing_only:
        return "timing only: nothing is evaluated"
    if not record:
        return "this run keeps totals only"
    dataset = problem.dataset
    if hasattr(dataset, "gathered"):
        return "the data stay on their cluster, and none of them are in the trace"
    if dataset.classes is None:
        return "this problem has no classes"
    if "embedding" in dataset.extra:
        return "samples made of ids cannot be drawn"
    return f"{dataset.classes:,} classes are too many to show" if dataset.classes >= NO_ANSWER else ""


def probe_inputs_of(problem: Any, record: bool) -> ProbeInputs | None:
    """Return the chief's probe inputs: a few held-out samples, and a grid if there are two features and the network is
    small.
    """
    if reason_not_shown(problem, record):
        return None
    dataset, side = problem.dataset, _side(problem)
    if not side:
        return ProbeInputs(min(SAMPLES, dataset.n_test))
    low, high = _extent(dataset)
    corners = dataset.standardise(np.array([low, high])).astype(float)
    return ProbeInputs(min(SAMPLES, dataset.n_test), side, tuple(corners[0].tolist()), tuple(corners[1].tolist()))


def _side(problem: Any) -> int:
    """Cells along a side of the grid: fewer for a large network, 0 for no grid."""
    if problem.dataset.features != 2:
        return 0
    side = min(SIDE, isqrt(WORK // problem.objective().multiply_adds))
    return side if side >= FEWEST else 0


def _extent(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner of the drawn part of the plane, in raw (not standardised) coordinates."""
    x = dataset.x_train  # perhaps in a file that is larger than the memory
    parts = (x[i : i + ROWS] for i in range(0, len(x), ROWS))
    ranges = np.array([(part.min(axis=0), part.max(axis=0)) for part in parts])
    ends = dataset.raw(np.stack([ranges[:, 0].min(axis=0), ranges[:, 1].max(axis=0)]))
    wide = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    return ends[0] - MARGIN * wide, ends[1] + MARGIN * wide


def recorded_samples(problem: Any, probe_inputs: ProbeInputs | None, record: bool) -> RecordedSamples | str:
    """Return the probed held-out samples, with features if they are pictures or points in the plane; or the reason why none are
    probed.
    """
    if probe_inputs is None:
        return reason_not_shown(problem, record)
    d, shape, features, plane = problem.dataset, None, None, None
    raw = d.raw(d.x_test[: probe_inputs.samples])
    if d.image_shape is not None:
        pictures = _small(raw.reshape(-1, *d.image_shape))
        shape, features = pictures.shape[1:], tuple(map(tuple, _rounded(pictures.reshape(len(raw), -1))))
    elif d.features == 2:
        some = np.unique(np.linspace(0, d.n_train - 1, POINTS).astype(int))
        low, high = _rounded_points(np.stack(_extent(d)))
        points, labels = _rounded_points(d.raw(d.x_train[some])), tuple(d.y_train[some].tolist())
        features = _rounded_points(raw)
        plane = RecordedPlane(low=low, high=high, side=probe_inputs.side, points=points, labels=labels)
    return RecordedSamples(
        labels=tuple(d.y_test[: probe_inputs.samples].tolist()), classes=d.classes, shape=shape, features=features,
        names=d.class_names or None, plane=plane,
    )  # fmt: skip


def _small(pictures: np.ndarray) -> np.ndarray:
    """Pictures (n, height, width) reduced to at most `DOTS` x `DOTS` by block means; remainders at the edges are cut off."""
    step = max(-(-size // DOTS) for size in pictures.shape[1:])
    n, height, width = pictures.shape[0], *(max(1, size // step) for size in pictures.shape[1:])
    cut = pictures[:, : height * step, : width * step]
    return cut.reshape(n, height, cut.shape[1] // height, width, cut.shape[2] // width).mean(axis=(2, 4))


def _rounded(values: np.ndarray) -> Any:
    """Nested lists, rounded to about a thousandth of the range; as ints if all values are whole."""
    values = np.asarray(values, dtype=np.float64)
    range_ = float(np.ptp(values))
    digits = 3 - floor(log10(range_)) if range_ > 0 else 6
    short = values.round(digits)
    whole = np.array_equal(short, short.round()) and np.abs(short).max(initial=0) < 2**53
    return short.astype(np.int64).tolist() if whole else short.tolist()


def _rounded_points(points: np.ndarray) -> Any:
    """Points (n, 2) as tuples. Each coordinate is rounded by its own range: a time may be 1.7e9 s, and the other 0 or 1."""
    return tuple(zip(*map(_rounded, points.T)))


def recorded_shares(problem: Any, shares: int) -> RecordedShares | str:
    """Return the number of training samples per share and class, in at most 64 rows; or the reason why nothing was counted."""
    if problem.timing_only:
        return "timing only: there are no data"
    d = problem.dataset
    if hasattr(d, "gathered"):
        return "the data stay on their cluster, and are not counted here"
    if d.n_train > MOST_COUNTED:
        return f"{d.n_train:,} training samples: too many to count at the start"
    if not shares:
        return "no worker has data"
    classes = d.classes if d.classes is not None and d.classes <= CLASSES else 0
    shared = problem.partition.shares_all or shares == 1
    labels = d.y_train if d.classes is not None else d.n_train
    owners = np.zeros(d.n_train, np.int64) if shared else problem.partition.owners(labels, shares, problem.seed)
    rows = 1 if shared else min(shares, GROUPS)
    first = -(-np.arange(rows) * (1 if shared else shares) // rows)
    group = np.searchsorted(first, owners, side="right") - 1
    kind = d.y_train if classes else 0
    width = max(classes, 1)
    counts = np.bincount(group * width + kind, minlength=rows * width).reshape(rows, width)
    return RecordedShares(
        shares=shares, shared=shared, first=tuple(first.tolist()), classes=classes,
        names=(d.class_names or None) if classes else None, counts=tuple(map(tuple, counts.tolist())),
    )  # fmt: skip
