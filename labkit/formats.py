"""Files that labkit reads: their contents are checked against a declared form before they are used.

A form is a plain value:

    int, float, str, bool     a value of this type; an `int` fits into 64 bits, a `float` may also be a whole number
    object                    anything
    None, 2, "text"           exactly this value
    [form]                    a list of any length
    (form, form)              a list of this length
    {"name": form}            a table with this field; "name?": the field may be missing; other fields are ignored
    {str: form}, {int: form}  a table with any names; with whole numbers as names
    Either(form, form)        one of these
    Number(low, high)         a finite number in this range; Number(low, high, int): a whole number
    ArrayForm(kinds, shape)   an array
    function                  a value for which the function does not raise `ValueError`

`check` compares a value with a form. `open_arrays` reads an `.npz` file: dtype and shape of every array, which are in a few bytes
at its beginning, are compared with the form before the memory for the array is allocated.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from .errors import BadInput, shown
from .paths import as_path, reason

# A form has no narrower type: an alias of plain values that refers to itself is not supported by all type checkers.
Form: TypeAlias = object

INT64 = 1 << 63
MAX_RATIO = 1032  # of deflate: no byte of an archive stands for more
MAX_TEXT = 1 << 28  # bytes of a JSON text in an archive
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", dict: "a table", list: "a list"}


class Mismatch(ValueError):
    """A value has not the declared form. The text names the field, and what it may be."""


class Either:
    """One of several forms. The error is that of the last form."""

    def __init__(self, *forms: Form):
        self.forms = forms


class Number(NamedTuple):
    """A number from `low` to `high`, both included; `kind`: `int` for whole numbers."""

    low: float
    high: float
    kind: type = float


class ArrayForm(NamedTuple):
    """An array. `kinds`: a dtype, or allowed `dtype.kind` letters. `shape`: lengths, None: any; None: any shape. `finite`:
    whether all its numbers are.
    """

    kinds: str | np.dtype | type[np.generic]
    shape: Sequence[int | None] | None = None
    finite: bool = False

    def declared(self, dtype: np.dtype, shape: Sequence[int]) -> str:
        """Return what is wrong with an array of this dtype and shape; "" if it fits."""
        kinds = self.kinds
        right = dtype.kind in kinds if isinstance(kinds, str) else dtype == np.dtype(kinds)
        lengths = self.shape
        if lengths is not None:
            right &= len(lengths) == len(shape) and all(due in (None, given) for due, given in zip(lengths, shape))
        if right:
            return ""
        due = f"an array of {f'kind {kinds}' if isinstance(kinds, str) else np.dtype(kinds)}"
        due += "" if lengths is None else f" and shape ({', '.join('any' if n is None else str(n) for n in lengths)})"
        return f"is an array of {dtype} and shape {tuple(shape)}, not {due}"


def check(value: object, form: Form, field: str = "") -> None:
    """Raise `Mismatch` if `value` has not this form. `field`: the name of the value in the message."""
    wrong = ""
    if isinstance(form, Either):
        wrong = _check_either(value, form.forms, field)
    elif isinstance(form, ArrayForm):
        wrong = _wrong_array(value, form)
    elif isinstance(form, Number):
        right = _is_a(value, form.kind) and form.low <= value <= form.high  # type: ignore[operator]
        kind = "whole number" if form.kind is int else "number"
        due = f"at least {form.low:g}" if form.high == math.inf else f"from {form.low:g} to {form.high:g}"
        wrong = "" if right else f"is {shown(value, 60)}, not a {kind}{',' if form.high == math.inf else ''} {due}"
    elif isinstance(form, type):
        wrong = "" if _is_a(value, form) else f"is {shown(value, 60)}, not {WORDS.get(form, form.__name__)}"
    elif isinstance(form, Mapping):
        wrong = _check_table(value, form, field)
    elif isinstance(form, (list, tuple)):
        wrong = _check_list(value, form, field)
    elif callable(form):
        try:
            form(value)
        except ValueError as error:
            raise Mismatch(f"{field}: {str(error).rstrip('.')}") from None
    elif type(value) is not type(form) or value != form:
        wrong = f"is {shown(value, 60)}, not {_word(form)}"
    if wrong:
        raise Mismatch(f"{field or 'the content'} {wrong}")


def _is_a(value: object, kind: type) -> bool:
    if kind is object:
        return True
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is int:
        return isinstance(value, int) and -INT64 <= value < INT64
    if kind is float:
        return isinstance(value, float) or (isinstance(value, int) and -INT64 <= value < INT64)
    return isinstance(value, kind)


def _wrong_array(value: object, form: ArrayForm) -> str:
    if not isinstance(value, np.ndarray):
        return f"is {shown(value, 60)}, not an array"
    wrong = form.declared(value.dtype, value.shape)
    if not wrong and form.finite and value.dtype.kind == "f" and not np.isfinite(value).all():
        return "has numbers that are not finite"
    return wrong


def _check_either(value: object, forms: Sequence[Form], field: str) -> str:
    if all(one is None or isinstance(one, (str, int)) for one in forms):
        right = any(type(value) is type(one) and value == one for one in forms)
        return "" if right else f"is {shown(value, 60)}, not one of {', '.join(map(_word, forms))}"
    for one in forms[:-1]:
        with contextlib.suppress(Mismatch):
            check(value, one, field)
            return ""
    check(value, forms[-1], field)
    return ""


def _word(value: Form) -> str:
    return "null" if value is None else shown(value)


def _check_table(value: object, form: Mapping[object, Form], field: str) -> str:
    if not isinstance(value, Mapping):
        return f"is {shown(value, 60)}, not a table"
    for key, inner in form.items():
        if isinstance(key, type):
            for name, each in value.items():
                if (
                    key is int
                    and not _is_a(name, int)
                    and not (isinstance(name, str) and name.removeprefix("-").isdecimal())
                ):
                    return f"has a field {shown(name, 60)}, whose name is not a whole number"
                check(each, inner, f"{field}.{name}" if field else str(name))
            continue
        name = str(key).removesuffix("?")
        if name in value:
            check(value[name], inner, f"{field}.{name}" if field else name)
        elif name == key:
            return f"has no field {name!r}"
    return ""


def _check_list(value: object, form: Sequence[Form], field: str) -> str:
    if not isinstance(value, (list, tuple)):
        return f"is {shown(value, 60)}, not a list"
    if isinstance(form, tuple) and len(value) != len(form):
        return f"has {len(value)} values, not {len(form)}"
    for i, each in enumerate(value):
        check(each, form[i if isinstance(form, tuple) else 0], f"{field}[{i}]")
    return ""


# versions -------------------------------------------------------------------------------------------------------------


def other_format(given: int, known: int, oldest: int | None = None) -> str:
    """Return in which format a file is, if this labkit does not read it; otherwise "". It writes the `known` format, and reads
    those from `oldest` on, too.
    """
    first = known if oldest is None else oldest
    if first <= given <= known:
        return ""
    made = "an older" if given < known else "a newer"
    read = f"format {known}" if first == known else f"formats {first} to {known}"
    return f"format {given}, made by {made} labkit; this one reads {read}"


def check_format(where: str, given: int, known: int, oldest: int | None = None) -> None:
    """Raise `BadInput` if a file, `where`, has a format that is not read, see `other_format`. Formats are not converted."""
    if wrong := other_format(given, known, oldest):
        raise BadInput(f"{where} has {wrong}.")


# JSON -----------------------------------------------------------------------------------------------------------------


def from_json(text: str | bytes, form: Form, where: str, what: str = "") -> object:
    """Return the value of a JSON text. Raises `BadInput` if it is not JSON, or has another form. `where`: the file, as the
    beginning of the message; `what`: what it should be.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{where} is damaged{f' or not {what}' if what else ''}: it is not JSON ({reason(error)})."
        ) from None
    check_json(where, value, form, what)
    return value


