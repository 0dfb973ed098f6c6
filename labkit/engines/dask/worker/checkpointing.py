"""Checkpoints of one role instance, for the next incarnation: its shard, and the state that the role requested to save.

Checkpoints are taken between two effects, so they are consistent. A shard is saved once per second, but for at most 5%
of the time: the interval after a checkpoint is at least nineteen times the duration of a checkpoint.

This duration is the minimum of the last three. A checkpoint that took long because the process waited for a core or for
the disk does not predict the duration of the next one. Without the minimum, 0.8 s of waiting would delay the next
checkpoint by 15 s, and a loss in this time would cost the next incarnation up to 15 s of updates.

Checkpoint numbers increase with the incarnation. So an instance that was declared lost, but still runs, detects that a
later incarnation has saved a checkpoint, and saves no more checkpoints.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ....formats import check
from ....roles.evaluator import Evaluator
from ....roles.shard import Shard
from ...storage.store import TAGS_PER_INCARNATION, Store

SAVE_EVERY = 1.0  # seconds between two checkpoints
INTERVAL_RATIO = 19  # interval after a checkpoint, in multiples of its duration
SAMPLES = 3  # number of last durations; their minimum is used
SAVED = "saved:"  # prefix of the names in the state that a role with a shard requested to save
TIME = "engine_time"  # name of the engine time (ns) at which a shard was saved
Restored = tuple[dict[str, Any] | None, bool]  # (initial state, whether nothing of it was lost)


def tag_of(incarnation: int, version: int) -> int:
    return incarnation * TAGS_PER_INCARNATION + version


class Checkpointing:
    """Saves and restores the checkpoints of one `incarnation` of `role`.

    `store`: where checkpoints are saved; None: nowhere. `every`: seconds between two checkpoints of a shard; None: the
    interval described in the module. `warn(text)` is called when a checkpoint cannot be written, and when writing works
    again; the role continues in both cases. `seconds`: a clock. `saved_at`: engine time (ns) of the restored
    checkpoint; None after this instance has saved a checkpoint.
    """

    def __init__(
        self, role: str, incarnation: int, store: Store | None, every: float | None,
        warn: Callable[[str], None], seconds: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self._role, self._incarnation, self._store, self._every = role, incarnation, store, every
        self._warn, self._seconds = warn, seconds
        self.saved_at: int | None = None
        self._error: tuple[Any, Any] | None = None  # (errno, text) of the last failure that was reported
        self._repeated = 0
        self._requested: dict[str, Any] | None = None  # the state that the role requested to save
        self._unsaved = False
        self._last_save = 0.0
        self._count = 0
        self._next_save = 0.0
        self._durations: deque[float] = deque(maxlen=SAMPLES)  # durations of the last checkpoints, seconds
        self._version = (-1, -1)  # (generation, version) of the shard in the last checkpoint

    def request(self, state: Mapping[str, Any], shard: Shard | None, now: int) -> None:
        """Save `state` on behalf of the role: at most once per second, and the newest state at the end."""
        self._requested, self._unsaved = dict(state), True
        if self._seconds() - self._last_save >= SAVE_EVERY:
            self.save(shard, now)

    def save_if_due(self, shard: Shard | None, now: int) -> None:
        """Save the shard if a checkpoint is due and the shard has changed. `now`: engine time, ns."""
        if self._store is None or shard is None or self._seconds() < self._next_save:
            return
        if self._version != (shard.generation, shard.version):
            self.save(shard, now)

    def save(self, shard: Shard | None, now: int) -> None:
        if self._store is None or (shard is None and self._requested is None):
            return
        began = self._last_save = self._seconds()
        state, self._count = dict(self._requested or {}), self._count + 1
        version = self._count
        if shard is not None:
            own = {f"{SAVED}{name}": value for name, value in state.items()}
            state = shard.to_state() | own | {TIME: self.saved_at or now}
            version = shard.version
        try:
            if self._superseded(self._store):
                return
            self._store.write(self._role, state, tag_of(self._incarnation, version))
            self._unsaved = False
            self._version = (-1, -1) if shard is None else (shard.generation, shard.version)
            self._report_recovery()
        except OSError as error:
            self._report_failure(error)
        ended = self._seconds()
        self._durations.append(ended - began)
        if self._every is not None:
            self._next_save = began + self._every
        elif len(self._durations) == 1:  # the first checkpoint takes longer, because it also loads modules
            self._next_save = ended + SAVE_EVERY
        else:
            self._next_save = max(began + SAVE_EVERY, ended + INTERVAL_RATIO * min(self._durations))

    def _report_failure(self, error: OSError) -> None:
        """Report an error once. Repeated errors are counted, and their number is reported when saving works again."""
        if (error.errno, error.strerror) == self._error:
            self._repeated += 1
            return
        self._error, self._repeated = (error.errno, error.strerror), 0
        self._warn(f"could not save its checkpoint: {error}")

    def _report_recovery(self) -> None:
        if self._error is not None:
            again = f", after {self._repeated:,} more failures" if self._repeated else ""
            self._error = None
            self._warn(f"saves its checkpoints again{again}")

    def _superseded(self, store: Store) -> bool:
        """Return whether a later incarnation has saved a checkpoint, which means that this instance was declared lost."""
        newest = max(store.all_tags(self._role), default=0)
        return newest >= (self._incarnation + 1) * TAGS_PER_INCARNATION

    def finish(self, shard: Shard | None, now: int) -> None:
        """Save unsaved state when the instance ends."""
        if self._unsaved or (shard is not None and self._version != (shard.generation, shard.version)):
            self.save(shard, now)

    def restore(
        self, shard: Shard | None, evaluator: Evaluator | None, given: Restored | None
    ) -> tuple[dict[str, Any] | None, list[Any]]:  # fmt: skip
        """Restore the last incarnation's checkpoint, or `given` (see `RoleAssignment.restored`).

        Returns (the state that the role had requested to save, [source, update, note] for `RoleRestarted`). The list is
        empty for a role without state.
        """
        state, same = given or (None, False)
        state, remark = (
            (None if state is None else dict(state), "") if given is not None else self._read(shard, evaluator)
        )
        requested, begins = state, []
        if shard is not None and state is not None:
            self.saved_at = state.pop(TIME, None)
            requested = {
                name.removeprefix(SAVED): state.pop(name) for name in list(state) if name.startswith(SAVED)
            } or None
            shard.restore(state, same)
            begins = ["checkpoint", shard.version, remark]
        elif shard is not None:
            shard.restore(None)
            begins = ["first weights", None, remark]
        elif evaluator is not None and state is not None:
            evaluator.restore(state)
            begins = ["evaluation", evaluator.update, remark]
        elif remark:
            self._warn(f"restarted without a checkpoint: {remark}")
        return requested, begins

    def _read(self, shard: Shard | None, evaluator: Evaluator | None) -> tuple[dict[str, Any] | None, str]:
        def check_all(state: Mapping[str, Any]) -> None:
            check(state, {f"{TIME}?": int})
            if (part := shard or evaluator) is not None:
                part.check_state(state)

        try:
            return (None, "") if self._store is None else self._store.read(self._role, check_all)
        except OSError as error:
            self._report_failure(error)
            return None, ""
