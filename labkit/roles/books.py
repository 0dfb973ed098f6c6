"""The books of a shard: which gradients it has, each once, and what it said of them.

A repeated push (sender, incarnation, step) is answered and not applied: the table of the last step of each sender makes
sending at least once and applying once the same as sending once. The table is saved and restored with the shard. A
gradient that does not fit, or is not finite, is refused and recorded, and the shard lives on; but if none of the
workers sends a finite one any more it is the model that has diverged, and no worker that lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import LabkitError, RoleError
from ..trace.events import GradientRefused
from ..trace.recorder import Recorder
from ..trace.vocabulary import AFTER_END, EVERYONE, IGNORED, REFUSED, ROLLED_BACK, UNKNOWN
from .gradient import Gradient

__all__ = ["Books"]

NEVER = 1 << 62
IN_A_ROW = 1000  # gradients refused, and none of these senders' accepted: then nobody else is there


class Books:
    """What is booked when a gradient is applied, dropped or refused. Its subclass says how one is applied."""

    recorder: Recorder
    clock: Callable[[], int]
    role_ids: dict[str, int]
    index: int
    values: np.ndarray
    correction: Any
    watcher: Any
    keeper: Any
    generation: int
    version: int
    samples: int
    senders: int  # how many roles push
    save_at: int  # the instant (ns) from which on the state is to be saved after an application
    counts_only: bool
    _most: tuple[int, ...]
    _wanted: int
    _full: bool
    _last: dict[tuple[str, int], int]  # (sender, incarnation) -> last step applied: once only
    _dropped: dict[tuple[str, int], set[int]]  # the same -> steps dropped since
    _met: set[tuple[str, int]] | None  # of a restored shard: the senders that have pushed since
    _sick: dict[str, int]  # senders whose last gradients were refused -> how many in a row

    def _shows(self) -> bool:
        raise NotImplementedError("a shard knows whether the chief wants to see it")

    def _part_of(self, gradient: Any) -> np.ndarray:
        raise NotImplementedError("a shard knows which part of a gradient is its own")

    # what may be applied ----------------------------------------------------------------------------------------------

    def _admitted(self, several: Sequence[Any]) -> Sequence[Any]:
        """Those that may be applied now; why the others may not is booked."""
        if self._full:
            for gradient in several:
                self._drop(gradient, AFTER_END)
            return ()
        if len(several) == 1:
            fresh: Sequence[Any] = () if self._seen(several[0]) else several
        else:
            fresh = self._fresh(several)
        return fresh if self.counts_only else self._honest(fresh)

    def _honest(self, several: Sequence[Any]) -> Sequence[Any]:
        """Those that fit the shard and are finite, decoded; the others are refused."""
        kept = []
        for g in several:
            if g.__class__ is not Gradient:
                values, wrong = self._read(g)
                if wrong:
                    self._refuse(g, wrong)
                    continue
                if not self._finite(values) and not self._nobody_is_well(g.sender):
                    self._refuse(g, "is not finite")
                    continue
                if self._sick:
                    self._sick.pop(g.sender, None)
                if values is not g.values:
                    decoded = replace(g, values=values)
                    decoded.__dict__.update(sender=g.sender, incarnation=g.incarnation)
                    g = decoded
            kept.append(g)
        return kept

    def _read(self, g: Any) -> tuple[np.ndarray, str]:
        """(a push's values, decoded; what is wrong with them, "" if nothing). If nobody's fit it is the strategy that is
        wrong, and no worker that lies: then it is raised."""
        try:
            values = self._part_of(g)
            if not np.can_cast(values.dtype, self.values.dtype, "same_kind"):
                raise RoleError(f"its numbers are {values.dtype}, and the shard's are {self.values.dtype}")
        except (LabkitError, ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            if self._nobody_is_well(g.sender):
                raise RoleError(f"{g.sender} pushed a gradient that does not fit: {error}. Nobody's does.") from error
            return self.values, f"does not fit: {error}"
        return values, ""

    def _nobody_is_well(self, sender: str) -> bool:
        """Whether every sender's last push was refused: `sender`'s is to be."""
        self._sick[sender] = self._sick.get(sender, 0) + 1
        return len(self._sick) >= self.senders or sum(self._sick.values()) >= IN_A_ROW

    @staticmethod
    def _finite(values: np.ndarray) -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.dot(values, values))  # five times as fast as looking at each number
        return math.isfinite(square) or bool(np.isfinite(values).all())

    def _refuse(self, gradient: Any, why: str) -> None:
        self.recorder.event(GradientRefused(self.clock(), gradient.sender, gradient.step, why))
        self._drop(gradient, REFUSED)

    # what is booked ---------------------------------------------------------------------------------------------------

    def _book(self, gradients: Sequence[Any]) -> None:
        recorder, now, before = self.recorder, self.clock(), self.version
        self.version = version = before + 1
        counters = recorder.counters
        counters.updates = counters.version = version
        for g in gradients:
            if g.__class__ is Gradient:
                (generation, read), sender = self._own(g)
            else:
                generation, read, sender = g.generation, g.version, self.role_ids[g.sender]
                key = (g.sender, g.incarnation)
                if self._dropped or self._last.get(key, -1) != g.step - g.count:
                    self._skipped(g, key, sender, now)
                if self._met is not None:
                    self._met.add(key)
                self._last[key] = g.step
                newest = counters.reads.pop(sender, None)
                if self.correction is not None:
                    self.correction.applied(sender, read, newest)
            self.samples += g.samples
            stale = before - read if generation == self.generation else UNKNOWN
            incarnation = recorder.incarnation if g.__class__ is Gradient else g.incarnation
            recorder.apply(self.index, now, sender, g.step, g.count, g.samples, stale, version, incarnation)
        counters.outstanding += len(counters.reads)
        self._full = version >= self._most[0] or self.samples >= self._most[1]
        if self.watcher is not None and (self._full or version >= self._wanted) and self._shows():
            self.watcher(self)
        if now >= self.save_at:
            self.keeper(self)

    def _own(self, g: Gradient) -> tuple[tuple[int, int], int]:
        """Of a gradient that never travelled: (what it was computed on here, its sender)."""
        counters = self.recorder.counters
        counters.handed = max(counters.handed, g.step + 1)
        if g.everyone and counters.reads:
            counters.reads.clear()  # a server of replicas: all that have read are served by this one step
        return g.read[self.index if len(g.read) > 1 else 0], EVERYONE if g.everyone else self.recorder.role

    def _skipped(self, g: Any, key: tuple[str, int], sender: int, now: int) -> None:
        """Steps before `g` that were never sent here, or were received and neither applied nor dropped: forgotten. Where the
        shard has been restored since it last heard of the sender, it did hold them."""
        dropped, why = self._dropped.pop(key, ()), IGNORED
        if self._met is not None and key not in self._met:
            why = ROLLED_BACK
        for step in range(self._last.get(key, -1) + 1, g.step - g.count + 1):
            if step not in dropped:
                self.recorder.drop(self.index, now, sender, g.incarnation, step, 1, why)

    def _fresh(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Those that were neither applied nor dropped before, each once."""
        first: dict[Any, Any] = {}
        for g in gradients:
            if not self._seen(g):
                first.setdefault((g.sender, g.incarnation, g.step) if g.__class__ is not Gradient else id(g), g)
        return list(first.values())

    def _seen(self, gradient: Any) -> bool:
        if gradient.__class__ is Gradient:
            return False
        key = (gradient.sender, gradient.incarnation)
        if gradient.step > self._last.get(key, -1) and gradient.step not in self._dropped.get(key, ()):
            return False
        self.recorder.counters.duplicates += 1
        return True

    def _drop(self, gradient: Any, why: int) -> None:
        now, recorder = self.clock(), self.recorder
        if gradient.__class__ is Gradient:
            sender = EVERYONE if gradient.everyone else recorder.role
            recorder.counters.handed = max(recorder.counters.handed, gradient.step + 1)
            incarnation = recorder.incarnation
        else:
            if self._seen(gradient):
                return
            sender, incarnation = self.role_ids[gradient.sender], gradient.incarnation
            steps = range(gradient.step - gradient.count + 1, gradient.step + 1)
            self._dropped.setdefault((gradient.sender, incarnation), set()).update(steps)
            recorder.counters.residual += self.version - recorder.counters.reads.pop(sender, self.version)
        recorder.drop(self.index, now, sender, incarnation, gradient.step, gradient.count, why)
