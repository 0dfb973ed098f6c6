"""What a trace tells about the data, so that pictures can be drawn from it alone: a few samples, and who has how many.

All of it is plain values for the trace's header, a few thousand numbers at most: the header is sent, saved and kept.
Where there is nothing to show, a sentence says why, under the key "none".
"""

from __future__ import annotations

from itertools import pairwise
from math import floor, isqrt, log10
from typing import Any

import numpy as np

from ..roles.probe import ProbeInputs
from ..trace.looks import NO_ANSWER

__all__ = ["samples_in_plain", "shares_in_plain", "probe_inputs_of"]

SAMPLES, POINTS = 18, 200  # held-out samples that are looked at; training points that are drawn in the plane
SIDE, FEWEST = 40, 12  # cells along a side of the grid; coarser than that, it is no picture
WORK = 30_000_000  # multiply-adds of one grid: about a millisecond
DOTS = 16  # a picture's largest height and width
MARGIN = 0.06  # of the range of the training data, around it
GROUPS, CLASSES = 64, 32  # rows and columns of the table of shares
MOST_COUNTED = 200_000  # training samples: dealing so many out took 10 ms


def why_nothing(problem: Any, record: bool) -> str:
    """Why no sample of this problem can be looked at; "" if they can."""
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
        return "samples made of ids are nothing to look at"
    return f"{dataset.classes:,} classes are too many to show" if dataset.classes >= NO_ANSWER else ""


def probe_inputs_of(problem: Any, record: bool) -> ProbeInputs | None:
    """What the chief looks at: a few held-out samples, and a grid if the data lie in a plane and the network is small."""
    if why_nothing(problem, record):
        return None
    dataset, side = problem.dataset, _side(problem)
    if not side:
        return ProbeInputs(min(SAMPLES, dataset.n_test))
    low, high = _extent(dataset)
    corners = dataset.standardise(np.array([low, high])).astype(float)
    return ProbeInputs(min(SAMPLES, dataset.n_test), side, tuple(corners[0].tolist()), tuple(corners[1].tolist()))


def _side(problem: Any) -> int:
    """Cells along a side of the grid: fewer for a large network, 0 if there is none."""
    widths = (problem.dataset.features, *problem.hidden, problem.dataset.outputs)
    side = min(SIDE, isqrt(WORK // sum(a * b for a, b in pairwise(widths))))
    return side if problem.dataset.features == 2 and side >= FEWEST else 0


def _extent(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest corner of what is drawn of the plane, as measured, not standardised."""
    ends = dataset.raw(np.stack([dataset.x_train.min(axis=0), dataset.x_train.max(axis=0)])).astype(float)
    wide = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    return ends[0] - MARGIN * wide, ends[1] + MARGIN * wide


def samples_in_plain(problem: Any, probe_inputs: ProbeInputs | None, record: bool) -> dict[str, Any]:
    """{"labels", "classes", "names", "shape", "features", "plane"} of the held-out samples that are looked at.

    `features`: lists of numbers as measured, of small pictures (`shape` (height, width)) and of points in the plane,
    else None. `plane`, of points: {"low", "high", "side", "points", "labels"}: the grid's corners and its cells along
    a side (0: no grid), and training points. {"none": why} if nothing is looked at.
    """
    if probe_inputs is None:
        return {"none": why_nothing(problem, record)}
    d = problem.dataset
    plain: dict[str, Any] = {
        "labels": d.y_test[: probe_inputs.samples].tolist(), "classes": d.classes, "shape": None, "features": None,
        "names": list(d.extra["class_names"]) if "class_names" in d.extra else None, "plane": None,
    }  # fmt: skip
    raw = d.raw(d.x_test[: probe_inputs.samples])
    if d.image_shape is not None:
        pictures = _small(raw.reshape(-1, *d.image_shape))
        plain |= {"shape": list(pictures.shape[1:]), "features": _rounded(pictures.reshape(len(raw), -1))}
    elif d.features == 2:
        some = np.unique(np.linspace(0, d.n_train - 1, POINTS).astype(int))
        low, high = (_rounded(end) for end in _extent(d))
        points = {"points": _rounded(d.raw(d.x_train[some])), "labels": d.y_train[some].tolist()}
        plain |= {"features": _rounded(raw), "plane": {"low": low, "high": high, "side": probe_inputs.side, **points}}
    return plain


def _small(pictures: np.ndarray) -> np.ndarray:
    """Pictures (n, height, width) of at most `DOTS` x `DOTS`: every dot the mean of a few; what is left over is cut off."""
    step = max(-(-size // DOTS) for size in pictures.shape[1:])
    n, height, width = pictures.shape[0], *(max(1, size // step) for size in pictures.shape[1:])
    cut = pictures[:, : height * step, : width * step]
    return cut.reshape(n, height, cut.shape[1] // height, width, cut.shape[2] // width).mean(axis=(2, 4))


def _rounded(values: np.ndarray) -> Any:
    """Nested lists, to about a thousandth of the range; whole numbers as such."""
    values = np.asarray(values, dtype=np.float64)
    range_ = float(np.ptp(values))
    digits = 3 - floor(log10(range_)) if range_ > 0 else 6
    short = values.round(digits)
    return short.astype(np.int64).tolist() if np.array_equal(short, short.round()) else short.tolist()


def shares_in_plain(problem: Any, shares: int) -> dict[str, Any]:
    """{"shares", "first", "classes", "names", "counts"}: how many training samples of each class each share has.

    `counts`: a list a row; a row is one share, or, of more than 64, a group of neighbours, added up, that begins with
    share `first[row]`. `classes` 0: rows hold one number, because there are no classes, or too many. Where all share
    the same samples there is one row, and `shared` is true. {"none": why} if nothing was counted.
    """
    if problem.timing_only:
        return {"none": "timing only: there are no data"}
    d = problem.dataset
    if hasattr(d, "gathered"):
        return {"none": "the data stay on their cluster, and are not counted here"}
    if d.n_train > MOST_COUNTED:
        return {"none": f"{d.n_train:,} training samples: too many to count at the start"}
    if not shares:
        return {"none": "nobody has data of their own"}
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
    names = list(d.extra["class_names"]) if classes and "class_names" in d.extra else None
    return {
        "shares": shares, "shared": shared, "first": first.tolist(), "classes": classes, "names": names,
        "counts": counts.tolist(),
    }  # fmt: skip
