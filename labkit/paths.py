"""Paths as users give them."""

from __future__ import annotations

import os
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


def reason(error: BaseException) -> str:
    """Return the cause of an error as text, for a message that already contains the path."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text if len(text) <= 300 else f"{text[:200]}..."
