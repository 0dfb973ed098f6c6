"""Distributions of the duration of work, in seconds, on both engines.

In virtual time the drawn duration determines when work ends. On a cluster it is the pace: after the work is done, the role
sleeps until the duration has passed. Each `ctx.compute` draws one duration from the role's random stream, rounded to whole
nanoseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from ..errors import BadInput, nearest, shown
from ..options import HasOptions, as_number, option, options_of
from ..trace.schema import NANO


@dataclass(frozen=True)
class Distribution(HasOptions):
    """The base class of distributions of durations.

    A distribution of your own is a frozen dataclass that defines `draw`. A distribution can be given as text, too, as in
    `lk.SimulatedCluster(compute="lognormal:0.01:0.5")`.
    """

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draw durations.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of randomness.
        n : int
            The number of durations.

        Returns
        -------
        ndarray
            The durations in seconds, float64 of shape (n,).
        """
        raise TypeError(f"{type(self).__name__} does not say how to draw.")

    def describe(self) -> str:
        """Return the distribution as text.

        Returns
        -------
        str
            The notation of the command line, as "exponential:0.01", or the `repr` of a user-defined class.
        """
        if type(self) not in _NAMES:
            return repr(self)
        return ":".join([_NAMES[type(self)], *(f"{getattr(self, k):g}" for k in options_of(self))])


@dataclass(frozen=True)
class Deterministic(Distribution):
    """Constant durations.

    Examples
    --------
    >>> lk.distributions.Deterministic(0.5).draw(np.random.default_rng(0), 3)
    array([0.5, 0.5, 0.5])
    """

    seconds: float = option(0.01, low=0.0, high=1e6, help="every duration, in seconds")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.full(n, self.seconds)


@dataclass(frozen=True)
class Exponential(Distribution):
    """Exponential (memoryless) durations.

    Examples
    --------
    A synchronous step takes as long as its slowest gradient, with four workers on average (1 + 1/2 + 1/3 + 1/4) times the mean:

    >>> draws = lk.distributions.Exponential(0.01).draw(np.random.default_rng(0), 400_000)
    >>> round(float(draws.reshape(-1, 4).max(axis=1).mean()), 3)
    0.021
    """

    mean: float = option(0.01, low=0.0, high=1e6, help="the mean, in seconds")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.exponential(self.mean, n)


