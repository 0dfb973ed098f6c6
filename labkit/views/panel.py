"""Base class of panels. A panel is a pure function of (trace, time), drawn on given axes.

`setup(axes)` is called once and creates the artists. `update(trace, t)` is called for every frame and changes them. The
same class therefore serves live views and reports. `t` is engine time in nanoseconds. None means the time up to which the
trace is complete.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from ..trace.query import rows_written
from ..trace.trace import Trace
from . import style

Stops = list[tuple[float, float]]


def moment(trace: Trace, t: int | None) -> int:
    """Return the smaller of `t` (ns) and the time up to which the trace is complete; if `t` is None, return that time."""
    known = trace.watermark()
    return known if t is None else min(int(t), known)


class Panel:
    """Base class of panels. A subclass sets title and preferred size, and implements `setup` and `update`."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    size: ClassVar[tuple[int, int]] = (462, 210)  # pixels, without the title
    margins: ClassVar[tuple[int, int, int, int]] = (48, 12, 36, 8)  # pixels: left, right, bottom, top
    period: ClassVar[int] = 250_000_000  # ns of engine time between updates of a live view
    tables: ClassVar[tuple[str, ...]] = ()  # tables that the panel reads

    axes: Axes

    def setup(self, axes: Axes) -> Self:
        self.axes = style.plain_axes(axes)
        self.note = style.note(axes)
        return self

    def update(self, trace: Trace, t: int | None = None) -> None:
        raise NotImplementedError

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        """Return the values of the trace at a point of the panel, a line of text each; "" if there are none. `x`, `y`: the
        point in the units of the axes. `t` (ns): the time that `update` has drawn.
        """
        return ""

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Return the values that the panel shows at `t` (ns) as a table: names of the columns, with units, and rows."""
        return (), []

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        """Return the points that the arrow keys step through, in the units of the axes: rows from top to bottom, of points in
        reading order. `readout` has a value at each. `t` (ns): the time that `update` has drawn.
        """
        return []

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """The text after the title."""
        return ""

    def key(self, trace: Trace, t: int) -> Any:
        """Return a value that changes when the picture of a live view must be drawn again. Equal keys imply equal
        pictures, up to differences of less than a pixel.
        """
        rows = tuple(rows_written(trace, name) for name in self.tables)
        return rows, t // self.period, len(trace.events), trace.ending is None

    # Axes and their texts took 95% of the time of a frame, so a live view draws them only when they change: when the limits
    # of the axes do, or `axes_key`.
    def fixed(self) -> tuple[Artist, ...]:
        """Return artists that are drawn with the axes, because they change only with `axes_key`."""
        return ()

    def axes_key(self) -> Any:
        """Return a value that changes when ticks, axis texts or fixed artists change for another reason than the limits of the
        axes.
        """
        return None
