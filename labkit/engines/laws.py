"""How long work takes: laws of time, in seconds, on both engines.

In virtual time a law decides when work ends; on a cluster it is the pace: work is really done, then slept until the
drawn duration has passed. One draw per `ctx.compute`, from a stream of the role's own, rounded to whole nanoseconds
before use.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from ..errors import BadInput, nearest, shown
from ..knobs import as_number, check_knobs, knob, knobs_of
from ..trace.vocabulary import NANO

__all__ = [
    "LAWS", "Deterministic", "Exponential", "Law", "LogNormal", "Measured", "Pareto", "Sampler", "ShiftedExponential", "Uniform",
    "as_law", "law_as_text", "law_by_name", "law_name", "law_with_mean", "mean_seconds",
]  # fmt: skip


@dataclass(frozen=True)
class Law:
    """A distribution of durations. `draw(rng, n)` gives n of them, in seconds."""

    def __post_init__(self) -> None:
        check_knobs(self)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` durations, float64, seconds."""
        raise TypeError(f"{type(self).__name__} does not say how to draw.")

    def describe(self) -> str:
        """`exponential:0.01`, as the command line takes it; of a law of one's own, its `repr`."""
        if type(self) not in _NAMES:
            return repr(self)
        return ":".join([_NAMES[type(self)], *(f"{getattr(self, k):g}" for k in knobs_of(self))])


