"""One update of a paused run: to which version each shard has to come, and when all have.

Roles stand still one after the other, so a pause can catch shards at different versions, and in most strategies the one
behind cannot move without the one ahead. So all go on to one version, that of the foremost and one more: whoever gets
there first has already sent what the others need to follow. Replicas that step by themselves and only answer each
other are never in step; each of them makes one update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Stepping"]

ANSWER_S = 10.0  # seconds for all shards to say their versions: a role that computes answers when it has done
STEP_S = 30.0


class Stepping:
    """The steps of one run. The listening thread tells it what it hears (`version`, `arrived`, `over`)."""

    def __init__(self, roles: Any, copies: str):
        self._owners = {role.name for role in roles if role.shard is not None}
        self._together = copies != "own" or all(role.computes for role in roles if role.shard is not None)
        self._versions: dict[str, int] = {}
        self._missing: set[str] = set()
        self._all_said, self._all_there = threading.Event(), threading.Event()
        self._ended = False

    def goals(self, ask: Callable[[], Any]) -> dict[str, int]:
        """{role: version to come to}. `ask` has every role say its version; who does not is left out."""
        self._versions = {}
        self._rearm(self._all_said)
        ask()
        self._all_said.wait(ANSWER_S)
        said = dict(self._versions)
        foremost = max(said.values(), default=0)
        goals = {role: (foremost if self._together else version) + 1 for role, version in said.items()}
        self._missing = set(goals)
        self._rearm(self._all_there)
        return goals

    def _rearm(self, event: threading.Event) -> None:
        """From now on `event` is waited for, unless the run has ended, perhaps this very moment."""
        event.clear()
        if self._ended:
            event.set()

    def wait(self, timeout: float | None = None) -> None:
        """Until all have come to their versions, or the run is over, or somebody does not want to wait any more."""
        self._all_there.wait(STEP_S if timeout is None else min(timeout, STEP_S))

    def let_go(self) -> None:
        """Whoever waits goes on: the run was paused, resumed or stopped meanwhile."""
        self._all_said.set()
        self._all_there.set()

    def version(self, role: str, version: int) -> None:
        """A role with a shard has said its version."""
        self._versions[role] = version
        if self._versions.keys() >= self._owners:
            self._all_said.set()

    def arrived(self, role: str) -> None:
        """A role has come to its version, and stands still."""
        self._missing.discard(role)
        if not self._missing:
            self._all_there.set()

    def lost(self, role: str) -> None:
        """Nobody waits for a role that is not there."""
        if role in self._missing:
            self.arrived(role)

    def over(self) -> None:
        """The run is over: nobody waits any more."""
        self._ended = True
        self.let_go()
