"""A shard owns a part of the parameters: it applies gradients to them, and records them.

A shard is composed of

- the parameters (`DenseParameters`, `RowParameters`) with the state of their optimizer;
- the applied log (`AppliedLog`): which gradients were applied (each exactly once), and which were dropped or refused;
- the check of pushes (`GradientCheck`): whether a push fits and is finite.

The shard itself manages the version, the budget, and the chief's snapshot requests. All updates go through `apply`, so that no
strategy can bypass the records of staleness and gradients, or the budget. A version is (generation, updates applied); a restore
starts a new generation. The staleness of a gradient is the number of updates applied between the read of its weights and its
own update: 0 for a fresh gradient, unknown if the weights are of an earlier generation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ..errors import nearest
from ..formats import Form, Number, check
from ..nn.index_sets import Boxes
from ..trace.recorder import Recorder
from ..trace.schema import AFTER_END, REASONS, TABLES
from .applied_log import AppliedLog
from .budget import Limits
from .dense_parameters import DenseParameters
from .gradient import Contribution, Gradient, record_noise, squared_norm
from .gradient_check import GradientCheck
from .messages import Push, Snapshot, Weights, timing_only_message
from .part import Part, Work
from .staleness_correction import StalenessCorrection, staleness_correction

NEVER = 1 << 62  # a time (ns) or a version that is not reached
REDUCTIONS = ("mean", "sum")
COUNT = Number(0, NEVER, int)
STATE: Form = {
    "version": COUNT,
    "generation": COUNT,
    "samples": COUNT,
    "gradients": int,
    "incarnation": COUNT,
    "rounds": COUNT,
    "rounds_by_incarnation": [(COUNT, COUNT)],
    "applied": [(COUNT, COUNT, int)],
    "last": [(str, COUNT, int)],
    "dropped": [(str, COUNT, [int])],
    "unreported_drops?": [(int,) * len(TABLES["drops"].names)],
}


class ShardParameters(Protocol):
    """The parameters of a shard.

    `index`: the number of the shard; `values`: a read-only view of the flat vector; `nbytes`: its size; `timing_only`: whether
    nothing is computed; `steps`: False if `step` need not be called; `correction`: corrects stale gradients (None: off).
    """

    index: int
    values: np.ndarray
    nbytes: int
    timing_only: bool
    steps: bool
    correction: StalenessCorrection | None

    @property
    def dtype(self) -> np.dtype: ...

    def part_of(self, gradient: Any) -> np.ndarray:
        """Return the decoded part of a gradient for these parameters. Raises `RoleError` if it does not fit."""

    def step(self, gradients: Sequence[Any], rate: float, reduce: str, version: int, generation: int) -> None:
        """Take one optimizer step, from `version` to the next version."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of values and optimizer state, as entries of a checkpoint."""

    def check(self, arrays: Mapping[str, Any]) -> None:
        """Raise `Mismatch` if these are not the result of `arrays()` of such parameters, with finite numbers."""

    def load(self, arrays: Mapping[str, Any]) -> None: ...


