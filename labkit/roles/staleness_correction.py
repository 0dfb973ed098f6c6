"""Corrections of stale gradients on asynchronous servers: a staleness-aware learning rate, and delay compensation.

Both are options of every asynchronous server, so they are part of the shard, not of a strategy. They are off by default.

- Staleness-aware rate: the step of a gradient that is k updates old is divided by k, if k > 0 (Zhang, Gupta, Lian and
  Liu, "Staleness-aware Async-SGD for distributed deep learning", IJCAI 2016).
- Delay compensation: see `labkit.nn.compensation`. The weights sent to each reader are stored until its gradient has been
  applied. If each read is followed by one gradient, there are at most two copies per reader (a gradient may still be waiting
  when its worker reads again), and one copy for all readers of the same version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formats import ArrayForm
from ..nn.optimizers import State
from .optimizer_state import load_state, saved_state, state_form


def staleness_correction(strategy: Any) -> StalenessCorrection | None:
    """Return the correction for the strategy's options `staleness_aware` and `compensation`; None if they are missing or
    off.
    """
    compensation = getattr(strategy, "compensation", None)
    aware = bool(getattr(strategy, "staleness_aware", False))
    return StalenessCorrection(compensation, aware) if compensation is not None or aware else None


class StalenessCorrection:
    """The correction of one shard. `kept`: {version: the weights of the shard at this version}, while gradients computed on
    them may still arrive.
    """

    __slots__ = ("_held", "aware", "compensation", "kept", "state")

    def __init__(self, compensation: Any, aware: bool):
        self.compensation, self.aware = compensation, aware
        self.kept: dict[int, np.ndarray] = {}
        self.state: State = {}
        self._held: dict[int, list[int]] = {}  # {reader: versions for which a gradient may still arrive, ascending}

    def remember(self, version: int, values: np.ndarray, readers: dict[int, int]) -> None:
        """Store the weights `values` sent as `version`. Versions without readers are discarded."""
        if self.compensation is None or version in self.kept:
            return
        for reader, read in readers.items():
            self._has_read(reader, read)
        held = {read for reads in self._held.values() for read in reads}
        self.kept = {v: old for v, old in self.kept.items() if v in held}
        self.kept[version] = values.copy()
        if not self.state:
            self.state = self.compensation.state(len(values), values.dtype)

    def applied(self, reader: int, version: int, newest: int | None) -> None:
        """Register that a gradient of `reader`, computed on `version`, was applied.

        `newest`: the version that the reader has read last, if a gradient computed on it is outstanding, else None. A worker
        may read again before its gradient is applied; the weights of this read are then kept.
        """
        if newest is not None:
            self._has_read(reader, newest)
        reads = self._held.get(reader, [])
        self._held[reader] = [read for read in reads if read > version] or reads[-1:]

    def _has_read(self, reader: int, version: int) -> None:
        reads = self._held.setdefault(reader, [])
        if not reads or reads[-1] < version:
            reads.append(version)

    def correct(self, gradient: np.ndarray, read: int, version: int, now: np.ndarray) -> np.ndarray:
        """Correct a gradient that was computed on version `read` and is applied at `version`, where the weights are `now`."""
        then = self.kept.get(read)  # None if the version is not stored, as after a restore
        if self.compensation is not None and then is not None:
            gradient = self.compensation.compensate(gradient, now, then, self.state)
        return self.slowed(gradient, version - read)

    def slowed(self, gradient: np.ndarray, staleness: int) -> np.ndarray:
        """Return the gradient divided by its staleness, if the rate is staleness-aware."""
        if self.aware and staleness > 1:
            return gradient / np.asarray(staleness, gradient.dtype)
        return gradient

    def arrays(self) -> dict[str, np.ndarray]:
        """Return a copy of the state of the compensation, as entries of a checkpoint."""
        return saved_state("correction", self.state)

    def form(self) -> dict[str, ArrayForm]:
        return state_form("correction", self.state)

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        load_state("correction", self.state, arrays)
