"""Topology: the roles, the links between them, and one update in slow motion.

The width of a line shows the recent traffic of the link. A role that does not run is hollow, dashed and orange, with its
state as text. Dots are messages: blue to a server or between workers, green from a server, small and grey if the message
has no payload. A hollow dot is a message in the backward direction of a pipeline. A worker is filled while it computes,
and a server when it applies a gradient. The text below names the replayed update and the slowdown factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection

from ..formatting import bytes_text, speed
from ..trace.index import Lookup
from ..trace.query import in_flight, traffic, traffic_by_node
from ..trace.role_states import slowed
from ..trace.trace import Trace
from . import style
from .evaluation_samples import without_axes
from .label_placement import pixels_of
from .links import recent_ns
from .message_replay import REST, Replay, replay
from .panel import Panel, Stops, moment
from .topology_layout import Node, nodes_of, place_nodes

FOOT = 22  # pixels for the text below
ASIDE = 5.0  # pixels: half the distance between the two directions of a link
MOST_NAMES = 40
DASHED = (0, (2.2, 1.6))
STEPS = np.linspace(0, 1, 13)
NEAR = 6.0  # pixels: a readout has the message or the link that is this near


def way(start: tuple[float, float], end: tuple[float, float], bend: float, at: np.ndarray) -> np.ndarray:
    """Return points of the line from `start` to `end` that bends `bend` pixels to the right, shape (len(at), 2).

    `at`: positions along the line, from 0 to 1, shape (n,).
    """
    a, b = np.array(start, float), np.array(end, float)
    along = b - a
    right = np.array([along[1], -along[0]]) / max(float(np.hypot(*along)), 1e-9)
    at = np.asarray(at, float)[:, None]
    return a + along * at + right * bend * 4 * at * (1 - at)


@dataclass
class _Scene:
    """The nodes of the picture.

    `places`: their positions in pixels. `at`: {role: index of its node}. `bends`: {(node, node): bend of the line},
    cached.
    """

    nodes: list[Node]
    places: list[tuple[float, float]]
    at: dict[int, int]
    bends: dict[tuple[int, int], float]

    def bend(self, a: int, b: int) -> float:
        """Return the bend of the line between two nodes in pixels. It is larger if the line would cross a third node."""
        if (a, b) not in self.bends:
            (xa, ya), (xb, yb) = self.places[a], self.places[b]
            straight = abs(ya - yb) < 1 or abs(xa - xb) < 1  # in a row or a column, other nodes may be in between
            others = (place for k, place in enumerate(self.places) if k not in (a, b))
            through = straight and any(_near(place, (xa, ya), (xb, yb)) < 9 for place in others)
            self.bends[a, b] = min(0.16 * math.hypot(xb - xa, yb - ya), 30.0) if through else ASIDE
        return self.bends[a, b]

    def point(self, a: int, b: int, s: float) -> np.ndarray:
        """Return the position of a dot at fraction `s` of the line from the rim of node `a` to the rim of node `b`."""
        length = math.dist(self.places[a], self.places[b])
        out, into = (min(_diameter(self, k) * style.DPI / 144 / max(length, 1.0), 0.4) for k in (a, b))
        return way(self.places[a], self.places[b], self.bend(a, b), np.array([out + s * (1 - out - into)]))[0]


def _near(point: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance in pixels from a point to the straight segment from a to b."""
    p, start, along = np.array(point), np.array(a), np.array(b) - np.array(a)
    s = min(1.0, max(0.0, float((p - start) @ along) / max(float(along @ along), 1e-9)))
    return float(np.hypot(*(p - start - s * along)))


