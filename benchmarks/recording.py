"""The cost of recording: the same run with all rows and with counters only, on both engines."""

from __future__ import annotations

import functools

import labkit as lk

from .rows import Benchmark, Row, Settings, Side, Values, alternate
from .run_rate import Window, gradient_rate
from .simulator import updates_rate

OFF = "recording off"


def run(settings: Settings) -> list[Row]:
    """Measure AsyncPS on 2 Dask workers, then on 8 simulated workers."""
    window = Window(settings.choose(0.5, 0.1), settings.choose(3.0, 0.2))
    updates = int(settings.choose(50_000, 2_000))
    with lk.DaskCluster(workers=2, servers=1).open() as cluster:
        rows = alternate(settings, "on Dask", _on_and_off(functools.partial(_on_dask, cluster, window)), baseline=OFF)
    return rows + alternate(settings, "simulated", _on_and_off(functools.partial(_simulated, updates)), baseline=OFF)


def _on_and_off(measure: functools.partial[Values]) -> list[Side]:
    return [Side("recording on", functools.partial(measure, True)), Side(OFF, functools.partial(measure, False))]


def _on_dask(cluster: lk.DaskCluster, window: Window, record: bool) -> Values:
    strategy = lk.AsyncPS(learning_rate=0.01)
    rate = gradient_rate(lk.Problem("digits"), strategy, cluster.resized(record=record), window)
    return {("AsyncPS on Dask, 64-128-10, 2 workers", "updates/s"): rate}


def _simulated(updates: int, record: bool) -> Values:
    values = updates_rate(lk.SimulatedCluster(workers=8, record=record), updates)
    return {("AsyncPS simulated, timing only, 8 workers", "updates/s"): values["updates/s"]}


BENCHMARK = Benchmark("recording", "the cost of recording every span, message and application", run)