class Shard(Part):
    """A part of the parameters, to which gradients are applied.

    - `schedule(version)` returns a factor of the learning rate. `clock()` returns the time in ns.
    - `senders`: the number of roles that push to the shard. `role_ids`: {role: its number in the trace}.
    - `watcher(shard)` is called when the shard reaches a version requested by the chief: a multiple of `eval_every`, or the
      version at which the budget is used up.
    - `on_checkpoint_due(shard)` is called after an update at time `save_at` (ns) or later.
    - `observed`: whether the chief evaluates this shard. (Of synchronized replicas it evaluates the first present one.)
    - `ledger`: as of `AppliedLog`.
    - `replicas`: the number of local replicas among which `limits` are divided; 0 if the shard has the whole limits.
    """

    work: ClassVar[Work] = "server"
    pushes: ClassVar[dict[str, type]] = {"Push": Push}  # what can be applied, by name
    cumulative: ClassVar[bool] = False  # whether a push contains all earlier steps of its sender

    def __init__(
        self, parameters: ShardParameters, recorder: Recorder, clock: Callable[[], int], role_ids: Mapping[str, int],
        limits: Limits, *, schedule: Callable[[int], float] = lambda version: 1.0, eval_every: int = 0,
        watcher: Callable[[Any], None] | None = None, senders: int = 1 << 30, replicas: int = 0, ledger: bool = True,
    ):  # fmt: skip
        self.parameters, self.index, self.values = parameters, parameters.index, parameters.values
        correction = parameters.correction
        served = None if correction is None else correction.applied
        self.log = AppliedLog(parameters.index, recorder, clock, role_ids, served, self.cumulative, ledger)
        self._check = GradientCheck(parameters.part_of, parameters.dtype, senders)
        self.recorder, self.clock, self.role_ids = recorder, clock, role_ids
        self.schedule, self.eval_every, self.watcher = schedule, eval_every, watcher
        self.generation = self.version = self.samples = 0
        self.observed, self.save_at = True, NEVER
        self.on_checkpoint_due: Callable[[Any], object] | None = None
        self.noise_every = 0  # updates between two measurements of the gradient noise; 0: none
        self._timing_only, self._steps, self._nbytes = parameters.timing_only, parameters.steps, parameters.nbytes
        self._whole_limits = limits
        self._divide_limits(replicas)
        self.finished = self.limits.reached(0, 0)  # the budget is used up: nothing more may be applied
        self._snapshot_at = NEVER  # the version from which on a snapshot for the chief is due

    @classmethod
    def make(
        cls, *, spec: Any, plan: Any, objective: Any, recorder: Recorder, clock: Callable[[], int],
        watcher: Callable[[Any], None], strategy: Any,
    ) -> Self:  # fmt: skip
        """Return the shard of role `spec` in a run of `plan`, with the initial weights. `strategy`: the engine's copy of it,
        whose live options may change.
        """
        parameters = DenseParameters(
            spec.shard, spec.part, Boxes.of(spec.part).take(plan.start(objective)), strategy.optimizer,
            weight_decay=strategy.weight_decay, codec=getattr(strategy, "codec", None), correction=staleness_correction(strategy),
        )  # fmt: skip
        shard = cls.of_role(parameters, spec, plan, recorder, clock, watcher, strategy)
        # clipped and compressed pushes are not the gradients
        sent = strategy.clip_norm is None and getattr(strategy, "codec", None) is None
        shard.noise_every = plan.norms_every if sent else 0
        return shard

    @classmethod
    def of_role(
        cls, parameters: ShardParameters, spec: Any, plan: Any, recorder: Recorder, clock: Callable[[], int],
        watcher: Callable[[Any], None], strategy: Any,
    ) -> Self:  # fmt: skip
        """Return a shard of `parameters` with the limits and options of role `spec` in a run of `plan`."""
        shard = cls(
            parameters, recorder, clock, plan.role_ids,
            plan.limits,
            schedule=strategy.schedule, eval_every=0 if plan.timing_only else strategy.eval_every, watcher=watcher,
            senders=plan.layout.shares, replicas=plan.present_shares if plan.layout.replication == "local" else 0,
            ledger=plan.ledger,
        )  # fmt: skip
        shard.observed = spec.name in plan.layout.observed
        return shard

    def _divide_limits(self, replicas: int) -> None:
        self._replicas = replicas
        self.limits = self._whole_limits.divided(replicas) if replicas else self._whole_limits
        self._max_updates = NEVER if self.limits.updates is None else self.limits.updates
        self._max_samples = NEVER if self.limits.samples is None else self.limits.samples

    # for strategies ---------------------------------------------------------------------------------------------------

    def weights(self) -> Weights:
        """Return the present weights as a message. Its array is a view of the shard's parameters, which is copied when it is
        sent.
        """
        if not self._timing_only:
            if self.parameters.correction is not None:
                self.parameters.correction.remember(self.version, self.values, self.recorder.counters.reads)
            return Weights(self.values, self.index, self.generation, self.version)
        return timing_only_message(Weights, {
            "values": self.values, "shard": self.index, "generation": self.generation, "version": self.version,
            "timing_only_bytes": self._nbytes,
        })  # fmt: skip

    def apply(self, gradients: Any, learning_rate: float, reduce: str = "mean") -> bool:
        """Apply one gradient, or several gradients as one step: their "mean" or "sum" (`reduce`), added in the given order.

        `gradients`: a `Push`, a `Gradient`, or a sequence of them. Returns False and records the reason if nothing was applied,
        because the budget is used up or because all gradients were duplicates or were refused.
        """
        if reduce not in REDUCTIONS:
            raise nearest("reduction", reduce, REDUCTIONS)
        fresh = self._admitted(gradients if isinstance(gradients, (list, tuple)) else (gradients,))
        if not fresh:
            return False
        if self._steps:
            if self.noise_every:
                self._measure_noise(fresh)
            rate = learning_rate * self.schedule(self.version)
            self.parameters.step(fresh, rate, reduce, self.version, self.generation)
        self._applied(fresh)
        return True

    def drop(self, gradient: Any, why: str = "late") -> None:
        """Record that `gradient` will not be applied to this shard; `why`: "late", "cancelled", "unused" or "refused"."""
        if why not in REASONS:
            raise nearest("reason for dropping a gradient", why, REASONS)
        self.log.drop(gradient, REASONS.index(why), self.version)

    def fresh(self, gradient: Any) -> bool:
        """Return whether a push was computed on the present version of the weights."""
        return bool(gradient.version == self.version and gradient.generation == self.generation)

    # one application --------------------------------------------------------------------------------------------------

    def _admitted(self, gradients: Sequence[Contribution]) -> Sequence[Contribution]:
        """Return the gradients that may be applied now, with decoded pushes. The other gradients are recorded in the log."""
        if self.finished:
            for gradient in gradients:
                self.log.drop(gradient, AFTER_END, self.version)
            return ()
        # Before the check: a push that was refused and is sent again is a duplicate, and is not refused twice.
        new = self.log.without_duplicates(gradients)
        if self._timing_only:
            return new
        valid: list[Contribution] = []
        for g in new:
            if not isinstance(g, Gradient):
                g, reason = self._check(g)
                if reason:
                    self.log.refuse(g, reason, self.version)
                    continue
            valid.append(g)
        return valid

    def _measure_noise(self, gradients: Sequence[Contribution]) -> None:
        """Record the gradient noise of gradients that were computed on the same weights, if they were measured or it is due."""
        first = gradients[0]
        if isinstance(first, Gradient):
            if first.square is not None and first.mean_square is not None:
                samples = [first.samples / first.count] * first.count
                record_noise(self.recorder, self.clock(), first.step, samples, first.square, first.mean_square)
        elif len(gradients) > 1 and self.version % self.noise_every == 0:
            weights = first.generation, first.version
            if all(isinstance(g, Push) and g.count == 1 and (g.generation, g.version) == weights for g in gradients):
                count, total = len(gradients), first.values.copy()
                for g in gradients[1:]:
                    total += g.values
                square = sum(squared_norm(g.values) for g in gradients) / count
                mean_square = squared_norm(total) / count**2
                samples = [g.samples for g in gradients]
                record_noise(self.recorder, self.clock(), self.version, samples, square, mean_square)

    def _applied(self, gradients: Sequence[Contribution]) -> None:
        now, before = self.clock(), self.version
        self.version = version = before + 1
        self.samples += self.log.record(gradients, before, self.generation, now)
        self.finished = version >= self._max_updates or self.samples >= self._max_samples
        if self.watcher is not None and (self.finished or version >= self._snapshot_at) and self._snapshot_due():
            self.watcher(self)
        if now >= self.save_at and self.on_checkpoint_due is not None:
            self.on_checkpoint_due(self)

    # snapshots for the chief ------------------------------------------------------------------------------------------

    def requested(self, at: int, final: bool) -> bool:
        """Handle a `SnapshotRequest` of the chief. Returns True if the snapshot is due now; otherwise `watcher` is called
        later, when it is due.
        """
        self.observed = True
        return final or self.request(at)

    def request(self, at: int) -> bool:
        """Request a snapshot at the first multiple of `eval_every` that is at least `at`. Returns True if it is due now."""
        self._snapshot_at = at if self.eval_every else NEVER
        return self._snapshot_due()

    def _snapshot_due(self) -> bool:
        if self.finished:
            return True
        if self.version < self._snapshot_at or self.version % self.eval_every:
            return False
        self._snapshot_at = NEVER
        return True

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """Return a snapshot for the chief: the parameters, the version and the samples; without parameters if not `shown`."""
        return Snapshot(self.values if shown else self.values[:0], self.index, self.version, self.samples, final)

    def evaluation(self, final: bool, time: int) -> Snapshot:
        """Return the snapshot that an engine sends at `time` (ns). If it has parameters, it also lists the gradients that they
        contain.
        """
        made = self.snapshot(final, self.observed)
        if not self.observed:
            return made
        # of rows that the snapshot lacks, gradients are only partly in the returned parameters
        contained = self.log.contained() | {"time": time} | ({} if self.shows_all(made) else {"partial": True})
        return replace(made, contained=json.dumps(contained))

    def shows_all(self, snapshot: Snapshot) -> bool:
        """Return whether `snapshot` has all parameters that the applied gradients have changed."""
        return True

    # checkpoints ------------------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Return a copy of the whole state, {name: array or plain value}, for a checkpoint; without arrays in a timing-only
        run.
        """
        progress = {"version": self.version, "generation": self.generation, "samples": self.samples}
        if self._replicas:
            progress["replicas"] = self._replicas
        return self.log.to_state() | progress | self.parameters.arrays()

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise `Mismatch`, which names the entry, if `state`, read from a file, is not the state of such a shard."""
        check(state, STATE)
        self.parameters.check(state)

    def restore(self, state: Mapping[str, Any] | None, same: bool = False) -> None:
        """Restore the state from `to_state()` (None: keep the present state) and start a new generation. `same`: `state` is the
        newest state, so nothing is lost, and its generation continues.
        """
        self.log.restore(state, same)
        self.generation = self.recorder.incarnation
        if state is not None:
            self.parameters.load(state)
            self.version, self.samples = int(state["version"]), int(state["samples"])
            if same:
                self.generation = int(state["generation"])
            if self._replicas:
                self._divide_limits(int(state.get("replicas", self._replicas)))
        self.finished = self.limits.reached(self.version, self.samples)
