"""Prints import times in seconds. Each is the additional time after the previous imports (or the start of Python)."""

from __future__ import annotations

import json
import time
from typing import Any

NAMES = {
    "names of a simulated run, beyond that": ("train", "Problem", "Budget", "AsyncPS", "SimulatedCluster"),
    "names of a Dask run, beyond that": ("DaskCluster",),
}


def _main() -> None:
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        seconds[name], began = now - began, now

    import numpy  # noqa: F401

    lap("import numpy")
    import labkit

    lap("import labkit, beyond numpy")
    for what, names in NAMES.items():
        _: list[Any] = [getattr(labkit, name) for name in names]
        lap(what)
    print(json.dumps(seconds))


if __name__ == "__main__":
    _main()
