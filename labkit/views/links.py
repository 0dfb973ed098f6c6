"""Links: recent receive and send rates of each node, in bytes per second, and the bandwidth of its link.

Each node has two bars: the upper bar is the receive rate, and the fainter bar below is the send rate. The red line is the
bandwidth of the cluster, and a red mark the limit of one node. The busiest servers and workers, and slowed or limited
roles, have separate rows. All other nodes share one row, which shows their mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..formatting import bytes_text, short
from ..trace.index import Lookup
from ..trace.query import gradient_time, skipped, traffic, traffic_by_node
from ..trace.role_states import bandwidths, slowed
from ..trace.schema import NANO
from ..trace.trace import Trace
from . import style
from .label_placement import pixels_of
from .panel import Panel, Stops, moment

# maximum number of separate rows of each kind; one more if then no role is left for "others"
MOST = {"server": 2, "worker": 3}
HEADROOM = 17  # pixels above the bars, for the label of the line
COLOURS = {
    "server": (style.GREEN, style.GREEN_FILL), "worker": (style.BLUE, style.BLUE_FILL),
    "slowed": (style.ORANGE, style.ORANGE_FILL), "others": (style.BLUE, style.BLUE_FILL),
}  # fmt: skip
UNITS = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "bytes/s"))


@dataclass(frozen=True)
class Row:
    """A row of the panel.

    `colour`: key of `COLOURS`. `into`, `out`: bytes per second received and sent. `limit`: bytes per second to which the node is
    limited; None: it is not, or it is several nodes.
    """

    name: str
    colour: str
    into: float
    out: float
    limit: float | None = None


def recent_ns(trace: Trace) -> int:
    """Return the length of the averaging interval (ns): about sixteen gradients, rounded, and on a cluster at least one
    second.
    """
    window = max(1000, round(style.nice_above(14.5 * gradient_time(trace) / NANO) * NANO))
    return window if trace.header.cluster.simulated else max(NANO, window)


def rows(trace: Trace, t: int, lookup: Lookup | None = None) -> list[Row]:
    """Return the rows from top to bottom: servers, workers, the mean of all others. Nodes keep the order of the layout."""
    rates = traffic_by_node(trace, traffic(trace, max(0, t - recent_ns(trace)), t, lookup))
    slow, limited = slowed(trace, t), bandwidths(trace, t)
    limit_of: dict[str, float] = {}
    for role, limit in limited.items():
        limit_of[trace.nodes[role]] = min(limit, limit_of.get(trace.nodes[role], limit))
    one = len(trace.role_ids("server")) == 1
    found: list[Row] = []
    for kind, most in MOST.items():
        mine = [role for role in rates if (trace.kinds[role] == "server") == (kind == "server")]
        usual = {role for role in mine if role not in slow and trace.nodes[role] not in limit_of}
        ranked = sorted(mine, key=lambda role: (role in usual, -_magnitude(max(rates[role])), role))
        own = mine if len(mine) <= most + 1 else sorted(ranked[:most])
        for role in own:
            name = "server" if one and kind == "server" else short(trace.roles[role])
            limit_here = limit_of.get(trace.nodes[role])
            found.append(Row(name, "slowed" if role in slow else kind, *rates[role], limit_here))
        rest = [rates[role] for role in mine if role not in own]
        if rest:
            into, out = np.mean(rest, axis=0)
            found.append(Row(f"{len(rest):,} others", kind, float(into), float(out)))
    return found


def _magnitude(rate: float) -> int:
    """Return the rate on a logarithmic scale with steps of a factor 1.4, so that small changes do not change the ranking."""
    return round(2 * math.log2(rate)) if rate > 0 else -99


class LinksPanel(Panel):
    name: ClassVar[str] = "links"
    title: ClassVar[str] = "Links"
    margins: ClassVar[tuple[int, int, int, int]] = (74, 14, 36, 8)
    tables: ClassVar[tuple[str, ...]] = ("messages",)

    def __init__(self) -> None:
        self._lookup = Lookup()

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid="x", x_ticks=5)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(" ", **style.text(labelpad=2))
        self.bars = PolyCollection([], linewidths=0, zorder=2)
        axes.add_collection(self.bars, autolim=False)
        self.link = axes.plot([], [], color=style.RED, linewidth=1.8, zorder=3)[0]
        self.link_text = style.write(
            axes, 0, 0.99, "", style.RED, ha="right", va="top", transform=axes.get_xaxis_transform(), zorder=6
        )
        self.link_text.set_path_effects(style.halo())
        room = sum(MOST.values()) + len(MOST)
        self.words = [style.write(axes, 0, 0, "", style.INK, va="center", zorder=5) for _ in range(room)]
        for words in self.words:
            words.set_path_effects(style.halo(2.0))
        self._labelled: Any = None
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        t = moment(trace, t)
        some = " · estimated" if skipped(trace, "messages") else ""
        lately = f" · last {style.plain(float(f'{min(t, recent_ns(trace)) / NANO:.3g}'))} s" if t > 0 else ""
        return f"strong bar: in, faint: out{lately}{some}"

    def axes_key(self) -> Any:
        """Return the state of the names and the unit, which `_label` sets explicitly."""
        return self._labelled

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        found, width = rows(trace, t, self._lookup), trace.header.cluster.bandwidth
        highest = max((max(row.into, row.out) for row in found), default=0.0)
        quiet = not highest
        self.note.set_text("" if highest or width else "no traffic yet")
        full = width if width is not None else style.nice_above(highest)
        size, unit = next((u for u in UNITS if full >= u[0]), UNITS[-1])
        self.axes.set_xlim(0, (1.6 if width is None else 1.22) * max(full, highest) / size)
        _, height = pixels_of(self.axes)
        above = 0.0 if width is None else HEADROOM / (height - HEADROOM) * len(found)
        self.axes.set_ylim(len(found) - 0.5, -0.5 - above)
        self._label(found, unit, width)
        self._draw_bandwidth(width, size)
        boxes, colours = [], []
        for k, row in enumerate(found):
            for value, top, colour in zip((row.into, row.out), (-0.36, 0.02), COLOURS[row.colour]):
                right = value / size
                boxes.append([(0, k + top), (0, k + top + 0.34), (right, k + top + 0.34), (right, k + top)])
                colours.append(colour)
            if row.limit is not None:
                left, thin = row.limit / size, 0.004 * self.axes.get_xlim()[1]
                boxes.append([(left, k - 0.42), (left, k + 0.42), (left + thin, k + 0.42), (left + thin, k - 0.42)])
                colours.append(style.RED)
        self.bars.set_verts(boxes)
        self.bars.set_facecolor(colours)
        self._write(found, size, width, quiet)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        found, width = rows(trace, t, self._lookup), trace.header.cluster.bandwidth
        if not 0 <= round(y) < len(found):
            return ""
        row = found[round(y)]
        said = [f"{what} {rate:,.0f} bytes/s" + (f" ({share_text(rate / width)} of the bandwidth)" if width else "")
                for what, rate in (("receives", row.into), ("sends", row.out))]  # fmt: skip
        said += [] if row.limit is None else [f"limited to {bytes_text(row.limit)}/s"]
        return "\n".join([f"{row.name}{', mean' if row.name.endswith(' others') else ''}", *said])

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found = rows(trace, t, self._lookup)
        return ("node", "received (bytes/s)", "sent (bytes/s)"), [(row.name, row.into, row.out) for row in found]

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        return [[(0.0, float(k)) for k in range(len(rows(trace, t, self._lookup)))]]

    def _label(self, found: list[Row], unit: str, width: float | None) -> None:
        state = (tuple((row.name, row.colour) for row in found), unit, width is None)
        if state == self._labelled:
            return
        self._labelled = state
        self.axes.set_yticks(range(len(found)), [row.name for row in found])
        self.axes.tick_params(axis="y", length=0)
        for row, label in zip(found, self.axes.get_yticklabels()):
            label.set_color(style.ORANGE if row.colour == "slowed" else style.GREY)
        self.axes.set_xlabel(unit)

    def _draw_bandwidth(self, width: float | None, size: float) -> None:
        self.link.set_data(*(([], []) if width is None else ([width / size] * 2, self.axes.get_ylim())))
        self.link_text.set_text("" if width is None else f"bandwidth: {bytes_text(width)}/s ")
        self.link_text.set_x(0 if width is None else width / size)

    def _write(self, found: list[Row], size: float, width: float | None, quiet: bool) -> None:
        for k, words in enumerate(self.words):
            row = found[k] if k < len(found) and not (quiet and width is None) else None
            words.set_text("" if row is None else rate_text(row.into, row.out, width))
            if row is not None:
                words.set_position((max(row.into, row.out) / size + 0.01 * self.axes.get_xlim()[1], k))


def rate_text(into: float, out: float, width: float | None) -> str:
    """Return the text next to a row. It has one number if both rates are equal after rounding."""
    if width is None:
        most = max(into, out)
        if abs(into - out) <= 0.03 * most:
            return f"{bytes_text(most)}/s"
        return f"{bytes_text(into)}/s in, {bytes_text(out)}/s out"
    one, other = share_text(into / width), share_text(out / width)
    return one if one == other else f"{one} in, {other} out"


def share_text(share: float) -> str:
    """Format a share as a percentage: `34%`, `0.3%`."""
    return f"{share:.0%}" if share >= 0.01 or share < 0.0005 else f"{share:.1%}"
