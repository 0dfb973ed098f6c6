"""Zoom on one step: the last few updates in slow motion, with every message.

A message takes about 100 us and a frame 150 ms, so messages can only be shown later, in slow motion.

Blue = computing, green = applying, a thin grey line = waiting. A slanted line is a message, from its sender to its receiver: blue
from a worker, green from a server. Events that the slow motion has not reached yet are pale; dots are messages in flight.

A slow motion begins after every four seconds of the run (and after 0.5, 1 and 2 s). It shows the newest interval known at
that time, with the length of two gradients of the typical worker. Time is slowed down by a round factor such that the
slow motion ends before the next one begins. If the run is too fast to report everything, the interval is the newest for
which most roles have reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from ..formatting import bytes_text, duration, short
from ..trace.index import Lookup
from ..trace.passes import Passes
from ..trace.query import computing_since, gradient_period, reported_interval_end, rows_written, totals_only
from ..trace.role_states import slowed
from ..trace.schema import ALL, APPLY, COMPUTE, NANO, TRAINING, WAIT
from ..trace.trace import Trace
from . import style
from .event_labels import event_labels, slow_spans
from .event_lines import Events
from .label_placement import pixels_of
from .panel import Panel, Stops, moment
from .timeline import activities, activity_at, shown_roles

LEAST = 15  # minimum pixels per row
HALF = 0.3  # half the height of a row's boxes
PALE = 0.28
PERIOD = 4 * NANO  # ns of engine time, from the start of one slow motion to the next
GRADIENTS = 2.0  # gradients in an interval
RECENT = 4000  # rows searched
LEAST_SLOWER = 2.0  # a smaller slowdown is not shown as slow motion
UNITS = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
TICK = 0.004  # drawn width of an update that takes no time, as a share of the interval


@dataclass(frozen=True)
class ZoomInterval:
    """The displayed interval [begin, end] in ns.

    `sweep`: position of the slow motion (ns). `slower`: slowdown factor; 1 if there is no slow motion. `first`: whether
    it is the first interval of the run.
    """

    begin: int
    end: int
    sweep: int
    slower: float = 1.0
    first: bool = False

    @property
    def length(self) -> int:
        return self.end - self.begin


def slow_motion_period(t: int) -> tuple[int, int]:
    """Return (start, maximum duration) in ns of the slow motion that is shown at time `t` (ns)."""
    if t >= PERIOD:
        return t // PERIOD * PERIOD, PERIOD
    begin = next((PERIOD // k for k in (2, 4, 8) if t >= PERIOD // k), 0)
    return begin, begin or PERIOD // 8


def zoom_interval(trace: Trace, t: int, lookup: Lookup) -> ZoomInterval | None:
    """Return the displayed interval at `t` ns, or None if no span of computing has been recorded yet."""
    over = trace.ending is not None and t >= trace.ending["time"]
    known, lasts = (t, PERIOD) if over else slow_motion_period(t)
    most = RECENT + 4 * len(trace.roles)
    rows = lookup.spans.newest(trace, known, most) if known else lookup.spans.oldest(trace, t, most)
    work = rows.where(rows["phase"] == COMPUTE)
    gradient = gradient_period(work)
    if gradient is None:
        return None
    length = max(1000, round(style.nice_above(GRADIENTS * gradient / NANO) * NANO))
    slower = style.nice_below(lasts / length)
    if over or slower < LEAST_SLOWER:
        end = reported_interval_end(trace, rows, t, length)
        return ZoomInterval(max(0, end - length), max(end, length), end)
    if not known:
        begin = int(work["start"].min())
        return ZoomInterval(
            begin, begin + length, min(begin + round((t - begin) / slower), begin + length), slower, True
        )
    end = reported_interval_end(trace, rows, known, length)
    return ZoomInterval(end - length, end, min(end - length + round((t - known) / slower), end), slower)


class MessageZoomPanel(Panel):
    name: ClassVar[str] = "message_zoom"
    title: ClassVar[str] = "Zoom on one step"
    margins: ClassVar[tuple[int, int, int, int]] = (48, 14, 34, 20)
    period: ClassVar[int] = 1
    tables: ClassVar[tuple[str, ...]] = ("spans", "applies", "messages")

    def __init__(self) -> None:
        self._lookup = Lookup()
        self._passes = Passes(self._lookup)
        self._last: tuple[Any, Any, ZoomInterval | None] = (None, None, None)

    def setup(self, axes: Axes) -> Self:
        """Create each artist twice: a pale one for the whole interval, and one for the part up to the position of the
        slow motion.
        """
        super().setup(axes)
        style.plain_axes(axes, grid=None, x_ticks=6)
        axes.spines["left"].set_visible(False)
        self.parts: dict[tuple[str, bool], Any] = {}
        for name, face, edge in (
            ("blue", style.BLUE_FILL, style.BLUE), ("blue back", style.BLUE_LINE, style.BLUE),
            ("orange", style.ORANGE_FILL, style.ORANGE), ("orange back", style.ORANGE_DEEP, style.ORANGE),
            ("green", style.GREEN, "none"),
        ):  # fmt: skip
            for now in (False, True):
                strong = 1.0 if now else PALE
                edges = to_rgba(edge, strong) if edge != "none" else "none"
                made = PolyCollection([], facecolors=to_rgba(face, strong), edgecolors=edges, linewidths=1.0)
                self._add(name, now, made, 2.0)
        self.strokes: dict[tuple[str, bool], Any] = {}
        for name, colour, wide, z in (
            ("wait", style.FAINT, 1.0, 1.5), ("sent", style.BLUE, 1.1, 3.0), ("answered", style.GREEN, 1.1, 3.1)
        ):  # fmt: skip
            for now in (False, True):
                look: dict[str, Any] = {
                    "color": to_rgba(colour, 1.0 if now else PALE),
                    "linewidth": wide,
                    "zorder": z + 0.5 * now,
                }
                (self.strokes[name, now],) = axes.plot([], [], solid_capstyle="butt", **look)
        (self.hand,) = axes.plot([], [], color=style.GREY, linewidth=1.0, zorder=1.8)
        self.dots = {
            name: axes.plot([], [], "o", color=colour, markersize=4.5, markeredgecolor=style.PAPER, zorder=5)[0]
            for name, colour in (("sent", style.BLUE), ("answered", style.GREEN))
        }
        self.events = Events(axes, above=True)
        self._labelled: Any = None
        return self

    def _add(self, name: str, now: bool, made: Any, z: float) -> None:
        made.set_zorder(z + 0.5 * now)
        self.axes.add_collection(made, autolim=False)
        self.parts[name, now] = made

    def caption(self, trace: Trace, t: int | None = None) -> str:
        found = self._interval_at(trace, moment(trace, t))
        if found is None:
            return "the last updates in slow motion"
        slower = f", {found.slower:,.0f}x slower" if found.slower > 1 else ""
        which = "first" if found.first else "last"
        return f"the {which} {duration(found.length)}{slower}; lines = messages"

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        found = self._interval_at(trace, t)
        empty = "only totals were recorded" if totals_only(trace, "spans") else "no gradient yet"
        self.note.set_text("" if found else empty)
        for axis in (self.axes.xaxis, self.axes.yaxis):
            axis.set_visible(found is not None)
        unit, name = next(((u, n) for u, n in UNITS if found and found.length >= 0.99 * u * NANO), UNITS[-1])
        self._interval, self._unit = found or ZoomInterval(0, 1000, 0), unit
        rows = self._rows(trace, t)
        place = np.full(len(trace.roles), -1.0)
        place[rows] = np.arange(len(rows))
        self._axis(trace, t, rows, f"{name} after {self._interval.begin / NANO:,.3f} s")
        self._boxes(trace, t, place if found else place * 0 - 1)
        self._lines(trace, t, place if found else place * 0 - 1)
        marks = [(self._x(np.array([time]))[0], label) for time, label in event_labels(trace, t)]
        self.events.show(marks if found else ())

    def _interval_at(self, trace: Trace, t: int) -> ZoomInterval | None:
        """Return the displayed interval at `t`. It is cached, because picture and caption both need it."""
        key = t, rows_written(trace, "spans"), trace.ending is None
        if self._last[0] is not trace or self._last[1] != key:
            self._last = trace, key, zoom_interval(trace, t, self._lookup)
        return self._last[2]

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        rows, k = self._rows(trace, t), round(y)
        time = self._interval.begin + round(x * self._unit * NANO)
        if self._interval_at(trace, t) is None or not 0 <= k < len(rows) or time > t:
            return ""
        name, near = trace.roles[rows[k]], max(1, round(TICK * self._interval.length))
        said = [f"{name}: {activity_at(trace, t, rows[k], time, near, self._lookup)}"]
        for kind, source, to, sent, there, size in self._messages(trace, t):
            if sent <= time < there and name in (source, to):
                when = f"sent {sent / NANO:,.6f} s, received {there / NANO:,.6f} s"
                said.append(f"{kind} from {short(source)} to {short(to)}, {bytes_text(size)}: {when}")
        return "\n".join(said)

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        columns = ("what", "role", "receiver", "begin (s)", "end (s)", "bytes")
        if self._interval_at(trace, t) is None:
            return columns, []
        begin, end = self._interval.begin, self._interval.end
        found = activities(trace, t, begin, end, self._lookup)
        rows: list[tuple[Any, ...]] = [(what, role, "", first, last, "") for role, what, first, last in found]
        rows += [
            (kind, a, b, sent / NANO, there / NANO, size) for kind, a, b, sent, there, size in self._messages(trace, t)
        ]
        return columns, rows

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        if self._interval_at(trace, t) is None:
            return []
        begin, end = self._interval.begin, min(self._interval.end, t)
        found = activities(trace, t, begin, end, self._lookup)
        rows: list[Stops] = []
        for k, role in enumerate(self._rows(trace, t)):
            mine = {(max(round(b * NANO), begin) + min(end if e == "" else round(float(e) * NANO), end)) // 2
                    for name, _, b, e in found if name == trace.roles[role]}  # fmt: skip
            rows.append([(float(self._x(np.array([time]))[0]), float(k)) for time in sorted(mine)])
        return [row for row in rows if row]

    def _messages(self, trace: Trace, t: int) -> list[tuple[str, str, str, int, int, int]]:
        """Return (kind, sender, receiver, time sent, time received, bytes) of the training messages that are drawn, in ns."""
        begin, end = self._interval.begin, self._interval.end
        rows = self._lookup.messages.between(trace, begin, t)
        rows = rows.where((rows["sent"] < end) & (rows["category"] == TRAINING) & (rows["role"] != rows["sender"]))
        columns = (column.tolist() for column in rows.columns("kind", "sender", "role", "sent", "received", "bytes"))
        kinds, roles = trace.header.messages, trace.roles
        return [(kinds[kind], roles[a], roles[b], sent, there, size) for kind, a, b, sent, there, size in zip(*columns)]

    def axes_key(self) -> Any:
        """Return the state of the row names and the axis label, which `_axis` sets explicitly."""
        return self._labelled

    def _rows(self, trace: Trace, t: int) -> list[int]:
        """Return the roles to show: all roles if there is room, otherwise the roles whose gradients were applied last."""
        most = max(4, int(pixels_of(self.axes)[1] / LEAST))
        rows = shown_roles(trace, t, 10**9)
        if len(rows) <= most:
            return rows
        senders = self._lookup.applies.between(trace, self._interval.begin, min(self._interval.end, t))["sender"]
        servers = [role for role in rows if trace.kinds[role] == "server"][:2]
        others = [role for role in rows if trace.kinds[role] != "server"]
        ranked = [*sorted(slowed(trace, t))[:2], *senders[::-1].tolist(), *others]
        known = set(others)
        chosen = [role for role in dict.fromkeys(ranked) if role in known][: most - len(servers)]
        return servers + sorted(chosen)

    def _x(self, ns: np.ndarray) -> np.ndarray:
        """Convert times (ns) to axis coordinates, i.e. the time since the start of the interval in the unit of the axis."""
        return (ns - self._interval.begin) / (self._unit * NANO)

    def _axis(self, trace: Trace, t: int, rows: list[int], unit: str) -> None:
        self.axes.set_xlim(0, self._x(np.array([self._interval.end]))[0])
        slow = slowed(trace, t)
        state = (tuple(rows), tuple(slow), unit, self.axes.xaxis.get_visible())
        if state == self._labelled:
            return
        self._labelled = state
        self.axes.set_xlabel(unit, **style.text(size=style.SMALL, labelpad=2))
        one = len(trace.role_ids("server")) == 1
        names = ["server" if one and trace.kinds[r] == "server" else short(trace.roles[r]) for r in rows]
        self.axes.set_yticks(range(len(rows)), names)
        self.axes.tick_params(axis="y", length=0)
        for role, label in zip(rows, self.axes.get_yticklabels()):
            label.set_color(style.ORANGE if role in slow else style.GREY)
        self.axes.set_ylim(len(rows) - 0.45, -0.55)

    def _boxes(self, trace: Trace, t: int, place: np.ndarray) -> None:
        """Draw the spans of the interval that ended by `t`, and the work in progress."""
        begin, end = self._interval.begin, self._interval.end
        rows = self._lookup.spans.touching(trace, begin, end)
        role, phase, start, over = rows.columns("role", "phase", "start", "end")
        seen = place[role] >= 0
        role, phase, start, over = role[seen], phase[seen], start[seen], over[seen]
        open_ = {r: since for r, since in computing_since(trace, t).items() if since < end and place[r] >= 0}
        role, start = np.r_[role, np.array(list(open_), int)], np.r_[start, np.array(list(open_.values()), int)]
        phase, over = np.r_[phase, np.full(len(open_), COMPUTE)], np.r_[over, np.full(len(open_), end)]
        slow, work = slow_spans(trace, t, role, start), phase == COMPUTE
        back = np.zeros(len(role), bool)
        back[work] = self._passes.backward(trace, t, role[work], start[work], over[work])
        for name, colour in (("blue", work & ~slow), ("orange", work & slow)):
            for kind, mine in ((name, colour & ~back), (f"{name} back", colour & back)):
                self._fill(kind, place[role[mine]], start[mine], over[mine])
        waiting = phase == WAIT
        self._stroke("wait", place[role[waiting]], start[waiting], place[role[waiting]], over[waiting])
        applied = self._lookup.applies.between(trace, begin, min(end, t))
        who, time, sender = applied.columns("role", "time", "sender")
        kept = (place[who] >= 0) & ((sender == ALL) | (place[sender] >= 0))
        half = max(1, round(TICK * self._interval.length / 2))
        busy = phase == APPLY
        self._fill(
            "green", np.r_[place[role[busy]], place[who[kept]]], np.r_[start[busy], time[kept] - half],
            np.r_[over[busy], time[kept] + half],
        )  # fmt: skip

    def _lines(self, trace: Trace, t: int, place: np.ndarray) -> None:
        """Draw the messages in flight during the interval that arrived by `t`."""
        begin, end = self._interval.begin, self._interval.end
        rows = self._lookup.messages.between(trace, begin, t)
        to, sender, category, sent, there = rows.columns("role", "sender", "category", "sent", "received")
        seen = (sent < end) & (place[to] >= 0) & (place[sender] >= 0) & (category == TRAINING) & (to != sender)
        to, sender, sent, there = to[seen], sender[seen], sent[seen], there[seen]
        served = np.array([kind == "server" for kind in trace.kinds])[sender]
        side = np.where(place[to] > place[sender], HALF, -HALF)
        for name, mine in (("sent", ~served), ("answered", served)):
            low, high = place[sender[mine]] + side[mine], place[to[mine]] - side[mine]
            self._stroke(name, low, sent[mine], high, there[mine])
            flying = (
                (sent[mine] <= self._interval.sweep)
                & (self._interval.sweep < there[mine])
                & (self._interval.slower > 1)
            )
            way = (self._interval.sweep - sent[mine][flying]) / np.maximum(there[mine] - sent[mine], 1)[flying]
            x = np.full(len(way), self._x(np.array([self._interval.sweep]))[0])
            self.dots[name].set_data(x, low[flying] + way * (high - low)[flying])
        replayed = self._interval.begin < self._interval.sweep < self._interval.end and self._interval.slower > 1
        hand: Any = self._x(np.array([self._interval.sweep] * 2)) if replayed else []
        self.hand.set_data(hand, [-0.5, len(self.axes.get_yticks()) - 0.5] if replayed else [])

    def _fill(self, name: str, rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        for now in (False, True):
            until = np.minimum(end, self._interval.sweep) if now else end
            kept = (start < self._interval.sweep) if now else np.full(len(start), self._interval.slower > 1)
            left, right, y = self._x(start[kept]), self._x(until[kept]), rows[kept]
            corners = np.stack([left, y + HALF, left, y - HALF, right, y - HALF, right, y + HALF], axis=-1)
            self.parts[name, now].set_verts(corners.reshape(-1, 4, 2))

    def _stroke(self, name: str, low: np.ndarray, start: np.ndarray, high: np.ndarray, end: np.ndarray) -> None:
        for now in (False, True):
            until = np.minimum(end, self._interval.sweep) if now else end
            kept = (start < self._interval.sweep) if now else np.full(len(start), self._interval.slower > 1)
            way = (until - start) / np.maximum(end - start, 1)
            way = np.where(end > start, way, 1.0)
            gap = np.full(int(kept.sum()), np.nan)  # one line with gaps is drawn faster than many lines
            x = np.stack([self._x(start)[kept], self._x(until)[kept], gap], axis=-1)
            y = np.stack([low[kept], (low + way * (high - low))[kept], gap], axis=-1)
            self.strokes[name, now].set_data(x.ravel(), y.ravel())
