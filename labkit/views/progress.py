"""Clocks: how many gradients each worker is ahead of the slowest one, over time.

    lead of a worker = gradients that it had finished when it began its newest one - fewest finished by any worker now

That is the number which bounded staleness bounds: an iteration may begin only if the worker's own clock is at most s
beyond the slowest clock, and while the iteration goes on its lead can only shrink. So on a run with a knob `s` no line
crosses the red one, and a runaway comes to stand at it. (The gate of a server that was restored counts anew: whoever was
ahead by then stays so beyond the bound.) Of more than six workers the extremes are drawn, and a band that
holds nine in ten.

Where rows of spans were left out (a run too fast to report them all) the clocks are those of the server, which counts
what it has applied; then a lead can be s + 1: the gradient that was begun at the bound is finished, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.ticker import MaxNLocator

from ..trace.role_states import conditions, slowed
from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, EVERYONE, NANO, short
from . import style
from .curves import Curve, Curves, until
from .event_labels import option_steps
from .lives import Work, continued, without
from .timeline import under_way
from .traffic import simulated, typical_ns

__all__ = ["Leads", "Progress", "clocked", "draw", "highest", "leads"]

MOST_LINES, MOST_EVENTS, POINTS, MOST_BINS = 6, 4000, 400, 100


def draw(trace: Trace, t: int | None, axes: Axes) -> Progress:
    """Each worker's lead up to `t` (ns) on empty axes."""
    return Progress().draw(trace, t, axes)


@dataclass(frozen=True)
class Leads:
    """`lead[i, k]`: gradients that `roles[i]` was ahead at `time[k]` ns. `applied`: as a server has counted them."""

    roles: list[int]
    time: np.ndarray
    lead: np.ndarray
    applied: bool = False


def clocked(trace: Trace) -> list[int]:
    """The roles that have a clock of their own: of those that draw the same batches (stages of a pipeline) the first."""
    seen: dict[int, int] = {}
    for role, spec in enumerate(trace.header["layout"]["roles"]):
        if spec["data"] is not None and spec["kind"] not in ("server", "chief"):
            seen.setdefault(spec["data"], role)
    return sorted(seen.values())


def leads(trace: Trace, t: int) -> Leads:
    """Who was how far ahead, from the start to `t` ns."""
    roles = clocked(trace)
    if _cut(trace):
        return _applied(trace, t, roles)
    work, begins = continued(trace, t, roles, _work(trace, t, roles))
    if not any(len(start) for start, _, _ in work):
        return Leads(roles, np.empty(0, np.int64), np.empty((len(roles), 0), np.int64))
    events = np.unique(np.concatenate([np.r_[start, end] for start, end, _ in work]))
    events = events[events <= t]
    time = events if len(events) <= MOST_EVENTS else np.linspace(0, t, POINTS).astype(np.int64)
    time = np.unique(np.r_[0, time, t])
    begun = np.array([_last(start, clock, time) for start, _, clock in work])
    finished = np.array([_finished(*one, levels, time) for one, levels in zip(work, begins)])
    missed = without(trace, t)
    for i, role in enumerate(roles):  # nobody waits for who is not there
        for gap in missed.get(role, ()):
            away = (time >= gap.begin) & (time < (t + 1 if gap.end is None else gap.end))
            begun[i, away], finished[i, away] = 0, np.iinfo(np.int64).max
    return Leads(roles, time, np.maximum(begun - finished.min(axis=0), 0))


