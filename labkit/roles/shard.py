"""A shard owns a part of the parameters, its optimizer state and its version; nobody else ever writes to them.

`apply` is the only way in, and it books what it does: staleness, the ledger, the end of the budget. No strategy can
forget to. A version is (generation, updates applied); a restore opens a new generation. Staleness is the number of
versions applied since the weights were read, not counting the application itself; fresh is 0, and across generations
it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import RoleError, nearest
from ..nn import decay_weights
from ..nn.boxes import Boxes
from ..trace.recorder import Recorder
from ..trace.vocabulary import REASONS
from .books import NEVER, Books
from .correction import Correction, correction_of
from .durable import gather, restore, spread, state_of
from .gradient import Gradient
from .messages import Push, Snapshot, Weights, weightless

__all__ = ["Limits", "Shard"]


REDUCTIONS = ("mean", "sum")


class Limits:
    """How much may be applied: `updates`, `samples` (None: no limit). The application after the last is refused."""

    __slots__ = ("samples", "updates")

    def __init__(self, updates: int | None = None, samples: int | None = None):
        self.updates, self.samples = updates, samples

    def divided(self, replicas: int) -> Limits:
        """What each of so many replicas may apply that step by themselves: as many updates, its part of the samples."""
        return Limits(self.updates, None if self.samples is None else -(-self.samples // replicas))

    def reached(self, updates: int, samples: int) -> bool:
        """Whether nothing more may be applied."""
        return (self.updates is not None and updates >= self.updates) or (
            self.samples is not None and samples >= self.samples
        )


class Shard(Books):
    """The slice `part` of the parameters. `values`: flat, read-only; zero strides in a timing-only run (then it only counts).

    `senders`: how many roles push to it. `keeper(shard)` is called after an application at `save_at` (ns) or later.
    `role_ids` turns names into the numbers of the trace; `watcher(shard)` is called when the shard reaches a version
    that the chief wants to see (every `eval_every` updates, and the last one).
    """

    work = "server"
    looked = True  # whether the chief looks at it: a further replica is only asked when the first one is away
    pushes: ClassVar[dict[str, type]] = {"Push": Push}  # what can be applied, by name

    def __init__(
        self, index: int, part: slice | Boxes, values: np.ndarray, optimizer: Any, schedule: Callable[[int], float],
        recorder: Recorder, clock: Callable[[], int], role_ids: dict[str, int], limits: Limits, *,
        weight_decay: float = 0.0, eval_every: int = 0, watcher: Callable[[Shard], None] | None = None,
        correction: Correction | None = None, codec: Any = None, senders: int = 1 << 30,
    ):  # fmt: skip
        self.index, self.part, self._values = index, part, values
        self.correction, self.codec = correction, codec
        self.values = values.view()
        self.values.flags.writeable = False  # `apply` is the only way in
        self.optimizer, self.schedule, self.weight_decay = optimizer, schedule, weight_decay
        self.recorder, self.clock, self.role_ids, self.limits = recorder, clock, role_ids, limits
        self.eval_every, self.watcher = eval_every, watcher
        self.generation = self.version = self.samples = 0
        self.counts_only, self._nbytes = values.strides == (0,), values.nbytes
        self.state = {} if self.counts_only else optimizer.state(len(values), values.dtype)
        self._most = tuple(NEVER if most is None else most for most in (limits.updates, limits.samples))
        self._full = limits.reached(0, 0)  # nothing more may be applied
        self._wanted = NEVER  # the version from which on the chief wants to see the shard
        self._last, self._dropped, self._met, self._sick = {}, {}, None, {}
        self.senders, self.save_at, self.keeper = senders, NEVER, None
        self._sum = values if self.counts_only else np.empty_like(values)
        recorder.counters.shard = index

    @classmethod
    def make(
        cls, *, spec: Any, plan: Any, objective: Any, recorder: Recorder, clock: Callable[[], int],
        watcher: Callable[[Shard], None], strategy: Any,
    ) -> Self:  # fmt: skip
        """The shard of role `spec` in a run by `plan`, with the first weights. `strategy`: the engine's own copy."""
        limits = plan.limits.divided(plan.layout.shares) if plan.layout.copies == "own" else plan.limits
        made = cls(
            spec.shard, spec.part, Boxes.of(spec.part).take(plan.start(objective)), strategy.optimizer,
            strategy.schedule, recorder, clock, plan.role_ids, limits, weight_decay=strategy.weight_decay,
            eval_every=0 if plan.timing_only else strategy.eval_every, watcher=watcher, correction=correction_of(strategy),
            codec=getattr(strategy, "codec", None), senders=plan.layout.shares,
        )  # fmt: skip
        made.looked = spec.name in plan.layout.observed
        return made

    # what strategies call ---------------------------------------------------------------------------------------------

    def weights(self) -> Weights:
        """The weights as they are now, as a message. Its array is the shard's own: sending it copies."""
        if not self.counts_only:
            if self.correction is not None:
                self.correction.remember(self.version, self.values, self.recorder.counters.reads)
            return Weights(self.values, self.index, self.generation, self.version)
        return weightless(Weights, {
            "values": self.values, "shard": self.index, "generation": self.generation, "version": self.version,
            "weightless": self._nbytes,
        })  # fmt: skip

    def apply(self, gradients: Any, learning_rate: float, reduce: str = "mean") -> bool:
        """Apply one gradient, or several reduced to one step ("mean" or "sum", added in the order given).

        `gradients`: a `Push`, a `Gradient`, or a sequence of them. Returns False, and books why, if nothing was
        applied: the budget is used up, or all were applied before.
        """
        if reduce not in REDUCTIONS:
            raise nearest("reduction", reduce, REDUCTIONS)
        fresh = self._admitted(gradients if isinstance(gradients, (list, tuple)) else (gradients,))
        if not fresh:
            return False
        if not self.counts_only:
            self._step(fresh, learning_rate * self.schedule(self.version), reduce)
        self._book(fresh)
        return True

    def drop(self, gradient: Any, why: str = "late") -> None:
        """Say that `gradient` will never be applied here, and why: "late", "cancelled", "unused" or "refused"."""
        if why not in REASONS:
            raise nearest("reason for dropping a gradient", why, REASONS)
        self._drop(gradient, REASONS.index(why))

    def fresh(self, gradient: Any) -> bool:
        """Whether a push was computed on the weights as they are now."""
        return bool(gradient.version == self.version and gradient.generation == self.generation)

    def to_state(self) -> dict[str, Any]:
        """All that a shard is, copied: arrays and plain values. See `roles.durable`."""
        return state_of(self)

    def restore(self, state: Mapping[str, Any] | None, same: bool = False) -> None:
        """Become what `state` says (None: what it is now), in a new generation. `same`: nothing was lost, so in the old one."""
        restore(self, state, same)

    def snapshot(self, final: bool, shown: bool) -> Snapshot:
        """What the chief is shown; a shard that is not looked at (a further replica) only says how far it is."""
        return Snapshot(self.values if shown else self.values[:0], self.index, self.version, self.samples, final)

    def look(self, at: int) -> bool:
        """The chief wants to see the first multiple of `eval_every` from version `at` on. True: that is now."""
        self._wanted = at if self.eval_every else NEVER
        return self._shows()

    def _shows(self) -> bool:
        if self._full:
            return True
        if self.version < self._wanted or self.version % self.eval_every:
            return False
        self._wanted = NEVER
        return True

    def arrays(self) -> dict[str, np.ndarray]:
        """What of its state is arrays, copied."""
        learned = {} if self.correction is None else spread("correction", self.correction.state)
        return {"values": self._values.copy()} | spread("optimizer", self.state) | learned

    def take_arrays(self, state: Mapping[str, Any]) -> None:
        """The other way round."""
        np.copyto(self._values, state["values"])
        gather("optimizer", self.state, state)
        if self.correction is not None:
            gather("correction", self.correction.state, state)

    # what it means ----------------------------------------------------------------------------------------------------

    def _step(self, gradients: Sequence[Any], rate: float, reduce: str) -> None:
        pieces = map(self._part_of if self.correction is None else self._corrected, gradients)
        step = next(pieces)
        if len(gradients) > 1:
            total = self._sum
            np.copyto(total, step)
            for piece in pieces:
                np.add(total, piece, out=total)
            if reduce == "mean":
                np.divide(total, len(gradients), out=total)
            step = total
        if self.weight_decay:
            decay_weights(self._values, rate, self.weight_decay)
        self.optimizer.apply(self._values, step, rate, self.state, self.version + 1)

    def _part_of(self, gradient: Any) -> np.ndarray:
        values = gradient.values
        if values.__class__ is tuple:
            values = self.codec.decode(values, len(self.values), self.values.dtype)
        elif gradient.__class__ is Gradient and len(values) != len(self.values):
            values = Boxes.of(self.part).take(values) if isinstance(self.part, Boxes) else values[self.part]
        if values.shape != self.values.shape:
            raise RoleError(f"shard {self.index} has {len(self.values)} parameters, and it has {values.shape}")
        return values

    def _corrected(self, gradient: Any) -> np.ndarray:
        """The part of a gradient that is this shard's, less harmful if it is stale."""
        assert self.correction is not None
        values = self._part_of(gradient)
        if gradient.__class__ is Gradient or gradient.generation != self.generation:
            return values
        return self.correction.correct(values, gradient.version, self.version, self.values)
