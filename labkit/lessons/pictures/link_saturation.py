"""Saturation of links: gradients per second against the number of workers, with servers and in a ring.

c is the time to compute a gradient, a the latency of a message, m the time for which the whole model occupies a link (all
in seconds), N the number of workers, S the number of servers (shards), and s the time of a server's work:

    synchronous      N / (c + s + 2a + m (1 + N/S))             never more than S/m: the servers' links are saturated
    asynchronous     min(N / (c + s + 2a + m (1 + 1/S)), S/m, 1/s)
    ring             N / (c + 2 (N-1) (a + m/N))                for large N: N / (c + 2m + 2 (N-1) a)

c, a, m and s are taken from the headers of the runs if they were simulated with a constant computing time. For other
runs, the forecasts must be given as `forecast`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from ...errors import BadInput, shown
from ...trace import RunOrTrace
from ...trace.query import Cumulative
from ...trace.role_states import workers_of
from ...trace.schema import NANO
from ...trace.trace import Trace
from ...views import style
from ...views.figures import LabFigure
from .layout import LABEL, WIDTH, WORDS, axes_at, lanes, number, sheet, traces_of

TOP, HIGH, FOOT, LEFT, NAMES = 66, 300, 52, 66, 196  # pixels
MOST_RUNS, MOST_KINDS = 8, 4
FILLS = (style.GREEN, style.PAPER, style.GREEN_FILL, style.INK)  # of dots of runs with servers, in order


def link_saturation(
    runs: Mapping[str, Mapping[int, RunOrTrace]], forecast: Mapping[str, Mapping[int, float]] | None = None
) -> LabFigure:
    """Draw gradients per second against workers: measured dots, and a forecast line for each architecture.

    The dashed grey line is for workers without communication. Dots for the same number of workers that would overlap are side
    by side.

    Parameters
    ----------
    runs : mapping of str to mapping
        {name: {workers: run or trace}}, with up to 4 names, for example {"one server": {2: run, 4: run, 8: run}, "ring": {...}}.
    forecast : mapping of str to mapping, optional
        {name: {workers: gradients per second}} for names without a known formula, or whose formula is to be replaced. Formulas
        are known for SyncPS, AsyncPS and RingAllReduce in simulated runs with constant times. If there is neither a formula nor a
        forecast, only dots are drawn.

    Returns
    -------
    LabFigure
        A matplotlib Figure, which a notebook shows if it is the last expression of a cell.

    Raises
    ------
    BadInput
        If the arguments are not of this kind.

    Examples
    --------
    >>> problem = lk.Problem("digits", timing_only=True)
    >>> def run(strategy, workers):
    ...     cluster = lk.SimulatedCluster(workers=workers, bandwidth=1e7)
    ...     return lk.train(problem, strategy, cluster, lk.Budget(updates=20)).wait()
    >>> kinds = {"one server": lk.SyncPS(), "ring": lk.RingAllReduce()}
    >>> runs = {name: {n: run(kind, n) for n in (2, 4, 8)} for name, kind in kinds.items()}
    >>> lk.lessons.pictures.link_saturation(runs).savefig("links.png")
    """
    if not isinstance(runs, Mapping) or not 1 <= len(runs) <= MOST_KINDS:
        raise BadInput(
            f"link_saturation: give {{name: {{workers: run}}}} with 1 to {MOST_KINDS} names, not {shown(runs)}."
        )
    found = {
        str(name): traces_of(f"link_saturation, {name}", "workers", mine, MOST_RUNS) for name, mine in runs.items()
    }
    unknown = sorted(set(forecast or {}) - set(found))
    if unknown:
        raise BadInput(f"link_saturation: forecast for {shown(unknown[0])}, but the runs are of {', '.join(found)}.")
    rates = {name: {n: _rate(name, n, trace) for n, trace in mine.items()} for name, mine in found.items()}
    theory = {name: _line(mine, (forecast or {}).get(name)) for name, mine in found.items()}
    figure = sheet(TOP + HIGH + FOOT, _title(found, rates), _key(theory, _ideal(found)))
    axes = axes_at(figure, LEFT, TOP, WIDTH - LEFT - NAMES, HIGH, grid="y", y_ticks=5)
    _draw(axes, found, rates, theory)
    return figure


def theoretical_throughput(trace: Trace, workers: np.ndarray) -> np.ndarray | None:
    """Return the forecast gradients per second of a run as `trace`, but with `workers` workers.

    `workers` and the result: float64 of shape (n,). None if no formula is known.
    """
    header, cluster = trace.header, trace.header.cluster
    kind, _, c = str(cluster.compute).partition(":")
    served, _, s = str(cluster.server_time or "deterministic:0").partition(":")
    plain = cluster.simulated and kind == served == "deterministic"
    if not plain or cluster.slow or header.strategy.options.get("codec") or len(set(trace.nodes)) < len(trace.nodes):
        return None
    n, a, work, serving = np.asarray(workers, dtype=float), cluster.latency, float(c), float(s)
    m = _model_bytes(trace) / cluster.bandwidth if cluster.bandwidth else 0.0
    shards = max(1, len(trace.role_ids("server")))
    name = header.strategy.name
    if name == "SyncPS":
        return n / (work + serving + 2 * a + m * (1 + n / shards))
    if name == "AsyncPS":
        cycle = n / (work + serving + 2 * a + m * (1 + 1 / shards))
        bound = max(m / shards, serving)
        return np.minimum(cycle, 1 / bound if bound else np.inf)
    if name == "RingAllReduce":
        return n / (work + 2 * (n - 1) * (a + m / n))
    return None


def _model_bytes(trace: Trace) -> int:
    """Return the number of bytes on the link of a gradient with respect to all parameters."""
    sizes = {role.part: role.parameters for role in trace.header.layout.roles}  # replicas have equal parts
    return sum(sizes.values()) * np.dtype(trace.header.problem.dtype).itemsize


def _rate(name: str, n: int, trace: Trace) -> float:
    if len(workers_of(trace)) != n:
        raise BadInput(f"link_saturation: the run given for {name}, {n} workers, has {len(workers_of(trace))}.")
    applied, rate = Cumulative(), 0.0
    for role in workers_of(trace):  # from the first to the last gradient: warm-up and the cut-off end do not count
        when, total, _ = applied.gross(trace, trace.watermark(), role)
        whole = int(total[-1] + 1e-6) if len(when) else 0
        first, last = (int(when[np.searchsorted(total, count - 1e-6)]) for count in ((1, whole) if whole else (0, 0)))
        if whole < 2 or last <= first:
            raise BadInput(
                f"link_saturation: {name}, {n} workers: fewer than two gradients of {trace.roles[role]} were applied."
            )
        rate += (whole - 1) / (last - first) * NANO
    return rate


def _line(mine: dict[int, Trace], given: Mapping[int, float] | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (workers, gradients per second) of the forecast line."""
    if given is not None:
        return np.array(sorted(given), dtype=float), np.array([given[n] for n in sorted(given)], dtype=float)
    x = np.linspace(min(mine), max(mine), 200)
    y = theoretical_throughput(mine[max(mine)], x)
    return None if y is None else (x, y)


