"""A panel is a picture of one thing: a pure function of (trace, time), drawn on axes that it is handed.

`setup(axes)` once, `update(trace, t)` as often as there is something new: artists are made once and changed afterwards,
so the same object serves a live view and a report. `t` is engine time in nanoseconds; None is as far as the trace is
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
    """The time (ns) that is meant: `t`, but never beyond what the trace knows."""
    known = trace.watermark()
    return known if t is None else min(int(t), known)


class Panel:
    """The base of all panels. A subclass says what it is called and how large it likes to be, and draws."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    size: ClassVar[tuple[int, int]] = (462, 210)  # pixels, title apart
    margins: ClassVar[tuple[int, int, int, int]] = (48, 12, 36, 8)  # pixels: left, right, bottom, top
    period: ClassVar[int] = 250_000_000  # ns of engine time after which a live view looks again
    tables: ClassVar[tuple[str, ...]] = ()  # what it is drawn from

    axes: Axes

    def setup(self, axes: Axes) -> Self:
        """Take possession of empty axes."""
        self.axes = style.calm(axes)
        self.note = style.note(axes)
        return self

    def update(self, trace: Trace, t: int | None = None) -> None:
        """Show the trace as it was at time `t`."""
        raise NotImplementedError

    def draw(self, trace: Trace, t: int | None, axes: Axes) -> Self:
        """`setup` and `update` in one: the whole picture on empty axes."""
        self.setup(axes)
        self.update(trace, t)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        """What stands behind the title, in plain words."""
        return ""

    def key(self, trace: Trace, t: int) -> Any:
        """Equal keys, equal pictures (as far as a live view cares)."""
        rows = tuple(rows_written(trace, name) for name in self.tables)
        return rows, t // self.period, len(trace.events), trace.ending is None

    def axes_key(self) -> Any:
        """Equal keys and equal limits, equal axes: says what else changes their ticks and their text."""
        return None
