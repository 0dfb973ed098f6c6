"""Predictions: held-out samples with the model's prediction at the last evaluation. Wrong predictions have a red box.

Images are shown with the prediction next to them. Other samples are tiles with the prediction, and the label below it.
The data come from the trace, which stores a few samples and their predictions, or from arrays.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from ..errors import BadInput, shown
from ..options import as_numbers
from ..trace.header import RecordedSamples
from ..trace.trace import Trace
from . import style
from .evaluation_samples import class_name, missing_text, predicted_classes, without_axes
from .panel import Panel, Stops, moment

TILE, LETTER, LONGEST = 40.0, 6.0, 10  # pixels: of a tile, of a letter in it; letters of a name
DOT, INKED = "#000000", 0.92  # colour of a dot, and opacity of the darkest one
NEARLY = 0.85  # fewer rows are preferred if the images keep this share of the largest possible size
NARROW = 420  # pixels: below this width a caption has no room for sentences


@dataclass(frozen=True)
class Samples:
    """The data to draw. `predicted` is None before the first evaluation, and an entry is None if the model's output was
    not finite.
    """

    pictures: np.ndarray | None  # (n, height, width)
    labels: list[str]
    predicted: list[str | None] | None

    @property
    def wrong(self) -> int:
        return sum(a != b for a, b in zip(self.labels, self.predicted or ()))


class PredictionsPanel(Panel):
    """`arrays`: (images, labels, predicted) to draw instead of the samples in the trace. The shape of `images` is (n, height,
    width) or (n, side * side). The shape of `labels` and `predicted` is (n,). Raises `BadInput` if the shapes do not match.
    """

    name: ClassVar[str] = "predictions"
    title: ClassVar[str] = "Predictions"
    size: ClassVar[tuple[int, int]] = (940, 56)
    margins: ClassVar[tuple[int, int, int, int]] = (10, 6, 4, 4)
    most: ClassVar[int] = 18

    def __init__(self, arrays: tuple[Any, Any, Any] | None = None):
        self.given = None
        if arrays is not None:
            self.given = _checked(*arrays, self.most)
            self.title = "Predictions"  # type: ignore[misc]  # of whatever time

    def setup(self, axes: Axes) -> Self:
        """Hide the axes, and use pixels as units, measured down from the top."""
        super().setup(axes)
        without_axes(axes)
        self.image: Any = None
        self.words: list[Any] = []
        self._made: Any = None
        return self

    def caption(self, trace: Trace, t: int | None = None) -> str:
        shown = self._shown(trace, t)
        if shown is None:
            return ""
        if shown.predicted is None:
            return "held-out samples; no evaluation yet"
        digits = self.given is None and trace.header.problem.data == "digits"
        wrong, what = shown.wrong, "digits" if digits else "samples"
        if self.size[0] < NARROW:
            return f"{wrong} of {len(shown.labels)} wrong" + (", boxed" if wrong else "")
        boxed = f"{wrong} wrong (boxed)" if wrong else "none wrong"
        tiles = "" if shown.pictures is not None else "prediction and true class; "
        return f"held-out {what}; {tiles}{boxed}"

    def key(self, trace: Trace, t: int) -> Any:
        look = None if self.given is not None else trace.predictions_at(t)
        return (look and look.time,)

    def update(self, trace: Trace, t: int | None = None) -> None:
        shown = self._shown(trace, t)
        self.note.set_text("" if shown is not None else missing_text(trace.header.samples, self.size[0]))
        count = len(shown.labels) if shown is not None else 0
        shape = shown.pictures.shape if shown is not None and shown.pictures is not None else None
        letters = _letters(trace.header.samples) if self.given is None else 1
        if self._made != (count, shape, letters):
            self._made = (count, shape, letters)
            self._make(count, shape, letters)
        if shown is not None:
            self._write(shown)

    def readout(self, trace: Trace, t: int, x: float, y: float) -> str:
        shown = self._shown(trace, t)
        if shown is None:
            return ""
        left, top, broad, tall = self._place
        across = np.diff(np.unique(left)).min(initial=self.axes.get_xlim()[1])  # the text of an image is on its right
        hit = (left - 2 <= x) & (x < left - 2 + max(across, broad)) & (top - 2 <= y) & (y <= top + tall + 2)
        return next((_sentence(shown, int(k)) for k in np.flatnonzero(hit) if k < len(shown.labels)), "")

    def table(self, trace: Trace, t: int) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        shown = self._shown(trace, t)
        said = shown.predicted if shown is not None and shown.predicted is not None else itertools.repeat("")
        labels = shown.labels if shown is not None else []
        rows = [(k + 1, label, "none" if one is None else one) for k, (label, one) in enumerate(zip(labels, said))]
        return ("sample", "class", "predicted class"), list(rows)

    def stops(self, trace: Trace, t: int) -> list[Stops]:
        shown = self._shown(trace, t)
        if shown is None:
            return []
        left, top, broad, tall = self._place
        rows: dict[float, Stops] = {}
        for x, y in list(zip(left.tolist(), top.tolist()))[: len(shown.labels)]:
            rows.setdefault(y, []).append((x + broad / 2, y + tall / 2))
        return list(rows.values())

    def _shown(self, trace: Trace, t: int | None) -> Samples | None:
        if self.given is not None:
            return self.given
        samples = trace.header.samples
        if isinstance(samples, str):
            return None
        pictures, most = None, self.most
        if samples.shape is not None:
            pictures = np.array(samples.features, dtype=float).reshape(-1, *samples.shape)[:most]
        else:
            rows, across = self._tiles(_letters(samples))
            most = min(most, rows * across)
        said = predicted_classes(trace, moment(trace, t))
        return Samples(
            pictures,
            [class_name(samples.names, label, LONGEST) for label in samples.labels[:most]],
            None if said is None else [class_name(samples.names, label, LONGEST) for label in said[:most]],
        )

    def _tiles(self, letters: int) -> tuple[int, int]:
        """Return (rows, tiles per row) that fit into the panel."""
        left, right, below, above = self.margins
        across = int((self.size[0] - left - right) / max(TILE, LETTER * (letters + 3) + 10))
        return max(1, int((self.size[1] - below - above) / TILE)), max(1, across)

    # placing ----------------------------------------------------------------------------------------------------------

    def _make(self, count: int, shape: tuple[int, ...] | None, letters: int) -> None:
        """Create the boxes and texts of all samples, in rows that fill the axes best."""
        for artist in (self.image, *self.words, *getattr(self, "boxes", ())):
            if artist is not None:
                artist.remove()
        box = self.axes.get_position()
        size = self.axes.get_figure().get_size_inches() * style.DPI  # type: ignore[union-attr]
        wide, high = float(box.width * size[0]), float(box.height * size[1])
        self.axes.set_xlim(0, wide)
        self.axes.set_ylim(high, 0)
        self.image, self.words = None, []
        if shape is None:
            self._make_tiles(count, wide, high, letters)
        else:
            self._make_pictures(shape, wide, high, letters)
        self.boxes: list[Any] = [
            PolyCollection([], facecolors="none", edgecolors=colour, linewidths=line, zorder=z, clip_on=False)
            for colour, line, z in ((style.GRID, 1.0, 2), (style.RED, 2.0, 3))
        ]
        for box_of in self.boxes:
            self.axes.add_collection(box_of, autolim=False)

    def _make_pictures(self, shape: tuple[int, ...], wide: float, high: float, letters: int) -> None:
        """Create one image of all samples. A cell is a whole number of dots, so that all dots are squares of equal size."""
        count, tall, broad = shape
        cell_x, cell_y = broad + round((0.28 + 0.22 * letters) * tall), tall + max(1, tall // 8)

        def dot(rows: int) -> float:
            return min(wide / (-(-count // rows) * cell_x), high / (rows * cell_y))

        best = max(dot(rows) for rows in range(1, count + 1))
        rows = next(rows for rows in range(1, count + 1) if dot(rows) >= NEARLY * best)
        across, size = -(-count // rows), dot(rows)
        cell_x = max(cell_x, int(wide / size / across))
        cell_y = max(cell_y, min(int(high / size / rows), tall + tall // 2))
        below = (rows - 1) * cell_y + tall
        lower = (high - below * size) / 2
        extent = (0.0, across * cell_x * size, lower + below * size, lower)
        column, row = np.arange(count) % across * cell_x, np.arange(count) // across * cell_y
        self._dots = np.zeros((below, across * cell_x)), row, column
        self._place = column * size, lower + row * size, broad * size, tall * size
        self.image = self.axes.imshow(
            style.tinted(DOT, self._dots[0]), extent=extent, aspect="auto", interpolation="none", zorder=1
        )
        points = float(np.clip(tall * size * 0.27, style.SMALL, 15.0))
        left, top, broad_px, _ = self._place
        self.words = [
            style.write(self.axes, x + broad_px + 4, y, "", size=points, ha="left", va="top") for x, y in zip(left, top)
        ]

    def _make_tiles(self, count: int, wide: float, high: float, letters: int) -> None:
        most, across = self._tiles(letters)
        rows = max(1, min(most, -(-count // across)))
        across = max(1, -(-count // rows))
        step_x, step_y = wide / across, min(high / rows, 64.0)
        left = (np.arange(count) % across) * step_x + 2
        top = (np.arange(count) // across) * step_y + (high - rows * step_y) / 2 + 2
        self._place = left, top, step_x - 5, step_y - 5
        large = style.TITLE + 1 if letters <= 3 else style.SMALL
        for part, size in ((0.34, large), (0.78, style.SMALL if letters <= 3 else 7.0)):
            for x, y in zip(left, top):
                at = x + (step_x - 5) / 2, y + part * (step_y - 5)
                self.words.append(style.write(self.axes, *at, "", size=size, ha="center", va="center"))

    # writing ----------------------------------------------------------------------------------------------------------

    def _write(self, shown: Samples) -> None:
        left, top, broad, tall = self._place
        count = len(shown.labels)
        right = [
            shown.predicted is None or said == label
            for label, said in zip(shown.labels, shown.predicted or shown.labels)
        ]
        corners = np.stack([left, top, left + broad, top, left + broad, top + tall, left, top + tall], axis=-1)
        corners = corners.reshape(-1, 4, 2)
        for box, wanted in zip(self.boxes, (True, False)):
            box.set_verts([corner for corner, good in zip(corners, right) if good == wanted])
        for i, word in enumerate(self.words[:count]):
            said = "" if shown.predicted is None else shown.predicted[i]
            word.set_text("?" if said is None else said)
            word.set_color((style.GREY if shown.pictures is not None else style.INK) if right[i] else style.RED)
            word.set_fontweight("normal" if right[i] else "bold")
        if shown.pictures is None:
            for word, label in zip(self.words[count:], shown.labels):
                word.set_text(f"is {label}")
                word.set_color(style.FAINT if shown.predicted is not None else style.GREY)
        else:
            self._paint(shown.pictures)

    def _paint(self, pictures: np.ndarray) -> None:
        dots, rows, columns = self._dots
        low, high = float(pictures.min()), float(pictures.max())
        shade = INKED * (pictures - low) / max(high - low, 1e-12)
        for row, column, picture in zip(rows, columns, shade):
            dots[row : row + len(picture), column : column + len(picture[0])] = picture
        self.image.set_data(style.tinted(DOT, dots))


def _sentence(shown: Samples, k: int) -> str:
    label = shown.labels[k]
    if shown.predicted is None:
        return f"sample {k + 1}: class {label}, no evaluation yet"
    said = shown.predicted[k]
    what = "no finite prediction" if said is None else f"predicted {said}"
    return f"sample {k + 1}: class {label}, {what}" + ("" if said == label else " (wrong)")


def _letters(samples: RecordedSamples | str) -> int:
    if isinstance(samples, str):
        return 1
    return max((len(class_name(samples.names, number, LONGEST)) for number in range(samples.classes)), default=1)


def _checked(images: Any, labels: Any, predicted: Any, most: int) -> Samples:
    pictures = _square(as_numbers("images", images).astype(float))
    labels, predicted = _answers("labels", labels), _answers("predicted", predicted)
    if not len(labels) == len(predicted) == len(pictures):
        raise BadInput(
            f"{len(pictures)} images, {len(labels)} labels, {len(predicted)} predictions: give as many of each."
        )
    shown = [[f"{value}" for value in values[:most]] for values in (labels, predicted)]
    return Samples(pictures[:most], shown[0], list(shown[1]))


def _answers(name: str, given: Any) -> Any:
    try:
        found = given if isinstance(given, list | tuple) else np.asarray(given)
        if not isinstance(given, str | bytes) and len(found) >= 0:
            return found
    except (TypeError, ValueError):  # an object without a length, or lists of different lengths
        pass
    raise BadInput(f"{name}={shown(given)} is not allowed; give a class, or its name, for each image.")


def _square(images: np.ndarray) -> np.ndarray:
    """Return images as an array of shape (n, height, width). Flat images are reshaped."""
    if images.ndim == 3:
        return images
    side = round(images.shape[-1] ** 0.5) if images.ndim == 2 else 0
    if not side or side * side != images.shape[-1]:
        raise BadInput(f"images of shape {images.shape}: give (n, height, width), or (n, side * side).")
    return images.reshape(len(images), side, side)
