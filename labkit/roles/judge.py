"""When is a run over, and how good is the model? The chief asks, the judge knows.

A `Budget` says when to stop: only what is given counts, whichever comes first. How the chief asks stands in `chief.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadInput
from ..knobs import check_knobs, knob
from ..trace.recorder import Recorder
from .context import Context
from .layout import Layout
from .looking import Looker, Sight
from .messages import Snapshot
from .regroup import replicas
from .shard import Limits

__all__ = ["Budget", "Judge"]


@dataclass(frozen=True)
class Budget:
    """When a run ends: only what is given counts, whichever comes first.

    `updates` applied to the whole model; `samples` in the gradients applied; `epochs`, the same in passes over the
    training data; `seconds` of engine time, pauses left out; held-out `accuracy`, from 0 to 1. With nothing given: 95%
    accuracy (on data that chance decides as well, what the data set says can be had) or 20 seconds (20 seconds where
    there is no accuracy).
    """

    updates: int | None = knob(None, low=1, high=10**12, help="end after this many updates")
    samples: int | None = knob(None, low=1, high=10**15, help="end after this many samples")
    epochs: float | None = knob(None, low=1e-6, high=1e9, help="end after this many passes over the training data")
    seconds: float | None = knob(None, low=1e-6, high=1e9, unit="s", help="end after this time of the engine's clock")
    accuracy: float | None = knob(None, low=0.0, high=1.0, help="end at this held-out accuracy")

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def given(self) -> bool:
        """Whether anything was asked for."""
        return self != Budget()

    def settled(self, problem: Any) -> Budget:
        """The budget that holds for `problem`: defaults filled in; what the problem cannot have is refused."""
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
        """Plain values: only what is given."""
        names = ("updates", "samples", "epochs", "seconds", "accuracy")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def _goal(dataset: Any) -> float:
    """The accuracy that ends a run for which nothing was asked."""
    return float(getattr(dataset, "extra", {}).get("goal_accuracy", 0.95))


class Judge:
    """Evaluates snapshots on held-out data and decides when the budget is met.

    `verdict` is None until the run is over, then why: "accuracy", "updates", "samples", "epochs", "seconds",
    "diverged", or the reason that the engine gave to `hurry`. `parameters`, `loss`, `accuracy`, `update` and `samples`
    (examples in the gradients that made the parameters) belong to the last evaluation, and so does `held`: [[shard, which
    gradients its part of the parameters holds], ...] of the shards that were looked at, as in `Snapshot`; None where snapshots
    do not say.
    """

    work = "measure"

    def __init__(
        self, objective: Any, x: np.ndarray | None, y: np.ndarray | None, budget: Budget, limits: Limits,
        owners: tuple[str, ...], shards: int, eval_every: int, recorder: Recorder, clock: Callable[[], int],
        layout: Layout, sight: Sight | None = None,
    ):  # fmt: skip
        self.objective, self.x, self.y, self.budget, self.limits = objective, x, y, budget, limits
        self.owners, self.shards, self.eval_every, self.layout = owners, shards, eval_every, layout
        self.recorder, self.clock = recorder, clock
        self.looker = None if sight is None or x is None else Looker(sight, objective, x, recorder)
        self.verdict: str | None = None
        self.hurry: str | None = None
        self.parameters: Any = None
        self.update, self.samples = -1, 0
        self.held: list[list[Any]] | None = None
        self.loss = self.accuracy = None
        self.shard_limits = limits.divided(layout.shares) if layout.copies == "own" else limits
        self._replicas = replicas(layout)
        self._peers: list[tuple[str, ...]] = [()] * len(layout.roles)
        self._kinds = tuple(dict.fromkeys(role.kind for role in layout.roles))
        self._shard_of = {role.name: role.shard for role in layout.roles if role.shard is not None}
        self._here = self._present = owners
        self._full: set[int] = set()  # shards that have applied all that the budget allows

    def warm_up(self, seed: int) -> None:
        """Evaluate once for nothing, before time begins: the first evaluation in a process takes many times as long."""
        if self.x is not None:
            start = getattr(self.objective, "sparse_start", self.objective.start)
            first = start(seed)
            self.objective.evaluate(first, self.x, self.y)
            if self.looker is not None:
                self.looker.ask(first)

    def evaluate(self, snapshot: tuple[Snapshot, ...]) -> None:
        """Measure the model that the shards' snapshots make up, and decide."""
        update, samples = min(s.version for s in snapshot), self._samples(snapshot)
        values = self.layout.together(snapshot)
        self.update, self.samples, self.parameters = update, samples, values
        said = [[s.shard, s.held] for s in snapshot if s.held]
        self.held = said if len(said) == len(snapshot) else None
        if self.x is not None:
            with np.errstate(all="ignore"):
                self.loss, self.accuracy = self.objective.evaluate(values, self.x, self.y)
            accuracy = float("nan") if self.accuracy is None else self.accuracy
            self.recorder.evaluations.extend((self.clock(), update, self.loss, accuracy))
        self.verdict = self._decide(update, samples, snapshot[0].final)
        if self.looker is not None:
            finite = self.loss is not None and bool(np.isfinite(self.loss))
            self.looker.look(self.clock(), update, values, finite, self.verdict is not None)

    def _samples(self, snapshot: tuple[Snapshot, ...]) -> int:
        """Samples trained on: replicas of their own have seen each its own, other shards the same ones."""
        seen = [s.samples for s in snapshot]
        return sum(seen) if self.layout.copies == "own" else min(seen)

    def _decide(self, update: int, samples: int, final: bool) -> str | None:
        if self.loss is not None and not np.isfinite(self.loss):
            return "diverged"
        if self.budget.accuracy is not None and self.accuracy is not None and self.accuracy >= self.budget.accuracy:
            return "accuracy"
        if self.limits.updates is not None and update >= self.limits.updates:
            return "updates"
        if self.limits.samples is not None and samples >= self.limits.samples:
            return "samples" if self.limits.samples == self.budget.samples else "epochs"
        return (self.hurry or "seconds") if final else None

    def take(self, snapshot: Snapshot) -> None:
        """Note whether a shard has applied all that the budget allows."""
        if self.shard_limits.reached(snapshot.version, snapshot.samples):
            self._full.add(snapshot.shard)

    def here(self, ctx: Context) -> tuple[str, ...]:
        """Whom to look at. Replicas that are away are no part of the model; where all are equal, any one will do."""
        peers = [ctx.peers(kind) for kind in self._kinds]
        if self._replicas and not all(
            a is b for a, b in zip(peers, self._peers)
        ):  # made anew when somebody comes or goes
            present = tuple(name for names in peers for name in names if name in self._shard_of)
            self._peers, self._present = peers, present or self.owners
            self._here = self._present
            if self.layout.copies == "equal":
                self._here = self.owners if self.owners[0] in present or not present else present[:1]
        return self._here

    def numbers(self, owners: Iterable[str]) -> set[int]:
        """The numbers of these roles' shards."""
        return {self._shard_of[owner] for owner in owners}

    def shown(self, ctx: Context, snapshots: Collection[int]) -> bool:
        """Whether snapshots of these shards are all that is to be seen."""
        owners = self.here(ctx)
        return len(snapshots) >= len(owners) and all(self._shard_of[owner] in snapshots for owner in owners)

    def all_full(self, ctx: Context) -> bool:
        """Whether all shards that take part have applied what the budget allows."""
        owners = self._present if self._replicas and self.here(ctx) else tuple(self._shard_of)
        return len(self._full) >= len(owners) and all(self._shard_of[owner] in self._full for owner in owners)

    def unsaid(self, ctx: Context) -> list[str]:
        """Who has not said that it has applied all that the budget allows: of those that take part."""
        owners = self._present if self._replicas and self.here(ctx) else tuple(self._shard_of)
        return [owner for owner in owners if self._shard_of[owner] not in self._full]

    def rejoined(self, name: str) -> None:
        """A shard was restarted: what it has applied may be less than it was."""
        self._full.discard(self._shard_of.get(name, -1))

    def next_goal(self) -> int:
        """The version to look at next: the first multiple of `eval_every` after the one evaluated last."""
        return (self.update // self.eval_every + 1) * self.eval_every

    def state(self) -> dict[str, Any]:
        """What the chief saves: the evaluated parameters and which update they are."""
        weightless = isinstance(self.parameters, np.ndarray) and self.parameters.strides == (0,)  # of a timing-only run
        kept = None if weightless else self.parameters
        state = {
            "parameters": kept, "update": self.update, "samples": self.samples, "loss": self.loss, "accuracy": self.accuracy,
        }  # fmt: skip
        return state if self.held is None else state | {"held": self.held}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """What an earlier incarnation of the chief saved; None: it had saved nothing."""
        if state is not None:
            self.parameters, self.update = state["parameters"], int(state["update"])
            self.loss, self.accuracy = state["loss"], state["accuracy"]
            self.samples = int(state.get("samples", 0))  # not in a file of an older labkit
            self.held = state.get("held")

    def time_left(self, now: float) -> float | None:
        """Seconds until the budget's end, None without such a limit."""
        if self.hurry:
            return 0.0
        return None if self.budget.seconds is None else max(0.0, self.budget.seconds - now)
