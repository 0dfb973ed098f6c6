"""Checkpoints of shards in virtual time. They are stored in memory and survive losses of roles, like files on a disk.

A shard is saved every `checkpoint_every` seconds of virtual time, after the next update. (By default it is saved every second,
but less often if saving would take more than 5% of the time.) Saving takes `checkpoint_time`, during which the role is
suspended; after that the checkpoint is complete. Of synchronized replicas, only the first present replica is saved, for all
replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...roles.group_restart import SAVE_EVERY, restarts_as_group, whole_replicas
from ...roles.layout import Layout
from ...roles.shard import NEVER, Shard
from ...trace.schema import nanoseconds
from .event_loop import EventLoop
from .role import SimulatedRole

KEEP = 3  # checkpoints of a role

State = Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one run. `cost`: seconds to save one; `every`: seconds between two, None for the default."""

    def __init__(
        self, layout: Layout, loop: EventLoop, roles: Sequence[SimulatedRole], cost: float, every: float | None
    ):  # fmt: skip
        self._loop, self._roles = loop, roles
        self._with_shards = [role for role in roles if role.spec.shard is not None]
        self._grouped, self._replicas = restarts_as_group(layout), whole_replicas(layout)
        self._cost = nanoseconds(cost)
        self._every = max(nanoseconds(1.0), 19 * self._cost) if every is None else nanoseconds(every)
        self._kept: dict[str, dict[int, State]] = {}

    def register(self, role: SimulatedRole) -> None:
        """Save the shard of `role`, if it has one, at regular intervals from now on."""
        shard = role.shard
        if shard is None:
            return
        shard.on_checkpoint_due, shard.save_at = self._due, NEVER
        if not self._grouped or not self._replicas:
            shard.save_at = 0 if self._grouped else self._loop.now + self._every
        elif role is next((r for r in self._with_shards if r.shard is not None and not r.down), role):
            shard.save_at = self._loop.now + self._every

    def _due(self, shard: Shard) -> None:
        role = self._roles[shard.recorder.role]
        if shard.save_at == 0 and shard.version % SAVE_EVERY:
            return
        if shard.save_at:
            shard.save_at = self._loop.now + self._cost + self._every
        if self._cost:
            self._loop.call_at(self._loop.now, self._begin, role, role.recorder.incarnation, shard.to_state())
        else:
            self._save(role, shard.to_state())

    def _begin(self, role: SimulatedRole, incarnation: int, state: State) -> None:
        if not role.down and role.recorder.incarnation == incarnation:
            role.suspend()
            self._loop.call_at(self._loop.now + self._cost, self._complete, role, incarnation, state)

    def _complete(self, role: SimulatedRole, incarnation: int, state: State) -> None:
        if not role.down and role.recorder.incarnation == incarnation:
            self._save(role, state)
            role.resume()

    def _save(self, role: SimulatedRole, state: State) -> None:
        kept = self._kept.setdefault(role.name, {})
        kept.pop(int(state["version"]), None)
        kept[int(state["version"])] = state
        while len(kept) > KEEP:
            del kept[next(iter(kept))]

    def of(self, name: str) -> Mapping[int, State]:
        """Return {version: state} of a role's checkpoints, oldest first."""
        return self._kept.get(name, {})

    def newest(self, name: str) -> State | None:
        return next(reversed(list(self.of(name).values())), None)
