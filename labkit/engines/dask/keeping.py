"""What a life of a role leaves on disk for the next one: its shard, and what the role itself asked to be kept.

Between two effects, and so always whole. A shard is kept once a second, but at most 5% of the time: after a checkpoint
nineteen times as long passes until the next. How long one takes is the shortest of the last three: one that took long because
the process waited for a core or the disk says nothing about the next one, and 0.8 s of waiting would cost the next incarnation
15 s of updates. The number of a checkpoint grows from life to life, so a life that was declared lost, and wakes up, sees
that it has been followed and writes no more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoints import Store

__all__ = ["LIFE", "Keeper", "tag_of"]

SAVE_EVERY = 1.0  # seconds between two checkpoints
REST = 19  # times as long as one takes
SAMPLES = 3  # checkpoints, the shortest of which says how long one takes
LIFE = 10**12  # numbers of checkpoints that a life has for itself
SAID = "said:"  # before the names of what a role with a shard asked to be kept
TIME = "engine_time"  # ns, when a shard was kept


def tag_of(incarnation: int, version: int) -> int:
    """The number of a checkpoint."""
    return incarnation * LIFE + version


class Keeper:
    """The checkpoints of one life. `trouble(what)` is called when one could not be written, and when they
    can be again; the role goes on."""

    def __init__(self, ticket: Any, trouble: Callable[[str], None]):
        self._role, self._incarnation, self._every = ticket.spec.name, ticket.incarnation, ticket.every
        self._store = None if ticket.folder is None else Store(ticket.folder, age=ticket.age)
        self._trouble = trouble
        self._wrong: tuple[Any, Any] | None = None  # the error that the last attempt ended with, as far as it was told
        self._repeated = 0
        self._said: dict[str, Any] | None = None
        self._unsaved = False
        self._said_at = 0.0
        self._count = 0
        self._due = 0.0
        self._took: deque[float] = deque(maxlen=SAMPLES)  # seconds, of the newest checkpoints
        self._version = (-1, -1)  # of the shard, as it was kept last
        self.kept_at: int | None = None  # ns of engine time: when what this life began with was kept

    def say(self, state: Mapping[str, Any], shard: Any, now: int) -> None:
        """The role asks for `state` to be kept: at most once a second, the newest always in the end."""
        self._said, self._unsaved = dict(state), True
        if time.monotonic() - self._said_at >= SAVE_EVERY:
            self.keep(shard, now)

    def look(self, shard: Any, now: int) -> None:
        """Keep the shard if it is time, and there is something new. `now`: engine time, ns."""
        if self._store is None or shard is None or time.monotonic() < self._due:
            return
        if self._version != (shard.generation, shard.version):
            self.keep(shard, now)

    def keep(self, shard: Any, now: int) -> None:
        """Keep everything as it is now."""
        if self._store is None or (shard is None and self._said is None):
            return
        began = self._said_at = time.monotonic()
        state, self._count = dict(self._said or {}), self._count + 1
        version = self._count
        if shard is not None:
            state = (
                shard.to_state()
                | {f"{SAID}{name}": value for name, value in state.items()}
                | {TIME: self.kept_at or now}
            )
            version = shard.version
        try:
            if self._followed(self._store):
                return
            self._store.write(self._role, state, tag_of(self._incarnation, version))
            self._unsaved = False
            self._version = (-1, -1) if shard is None else (shard.generation, shard.version)
            self._works()
        except OSError as error:
            self._failed(error)
        ended = time.monotonic()
        self._took.append(ended - began)
        if self._every is not None:
            self._due = began + self._every
        elif len(self._took) == 1:  # its process has just begun, and loads modules
            self._due = ended + SAVE_EVERY
        else:
            self._due = max(began + SAVE_EVERY, ended + REST * min(self._took))

    def _failed(self, error: OSError) -> None:
        """Say it once; what fails in the same way again is counted, and told when it works."""
        if (error.errno, error.strerror) == self._wrong:
            self._repeated += 1
            return
        self._wrong, self._repeated = (error.errno, error.strerror), 0
        self._trouble(f"could not save its checkpoint: {error}")

    def _works(self) -> None:
        if self._wrong is not None:
            again = f", after {self._repeated:,} more failures" if self._repeated else ""
            self._wrong = None
            self._trouble(f"saves its checkpoints again{again}")

    def _followed(self, store: Store) -> bool:
        """Whether a later life has kept something: then this one has been declared lost."""
        newest = max(store.known(self._role), default=0)
        return newest >= (self._incarnation + 1) * LIFE

    def finish(self, shard: Any, now: int) -> None:
        """The life ends: what has not been kept is kept now."""
        if self._unsaved or (shard is not None and self._version != (shard.generation, shard.version)):
            self.keep(shard, now)

    def restore(self, shard: Any, judge: Any, handed: Any) -> tuple[dict[str, Any] | None, list[Any]]:
        """Take up what the life before kept, or what was `handed` on, a ticket's `restored`. (what its role had asked to be
        kept, [source, update, remark] as `RoleRestarted` has them, [] for a role that keeps no state)."""
        state, same = handed or (None, False)
        found = (None if state is None else dict(state), "") if handed is not None else self._read()
        state, remark = found or (None, "")
        said, begins = state, []
        if shard is not None and state is not None:
            self.kept_at = state.pop(TIME, None)
            said = {name.removeprefix(SAID): state.pop(name) for name in list(state) if name.startswith(SAID)} or None
            shard.restore(state, same)
            begins = ["checkpoint", shard.version, remark]
        elif shard is not None:
            shard.restore(None)
            begins = ["first weights", None, remark]
        elif judge is not None and state is not None:
            judge.restore(state)
            begins = ["evaluation", judge.update, remark]
        return said, begins

    def _read(self) -> tuple[dict[str, Any], str] | None:
        try:
            return None if self._store is None else self._store.read(self._role)
        except OSError as error:
            self._failed(error)
            return None
