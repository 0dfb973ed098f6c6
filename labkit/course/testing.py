"""Functions for the test cells of an assignment: a short run in virtual time, its results, and assertions with hints.

`trial(MyServer(), workers=4, updates=40)` works in the same way in a student's notebook, where `MyServer` is the
student's class, and in grading, where `MyServer` is a remote strategy. `trial` does not raise an error of the strategy;
the text of the error is in `Trial.error`. All numbers come from the engine's trace, never from the strategy itself.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..engines.simulated import SimulatedCluster
from ..errors import Deadlock, LabkitError
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run, train
from ..strategies import Strategy
from ..trace import ledger, updates
from ..trace.query import computed_by_worker, iterations, staleness_in_order, training_bytes
from ..trace.schema import seconds
from ..trace.trace import Trace
from .graded_model import graded

# The text before a hint. It has a no-break space, which `repr` escapes, so that no value of a student's can contain this text.
BEFORE_HINT = " was expected:\xa0"
REMOTE = os.path.join("sandbox", "remote.py")  # as it is in tracebacks


class CheckFailed(AssertionError):
    """A check failed. The text, which is shown to the student, has the values found and expected, and a hint if there is one."""


class SubmissionFailed(CheckFailed):
    """The submitted code failed. Its text may have been chosen by the student, so it is not shown for a hidden check."""


class Deadlocked(SubmissionFailed):
    """A run of the submitted code ended because every role waits for another."""


class UnexpectedValue(CheckFailed):
    """A value differs from the expected one. For a hidden check only the hint after `BEFORE_HINT` is shown."""


@dataclass(frozen=True)
class Trial:
    """The results of a finished run.

    `error`: the error that ended the run ("" if it finished). `trace`: None if no run was started. `parameters`: the
    final parameters, a flat array; None if the run failed. `run`: the run, None if none was started. `deadlock`: whether
    the run ended because every role waits for another.
    """

    error: str
    trace: Trace | None
    parameters: np.ndarray | None = None
    run: Run | None = field(default=None, repr=False, compare=False)
    deadlock: bool = False

    @property
    def ok(self) -> bool:
        """Whether the run finished and every gradient is accounted for."""
        return not self.error and bool(self.ledger["closes"])

    @cached_property
    def ledger(self) -> dict[str, Any]:
        """See `lk.ledger`."""
        return ledger(self._required_trace)

    @cached_property
    def updates(self) -> int:
        return updates(self._required_trace)

    @cached_property
    def gradients(self) -> int:
        return int(self.ledger["applied"])

    @cached_property
    def accuracy(self) -> float:
        """The accuracy of the final parameters on held-out samples, from 0 to 1; NaN for a regression."""
        found = None if self.run is None else self.run.summary()["accuracy"]
        return math.nan if found is None else float(found)

    @cached_property
    def seconds(self) -> float:
        """The duration of the run in seconds of virtual time, rounded to microseconds."""
        return round(
            seconds(self._required_trace.ending["time"] if self._required_trace.ending else self._required_trace.now), 6
        )

    @cached_property
    def staleness(self) -> list[int]:
        """The staleness of every gradient applied at the first shard, in the order of application."""
        return staleness_in_order(self._required_trace)

    @cached_property
    def mean_staleness(self) -> float:
        """The mean staleness of all gradients but the first N, where N is the number of workers; nan if there are only N."""
        workers = len(self._required_trace.role_ids("worker"))
        later = self.staleness[workers:]
        return float(np.mean(later)) if later else float("nan")

    @cached_property
    def leads(self) -> list[int]:
        """By how many completed iterations a worker leads the slowest worker, at each start of an iteration, in order of time."""
        ends = [np.array([end for _, end in of]) for of in self.iterations.values()]
        found = []
        for worker, of in enumerate(self.iterations.values()):
            for own, (began, _) in enumerate(of):
                found.append((began, worker, own - min(int((end <= began).sum()) for end in ends)))
        return [lead for _, _, lead in sorted(found)]

    def largest_lead(self, behind: int = 0) -> int:
        """Return the largest lead of a worker at the start of an iteration, in completed iterations, over the worker whose
        clock is number `behind` from below (0: the slowest worker).
        """
        made = list(self.iterations.values())
        ends = [np.array([end for _, end in of]) for of in made]
        clocks = [
            (own, sorted(int((end <= began).sum()) for end in ends)) for of in made for own, (began, _) in enumerate(of)
        ]
        return max((own - others[behind] for own, others in clocks), default=0)

    def longest_wait(self, bound: int, behind: int = 0) -> float:
        """Return the longest time, in seconds, that a worker waits although its lead is less than or equal to `bound`.

        `behind`: as for `largest_lead`. The result is exact if messages take no time.
        """
        made, waits = list(self.iterations.values()), [0]
        for of in made:
            for own, (began, _) in enumerate(of):
                required = max(own - bound, 0)  # iterations that the compared worker must have completed
                ends = (
                    sorted(each[required - 1][1] for each in made if len(each) >= required)
                    if required
                    else [0] * len(made)
                )
                if len(ends) >= len(made) - behind:  # otherwise the worker may not begin at all
                    waits.append(began - max(ends[len(made) - 1 - behind], of[own - 1][1] if own else 0))
        return seconds(max(waits))

    @cached_property
    def iterations(self) -> dict[str, list[tuple[int, int]]]:
        """For each worker, the (begin, end) in ns of the computation of each gradient. Other computations are not included."""
        names = self._required_trace.roles
        return {names[worker]: made for worker, made in iterations(self._required_trace).items()}

    @cached_property
    def sent(self) -> dict[str, int]:
        """The bytes of training messages that each role sent."""
        return {self._required_trace.roles[role]: count for role, count in training_bytes(self._required_trace).items()}

    @cached_property
    def computed(self) -> dict[str, int]:
        """{worker: gradients}."""
        return {
            self._required_trace.roles[worker]: count
            for worker, count in computed_by_worker(self._required_trace).items()
        }

    @property
    def _required_trace(self) -> Trace:
        if self.trace is None:
            raise SubmissionFailed(f"The run did not start: {self.error}")
        return self.trace

    def check(self, what: str = "") -> Trial:
        """Return this trial. Raises `CheckFailed` if the run failed or a gradient is not accounted for.

        `what`: what is special about the run, such as "another number of workers", for the text; a literal string, which is
        also shown if this check is hidden.
        """
        which = f"The run with {what}" if what else "The run"
        if self.error:
            raise (Deadlocked if self.deadlock else SubmissionFailed)(f"{which} failed: {self.error}")
        if not self.ledger["closes"]:
            found = f"{which} has the ledger {self.ledger} where one that closes"
            raise UnexpectedValue(f"{found}{BEFORE_HINT}not every gradient is accounted for")
        return self


def small_problem(seed: int = 0, hidden: int = 6, batch_size: int = 8) -> Problem:
    """Return a small problem: two moons, 200 samples, float64, a network with layers of 2, `hidden` and 2 units."""
    return Problem(
        "moons", hidden=(hidden,), batch_size=batch_size, dtype="float64", seed=seed, options={"samples": 200}
    )


def trial(
    strategy: Any, *, workers: int = 4, servers: int | None = None, updates: int = 40, problem: Problem | None = None,
    seed: int = 0, **cluster: Any,
) -> Trial:  # fmt: skip
    """Train for a number of updates in virtual time and return the results, also if the run fails.

    Parameters
    ----------
    strategy : Strategy or type
        An instance or a class.
    workers, servers, updates, seed : int
        The size of the cluster, the budget, and the seed of the problem.
    problem : Problem, optional
        By default ``small_problem(seed)``. One with a model of a student's has ``dtype="float64"``: every gradient of the run is
        compared with difference quotients of the loss of the model's scores, in a direction drawn with `seed`.
    **cluster
        Options of `lk.SimulatedCluster`, such as ``compute=lk.distributions.Exponential(0.1)``, ``slow={"worker-2": 5}``,
        ``latency=1e-3``. A gradient takes 0.1 s by default.

    Returns
    -------
    Trial
        The results.
    """
    run = None
    virtual = SimulatedCluster(workers=workers, servers=servers, **{"compute": 0.1} | cluster)
    problem = problem or small_problem(seed)
    if problem.model is not None:
        problem = graded(problem, compared=seed)
    try:
        strategy = strategy if isinstance(strategy, Strategy) else strategy()
        run = train(problem, strategy, virtual, Budget(updates=updates), seed=seed)
        patience = _patience(virtual, updates)
        run.advance(patience)
        stuck = not run.done
        (run.stop() if stuck else run).wait()
        if stuck:
            counts = ledger(run.trace)
            text = (
                f"{patience:,.0f} s of virtual time were not enough: {counts['computed']:,} gradients were computed, "
                f"{counts['applied']:,} were applied. Is every gradient sent, and every step made?"
            )
            return Trial(text, run.trace, None, run)
    except (LabkitError, NotImplementedError, CheckFailed) as error:
        text = str(error) or type(error).__name__
        if REMOTE in text:  # the following lines of the traceback are labkit's
            text = text.partition("\n")[0]
        return Trial(text, run.trace if run is not None else None, None, run, isinstance(error, Deadlock))
    except Exception as error:  # an error in labkit or an attack, which no honest strategy causes
        return Trial(f"the run crashed ({type(error).__name__})", run.trace if run is not None else None, None, run)
    parameters = run.engine.parameters
    return Trial("", run.trace, None if parameters is None else np.array(parameters), run)


def _patience(cluster: SimulatedCluster, updates: int) -> float:
    """Return a time in seconds, many times that of an honest run, after which a run has failed that makes no updates."""
    gradient = (
        float(np.mean(cluster.compute.draw(np.random.default_rng(0), 100))) if cluster.compute is not None else 1.0
    )
    return max(20 * (updates + 10) * gradient * max([1.0, *(cluster.slow or {}).values()]), 100.0)


def same_parameters(first: Trial, second: Trial, tolerance: float = 1e-9) -> bool:
    """Whether two trials ended with equal parameters, up to rounding (another order of summation, for example)."""
    a, b = first.parameters, second.parameters
    return (
        a is not None
        and b is not None
        and a.shape == b.shape
        and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))
    )


def expect(what: str, got: Any, want: Any, hints: dict[Any, str] | None = None, tolerance: float = 1e-9) -> None:
    """Print the value if it is the expected value; else raise `UnexpectedValue` with the hint for the value found.

    Parameters
    ----------
    what : str
        The name of the value, for the text; if the check is hidden, a literal string is shown, too.
    got, want : object
        The value found and the expected value.
    hints : dict, optional
        {a wrong value: the misunderstanding that leads to it}.
    tolerance : float, default: 1e-9
        The allowed absolute and relative difference between numbers; values of other types must be equal.

    Raises
    ------
    UnexpectedValue
        If the value is another one.
    """
    if _equal(got, want, tolerance):
        print(f"{what}: {_plain(want)}")  # `want` is printed, because equal values can print differently: 7 and 7.0
        return
    hint = next((text for wrong, text in (hints or {}).items() if _equal(got, wrong, tolerance)), "")
    raise UnexpectedValue(
        f"{what}: {_plain(got)} where {_plain(want)}{BEFORE_HINT + hint if hint else ' was expected'}"
    )


def expect_close(what: str, got: Any, want: Any, hint: str, tolerance: float = 1e-9) -> None:
    """Print a line if an array has the expected shape and values; else raise `CheckFailed` with the hint.

    Parameters
    ----------
    what : str
        The name of the array, for the text.
    got, want : array_like
        The array found and the expected array.
    hint : str
        The misunderstanding that is likely.
    tolerance : float, default: 1e-9
        The allowed absolute and relative difference.

    Raises
    ------
    CheckFailed
        If a shape or a value differs.
    """
    array, expected = _numbers(plain_value(got)), np.asarray(want)
    if array is None:
        raise UnexpectedValue(f"{what} is a {type(got).__name__} where an array of numbers{BEFORE_HINT}{hint}")
    if array.shape != expected.shape:
        raise UnexpectedValue(f"{what} has shape {array.shape} where {expected.shape}{BEFORE_HINT}{hint}")
    if not np.allclose(array, expected, rtol=tolerance, atol=tolerance):
        raise CheckFailed(f"{what} is not what was expected: {hint}")
    print(f"{what}: as expected")


def likely_mistake(got: Any, mistakes: Mapping[str, Any], otherwise: str = "", tolerance: float = 1e-9) -> str:
    """Return a hint for a wrong value.

    Parameters
    ----------
    got : object
        The value found.
    mistakes : mapping of str to object
        {a misunderstanding, in words: the value to which it leads}. The first whose value is `got` is returned.
    otherwise : str, default: ""
        The hint for other values.
    tolerance : float, default: 1e-9
        The allowed absolute and relative difference between numbers.

    Returns
    -------
    str
        The hint.
    """
    return next((text for text, wrong in mistakes.items() if _equal(got, wrong, tolerance)), otherwise)


def plain_value(value: object) -> Any:
    """Return a value of a student's as it is compared: without anything that decides itself what it equals.

    An array of a subclass of `ndarray` becomes an array with all its elements, also those under a mask. A member of
    `class Op(str, Enum)`, or another instance of a subclass of `str`, `int` or `float`, becomes that text or number. A
    `Fraction` or `Decimal` becomes a number, a named tuple a tuple, a range or `deque` a list, a set a `frozenset`. Items of
    these, and of dicts, are converted, too. Any other value is returned unchanged.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype == object:
            return [plain_value(item) for item in array.tolist()] if array.ndim else plain_value(array.item())
        return array if array.ndim or array.dtype.kind not in "US" else array.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (Fraction, Decimal)):
        whole = math.isfinite(value) and value == int(value)
        return int(value) if whole else float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, tuple):
        return tuple(map(plain_value, tuple.__iter__(value)))
    if type(value) in (list, range, deque):
        return list(map(plain_value, value))  # type: ignore[call-overload]
    if type(value) in (set, frozenset):
        return frozenset(map(plain_value, value))  # type: ignore[call-overload]
    if type(value) is dict:
        return {plain_value(key): plain_value(item) for key, item in value.items()}
    return value


