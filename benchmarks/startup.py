"""Startup time (imports, processes, roles, first update) and memory.

Times begin when the process is started, before the interpreter starts. Private memory is the unique set size during
training, summed over the client, its workers and all other processes that were started.
"""

from __future__ import annotations

import time

from .rows import Benchmark, Row, Settings, Side, Values, alternate
from .subprocesses import run_program

RUN = "4 workers, 1 server, chief"


def run(settings: Settings) -> list[Row]:
    """Measure imports, then clusters, each time in a new process."""
    _imports()  # not counted: it writes missing bytecode files
    sides = [Side("labkit", _imports)]
    return alternate(settings, "imports", sides) + alternate(settings, RUN, [Side("labkit", _first_update)])


def _imports() -> Values:
    return {(name, "s"): seconds for name, seconds in run_program("benchmarks.programs.imports").items()}


def _first_update() -> Values:
    began = time.monotonic()  # one clock for all processes of a machine
    result = run_program("benchmarks.programs.first_update", 4, 1)
    return {
        (f"{RUN}: from process start to a ready cluster", "s"): result["ready"] - began,
        (f"{RUN}: from process start to the first update", "s"): result["first_update"] - began,
        (f"{RUN}: private memory of all processes", "MB"): result["private_bytes"] / 1e6,
        (f"{RUN}: processes", "processes"): result["processes"],
    }


BENCHMARK = Benchmark("startup", "import time, time to the first update, memory", run)
