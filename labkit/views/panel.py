"""Base class of panels. A panel is a pure function of (trace, time), drawn on given axes.

`setup(axes)` is called once, `update(trace, t)` for every new state: artists are created once and changed afterwards, so that the
same object serves a live view and a report. `t` is engine time in nanoseconds; None is the time up to which the trace is
complete.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from matplotlib.axes import Axes

from ..trace.query import rows_written
from ..trace.trace import Trace
from . import style

__all__ = ["Panel", "moment"]


def moment(trace: Trace, t: int | None) -> int:
    """`t` (ns) limited to the time up to which the trace is complete; that time for None."""
    known = trace.watermark()
    return known if t is None else min(int(t), known)


class Panel:
    """The base of all panels. A subclass sets title and preferred size, and draws."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    size: ClassVar[tuple[int, int]] = (462, 210)  # pixels, without the title
    margins: ClassVar[tuple[int, int, int, int]] = (48, 12, 36, 8)  # pixels: left, right, bottom, top
    period: ClassVar[int] = 250_000_000  # ns of engine time between updates of a live view
    tables: ClassVar[tuple[str, ...]] = ()  # tables that the panel reads

    axes: Axes

    def setup(self, axes: Axes) -> Self:
        """Create the artists on empty axes."""
        self.axes = style.plain_axes(axes)
        self.note = style.note(axes)
        return self

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Show the trace as of time `t`."""
        raise NotImplementedError

    def draw(self, trace: Trace, t: int | None, axes: Axes) -> Self:
        """`setup` and `update`: the whole panel on empty axes."""
        self.setup(axes)
        self.update(trace, t)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """The text after the title."""
        return ""

    def key(self, trace: Trace, t: int) -> Any:
        """Equal keys imply equal pictures (as far as a live view is concerned)."""
        rows = tuple(rows_written(trace, name) for name in self.tables)
        return rows, t // self.period, len(trace.events), trace.ending is None

    def axes_key(self) -> Any:
        """Equal keys and equal limits imply equal axes; the key covers all other changes of ticks and axis text."""
        return None
