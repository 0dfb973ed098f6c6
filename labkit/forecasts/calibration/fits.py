"""Fits: the costs that explain measured cycles, by least squares without negative coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...engines.costs import Linear, WorkCost

SPREAD_POINTS = 200  # quantiles that stand for measured durations


def fit_work(points: Sequence[tuple[int, int, float]]) -> WorkCost:
    """Return the `WorkCost` that fits (parameters, samples, seconds) best, by relative errors. The first point is fitted exactly.

    The first point is the problem that is calibrated; the others show how the time changes with its size. If a time is 0, the
    cost is 0.
    """
    if not all(seconds > 0 for *_, seconds in points):
        return WorkCost()
    sizes = np.array([(1.0, p, p * n) for p, n, _ in points])
    seconds = np.array([s for _, _, s in points])
    found = _non_negative(sizes / seconds[:, None], np.ones(len(seconds)))
    forecast = float(sizes[0] @ found)
    scale = seconds[0] / forecast if forecast > 0 else 0.0
    return WorkCost(*(scale * found).tolist())


def fit_linear(points: Sequence[tuple[float, float]]) -> Linear:
    """Return the `Linear` that fits (bytes, seconds) best, by least squares of absolute errors. Negative times count as 0."""
    sizes = np.array([(1.0, size) for size, _ in points])
    return Linear(*_non_negative(sizes, np.array([max(0.0, seconds) for _, seconds in points])).tolist())


def quantiles(durations: Sequence[float]) -> tuple[float, ...]:
    """Return the durations relative to their mean: at most 200 values at equal distances of the sorted durations."""
    values = np.sort(np.asarray(durations, dtype=float))
    if not len(values) or values.mean() <= 0:
        return (1.0,)
    if len(values) > SPREAD_POINTS:
        values = np.quantile(values, (np.arange(SPREAD_POINTS) + 0.5) / SPREAD_POINTS)
    relative = values / values.mean()
    return tuple(float(f"{value:.6g}") for value in relative)


def split_drift(
    probes: Sequence[Sequence[tuple[float, float]]], period: float, least: int = 8
) -> tuple[list[float], list[float]]:
    """Split durations into slow and fast variations: ([factor of each period], [factor of each duration within its period]).

    `probes`: for each probe, (when, duration) in seconds. `period`: seconds. Periods with fewer than `least` durations are left
    out; if fewer than four are left, the slow variation cannot be told from the fast one, and the first list is empty.
    """
    blocks = []
    for probe in probes:
        times, values = (np.array(column) for column in zip(*probe)) if probe else (np.empty(0), np.empty(0))
        numbers = (times // period).astype(int)
        blocks += [values[numbers == number] for number in np.unique(numbers)]
    blocks = [block for block in blocks if len(block) >= least]
    everything = [duration for probe in probes for _, duration in probe]
    if len(blocks) < 4:
        return [], everything
    means = np.array([block.mean() for block in blocks])
    return (means / means.mean()).tolist(), np.concatenate(
        [block / mean for block, mean in zip(blocks, means)]
    ).tolist()


def _non_negative(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return x >= 0, shape (n,), that minimizes |columns @ x - values|. `columns`: shape (m, n), n at most 3.

    Every subset of the coefficients is solved, and the best solution without negative coefficients is taken: with three
    coefficients these are seven small problems.
    """
    count = columns.shape[1]
    scale = np.abs(columns).max(axis=0)
    scale[scale == 0] = 1.0
    best, error = np.zeros(count), float(np.sum(values**2))
    for chosen in range(1, 1 << count):
        which = [i for i in range(count) if chosen >> i & 1]
        part = columns[:, which] / scale[which]
        solution, *_ = np.linalg.lstsq(part, values, rcond=None)
        if (solution < 0).any():
            continue
        left = float(np.sum((part @ solution - values) ** 2))
        if left < error * (1 - 1e-12):
            best, error = np.zeros(count), left
            best[which] = solution / scale[which]
    return best
