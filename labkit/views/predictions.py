"""Predictions: held-out images with what the model says they are; a wrong answer is boxed in red."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..errors import BadInput
from . import style

__all__ = ["Predictions", "draw"]


def draw(images: Any, labels: Any, predicted: Any, axes: Axes) -> Predictions:
    """These samples on empty axes: `images` (n, height, width) or (n, side * side), `labels` and `predicted` (n,)."""
    panel = Predictions().setup(axes)
    panel.show(images, labels, predicted)
    return panel


class Predictions:
    """A strip of images. It is drawn from arrays, not from the trace, which holds no samples."""

    name: ClassVar[str] = "predictions"
    title: ClassVar[str] = "Predictions"
    size: ClassVar[tuple[int, int]] = (940, 72)
    margins: ClassVar[tuple[int, int, int, int]] = (10, 10, 4, 4)
    most: ClassVar[int] = 18

    def setup(self, axes: Axes) -> Self:
        """Axes without axes."""
        self.axes = axes
        axes.set_axis_off()
        self.image: Any = None
        self._shape: tuple[int, ...] = ()
        return self

    def caption(self, labels: Any, predicted: Any) -> str:
        """How many are wrong, in words."""
        wrong = int((np.asarray(labels) != np.asarray(predicted)).sum())
        said = (
            "none is wrong"
            if not wrong
            else "the wrong one is boxed"
            if wrong == 1
            else f"the {wrong} wrong ones are boxed"
        )
        return f"on held-out samples; {said}"

    def show(self, images: Any, labels: Any, predicted: Any) -> None:
        """Draw the first `most` of these samples."""
        pictures = _square(np.asarray(images, dtype=float))[: self.most]
        count = len(pictures)
        if not len(labels) == len(predicted) == len(images):
            raise BadInput(
                f"{len(images)} images, {len(labels)} labels, {len(predicted)} predictions: give as many of each."
            )
        if not count:
            return
        side = pictures.shape[1]
        if self._shape != pictures.shape:
            self._make(pictures.shape)
        low, high = pictures.min(), pictures.max()
        strip = np.full((side, self.most * 2 * side), np.nan)
        for i, picture in enumerate(pictures):
            strip[:, 2 * side * i : 2 * side * i + picture.shape[1]] = (picture - low) / max(high - low, 1e-12)
        shade = np.where(np.isnan(strip), 1.0, 1.0 - 0.92 * np.nan_to_num(strip))
        self.image.set_data(np.repeat(shade[..., None], 3, axis=-1))
        for box, name, label, said in zip(self.boxes, self.names, labels, predicted):
            wrong = label != said
            name.set_text(f"{said}")
            name.set_color(style.RED if wrong else style.GREY)
            name.set_fontweight("bold" if wrong else "normal")
            box.set_edgecolor(style.RED if wrong else style.GRID)
            box.set_linewidth(2.0 if wrong else 1.0)
            box.set_zorder(3 if wrong else 2)

    def _make(self, shape: tuple[int, ...]) -> None:
        self.axes.clear()
        self.axes.set_axis_off()
        count, side = shape[0], shape[1]
        self._shape = shape
        blank = np.ones((side, self.most * 2 * side, 3))
        self.image = self.axes.imshow(blank, aspect="equal", interpolation="nearest", zorder=1)
        self.axes.set_anchor("W")
        self.boxes = [
            self.axes.add_patch(
                Rectangle((2 * side * i - 0.9, -0.9), side + 0.8, side + 0.8, fill=False, clip_on=False)
            )
            for i in range(count)
        ]
        self.names = [
            style.write(
                self.axes, 2 * side * i + 1.22 * side, side * 0.16, "", size=style.TITLE, ha="left", va="center"
            )
            for i in range(count)
        ]


def _square(images: np.ndarray) -> np.ndarray:
    """(n, height, width) of images that may come flat."""
    if images.ndim == 3:
        return images
    side = round(images.shape[-1] ** 0.5) if images.ndim == 2 else 0
    if not side or side * side != images.shape[-1]:
        raise BadInput(f"images of shape {images.shape}: give (n, height, width), or (n, side * side).")
    return images.reshape(len(images), side, side)
