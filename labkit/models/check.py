"""Checks of a user's model: what strategies and engines assume of an objective, above all that its gradient is the derivative.

Every check has a sentence that says what to change. The gradient is compared with difference quotients of the loss in float64: of
every array along a random direction, which contains an error of any element, and at single elements, which can be named. There
are several step widths, because the loss of a model with ReLUs has kinks, and a quotient across a kink is no derivative.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..content_digest import content_digest
from ..description import Description
from ..errors import BadInput, shown
from ..nn import size_text
from .model_objective import ModelObjective
from .numpy_model import Array

if TYPE_CHECKING:
    from ..problem import Problem

ROWS = 8  # samples of a checked gradient
ELEMENTS = 3  # of every array, that are compared with difference quotients
STEPS = (1e-4, 1e-6, 1e-7)  # widths of the difference quotients
TOLERANCE = 1e-4  # of a difference quotient, relative to the largest derivative of the array
SAME = 1e-5  # tolerance of two ways to compute a loss, in the dtype of the problem
AT_START = 1.0  # s that the checks at the start of a run take at most
THREADS, CALLS = 4, 25  # threads that compute gradients at once, and how many each
DERIVATIVE_OF_LOSS = "gradient has to write the derivative of the loss that it returns."
IN_ITS_DTYPE = "Compute with numbers of the dtype of the parameters."


class CheckVerdict(Protocol):
    """What follows from the result of a check. `remedy`: what to change, in sentences without names or numbers of the model."""

    def failed(self, name: str, found: str, remedy: str) -> Exception:
        """Return the error for a failed check of the model `name`."""

    def not_checked(self, name: str, what: str, why: str, remedy: str) -> None:
        """Note that something cannot be checked, or raise an error."""

    def another_loss(self, name: str, found: str, remedy: str) -> None:
        """Warn that `gradient` returns another loss than the evaluation, or raise an error."""


class CheckReport:
    """The verdict on a model that a user trains. `notes`: what cannot be checked; `warnings`: what is not as usual."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def failed(self, name: str, found: str, remedy: str) -> Exception:
        return BadInput(f"{name}: {found}. {remedy}")

    def not_checked(self, name: str, what: str, why: str, remedy: str) -> None:
        self.notes.append(f"Not checked: {what}, because {why}.")

    def another_loss(self, name: str, found: str, remedy: str) -> None:
        self.warnings.append(f"{found}. {remedy}")


