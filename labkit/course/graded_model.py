"""A student's model in test cells, in their notebook as in grading, where its methods run in student processes.

Nothing that the model says about itself counts: it is evaluated by its scores, and in a run every gradient is compared with a
difference quotient of the loss of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadInput
from ..models import DataShape, NumpyModel
from ..models.check import DERIVATIVE_OF_LOSS, direction_rng, unequal_quotient, wrong_text
from ..models.model_objective import ModelObjective
from ..models.numpy_model import Array, Arrays

LOSS_OF_SCORES = "Return the mean loss of the scores: cross-entropy for labels, half of the squared error for values."
IN_FLOAT64 = (
    'A model is trained with dtype="float64" here, because its gradients are compared with difference quotients.'
)


@dataclass(frozen=True)
class GradedModel(NumpyModel):
    """A student's model without what it could say about itself: it is evaluated by its scores.

    `verified`: the seed of the directions in which each gradient is compared with the loss of the scores; None: it is not.
    """

    model: NumpyModel
    verified: int | None = None

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
        if self.verified is None:
            return _Scored(plain)
        if dtype != "float64":
            raise BadInput(IN_FLOAT64)
        return _Verified(plain, self.verified)


class _Scored:
    """The methods of a model, but for `evaluate`."""

    stochastic = False

    def __init__(self, plain: ModelObjective) -> None:
        self.plain = plain

    def shapes(self, data: DataShape) -> Any:
        return self.plain.layout.shapes

    def init(self, p: Arrays, rng: np.random.Generator) -> None:
        self.plain.call(self.plain.code.init, p, rng)

    def scores(self, p: Arrays, x: Array) -> Any:
        return self.plain.call(self.plain.code.scores, p, x, x=x)

    def gradient(self, p: Arrays, x: Array, y: Array, g: Arrays) -> float:
        out = np.full(self.plain.size, np.nan, self.plain.dtype)
        loss = self.plain.gradient(_flat(p), x, y, out)
        for name, values in self.plain.arrays.views(out).items():
            g[name][...] = values
        return loss

    def stages(self, data: DataShape) -> tuple[()]:
        return ()

    def evaluate(self, p: Arrays, x: Array, y: Array) -> None:
        return None


class _Verified(_Scored):
    """Each gradient, and its loss, are compared with the loss of the scores along a random direction."""

    def __init__(self, plain: ModelObjective, seed: int) -> None:
        super().__init__(plain)
        self.seed = seed

    def gradient(self, p: Arrays, x: Array, y: Array, g: Arrays) -> float:
        plain, loss = self.plain, super().gradient(p, x, y, g)
        at, found = _flat(p), _flat(g)
        direction = direction_rng(self.seed, found).choice((-1.0, 1.0), plain.size)

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
        return loss


def _flat(arrays: Arrays) -> Array:
    return np.concatenate([np.ravel(values) for values in arrays.values()])
