"""What the checks of an assignment are made of: a short run in virtual time, looked at from all sides, and a way to say what
is wrong.

`trial(MyServer(), workers=4, updates=40)` means the same in a student's notebook, where `MyServer` is their class, and
where it is graded, where it stands for one that runs elsewhere. A trial never raises: what went wrong is its `error`.
Its numbers come from the engine's trace, so nothing that the strategy says of itself is believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..engines.simulated import SimulatedCluster
from ..errors import LabkitError, RoleError
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run, train
from ..strategies import Strategy
from ..trace import ledger, updates
from ..trace.query import computed_by_worker, iterations, staleness_in_order, training_bytes
from ..trace.trace import Trace
from ..trace.vocabulary import seconds

__all__ = ["Failed", "Trial", "Unexpected", "Wrong", "expect", "same", "small", "trial"]


STAND_IN = "standin.py"


class Wrong(AssertionError):
    """A check has failed. The text is for the student: what came, what was expected, and what may be misunderstood."""


class Failed(Wrong):
    """The student's code has failed. The text is theirs, so of a hidden check it is not shown: they could write into it
    what they were asked."""


class Unexpected(Wrong):
    """Something else came than was expected. Of a hidden check only the hint is shown, after "was expected: "."""


@dataclass(frozen=True)
class Trial:
    """A finished run, in numbers that are exact.

    `error`: what ended it, if it was a mistake ("" if it ran to its end). `trace`: None if nothing was started.
    `parameters`: those that it ended with, flat; None if it did not get there.
    """

    error: str
    trace: Trace | None
    parameters: np.ndarray | None = None
    run: Run | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and every gradient is accounted for."""
        return not self.error and bool(self.ledger["closes"])

    @cached_property
    def ledger(self) -> dict[str, Any]:
        """What became of every gradient (see `lk.ledger`)."""
        return ledger(self._record)

    @cached_property
    def updates(self) -> int:
        """Steps applied to the whole model."""
        return updates(self._record)

    @cached_property
    def gradients(self) -> int:
        """Gradients applied."""
        return int(self.ledger["applied"])

    @cached_property
    def seconds(self) -> float:
        """When it ended, seconds of virtual time, to the microsecond."""
        return round(seconds(self._record.ending["time"] if self._record.ending else self._record.now), 6)

    @cached_property
    def staleness(self) -> list[int]:
        """The staleness of every gradient applied at the first shard, in the order of application."""
        return staleness_in_order(self._record)

    @cached_property
    def mean_staleness(self) -> float:
        """Mean over the gradients after the first of every worker; nan if there are none."""
        workers = len(self._record.role_ids("worker"))
        later = self.staleness[workers:]
        return float(np.mean(later)) if later else float("nan")

    @cached_property
    def leads(self) -> list[int]:
        """At every start of a worker's iteration, how many it has completed more than the slowest worker."""
        ends = [np.array([end for _, end in of]) for of in self.iterations.values()]
        found = []
        for worker, of in enumerate(self.iterations.values()):
            for own, (began, _) in enumerate(of):
                found.append((began, worker, own - min(int((end <= began).sum()) for end in ends)))
        return [lead for _, _, lead in sorted(found)]

    @cached_property
    def iterations(self) -> dict[str, list[tuple[int, int]]]:
        """(begin, end) of the work that made each gradient, ns, by worker. Other work of a worker's is no iteration."""
        names = self._record.roles
        return {names[worker]: made for worker, made in iterations(self._record).items()}

    @cached_property
    def sent(self) -> dict[str, int]:
        """Bytes of training that each role has sent."""
        return {self._record.roles[role]: count for role, count in training_bytes(self._record).items()}

    @cached_property
    def computed(self) -> dict[str, int]:
        """Gradients that each worker has computed."""
        return {self._record.roles[worker]: count for worker, count in computed_by_worker(self._record).items()}

    @property
    def _record(self) -> Trace:
        if self.trace is None:
            raise Failed(f"The run has not begun: {self.error}")
        return self.trace

    def check(self) -> Trial:
        """This trial; `Wrong` if it did not run to its end, or a gradient is not accounted for."""
        if self.error:
            raise Failed(f"The run failed: {self.error}")
        if not self.ledger["closes"]:
            raise Wrong(f"The ledger does not close: {self.ledger}")
        return self


def small(seed: int = 0, hidden: int = 6, batch_size: int = 8) -> Problem:
    """A problem for checks: two moons, float64, a network of 2 - `hidden` - 2."""
    return Problem(
        "moons", hidden=(hidden,), batch_size=batch_size, dtype="float64", seed=seed, options={"samples": 200}
    )


def trial(
    strategy: Any, *, workers: int = 4, servers: int | None = None, updates: int = 40, problem: Problem | None = None,
    seed: int = 0, **cluster: Any,
) -> Trial:  # fmt: skip
    """Train for so many updates in virtual time and look at what happened. `cluster`: more of `lk.SimulatedCluster`, as
    `compute=lk.Exponential(0.1)`, `slow={"worker-2": 5}`, `latency=1e-3`; every gradient takes 0.1 s unless it is said.
    """
    run = None
    virtual = SimulatedCluster(workers=workers, servers=servers, **{"compute": 0.1} | cluster)
    problem = problem or small(seed)
    try:
        strategy = strategy if isinstance(strategy, Strategy) else strategy()
        run = train(problem, strategy, virtual, Budget(updates=updates), seed=seed)
        run.wait()
    except (LabkitError, NotImplementedError, Wrong) as error:
        text = str(error) or type(error).__name__
        if STAND_IN in text:  # the lines that follow are the judge's own
            text = text.partition("\n")[0]
        return Trial(text, run.trace if run is not None else None, None, run)
    except Exception as error:  # the engine met something that no strategy says by mistake
        return Trial(f"the run broke down ({type(error).__name__})", run.trace if run is not None else None, None, run)
    made = run.engine.parameters
    return Trial("", run.trace, None if made is None else np.array(made), run)


def same(ours: Trial, theirs: Trial, tolerance: float = 1e-9) -> bool:
    """Whether two trials ended with the same parameters; another order of summation is no difference."""
    a, b = ours.parameters, theirs.parameters
    return (
        a is not None
        and b is not None
        and a.shape == b.shape
        and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))
    )


def expect(what: str, got: Any, want: Any, hints: dict[Any, str] | None = None, tolerance: float = 1e-9) -> None:
    """Print what was found, as `want` is written; `Wrong` if it is not what was expected, with the hint for what it is instead.

    Numbers may differ by `tolerance` (of their size, and at least so much); anything else must be equal. `hints`:
    {a wrong value: what whoever gets it may have misunderstood}.
    """
    if _equal(got, want, tolerance):
        print(f"{what}: {_plain(want)}")  # of all that is equal, one spelling: 7, not 7.0 or True for 1
        return
    hint = next((f": {text}" for wrong, text in (hints or {}).items() if _equal(got, wrong, tolerance)), "")
    raise Unexpected(f"{what} {_plain(got)} where {_plain(want)} was expected{hint}")


def _equal(got: Any, want: Any, tolerance: float) -> bool:
    try:
        a, b = np.asarray(got), np.asarray(want)
        if a.dtype.kind in "iufb" and b.dtype.kind in "iufb":
            return a.shape == b.shape and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance))
    except (TypeError, ValueError, RoleError):
        return False
    return type(got) is type(want) and bool(got == want)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    try:
        return repr(value.tolist() if hasattr(value, "tolist") else value)[:200]
    except ValueError:  # a whole number of thousands of digits
        return f"a {type(value).__name__} that is too long to be written"
