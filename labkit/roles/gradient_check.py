"""Checks each push before it is applied: the values must fit the shard and be finite.

A push that fails is refused and recorded, and the shard continues, because a single worker may be faulty. If the last push of
every worker has failed, the cause is not a single worker. In that case a gradient that does not fit raises an error, because
the strategy is wrong. A gradient that is not finite is applied, because the model has diverged, and the loss will show this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..errors import LabkitError, RoleError
from .messages import Push

# this number of refused pushes counts as a failure of all workers; an accepted push resets the number of its sender
MAX_CONSECUTIVE_REFUSALS = 1000


class GradientCheck:
    """The check of one shard. `part_of(push)` returns the decoded values of a push, or raises; `dtype`: dtype of the
    parameters; `senders`: the number of roles that push to the shard.
    """

    def __init__(self, part_of: Callable[[Push], np.ndarray], dtype: np.dtype, senders: int):
        self._part_of, self._dtype, self._senders = part_of, dtype, senders
        self._failed: dict[str, int] = {}  # sender whose last push was refused -> number of consecutive refusals

    def __call__(self, push: Push) -> tuple[Push, str]:
        """Return (the push with decoded values, the reason for refusing it or ""). Raises `RoleError` if the last push of every
        other worker has failed, too.
        """
        try:
            values = self._part_of(push)
            if values.dtype != self._dtype and not np.can_cast(values.dtype, self._dtype, "same_kind"):
                raise RoleError(f"its numbers are {values.dtype}, and the shard's are {self._dtype}")
        except (LabkitError, ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            if self._all_fail(push.sender):
                raise RoleError(
                    f"{push.sender} pushed a gradient that does not fit: {error}. No worker's does."
                ) from error
            return push, f"does not fit: {error}"
        if not _finite(values) and not self._all_fail(push.sender):
            return push, "is not finite"
        if self._failed:
            self._failed.pop(push.sender, None)
        if values is not push.values:
            decoded = replace(push, values=values)
            decoded.__dict__.update(sender=push.sender, incarnation=push.incarnation)
            return decoded, ""
        return push, ""

    def _all_fail(self, sender: str) -> bool:
        """Count a failed push of `sender`. Returns whether the last push of every sender has failed."""
        self._failed[sender] = self._failed.get(sender, 0) + 1
        return len(self._failed) >= self._senders or sum(self._failed.values()) >= MAX_CONSECUTIVE_REFUSALS


def _finite(values: np.ndarray) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.dot(values, values))  # five times as fast as a test of each number
    return math.isfinite(square) or bool(np.isfinite(values).all())
