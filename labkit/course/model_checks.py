"""`check_model` of test cells: the checks of a model, for a student's model."""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, LabkitError, shown
from ..models.check import ROWS, Checks
from ..models.model_objective import ModelObjective
from ..models.numpy_model import Array
from ..problem import Problem
from .graded_model import LOSS_OF_SCORES, graded
from .testing import BEFORE_HINT, SubmissionFailed, UnexpectedValue


def check_model(problem: Problem, seed: int = 0) -> None:
    """Check a student's model as `lk.check_model` does, with other samples, and with the loss of its scores.

    Prints a line if the model passes. It is not checked whether threads can compute at the same time, and the model needs no copy
    that can be sent.

    Parameters
    ----------
    problem : Problem
        A problem with the model: ``lk.Problem("digits", model=CNN())``.
    seed : int, default: 0
        The seed of the samples, of their labels and of the directions of difference quotients. Choose others in hidden tests.

    Raises
    ------
    UnexpectedValue
        If a check fails; of a hidden check only what to change is shown.
    SubmissionFailed
        If the model raises an error or returns something else than numbers of the right shape.
    """
    if problem.model is None:
        raise BadInput(f"course.check_model({shown(problem)}): give a problem with a model.")
    problem = graded(problem)
    try:
        objective = problem.objective()
        assert isinstance(objective, ModelObjective)
        checks = Checks(objective, *_samples(problem, seed), seed, _Mark(), loss_of_scores=True)
        checks.carry_out(without=("sending", "threads"))
    except LabkitError as error:
        raise SubmissionFailed(str(error)) from None
    print(f"{objective.name}: its gradient is the derivative of the loss")


def _samples(problem: Problem, seed: int) -> tuple[Array, Array]:
    """Return samples of the data set, with labels, or values, of others."""
    rng, data = np.random.default_rng(seed), problem.dataset
    rows, others = (rng.choice(len(data.x_train), ROWS, replace=False) for _ in "xy")
    labels = data.y_train[others] if data.classes is None else rng.integers(0, data.classes, ROWS)
    return np.asarray(data.x_train[rows]), np.asarray(labels)


class _Mark:
    """The verdict on a model in a test cell: whatever is not as it should be fails the test."""

    def failed(self, name: str, found: str, remedy: str) -> Exception:
        found = found.replace("\xa0", " ")  # so that no name of an array can begin a hint
        return UnexpectedValue(f"{name}: {found}; what{BEFORE_HINT}{remedy}")

    def not_checked(self, name: str, what: str, why: str, remedy: str) -> None:
        raise self.failed(name, f"{what} cannot be checked, because {why}", remedy)

    def another_loss(self, name: str, found: str, remedy: str) -> None:
        raise self.failed(name, found, LOSS_OF_SCORES)