def _numbers(value: object) -> np.ndarray | None:
    """Return a plain value as an array; None if it is not a number, an array of numbers, or a nested list of them."""
    if not isinstance(value, (np.ndarray, np.generic, int, float, complex, list, tuple)):
        return None
    try:
        array = np.asarray(value)
        if array.dtype == object:  # whole numbers with many digits
            array = array.astype(float)
    except (TypeError, ValueError, ArithmeticError):
        return None
    return array if array.dtype.kind in "iufbc" else None


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    got, want = plain_value(got), plain_value(want)
    a, b = _numbers(got), _numbers(want)
    if a is not None and b is not None and (a.dtype.kind == "c") == (b.dtype.kind == "c"):
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))
    if isinstance(got, np.ndarray) or isinstance(want, np.ndarray):  # of text
        return type(got) is type(want) and got.shape == want.shape and got.tolist() == want.tolist()
    if type(got) is not type(want):
        return False
    if isinstance(got, (list, tuple)):
        return len(got) == len(want) and all(_equal(x, y, tolerance) for x, y in zip(got, want, strict=True))
    if isinstance(got, dict):
        return got.keys() == want.keys() and all(_equal(got[key], want[key], tolerance) for key in want)
    return bool(got == want)


def _plain(value: Any) -> str:
    value = plain_value(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    try:
        return repr(value.tolist() if hasattr(value, "tolist") else value)[:200]
    except ValueError:  # an int with more digits than Python converts
        return f"a {type(value).__name__} that is too long to print"
