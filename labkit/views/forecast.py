"""The forecast of a run, which is drawn over the run: simulated runs with the measured costs of its cluster.

A forecast has one part for the settings at the beginning, and one more after each change of settings. The part is a short
simulated run with these settings, of which only the steady state is used: its rate, and its distribution of staleness. So the
forecast of a long run takes no longer than that of a short one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..formatting import number_text, rate
from ..table import Table
from ..trace.query import Cumulative, rate_between, staleness_between, staleness_until, steady_window
from ..trace.schema import NANO
from ..trace.trace import Trace


def difference(measured: float, forecast: float) -> str:
    """Return how much a forecast value differs from the measured one, as `+3.5%` or `−12.0%`."""
    return f"{forecast / measured - 1:+.1%}".replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    measured: float
    forecast: float

    @property
    def difference(self) -> str:
        """The difference in per cent of the measured value; "" if that is 0."""
        return difference(self.measured, self.forecast) if self.measured else ""


@dataclass(frozen=True, eq=False)
class ForecastPart:
    """The forecast from one change of settings to the next one.

    `start`: the time (ns) of the forecast run from which these settings hold. `trace`: a simulated run with them. `window`: the
    times (ns) of the simulated run between which it is in the steady state. `slow`: {role: slowdown factor} in both.
    """

    start: int
    trace: Trace
    window: tuple[int, int]
    slow: Mapping[str, float]

    @cached_property
    def histogram(self) -> dict[int, int]:
        """{staleness: gradients} of the steady state."""
        first, last = self.window
        _, stale, count = staleness_between(self.trace, first + 1, last)
        return {int(value): int(count[stale == value].sum()) for value in np.unique(stale)}

    @cached_property
    def mean(self) -> float | None:
        """The mean staleness; None without gradients."""
        return _mean(self.histogram)

    def rate(self, of: str = "gradients") -> float | None:
        """Return the gradients, samples or bytes per second in the steady state."""
        return rate_between(Cumulative(of).gross(self.trace, self.window[1]), self.window)


@dataclass(frozen=True, eq=False)
class RunForecast:
    """The forecast of a run. `parts`: in order of time, at least one. `doubts`: reasons why it may be wrong."""

    parts: tuple[ForecastPart, ...]
    doubts: tuple[str, ...] = ()

    def part(self, t: int) -> ForecastPart:
        """The part that holds at `t` (ns)."""
        return [part for part in self.parts if part.start <= max(t, self.parts[0].start)][-1]

    def steps(self, values: Mapping[int, float | None], end: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (seconds, values) of a curve that has a step at each change, up to `end` seconds. `values`: {number of the part:
        value}; parts without a value are left out.
        """
        edges = [part.start / NANO for part in self.parts] + [end]
        known = [(k, value) for k, value in values.items() if value is not None and edges[k] < end]
        x = [at for k, _ in known for at in (edges[k], min(edges[k + 1], end))]
        return np.array(x), np.repeat([value for _, value in known], 2).astype(float)

    def histogram(self, t: int) -> dict[int, float]:
        """Return {staleness: forecast gradients} of a run up to `t` (ns): each part counts with the gradients of its time."""
        found: dict[int, float] = {}
        ends = [part.start for part in self.parts[1:]] + [t]
        for part, end in zip(self.parts, ends):
            total, seconds = sum(part.histogram.values()), (min(end, t) - part.start) / NANO
            weight = (part.rate() or 0.0) * seconds
            if len(self.parts) == 1:  # also without a rate
                weight = max(weight, 1.0)
            if total and weight > 0:
                for value, count in part.histogram.items():
                    found[value] = found.get(value, 0.0) + weight * count / total
        return found

    # against the run --------------------------------------------------------------------------------------------------

    def throughput(self, trace: Trace, t: int, counted: Cumulative | None = None) -> Comparison | None:
        """Compare the rates since the last change of settings before `t` (ns): gradients per second, or what `counted` counts.
        None before there are enough gradients. The first third of the time is left out, because the roles are starting.
        """
        part, counted = self.part(t), counted or Cumulative()
        forecast = part.rate(counted.of)
        measured = _rate(trace, part.start, t, part.slow, counted)
        return Comparison(measured, forecast) if measured and forecast else None

    def staleness(self, trace: Trace, t: int) -> Comparison | None:
        """Compare the mean staleness of all gradients applied up to `t` (ns). None before there are gradients."""
        measured, forecast = _mean(_histogram(staleness_until(trace, t))), _mean(self.histogram(t))
        return None if measured is None or forecast is None else Comparison(measured, forecast)

    @property
    def note(self) -> str:
        """ " (doubtful)" if the forecast may be wrong, else ""."""
        return " (doubtful)" if self.doubts else ""


def comparison_table(forecast: RunForecast | None, trace: Trace, t: int) -> Table | None:
    """Return measured and forecast throughput and staleness up to `t` (ns) as a table; None if there is nothing to compare."""
    if forecast is None:
        return None
    quantities = (
        ("gradients per second", forecast.throughput(trace, t)),
        ("mean staleness", forecast.staleness(trace, t)),
    )
    rows = [
        [name, number_text(found.measured), number_text(found.forecast), found.difference or None]
        for name, found in quantities if found is not None
    ]  # fmt: skip
    return Table(["quantity", "measured", "forecast", "difference"], rows) if rows else None


def throughput_text(found: Comparison, doubtful: str = "") -> str:
    """Return `forecast 5,300/s (+3.5%), measured 5,120/s`."""
    return f"forecast {rate(found.forecast)}/s ({found.difference}), measured {rate(found.measured)}/s{doubtful}"


def staleness_text(found: Comparison, doubtful: str = "") -> str:
    """Return `dashes: forecast 2.99 (−2.0%), measured 3.05`."""
    more = f" ({found.difference})" if found.difference else ""
    return f"dashes: forecast {found.forecast:.2f}{more}, measured {found.measured:.2f}{doubtful}"


def _rate(trace: Trace, since: int, until: int, slow: Mapping[str, float], counted: Cumulative) -> float | None:
    factors = {trace.roles.index(role): factor for role, factor in slow.items() if role in trace.roles}
    series = counted.gross(trace, until)
    return rate_between(series, steady_window(trace, series, since, until, factors))


def _histogram(found: Mapping[str, dict[int, int]]) -> dict[int, int]:
    return {int(value): int(count) for value, count in found["histogram"].items()}


def _mean(counts: Mapping[int, float]) -> float | None:
    total = sum(counts.values())
    return sum(value * count for value, count in counts.items()) / total if total else None