def _is_ring(trace: Trace) -> bool:
    return not trace.role_ids("server")


def _title(found: dict[str, dict[int, Trace]], rates: dict[str, dict[int, float]]) -> str:
    """Return a title that compares the slowest and the fastest run at the largest number of workers that all names have
    in common.
    """
    common = set.intersection(*(set(mine) for mine in rates.values()))
    if len(rates) < 2 or not common:
        return "Gradients per second against workers."
    n = max(common)
    order = sorted(rates, key=lambda name: rates[name][n])
    low, high = order[0], order[-1]
    filled = not _is_ring(found[low][n]) and _is_ring(found[high][n])
    says = "The link of a server saturates, the ring does not" if filled else "Link saturation"
    low_rate, high_rate = number(rates[low][n]), number(rates[high][n])
    return f"{says}: with {n} workers {low_rate} gradients per second, and {high_rate}."


def _key(theory: dict[str, Any], ideal: float | None) -> str:
    red = " · red line = theory" if any(line is not None for line in theory.values()) else ""
    return f"dots = measured (green: with servers, blue: without){red}{' · dashed = no communication time' if ideal else ''}"


def _draw(
    axes: Axes, found: dict[str, dict[int, Trace]], rates: dict[str, dict[int, float]], theory: dict[str, Any]
) -> None:
    most = max(max(mine) for mine in found.values())
    highest = max(max(mine.values()) for mine in rates.values())
    ideal = _ideal(found)
    axes.set_xlim(0, most * 1.03)
    axes.set_ylim(0, style.nice_above(1.08 * highest))
    axes.xaxis.set_major_locator(FixedLocator(sorted({n for mine in found.values() for n in mine})))
    ends: list[tuple[str, float, str, str]] = []
    fills = iter(FILLS)
    per_worker, per_rate = (WIDTH - LEFT - NAMES) / axes.get_xlim()[1], HIGH / axes.get_ylim()[1]  # pixels
    dots = {name: {n: float(n) for n in mine} for name, mine in rates.items()}
    for n in {n for mine in rates.values() for n in mine}:
        here = [name for name, mine in rates.items() if n in mine]
        for name, move in zip(here, lanes([per_rate * rates[name][n] for name in here])):
            dots[name][n] += move / per_worker
    if ideal is not None:
        stop = min(most, axes.get_ylim()[1] / ideal)
        axes.plot([0, stop], [0, ideal * stop], color=style.GREY, linewidth=1.6, linestyle=(0, (4, 2.5)), zorder=2)
        made = style.write(
            axes, 0.6 * stop, 0.62 * stop * ideal, "no communication: N/c", style.GREY, LABEL, ha="right", va="bottom"
        )
        made.set(path_effects=style.halo())
    for name, mine in rates.items():
        if theory[name] is not None:
            axes.plot(*theory[name], color=style.RED, linewidth=1.8, zorder=3)
        first = next(iter(found[name].values()))
        colour = style.BLUE if _is_ring(first) else style.GREEN
        face = style.BLUE if _is_ring(first) else next(fills)
        axes.plot(list(dots[name].values()), list(mine.values()), "o", markersize=8, color=face, markeredgecolor=colour,
                  markeredgewidth=2.0, linestyle="none", zorder=4, clip_on=False)  # fmt: skip
        ends.append((name, mine[max(mine)], colour, _limit(first)))
    axes.set_xlabel("workers", **style.text(size=LABEL, labelpad=4))
    axes.set_ylabel("gradients per second", **style.text(size=LABEL, labelpad=4))
    _names(axes, ends)