@dataclass(frozen=True)
class Deterministic(Law):
    """Always `seconds`."""

    seconds: float = knob(0.01, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """`n` times the same."""
        return np.full(n, self.seconds)


@dataclass(frozen=True)
class Exponential(Law):
    """Memoryless with this mean: sometimes much longer than usual."""

    mean: float = knob(0.01, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Exponential draws."""
        return rng.exponential(self.mean, n)


@dataclass(frozen=True)
class ShiftedExponential(Law):
    """At least `shift`, then exponential with `mean` more."""

    shift: float = knob(0.005, low=0.0, high=1e6)
    mean: float = knob(0.005, low=0.0, high=1e6)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Shifted exponential draws."""
        return self.shift + rng.exponential(self.mean, n)


@dataclass(frozen=True)
class Uniform(Law):
    """Anything from `low` to `high`, equally likely."""

    low: float = knob(0.005, low=0.0, high=1e6)
    high: float = knob(0.015, low=0.0, high=1e6)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise BadInput(f"Uniform(low={self.low:g}, high={self.high:g}): low is at most high.")

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Uniform draws."""
        return rng.uniform(self.low, self.high, n)


@dataclass(frozen=True)
class LogNormal(Law):
    """Lognormal with this mean (seconds, of the durations themselves); `sigma` is the deviation of their logarithm."""

    mean: float = knob(0.01, low=1e-9, high=1e6)
    sigma: float = knob(0.5, low=0.0, high=5.0)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Lognormal draws whose mean is `mean`."""
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, n)


@dataclass(frozen=True)
class Pareto(Law):
    """A heavy tail: at least `minimum`; P(X > x) = (minimum/x)^alpha."""

    minimum: float = knob(0.005, low=1e-9, high=1e6)
    alpha: float = knob(3.0, low=1.01, high=100.0)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Pareto draws."""
        return self.minimum * (1 + rng.pareto(self.alpha, n))


@dataclass(frozen=True)
class Measured(Law):
    """Durations that were measured, drawn again with equal chance."""

    durations: tuple[float, ...] = (0.01,)

    def __post_init__(self) -> None:
        try:
            values = np.asarray([] if np.ma.isMaskedArray(self.durations) else self.durations, float)
        except Exception:  # whatever it is, it is no list of numbers
            values = np.empty(0)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)) or values.min() < 0:
            raise BadInput("Measured(durations): give one or more finite durations in seconds, none negative.")
        object.__setattr__(self, "durations", tuple(values.tolist()))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Resampled durations."""
        return rng.choice(np.asarray(self.durations), n)

    def describe(self) -> str:
        """How many measurements, and their mean."""
        return f"measured ({len(self.durations)} durations, mean {np.mean(self.durations):g} s)"


LAWS: dict[str, type[Law]] = {
    "deterministic": Deterministic, "exponential": Exponential, "shifted-exponential": ShiftedExponential,
    "uniform": Uniform, "lognormal": LogNormal, "pareto": Pareto,
}  # fmt: skip
_NAMES: dict[type, str] = {kind: name for name, kind in LAWS.items()}


def law_by_name(text: str) -> Law | None:
    """`"deterministic:0.01"`, `"lognormal:0.01:0.5"` (mean, sigma) ... as a `Law`; `"0.01"` alone is always so many seconds,
    and `"none"` is None.
    """
    name, *words = (part.strip() for part in text.split(":"))
    if name.lower() in ("", "none") and not words:
        return None
    numbers = [_number(word) for word in words]
    seconds = _number(name)
    if seconds is not None and not words:
        return Deterministic(seconds)
    if name not in LAWS:
        raise nearest("law of time", name, LAWS)
    if None in numbers:
        raise BadInput(f"{shown(text)}: what follows the name of a law are numbers in seconds, as {name}:0.01.")
    wanted = list(knobs_of(LAWS[name]))
    if len(numbers) > len(wanted):
        raise BadInput(f"{shown(text)}: {name} takes {' and '.join(wanted)}.")
    return LAWS[name](*numbers)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def law_as_text(law: Law) -> str | None:
    """What `law_by_name` reads as this very law, exactly; None of `Measured` and of a law of one's own."""
    if type(law) not in _NAMES:
        return None
    return ":".join([_NAMES[type(law)], *(repr(getattr(law, k)) for k in knobs_of(law))])


def law_with_mean(name: str, mean: float) -> Law:
    """The law of this name in `LAWS` with this mean (seconds), and the usual spread."""
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
    raise nearest("law of time", name, LAWS)


def mean_seconds(law: Law | None) -> float | None:
    """Mean seconds of one draw; None of no law, and of one whose mean is infinite or not known by a formula."""
    match law:
        case Deterministic():
            return law.seconds
        case Exponential() | LogNormal():
            return law.mean
        case Uniform():
            return (law.low + law.high) / 2
        case ShiftedExponential():
            return law.shift + law.mean
        case Pareto() if law.alpha > 1:
            return law.minimum * law.alpha / (law.alpha - 1)
    return None


def law_name(law: Law) -> str | None:
    """The name of a law in `LAWS`; None of `Measured` and of a law of one's own."""
    return _NAMES.get(type(law))


def as_law(what: str, law: Any) -> Law | None:
    """A law given as a law, as text, as a number of seconds, or None."""
    if law is None or isinstance(law, Law):
        return law
    if isinstance(law, str):
        return law_by_name(law)
    number = as_number(law)
    if number is not None:
        return Deterministic(number)
    raise BadInput(f"{what}={shown(law)}: give a law of time, as lk.Deterministic(0.1) or 'exponential:0.1', or seconds.")


class Sampler:
    """Draws of one role. `next()`: the next duration, whole nanoseconds."""

    __slots__ = ("next",)

    def __init__(self, law: Law, rng: np.random.Generator | None):
        constant = round(law.seconds * NANO) if isinstance(law, Deterministic) else None
        durations = repeat(constant) if constant is not None else _drawn(law, rng)
        self.next: Callable[[], int] = durations.__next__


def _drawn(law: Law, rng: Any) -> Iterator[int]:
    """The stream in blocks that grow: whoever draws seldom pays for few, whoever draws often pays NumPy seldom.

    A block is plain memory: as Python's integers, those of 10,000 workers would take 400 MB and miss every cache.
    """
    size = 8
    while True:
        yield from array("q", np.rint(law.draw(rng, size) * NANO).astype(np.int64).tobytes())
        size = min(2 * size, 1024)
