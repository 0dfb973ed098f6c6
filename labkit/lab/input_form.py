"""What the samples of a data set are like for a user who gives one: a picture that can be drawn, a point, or values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..data import DaskDataset, Dataset
from ..errors import BadInput
from .handwriting import Box, drawn, inked_box

TYPICAL = 500  # held-out samples from which ranges are taken
MOST_PIXELS = 64 * 64  # of a picture that can be drawn


class InputForm:
    """What the samples of a data set are like.

    `kind`: "picture" (it can be drawn), "plane" (two features) or "values". `shape`: (height, width) of a picture. `low`, `high`:
    the typical range of each feature, of a picture the values of paper and of ink. `held_out`: the number of held-out samples in
    memory. `points`: some of them, (k, 2), if the kind is "plane", with their classes `labels` (None: no classes).
    """

    def __init__(self, dataset: Dataset | DaskDataset):
        self.dataset = dataset
        self.held_out = dataset.n_test if isinstance(dataset, Dataset) else 0
        self.whole = isinstance(dataset, Dataset) and dataset.x_test.dtype.kind in "iu"  # ids
        mean, scale = dataset.mean, dataset.scale
        some = self.sample(slice(0, TYPICAL)) if self.held_out else np.array([mean - 2 * scale, mean + 2 * scale])
        self.low, self.high = some.min(axis=0), some.max(axis=0)
        self.high = np.where(self.high > self.low, self.high, self.low + 1)
        self.points, self.labels = some[:0], None
        shape = dataset.sample_shape
        self.shape: tuple[int, int] | None = None
        if (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))) and shape[0] * shape[1] <= MOST_PIXELS:
            self.kind, self.shape = "picture", (shape[0], shape[1])
            self._measure(some)
        elif dataset.features == 2 and not self.whole:
            self.kind, self.points = "plane", some[:200]
            if self.held_out and dataset.classes is not None:
                self.labels = dataset.y_test[: len(self.points)]  # type: ignore[union-attr]
        else:
            self.kind = "values"

    def sample(self, which: int | slice) -> np.ndarray:
        """Return held-out samples as they are in the source."""
        assert isinstance(self.dataset, Dataset)
        found: np.ndarray = self.dataset.raw(self.dataset.x_test[which])
        return found

    def _measure(self, some: np.ndarray) -> None:
        """Find the values of paper and ink, and where ink is."""
        assert self.shape is not None
        pictures = some.reshape(len(some), *self.shape, -1)
        edge = np.concatenate([pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]], axis=1)
        digits = 5 - math.floor(math.log10(np.ptp(some) or 1.0))  # float32 has lost the others
        paper, low, high = (round(float(value), digits) for value in (np.median(edge), some.min(), some.max()))
        ink = high if high - paper >= paper - low else low
        self.low, self.high = np.full(1, paper), np.full(1, ink if ink != paper else paper + 1)
        self.box: Box = inked_box(self.shares(some))

    def shares(self, samples: np.ndarray) -> np.ndarray:
        """Return pictures as ink from 0 to 1, shape (n, height, width): of colours the mean."""
        assert self.shape is not None
        grey = samples.reshape(len(samples), *self.shape, -1).mean(axis=3)
        return np.clip((grey - self.low[0]) / (self.high[0] - self.low[0]), 0.0, 1.0)

    def written(self, strokes: Sequence[np.ndarray]) -> np.ndarray:
        """Return strokes as a sample."""
        return self.inked(drawn(strokes, self.drawable(), self.box).ravel())

    def inked(self, ink: np.ndarray) -> np.ndarray:
        """Return the sample of which each pixel has this share of ink, shape (height * width,)."""
        height, width = self.drawable()
        values = self.low[0] + (self.high[0] - self.low[0]) * np.clip(ink, 0.0, 1.0)
        return np.repeat(values, self.dataset.features // (height * width))

    def drawable(self) -> tuple[int, int]:
        """Return the (height, width) of a picture. Raises `BadInput` if samples are none."""
        if self.shape is None:
            raise BadInput(f"The samples of {self.dataset.name} are not pictures: they cannot be drawn.")
        return self.shape