def _ideal(found: dict[str, dict[int, Trace]]) -> float | None:
    """Return the gradients per second of one worker without communication, or None if unknown."""
    for mine in found.values():
        for trace in mine.values():
            kind, _, c = str(trace.header.cluster.compute).partition(":")
            if kind == "deterministic" and float(c) > 0:
                return 1 / float(c)
    return None


def _limit(trace: Trace) -> str:
    """Return the capacity of the servers' links as text, or "" for a ring."""
    band, shards = trace.header.cluster.bandwidth, len(trace.role_ids("server"))
    if not band or not shards or not trace.header.cluster.simulated:
        return ""
    return f"limit {number(shards * band / _model_bytes(trace))}"


def _names(axes: Axes, ends: list[tuple[str, float, str, str]]) -> None:
    """Write the name of each line next to its last dot, without overlaps."""
    high = axes.get_ylim()[1]
    places = style.spread([min(rate / high, 1.0) for _, rate, _, _ in ends], 40 / HIGH, 0.05, 0.98)
    for (name, rate, colour, limit), y in zip(ends, places):
        at: dict[str, Any] = {"transform": axes.transAxes, "va": "center"}
        up = 9 / HIGH if limit else 0.0
        style.write(axes, 1.03, y + up, f"{name}: {number(rate)}", colour, LABEL + 1, fontweight="bold", **at)
        if limit:
            style.write(axes, 1.03, y - up, limit, style.GREY, WORDS, **at)
