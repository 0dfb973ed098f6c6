"""Startup time (imports, processes, roles, first update) and memory.

"From nothing" is measured from before the start of the interpreter. Private memory is the unique set size, summed over the
client, its workers and all other processes that were started, during training.
"""

from __future__ import annotations

import time

from .children import fresh
from .rows import Benchmark, Row, Settings, Side, Values, alternate

__all__ = ["BENCHMARK"]

RUN = "4 workers, 1 server, chief"


def run(settings: Settings) -> list[Row]:
    """Imports, then clusters, each time in a fresh process."""
    _imports()  # writes missing bytecode files
    sides = [Side("labkit", _imports)]
    return alternate(settings, "imports", sides) + alternate(settings, RUN, [Side("labkit", _first_update)])


def _imports() -> Values:
    return {(name, "s"): seconds for name, seconds in fresh("benchmarks.programs.imports").items()}


def _first_update() -> Values:
    began = time.monotonic()  # one clock for all processes of a machine
    told = fresh("benchmarks.programs.first_update", 4, 1)
    return {
        (f"{RUN}: from nothing to a ready cluster", "s"): told["ready"] - began,
        (f"{RUN}: from nothing to the first update", "s"): told["first_update"] - began,
        (f"{RUN}: private memory of all processes", "MB"): told["private_bytes"] / 1e6,
        (f"{RUN}: processes", "processes"): told["processes"],
    }


BENCHMARK = Benchmark("startup", "import time, time to the first update, memory", run)