def check_json(where: str, value: object, form: Form, what: str = "") -> None:
    """Raise `BadInput` if a value that was read from a file has another form. `where`, `what`: see `from_json`."""
    try:
        check(value, form)
    except Mismatch as error:
        raise BadInput(f"{where} is damaged{f' or not {what}' if what else ''}: {error}.") from None


# arrays ---------------------------------------------------------------------------------------------------------------


class Arrays:
    """The arrays of an open `.npz` file of `size` bytes. `declared`: {name: (dtype, shape)}, from their headers. `ratio`: how
    many bytes of an array a byte of the file may stand for.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int, ratio: int):
        self._archive = archive
        self._fortran: dict[str, bool] = {}
        self.declared: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.compress_size > size or info.file_size > ratio * info.compress_size:
                raise Mismatch(f"{name} cannot have {info.file_size:,} bytes in a file of {size:,}")
            with archive.open(info) as member:
                shape, fortran, dtype = _header(member, name)
                if dtype.hasobject or not dtype.itemsize:
                    raise Mismatch(f"{name} is an array of {dtype}, not of numbers or text")
                if member.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
                    raise Mismatch(f"{name} has {info.file_size:,} bytes, which is not its shape {shape}")
            self.declared[name], self._fortran[name] = (dtype, shape), fortran

    def fits(self, name: str, form: ArrayForm) -> None:
        """Raise `Mismatch` if there is no array of this name and form. Reads nothing."""
        if name not in self.declared:
            raise Mismatch(f"it has no array {name!r}")
        if wrong := form.declared(*self.declared[name]):
            raise Mismatch(f"{name} {wrong}")

    def read(self, name: str, form: ArrayForm) -> np.ndarray:
        """Return an array. Raises `Mismatch` if it is missing or has another form, and `zipfile.BadZipFile` if its checksum is
        wrong.
        """
        self.fits(name, form)
        dtype, shape = self.declared[name]
        values = np.empty(shape, dtype)
        with self._archive.open(f"{name}.npy") as member:
            _header(member, name)
            left: Any = memoryview(values.reshape(-1).view(np.uint8).data) if values.size else b""
            while left and (count := member.readinto(left)):  # type: ignore[attr-defined]  # an io.BufferedIOBase
                left = left[count:]
            if left or member.read(1):  # reading to the end compares the checksum
                raise EOFError(f"{name} is truncated")
        if self._fortran[name]:
            values = values.reshape(shape[::-1]).transpose()
        if wrong := _wrong_array(values, form):
            raise Mismatch(f"{name} {wrong}")
        return values

    def read_json(self, name: str, form: Form) -> object:
        """Return the value of the JSON text in an array of bytes. Raises `Mismatch` if it has another form."""
        self.fits(name, ArrayForm(np.uint8, (None,)))
        if self.declared[name][1][0] > MAX_TEXT:
            raise Mismatch(f"{name} is a text of {self.declared[name][1][0]:,} bytes, not of at most {MAX_TEXT:,}")
        try:
            value = json.loads(self.read(name, ArrayForm(np.uint8)).tobytes())
        except (ValueError, RecursionError) as error:
            raise Mismatch(f"{name} is not JSON: {reason(error)}") from None
        check(value, form, name)
        return value


def _header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the header of an array. Returns (shape, whether it is stored column by column, dtype)."""
    try:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(member)
    except zipfile.BadZipFile:
        raise
    except Exception as error:  # NumPy evaluates the header as a literal, which raises almost anything
        raise Mismatch(f"{name} is not an array: {reason(error)}") from None
    if any(length < 0 for length in shape):
        raise Mismatch(f"{name} has the shape {shape}")
    return shape, fortran, dtype


@contextlib.contextmanager
def open_arrays(path: str | os.PathLike[str], what: str, ratio: int = MAX_RATIO) -> Iterator[Arrays]:
    """Open an `.npz` file. `what`: what it should be, as "a labkit trace". `ratio`: 1 if labkit writes such files uncompressed.

    If the block raises `Mismatch`, or the file cannot be read, `BadInput` is raised, whose message names the file.
    """
    name = as_path("path", path)
    try:
        with open(name, "rb") as file, zipfile.ZipFile(file) as archive:
            yield Arrays(archive, os.fstat(file.fileno()).st_size, ratio)
    except BadInput:
        raise
    except FileNotFoundError:
        raise BadInput(f"There is no file {shown(name)}.") from None
    except (OSError, EOFError, ValueError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{shown(name)} is damaged or not {what}: {reason(error)}.") from None
