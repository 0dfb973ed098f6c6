"""Data sets from a user's arrays or CSV file, checked completely before a run starts.

If `classes` is given, the targets are labels 0..classes-1. Otherwise integer targets are labels (the largest label
determines the number of classes), and floats are targets of a regression.
"""

from __future__ import annotations

import csv
import os
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..errors import BadInput, nearest, shown
from ..paths import as_path
from .cells import MISSING, Cells, label_ids
from .checks import (
    as_text_labels,
    by_name,
    check_classes,
    check_dtype,
    check_features,
    check_fraction,
    check_name,
    check_sample_weights,
    check_seed,
    check_targets,
    check_truth,
    feature_names,
)  # fmt: skip
from .dataset import Dataset, Subset, build, hold_out
from .mapped import MappedFile

Line = tuple[int, tuple[str, ...]]  # number of the line, from 1, and the cells of the targets
Target = int | str | Sequence[int | str]


@runtime_checkable
class Known(Protocol):
    """What a data set or a model knows about its features and classes."""

    @property
    def features(self) -> int: ...
    @property
    def feature_names(self) -> tuple[str, ...]: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def classes(self) -> int | None: ...


def from_arrays(
    x: ArrayLike | Mapping[str, Any],
    y: ArrayLike | None = None,
    *,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    sample_weights: ArrayLike | None = None,
    classes: int | Sequence[str] | None = None,
    regression: bool = False,
    like: Known | None = None,
    name: str = "arrays",
    seed: int = 0,
    test_fraction: float = 0.2,
    stratify: bool = False,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Make a data set from arrays, which are copied and checked.

    Beside the result, memory is needed for a part of the samples only.

    Parameters
    ----------
    x : array_like or Bunch
        The features, of shape (n, d); or samples of any shape, as pictures (n, height, width) or (n, height, width, 3), whose
        numbers become a row each (`sample_shape`). The names of a data frame's columns are kept (`feature_names`). Or all that a
        loader of scikit-learn returns, with the names of features and classes.
    y : array_like, optional
        The labels, integers or text of shape (n,); or, for a regression, floats of shape (n,) or (n, k): predictions have the
        same shape. Text becomes 0, 1, ... by the rule of `from_csv` (`class_names`).
    x_test, y_test : array_like, optional
        Held-out samples: both or neither. By default a part of the samples is held out at random.
    sample_weights : array_like, optional
        A weight for each sample of `x`, at least 0: a factor of its loss in gradients. They are scaled to mean 1 over the
        training samples. Losses on held-out samples have no weights.
    classes : int or sequence of str, optional
        The number of classes: the labels are from 0 to `classes` - 1. Or their names, in the order of the ids. By default the
        largest label determines the number, and floats are the targets of a regression.
    regression : bool, default: False
        Whether `y` holds numbers to be predicted, also if they are integers.
    like : Dataset or Predictor, optional
        The data set or the model for which the samples are: the columns of a data frame are found by their names, in any order,
        and the classes keep their ids.
    name : str, default: "arrays"
        The name of the data set.
    seed : int, default: 0
        Determines which samples are held out.
    test_fraction : float, default: 0.2
        The part of the samples that is held out, above 0 and below 1.
    stratify : bool, default: False
        Whether `test_fraction` is held out of every class, and not of all samples.
    standardize : bool, default: True
        Whether every feature, and every target of a regression, is shifted and scaled to mean 0 and standard deviation 1 of the
        training samples. `Dataset.raw_targets` and the predictions of the model undo it for targets; losses are those of the
        standardised ones.
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
        missing, out of range or not whole, an array is empty, values are not numbers, a column of `x_test` or `like` is missing,
        or the first column of a data frame numbers the rows (see `from_csv`).

    Warns
    -----
    UserWarning
        If no sample has one of the classes, as if labels count from 1; or if floats are a regression although they look like
        labels. `classes` or `regression` confirms it.

    See Also
    --------
    from_csv : Read a CSV file.
    from_npy : Leave samples in a .npy file that is large.
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
    made, remark = _made(
        x, y, x_test=x_test, y_test=y_test, sample_weights=sample_weights, classes=classes,
        regression=regression, like=like, name=name, seed=seed,
        test_fraction=test_fraction, stratify=stratify, standardize=standardize, dtype=dtype,
    )  # fmt: skip
    if remark:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return made


def from_npy(
    x: str | os.PathLike[str],
    y: str | os.PathLike[str] | ArrayLike,
    *,
    x_test: str | os.PathLike[str] | None = None,
    y_test: str | os.PathLike[str] | ArrayLike | None = None,
    sample_weights: str | os.PathLike[str] | ArrayLike | None = None,
    classes: int | Sequence[str] | None = None,
    regression: bool = False,
    like: Known | None = None,
    name: str | None = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    stratify: bool = False,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Make a data set from a .npy file of samples, which stay in the file.

    The file is mapped into memory and read twice, for checks, and for mean and deviation. Then every mini-batch is read from it
    when it is drawn, and standardised. So the samples may need more memory than there is; the targets, 16 to 40 bytes per
    sample, and the held-out samples of the process that evaluates are in memory.

    Parameters
    ----------
    x : str or path-like
        The file with the features, as ``np.save`` writes it: of shape (n, d), or samples of any shape, as in `from_arrays`.
    y : str, path-like or array_like
        The labels or targets, or their file; see `from_arrays`.
    x_test, y_test : optional
        Held-out samples, in the same form: both or neither. By default a part of the samples is held out at random.
    sample_weights : str, path-like or array_like, optional
        A weight for each sample of `x`, or their file; see `from_arrays`.
    classes : int or sequence of str, optional
        The number of classes, or their names, in the order of the ids. By default the largest label determines the number.
    regression : bool, default: False
        Whether `y` holds numbers to be predicted, also if they are integers.
    like : Dataset or Predictor, optional
        The data set or the model for which the samples are: the classes keep their ids.
    name : str, optional
        The name of the data set. By default that of the file.
    seed : int, default: 0
        Determines which samples are held out.
    test_fraction : float, default: 0.2
        The part of the samples that is held out, above 0 and below 1.
    stratify : bool, default: False
        Whether `test_fraction` is held out of every class, and not of all samples.
    standardize : bool, default: True
        Whether every feature, and every target of a regression, is shifted and scaled to mean 0 and standard deviation 1 of the
        training samples.
    dtype : {"float32", "float64"}, default: "float32"
        The type of the features, and of the targets of a regression, in a mini-batch. The file may have any type of numbers.

    Returns
    -------
    Dataset
        The same data set as that of `from_arrays`; but its `x_train` and `x_test` are not arrays: ``x_train[rows]`` and
        ``np.asarray(x_train)`` read samples from the file.

    Raises
    ------
    BadInput
        If a file cannot be read or mapped, or `from_arrays` would raise it. Later, if the file was changed.
    ClusterError
        If a process of a run has no such file, or another one: each maps the file itself, at the same path.

    See Also
    --------
    from_arrays : Copy arrays.
    from_dask : Use arrays that stay on a cluster.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> np.save("x.npy", x)
    >>> np.save("y.npy", (x[:, 0] > x[:, 1]).astype(int))
    >>> data = lk.from_npy("x.npy", "y.npy")
    >>> data.n_train, data.n_test, data.x_train[:3].shape
    (160, 40, (3, 2))
    """
    file = MappedFile("x", x)
    held_out = None if x_test is None else MappedFile("x_test", x_test)
    made, remark = _made(
        file, _loaded("y", y), x_test=held_out, y_test=_loaded("y_test", y_test),
        sample_weights=_loaded("sample_weights", sample_weights), classes=classes, regression=regression, like=like,
        name=Path(file.path).stem if name is None else name, seed=seed, test_fraction=test_fraction, stratify=stratify,
        standardize=standardize, dtype=dtype,
    )  # fmt: skip
    if remark:
        warnings.warn(remark, UserWarning, stacklevel=2)
    return made


def _loaded(what: str, values: Any) -> Any:
    """Return the array in the file `values`, or, if this is no path, `values`."""
    return np.array(MappedFile(what, values).array) if isinstance(values, str | os.PathLike) else values


def _made(
    x: Any, y: Any, *, name: Any, seed: Any, test_fraction: Any, stratify: Any, standardize: Any, dtype: Any, regression: Any,
    classes: Any, x_test: Any = None, y_test: Any = None, like: Known | None = None, sample_weights: Any = None,
) -> tuple[Dataset, str]:  # fmt: skip
    """Return the data set, and a remark on what is probably not meant, or ""."""
    kind, seed, fraction = check_dtype(dtype), check_seed(seed), check_fraction(test_fraction)
    name, standardize = check_name(name), check_truth("standardize", standardize)
    stratify, regression = check_truth("stratify", stratify), check_truth("regression", regression)
    known: tuple[str, ...] = ()
    files = [each if isinstance(each, MappedFile) else None for each in (x, x_test)]
    x, x_test = (file.array if file else each for each, file in zip((x, x_test), files))
    if y is None:
        x, y, known, classes = _unpacked(x, classes)
    classes, names = check_classes(classes)
    _check_kinds(regression, classes, stratify, x_test)
    if (x_test is None) != (y_test is None):
        raise BadInput("x_test and y_test belong together; give both or neither.")
    _check_like(like)
    if like is not None:
        x = by_name("x", x, like.feature_names)
        classes, names = (like.classes, like.class_names) if classes is None else (classes, names)
    columns = feature_names("x", x) or known
    frame: Any = x
    if (
        columns
        and not known
        and like is None
        and ROW_NUMBERS.fullmatch(columns[0])
        and _differ(list(map(str, frame[columns[0]])), Cells())
    ):
        raise BadInput(
            f"x: the column {shown(columns[0])} numbers the rows; leave it out, or, if it is a feature, rename it."
        )
    x_test = None if x_test is None else by_name("x_test", x_test, columns)
    words: tuple[str, ...] = ()
    if not regression:
        y, y_test, words = _ids(y, y_test, names)
        classes = len(words) or classes
    x, sample_shape = check_features("x", x, files[0])
    if like is not None and x.shape[1] != like.features:
        raise BadInput(f"x has {x.shape[1]} features; what was given as like=... has {like.features}.")
    y, labelled = check_targets("y", y, len(x), classes, regression)
    if stratify and not labelled:
        raise BadInput("stratify=True is for classes; the targets are numbers (a regression).")
    if x_test is None:
        train, test = hold_out(x, y, fraction, seed, stratify)
        files[1] = files[0]
    else:
        train, test = Subset.whole(x, y), _held_out(x, x_test, files[1], y, y_test, classes, labelled, regression)
    train, test = train._replace(file=files[0]), test._replace(file=files[1])
    remark = ""
    if labelled and classes is None:
        classes = _count_classes(train.targets, test.targets)
        remark = _classes_without_samples(classes, train.targets, test.targets)
    elif not labelled and not regression and like is None:
        remark = _perhaps_labels(y)
    about = f"{name}: {len(x)} samples handed in as arrays; source and licence are their owner's."
    extra = {"class_names": words, "feature_names": columns}
    options: dict[str, Any] = {"standardize": standardize, "dtype": kind, "sample_shape": sample_shape}
    made = build(
        name, train, test, classes, about=about, standardize_targets=standardize, **options,
        sample_weights=check_sample_weights(sample_weights, len(x), train.rows, kind),
        extra={k: v for k, v in extra.items() if v},
    )  # fmt: skip
    return made, remark


def _unpacked(x: Any, classes: Any) -> tuple[Any, Any, tuple[str, ...], Any]:
    """Return samples, targets, names of the features and names of the classes of what a loader of scikit-learn returns."""
    if not isinstance(x, Mapping) or not {"data", "target"} <= x.keys():
        raise BadInput(
            "y is missing; give from_arrays(x, y), or the Bunch of a loader of scikit-learn, which has `data` and `target`."
        )
    features, names = x.get("feature_names"), x.get("target_names")
    known = tuple(map(str, features)) if features is not None and not hasattr(x["data"], "columns") else ()
    if classes is None and names is not None and np.asarray(x["target"]).dtype.kind in "biu":
        classes = tuple(map(str, names))
    return x["data"], x["target"], known, classes


def _check_kinds(regression: bool, classes: object, stratify: bool, x_test: object) -> None:
    if regression and classes is not None:
        raise BadInput("regression=True and classes=... contradict each other; give one of them.")
    if stratify and x_test is not None:
        raise BadInput("stratify=True and x_test=... contradict each other; held-out samples are given already.")


def _classes_without_samples(classes: int, *labels: np.ndarray) -> str:
    """Return a remark if labels do not use all class ids, or ""."""
    count = sum(np.bincount(part, minlength=classes) for part in labels)
    absent = np.flatnonzero(count == 0)
    if not absent.size:
        return ""
    few = ", ".join(map(str, absent[:5])) + (", ..." if absent.size > 5 else "")
    remedy = (
        f"y - {int(np.argmax(count > 0))}"
        if absent[-1] < np.argmax(count > 0)
        else "np.unique(y, return_inverse=True)[1]"
    )
    return (
        f"y: the labels are ids from 0 to {classes - 1}, and no sample has {few}: {classes} classes. If there are fewer, number "
        f"them from 0 ({remedy}); if it is right, classes={classes}."
    )


def _perhaps_labels(y: np.ndarray) -> str:
    """Return a remark if floats look like labels, or ""."""
    if y.ndim != 1 or len(y) < 20 or not np.array_equal(y, np.floor(y)) or y.min() < 0:
        return ""
    values = np.unique(y)
    if len(values) > 10 or values[-1] >= 100:
        return ""
    few = ", ".join(f"{value:g}" for value in values)
    return (
        f"y holds floats, which are the targets of a regression, and only the values {few}. If they are labels, give "
        "y.astype(int); if they are not, regression=True."
    )


def _ids(y: Any, y_test: Any, names: tuple[str, ...]) -> tuple[Any, Any, tuple[str, ...]]:
    """Return y and y_test, in which labels that are text are replaced by ids, and the names of the classes."""
    given = {"y": as_text_labels("y", y), "y_test": as_text_labels("y_test", y_test)}
    texts = {what: cells for what, cells in given.items() if cells is not None}
    if not texts:
        return y, y_test, names
    if y_test is not None and len(texts) == 1:
        raise BadInput("y and y_test differ in kind; the labels of both are text, or of both numbers.")
    rows = [f"{what} at row {i} (counted from 0)" for what, cells in texts.items() for i in range(len(cells))]
    ids, words = label_ids([cell for cells in texts.values() for cell in cells], names, Cells(), rows.__getitem__, "y")
    first = len(texts["y"])
    return ids[:first], None if y_test is None else ids[first:], words


def _held_out(
    x: np.ndarray, x_test: Any, file: MappedFile | None, y: np.ndarray, y_test: Any, classes: int | None, labelled: bool,
    regression: bool,
) -> Subset:  # fmt: skip
    """Return the given test part. Raises `BadInput` unless it has the same kind and width as the training part."""
    x_test, _ = check_features("x_test", x_test, file)
    if x_test.shape[1] != x.shape[1]:
        raise BadInput(f"x_test has {x_test.shape[1]} features and x has {x.shape[1]}; both must have the same number.")
    y_test, also_labelled = check_targets("y_test", y_test, len(x_test), classes, regression)
    if not labelled and not also_labelled and y_test[0].size == y[0].size:
        y_test = y_test.reshape(len(y_test), *y.shape[1:])
    if also_labelled != labelled or y_test.shape[1:] != y.shape[1:]:
        raise BadInput("y and y_test differ in kind; both are whole-number labels, or both floats of the same width.")
    return Subset.whole(x_test, y_test)


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


def _check_like(like: object) -> None:
    if like is not None and (isinstance(like, type) or not isinstance(like, Known)):
        raise BadInput(f"like={shown(like)} is not allowed; it is a data set or a model.")


def from_csv(
    path: str | os.PathLike[str],
    *,
    target: int | str | Sequence[int | str] = -1,
    sample_weights: int | str | None = None,
    header: str | bool = "auto",
    classes: int | Sequence[str] | None = None,
    like: Known | None = None,
    missing: Sequence[str] = MISSING,
    regression: bool = False,
    delimiter: str = ",",
    name: str | None = None,
    seed: int = 0,
    test_fraction: float = 0.2,
    stratify: bool = False,
    standardize: bool = True,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Make a data set from a CSV file in UTF-8.

    The file has one sample per line, one column of targets or several, and numbers in all other columns.

    Parameters
    ----------
    path : str or path-like
        The file.
    target : int, str or sequence of them, default: -1
        The column of labels (or of numbers, for a regression), by index or by its name in the header. A list of columns is for a
        regression, with targets of shape (n, k).
    sample_weights : int or str, optional
        The column with a weight for each sample, by index or by its name; see `from_arrays`. It is no feature.
    header : bool or "auto", default: "auto"
        Whether the first line is a header. "auto": see the notes.
    classes : int or sequence of str, optional
        The number of classes, or their names in the order of the ids. By default the labels determine them.
    like : Dataset or Predictor, optional
        The data set or the model for which the file is read: its columns are found by their names, in any order, and its classes
        keep their ids. Other columns are ignored.
    missing : sequence of str, optional
        The texts that mean that a value is missing, in any case of letters. An empty cell always does. By default those that
        pandas knows (NA, N/A, NaN, null, None, #N/A, ...), "?" and ".".
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
    stratify : bool, default: False
        Whether `test_fraction` is held out of every class, and not of all samples.
    standardize : bool, default: True
        Whether every feature, and every target of a regression, is shifted and scaled to mean 0 and standard deviation 1 of the
        training samples. `Dataset.raw_targets` and the predictions of the model undo it for targets; losses are those of the
        standardised ones.
    dtype : {"float32", "float64"}, default: "float32"
        The type of the features, and of the targets of a regression.

    Returns
    -------
    Dataset
        The data set, for `Problem(data=...)`. Its `class_names` are the words of the labels, its `feature_names` those of the
        header.

    Raises
    ------
    BadInput
        If the file cannot be read, a cell is missing or not allowed, or a column of `like` does not exist. The message has the
        line, from 1, and the column.

    Warns
    -----
    UserWarning
        If the first column numbers the lines and is left out, or if the first line is taken as a header by its target only.

    Notes
    -----
    *A cell* is missing (`missing`), a number (digits with sign, point and exponent; True and False are 1 and 0), or a word.

    *A label* is a word, or a whole number from 0 on, which is the class id itself. If one label is a word, all are, and the words
    get the ids 0, 1, ... in sorted order, or in the order of `classes`. Missing labels and missing features are errors.

    *A header* is a first line in which a feature is a word, or in which the target is a word while all other targets are numbers,
    or a word that is nowhere else in its column while another label is there twice (with a warning). A header of numbers only has
    to be announced: ``header=True``.

    *A row number* is no feature. The first column is left out, with a warning, if it has no name, or one of "id", "index",
    "level_0", "row" and "Unnamed: 0", and its cells are whole numbers or words, all different, or ascending numbers. In a file
    without a header it is left out if it counts 0, 1, 2, ... or 1, 2, 3, ...

    Examples
    --------
    >>> from pathlib import Path
    >>> lines = ["length,width,kind", "5.1,3.5,setosa", "6.2,3.4,virginica", "5.9,3,virginica"]
    >>> _ = Path("iris.csv").write_text("\\n".join(lines))
    >>> data = lk.from_csv("iris.csv", test_fraction=0.3)
    >>> data.class_names, data.feature_names
    (('setosa', 'virginica'), ('length', 'width'))
    """
    kept, rule = None if name is None else check_name(name), Cells(missing)
    regression = check_truth("regression", regression)
    count, names = check_classes(classes)
    _check_like(like)
    if like is not None:
        count, names = (count, names) if classes is not None else (like.classes, like.class_names)
        regression = regression or like.classes is None
    if regression and classes is not None:
        raise BadInput("regression=True and classes=... contradict each other; give one of them.")
    several = isinstance(target, (list, tuple))
    if several and not regression:
        raise BadInput(
            f"target={shown(target)} has several columns, which only a regression has: give regression=True, or one column."
        )
    table = _read(_local(path), target, sample_weights, header, delimiter, rule, like)
    extra: dict[str, Any] = {"feature_names": table.features} if table.features else {}
    if regression:
        rows = ((line, *cell) for line, cells in table.targets for cell in zip(table.names, cells))
        y = np.array([_number(rule, table.path, *row) for row in rows])
        y = y.reshape(-1, len(table.names)) if several else y
    else:
        lines = [line for line, _ in table.targets]
        y, names = label_ids(
            [cells[0] for _, cells in table.targets], names, rule,
            lambda i: f"{table.path.name}, line {lines[i]}, {table.names[0]!r}", f"{table.path.name}: {table.names[0]!r}",
        )  # fmt: skip
        if names:
            extra["class_names"] = names
            count = len(names) if count is None else count
    options: dict[str, Any] = {
        "test_fraction": test_fraction, "stratify": stratify, "standardize": standardize, "dtype": dtype,
        "regression": regression, "sample_weights": table.weights,
    }  # fmt: skip
    made, remark = _made(table.x, y, classes=count, name=kept or table.path.stem, seed=seed, **options)
    made.extra.update(extra)
    remarks = [*table.remarks, remark] if remark else table.remarks
    for remark in remarks:
        warnings.warn(f"{table.path.name}: {remark}", UserWarning, stacklevel=2)
    return replace(made, about=" ".join([made.about, *(f"{remark[0].upper()}{remark[1:]}" for remark in remarks)]))


# names of columns that number the lines; level_0, level_1 ... are the index of a data frame with several levels
ROW_NUMBERS = re.compile(r"(id|index|level_\d|row|unnamed: \d[.\d]*|)", re.IGNORECASE)
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "ZIP or Excel",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


class _Table(NamedTuple):
    """The contents of a file: features by row, and targets as text with their line numbers. `names`: of the targets.
    `features`: their names, empty without a header. `remarks`: sentences on what was decided. `weights`: of the samples.
    """

    path: Path
    names: tuple[str, ...]
    features: tuple[str, ...]
    x: np.ndarray
    targets: list[Line]
    remarks: list[str]
    weights: np.ndarray | None


def _local(path: str | os.PathLike[str]) -> Path:
    text = as_path("path", path)
    if re.match(r"[a-zA-Z][\w+.-]+://", text):
        raise BadInput(f"{shown(text)} is a URL; from_csv reads local files: download it first.")
    return Path(text)


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line that is not blank."""
    if not (isinstance(delimiter, str) and len(delimiter) == 1):
        raise BadInput(f"delimiter={shown(delimiter)} is not allowed; it is one character.")
    try:
        with path.open("rb") as file:
            start = file.read(8)
        if kind := next((kind for magic, kind in COMPRESSED.items() if start.startswith(magic)), ""):
            raise BadInput(
                f"{path.name} is compressed ({kind}), and no CSV file; decompress it, or save it as CSV, first."
            )
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, [cell.strip() for cell in cells]
    except OSError as error:
        raise BadInput(f"The file {shown(str(path))} cannot be read: {error.strerror or error}.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path.name} is not a CSV file in UTF-8: {error}; save it as UTF-8.") from None


def _read(
    path: Path, target: Target, sample_weights: int | str | None, header: str | bool, delimiter: str, rule: Cells,
    like: Known | None,
) -> _Table:  # fmt: skip
    """Read the file as numbers and targets; the first line determines the number of columns."""
    if not isinstance(header, (str, bool)) or header not in ("auto", True, False):
        raise BadInput(f'header={shown(header)} is not allowed; it is "auto", True or False.')
    lines = _lines(path, delimiter)
    first = next(lines, None)
    if first is None:
        raise BadInput(f"{path.name} is empty; it needs one line a sample.")
    width = len(first[1])
    if width < 2:
        other = next((mark for mark in ";\t|," if mark in first[1][0]), "...")
        raise BadInput(
            f"{path.name} has one column; it needs a target and at least one feature (delimiter={other!r}?)."
        )
    given = list(target) if isinstance(target, (list, tuple)) else [target]
    columns = [_column_index(path, "target", one, header, first[1]) for one in given]
    others = columns
    if sample_weights is not None:
        others = [*columns, _column_index(path, "sample_weights", sample_weights, header, first[1])]
        given.append(sample_weights)
    if not columns or not len({*others}) == len(others) < width:
        also = "" if sample_weights is None else f" with sample_weights={shown(sample_weights)}"
        raise BadInput(
            f"target={shown(target)}{also} is not allowed; give one column or several different ones, and leave at least one."
        )
    wanted, remarks = like.feature_names if like is not None else (), []
    named = any(isinstance(one, str) for one in given) or header is True
    if header == "auto" and not named:
        named = bool(wanted) and {*wanted} <= {*first[1]}
        if not named:
            named, remark = _is_header(first[1], columns[0], _column(path, delimiter, columns[0]), rule)
            remarks += [remark] if remark else []
    names = _column_names(path, first[1]) if named else [f"column {i}" for i in range(width)]
    features = [i for i in range(width) if i not in others]
    if wanted:
        features = [_index(path, names, name, named) for name in wanted]
    # the first that is left
    while not wanted and features[0] == width - len(others) - len(features) and (named or len(features) > 1):
        name = first[1][features[0]]
        if named and not ROW_NUMBERS.fullmatch(name):
            break
        cells = _column(path, delimiter, features[0])
        if not (_differ(cells, rule) if named else _counts_lines([name, *cells], rule)):
            break
        what = f"the column {shown(name)}" if named and name else "the first column"
        if len(features) == 1:
            raise BadInput(f"{path.name}: {what} numbers the lines, and there is no other feature.")
        remarks.append(
            f"{what} numbers the lines and is left out; if it is a feature, name it otherwise in the header."
        )
        del features[0]
    if like is not None and len(features) != like.features:
        raise BadInput(f"{path.name} has {len(features)} features; what was given as like=... has {like.features}.")
    targets: list[Line] = []
    values: array[float] = array("d")
    weights: array[float] = array("d")
    for number, cells in lines if named else chain([first], lines):
        if len(cells) != width:
            raise BadInput(f"{path.name}, line {number} has {len(cells)} cells; the first line has {width}.")
        targets.append((number, tuple(cells[i] for i in columns)))
        values.extend(_number(rule, path, number, names[i], cells[i]) for i in features)
        weights.extend(_number(rule, path, number, names[i], cells[i]) for i in others[len(columns) :])
    if not targets:
        raise BadInput(f"{path.name} has a header and no samples; it needs one line a sample.")
    if weights and min(weights) < 0:
        i = weights.index(min(weights))
        raise BadInput(
            f"{path.name}, line {targets[i][0]}, {names[others[-1]]!r}: {weights[i]:g} is not allowed; a weight is at least 0."
        )
    x = np.frombuffer(values, dtype=np.float64).reshape(len(targets), len(features))
    return _Table(
        path, tuple(names[i] for i in columns), tuple(names[i] for i in features) if named else (), x, targets, remarks,
        np.array(weights) if sample_weights is not None else None,
    )  # fmt: skip


def _column(path: Path, delimiter: str, i: int) -> list[str]:
    """Return a column without its first cell, as text."""
    return [cells[i] if i < len(cells) else "" for _, cells in _lines(path, delimiter)][1:]


def _is_header(first: list[str], column: int, others: list[str], rule: Cells) -> tuple[bool, str]:
    """Return whether the first line is a header, and a remark if that is not certain. `others`: the targets of other lines."""
    if any(rule.word(cell) for i, cell in enumerate(first) if i != column):
        return True, ""
    if first == ["", *map(str, range(len(first) - 1))]:  # a data frame without names, with its index
        return True, ""
    name, counts = first[column], Counter(cell for cell in others if not rule.missing(cell))
    if (
        not counts
        or name in counts
        or not rule.word(name)
        or len({*first}) < len(first)
        or any(map(rule.missing, first[1:]))
    ):
        return False, ""
    if not any(map(rule.word, counts)):
        return True, ""
    remark = (
        f"the first line is taken as a header, because {shown(name)} is no label of another line; give header=True to confirm "
        "it, or header=False if it is a sample."
    )
    return (True, remark) if max(counts.values()) > 1 else (False, "")


def _column_names(path: Path, header: list[str]) -> list[str]:
    """Return the names of the columns. A column without a name gets "column i"."""
    names = [name or f"column {i}" for i, name in enumerate(header)]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInput(f"{path.name} has two columns {shown(twice)}; give them different names.")
    return names


def _index(path: Path, names: list[str], name: str, named: bool) -> int:
    if not named:
        raise BadInput(
            f"{path.name} has no header, and like=... finds features by their names; give header=True if it has one."
        )
    if name not in names:
        raise nearest(f"column in {path.name}", name, names, "It is a feature of what was given as like=...")
    return names.index(name)


def _differ(cells: list[str], rule: Cells) -> bool:
    """Return whether the cells of a column can be numbers or names of lines: no two are alike, and if they are fractions, they
    are ascending.
    """
    if any(map(rule.missing, cells)) or len({*cells}) < len(cells):
        return False
    numbers = [value for value in map(rule.number, cells) if value is not None]
    ascending = len(numbers) == len(cells) and all(a < b for a, b in pairwise(numbers))
    return ascending or all(value == int(value) for value in numbers)


def _counts_lines(cells: list[str], rule: Cells) -> bool:
    """Return whether a column without a name counts 0, 1, 2, ... or 1, 2, 3, ..."""
    values = [rule.number(cell) for cell in cells]
    return len(values) > 2 and any(values == [start + i for i in range(len(values))] for start in (0.0, 1.0))


def _column_index(path: Path, what: str, target: object, header: str | bool, first: list[str]) -> int:
    """Return the index of a column, from 0, that the argument `what` names."""
    if isinstance(target, str):
        if header is False:
            raise BadInput(f"{what}={shown(target)} is a name, but header=False; give the column's index, from 0.")
        if target not in first:
            raise nearest(f"column in {path.name}", target, first)
        return first.index(target)
    if isinstance(target, bool) or not isinstance(target, int) or not -len(first) <= target < len(first):
        last = len(first) - 1
        raise BadInput(f"{what}={shown(target)} is not allowed; {path.name} has columns 0 to {last} (-1 is the last).")
    return target % len(first)


def _number(rule: Cells, path: Path, line: int, column: str, cell: str) -> float:
    """Return the cell as a finite number. Raises `BadInput` with file, line and column if it is not a finite number."""
    value = rule.number(cell)
    if value is None:
        hint = ""
        if rule.missing(cell):
            hint = (
                ", which means missing: leave the sample out, or fill the value in" if cell else ": fill the value in"
            )
        elif re.fullmatch(r"[+-]?[\d.]+,\d+", cell):
            hint = ", with a point instead of the decimal comma"
        raise BadInput(
            f"{path.name}, line {line}, {column!r}: {shown(cell)} is not allowed; it must be a finite number{hint}."
        )
    return value