@dataclass(frozen=True)
class ShiftedExponential(Distribution):
    """Exponential durations plus a constant.

    Examples
    --------
    >>> durations = lk.distributions.ShiftedExponential(shift=0.01, mean=0.005)
    >>> draws = durations.draw(np.random.default_rng(0), 100_000)
    >>> round(float(draws.min()), 3), round(float(draws.mean()), 3)
    (0.01, 0.015)
    """

    shift: float = option(0.005, low=0.0, high=1e6, help="the shortest duration, in seconds")
    mean: float = option(0.005, low=0.0, high=1e6, help="the mean of the exponential part, in seconds")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return self.shift + rng.exponential(self.mean, n)


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniformly distributed durations.

    Examples
    --------
    >>> draws = lk.distributions.Uniform(0.01, 0.03).draw(np.random.default_rng(0), 100_000)
    >>> bool(draws.min() >= 0.01), bool(draws.max() <= 0.03)
    (True, True)
    """

    low: float = option(0.005, low=0.0, high=1e6, help="the shortest duration, in seconds")
    high: float = option(0.015, low=0.0, high=1e6, help="the longest duration, in seconds")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise BadInput(f"Uniform(low={self.low:g}, high={self.high:g}): low is at most high.")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.uniform(self.low, self.high, n)


@dataclass(frozen=True)
class LogNormal(Distribution):
    """Lognormal durations, as often measured on shared machines.

    Examples
    --------
    >>> draws = lk.distributions.LogNormal(mean=0.01, sigma=0.5).draw(np.random.default_rng(0), 100_000)
    >>> round(float(draws.mean()), 4), round(float(np.log(draws).std()), 2)
    (0.01, 0.5)
    """

    mean: float = option(0.01, low=1e-9, high=1e6, help="the mean of the durations, in seconds")
    sigma: float = option(0.5, low=0.0, high=5.0, help="the standard deviation of the logarithm of the durations")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, n)


@dataclass(frozen=True)
class Pareto(Distribution):
    """Durations with a heavy tail: P(X > x) = (minimum/x)^alpha for x >= minimum.

    Examples
    --------
    >>> draws = lk.distributions.Pareto(minimum=0.01, alpha=2).draw(np.random.default_rng(0), 100_000)
    >>> round(float((draws > 0.1).mean()), 3)  # (0.01/0.1)^2
    0.01
    """

    minimum: float = option(0.005, low=1e-9, high=1e6, help="the shortest duration, in seconds")
    alpha: float = option(3.0, low=1.01, high=100.0, help="the tail index: the smaller, the heavier the tail")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return self.minimum * (1 + rng.pareto(self.alpha, n))


@dataclass(frozen=True)
class Measured(Distribution):
    """Resamples measured durations, with equal probability.

    Parameters
    ----------
    durations : sequence of float, default: (0.01,)
        The measured durations in seconds: one or more, finite, at least 0.

    Examples
    --------
    >>> draws = lk.distributions.Measured((0.01, 0.02, 0.05)).draw(np.random.default_rng(0), 100)
    >>> np.unique(draws)
    array([0.01, 0.02, 0.05])
    """

    durations: tuple[float, ...] = (0.01,)

    def __post_init__(self) -> None:
        try:
            values = np.asarray([] if np.ma.isMaskedArray(self.durations) else self.durations, float)
        except (TypeError, ValueError, OverflowError):  # not a list of numbers
            values = np.empty(0)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)) or values.min() < 0:
            raise BadInput("Measured(durations): give one or more finite durations in seconds, none negative.")
        object.__setattr__(self, "durations", tuple(values.tolist()))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.choice(np.asarray(self.durations), n)

    def describe(self) -> str:
        """Return the number of measurements and their mean.

        Returns
        -------
        str
            For example "measured (3 durations, mean 0.02 s)".
        """
        return f"measured ({len(self.durations)} durations, mean {np.mean(self.durations):g} s)"


DISTRIBUTIONS: dict[str, type[Distribution]] = {
    "deterministic": Deterministic, "exponential": Exponential, "shifted-exponential": ShiftedExponential,
    "uniform": Uniform, "lognormal": LogNormal, "pareto": Pareto,
}  # fmt: skip
_NAMES: dict[type, str] = {kind: name for name, kind in DISTRIBUTIONS.items()}


def distribution_by_name(text: str) -> Distribution | None:
    """Convert `"deterministic:0.01"`, `"lognormal:0.01:0.5"` (mean, sigma), ... to a distribution. A number alone is a
    deterministic duration in seconds; `"none"` is None.
    """
    name, *words = (part.strip() for part in text.split(":"))
    if name.lower() in ("", "none") and not words:
        return None
    numbers = [_number(word) for word in words]
    seconds = _number(name)
    if seconds is not None and not words:
        return Deterministic(seconds)
    if name not in DISTRIBUTIONS:
        raise nearest("distribution", name, DISTRIBUTIONS)
    if None in numbers:
        raise BadInput(
            f"{shown(text)}: what follows the name of a distribution are numbers in seconds, as {name}:0.01."
        )
    wanted = list(options_of(DISTRIBUTIONS[name]))
    if len(numbers) > len(wanted):
        raise BadInput(f"{shown(text)}: {name} takes {' and '.join(wanted)}.")
    return DISTRIBUTIONS[name](*numbers)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def distribution_as_text(distribution: Distribution) -> str | None:
    """Return the text that `distribution_by_name` reads as exactly this distribution; None for `Measured` and user-defined
    classes.
    """
    if type(distribution) not in _NAMES:
        return None
    return ":".join([_NAMES[type(distribution)], *(repr(getattr(distribution, k)) for k in options_of(distribution))])


def distribution_with_mean(name: str, mean: float) -> Distribution:
    """Return the distribution of this name in `DISTRIBUTIONS` with this mean (seconds) and a default spread."""
    match name:
        case "deterministic":
            return Deterministic(mean)
        case "exponential":
            return Exponential(mean)
        case "lognormal":
            return LogNormal(mean, 0.5)
        case "uniform":
            return Uniform(0.5 * mean, 1.5 * mean)
        case "shifted-exponential":
            return ShiftedExponential(mean / 2, mean / 2)
        case "pareto":
            return Pareto(mean * 1.5 / 2.5, 2.5)
    raise nearest("distribution", name, DISTRIBUTIONS)


def mean_seconds(distribution: Distribution | None) -> float | None:
    """Mean of one draw, in seconds; None for None and for distributions without a closed formula for a finite mean."""
    match distribution:
        case Deterministic():
            return distribution.seconds
        case Exponential() | LogNormal():
            return distribution.mean
        case Uniform():
            return (distribution.low + distribution.high) / 2
        case ShiftedExponential():
            return distribution.shift + distribution.mean
        case Pareto() if distribution.alpha > 1:
            return distribution.minimum * distribution.alpha / (distribution.alpha - 1)
    return None


def distribution_name(distribution: Distribution) -> str | None:
    """Return the name of a distribution in `DISTRIBUTIONS`; None for `Measured` and for user-defined classes."""
    return _NAMES.get(type(distribution))


def as_distribution(what: str, distribution: Any) -> Distribution | None:
    """Converts a distribution, text, or number of seconds to a `Distribution`; None stays None."""
    if distribution is None or isinstance(distribution, Distribution):
        return distribution
    if isinstance(distribution, str):
        return distribution_by_name(distribution)
    number = as_number(distribution)
    if number is not None:
        return Deterministic(number)
    raise BadInput(
        f"{what}={shown(distribution)}: give a distribution, as lk.distributions.Deterministic(0.1) "
        "or 'exponential:0.1', or seconds."
    )


class Sampler:
    """The draws of one role. `next()` returns the next duration, in whole nanoseconds."""

    __slots__ = ("next",)

    def __init__(self, distribution: Distribution, rng: np.random.Generator | None):
        constant = round(distribution.seconds * NANO) if isinstance(distribution, Deterministic) else None
        durations = repeat(constant) if constant is not None else _drawn(distribution, rng)
        self.next: Callable[[], int] = durations.__next__


def _drawn(distribution: Distribution, rng: Any) -> Iterator[int]:
    """Yield durations (ns), drawn in blocks of growing size, 8 to 1024, so that short runs draw few durations and long runs
    seldom call NumPy.

    A block is an `array` of int64, because with Python integers the blocks of 10,000 workers would take 400 MB.
    """
    size = 8
    while True:
        yield from array("q", np.rint(distribution.draw(rng, size) * NANO).astype(np.int64).tobytes())
        size = min(2 * size, 1024)
