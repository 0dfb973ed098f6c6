"""What roles are told about each other, and what becomes of lives that have been given up and are heard of again.

Law: an order about who takes part is repeated until a role knows of it; whoever was followed is told to leave.
"""

from __future__ import annotations

import time
from typing import Any

from ....trace.events import RoleFenced
from ..timeouts import REPEAT_S
from .membership import HERE, Membership
from .supervisor import Supervisor

__all__ = ["Telling"]


class Telling:
    """The part of recovery that talks to roles. `suspects`: Dask workers that have been silent."""

    def __init__(self, run: Any):
        self.run, self.suspects = run, set[str]()
        self.supervisor: Supervisor = run.supervisor
        self.members: Membership = self.supervisor.members
        self._beginning: dict[str, float] = {}  # roles that have been told to begin, and have not said anything since
        self._said_at: dict[tuple[str, int], float] = {}
        self._fenced: set[tuple[str, int]] = set()
        self._repeated: dict[str, float] = {}

    def tell_to_begin(self, role: str) -> None:
        """A life that is up begins now."""
        if self.members.state[role] == HERE:
            self._beginning[role] = time.monotonic()
            command = {**self.members.order(), "do": "begin", **self.run.time_for_roles(role)}
            self.supervisor.post(command, [self.members.where[role]], role, self.members.life[role])

    def tell_again(self, now: float) -> None:
        """Who has been told to begin, and has not been heard of since, is told once more."""
        for role, since in list(self._beginning.items()):
            if now - since > REPEAT_S:
                self.tell_to_begin(role)

    def tell_all(self) -> None:
        """Everybody hears who takes part now."""
        homes = [self.members.where[role] for role in self.members.address]
        self.supervisor.post(self.members.order(), homes)

    def heard(self, role: str, change: int) -> None:
        """A role that is here has reported, and knows of the changes up to `change`."""
        self._beginning.pop(role, None)
        now = time.monotonic()
        if change < self.members.change and now - self._repeated.get(role, 0.0) > REPEAT_S:
            self._repeated[role] = now
            self.supervisor.post(self.members.order(), [self.members.where[role]], role, self.members.life[role])

    def late(self, role: str, life: int) -> None:
        """A life that was declared lost has been heard of: it is told to leave, and what it says does not count."""
        key = (role, life)
        home = self.members.former.get(key)
        now = time.monotonic()
        if home is None or now - self._said_at.get(key, 0.0) < REPEAT_S / 4:
            return
        self._said_at[key] = now
        self.suspects.discard(home)  # it answers
        if key not in self._fenced:
            self._fenced.add(key)
            self.run.event(RoleFenced, role, life, "was heard of again")
        self.supervisor.post({"do": "leave", "fenced": True}, [home], *key)
