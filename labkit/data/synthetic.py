"""Synthetic data: samples are computed from a formula and a seed.

A recipe is a frozen dataclass whose options are the options of `load(name, **options)`; `build` makes the data set.
Points in the plane (moons, circles, spirals) can be plotted together with the decision boundary; the quadratic and the
linear regression have solutions in closed form, which tests and theory use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput, shown
from ..options import HasOptions, option
from ..random_streams import SAMPLES, data_stream
from .dataset import Dataset, Subset, build, hold_out

MOST = 10_000_000


@dataclass(frozen=True)
class Recipe(HasOptions):
    """How to make one data set. The fields of a recipe are the options of `load`."""

    name: ClassVar[str]
    dtype: ClassVar[str] = "float32"

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """Make the data set; the same arguments give the same arrays."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plane(Recipe):
    """Labelled points in the plane, with Gaussian noise added. The sizes of the classes differ by at most one."""

    samples: int = option(1000, low=4, high=MOST, help="points in all")
    noise: float = option(0.1, low=0.0, high=10.0, help="standard deviation of the blur")

    def number_of_classes(self) -> int:
        return 2

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the x and y coordinates, (n,) each. Point i is at the parameter t[i] in [0, 1] of the curve of its label."""
        raise NotImplementedError

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """Make the data set. x: (samples, 2). y: (samples,) labels."""
        rng, classes = data_stream(seed, SAMPLES.format(name=self.name)), self.number_of_classes()
        label = np.arange(self.samples) % classes
        t = rng.random(self.samples)
        x = np.stack(self.points(label, t), axis=1) + self.noise * rng.standard_normal((self.samples, 2))
        train, test = hold_out(x, label, test_fraction, seed)
        about = f"{str(self.__doc__).partition(chr(10))[0]} Made by a formula (labkit); free to use."
        return build(self.name, train, test, classes, standardize=standardize, dtype=dtype, about=about)


@dataclass(frozen=True)
class Moons(Plane):
    """Two half circles that reach into each other."""

    name: ClassVar[str] = "moons"

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return points of the upper half circle (cos, sin), label 0, or of the lower half circle (1 - cos, 1/2 - sin)."""
        cos, sin = np.cos(math.pi * t), np.sin(math.pi * t)
        return np.where(label == 0, cos, 1 - cos), np.where(label == 0, sin, 0.5 - sin)


@dataclass(frozen=True)
class Circles(Plane):
    """A circle of radius 1 around a smaller one."""

    name: ClassVar[str] = "circles"
    noise: float = option(0.05, low=0.0, high=10.0, help="standard deviation of the blur")
    factor: float = option(0.5, low=0.0, high=0.99, help="radius of the inner circle")

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return points of the outer circle (label 0) or the inner circle (label 1)."""
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
        return self.arms

    def points(self, label: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return points of radius sqrt(t), whose angle grows with the radius from the arm's initial angle.

        The square root makes the density of points about constant along the arm.
        """
        radius = np.sqrt(t)
        angle = 2 * math.pi * (self.turns * radius + label / self.arms)
        return radius * np.cos(angle), radius * np.sin(angle)


def numbers_from_text(text: str) -> Any:
    """Convert text to numbers: `"2"` to 2.0, `"1,4"` to (1.0, 4.0). Other text is returned unchanged."""
    try:
        numbers = tuple(float(word) for word in text.split(","))
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]


def numbers_as_text(numbers: Any) -> str:
    return ",".join(repr(float(number)) for number in np.atleast_1d(numbers))


@dataclass(frozen=True)
class Quadratic(Recipe):
    """A quadratic function to minimise: the mean over the rows x_i of f_i below.

    f_i(w) = 1/2 (w - x_i)' diag(curvature) (w - x_i).

    The minimum is at the mean of the rows (`extra["solution"]`). With noise 0 every row is 0 and every gradient is
    exact; with noise s the entries of the rows are drawn from N(0, s^2). All rows are training rows and also the
    held-out rows, because there is nothing to generalise to. The rows are never standardised. `extra`: curvature (d,),
    start, solution (d,).
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
        """Make the data set. x: (samples, dimension) rows. y: (samples, 1) zeros."""
        curvature = self._curvatures()
        x = np.zeros((self.samples, self.dimension))
        if self.noise > 0:
            x = self.noise * data_stream(seed, SAMPLES.format(name=self.name)).standard_normal(x.shape)
        part = Subset.whole(x, np.zeros((self.samples, 1)))
        extra = {"curvature": curvature, "start": self.start, "solution": x.mean(axis=0)}
        about = "Noisy copies of a quadratic bowl. Made by a formula (labkit); free to use."
        return build(self.name, part, part, None, standardize=False, dtype=dtype, about=about, extra=extra)

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
    """A linear model with Gaussian noise: y = X w + b + noise, with X, w and b drawn from N(0, 1).

    `extra`: true_weights (d, 1) and true_bias (1,), which are w and b, for values that are not standardised. solution:
    weights (d, 1), bias (1,) and mean_squared_error of the least-squares fit to the training part (standardised, if it
    is).
    """

    name: ClassVar[str] = "linear-regression"
    samples: int = option(1000, low=4, high=MOST, help="rows")
    dimension: int = option(10, low=1, high=10_000, help="features")
    noise: float = option(0.1, low=0.0, high=1e6, help="standard deviation of the targets about the line")

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """Make the data set. x: (samples, dimension). y: (samples, 1)."""
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
    """Return weights (d, k), bias (k,) and mean squared error of the least-squares fit, in float64."""
    design = np.column_stack([x, np.ones(len(x))]).astype(np.float64)
    answer = np.linalg.lstsq(design, y.astype(np.float64), rcond=None)[0]
    error = float(np.mean((design @ answer - y) ** 2))
    return {"weights": answer[:-1], "bias": answer[-1], "mean_squared_error": error}
