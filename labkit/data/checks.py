"""Checks of data. The message of an error is one sentence: what is wrong, where, and what is allowed.

Rows and columns are counted from 0, as in NumPy; lines of a file from 1, as in editors.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import BadInput, nearest, shown
from ..options import as_number, as_numbers
from .mapped import MappedFile

DTYPES = ("float32", "float64")


def check_whole(name: str, value: Any, low: int) -> int:
    """Return `value` as an int. Raises `BadInput` unless it is a whole number, at least `low` and below 2**63."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or number < low or number >= 2**63:
        raise BadInput(
            f"{name}={shown(value)} is not allowed; {name} is a whole number, at least {low} and below 2**63."
        )
    return number


def check_seed(seed: Any) -> int:
    """Return the seed as an int. Raises `BadInput` unless it is a whole number, at least 0."""
    return check_whole("seed", seed, 0)


def check_classes(classes: Any) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of classes, or None, and their names, if they have names. Raises `BadInput` unless `classes` is None, a
    whole number, at least 2, or at least two names.
    """
    if not isinstance(classes, (list, tuple)) and not (isinstance(classes, np.ndarray) and classes.ndim == 1):
        return (None if classes is None else check_whole("classes", classes, 2)), ()
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) < len(names) or not all(isinstance(name, str) for name in classes):
        raise BadInput(f"classes={shown(classes)} is not allowed; it is a number, or at least two different names.")
    return len(names), names


def check_class_weights(given: Any) -> str | tuple[float, ...] | dict[str, float] | None:
    """Return class weights as None, "balanced", a tuple, or a dict whose keys are text. Raises `BadInput` unless they are finite
    numbers from 0 on, and one of them is above 0.
    """
    if given is None or (isinstance(given, str) and given == "balanced"):
        return given
    named = isinstance(given, Mapping)
    listed = given if isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.ndim == 1) else ()
    values = [as_number(value) for value in (given.values() if named else listed)]
    if (
        not values
        or not all(value is not None and math.isfinite(value) and value >= 0 for value in values)
        or not any(values)
    ):
        raise BadInput(
            f"class_weights={shown(given)} is not allowed; it is 'balanced', a number for each class, or numbers by class, as "
            "{'spam': 5}: finite numbers from 0 on, one above 0."
        )
    weights = [float(value) for value in values if value is not None]
    return dict(zip(map(str, given), weights)) if named else tuple(weights)


def check_sample_weights(weights: Any, samples: int, rows: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray | None:
    """Return the weights of the training samples `rows`, with mean 1, read-only. Raises `BadInput` unless there is a
    finite weight from 0 on for each of the `samples`, and one of the training samples has a weight above 0.
    """
    if weights is None:
        return None
    given = as_numbers("sample_weights", weights)
    if given.shape != (samples,):
        raise BadInput(
            f"sample_weights has shape {given.shape}; one number for each sample is needed, shape ({samples},)."
        )
    _refuse_nonfinite("sample_weights", given)
    if given.min() < 0:
        row = int(np.argmin(given))
        raise BadInput(f"sample_weights is {given[row]} at row {row} (counted from 0); a weight is at least 0.")
    chosen = np.asarray(given[rows], np.float64)
    largest = chosen.max()
    if not largest:
        raise BadInput("sample_weights: no training sample has a weight above 0.")
    chosen = chosen / largest
    made: np.ndarray = (chosen / chosen.mean()).astype(dtype)
    made.flags.writeable = False
    return made


def class_factors(
    given: str | tuple[float, ...] | Mapping[str, float], names: tuple[str, ...], counts: np.ndarray
) -> tuple[float, ...]:
    """Return the factor of each class for checked weights. The mean over the training samples is 1, so that a learning rate
    means the same with and without weights. "balanced": all classes weigh the same. Classes not in a mapping have weight 1.

    `names`: of the classes, or (). `counts`: the training samples of each class. Raises `BadInput` if there is no such class, or
    if no training sample has a weight.
    """
    if isinstance(given, str):
        weights = np.divide(1.0, counts, out=np.zeros(len(counts)), where=counts > 0)
    elif isinstance(given, Mapping):
        known = names or tuple(map(str, range(len(counts))))
        weights = np.ones(len(counts))
        for name, weight in given.items():
            if name not in known:
                raise nearest("class", name, known, "class_weights has it.")
            weights[known.index(name)] = weight
    else:
        if len(given) != len(counts):
            raise BadInput(f"class_weights has {len(given)} numbers for {len(counts)} classes; one for each is needed.")
        weights = np.array(given)
    total = float(weights @ counts)
    if not total:
        raise BadInput(f"class_weights={shown(given)}: no training sample has a class with a weight above 0.")
    return tuple((weights * (counts.sum() / total)).tolist())


def feature_names(what: str, x: Any) -> tuple[str, ...]:
    """Return the names of the columns of a data frame; empty if `x` is not one, or its columns are numbered. Raises `BadInput` if
    two columns have the same name.
    """
    names = tuple(getattr(x, "columns", ()))
    if not names or not all(isinstance(name, str) for name in names):
        return ()
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise BadInput(f"{what} has two columns {shown(twice)}; give them different names.")
    return names


def by_name(what: str, x: Any, names: tuple[str, ...]) -> Any:
    """Return the columns `names` of `x`, in this order, if `x` is a data frame with names; else `x` itself. Raises `BadInput` if
    a column is missing.
    """
    given = feature_names(what, x) if names else ()
    if not given or given == names:
        return x
    for name in names:
        if name not in given:
            raise nearest(f"column in {what}", name, given, f"The features are {', '.join(names)}.")
    return x[list(names)]


def check_fraction(test_fraction: Any) -> float:
    """Return the held-out fraction. Raises `BadInput` unless it is above 0 and below 1."""
    fraction = as_number(test_fraction)
    if fraction is None or not 0.0 < fraction < 1.0:
        raise BadInput(f"test_fraction={shown(test_fraction)} is not allowed; it is a number above 0 and below 1.")
    return float(fraction)


def check_truth(name: str, value: Any) -> bool:
    """Return True or False. Raises `BadInput` unless `value` is a boolean of Python or NumPy."""
    if not isinstance(value, (bool, np.bool_)):
        raise BadInput(f"{name}={shown(value)} is not allowed; it is True or False.")
    return bool(value)


def check_name(name: Any) -> str:
    """Return the name of a data set. Raises `BadInput` unless it is a line of text, at most 200 characters."""
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        raise BadInput(
            f"name={shown(name)} is not allowed; a data set's name is a line of text, at most 200 characters."
        )
    return name


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `float32` or `float64` as a NumPy dtype. Raises `BadInput` for any other name or dtype."""
    try:
        found = np.dtype(dtype)
    except Exception:  # NumPy parses text as a dtype expression, which raises almost anything
        found = np.dtype(object)
    if found.name not in DTYPES:
        raise BadInput(f"dtype={shown(dtype)} is not allowed; allowed: {', '.join(DTYPES)}.")
    return found


