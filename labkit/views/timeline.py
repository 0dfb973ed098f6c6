"""The timeline: one row per role. Blue: a worker computes. Gap: a role waits. Green: a gradient is applied.

A role whose tasks communicate has two lanes. In the upper one it computes: backward passes are stronger, each layer in its
colour of the gradient flow panel. In the lower one it communicates, with the number of the bucket: violet, and faint while the
role computes, which hides the communication; for the rest it is exposed.

A span is orange if its worker was slowed when the span began. In a pipeline stage, backward passes are stronger. Hatched
grey marks the time in which a role did not run, with the reason: killed, lost, left, frozen or cut off. An orange arrow
marks the start of its next incarnation. The fainter box at the right end is work in progress, because a span is recorded
only when it ends. The window is sixteen typical gradients long, or as long as the run if the run was shorter. If not all
workers fit, an evenly spaced selection is shown.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba

from ..formatting import percent, short
from ..trace.index import Lookup
from ..trace.overlap import (
    NO_LAYER,
    BackwardPieces,
    communicating_since,
    overlap,
    overlapping_roles,
    shared_time,
)
from ..trace.passes import Passes, pipelined
from ..trace.query import GONE, computing_since, mean_gradient_time, skipped, totals_only
from ..trace.role_states import conditions, intervals, slowed
from ..trace.schema import ALL, APPLY, COMPUTE, NANO, WAIT
from ..trace.trace import Trace
from . import style
from .event_labels import event_labels, slow_spans
from .event_lines import Events
from .label_placement import pixels_of
from .panel import Panel, Stops, moment

MOST_ROWS, MOST_SERVERS, MOST_TICKS = 40, 4, 300
LEAST = 5.5  # minimum pixels per row
WHOLE = (-0.34, 0.34)  # the top and the bottom of a row's boxes, relative to the middle of the row
COMPUTING, COMMUNICATING = (-0.4, 0.07), (0.12, 0.44)  # the same of two lanes
MOST_NUMBERS, NUMBER = 160, 7  # numbers of buckets that are written, and their size in points
GAP = 2  # pixels between buckets
MOST_WORDS = 12
SERVES = ("server", "backup")  # kinds of roles above the workers
BOXES = (
    ("blue", style.BLUE, style.BLUE_FILL, 1.0), ("blue back", style.BLUE, style.BLUE_LINE, 1.0),
    ("orange", style.ORANGE, style.ORANGE_FILL, 1.0), ("orange back", style.ORANGE, style.ORANGE_DEEP, 1.0),
    ("open blue", "none", style.BLUE_FILL, 0.55), ("open orange", "none", style.ORANGE_FILL, 0.55),
    ("green", "none", style.GREEN, 1.0), ("layers", style.BLUE, style.BLUE_LINE, 1.0),
    ("orange layers", style.ORANGE, style.ORANGE_DEEP, 1.0), ("violet", style.VIOLET, style.VIOLET_FILL, 1.0),
    ("exposed", "none", style.VIOLET, 1.0),
    ("open violet", "none", style.VIOLET_FILL, 0.55),
)  # fmt: skip


def window_ns(trace: Trace) -> int:
    """Return the length of the window in ns: about sixteen gradients of the typical worker, rounded.

    If a gradient has many spans, in stages of a pipeline or with tasks, about five.
    """
    gradients = 4.0 if pipelined(trace) or overlapping_roles(trace) else 14.5
    return max(1000, round(style.nice_above(gradients * mean_gradient_time(trace) / NANO) * NANO))


def shown_roles(trace: Trace, t: int, most: int = MOST_ROWS) -> list[int]:
    """Return the rows from top to bottom: servers, their backups, then workers.

    If there are more than `most` workers, return the workers that are slowed or do not run, and an evenly spaced
    selection of the other workers.
    """
    servers = [role for kind in SERVES for role in trace.role_ids(kind)[:MOST_SERVERS]]
    workers = [i for i, kind in enumerate(trace.kinds) if kind not in (*SERVES, "chief")]
    if len(workers) > most:
        highlighted = sorted({*slowed(trace, t), *conditions(trace, t)})[: most // 5]
        keep = {workers[round(k)] for k in np.linspace(0, len(workers) - 1, most - most // 5)}
        workers = sorted(keep | set(highlighted) & set(workers))
    return servers + workers


def communication_at(trace: Trace, t: int, role: int, time: int, lookup: Lookup) -> str:
    """Return which communication of `role` was in progress at `time` (ns), as known at `t` (ns)."""
    rows = lookup.communications.touching(trace, time, time + 1).columns("role", "number", "start", "end", "hidden")
    for who, number, start, end, hidden in zip(*(column.tolist() for column in rows)):
        if who == role and start <= time < end:
            if end > t:
                return f"communicates bucket {number} since {_time(start)}"
            span = f"{_time(start)} to {_time(end)}\n{(end - start) / NANO:.4g} s"
            return f"communicates bucket {number} from {span}, {percent(hidden / (end - start))} hidden"
    for who, number, since in communicating_since(trace, t):
        if who == role and since <= time:
            return f"communicates bucket {number} since {_time(since)}"
    return "does not communicate"


def activity_at(trace: Trace, t: int, role: int, time: int, near: int, lookup: Lookup) -> str:
    """Return what `role` did at `time` (ns), as known at `t` (ns). An application counts if it is within `near` ns."""
    for state in intervals(trace, t).get(role, []):
        if state.contains(time):
            return f"{state.condition} since {_time(state.begin)}"
    by, when, sender, stale = lookup.applies.between(trace, max(0, time - near), min(t, time + near)).columns(
        "role", "time", "sender", "staleness"
    )  # fmt: skip
    mine = np.flatnonzero(by == role)
    if len(mine):
        k = mine[np.abs(when[mine] - time).argmin()]
        source = short(trace.roles[sender[k]]) if sender[k] >= 0 else "all workers"
        late = f", staleness {int(stale[k])}" if stale[k] >= 0 else ""
        return f"applied a gradient of {source} at {_time(int(when[k]))}{late}"
    spans = lookup.spans.touching(trace, time, time + 1).columns("role", "phase", "start", "end")
    for who, phase, start, end in zip(*(column.tolist() for column in spans)):
        if who == role and phase in (COMPUTE, APPLY) and start <= time < end:
            what = "applies"
            if phase == COMPUTE:
                layer = BackwardPieces().layers(trace, *(np.array([value]) for value in (role, start, end)))[0]
                what = (
                    "computes" if layer == NO_LAYER else f"computes the backward pass of {trace.header.layers[layer]}"
                )
            if end > t:
                return f"{what} since {_time(start)}"
            return f"{what} from {_time(start)} to {_time(end)}\n{(end - start) / NANO:.4g} s"
    begun = computing_since(trace, t).get(role)
    if begun is not None and begun <= time:
        return f"computes since {_time(begun)}"
    return "idle" if trace.kinds[role] in SERVES else "waits"


def activities(
    trace: Trace, t: int, first: int, last: int, lookup: Lookup
) -> list[tuple[str, str, float, float | str]]:
    """Return (role, activity, begin, end) of all computations, applications and state intervals in [first, last] ns, in
    seconds. The end of an open state interval is "".
    """
    role, phase, start, end = lookup.spans.touching(trace, first, last).columns("role", "phase", "start", "end")
    done = (phase == COMPUTE) & (end <= t)
    role, start, end = role[done], start[done], end[done]
    layers = BackwardPieces().layers(trace, role, start, end)
    found: list[tuple[str, str, float, float | str]] = [
        (trace.roles[r], "compute" if p == NO_LAYER else f"backward {trace.header.layers[p]}", s / NANO, e / NANO)
        for r, p, s, e in zip(role.tolist(), layers.tolist(), start.tolist(), end.tolist())
    ]
    rows = lookup.communications.touching(trace, first, min(last, t)).columns("role", "number", "start", "end")
    found += [
        (trace.roles[r], f"communicate bucket {k}", s / NANO, e / NANO)
        for r, k, s, e in zip(*(column.tolist() for column in rows)) if e <= t
    ]  # fmt: skip
    applied = lookup.applies.between(trace, first, min(last, t)).columns("role", "time")
    found += [(trace.roles[r], "apply", time / NANO, time / NANO) for r, time in zip(*(c.tolist() for c in applied))]
    for who, gaps in intervals(trace, t).items():
        seen = [gap for gap in gaps if gap.begin <= last and (gap.end is None or gap.end >= first)]
        found += [
            (trace.roles[who], gap.condition, gap.begin / NANO, "" if gap.end is None else gap.end / NANO)
            for gap in seen
        ]
    return sorted(found, key=lambda row: (trace.roles.index(row[0]), row[2]))


class TimelinePanel(Panel):
    name: ClassVar[str] = "timeline"
    title: ClassVar[str] = "Timeline"
    size: ClassVar[tuple[int, int]] = (940, 232)
    margins: ClassVar[tuple[int, int, int, int]] = (58, 16, 34, 20)
    period: ClassVar[int] = 1
    tables: ClassVar[tuple[str, ...]] = ("spans", "applies", "communications")

    def __init__(self) -> None:
        self._lookup = Lookup()
        self._passes = Passes(self._lookup)
        self._pieces = BackwardPieces()
        self._place = np.empty(0)  # the row of each role; -1: none
        self._lanes = np.empty((0, 2))  # the top and the bottom of the boxes of each role that are not communications
        self._most = MOST_ROWS

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid="x", x_ticks=9)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("seconds", **style.text(size=style.SMALL, labelpad=2))
        self.links = LineCollection([], colors=style.GRID, linewidths=1.0, zorder=1)
        axes.add_collection(self.links, autolim=False)
        self.boxes: dict[str, PolyCollection] = {}
        for kind, edge, face, alpha in BOXES:
            made = PolyCollection([], edgecolors=edge, facecolors=to_rgba(face, alpha), linewidths=1.0, zorder=2)
            axes.add_collection(made, autolim=False)
            self.boxes[kind] = made
        self.gaps = PolyCollection(
            [], facecolors=to_rgba(style.GRID, 0.7), edgecolors=style.FAINT, hatch="////", linewidths=0, zorder=2.5
        )
        axes.add_collection(self.gaps, autolim=False)
        (self.back,) = axes.plot([], [], ">", color=style.ORANGE, markersize=5.5, markeredgewidth=0, zorder=4)
        self.words = [style.write(axes, 0, 0, "", style.ORANGE, va="center", zorder=5) for _ in range(MOST_WORDS)]
        self.numbers = [
            style.write(
                axes, 0, 0, "", style.INK, NUMBER, ha="center", va="center_baseline", zorder=5, clip_on=True,
                path_effects=style.halo(2.0),
            )
            for _ in range(MOST_NUMBERS)
        ]  # fmt: skip
        for words in self.words:
            words.set(clip_on=True, path_effects=style.halo())
        self.events = Events(axes, above=True)
        self._most = int(np.clip(pixels_of(axes)[1] / LEAST - 1, 8, MOST_ROWS))
        self._labelled: Any = None
        self._crowded = False  # no room for text in a row
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        green = "green = applied" + (" at the server" if trace.role_ids("server") else "")
        workers, servers = len(trace.role_ids("worker")), sum(len(trace.role_ids(k)[:MOST_SERVERS]) for k in SERVES)
        rows = len(shown_roles(trace, moment(trace, t), self._most)) - servers
        some = f" · {rows} of {workers:,} workers" if rows < workers else ""
        cut = skipped(trace, "spans") or skipped(trace, "applies")
        gap = "gap = waiting or not recorded" if cut else "gap = waiting"
        work = "faint = forward, strong = backward" if pipelined(trace) else "blue = computing"
        shown = style.plain(float(f"{self._window(trace, moment(trace, t))[1] / NANO:.3g}"))
        if overlapping_roles(trace):
            seen = overlap(trace, moment(trace, t))
            lanes = "blue = computing · violet = communicating, faint: hidden"
            return f"{f'{seen.text} · ' if seen else ''}{lanes} · {green} · last {shown} s{some}"
        return f"{work}; {gap}; {green} · last {shown} s{some}"

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        first, window = self._window(trace, t)
        rows = shown_roles(trace, t, self._most)
        self._place = place = np.full(len(trace.roles), -1.0)
        place[rows] = np.arange(len(rows))
        self._lanes = np.tile(WHOLE, (len(trace.roles), 1))
        self._lanes[overlapping_roles(trace)] = COMPUTING
        self._axis(trace, t, rows, first, window)
        self._spans(trace, t, first)
        self._communications(trace, t, first, window)
        self._applies(trace, t, first, window)
        self._gaps(trace, t, place, first, window)
        self.events.show([(time / NANO, label) for time, label in event_labels(trace, t)])
        self.note.set_text("only totals were recorded" if totals_only(trace, "spans") else "")

    @staticmethod
    def _window(trace: Trace, t: int) -> tuple[int, int]:
        """Return (begin, length) of the window in ns. If a finished run was shorter than the window, the window has the
        length of the run.
        """
        window = window_ns(trace)
        if trace.ending is not None and trace.ending["time"] <= t < window:
            window = max(1000, t)
        return max(0, t - window), window

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        rows = shown_roles(trace, t, self._most)
        k, time = round(y), round(x * NANO)
        if not 0 <= k < len(rows) or time > t:
            return ""
        role, near = rows[k], window_ns(trace) // 150
        if y - k > COMPUTING[1] and role in overlapping_roles(trace):
            return f"{trace.roles[role]}: {communication_at(trace, t, role, time, self._lookup)}"
        return f"{trace.roles[role]}: {activity_at(trace, t, role, time, near, self._lookup)}"

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        first, window = self._window(trace, t)
        rows = activities(trace, t, first, first + window, self._lookup)
        return ("role", "activity", "begin (s)", "end (s)"), list(rows)

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        first, window = self._window(trace, t)
        found = activities(trace, t, first, first + window, self._lookup)
        rows: list[Stops] = []
        two = overlapping_roles(trace)
        for k, role in enumerate(shown_roles(trace, t, self._most)):
            lanes = (COMPUTING, COMMUNICATING) if role in two else (WHOLE,)
            for lane in lanes:
                mine = {(max(b, first / NANO) + min(t / NANO if e == "" else float(e), t / NANO)) / 2
                        for name, what, b, e in found
                        if name == trace.roles[role] and (lane is COMMUNICATING) == what.startswith("communicate")}  # fmt: skip
                rows.append([(x, k + sum(lane) / 2) for x in sorted({*mine, t / NANO})])
        return rows

    def axes_key(self) -> Any:
        """Return the state of the row names, which `_axis` sets explicitly."""
        return self._labelled

    def _axis(self, trace: Trace, t: int, rows: list[int], first: int, window: int) -> None:
        self.axes.set_xlim(first / NANO, (first + window) / NANO)
        slow = {*slowed(trace, t), *conditions(trace, t)}
        state = (tuple(rows), tuple(sorted(slow)))
        if state == self._labelled:
            return
        self._labelled = state
        one = len(trace.role_ids("server")) == 1
        high = pixels_of(self.axes)[1] / len(rows) if rows else 1.0
        every = max(1, int(np.ceil(11 / high)))
        highlighted = [k for k, r in enumerate(rows) if r in slow or trace.kinds[r] in SERVES]
        quiet = [k for k in range(0, len(rows), every) if all(abs(k - other) >= every for other in highlighted)]
        ticks = sorted({*highlighted, *quiet})
        names = ["server" if one and trace.kinds[rows[k]] == "server" else short(trace.roles[rows[k]]) for k in ticks]
        self.axes.set_yticks(ticks, names)
        self.axes.tick_params(axis="y", length=0)
        for k, label in zip(ticks, self.axes.get_yticklabels()):
            label.set_color(style.ORANGE if rows[k] in slow else style.GREY)
            label.set_fontsize(style.SMALL if high >= 12 else 7)
        self._crowded = high < 12
        self.axes.set_ylim(len(rows) - 0.45, -0.55)
        for kind, edge, _, _ in BOXES:
            self.boxes[kind].set_linewidth(1.0 if high >= 9 or edge == "none" else 0.5)

    def _spans(self, trace: Trace, t: int, first: int) -> None:
        place = self._place
        role, phase, start, end = self._lookup.spans.touching(trace, first, t).columns("role", "phase", "start", "end")
        seen = place[role] >= 0
        role, phase, start, end = role[seen], phase[seen], start[seen], end[seen]
        cut = (end > t) & (phase == COMPUTE)
        done = (phase == COMPUTE) & ~cut
        who, begin, over = role[done], start[done], end[done]
        slow, back = slow_spans(trace, t, who, begin), self._passes.backward(trace, t, who, begin, over)
        layer = self._pieces.layers(trace, who, begin, over)
        whole = layer == NO_LAYER
        for colour, mine in (("blue", ~slow), ("orange", slow)):
            for name, which in ((colour, mine & ~back & whole), (f"{colour} back", mine & back & whole)):
                self._fill(name, who[which], begin[which], over[which])
        for name, which in (("layers", ~whole & ~slow), ("orange layers", ~whole & slow)):
            self._fill(name, who[which], begin[which], over[which])
            colours = style.layer_colours(len(trace.header.layers), slow=name != "layers")
            self.boxes[name].set_facecolor(colours[layer[which]])  # type: ignore[arg-type]
        now_slow = slowed(trace, t)
        begun = {**computing_since(trace, t), **dict(zip(role[cut].tolist(), start[cut].tolist()))}
        held = {r: mine[-1].begin for r, mine in intervals(trace, t).items() if mine[-1].end is None}
        for colour, wanted in (("open blue", False), ("open orange", True)):
            open_ = np.array([r for r in begun if (r in now_slow) == wanted and place[r] >= 0], dtype=np.int64)
            began = np.array([begun[r] for r in open_.tolist()], dtype=np.int64)
            stands = np.array([held.get(r, t) for r in open_.tolist()], dtype=np.int64)
            self._fill(colour, open_, began, np.maximum(stands, began))
        self._busy = (role[phase == APPLY], start[phase == APPLY], np.minimum(end[phase == APPLY], t))
        self._waits = [column[phase == WAIT] for column in (role, start, np.minimum(end, t))]

    def _communications(self, trace: Trace, t: int, first: int, window: int) -> None:
        rows = self._lookup.communications.touching(trace, first, t)
        role, number, start, end = rows.columns("role", "number", "start", "end")
        seen = self._place[role] >= 0
        role, number, start, end = role[seen], number[seen], start[seen], end[seen]
        done = end <= t
        wide, high = pixels_of(self.axes)
        gap = min(
            GAP * window / wide, (end - start)[done].min(initial=window) / 3
        )  # between buckets that follow each other
        over = np.where(done, end - round(gap), t)
        self._fill("violet", role[done], start[done], over[done], COMMUNICATING)
        exposed = [np.empty((0, 3), dtype=np.int64)]
        for each in np.unique(role).tolist():
            mine, waits = role == each, self._waits[0] == each
            shared = shared_time(self._waits[1][waits], self._waits[2][waits], start[mine], over[mine])
            exposed.append(np.stack([np.full(len(shared[0]), each), *shared], axis=1))
        roles, since, until = np.concatenate(exposed).T
        self._fill("exposed", roles, since, until, COMMUNICATING)
        still = [(r, begun) for r, _, begun in communicating_since(trace, t) if self._place[r] >= 0]
        still += list(zip(role[~done].tolist(), start[~done].tolist()))
        begun = np.array(sorted({*still}), dtype=np.int64).reshape(-1, 2)
        self._fill("open violet", begun[:, 0], begun[:, 1], np.full(len(begun), t), COMMUNICATING)
        texts = iter(self.numbers)
        if high / np.count_nonzero(self._place >= 0) * (COMMUNICATING[1] - COMMUNICATING[0]) >= NUMBER * style.DPI / 72:
            start = np.maximum(start, first)
            room = (end - start) * wide / window - [style.width(str(k), NUMBER) + 4 for k in number.tolist()]
            for k, text in zip(np.flatnonzero(done & (room >= 0))[::-1].tolist(), texts):
                row = self._place[role[k]] + sum(COMMUNICATING) / 2
                text.set(text=str(number[k]), x=(start[k] + end[k]) / 2 / NANO, y=row)
        for text in texts:
            text.set_text("")

    def _gaps(self, trace: Trace, t: int, place: np.ndarray, first: int, window: int) -> None:
        seen = [
            (place[role], max(gap.begin, first), t if gap.end is None else gap.end, gap)
            for role, mine in intervals(trace, t).items() if place[role] >= 0
            for gap in mine if gap.end is None or gap.end >= first
        ]  # fmt: skip
        rows, begin, end = (
            (np.array(column, dtype=float) for column in zip(*(s[:3] for s in seen))) if seen else (np.empty(0),) * 3
        )
        self.gaps.set_verts(list(_corners(rows, begin, end)))  # type: ignore[arg-type]
        back = [(over / NANO, row) for row, _, over, gap in seen if gap.end is not None and gap.condition in GONE]
        self.back.set_data([x for x, _ in back], [row for _, row in back])
        pixels = pixels_of(self.axes)[0] / window
        texts = iter(self.words)
        for row, since, over, gap in seen[::-1]:
            words = next(texts, None)
            room = (over - since if gap.end is not None else first + window - since) * pixels
            if words is None or style.width(gap.condition) + 8 > room or self._crowded:
                continue
            words.set(text=gap.condition, x=(since + 5 / pixels) / NANO, y=row)
        for words in texts:
            words.set_text("")

    def _applies(self, trace: Trace, t: int, first: int, window: int) -> None:
        place = self._place
        role, time, sender = self._lookup.applies.between(trace, first, t).columns("role", "time", "sender")
        seen = place[role] >= 0
        role, time, sender = role[seen], time[seen], sender[seen]
        linked = (sender != ALL) & (place[sender] >= 0)
        ends = np.stack([time[linked] / NANO, place[role[linked]], time[linked] / NANO, place[sender[linked]]], axis=-1)
        self.links.set_segments(list(ends.reshape(-1, 2, 2)) if len(ends) <= MOST_TICKS else [])
        many = len(time) > MOST_TICKS
        if many:  # too many for one tick each: draw the parts of the window with applications
            bins = np.unique((time - first) * MOST_TICKS // window + role * (MOST_TICKS + 1))
            role, time = bins // (MOST_TICKS + 1), first + bins % (MOST_TICKS + 1) * window // MOST_TICKS
        wide = window // (MOST_TICKS if many else 210)
        busy, start, end = self._busy
        self._fill("green", np.r_[role, busy], np.r_[time - wide // 2, start], np.r_[time + wide // 2, end])

    def _fill(
        self, kind: str, roles: np.ndarray, start: np.ndarray, end: np.ndarray, lane: tuple[float, float] | None = None
    ) -> None:
        """Draw boxes from `start` to `end` (ns) in the rows of `roles`. `lane`: their top and bottom; None: that of the role."""
        top, bottom = self._lanes[roles].T if lane is None else lane
        self.boxes[kind].set_verts(_corners(self._place[roles], start, end, top, bottom))  # type: ignore[arg-type]


def _time(t: int) -> str:
    return f"{t / NANO:,.4f} s"


def _corners(
    rows: np.ndarray, start: np.ndarray, end: np.ndarray, above: Any = WHOLE[0], below: Any = WHOLE[1]
) -> np.ndarray:
    """Return the corners of boxes, shape (n, 4, 2), in rows, from `start` to `end` (ns). `above`, `below`: of their top and their
    bottom, relative to the middle of the row.
    """
    left, right = start / NANO, end / NANO
    top, bottom = rows + above, rows + below
    return np.stack([left, bottom, left, top, right, top, right, bottom], axis=-1).reshape(-1, 4, 2)