def _last(when: np.ndarray, value: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The value of the last event at or before each time; 0 before the first."""
    return np.r_[0, value][np.searchsorted(when, time, side="right")]


def _finished(
    start: np.ndarray, end: np.ndarray, clock: np.ndarray, levels: list[tuple[int, int]], time: np.ndarray
) -> np.ndarray:
    """Gradients finished at each time, where new lives begin at `levels`."""
    when, value = np.r_[end, [at for at, _ in levels]], np.r_[clock + 1, [level for _, level in levels]]
    order = np.argsort(when, kind="stable")
    return _last(when[order], value[order], time).astype(np.int64)


def _work(trace: Trace, t: int, roles: list[int]) -> list[Work]:
    """(start, end, gradients finished before) of each gradient of each role that was begun by `t`."""
    role, phase, start, end, step = trace.column("spans", "role", "phase", "start", "end", "step")
    seen = (phase == COMPUTE) & (start <= t)
    role, start, end, step = role[seen], start[seen], end[seen], step[seen]
    clock = step if simulated(trace) else step - 1  # in real time a span is written when its gradient is counted
    order = np.lexsort((start, role))
    role, start, end, clock = role[order], start[order], end[order], np.maximum(clock[order], 0)
    edges = np.searchsorted(role, [*roles, len(trace.roles)])
    last = np.searchsorted(role, roles, side="right")
    found, open_ = [], under_way(trace, t)
    for who, a, b in zip(roles, edges, last):
        mine = start[a:b], end[a:b], clock[a:b]
        now = open_.get(who)
        if now is not None and (a == b or now > mine[0][-1]):  # under way: no row yet
            begun = mine[2][-1] + 1 if b > a else 0
            mine = np.r_[mine[0], now], np.r_[mine[1], t + 1], np.r_[mine[2], begun]
        found.append(mine)
    return found


def _applied(trace: Trace, t: int, roles: list[int]) -> Leads:
    """The same from what the first shard has said, now and then, that it has applied."""
    owner = trace.roles.index(trace.header["layout"]["observed"][0])
    role, time, sender, count = trace.column("progress", "role", "time", "sender", "gradients")
    seen = (role == owner) & (time <= t) & (sender != EVERYONE)
    time, sender, count = time[seen], sender[seen], count[seen]
    when = np.unique(time)
    clocks = np.array([_last(time[sender == who], count[sender == who], when) for who in roles])
    return Leads(roles, when, clocks - clocks.min(axis=0) if len(when) else clocks, applied=True)


def highest(found: Leads, first: int, last: int, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """(edges of `bins` equal stretches of [first, last] ns, the largest lead of each role in each)."""
    edges = np.unique(np.linspace(first, last, bins + 1).astype(np.int64))
    time = np.union1d(found.time, edges)
    time = time[(time >= first) & (time < last)]
    lead = found.lead[:, np.maximum(np.searchsorted(found.time, time, side="right") - 1, 0)]
    return edges, np.maximum.reduceat(lead, np.searchsorted(time, edges[:-1]), axis=1)


class Progress(Curves):
    """See the module."""

    name: ClassVar[str] = "progress"
    title: ClassVar[str] = "Clocks"
    tables: ClassVar[tuple[str, ...]] = ("spans", "progress")

    def setup(self, axes: Any) -> Self:
        """A band besides the lines."""
        super().setup(axes)
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True, steps=[1, 2, 5, 10]))
        self._roof, self._even = 0.0, False  # the highest bound in the picture; whether nobody was ever ahead
        self.band = PolyCollection([], facecolors=style.BLUE_FILL, alpha=0.6, linewidths=0, zorder=1.5)
        axes.add_collection(self.band, autolim=False)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """What the lines count."""
        if _cut(trace):
            return "gradients applied, ahead of the slowest worker"
        many = len(clocked(trace)) > MOST_LINES
        return "gradients ahead of the slowest" + (" · band: 90%" if many else " worker")

    def curves(self, trace: Trace, t: int) -> list[Curve]:
        """The bound, the one in front, the slowed ones, and, of a few workers, all others."""
        found = leads(trace, t)
        self.band.set_verts([])
        self._roof = 0.0
        self._even = found.lead.size > 0 and not found.lead.any()
        if len(found.roles) < 2 or not found.lead.any() or t <= 0:
            return []
        edges, most = highest(found, 0, t, int(np.clip(t / (2 * typical_ns(trace)), 1, MOST_BINS)))
        gone, ahead = conditions(trace, t), most[:, -1]
        slow = {*slowed(trace, t), *gone}
        front = int(np.lexsort((-found.lead[:, -1], -ahead))[0])
        few = len(found.roles) <= MOST_LINES

        def line(i: int, colour: str, width: float, bold: bool = False) -> Curve:
            how = gone.get(found.roles[i]) or (f"{ahead[i]:,} ahead" if ahead[i] else "last")
            words = f"{short(trace.roles[found.roles[i]])}, {how}"
            label = words if i == front or found.roles[i] in slow else ""
            return Curve(*_stairs(edges / NANO, np.r_[most[i], most[i, -1]]), label, colour, "-", width, bold)

        rest = [i for i in range(len(found.roles)) if i != front]
        made = [line(front, style.ORANGE if found.roles[front] in slow else style.BLUE, 2.4, True)]
        made += [line(i, style.ORANGE, 1.8) for i in rest if found.roles[i] in slow][:3]
        if few:
            made += [line(i, style.BLUE_LINE, 1.3) for i in rest if found.roles[i] not in slow]
        else:
            x, low = _stairs(edges / NANO, np.percentile(np.c_[most, most[:, -1]], 5, axis=0))
            _, high = _stairs(edges / NANO, np.percentile(np.c_[most, most[:, -1]], 95, axis=0))
            self.band.set_verts([np.stack([np.r_[x, x[::-1]], np.r_[low, high[::-1]]], axis=-1)])
        return self._bound(trace, t, int(most.max()), 1 if found.applied else 0) + made

    def _bound(self, trace: Trace, t: int, reached: int, more: int) -> list[Curve]:
        """The red line: a hair above the number, so that who stands at it is still seen."""
        steps = option_steps(trace, "s", t)
        if not steps:
            return []
        s = steps[-1][1]
        if s + more > 4 * reached + 4:
            return []
        self._roof = max(value + more for _, value in steps)
        hair = 0.02 * self.ceiling(trace, reached)
        x, y = _stairs(
            np.array([*(time for time, _ in steps), until(trace, t) * NANO]) / NANO,
            np.array([*(value + more + hair for _, value in steps), s + more + hair]),
        )
        words = f"the bound: s + 1 = {s + 1:,g}" if more else f"the bound: s = {s:,g}"
        return [Curve(x, y, words, style.RED, "-", 1.8)]

    def ceiling(self, trace: Trace, highest: float) -> float:
        """Room for the bound, unless nobody comes anywhere near it."""
        return style.nice_above(max(1.06 * min(highest, 1e9), 1.25 * self._roof, 1.0))

    def nothing(self, trace: Trace) -> str:
        """One clock is no race; and in a synchronous run nobody gets ahead."""
        if len(clocked(trace)) < 2:
            return "one clock: nobody to run ahead of"
        if self._even:
            return "nobody is ahead: all work on the same step"
        return "this run keeps totals only" if any(c.computed for c in trace.counters.values()) else "nothing begun yet"


def _cut(trace: Trace) -> bool:
    return bool(trace.tables["spans"].skipped or trace.tables["spans"].spilled)


def _stairs(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same points joined by steps: each value holds until the next x."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
