"""Forecasts with a calibration, compared with runs on processes that the calibration has not seen.

In each of several turns all runs of the grid are measured once, in random order, and the cluster is calibrated (`lk.calibrate`,
ten seconds) at the beginning and in the middle of the turn, so that a change of the machine's speed affects calibrations and
runs of all kinds alike. A run is measured in a window of engine time after a warm-up. The forecast of a run is the median of
the forecasts with all calibrations, each a simulated run in virtual time; the measured value is the median over the turns.
The relative error is forecast / measured - 1. Paced runs differ little from turn to turn, and are measured once.

Runs that other programs of the machine have disturbed are repeated: during each window, the processor time of all processes that
do not belong to the benchmark is compared with `MOST_FOREIGN`. A slower processor cannot be detected in this way, as that of a
virtual machine whose physical core has other users; how much repeated measurements of the same run differ is therefore part of
the result.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil

import labkit as lk
from labkit.trace.query import time_to_accuracy

from .rows import Benchmark, Row, Settings

TURNS, CALIBRATIONS = 5, 2  # turns, and calibrations in each of them
WARM_UP_S, WINDOW_S, PACED_WINDOW_S = 0.5, 1.3, 3.0
FORECAST_S = 0.8  # of virtual time, at full speed; a paced run is simulated for as long as it is measured
PACES = (None, "exponential:0.02")  # full speed, and 20 ms on average
NETS = ((128,), (256, 256))
SLOW = 3.0  # of the last worker
MOST_FOREIGN = 0.08  # cores
TRIES = 3
LEAST_STALENESS = 0.2  # below, a strategy is synchronous
SEED = 0
ACCURACY, SEEDS, LIMIT_S = 0.95, 5, 60.0
# of the runs to an accuracy; at full speed, so that they last for seconds
LEARNING_RATES = {"paced": 0.1, "full speed": 0.02}
SERVERS = ("AsyncPS", "SyncPS", "SSP")
STRATEGIES = (*SERVERS, "RingAllReduce", "LocalSGD", "Pipeline")


@dataclass(frozen=True)
class Point:
    """One run of the grid. `servers`: 0 for strategies without servers. `pace`: as text; None: full speed. `slow`: the factor of
    the last worker.
    """

    strategy: str
    workers: int
    servers: int
    hidden: tuple[int, ...]
    pace: str | None = None
    slow: float = 1.0

    @property
    def name(self) -> str:
        """The name in the table."""
        net = "-".join(map(str, self.hidden))
        roles = f"{self.workers}+{self.servers}" if self.servers else str(self.workers)
        return ", ".join([f"{self.strategy} {roles}", net, *(["one 3x slower"] if self.slow != 1 else [])])

    @property
    def kind(self) -> str:
        """The group of the point in the summary."""
        return "full speed" if self.pace is None else "paced"

    def problem(self, seed: int = SEED) -> lk.Problem:
        """Return the problem."""
        return lk.Problem("digits", hidden=self.hidden, batch_size=32, seed=seed)

    def make_strategy(self, learning_rate: float = 0.01) -> lk.Strategy:
        """Return the strategy. The default learning rate is small enough for any number of workers."""
        options = {"stages": self.workers} if self.strategy == "Pipeline" else {}
        return getattr(lk, self.strategy)(learning_rate=learning_rate, **options)  # type: ignore[no-any-return]

    def options(self) -> dict[str, Any]:
        """Return the options of the cluster."""
        slow = {} if self.slow == 1 else {f"worker-{self.workers - 1}": self.slow}
        return {"workers": self.workers, "servers": self.servers or None, "slow": slow}


def grid(nets: Iterable[tuple[int, ...]] = NETS, workers: Iterable[int] = (1, 2, 4, 8)) -> list[Point]:
    """Return all runs whose throughput and staleness are measured."""
    found = []
    for hidden, pace, slow, strategy, n in itertools.product(nets, PACES, (1.0, SLOW), STRATEGIES, workers):
        fits = n > 1 or (strategy in SERVERS and slow == 1)
        if strategy == "Pipeline":
            fits = 1 < n <= len(hidden) + 1
        if fits:
            found += [Point(strategy, n, s, hidden, pace, slow) for s in ((1, 2) if strategy in SERVERS else (0,))]
    return found


def hosts_grid() -> list[Point]:
    """Return the runs that are measured on three hosts. All are paced, because hosts that are namespaces share the cores."""
    paces = ("exponential:0.02", "0.02")
    return [
        Point(strategy, n, s, (128,), pace, slow)
        for pace in paces for strategy in STRATEGIES[:-1] for n in (2, 4) for slow in (1.0, SLOW)
        for s in ((1, 2) if strategy in SERVERS else (0,))
    ]  # fmt: skip


def accuracy_grid() -> list[Point]:
    """Return the runs whose time to an accuracy is measured."""
    return [
        Point(strategy, 4, int(strategy in SERVERS), (128,), pace, slow)
        for strategy in STRATEGIES[:-1] for pace in PACES for slow in (1.0, SLOW)
    ]  # fmt: skip


# measurements ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """Gradients per second, and mean staleness. `foreign`: cores that other programs have used meanwhile."""

    rate: float
    staleness: float
    foreign: float = 0.0


def measure(
    cluster: lk.DaskCluster, point: Point, warm_up: float = WARM_UP_S, window: float = WINDOW_S, tries: int = TRIES
) -> Rate:  # fmt: skip
    """Measure a run on processes. Repeats it if other programs used the processor; returns the least disturbed measurement.

    `tries`: the largest number of measurements; 1 if the processes of the cluster are not descendants of this one, and would
    count as other programs.
    """
    window = window if point.pace is None else max(window, window / WINDOW_S * PACED_WINDOW_S)
    found: list[Rate] = []
    while len(found) < tries and (not found or found[-1].foreign > MOST_FOREIGN):
        found.append(_measured(cluster, point, warm_up, window))
    return min(found, key=lambda one: max(one.foreign, MOST_FOREIGN))


def _measured(cluster: lk.DaskCluster, point: Point, warm_up: float, window: float) -> Rate:
    spec = replace(cluster.spec, **point.options(), compute=point.pace)
    limit = lk.Budget(seconds=warm_up + window + 30)
    with lk.train(point.problem(), point.make_strategy(), cluster.with_spec(spec), limit, checkpoint=False) as run:
        before = _report(run, warm_up)
        used = _foreign_seconds()
        after = _report(run, before[0] / 1e9 + window)
        foreign = (_foreign_seconds() - used) / ((after[0] - before[0]) / 1e9)
    return replace(_between(before, after), foreign=foreign)


def forecast_rate(calibration: lk.Calibration, point: Point) -> Rate:
    """Forecast a run: simulate it with measured costs, over the same window if it is paced."""
    options = point.options()
    cluster = calibration.cluster(options.pop("workers"), options.pop("servers"), pace=point.pace, **options)
    begin, seconds = (WARM_UP_S, PACED_WINDOW_S) if point.pace else (0.2, FORECAST_S)
    limit = lk.Budget(seconds=begin + seconds + 30)
    run = lk.train(point.problem(), point.make_strategy(), cluster, limit, checkpoint=False)
    run.advance(begin)
    before = _counters(run)
    run.advance(seconds)
    return _between(before, _counters(run))


Counters = tuple[int, int, dict[int, int]]  # engine time (ns), gradients, {staleness: gradients}


def _counters(run: lk.Run) -> Counters:
    trace = run.trace
    with trace.lock:
        shard = trace.observed[0]
        found = trace.counters.get(shard)
        if found is None:
            return 0, 0, {}
        return trace.reported_until.get(shard, 0), found.gradients, dict(found.staleness)


def _between(before: Counters, after: Counters) -> Rate:
    counts = {value: count - before[2].get(value, 0) for value, count in after[2].items()}
    total = sum(counts.values())
    stale = sum(value * count for value, count in counts.items()) / total if total else 0.0
    return Rate((after[1] - before[1]) / (after[0] - before[0]) * 1e9, stale)


def _report(run: lk.Run, at: float) -> Counters:
    """Return the counters of the first report for a time of at least `at` seconds."""
    give_up = time.monotonic() + at + 20
    while time.monotonic() < give_up:
        found = _counters(run)
        if found[0] >= at * 1e9:
            return found
        if run.done:
            run.wait()
            raise RuntimeError(f"the run ended early: {run.stopped_by}")
        time.sleep(0.02)
    raise RuntimeError("the run made no progress")


def _foreign_seconds() -> float:
    """Return the processor time, in seconds, of all processes that are not this one or its descendants."""
    now = psutil.cpu_times()
    total = now.user + now.system + getattr(now, "nice", 0.0) + getattr(now, "irq", 0.0) + getattr(now, "softirq", 0.0)
    mine = 0.0
    for process in [*(me := psutil.Process()).children(recursive=True), me]:
        try:
            used = process.cpu_times()
            mine += used.user + used.system
        except psutil.Error:
            continue
    return float(total - mine)


def measured_accuracy(cluster: lk.Cluster, point: Point, seed: int) -> float | None:
    """Return the seconds to the accuracy on a cluster, with virtual time or processes; None if it was not reached."""
    budget = lk.Budget(accuracy=ACCURACY, seconds=LIMIT_S)
    strategy = point.make_strategy(LEARNING_RATES[point.kind])
    run = lk.train(point.problem(seed), strategy, cluster, budget, checkpoint=False).wait()
    return time_to_accuracy(run.trace)


# the benchmark --------------------------------------------------------------------------------------------------------


def run(settings: Settings) -> list[Row]:
    """Calibrate and measure in turns; then forecast."""
    points = grid(NETS[:1], (2,))[:2] if settings.quick else grid()
    timed = [] if settings.quick else accuracy_grid()
    seconds = float(settings.choose(10, 1))
    warm_up, window = settings.choose(WARM_UP_S, 0.1), settings.choose(WINDOW_S, 0.2)
    calibrations: list[lk.Calibration] = []
    rates: dict[Point, list[Rate]] = {point: [] for point in points}
    times: dict[Point, list[float]] = {point: [] for point in timed}
    turns = int(settings.choose(TURNS, 1))
    with lk.DaskCluster(workers=2 if settings.quick else 8, servers=1 if settings.quick else 2).open() as cluster:
        for turn in range(turns):
            order = [point for point in points if point.pace is None or turn == 0]
            random.Random(turn).shuffle(order)
            breaks = {len(order) * k // CALIBRATIONS for k in range(CALIBRATIONS)}
            for i, point in enumerate(order):
                if i in breaks:
                    settings.report_progress(f"calibration {len(calibrations) + 1} of {turns * CALIBRATIONS}")
                    calibrations.append(lk.calibrate(cluster, points[0].problem(), seconds, progress=False))
                settings.report_progress(f"run {i + 1} of {len(order)}, turn {turn + 1} of {turns}")
                rates[point].append(measure(cluster, point, warm_up, window))
        for point, seed in itertools.product(timed, range(SEEDS)):
            settings.report_progress(f"accuracy: {point.name}, {point.kind}")
            spec = replace(cluster.spec, **point.options(), compute=point.pace)
            found = measured_accuracy(cluster.with_spec(spec), point, seed)
            times[point] += [] if found is None else [found]
    settings.report_progress("simulations")
    return compare(calibrations, rates, times)


def compare(
    calibrations: Sequence[lk.Calibration], rates: Mapping[Point, Sequence[Rate]], times: Mapping[Point, Sequence[float]]
) -> list[Row]:  # fmt: skip
    """Return the rows: every run, then the distribution of the errors."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = {point: [pool.submit(forecast_rate, each, point) for each in calibrations] for point in rates}
        seeds = list(itertools.product(calibrations, range(SEEDS)))
        timed = {point: [pool.submit(_forecast_time, each, point, seed) for each, seed in seeds] for point in times}
        made = {point: [run.result() for run in found] for point, found in runs.items()}
        guesses = {point: [s for run in found if (s := run.result()) is not None] for point, found in timed.items()}
    return summarized(rates, made, times, guesses)