class TopologyPanel(Panel):
    name: ClassVar[str] = "topology"
    title: ClassVar[str] = "Topology"
    size: ClassVar[tuple[int, int]] = (462, 230)
    margins: ClassVar[tuple[int, int, int, int]] = (8, 8, 4, 4)
    period: ClassVar[int] = 1
    tables: ClassVar[tuple[str, ...]] = ("messages", "applies")

    def __init__(self) -> None:
        self._lookup = Lookup()

    def setup(self, axes: Axes) -> Self:
        """Create lines, nodes, dots and names. The axes are hidden, and coordinates are pixels."""
        super().setup(axes)
        without_axes(axes)
        self.lines = LineCollection([], capstyle="round", zorder=1)
        self.track = LineCollection([], zorder=2)
        for lines in (self.lines, self.track):
            axes.add_collection(lines, autolim=False)
        self.nodes: dict[bool, PathCollection] = {
            server: axes.scatter([], [], marker="s" if server else "o", linewidths=1.6, zorder=3)
            for server in (False, True)
        }
        self.dots = axes.scatter([], [], linewidths=1.1, zorder=5)
        self.names = [style.write(axes, 0, 0, "", ha="center", va="center", zorder=4) for _ in range(MOST_NAMES)]
        self.slow_motion = style.write(axes, 0, 8, "", style.INK, va="center", zorder=6)
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        t = moment(trace, t)
        flying = in_flight(trace, t, self._lookup)
        what = "blue: gradients, green: weights" if trace.role_ids("server") else "messages between workers"
        return what + (f" · {flying:,} in flight" if flying else "")

    def update(self, trace: Trace, t: int | None = None) -> None:
        t = moment(trace, t)
        wide, high = pixels_of(self.axes)
        self.axes.set_xlim(0, wide)
        self.axes.set_ylim(0, high)
        scene = self._scene(trace, t, wide, high - FOOT)
        self._lines(trace, t, scene)
        replayed, phase = replay(trace, t, self._lookup)
        self._nodes(scene, replayed, phase, wide)
        self._dots(trace, scene, replayed, phase)
        self._show_slow_motion(replayed, phase, wide)

    def _scene(self, trace: Trace, t: int, wide: float, high: float) -> _Scene:
        servers, rows = nodes_of(trace, t)
        places = {n: (x, y + FOOT) for n, (x, y) in place_nodes(trace, servers, rows, wide, high).items()}
        nodes = list(places)
        return _Scene(nodes, list(places.values()), {r: k for k, n in enumerate(nodes) for r in n.roles}, {})

    def _lines(self, trace: Trace, t: int, scene: _Scene) -> None:
        self.rates = self._rates(trace, t, scene)
        pairs = np.array(list(self.rates.values()))
        most = float(pairs.max(initial=0.0)) or 1.0
        self.lines.set_segments([way(scene.places[i], scene.places[j], scene.bend(i, j), STEPS) for i, j in self.rates])
        widest = min(4.5, max(1.0, 60 / max(len(pairs), 1)))
        self.lines.set_linewidth(np.maximum(0.5, widest * np.sqrt(pairs / most)).tolist())
        self.lines.set_color([style.GREEN_FILL if scene.nodes[i].server else style.BLUE_FILL for i, _ in self.rates])

    def _rates(self, trace: Trace, t: int, scene: _Scene) -> dict[tuple[int, int], float]:
        """Return {(node, node): bytes per second} of each pair of nodes with recent traffic."""
        moved = traffic(trace, max(0, t - recent_ns(trace)), t, self._lookup)
        size = len(scene.nodes)
        at = np.array([scene.at.get(role, -1) for role in range(len(trace.roles))])
        a, b = at[moved.sender], at[moved.receiver]
        known = (a >= 0) & (b >= 0) & (a != b)
        total = np.bincount(a[known] * size + b[known], moved.into[known] + 1e-3, size * size)
        return {divmod(int(p), size): float(total[p]) / moved.seconds for p in np.flatnonzero(total)}

    def _scene_now(self, trace: Trace, t: int) -> _Scene:
        wide, high = pixels_of(self.axes)
        return self._scene(trace, t, wide, high - FOOT)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        scene = self._scene_now(trace, t)
        replayed, phase = replay(trace, t, self._lookup)
        for i, (a, b, place) in self._flying(scene, replayed, phase).items():
            assert replayed is not None
            if math.dist(place, (x, y)) <= NEAR:
                kind = trace.header.messages[replayed.kind[i]]
                return (
                    f"{kind} from {scene.nodes[a].name} to {scene.nodes[b].name}, {bytes_text(float(replayed.size[i]))}"
                )
        for k, node in enumerate(scene.nodes):
            if math.dist(scene.places[k], (x, y)) <= _diameter(scene, k) * style.DPI / 72 / 2 + 2:
                return self._node_text(trace, t, node)
        found = []
        for (a, b), rate in self._rates(trace, t, scene).items():
            points = way(scene.places[a], scene.places[b], scene.bend(a, b), STEPS)
            away = min(_near((x, y), tuple(p), tuple(q)) for p, q in zip(points, points[1:]))
            if away <= NEAR:
                found.append((away, f"{scene.nodes[a].name} to {scene.nodes[b].name}: {rate:,.0f} bytes/s"))
        return min(found)[1] if found else ""

    def _node_text(self, trace: Trace, t: int, node: Node) -> str:
        rates = traffic_by_node(trace, traffic(trace, max(0, t - recent_ns(trace)), t, self._lookup))
        into, out = (sum(rates[role][k] for role in node.roles if role in rates) for k in (0, 1))
        factor = max((slowed(trace, t).get(role, 1.0) for role in node.roles), default=1.0)
        name = (
            f"{node.name}, {node.count:,} machines"
            if node.many
            else ", ".join(trace.roles[role] for role in node.roles)
        )
        state = node.condition or (speed(factor) if factor != 1 and not node.many else "")
        return "\n".join(
            [f"{name}: {state}" if state else name, f"receives {into:,.0f} bytes/s", f"sends {out:,.0f} bytes/s"]
        )

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        scene = self._scene_now(trace, t)
        rows = [
            (scene.nodes[a].name, scene.nodes[b].name, rate) for (a, b), rate in self._rates(trace, t, scene).items()
        ]
        return ("sender", "receiver", "bytes per second"), list(rows)

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        scene, (servers, rows) = self._scene_now(trace, t), nodes_of(trace, t)
        place = dict(zip(scene.nodes, scene.places))
        return [[place[node] for node in row] for row in (servers, *rows) if row]

    def _nodes(self, scene: _Scene, replayed: Replay | None, phase: float, wide: float) -> None:
        busy: set[int] = set()
        if replayed is not None:
            works = replayed.works[(replayed.works[:, 1] <= phase) & (phase < replayed.works[:, 2]), 0]
            done = replayed.applied[(replayed.applied[:, 1] <= phase) & (phase < replayed.applied[:, 1] + REST), 0]
            busy = {scene.at[int(r)] for r in (*works, *done) if int(r) in scene.at}
        focus = scene.at.get(replayed.update.sender, -1) if replayed is not None else -1
        for server, marks in self.nodes.items():
            mine = [k for k, node in enumerate(scene.nodes) if node.server == server]
            looks = [_look(scene.nodes[k], k in busy, k == focus) for k in mine]
            marks.set_offsets(np.array([scene.places[k] for k in mine]).reshape(-1, 2))
            marks.set_sizes(np.array([_diameter(scene, k) for k in mine]) ** 2)
            marks.set_facecolor([face for face, _, _ in looks])
            marks.set_edgecolor([edge for _, edge, _ in looks])
            marks.set_linewidth([line for _, _, line in looks])
            marks.set_linestyle([DASHED if scene.nodes[k].condition else "-" for k in mine])
        self._names(scene, busy)

    def _names(self, scene: _Scene, busy: set[int]) -> None:
        """Write names in the nodes if there is room, otherwise next to them. In a long row, only as many names as fit are
        written.
        """
        texts = iter(self.names)
        step = _step(scene)
        last: dict[float, float] = {}  # end of the last name in a row
        for k, (node, (x, y)) in enumerate(zip(scene.nodes, scene.places)):
            half = _diameter(scene, k) * style.DPI / 72 / 2
            said = [(f"{node.count:,}", 0.0)] if node.many else []
            if not node.many and style.width(node.name) < 2 * half - 3:
                said = [(node.name, 0.0)]
            else:
                name = node.name if style.width(node.name) < step or node.server else node.name.split("–")[0]
                long, level = style.width(name), y + (half + 8 if node.server else -half - 8)
                if x - long / 2 > last.get(level, -99.0) + 3 or node.slow or node.condition:
                    last[level] = x + long / 2
                    said.append((name, level - y))
            if node.condition:
                away = half + 8 if node.server else -half - 8
                beside = next((words for words, dy in said if dy), "")
                said = [(words, dy) for words, dy in said if not dy]
                said.append((f"{beside} {node.condition}".strip(), away))
            for words, dy in said:
                text = next(texts, None)
                if text is not None:
                    under = y + dy < FOOT + 4  # the text is there, so the name is next to the node
                    aside = half + 5 + style.width(words) / 2 if under else 0
                    text.set(text=words, x=x + aside, y=y if under else y + dy)
                    text.set_color(
                        style.INK if node.server and k in busy and not dy and not node.condition else _ink(node)
                    )
        for text in texts:
            text.set_text("")

    def _dots(self, trace: Trace, scene: _Scene, replayed: Replay | None, phase: float) -> None:
        points, faces, edges, sizes = [], [], [], []
        for i, (a, _, place) in self._flying(scene, replayed, phase).items():
            assert replayed is not None
            points.append(place)
            colour = style.GREEN if scene.nodes[a].server else style.BLUE
            colour = style.FAINT if not replayed.size[i] else colour
            back = trace.header.messages[replayed.kind[i]] == "Delta"
            faces.append(style.PAPER if back else colour)
            edges.append(colour if back else style.PAPER)
            own = replayed.update.sender in (replayed.source[i], replayed.target[i]) or replayed.update.sender < 0
            sizes.append(4.0 if not replayed.size[i] else 9.5 if own else 7.0)
        self.dots.set_offsets(np.array(points).reshape(-1, 2))
        self.dots.set_facecolor(faces)
        self.dots.set_edgecolor(edges)
        self.dots.set_sizes(np.array(sizes) ** 2)

    @staticmethod
    def _flying(scene: _Scene, replayed: Replay | None, phase: float) -> dict[int, tuple[int, int, np.ndarray]]:
        """Return {message: (sender's node, receiver's node, position)} of the messages in flight at this point of the replay."""
        found: dict[int, tuple[int, int, np.ndarray]] = {}
        if replayed is None:
            return found
        for i in np.flatnonzero((replayed.leaves <= phase) & (phase < replayed.arrives)).tolist():
            a, b = (scene.at.get(int(r), -1) for r in (replayed.source[i], replayed.target[i]))
            if a >= 0 and b >= 0 and a != b:
                s = (phase - replayed.leaves[i]) / (replayed.arrives[i] - replayed.leaves[i])
                found[i] = a, b, scene.point(a, b, s * s * (3 - 2 * s))
        return found

    def _show_slow_motion(self, replayed: Replay | None, phase: float, wide: float) -> None:
        self.note.set_text("" if replayed is not None or self.rates else "no update yet")
        self.track.set_segments([])
        self.slow_motion.set_text("")
        if replayed is None:
            return
        said = [f"slow motion: {words}" for words in replayed.words]
        self.slow_motion.set_text(next((words for words in said if style.width(words) < wide), said[-1]))
        y, edge = FOOT - 5.0, wide
        self.track.set_segments([[(0, y), (edge, y)], [(0, y), (edge * phase, y)]])
        self.track.set_linewidth([1.0, 2.0])
        self.track.set_color([style.GRID, style.FAINT])


def _look(node: Node, busy: bool, focus: bool) -> tuple[str, str, float]:
    """Return (face, edge, width of the edge) of a node."""
    strong, pale = (
        (style.ORANGE, style.ORANGE_FILL) if node.slow or node.condition
        else (style.GREEN, style.GREEN_FILL) if node.server
        else (style.BLUE, style.BLUE_FILL)
    )  # fmt: skip
    return pale if busy and not node.condition else style.PAPER, strong, 2.6 if focus else 1.5


def _ink(node: Node) -> str:
    return style.ORANGE if node.slow or node.condition else style.GREEN if node.server else style.INK


def _diameter(scene: _Scene, k: int) -> float:
    node = scene.nodes[k]
    if node.many:
        return 23.0
    if node.server:
        return 20.0
    crowd = any(n.many for n in scene.nodes) or sum(not n.server for n in scene.nodes) > 10
    return min(10.0, 0.55 * _step(scene)) if crowd else 19.0


def _step(scene: _Scene) -> float:
    """Return the minimum distance in pixels between neighbouring workers."""
    mine = [place for node, place in zip(scene.nodes, scene.places) if not node.server]
    return min((math.dist(a, b) for a, b in zip(mine, mine[1:])), default=99.0)
