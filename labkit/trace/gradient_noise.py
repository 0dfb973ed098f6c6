"""The gradient noise scale: up to which batch size a larger batch gives a proportionally better gradient.

A gradient of b samples has the mean squared norm |G|² + tr(S)/b, where G is the gradient of all samples and S the covariance of
the gradients of single samples. Gradients of two batch sizes on the same weights therefore give unbiased estimates of |G|² and of
tr(S). Their quotient is the gradient noise scale tr(S)/|G|², in samples. As a quotient of noisy estimates is biased, the two are
averaged first. (McCandlish, Kaplan, Amodei et al., "An empirical model of large-batch training", 2018, appendix A.)

A row of the table `gradient_noise` has the gradients of n batches of b samples, and their mean, which is that of one batch of
B = n b samples. Averages over rows are weighted by the precision of their estimates where the noise is large: with n (n - 1) b²
for |G|², which is the mean of the products of two different gradients, and with n - 1 for tr(S).

Within an epoch, batches are drawn without replacement from N samples. Two of them are therefore negatively correlated, and the
product of their gradients has the mean |G|² - tr(S)/N. This is corrected, because G is the gradient of the N samples.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .schema import NANO
from .trace import Trace, check_trace

POINTS = 200  # of a curve, at most


class GradientNoise(NamedTuple):
    """An estimate of the gradient noise, from the newest half of a run; NaN if nothing was measured.

    Attributes
    ----------
    signal : float
        The estimate of |G|², the squared norm of the gradient of all samples. It can be negative if there are few measurements.
    noise : float
        The estimate of tr(S), the variance of the gradients of single samples, summed over all parameters.
    measurements : int
        The number of rows of the table `gradient_noise` that were averaged.
    """

    signal: float
    noise: float
    measurements: int

    @property
    def scale(self) -> float:
        """The gradient noise scale tr(S)/|G|², in samples; NaN if the noise hides the gradient (`signal` is not positive)."""
        return max(self.noise, 0.0) / self.signal if self.signal > 0 else math.nan


def gradient_noise(trace: Trace) -> GradientNoise:
    """Estimate the gradient noise from the newest half of a run.

    Measured are gradients of different mini-batches on the same weights: those that a server or an all-reduce averages, and those
    that a worker accumulates (`accumulate`).

    Parameters
    ----------
    trace : Trace
        The trace.

    Returns
    -------
    GradientNoise
        The estimate. If nothing was measured, `run.plot.noise_scale()` says why.

    Examples
    --------
    The batch of an update, 4 x 16 samples, is below the noise scale, so twice as many workers need about half as many updates.

    >>> problem, cluster = lk.Problem("digits", batch_size=16), lk.SimulatedCluster(workers=4)
    >>> run = lk.train(problem, lk.SyncPS(), cluster, lk.Budget(updates=400)).wait()
    >>> lk.gradient_noise(run.trace).scale > 4 * 16
    True
    """
    check_trace(trace)
    now = trace.watermark()
    rows = _measurements(trace, now)
    signal, noise, count = (float(each[0]) for each in _averages(trace, rows, np.array([now])))
    return GradientNoise(signal, noise, int(count))


def noise_scale_history(trace: Trace, t: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (seconds, noise scale) up to `t` ns, at most `POINTS` of them. Each is the average over the newest half of the run
    at that time. Points at which the noise hides the gradient are left out.
    """
    rows = _measurements(trace, t)
    count = rows.shape[1]
    times = np.unique(rows[0, np.linspace(0, count - 1, min(count, POINTS)).astype(int)])
    signal, noise, _ = _averages(trace, rows, times)
    known = signal > 0
    return times[known] / NANO, np.maximum(noise[known], 0.0) / signal[known]


def signal_and_noise(small: Any, large: Any, b: Any, B: Any) -> tuple[Any, Any]:
    """Return estimates of |G|² and tr(S) from the mean squared norms of gradients of b samples (`small`) and of B (`large`)."""
    return (B * large - b * small) / (B - b), (small - large) / (1 / b - 1 / B)


def unmeasured(trace: Trace) -> str:
    """Return why the trace has no measurements of the gradient noise, in lines for a panel."""
    if trace.header.problem.timing_only:
        return "timing-only run: no gradients"
    if not any(counters.computed for counters in trace.counters.values()):
        return "no gradient yet"
    if not len(trace.tables["norms"]):
        return "norms were not recorded"
    options = trace.header.strategy.options
    averaged = "compressed" if options.get("codec") else "clipped" if options.get("clip_norm") else ""
    why = f"{averaged} gradients are averaged" if averaged else "no norms of two gradients\non the same weights"
    return f"{why}:\nset accumulate to 2 or more" if "accumulate" in options else why


def _measurements(trace: Trace, t: int) -> np.ndarray:
    """Return the rows up to `t` ns in the order of time, shape (5, rows): time, weighted estimates of |G|² and tr(S), weights."""
    columns = trace.column("gradient_noise", "role", "time", "batches", "samples", "square", "mean_square")
    role, time, n, b, square, mean_square = (column[columns[1] <= t] for column in columns)
    part = _fractions(trace)[role.astype(int)]  # the estimates of all shards are added up
    with np.errstate(all="ignore"):
        signal, noise = signal_and_noise(square, mean_square, b, n * b)
        signal_weight, noise_weight = n * (n - 1) * b**2, n - 1
        rows = np.stack([time, signal_weight * signal, noise_weight * noise, signal_weight * part, noise_weight * part])
    rows = rows[:, np.isfinite(rows).all(axis=0)]  # others are of a run that diverges
    return rows[:, np.argsort(rows[0], kind="stable")]


def _fractions(trace: Trace) -> np.ndarray:
    """Return the fraction of one measurement that a row of each role is, shape (roles,). A shard measures its own parameters,
    so the rows of all n shards are one measurement, and each is 1/n of it. A row of another role is a whole one.
    """
    layout = trace.header.layout
    shards = {role.shard for role in layout.roles if role.shard is not None}
    divided = not layout.replicated
    return np.array([1 / len(shards) if divided and role.shard is not None else 1.0 for role in layout.roles])


def _inverse_samples(trace: Trace) -> float:
    """Return 1/N for the N samples from which the batches of one moment are drawn without replacement; 0 if they are drawn
    independently, or from so many that they were not counted.
    """
    shares = trace.header.shares
    if isinstance(shares, str) or trace.header.problem.partition == "Shared()":
        return 0.0
    return 1 / max(1, sum(map(sum, shares.counts)))


def _averages(trace: Trace, rows: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (|G|², tr(S), number of rows) over the newest half of the run at each of `times`; NaN without rows."""
    first, last = (rows[0].searchsorted(at, side="right") for at in (times / 2, times))
    sums = np.concatenate([np.zeros((4, 1)), rows[1:].cumsum(axis=1)], axis=1)
    signal, noise, signal_weight, noise_weight = sums[:, last] - sums[:, first]
    with np.errstate(invalid="ignore"):
        noise = noise / noise_weight
        return signal / signal_weight + noise * _inverse_samples(trace), noise, last - first
