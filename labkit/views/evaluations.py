"""What was measured on held-out samples, against time, updates or samples.

Against time, a fast strategy wins; against updates or samples, the one that learns more from each. An evaluation says
after which update it was made; how many samples that was is told by the servers' own counts.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from ..errors import nearest
from ..knobs import is_one_of
from ..trace.trace import Trace
from ..trace.vocabulary import NANO
from . import style
from .curves import Curve, Curves, pinned_run, this_run

__all__ = ["AGAINST", "Evaluated", "course"]

AGAINST = {"time": "seconds", "updates": "updates", "samples": "training samples"}


def course(trace: Trace, t: int, what: str, against: str = "time") -> tuple[np.ndarray, np.ndarray]:
    """(seconds, or updates, or samples; values) of "accuracy" or "loss" at the evaluations up to `t` ns; values that are
    not finite are left out.
    """
    time, update, value = trace.column("evaluations", "time", "update", what)
    seen = (time <= t) & np.isfinite(value)
    x = time[seen] / NANO if against == "time" else update[seen]
    return (x * _samples_in_an_update(trace, t) if against == "samples" else x), value[seen]


def _samples_in_an_update(trace: Trace, t: int) -> float:
    """The mean up to `t`. Batches are of one size but for the last of an epoch, so it hardly changes."""
    layout = trace.header["layout"]
    owners = [trace.roles.index(name) for name in layout["observed"]]
    role, time, samples, version = trace.column("applies", "role", "time", "samples", "version")
    means = []
    for owner in owners if layout.get("copies") == "own" else owners[:1]:
        mine = (role == owner) & (time <= t)
        applied, steps = int(samples[mine].sum()), int(version[mine].max(initial=0))
        if trace.tables["applies"].skipped or trace.tables["applies"].spilled or not steps:
            counters = trace.counters.get(owner)
            applied, steps = (counters.samples, counters.updates) if counters else (0, 0)
        means.append(applied / max(1, steps))
    return sum(means)


class Evaluated(Curves):
    """The base of accuracy and loss. `against`: one of `AGAINST`."""

    tables: ClassVar[tuple[str, ...]] = ("evaluations",)
    period: ClassVar[int] = 1_000_000_000
    what: ClassVar[str] = ""

    def __init__(self, pinned: Trace | None = None, against: str = "time"):
        super().__init__(pinned)
        if not is_one_of(against, AGAINST):
            raise nearest("against", against, AGAINST)
        self.against = against

    def setup(self, axes: object) -> Self:
        """Say what the axis is."""
        super().setup(axes)
        self.axes.set_xlabel(AGAINST[self.against], **style.text(labelpad=2))
        return self

    def across(self, trace: Trace, t: int, time: int) -> float:
        """Where on the axis an event of this time (ns) is: between the evaluations before and after it."""
        if self.against == "time":
            return super().across(trace, t, time)
        when, _ = course(trace, t, "loss")
        x, _ = course(trace, t, "loss", self.against)
        return float(np.interp(time / NANO, when, x)) if len(x) else -1.0

    def end(self, trace: Trace, t: int) -> float:
        """Where the axis ends at `t` (ns): the end of a finished run, else a round number beyond."""
        if self.against == "time":
            return super().end(trace, t)
        x, _ = course(trace, t, "loss", self.against)
        last = float(x[-1]) if len(x) else 0.0
        over = trace.ending is not None and t >= trace.ending["time"]
        return last if over and last > 0 else style.nice_above(1.02 * last)

    def both(self, trace: Trace, t: int, scale: float, form: str) -> list[Curve]:
        """This run and the pinned one; values times `scale`, said as `form` has it."""
        x, y = course(trace, t, self.what, self.against)
        found = [this_run(x, scale * y, format(y[-1], form) if len(y) else "")]
        if self.pinned is not None:
            px, py = course(self.pinned, self.pinned.watermark(), self.what, self.against)
            shown = py[px <= self.end(trace, t)]
            found.append(pinned_run(px, scale * py, format(shown[-1], form) if len(shown) else ""))
        return found
