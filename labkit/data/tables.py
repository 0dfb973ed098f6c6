"""Data sets from a user's arrays or CSV file, checked completely before a run starts.

If `classes` is given, the targets are labels 0..classes-1. Otherwise integer targets are labels (the largest label
determines the number of classes), and floats are targets of a regression.
"""

from __future__ import annotations

import csv
import math
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..errors import BadInput, nearest, shown
from ..paths import as_path
from .checks import (
    check_classes,
    check_dtype,
    check_features,
    check_fraction,
    check_name,
    check_seed,
    check_targets,
    check_truth,
)  # fmt: skip
from .dataset import Dataset, build, hold_out

__all__ = ["from_arrays", "from_csv"]

Line = tuple[int, list[str]]


def from_arrays(
    x: ArrayLike,
    y: ArrayLike,
    *,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    classes: int | None = None,
    name: str = "arrays",
    seed: int = 0,
    test_fraction: float = 0.2,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Make a data set from arrays, which are copied and checked.

    Parameters
    ----------
    x : array_like
        The features, of shape (n, d), or pictures, of shape (n, height, width).
    y : array_like
        The labels, integers of shape (n,); or, for a regression, floats of shape (n,) or (n, k).
    x_test, y_test : array_like, optional
        Held-out samples: both or neither. By default a part of the samples is held out at random.
    classes : int, optional
        The number of classes: the labels are from 0 to `classes` - 1. By default the largest label determines it, and floats are
        the targets of a regression.
    name : str, default: "arrays"
        The name of the data set.
    seed : int, default: 0
        Determines which samples are held out.
    test_fraction : float, default: 0.2
        The part of the samples that is held out, above 0 and below 1.
    standardize : bool, default: True
        Whether every feature is shifted and scaled to mean 0 and standard deviation 1 of the training samples.
    dtype : {"float32", "float64"}, default: "float32"
        The type of the features, and of the targets of a regression.

    Returns
    -------
    Dataset
        The data set, for `Problem(data=...)`.

    Raises
    ------
    BadInput
        If there is a NaN or infinity (the message has the first row and column), a shape is wrong, lengths differ, a label is
        out of range or not whole, an array is empty, or values are not numbers.

    See Also
    --------
    from_csv : Read a file.
    from_dask : Use arrays that stay on a cluster.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 2))
    >>> data = lk.from_arrays(x, (x[:, 0] > x[:, 1]).astype(int))
    >>> data.n_train, data.n_test, data.classes
    (160, 40, 2)
    >>> problem, strategy = lk.Problem(data, hidden=()), lk.SyncPS(learning_rate=0.5)
    >>> lk.train(problem, strategy, lk.SimulatedCluster(workers=2)).wait().stopped_by
    'accuracy'
    """
    kind, seed, fraction = check_dtype(dtype), check_seed(seed), check_fraction(test_fraction)
    name, standardize = check_name(name), check_truth("standardize", standardize)
    classes = check_classes(classes)
    if (x_test is None) != (y_test is None):
        raise BadInput("x_test and y_test belong together; give both or neither.")
    x, image_shape = check_features("x", x)
    y, labelled = check_targets("y", y, len(x), classes)
    if x_test is None:
        train, test = hold_out(x, y, fraction, seed)
    else:
        train, test = (x, y), _held_out(x, x_test, y, y_test, classes, labelled)
    if labelled and classes is None:
        classes = _count_classes(train[1], test[1])
    about = f"{name}: {len(x)} samples handed in as arrays; source and licence are their owner's."
    options: dict[str, Any] = {"standardize": standardize, "dtype": kind, "image_shape": image_shape}
    return build(name, train, test, classes, about=about, **options)


def _held_out(
    x: np.ndarray, x_test: Any, y: np.ndarray, y_test: Any, classes: int | None, labelled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the given test part. Raises `BadInput` unless it has the same kind and width as the training part."""
    x_test, _ = check_features("x_test", x_test)
    if x_test.shape[1] != x.shape[1]:
        raise BadInput(f"x_test has {x_test.shape[1]} features and x has {x.shape[1]}; both must have the same number.")
    y_test, also_labelled = check_targets("y_test", y_test, len(x_test), classes)
    if also_labelled != labelled or y_test.shape[1:] != y.shape[1:]:
        raise BadInput("y and y_test differ in kind; both are whole-number labels, or both floats of the same width.")
    return x_test, y_test


