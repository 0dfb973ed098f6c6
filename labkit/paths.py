"""Paths as users give them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .errors import BadInput, shown


def as_path(name: str, given: Any) -> str:
    """Return the path `given`, text or an `os.PathLike`, as text. Raises `BadInput`, with the argument's `name`, if no file or
    folder can have this path.

    The file system is not accessed: the path need not exist.
    """
    try:
        path = os.fspath(given)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise BadInput(f"{name}={shown(given)} is not allowed; give a path, as text or a pathlib.Path.")
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise BadInput(f"{name}={shown(given)} is not allowed; no file or folder can have a name with such characters.")
    return path


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Return a context in which the file `path` is written. Raises `BadInput`, which names it, instead of `OSError`."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{shown(str(path))} cannot be written: {reason(error)}.") from None


def reason(error: BaseException) -> str:
    """Return the cause of an error as text, for a message that already contains the path."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if len(text) <= 300 else f"{text[:200]}..."
