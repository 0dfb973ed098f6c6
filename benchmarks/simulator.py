"""Virtual time in wall time: how many updates of a timing-only run are simulated in a second, 8 to 10,000 workers.

AsyncPS, recording on. Setting the roles up is timed apart, so that the rates of few and of many workers can be
compared. The rate per second of processor time is the one to look at where others use the machine, too.
"""

from __future__ import annotations

import functools
import time

import labkit as lk

from .rows import Benchmark, Row, Settings, Side, Values, alternate

__all__ = ["BENCHMARK", "updates_rate"]

SIZES = ((8, 50_000), (1_000, 40_000), (10_000, 30_000))  # workers, updates
QUICK = ((8, 2_000), (1_000, 2_000), (10_000, 1_000))
LAWS = {"deterministic": lk.Deterministic(0.01), "exponential": lk.Exponential(0.01)}


def updates_rate(cluster: lk.SimulatedCluster, updates: int) -> dict[str, float]:
    """One timing-only run of AsyncPS: updates per second of wall and of processor time, and the time to set it up."""
    began = time.perf_counter()
    problem = lk.Problem("digits", timing_only=True)
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=updates), checkpoint=False)
    ready, processor = time.perf_counter(), time.process_time()
    run.wait()
    wall, processor = time.perf_counter() - ready, time.process_time() - processor
    return {"updates/s": updates / wall, "updates/CPU s": updates / processor, "s to set up": ready - began}


def run(settings: Settings) -> list[Row]:
    """A table for every number of workers; the laws take turns."""
    rows: list[Row] = []
    for workers, updates in QUICK if settings.quick else SIZES:
        name = f"{workers:,} workers"
        sides = [Side(f"labkit, {law}", functools.partial(_measure, name, workers, updates, law)) for law in LAWS]
        rows += alternate(settings, name, sides)
    return rows


def _measure(name: str, workers: int, updates: int, law: str) -> Values:
    rates = updates_rate(lk.SimulatedCluster(workers=workers, compute=LAWS[law]), updates)
    return {(name, unit): value for unit, value in rates.items()}


BENCHMARK = Benchmark("simulator", "updates per second of a timing-only simulated run", run)