class Checks:
    """The checks of one model on samples `x`, `y`. `done`: what has been checked; `left_out`: what was not, to begin in time.

    `loss_of_scores`: whether derivatives are compared with the loss of the scores, and not with that which `gradient` returns.
    """

    def __init__(
        self,
        objective: ModelObjective,
        x: Array,
        y: Array,
        seed: int,
        verdict: CheckVerdict,
        loss_of_scores: bool = False,
    ) -> None:
        self.objective, self.x, self.y, self.seed = objective, x, y, seed
        self.verdict, self.loss_of_scores = verdict, loss_of_scores
        self.name = objective.name
        self.done: list[tuple[str, str]] = []
        self.left_out: list[str] = []

    def carry_out(self, without: Collection[str] = (), seconds: float = math.inf) -> Checks:
        """Carry out the checks, in order; those that have not begun after `seconds` are left out. Raises the verdict's errors."""
        until = time.monotonic() + seconds
        checks = (
            self.initial_values,
            self.gradient,
            self.mean,
            self.scores,
            self.derivatives,
            self.sending,
            self.copies,
            self.threads,
        )
        for check in checks:
            name = check.__name__.replace("_", " ")
            if name in without:
                continue
            if time.monotonic() > until:
                self.left_out.append(name)
            else:
                check(until)
        return self

    def failed(self, found: str, remedy: str) -> Exception:
        """Return the verdict's error for a failed check."""
        return self.verdict.failed(self.name, found, remedy)

    def stream(self) -> tuple[np.random.Generator, ...]:
        """Return the last argument of a stochastic gradient, the same stream each time."""
        return (np.random.default_rng(self.seed),) if self.objective.stochastic else ()

    def compute(
        self, params: Array, objective: ModelObjective | None = None, rows: slice = slice(None)
    ) -> tuple[float, Array]:
        """Return loss and gradient. What the model leaves out of the gradient is NaN."""
        objective = objective or self.objective
        out = np.full(objective.size, np.nan, objective.dtype)
        return objective.gradient(params, self.x[rows], self.y[rows], out, *self.stream()), out

    def initial_values(self, until: float) -> None:
        """init writes all arrays, finite, the same for the same seed."""
        first, again = self.objective.start(self.seed), self.objective.start(self.seed)
        self._complete("init", "p", first)
        if first.tobytes() != again.tobytes():
            raise self.failed("init returns other values for the same seed", "Draw them from the given rng only.")
        self.start = first
        self.done.append(("initial values", f"{size_text(self.objective)}; the same for the same seed"))

    def gradient(self, until: float) -> None:
        """The gradient is written completely, finite, the same in a second call."""
        loss, out = self.compute(self.start)
        self._complete("gradient", "g", out)
        if not np.isfinite(loss):
            raise self.failed(
                f"the loss of the initial values is {loss}", "Start with smaller values, or compute it stably."
            )
        loss2, again = self.compute(self.start)
        if loss != loss2 or out.tobytes() != again.tobytes():
            largest = max(abs(loss - loss2), float(np.abs(out - again).max()))
            how = "It must keep nothing between calls; a model that draws random numbers, as for dropout, needs stochastic = True"
            if self.objective.stochastic:
                how = "Draw random numbers from the given rng only"
            raise self.failed(
                f"two calls of gradient with the same arguments differ (by up to {largest:.2g})", f"{how}."
            )
        self.loss, self.out = loss, out
        self.done.append(("gradient", "every array is written; two calls are equal"))

    def _complete(self, method: str, argument: str, vector: Array) -> None:
        """Raise `BadInput`, which names the first array that is not finite, if there is one."""
        for name, values in self.objective.arrays.views(vector).items():
            if np.isnan(values).any():
                where = np.argwhere(np.isnan(values))[0].tolist()
                raise self.failed(
                    f"{method} has left {name}{where or ''} out, or has computed NaN",
                    f"Write to every array in place, as {argument}[name][...] = ...; an assignment {argument}[name] = ... only "
                    "replaces the entry.",
                )
            if not np.isfinite(values).all():
                raise self.failed(f"{method} writes infinite numbers to {name}", "All numbers have to be finite.")

    def mean(self, until: float) -> None:
        """The loss of a batch is the mean of the losses of its samples."""
        if self.objective.stochastic:  # a batch of another size draws other numbers
            what, why = "that it is the mean over the samples", "the gradient is random"
            return self.verdict.not_checked(self.name, what, why, "Draw no random numbers.")
        single = [self.compute(self.start, rows=slice(i, i + 1)) for i in range(len(self.x))]
        losses, scale = [loss for loss, _ in single], max(1.0, abs(self.loss))
        mean = float(np.mean(losses))
        gradient = np.mean([out for _, out in single], axis=0)
        apart = float(np.abs(gradient - self.out).max()) / max(1e-12, float(np.abs(self.out).max()))
        if abs(mean - self.loss) > 100 * SAME * scale or apart > 1000 * SAME:
            what = f"loss {self.loss:.6g}, single samples {mean:.6g}"
            if abs(mean - self.loss) <= 100 * SAME * scale:
                what = f"the loss is, but the gradient differs by {apart:.2g} of its largest element"
            raise self.failed(
                f"gradient does not return the mean over the samples of a batch ({what})",
                "Divide the sums by len(x), as a criterion with reduction='mean' does; the loss of a sample must not depend on "
                "the other samples.",
            )
        self.done.append(("mean", "loss and gradient of a batch are the means over its samples"))

    def scores(self, until: float) -> None:
        """The scores have their shape, each from its own row, and the evaluated loss is the trained one."""
        scores = self.objective.scores(self.start, self.x)
        single = np.concatenate([self.objective.scores(self.start, row[None]) for row in self.x])
        if not np.allclose(scores, single, rtol=1000 * SAME, atol=1000 * SAME, equal_nan=True):
            raise self.failed(
                "the scores of a sample depend on the other samples of the batch",
                "Compute each row from its own sample; batch normalization does not.",
            )
        loss, _ = self.objective.evaluate(self.start, self.x, self.y)
        differs = (
            self.objective.stochastic or self.objective.loss != type(self.objective.loss)()
        )  # dropout, or class weights
        if not differs and not np.isclose(loss, self.loss, rtol=100 * SAME, atol=100 * SAME):
            self.verdict.another_loss(
                self.name,
                f"gradient returns the loss {self.loss:.4g}, and the evaluation of the same samples {loss:.4g}: another loss is "
                "trained than the one on held-out data",
                "If this is not intended, define `evaluate`.",
            )
        self.done.append(("scores", f"shape (n, {self.objective.outputs}), a row per sample"))

    def sending(self, until: float) -> None:
        """The model can be sent to other processes."""
        from ..packed import LIMIT_BYTES, Packed

        Packed.of(self.objective, self.name, LIMIT_BYTES)  # not loaded here, which would change the user's classes

    def copies(self, until: float) -> None:
        """A copy of the model, as it is sent to other processes, computes the same gradient."""
        self.copied = [copy.deepcopy(self.objective) for _ in range(THREADS)]
        loss, out = self.compute(self.start, self.copied[0])
        if loss != self.loss or out.tobytes() != self.out.tobytes():
            raise self.failed(
                "a copy of it computes another gradient, and every process has a copy",
                "Only its options may decide what it computes.",
            )
        self.done.append(("copies", "it can be sent to other processes; a copy computes the same gradient"))

    def threads(self, until: float) -> None:
        """Gradients that several threads compute at once, on other parameters each, are those computed one after the other."""
        rng = np.random.default_rng([0, self.seed])
        points = [self._near(self.start, rng) for _ in range(THREADS)]
        expected = [self.compute(point) for point in points]
        wrong: list[int] = []
        gate = threading.Barrier(THREADS)

        def work(i: int) -> None:
            gate.wait()
            for call in range(CALLS):
                if call and time.monotonic() > until:
                    break
                try:
                    loss, out = self.compute(points[i], self.objective if i % 2 else self.copied[i])
                except BadInput:
                    wrong.append(i)
                    return
                if loss != expected[i][0] or out.tobytes() != expected[i][1].tobytes():
                    wrong.append(i)

        workers = [threading.Thread(target=work, args=(i,), name="labkit-check") for i in range(THREADS)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            sys.setswitchinterval(interval)
        if wrong:
            raise self.failed(
                "gradients that are computed at the same time in several threads disturb each other: something is shared, as a "
                "buffer of the module or of the class",
                "Make arrays in every call.",
            )
        self.done.append(("threads", f"{THREADS} threads at once compute the same (an error may remain unnoticed)"))

    def _near(self, params: Array, rng: np.random.Generator) -> Array:
        """Return other parameters of similar size."""
        moved = params + 0.1 * float(np.std(params) or 0.1) * rng.standard_normal(len(params))
        return moved.astype(params.dtype)

    def derivatives(self, until: float) -> None:
        """The gradient is the derivative of the loss."""
        point = self._near(
            self.start.astype(np.float64), np.random.default_rng([1, self.seed])
        )  # not at 0, where biases begin
        try:
            exact = ModelObjective(self.objective.model, self.objective.data, "float64")
            loss, out = self.compute(point, exact)
        except BadInput as error:  # it computes in the dtype of the problem, which has been checked
            why = f"it does not compute with float64 ({str(error).rstrip('.')})"
            return self.verdict.not_checked(self.name, "the derivatives", why, IN_ITS_DTYPE)
        if loss == float(np.float32(loss)):
            why = "the loss of float64 numbers is computed in float32"
            return self.verdict.not_checked(self.name, "the derivatives", why, IN_ITS_DTYPE)
        done = 0
        for what, direction, scale in self._directions(exact, out):
            if time.monotonic() > until:
                self.left_out.append("some of the derivatives")
                break
            derivative = float(out @ direction)

            def loss_along(step: float, direction: Array = direction) -> float:
                at = point + step * direction
                return exact.evaluate(at, self.x, self.y)[0] if self.loss_of_scores else self.compute(at, exact)[0]

            quotient = unequal_quotient(loss_along, derivative, scale)
            if quotient is not None:
                raise self.failed(
                    f"the gradient is wrong at {what}: {wrong_text(derivative, quotient)}", DERIVATIVE_OF_LOSS
                )
            done += 1
        self.done.append(("derivatives", f"{done} of the loss in float64 equal difference quotients"))

    def _directions(self, exact: ModelObjective, out: Array) -> Iterator[tuple[str, Array, float]]:
        """Yield (text, direction, size of the derivatives): some of the largest elements of every array, then the whole array."""
        rng = direction_rng(self.seed, out)
        for name, own in exact.layout.slices.items():
            sizes, shape = np.abs(out[own]), exact.layout.shapes[name]
            if not sizes.size:
                continue
            order = np.argsort(-sizes, kind="stable")  # the elements of unused inputs have no derivative
            for rank in np.unique(np.linspace(0, (len(order) - 1) // 2, ELEMENTS).astype(int)):
                direction = np.zeros(exact.size)
                direction[own.start + order[rank]] = 1
                index = [int(i) for i in np.unravel_index(order[rank], shape)] if shape else ""
                yield f"{name}{index}", direction, float(sizes.max())
            direction = np.zeros(exact.size)
            direction[own] = rng.choice((-1.0, 1.0), len(sizes))
            yield f"{name}, summed along a random direction", direction, float(np.linalg.norm(sizes))


def unequal_quotient(loss: Callable[[float], float], derivative: float, scale: float) -> float | None:
    """Return the difference quotient of a loss at 0, if no quotient equals the derivative there; else None.

    `scale`: the size of the derivatives, to which the tolerance is relative.
    """
    quotients = []
    for step in STEPS:
        quotients.append((loss(step) - loss(-step)) / (2 * step))
        if abs(quotients[-1] - derivative) <= TOLERANCE * max(scale, 1e-4):
            return None
    return quotients[1]


def direction_rng(seed: int, gradient: Array) -> np.random.Generator:
    """Return the random numbers for the directions in which a gradient is compared with difference quotients.

    They depend on the gradient, so that code which knows the seed cannot choose one that is right in these directions only.
    """
    return np.random.default_rng([seed, int.from_bytes(hashlib.sha256(gradient.tobytes()).digest())])


def wrong_text(derivative: float, quotient: float) -> str:
    """Return what is wrong with a derivative, as text."""
    return f"it is {derivative:.6g}, but the difference quotient of the loss is {quotient:.6g}"


def samples_of(problem: Problem, objective: ModelObjective) -> tuple[Array, Array]:
    """Return a few training samples. Of data on a cluster, which are not fetched for a check: random ones of the same shape."""
    data = problem.dataset
    if hasattr(data, "x_train"):
        return data.x_train[:ROWS], data.y_train[:ROWS]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, objective.inputs)).astype(objective.dtype)
    y = rng.standard_normal((ROWS, objective.outputs)) if data.classes is None else rng.integers(0, data.classes, ROWS)
    return x, y


def check_model(problem: Problem) -> Description:
    """Check the model of a problem: its shapes, initial values and scores, and above all its gradient.

    `train` makes the same checks, once for a model and for at most about a second.

    Parameters
    ----------
    problem : Problem
        A problem with a model of your own.

    Returns
    -------
    Description
        What has been checked.

    Raises
    ------
    BadInput
        If a check fails. The message says what to change.

    See Also
    --------
    NumpyModel : The base class of models.

    Examples
    --------
    >>> class Mean(lk.NumpyModel):  # predicts the same value for all samples
    ...     def shapes(self, data):
    ...         return {"mean.value": (data.outputs,)}
    ...
    ...     def init(self, p, rng):
    ...         p["mean.value"][...] = 0
    ...
    ...     def scores(self, p, x):
    ...         return np.tile(p["mean.value"], (len(x), 1))
    ...
    ...     def gradient(self, p, x, y, g):
    ...         wrong = p["mean.value"] - y
    ...         g["mean.value"][...] = 2 * wrong.mean(axis=0)
    ...         return (wrong**2).sum() / (2 * len(x))
    >>> rng = np.random.default_rng(0)
    >>> data = lk.from_arrays(rng.normal(size=(50, 3)), rng.normal(size=(50, 2)))
    >>> lk.check_model(lk.Problem(data, model=Mean()))
    Traceback (most recent call last):
        ...
    labkit.errors.BadInput: Mean: the gradient is wrong at mean.value[0]: it is ..., but the difference quotient of the loss ...
    """
    if getattr(problem, "model", None) is None:
        raise BadInput(
            f"check_model({shown(problem)}): give a problem with a model of your own, as lk.Problem('digits', model=CNN())."
        )
    report = CheckReport()
    checks = _checks(problem, report).carry_out()
    return Description(f"{checks.name} passes all checks", tuple(checks.done), notes=(*report.notes, *report.warnings))


def _checks(problem: Problem, report: CheckReport) -> Checks:
    """Return the checks of the model of a problem."""
    objective = problem.objective()
    assert isinstance(objective, ModelObjective)
    return Checks(objective, *samples_of(problem, objective), problem.seed, report)


def check_at_start(problem: Problem) -> None:
    """Check the model of a problem at the start of a run, for about a second, once in this process for equal models. Warns of
    what is left out.
    """
    if problem.model is None or not problem.model._is_checked_at_start:
        return
    flag = passed(content_digest(problem.objective()))
    if flag.is_set():
        return
    report = CheckReport()
    checks = _checks(problem, report).carry_out(seconds=AT_START)
    flag.set()
    if checks.left_out:
        left = ", ".join(checks.left_out)
        report.warnings.append(f"Left out, to begin in time: {left}. lk.check_model(problem) makes all checks.")
    for text in report.warnings:
        warnings.warn(f"{checks.name}: {text}", stacklevel=2)


@functools.lru_cache(maxsize=256)
def passed(identity: str) -> threading.Event:
    """Return the flag of a model that is set when it has passed the checks. `identity`: the digest of its code and options."""
    return threading.Event()
