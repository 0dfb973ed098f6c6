"""The process that the judge starts (by `isolated`): `main(DESCRIPTOR, SECONDS)`, the processor time that each process may use
(0: they are not confined). It loads what a student's process may need, for later nothing can be opened any more, and then
makes such processes (`child.nursery`). It ends when the other end of DESCRIPTOR is closed, as by the end of the judge.
"""

from __future__ import annotations

import importlib
import socket

PRELOADED = (
    "abc", "asyncio", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "graphlib", "inspect", "pprint", "queue", "timeit", "traceback", "numpy.ma", "numpy.typing",
    "fractions", "functools", "heapq", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "textwrap", "threading", "types", "typing", "uuid", "warnings", "numpy.linalg", "numpy.random", "numpy.fft",
    "numpy.polynomial", "numpy.testing",
)  # fmt: skip


def main(descriptor: str, processor_s: str) -> None:
    """Load, then serve."""
    for name in PRELOADED:
        importlib.import_module(name)
    child = importlib.import_module("labkit.course.sandbox.child")
    child.nursery(socket.socket(fileno=int(descriptor)), int(processor_s))