def first_bad(x: np.ndarray) -> tuple[tuple[int, ...], float] | None:
    """Return the index and the value of the first NaN or infinity, in row order; None if all values are finite.

    `x`: any shape, real. The sum is checked first because it is almost always finite, and needs no array of booleans.
    """
    if x.dtype.kind != "f":
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(x)):
            return None
    bad = ~np.isfinite(x)
    if not bad.any():
        return None
    place = np.unravel_index(int(np.argmax(bad)), x.shape)
    return tuple(int(p) for p in place), float(x[place])


def _refuse_nonfinite(what: str, x: np.ndarray) -> None:
    found = first_bad(x)
    if found:
        (row, *column), value = found
        where = f"row {row}" + (f", column {column[0]}" if column else "")
        remedy = f": leave such samples out, or fill the values in, as {what}.fillna({what}.mean()) in pandas"
        missing = remedy if value != value else ""
        raise BadInput(f"{what} is {value} at {where} (counted from 0); every value must be finite{missing}.")


def check_features(what: str, x: Any, file: MappedFile | None = None) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return `x` as an array (n, d), and the shape of a sample, () if it is a row.

    x: (n, d), or samples of any shape, which are flattened row by row. `file`: in which x is. Raises `BadInput` if the shape is
    another, the array is empty, the dtype is not numeric, or a value is NaN or infinite (the message names the first such
    value).
    """
    array = as_numbers(what, x)
    if array.ndim < 2:
        hint = f": give {what}[:, None] if there is one feature" if array.ndim == 1 else ""
        raise BadInput(
            f"{what} has shape {array.shape}; it must be (samples, features), or samples of any shape, as (samples, height, "
            f"width){hint}."
        )
    if array.size == 0:
        raise BadInput(f"{what} is empty, shape {array.shape}; it needs at least one sample and one feature.")
    sample_shape = tuple(map(int, array.shape[1:])) if array.ndim > 2 else ()
    array = array.reshape(len(array), -1)
    if file is None or not np.isfinite(file.bounds).all():
        _refuse_nonfinite(what, array)
    return array, sample_shape


def label_error(labels: np.ndarray, classes: int | None) -> tuple[int, str] | None:
    """Return row and error of the first label that is not a whole number in 0..classes-1; None if all labels are valid.

    labels: (n,) real. `classes=None` allows any whole number that is at least 0.
    """
    allowed = f"labels are whole numbers from 0 to {classes - 1}" if classes else "labels are whole numbers from 0 on"
    bad = labels < 0
    if classes is not None:
        bad |= labels >= classes
    if labels.dtype.kind == "f":
        bad |= ~np.isfinite(labels) | (labels != np.floor(labels))
    if not bad.any():
        return None
    row = int(np.argmax(bad))
    return row, f"{labels[row]}; {allowed}"


def as_text_labels(what: str, y: Any) -> list[str] | None:
    """Return labels that are text as a list, in which a missing one is empty; None if `y` (n,) holds no text. Raises `BadInput`
    if they are in several columns.
    """
    if type(y).__module__.startswith(("scipy.sparse", "dask.")) or np.ma.isMaskedArray(y):
        return None
    try:
        array = np.asarray(y)
    except (TypeError, ValueError, RuntimeError):  # `as_numbers` has the message
        return None
    if array.dtype.kind not in "UO" or not any(isinstance(label, str) for label in array.flat):
        return None
    if array.ndim != 1:
        raise BadInput(
            f"{what} has dtype {array.dtype} and shape {array.shape}; labels that are text have the shape (samples,): give one "
            f"column of {what}."
        )
    return ["" if _is_missing(label) else str(label).strip() for label in array]


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def check_targets(
    what: str, y: Any, samples: int, classes: int | None, regression: bool = False
) -> tuple[np.ndarray, bool]:
    """Return (`y` as int64 labels (n,), True) or (`y` as targets, (n,) or (n, k), False).

    If `classes` is given, y must be labels. Otherwise integers and booleans are labels unless `regression`, and floats are
    targets of a regression. Raises `BadInput` if the shape, the length or a value is wrong.
    """
    array = as_numbers(what, y)
    if array.ndim not in (1, 2) or array.size == 0:
        raise BadInput(f"{what} has shape {array.shape}; it must be ({samples},), or ({samples}, k) for a regression.")
    if len(array) != samples:
        raise BadInput(f"{what} has {len(array)} rows for {samples} samples; both must have the same number.")
    if regression or (classes is None and array.dtype.kind == "f"):
        _refuse_nonfinite(what, array)
        return array, False
    if array.ndim != 1:
        several = f"{what}.argmax(axis=1) if there is a column for each class; floats for a regression"
        raise BadInput(
            f"{what} has shape {array.shape}; labels are one whole number a sample, shape ({samples},): give "
            f"{f'{what}[:, 0]' if array.shape[1] == 1 else several}."
        )
    error = label_error(array, classes)
    if error:
        raise BadInput(f"{what} at row {error[0]} (counted from 0) is {error[1]}.")
    return array.astype(np.int64), True
