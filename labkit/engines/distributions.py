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

__all__ = [
    "DISTRIBUTIONS", "Deterministic", "Distribution", "Exponential", "LogNormal", "Measured", "Pareto", "Sampler",
    "ShiftedExponential", "Uniform", "as_distribution", "distribution_as_text", "distribution_by_name", "distribution_name",
    "distribution_with_mean", "mean_seconds",
]  # fmt: skip


@dataclass(frozen=True)
class Distribution(HasOptions):
    """A distribution of durations. `draw(rng, n)` returns n durations, in seconds."""

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return `n` durations in seconds, float64."""
        raise TypeError(f"{type(self).__name__} does not say how to draw.")

    def describe(self) -> str:
        """Return the notation of the command line, `exponential:0.01`, or the `repr` of a user-defined class."""
        if type(self) not in _NAMES:
            return repr(self)
        return ":".join([_NAMES[type(self)], *(f"{getattr(self, k):g}" for k in options_of(self))])


@dataclass(frozen=True)
class Deterministic(Distribution):
    """Every duration is `seconds`."""

    seconds: float = option(0.01, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return `n` equal durations."""
        return np.full(n, self.seconds)


@dataclass(frozen=True)
class Exponential(Distribution):
    """Exponential (memoryless) with this mean, in seconds."""

    mean: float = option(0.01, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Exponential draws."""
        return rng.exponential(self.mean, n)


@dataclass(frozen=True)
class ShiftedExponential(Distribution):
    """`shift` plus an exponential duration with mean `mean`, in seconds."""

    shift: float = option(0.005, low=0.0, high=1e6)
    mean: float = option(0.005, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Shifted exponential draws."""
        return self.shift + rng.exponential(self.mean, n)


@dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform between `low` and `high`, in seconds."""

    low: float = option(0.005, low=0.0, high=1e6)
    high: float = option(0.015, low=0.0, high=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise BadInput(f"Uniform(low={self.low:g}, high={self.high:g}): low is at most high.")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Uniform draws."""
        return rng.uniform(self.low, self.high, n)


@dataclass(frozen=True)
class LogNormal(Distribution):
    """Lognormal; `mean` is the mean of the durations (seconds), `sigma` the standard deviation of their logarithm."""

    mean: float = option(0.01, low=1e-9, high=1e6)
    sigma: float = option(0.5, low=0.0, high=5.0)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Lognormal draws whose mean is `mean`."""
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, n)


@dataclass(frozen=True)
class Pareto(Distribution):
    """Pareto (heavy tail): P(X > x) = (minimum/x)^alpha for x >= minimum, in seconds."""

    minimum: float = option(0.005, low=1e-9, high=1e6)
    alpha: float = option(3.0, low=1.01, high=100.0)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Pareto draws."""
        return self.minimum * (1 + rng.pareto(self.alpha, n))


@dataclass(frozen=True)
class Measured(Distribution):
    """Resamples measured durations (seconds), with equal probability."""

    durations: tuple[float, ...] = (0.01,)

    def __post_init__(self) -> None:
        try:
            values = np.asarray([] if np.ma.isMaskedArray(self.durations) else self.durations, float)
        except Exception:  # not a list of numbers
            values = np.empty(0)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)) or values.min() < 0:
            raise BadInput("Measured(durations): give one or more finite durations in seconds, none negative.")
        object.__setattr__(self, "durations", tuple(values.tolist()))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Resampled durations."""
        return rng.choice(np.asarray(self.durations), n)

    def describe(self) -> str:
        """Return the number of measurements and their mean."""
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
        raise BadInput(f"{shown(text)}: what follows the name of a distribution are numbers in seconds, as {name}:0.01.")
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
        f"{what}={shown(distribution)}: give a distribution, as lk.Deterministic(0.1) or 'exponential:0.1', or seconds."
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
