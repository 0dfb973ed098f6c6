"""The budget of a run: `Budget` is given by the user, `Limits` is the part of it that each shard enforces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..options import check_options, option

__all__ = ["Budget", "Limits"]


@dataclass(frozen=True)
class Budget:
    """When a run ends: at the first of the given limits.

    `updates` applied to the whole model; `samples` in the applied gradients; `epochs`, passes over the training data;
    `seconds` of engine time, without pauses; held-out `accuracy`, from 0 to 1. Default: 95% accuracy (or the goal of the data
    set, if its labels are noisy) or 20 seconds; without an accuracy, 20 seconds.
    """

    updates: int | None = option(None, low=1, high=10**12, help="end after this many updates")
    samples: int | None = option(None, low=1, high=10**15, help="end after this many samples")
    epochs: float | None = option(None, low=1e-6, high=1e9, help="end after this many passes over the training data")
    seconds: float | None = option(None, low=1e-6, high=1e9, unit="s", help="end after this time of the engine's clock")
    accuracy: float | None = option(None, low=0.0, high=1.0, help="end at this held-out accuracy")

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def given(self) -> bool:
        """Whether any limit was given."""
        return self != Budget()

    def settled(self, problem: Any) -> Budget:
        """The budget for `problem`, with defaults filled in; `BadInput` for an accuracy that the problem does not have."""
        measurable = not problem.timing_only and problem.dataset.classes is not None
        if not self.given:
            return Budget(seconds=20, accuracy=_goal(problem.dataset) if measurable else None)
        if self.accuracy is not None and not measurable:
            why = "computes nothing (timing only)" if problem.timing_only else "is a regression"
            raise BadInput(
                f"Budget(accuracy={self.accuracy:g}): {problem.name} {why}, so there is no accuracy; give updates, samples, "
                "epochs or seconds."
            )
        return self

    def limits(self, problem: Any) -> Limits:
        """The part of the budget that shards enforce."""
        counts = [] if self.samples is None else [self.samples]
        if self.epochs is not None:
            counts.append(round(self.epochs * problem.dataset.n_train))
        return Limits(self.updates, min(counts, default=None))

    def describe(self) -> dict[str, Any]:
        """The given limits as plain values."""
        names = ("updates", "samples", "epochs", "seconds", "accuracy")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def _goal(dataset: Any) -> float:
    """The default accuracy goal for a data set."""
    return float(getattr(dataset, "extra", {}).get("goal_accuracy", 0.95))


class Limits:
    """Limits of what a shard applies: `updates`, `samples` (None: no limit). Later gradients are refused."""

    __slots__ = ("samples", "updates")

    def __init__(self, updates: int | None = None, samples: int | None = None):
        self.updates, self.samples = updates, samples

    def divided(self, replicas: int) -> Limits:
        """The limits of each of `replicas` independent replicas: the same number of updates, 1/`replicas` of the samples."""
        return Limits(self.updates, None if self.samples is None else -(-self.samples // replicas))

    def reached(self, updates: int, samples: int) -> bool:
        """Whether a limit is reached."""
        return (self.updates is not None and updates >= self.updates) or (
            self.samples is not None and samples >= self.samples
        )
