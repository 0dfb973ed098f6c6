"""Synthetic data: samples are computed from a formula and a seed.

A recipe is a frozen dataclass whose options are the options of `load(name, **options)`; `build` makes the data set.
Points in the plane (moons, circles, spirals) can be plotted together with the decision boundary; the quadratic and the
linear regression have solutions in closed form, for tests and for theory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput, shown
from ..options import check_options, option
from ..random_streams import SAMPLES, data_stream
from .dataset import Dataset, build, hold_out

__all__ = ["Circles", "LinearRegression", "Moons", "Plane", "Quadratic", "Recipe", "Spirals"]

MOST = 10_000_000


@dataclass(frozen=True)
class Recipe:
    """How to make one data set. Its options are the options of `load`."""

    name: ClassVar[str]
    dtype: ClassVar[str] = "float32"

    def __post_init__(self) -> None:
        check_options(self)

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """The data set; the same arguments give the same arrays."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plane(Recipe):
    """Labelled points in the plane, the classes of equal size (to one), blurred by Gaussian noise."""

    samples: int = option(1000, low=4, high=MOST, help="points in all")
    noise: float = option(0.1, low=0.0, high=10.0, help="standard deviation of the blur")

    def number_of_classes(self) -> int:
        """The number of labels."""
        return 2

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of the points at parameters t in [0, 1] on the curves of their labels, both (n,)."""
        raise NotImplementedError

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """x: (samples, 2); y: (samples,) labels."""
        rng, classes = data_stream(seed, SAMPLES.format(name=self.name)), self.number_of_classes()
        label = np.arange(self.samples) % classes
        t = rng.random(self.samples)
        x = np.stack(self.points(label, t), axis=1) + self.noise * rng.standard_normal((self.samples, 2))
        train, test = hold_out(x, label, test_fraction, seed)
        about = f"{self.__doc__} Made by a formula (labkit); free to use."
        return build(self.name, train, test, classes, standardize=standardize, dtype=dtype, about=about)


@dataclass(frozen=True)
class Moons(Plane):
    """Two half circles that reach into each other."""

    name: ClassVar[str] = "moons"

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper: (cos, sin). Lower: (1 - cos, 1/2 - sin)."""
        cos, sin = np.cos(math.pi * t), np.sin(math.pi * t)
        return np.where(label == 0, cos, 1 - cos), np.where(label == 0, sin, 0.5 - sin)


@dataclass(frozen=True)
class Circles(Plane):
    """A circle of radius 1 around a smaller one."""

    name: ClassVar[str] = "circles"
    noise: float = option(0.05, low=0.0, high=10.0, help="standard deviation of the blur")
    factor: float = option(0.5, low=0.0, high=0.99, help="radius of the inner circle")

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Label 0 outside, label 1 inside."""
        radius, angle = np.where(label == 0, 1.0, self.factor), 2 * math.pi * t
        return radius * np.cos(angle), radius * np.sin(angle)


@dataclass(frozen=True)
class Spirals(Plane):
    """Arms of Archimedean spirals wound into each other, one class an arm."""

    name: ClassVar[str] = "spirals"
    noise: float = option(0.02, low=0.0, high=10.0, help="standard deviation of the blur")
    arms: int = option(2, low=2, high=20, help="number of spirals, and of classes")
    turns: float = option(1.5, low=0.1, high=10.0, help="how often an arm goes round")

    def number_of_classes(self) -> int:
        """The number of arms."""
        return self.arms

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Radius t; the angle grows with t from the arm's initial angle. sqrt: about constant density along the arm."""
        radius = np.sqrt(t)
        angle = 2 * math.pi * (self.turns * radius + label / self.arms)
        return radius * np.cos(angle), radius * np.sin(angle)


def numbers_from_text(text: str) -> Any:
    """`"2"` -> 2.0; `"1,4"` -> (1.0, 4.0). Other text is returned unchanged."""
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]


def numbers_as_text(numbers: Any) -> str:
    """The inverse of `numbers_from_text`."""
    return ",".join(repr(float(number)) for number in np.atleast_1d(numbers))


