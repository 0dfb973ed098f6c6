"""A student's model in test cells, in their notebook as in grading, where its methods run in student processes.

Nothing that the model says about itself counts: it is evaluated by its scores, and in a run every gradient is compared with a
difference quotient of the loss of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BadInput
from ..models import DataShape, NumpyModel
from ..models.check import DERIVATIVE_OF_LOSS, direction_rng, unequal_quotient, wrong_text
from ..models.model_objective import ModelObjective
from ..models.numpy_model import Array, Arrays
from ..problem import Problem

LOSS_OF_SCORES = "Return the mean loss of the scores: cross-entropy for labels, half of the squared error for values."


def graded(problem: Problem, compared: int | None = None) -> Problem:
    """Return a problem whose model is graded. Raises `BadInput` if it is a problem with which no model can be graded.

    `compared`: the seed of the directions in which every gradient is compared with the loss of the scores; None: it is not.
    """
    assert problem.model is not None
    if problem.class_weights is not None or problem.dataset.has_sample_weights:
        raise BadInput(
            "A model is graded with the mean loss of its scores, without weights: give a problem without class_weights, and data "
            "without sample_weights."
        )
    if compared is not None and problem.dtype != "float64":
        raise BadInput(
            'A model is trained with dtype="float64" here, because its gradients are compared with difference quotients.'
        )
    return replace(problem, model=GradedModel(problem.model, compared))


@dataclass(frozen=True)
class GradedModel(NumpyModel):
    """A student's model without what it could say about itself: it is evaluated by its scores."""

    model: NumpyModel
    compared: int | None

    _is_checked_at_start = False

    @property
    def _title(self) -> str:
        return self.model._title

    def _identity(self) -> tuple[str, dict[str, Any]]:
        return self.model._identity()

    def _code(self, data: DataShape, dtype: str) -> Any:
        plain = ModelObjective(self.model, data, dtype)
        if plain.stages or plain.stochastic:
            what = "stages" if plain.stages else "stochastic = True"
            raise BadInput(
                f"{self._title} has {what}: a graded model has scores and gradient, and draws no random numbers."
            )
        return _Graded(plain, self.compared)


class _Graded:
    """The methods of a model, but for `evaluate`."""

    stochastic = False

    def __init__(self, plain: ModelObjective, compared: int | None) -> None:
        self.plain, self.compared = plain, compared

    def shapes(self, data: DataShape) -> Any:
        return self.plain.layout.shapes

    def init(self, p: Arrays, rng: np.random.Generator) -> None:
        self.plain.call(self.plain.code.init, p, rng)

    def scores(self, p: Arrays, x: Array) -> Any:
        return self.plain.call(self.plain.code.scores, p, x, x=x)

    def gradient(self, p: Arrays, x: Array, y: Array, g: Arrays) -> float:
        at, out = _flat(p), np.full(self.plain.size, np.nan, self.plain.dtype)
        loss = self.plain.gradient(at, x, y, out)
        if self.compared is not None:
            _compare(self.plain, at, x, y, loss, out, self.compared)
        for name, values in self.plain.arrays.views(out).items():
            g[name][...] = values
        return loss

    def stages(self, data: DataShape) -> tuple[()]:
        return ()

    def evaluate(self, p: Arrays, x: Array, y: Array) -> None:
        return None


def _compare(plain: ModelObjective, at: Array, x: Array, y: Array, loss: float, found: Array, seed: int) -> None:
    """Compare a gradient and its loss with the loss of the scores along a random direction. Raises `BadInput` if they differ."""
    direction = direction_rng(seed, found).choice((-1.0, 1.0), plain.size)

    def loss_along(step: float) -> float:
        return plain.loss.evaluate(plain.scores(at + step * direction, x), y)[0]

    if not np.isclose(loss, expected := loss_along(0.0), rtol=1e-6, atol=1e-9):
        losses = f"gradient returned the loss {loss:.6g}; that of the scores is {expected:.6g}"
        raise BadInput(f"{plain.name}: {losses}. {LOSS_OF_SCORES}")
    derivative, scale = float(found @ direction), float(np.linalg.norm(found))
    quotient = unequal_quotient(loss_along, derivative, scale)
    if quotient is not None:
        wrong = wrong_text(derivative, quotient)
        raise BadInput(
            f"{plain.name}: a gradient of the run is wrong along a random direction: {wrong}. {DERIVATIVE_OF_LOSS}"
        )


def _flat(arrays: Arrays) -> Array:
    return np.concatenate([np.ravel(values) for values in arrays.values()])
