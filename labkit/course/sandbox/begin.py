"""The script that the judge starts: `begin.py DESCRIPTOR SECONDS`, the processor time that each process may use (0: they
are not confined). It loads what a student's process may need, for later nothing can be opened any more, and then makes
such processes (`child.nursery`).

labkit is loaded in part: its packages are there by name only, because their `__init__` would bring in every strategy and
every collective, which have no business in this process.
"""

from __future__ import annotations

import importlib
import socket
import sys
import types
from pathlib import Path

PRELOADED = (
    "abc", "asyncio", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "graphlib", "inspect", "pprint", "queue", "timeit", "traceback", "numpy.ma", "numpy.typing",
    "fractions", "functools", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "textwrap", "threading", "types", "typing", "uuid", "warnings", "numpy.linalg", "numpy.random", "numpy.fft",
    "numpy.polynomial", "numpy.testing",
)  # fmt: skip
PARTS = ("", "roles", "engines", "course", "course.sandbox")


def main() -> None:
    """Load, then serve."""
    root = Path(__file__).resolve().parents[2]
    for part in PARTS:
        name = f"labkit.{part}".rstrip(".")
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*part.split(".")))]
    for name in PRELOADED:
        importlib.import_module(name)
    child = importlib.import_module("labkit.course.sandbox.child")
    child.nursery(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))


if __name__ == "__main__":
    main()