@dataclass(frozen=True)
class Quadratic(Recipe):
    """The simplest thing to minimise: f_i(w) = 1/2 (w - x_i)' diag(curvature) (w - x_i), averaged over the rows x_i.

    The minimum is the mean of the rows (`extra["solution"]`). With noise 0 every row is 0 and every gradient exact;
    with noise s the rows are drawn from N(0, s^2). All rows are training rows, and the held-out rows are the same
    ones: there is nothing to generalise to. Never standardised. `extra`: curvature (d,), start, solution (d,).
    """

    name: ClassVar[str] = "quadratic"
    dtype: ClassVar[str] = "float64"
    samples: int = option(1000, low=1, high=MOST, help="rows")
    dimension: int = option(1, low=1, high=MOST, help="weights")
    noise: float = option(0.0, low=0.0, high=1e6, help="standard deviation of the rows")
    curvature: tuple[float, ...] | float = option(
        1.0, read=numbers_from_text, write=numbers_as_text, help="of f: a number above 0, or one for each dimension"
    )
    start: float = option(1.0, low=-1e6, high=1e6, help="every weight begins here")

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """x: (samples, dimension) rows; y: (samples, 1) zeros."""
        curvature = self._curvatures()
        x = np.zeros((self.samples, self.dimension))
        if self.noise > 0:
            x = self.noise * data_stream(seed, SAMPLES.format(name=self.name)).standard_normal(x.shape)
        pair = x, np.zeros((self.samples, 1))
        extra = {"curvature": curvature, "start": self.start, "solution": x.mean(axis=0)}
        about = "Noisy copies of a quadratic bowl. Made by a formula (labkit); free to use."
        return build(self.name, pair, pair, None, standardize=False, dtype=dtype, about=about, extra=extra)

    def _curvatures(self) -> np.ndarray:
        try:
            given = np.asarray(self.curvature, dtype=np.float64)
        except (TypeError, ValueError):
            given = np.array(np.nan)
        if given.shape not in ((), (self.dimension,)) or not np.all(np.isfinite(given) & (given > 0)):
            raise BadInput(
                f"Quadratic: curvature={shown(self.curvature)} is not allowed; curvature is a finite number above 0, "
                f"or {self.dimension} of them, one for each dimension."
            )
        return np.array(np.broadcast_to(given, (self.dimension,)))


@dataclass(frozen=True)
class LinearRegression(Recipe):
    """A straight line through noise: y = X w + b + noise, with X, w and b from N(0, 1).

    `extra`: true_weights (d, 1) and true_bias (1,) of the formula, before standardising; solution: weights (d, 1),
    bias (1,) and mean_squared_error of the least squares answer on the training part as the network sees it.
    """

    name: ClassVar[str] = "linear-regression"
    samples: int = option(1000, low=4, high=MOST, help="rows")
    dimension: int = option(10, low=1, high=10_000, help="features")
    noise: float = option(0.1, low=0.0, high=1e6, help="standard deviation of the targets about the line")

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """x: (samples, dimension); y: (samples, 1)."""
        rng = data_stream(seed, SAMPLES.format(name=self.name))
        weights, bias = rng.standard_normal((self.dimension, 1)), rng.standard_normal(1)
        x = rng.standard_normal((self.samples, self.dimension))
        y = x @ weights + bias + self.noise * rng.standard_normal((self.samples, 1))
        train, test = hold_out(x, y, test_fraction, seed)
        about = "A linear function of normal features, plus noise. Made by a formula (labkit); free to use."
        made = build(self.name, train, test, None, standardize=standardize, dtype=dtype, about=about)
        made.extra.update(true_weights=weights, true_bias=bias, solution=_least_squares(made.x_train, made.y_train))
        return made


def _least_squares(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Weights (d, k), bias (k,) and mean squared error of the best line, in float64."""
    design = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    answer = np.linalg.lstsq(design, y.astype(np.float64), rcond=None)[0]
    error = float(np.mean((design @ answer - y) ** 2))
    return {"weights": answer[:-1], "bias": answer[-1], "mean_squared_error": error}