def summarized(
    rates: Mapping[Point, Sequence[Rate]], made: Mapping[Point, Sequence[Rate]],
    times: Mapping[Point, Sequence[float]] | None = None, guessed: Mapping[Point, Sequence[float]] | None = None,
) -> list[Row]:  # fmt: skip
    """Return the rows of measured and forecast values, then the distribution of the errors."""
    rows: list[Row] = []
    errors: dict[tuple[str, str], list[float]] = {}
    repeated: dict[str, list[float]] = {}

    def add(point: Point, what: str, unit: str, measured: Sequence[float], guesses: Sequence[float]) -> None:
        name = f"{point.kind}: {point.name}"
        rows.extend([_row(name, f"{what} measured", unit, measured), _row(name, f"{what} forecast", unit, guesses)])
        errors.setdefault((point.kind, what), []).append(statistics.median(guesses) / statistics.median(measured) - 1)

    for point, found in rates.items():
        measured = [one.rate for one in found]
        add(point, "throughput", "gradients/s", measured, [one.rate for one in made[point]])
        middle = statistics.median(measured)
        repeated.setdefault(point.kind, []).extend(abs(one / middle - 1) for one in measured if len(measured) > 1)
        stale = [one.staleness for one in found]
        if statistics.median(stale) > LEAST_STALENESS:
            add(point, "staleness", "1", stale, [one.staleness for one in made[point]])
    for point, seconds in (times or {}).items():
        guesses = (guessed or {})[point]
        if seconds and guesses:
            add(point, f"time to {ACCURACY:.0%}", "s", seconds, guesses)
    for (kind, what), values in errors.items():
        absolute = [100 * abs(value) for value in values]
        low, high, count = min(absolute), max(absolute), len(values)
        side = f"{what}, error of {count} runs"
        rows.append(Row(kind, f"{side}: median", "%", statistics.median(absolute), low, high, count))
        rows.append(Row(kind, f"{side}: 90th percentile", "%", float(np.quantile(absolute, 0.9)), low, high, count))
        signed = [100 * value for value in values]
        rows.append(Row(kind, f"{side}: with sign", "%", statistics.median(signed), min(signed), max(signed), count))
    for kind, differences in repeated.items():
        if differences:
            rows.append(
                _row(kind, "throughput, repeated measurements of a run", "%", [100 * one for one in differences])
            )
    return rows


def _forecast_time(calibration: lk.Calibration, point: Point, seed: int) -> float | None:
    options = point.options()
    cluster = calibration.cluster(options.pop("workers"), options.pop("servers"), pace=point.pace, **options)
    return measured_accuracy(cluster, point, seed)


def _row(name: str, side: str, unit: str, values: Sequence[float]) -> Row:
    return Row(name, side, unit, statistics.median(values), min(values), max(values), len(values))


BENCHMARK = Benchmark(
    "forecast",
    "forecasts with a calibration, compared with runs that it has not seen",
    run,
    "Medians of five turns. The error is that of the medians. Staleness of synchronous strategies is 0 and left out.",
)
