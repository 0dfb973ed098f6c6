"""The decision boundary: the class that the model predicts at every point, for data with two features, and the training
points.

Each class has a different tint. Held-out samples have a rim in the colour of the page. Misclassified held-out samples are red.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.transforms import offset_copy

from ..trace.header import RecordedPlane, RecordedSamples
from ..trace.trace import Trace
from . import style
from .evaluation_samples import class_name, missing_text, predicted_classes, wrapped
from .label_placement import pixels_of
from .panel import Panel, Stops, moment

# (a region, a point in it) of each class; repeated from the seventh class on
TINTS = (
    ("#dbe5fe", style.BLUE), ("#e6e8ed", style.GREY), ("#aec3fa", "#1b3c9c"), ("#c6ccd6", style.INK),
    ("#f1f5ff", "#8ba7f9"), ("#f5f6f8", style.FAINT),
)  # fmt: skip
MOST_NAMED = 6
FINER = 5
NEAR = 6.0  # pixels: a readout has the sample that is this near


class DecisionBoundaryPanel(Panel):
    name: ClassVar[str] = "decision_boundary"
    title: ClassVar[str] = "Decision boundary"
    size: ClassVar[tuple[int, int]] = (462, 250)
    margins: ClassVar[tuple[int, int, int, int]] = (40, 104, 26, 8)

    def setup(self, axes: Axes) -> Self:
        super().setup(axes)
        style.plain_axes(axes, grid=None, y_ticks=4)
        self.image = axes.imshow(
            np.ones((1, 1, 3)), extent=(0, 1, 0, 1), origin="lower", aspect="equal", interpolation="none", zorder=1
        )
        axes.set_aspect("equal", adjustable="box", anchor="C")
        self.points: Any = axes.scatter([], [], s=9, linewidths=0, zorder=3)
        self.held: Any = axes.scatter([], [], s=34, linewidths=1.3, edgecolors=style.PAPER, zorder=4)
        self.wrong: Any = axes.scatter([], [], s=52, linewidths=1.3, edgecolors=style.PAPER, color=style.RED, zorder=5)
        figure: Any = axes.get_figure()
        self.words = [
            style.write(
                axes, 1.0, 1.0, "", ha="left", va="top",
                transform=offset_copy(axes.transAxes, figure, 7, -12.5 * k, units="points"),
            )
            for k in range(MOST_NAMED + 2)
        ]  # fmt: skip
        on_left, on_right = self.margins[:2]
        # centred between the panel's edges
        self.note.set_x((self.size[0] / 2 - on_left) / (self.size[0] - on_left - on_right))
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        shown = self._shown(trace)
        if shown is None:
            return ""
        _, plane = shown
        if not plane.side:
            return "network too large for a map"
        look = trace.predictions_at(moment(trace, t))
        return "training points; no evaluation yet" if look is None else "predicted classes"

    def key(self, trace: Trace, t: int) -> Any:
        look = trace.predictions_at(t)
        return (look and look.time,)

    def axes_key(self) -> Any:
        """Return whether the axes and the note are visible. Limits and aspect are set once."""
        return self.axes.get_visible(), bool(self.note.get_text())

    def update(self, trace: Trace, t: int | None = None) -> None:
        t, shown = moment(trace, t), self._shown(trace)
        self.note.set_text("" if shown is not None else self._unavailable_text(trace))
        for part in (self.axes.xaxis, self.axes.yaxis, self.image, *self.axes.spines.values()):
            part.set_visible(shown is not None)
        self.axes.set_aspect("equal" if shown is not None else "auto")
        if shown is None:
            return
        samples, plane = shown
        self._regions(trace, t, plane, samples.classes)
        training = np.array(plane.labels)
        self.points.set_offsets(np.array(plane.points))
        self.points.set_facecolors([_point(label) for label in training])
        said, labels = predicted_classes(trace, t), samples.labels
        where = np.array(samples.features)
        wrong = np.array([said is not None and a != b for a, b in zip(labels, said or labels)])
        self.held.set_offsets(where[~wrong])
        self.held.set_facecolors([_point(label) for label, bad in zip(labels, wrong) if not bad])
        self.wrong.set_offsets(where[wrong].reshape(-1, 2))
        self._legend(samples, said is not None, int(wrong.sum()))

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        shown = self._shown(trace)
        if shown is None:
            return ""
        samples, plane = shown
        cells, (low, high), said = self._cells(trace, t, plane), (plane.low, plane.high), list[str]()
        place = [
            int((at - a) / (b - a) * len(cells)) if cells is not None else 0 for at, a, b in zip((x, y), low, high)
        ]
        if cells is not None and all(0 <= k < len(cells) for k in place):
            number = int(cells[place[1], place[0]])
            answer = (
                f"predicted class {class_name(samples.names, number)}"
                if number < samples.classes
                else "no finite prediction"
            )
            said.append(f"({x:.3g}, {y:.3g}): {answer}")
        unit = (self.axes.get_xlim()[1] - self.axes.get_xlim()[0]) / pixels_of(self.axes)[0]

        def nearest_to(points: Any) -> int | None:
            away = np.hypot(*(np.asarray(points).reshape(-1, 2) - (x, y)).T)
            return int(away.argmin()) if len(away) and away.min() <= NEAR * unit else None

        held, point = nearest_to(samples.features), nearest_to(plane.points)
        if held is not None:
            _, _, _, label, answer = self.table(trace, t)[1][held]
            said.append(f"held-out sample of class {label}" + (f", predicted {answer}" if answer != "" else ""))
        elif point is not None:
            said.append(f"training point of class {class_name(samples.names, plane.labels[point])}")
        return "\n".join(said)

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        columns = ("sample", "x", "y", "class", "predicted class")
        shown, said = self._shown(trace), predicted_classes(trace, t)
        if shown is None:
            return columns, []
        samples, _ = shown
        rows: list[tuple[Any, ...]] = []
        for k, ((x, y), label) in enumerate(zip(samples.features or (), samples.labels)):
            answer = "" if said is None else "none" if said[k] is None else class_name(samples.names, said[k])
            rows.append((k + 1, x, y, class_name(samples.names, label), answer))
        return columns, rows

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        places = sorted((float(x), float(y)) for _, x, y, _, _ in self.table(trace, t)[1])
        return [places] if places else []

    @staticmethod
    def _shown(trace: Trace) -> tuple[RecordedSamples, RecordedPlane] | None:
        samples = trace.header.samples
        return None if isinstance(samples, str) or samples.plane is None else (samples, samples.plane)

    def _unavailable_text(self, trace: Trace) -> str:
        words = f"{trace.header.problem.data}: this panel needs two features per sample (moons, circles, spirals)"
        return missing_text(trace.header.samples, self.size[0]) or wrapped(words, round(0.75 * self.size[0]))

    def _regions(self, trace: Trace, t: int, plane: RecordedPlane, classes: int) -> None:
        low, high = plane.low, plane.high
        colours, cells = np.ones((1, 1, 3)), self._cells(trace, t, plane)
        if cells is not None:
            tints = np.array([to_rgb(region) for region, _ in TINTS])
            colours = np.where((cells < classes)[..., None], tints[cells % len(TINTS)], 1.0)
        self.image.set_data(colours)
        self.image.set_extent((low[0], high[0], low[1], high[1]))
        self.axes.set_xlim(low[0], high[0])
        self.axes.set_ylim(low[1], high[1])

    @staticmethod
    def _cells(trace: Trace, t: int, plane: RecordedPlane) -> np.ndarray | None:
        """Return the predicted class of each cell, from the lower left corner; None if there is no evaluation yet."""
        look, side = trace.predictions_at(t), plane.side
        if look is None or not side or len(look.grid) != side * side:
            return None
        return _finer(np.frombuffer(look.grid, np.uint8).reshape(side, side))

    def _legend(self, samples: RecordedSamples, asked: bool, wrong: int) -> None:
        classes = samples.classes
        lines = [(f"● class {class_name(samples.names, k)}", _point(k)) for k in range(min(classes, MOST_NAMED))]
        if classes > MOST_NAMED:
            lines[-1] = (f"and {classes - MOST_NAMED + 1} more", style.GREY)
        if asked:
            count = len(samples.labels)
            lines.append((f"{count} held out", style.GREY))
            lines.append((f"● {wrong} wrong" if wrong else "", style.RED))
        for k, words in enumerate(self.words):
            text, colour = lines[k] if k < len(lines) else ("", style.GREY)
            words.set(text=text, color=colour)


def _finer(cells: np.ndarray) -> np.ndarray:
    """Return the grid with `FINER` times as many cells per side.

    Each cell gets the class with the largest weight among the surrounding cell centres, so that a border is smooth; the
    centres keep their class.
    """
    at = np.clip((np.arange(FINER * len(cells)) + 0.5) / FINER - 0.5, 0, len(cells) - 1)
    before = np.minimum(at.astype(int), len(cells) - 2)
    part = (at - before)[:, None]

    def stretched(values: np.ndarray) -> np.ndarray:
        return values[before] * (1 - part) + values[before + 1] * part

    classes = np.unique(cells)
    strength = [stretched(stretched((cells == number).astype(np.float32)).T).T for number in classes]
    return classes[np.argmax(strength, axis=0)]


def _point(label: int) -> str:
    return TINTS[label % len(TINTS)][1]
