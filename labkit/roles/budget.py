"""The budget of a run: `Budget` is given by the user, `Limits` is the part of it that each shard enforces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..description import Description, HasDescription
from ..errors import BadInput
from ..formats import Either, Form, Number
from ..formatting import count_text, number_text
from ..options import HasOptions, option
from ..problem import Problem
from ..trace.header import RULES


@dataclass(frozen=True)
class Budget(HasOptions, HasDescription):
    """The budget of a run, which ends when the first of the given limits is reached.

    If no limit is given, the limits are 20 seconds and an accuracy of 95%, or of less if the labels of the data set are noisy.
    A problem without an accuracy has only the limit of 20 seconds.

    The rules `accuracy`, `loss` and `patience` are applied at each evaluation, to the validation part of the problem
    (`Problem.validation`). Without one they are applied to the test set, whose result is then no estimate for new samples.

    Raises
    ------
    BadInput
        If a limit is not allowed.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, lk.Budget(updates=100, seconds=0.5))
    >>> run.wait().stopped_by
    'seconds'
    """

    updates: int | None = option(None, low=1, high=10**12, help="end after this many updates of the whole model")
    samples: int | None = option(None, low=1, high=10**15, help="end after this many samples in applied gradients")
    epochs: float | None = option(None, low=1e-6, high=1e9, help="end after this many passes over the training data")
    seconds: float | None = option(
        None, low=1e-6, high=1e9, unit="s", help="end after this engine time, without pauses"
    )
    accuracy: float | None = option(None, low=0.0, high=1.0, help="end at this accuracy on held-out data")
    loss: float | None = option(None, low=0.0, high=1e9, help="end when the loss on held-out data is at most this")
    patience: int | None = option(
        None, low=1, high=10**9, help="end after this many evaluations in a row without a lower loss on held-out data"
    )
    min_delta: float = option(
        0.0, low=0.0, high=1e9, help="by how much a loss must be lower to count as an improvement"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_delta and self.patience is None:
            raise BadInput(
                f"Budget(min_delta={self.min_delta:g}) is by how much the loss must fall within patience=..., which is missing; "
                "give both, as lk.Budget(patience=5, min_delta=0.001)."
            )

    @property
    def given(self) -> bool:
        """Whether any limit was given."""
        return self != Budget()

    def settled(self, problem: Problem) -> Budget:
        """Return the budget for a problem, with defaults filled in.

        Parameters
        ----------
        problem : Problem
            The problem, which determines the default accuracy.

        Returns
        -------
        Budget
            The budget, with at least one limit.

        Raises
        ------
        BadInput
            If an accuracy or a loss is a limit, but the problem has none.
        """
        measurable = not problem.timing_only and problem.dataset.classes is not None
        if not self.given:
            return Budget(seconds=20, accuracy=_goal(problem.dataset) if measurable else None)
        if self.accuracy is not None and not measurable:
            why = "computes nothing (timing only)" if problem.timing_only else "is a regression"
            raise BadInput(
                f"Budget(accuracy={self.accuracy:g}): {problem.name} {why}, so there is no accuracy; give updates, samples, "
                "epochs or seconds."
            )
        rule = "loss" if self.loss is not None else "patience"
        if problem.timing_only and getattr(self, rule) is not None:
            raise BadInput(
                f"Budget({rule}={getattr(self, rule):g}): {problem.name} computes nothing (timing only), so there is no loss; "
                "give updates, samples or seconds."
            )
        return self

    def limits(self, problem: Problem) -> Limits:
        """Return the part of the budget that shards enforce.

        Parameters
        ----------
        problem : Problem
            The problem, whose training samples are the unit of `epochs`.

        Returns
        -------
        Limits
            The limits of updates and samples.
        """
        counts = [] if self.samples is None else [self.samples]
        if self.epochs is not None:
            counts.append(round(self.epochs * problem.dataset.n_train))
        return Limits(self.updates, min(counts, default=None))

    def _described(self) -> Description:
        limits = self.describe()
        if not limits:
            default = "20 s, or an accuracy of 95% (less if the labels are noisy) on held-out data"
            return Description("Budget: no limit is given", (("default", default),))
        texts = {
            "updates": ("updates", lambda n: f"{n:,} of the whole model"),
            "samples": ("samples", lambda n: f"{n:,} in applied gradients"),
            "epochs": ("epochs", lambda n: f"{number_text(n)} passes over the training data"),
            "seconds": ("time", lambda n: f"{number_text(n)} s of engine time, without pauses"),
            "accuracy": ("accuracy", lambda n: f"{100 * n:g}% on held-out data"),
            "loss": ("loss", lambda n: f"at most {number_text(n)} on held-out data"),
            "patience": ("patience", lambda n: f"{count_text(n, 'evaluation')} in a row without a lower loss"),
        }
        rows = [(texts[name][0], texts[name][1](limit)) for name, limit in limits.items() if name in texts]
        end = "the first of these limits" if len(rows) > 1 else "this limit"
        return Description(f"Budget: the run ends at {end}", tuple(rows))

    def describe(self) -> dict[str, Any]:
        """Return the given limits as plain values.

        Returns
        -------
        dict
            {name: limit}.
        """
        names = ("updates", "samples", "epochs", "seconds", *RULES)
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return given | ({"min_delta": self.min_delta} if self.min_delta else {})


def _goal(dataset: Any) -> float:
    return float(getattr(dataset, "extra", {}).get("goal_accuracy", 0.95))


class EarlyStopping:
    """Counts the evaluations without an improvement: a loss that is lower than the lowest so far by more than `min_delta`."""

    STATE: ClassVar[Form] = {"lowest": Either(None, float), "without": Number(0, math.inf, int)}

    def __init__(self, patience: int, min_delta: float = 0.0):
        self.patience, self.min_delta = patience, min_delta
        self.lowest, self.without = math.inf, 0

    def exhausted(self, loss: float) -> bool:
        """Count an evaluation, and return whether there were `patience` of them without an improvement."""
        improved = loss < self.lowest - self.min_delta
        self.lowest, self.without = (loss, 0) if improved else (self.lowest, self.without + 1)
        return self.without >= self.patience

    def state(self) -> dict[str, Any]:
        return {"lowest": self.lowest if math.isfinite(self.lowest) else None, "without": self.without}

    def restore(self, state: dict[str, Any]) -> None:
        self.lowest = math.inf if state["lowest"] is None else state["lowest"]
        self.without = state["without"]


class Limits:
    """Limits of what a shard applies: `updates`, `samples` (None: no limit). Gradients that arrive later are dropped."""

    __slots__ = ("samples", "updates")

    def __init__(self, updates: int | None = None, samples: int | None = None):
        self.updates, self.samples = updates, samples

    def divided(self, replicas: int) -> Limits:
        """Return the limits of each of `replicas` independent replicas: the same updates, and 1/`replicas` of the samples."""
        return Limits(self.updates, None if self.samples is None else -(-self.samples // replicas))

    def reached(self, updates: int, samples: int) -> bool:
        return (self.updates is not None and updates >= self.updates) or (
            self.samples is not None and samples >= self.samples
        )
