"""The list of benchmarks, in the order in which they run. The command line and the tables are derived from it."""

from __future__ import annotations

from . import (
    accuracy,
    binder,
    forecast,
    forecast_on_hosts,
    overlap,
    recording,
    recovery,
    round_trip,
    simulator,
    slow_worker,
    startup,
    throughput,
    torch_module,
    watching,
)
from .rows import Benchmark

BENCHMARKS: tuple[Benchmark, ...] = tuple(
    module.BENCHMARK
    for module in (
        throughput,
        accuracy,
        recording,
        watching,
        simulator,
        startup,
        binder,
        recovery,
        round_trip,
        slow_worker,
        overlap,
        torch_module,
        forecast,
        forecast_on_hosts,
    )
)
