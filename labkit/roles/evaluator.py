"""The chief's evaluator: evaluates snapshots on held-out data, and decides when the budget is met.

The protocol for requesting snapshots is in `chief.py`.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from ..formats import ArrayForm, Either, Form, check
from ..nn import SparseParameters
from ..trace.recorder import Recorder
from .budget import Budget, EarlyStopping, Limits
from .context import Context
from .group_restart import whole_replicas
from .layout import Layout
from .messages import Snapshot
from .part import Part, Work
from .probe import Probe, ProbeInputs

SCORE = Either(None, float)
STATE: Form = {
    "parameters": Either(None, SparseParameters, ArrayForm("f", (None,))), "update": int, "samples": int, "loss": SCORE,
    "accuracy": SCORE, "contained?": Either(None, [(int, str)]), "evaluated_at?": int, "early_stopping?": EarlyStopping.STATE,
}  # fmt: skip


class Evaluator(Part):
    """`stopped_by`: None until the run is over, then the reason: "accuracy", "loss", "patience", "updates", "samples",
    "epochs", "seconds", "diverged", or the value of `stop_requested`.

    An engine sets `stop_requested` to end the run after one more evaluation.

    Results of the last evaluation: `parameters`; `loss` and `accuracy` on the test set; `update`, the evaluated version;
    `evaluated_at`, the time (ns); `samples`, the number of examples in the applied gradients; `contained`, [[shard, the gradients
    that its part of the parameters contains], ...], in the format of `Snapshot.contained`, or None if a snapshot has no such
    information.
    """

    work: ClassVar[Work] = "measure"

    def __init__(
        self, objective: Any, x: np.ndarray | None, y: np.ndarray | None, budget: Budget, limits: Limits,
        owners: tuple[str, ...], shards: int, eval_every: int, recorder: Recorder, clock: Callable[[], int],
        layout: Layout, probe_inputs: ProbeInputs | None = None, validation: tuple[np.ndarray, ...] = (),
    ):  # fmt: skip
        self.objective, self.x, self.y, self.budget, self.limits = objective, x, y, budget, limits
        self.validation = validation  # x and y of the validation part, or nothing
        self.early_stopping = None if budget.patience is None else EarlyStopping(budget.patience, budget.min_delta)
        self.owners, self.shards, self.eval_every, self.layout = owners, shards, eval_every, layout
        self.recorder, self.clock = recorder, clock
        self.probe = None if probe_inputs is None or x is None else Probe(probe_inputs, objective, x, recorder)
        self.stopped_by: str | None = None
        self.stop_requested: str | None = None
        self.parameters: Any = None
        self.update, self.samples, self.evaluated_at = -1, 0, 0
        self.contained: list[list[Any]] | None = None
        self.loss: float | None = None
        self.accuracy: float | None = None
        self.shard_limits = limits.divided(len(owners)) if layout.replication == "local" else limits
        self._replicas = whole_replicas(layout)
        self._peers: list[tuple[str, ...]] = [()] * len(layout.roles)
        self._kinds = tuple(dict.fromkeys(role.kind for role in layout.roles))
        self._shard_of = {role.name: role.shard for role in layout.roles if role.shard is not None}
        self._observed = self._present = owners
        self._full: set[int] = set()  # shards that have applied all that the budget allows

    def warm_up(self, seed: int) -> None:
        """Evaluate once before the run starts, because the first evaluation in a process takes many times as long."""
        if self.x is not None:
            start = getattr(self.objective, "sparse_start", self.objective.start)
            first = start(seed)
            self.objective.evaluate(first, self.x, self.y)
            if self.validation:
                self.objective.evaluate(first, *self.validation)
            if self.probe is not None:
                self.probe.predict(first)

    def evaluate(self, snapshot: tuple[Snapshot, ...]) -> None:
        update, samples = min(s.version for s in snapshot), self._samples(snapshot)
        values = self.layout.assemble_model(snapshot)
        self.update, self.samples, self.parameters, self.evaluated_at = update, samples, values, self.clock()
        contained = [[s.shard, s.contained] for s in snapshot if s.contained]
        self.contained = contained if len(contained) == len(snapshot) else None
        measured: tuple[float | None, float | None] = None, None
        if self.x is not None:
            self.loss, self.accuracy = measured = self._measure(values, (self.x, self.y), self.recorder.evaluations)
            if self.validation:
                measured = self._measure(values, self.validation, self.recorder.validations)
        self.stopped_by = self._decide(update, samples, snapshot[0].final, *measured)
        if self.probe is not None:
            finite = self.loss is not None and bool(np.isfinite(self.loss))
            self.probe.record(self.clock(), update, values, finite, self.stopped_by is not None)

    def _measure(self, values: Any, samples: tuple[Any, ...], rows: array[float]) -> tuple[float, float | None]:
        """Return loss and accuracy on these samples, and add a row to a table of the trace."""
        with np.errstate(all="ignore"):
            loss, accuracy = self.objective.evaluate(values, *samples)
        rows.extend((self.clock(), self.update, loss, float("nan") if accuracy is None else accuracy))
        return loss, accuracy

    def _samples(self, snapshot: tuple[Snapshot, ...]) -> int:
        """Return the number of samples trained on: the sum over local replicas; for other shards, which are trained on the same
        samples, the minimum.
        """
        seen = [s.samples for s in snapshot]
        return sum(seen) if self.layout.replication == "local" else min(seen)

    def _decide(
        self, update: int, samples: int, final: bool, loss: float | None, accuracy: float | None
    ) -> str | None:  # fmt: skip
        """Return why the run ends now. `loss`, `accuracy`: on the samples to which the rules of the budget apply."""
        if not all(np.isfinite(each) for each in (self.loss, loss) if each is not None):
            return "diverged"
        if self.budget.accuracy is not None and accuracy is not None and accuracy >= self.budget.accuracy:
            return "accuracy"
        if self.budget.loss is not None and loss is not None and loss <= self.budget.loss:
            return "loss"
        if self.limits.updates is not None and update >= self.limits.updates:
            return "updates"
        if self.limits.samples is not None and samples >= self.limits.samples:
            return "samples" if self.limits.samples == self.budget.samples else "epochs"
        if final:
            return self.stop_requested or "seconds"
        exhausted = self.early_stopping is not None and loss is not None and self.early_stopping.exhausted(loss)
        return "patience" if exhausted else None

    def register(self, snapshot: Snapshot) -> None:
        """Register whether the shard of this snapshot has applied all that the budget allows."""
        if self.shard_limits.reached(snapshot.version, snapshot.samples):
            self._full.add(snapshot.shard)

    def is_full(self, shard: int) -> bool:
        return shard in self._full

    def observed(self, ctx: Context) -> tuple[str, ...]:
        """Return the roles whose shards are evaluated: all present replicas; only one if replicas are synchronized."""
        peers = [ctx.peers(kind) for kind in self._kinds]
        if self._replicas and not all(a is b for a, b in zip(peers, self._peers)):  # membership has changed
            present = tuple(name for names in peers for name in names if name in self._shard_of)
            self._peers, self._present = peers, present or self.owners
            self._observed = self._present
            if self.layout.replication == "local":
                self.shard_limits = self.limits.divided(len(self._present))
            if self.layout.replication == "synchronized":
                self._observed = self.owners if self.owners[0] in present or not present else present[:1]
        return self._observed

    def shard_numbers(self, owners: Iterable[str]) -> set[int]:
        return {self._shard_of[owner] for owner in owners}

    def complete(self, ctx: Context, snapshots: Collection[int]) -> bool:
        """Return whether there is a snapshot of every shard to be evaluated."""
        owners = self.observed(ctx)
        return len(snapshots) >= len(owners) and all(self._shard_of[owner] in snapshots for owner in owners)

    def all_full(self, ctx: Context) -> bool:
        """Return whether all shards that take part have applied what the budget allows."""
        owners = self._present if self._replicas and self.observed(ctx) else tuple(self._shard_of)
        return len(self._full) >= len(owners) and all(self._shard_of[owner] in self._full for owner in owners)

    def unfinished(self, ctx: Context) -> list[str]:
        """Return the roles that take part and have not reported yet that they have applied all that the budget allows."""
        owners = self._present if self._replicas and self.observed(ctx) else tuple(self._shard_of)
        return [owner for owner in owners if self._shard_of[owner] not in self._full]

    def rejoined(self, name: str) -> None:
        """Register that the shard of role `name` was restarted. It may have applied less than before."""
        self._full.discard(self._shard_of.get(name, -1))

    def next_goal(self) -> int:
        """Return the version to evaluate next: the first multiple of `eval_every` after the last evaluated version."""
        return (self.update // self.eval_every + 1) * self.eval_every

    def all_rows_known(self) -> None:
        """Register that the rows that the evaluated snapshots did not contain were added to the parameters."""
        whole = [[shard, json.loads(text)] for shard, text in self.contained or ()]
        self.contained = [[shard, json.dumps({**one, "partial": False})] for shard, one in whole] or None

    def state(self) -> dict[str, Any]:
        """Return the state that the chief saves: the evaluated parameters and their version."""
        # of a timing-only run
        timing_only = isinstance(self.parameters, np.ndarray) and self.parameters.strides == (0,)
        parameters = None if timing_only else self.parameters
        state = {
            "parameters": parameters, "update": self.update, "samples": self.samples, "loss": self.loss,
            "accuracy": self.accuracy, "evaluated_at": self.evaluated_at,
        }  # fmt: skip
        if self.early_stopping is not None:
            state["early_stopping"] = self.early_stopping.state()
        return state if self.contained is None else state | {"contained": self.contained}

    @staticmethod
    def check_state(state: Mapping[str, Any]) -> None:
        """Raise `Mismatch`, which names the entry, if `state`, read from a file, is not the result of `state()`."""
        check(state, STATE)

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Restore the state that an earlier incarnation of the chief has saved; None: nothing was saved."""
        if state is not None:
            self.parameters, self.update = state["parameters"], int(state["update"])
            self.loss, self.accuracy = state["loss"], state["accuracy"]
            self.samples, self.evaluated_at = int(state["samples"]), state.get("evaluated_at", 0)
            if self.early_stopping is not None and (before := state.get("early_stopping")) is not None:
                self.early_stopping.restore(before)
            self.contained = state.get("contained")

    def time_left(self, now: float) -> float | None:
        """Return the seconds until the end of the budget; None if there is no time limit."""
        if self.stop_requested:
            return 0.0
        return None if self.budget.seconds is None else max(0.0, self.budget.seconds - now)