def _count_classes(*labels: np.ndarray) -> int:
    """Return the largest label plus one, at least 2. Raises `BadInput` if that exceeds the number of samples."""
    classes = 1 + max(int(part.max()) for part in labels)
    samples = sum(len(part) for part in labels)
    if classes > max(samples, 2):
        raise BadInput(
            f"y holds labels up to {classes - 1} for only {samples} samples; for a regression give y as floats, "
            "otherwise say how many classes there are (classes=...)."
        )
    return max(classes, 2)


def from_csv(
    path: str | os.PathLike[str],
    *,
    target: int | str = -1,
    header: str | bool = "auto",
    classes: int | None = None,
    regression: bool = False,
    delimiter: str = ",",
    name: str | None = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Make a data set from a CSV file in UTF-8.

    The file has one sample per line, one column of targets, and numbers in all other columns. Labels that are words become
    0, 1, ... in sorted order; `extra["class_names"]` of the data set keeps the words, `extra["feature_names"]` the header.

    Parameters
    ----------
    path : str or path-like
        The file.
    target : int or str, default: -1
        The column of labels (or of numbers, for a regression), by index or by its name in the header.
    header : bool or "auto", default: "auto"
        Whether the first line is a header. "auto": it is if it has a feature that is not a number.
    classes : int, optional
        The number of classes. By default the labels determine it.
    regression : bool, default: False
        Whether the targets are numbers.
    delimiter : str, default: ","
        The character between two cells.
    name : str, optional
        The name of the data set. By default that of the file.
    seed : int, default: 0
        Determines which samples are held out.
    test_fraction : float, default: 0.2
        The part of the samples that is held out, above 0 and below 1.
    standardize : bool, default: True
        Whether every feature is shifted and scaled to mean 0 and standard deviation 1 of the training samples.
    dtype : {"float32", "float64"}, default: "float32"
        The type of the features, and of the targets of a regression.

    Returns
    -------
    Dataset
        The data set, for `Problem(data=...)`.

    Raises
    ------
    BadInput
        If the file cannot be read, or a cell is not allowed. The message has the line, from 1, and the column.

    Examples
    --------
    >>> from pathlib import Path
    >>> lines = ["length,width,kind", "5.1,3.5,setosa", "6.2,3.4,virginica", "5.9,3,virginica"]
    >>> _ = Path("iris.csv").write_text("\\n".join(lines))
    >>> data = lk.from_csv("iris.csv", test_fraction=0.3)
    >>> data.extra["class_names"], data.extra["feature_names"]
    (('setosa', 'virginica'), ('length', 'width'))
    """
    kept = None if name is None else check_name(name)
    regression = check_truth("regression", regression)
    table = _read(Path(as_path("path", path)), target, header, delimiter)
    x = np.frombuffer(table.values, dtype=np.float64).reshape(len(table.targets), -1)
    extra: dict[str, Any] = {"feature_names": tuple(table.names)} if table.names else {}
    if regression:
        y = np.array([_number(table.path, line, table.target, cell) for line, cell in table.targets])
        if classes is not None:
            raise BadInput("regression=True and classes=... contradict each other; give one of them.")
    else:
        y, words = _labels(table)
        if words:
            extra["class_names"] = words
            classes = len(words) if classes is None else classes
    options: dict[str, Any] = {"test_fraction": test_fraction, "standardize": standardize, "dtype": dtype}
    made = from_arrays(x, y, classes=classes, name=kept or table.path.stem, seed=seed, **options)
    made.extra.update(extra)
    return made


@dataclass
class _Table:
    """The contents of a file: features by row, and targets as text with their line numbers."""

    path: Path
    target: str
    names: list[str]
    values: array[float] = field(default_factory=lambda: array("d"))
    targets: list[tuple[int, str]] = field(default_factory=list)


def _lines(path: Path, delimiter: str) -> Iterator[Line]:
    """Yield (line number, cells) of every line that is not blank."""
    if not (isinstance(delimiter, str) and len(delimiter) == 1):
        raise BadInput(f"delimiter={shown(delimiter)} is not allowed; it is one character.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except OSError as error:
        raise BadInput(f"The file {shown(str(path))} cannot be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path.name} is not a CSV file in UTF-8: {error}.") from None


def _read(path: Path, target: int | str, header: str | bool, delimiter: str) -> _Table:
    """Read the file as numbers and targets; the first line determines the number of columns."""
    if not isinstance(header, (str, bool)) or header not in ("auto", True, False):
        raise BadInput(f'header={shown(header)} is not allowed; it is "auto", True or False.')
    lines = _lines(path, delimiter)
    first = next(lines, None)
    if first is None:
        raise BadInput(f"{path.name} is empty; it needs one line a sample.")
    width = len(first[1])
    if width < 2:
        raise BadInput(f"{path.name} has one column; it needs a target and at least one feature (delimiter=...?).")
    column = _target_column(path, target, header, first[1])
    features = [cell for i, cell in enumerate(first[1]) if i != column]
    named = isinstance(target, str) or header is True or (header == "auto" and any(map(_is_word, features)))
    names = first[1] if named else [f"column {i}" for i in range(width)]
    table = _Table(path, names[column], features if named else [])
    for number, cells in lines if named else chain([first], lines):
        if len(cells) != width:
            raise BadInput(f"{path.name}, line {number} has {len(cells)} cells; the first line has {width}.")
        table.targets.append((number, cells[column]))
        table.values.extend(_number(path, number, names[i], cells[i]) for i in range(width) if i != column)
    if not table.targets:
        raise BadInput(f"{path.name} has a header and no samples; it needs one line a sample.")
    return table


def _target_column(path: Path, target: int | str, header: str | bool, first: list[str]) -> int:
    """Return the index of the target's column, from 0."""
    if isinstance(target, str):
        if header is False:
            raise BadInput(f"target={shown(target)} is a name, but header=False; give the column's index, from 0.")
        if target not in first:
            raise nearest(f"column in {path.name}", target, first)
        return first.index(target)
    if isinstance(target, bool) or not isinstance(target, int) or not -len(first) <= target < len(first):
        last = len(first) - 1
        raise BadInput(f"target={shown(target)} is not allowed; {path.name} has columns 0 to {last} (-1 is the last).")
    return target % len(first)


def _is_word(cell: str) -> bool:
    """Whether the cell is neither empty nor a number."""
    return bool(cell) and _as_float(cell) is None


def _as_float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _number(path: Path, line: int, column: str, cell: str) -> float:
    """Return the cell as a finite number. Raises `BadInput` with file, line and column if it is not a finite number."""
    value = _as_float(cell)
    if value is None or not math.isfinite(value):
        raise BadInput(f"{path.name}, line {line}, {column!r}: {shown(cell)} is not allowed; it must be a finite number.")
    return value


def _labels(table: _Table) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return class ids (n,) int64, and the words that they stand for (empty if the file has numbers as labels)."""
    cells = [cell for _, cell in table.targets]
    values = [_as_float(cell) for cell in cells]
    if any(value is None for value in values):
        for line, cell in table.targets:
            if not cell:
                raise BadInput(f"{table.path.name}, line {line}, {table.target!r} is empty; it must be a label.")
        words, ids = np.unique(cells, return_inverse=True)
        if len(words) < 2:
            raise BadInput(
                f"{table.path.name}: {table.target!r} is {shown(str(words[0]))} in every line; a classification needs two labels."
            )
        return ids.astype(np.int64), tuple(str(word) for word in words)
    for (line, cell), value in zip(table.targets, values):
        if value is None or not (0 <= value < 2**53 and value == int(value)):
            raise BadInput(
                f"{table.path.name}, line {line}, {table.target!r}: {shown(cell)} is no label; labels are words or whole "
                "numbers from 0 on (for a regression: regression=True)."
            )
    return np.array(values, dtype=np.int64), ()
