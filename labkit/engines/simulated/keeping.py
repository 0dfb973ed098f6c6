"""What roles in virtual time keep for their next incarnation, and how one stands still without noticing.

A shard is saved after the first application that is due: every `checkpoint_every` seconds of virtual time (by default
every second, and never more than 5% of its time). Saving takes `checkpoint_time`, in which its role stands still; only
then is the checkpoint good. Of equal replicas the first that is there saves for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...roles.messages import Look
from ...roles.regroup import SAVE_EVERY, grouped, replicas
from ...roles.shard import NEVER
from ...trace.vocabulary import nanoseconds
from .clockwork import Clockwork
from .roles import SimulatedRole
from .turns import DONE, EARLY, INTERNAL, WAKE

__all__ = ["Held", "Keeping"]

KEEP = 3  # checkpoints of a role


@dataclass
class Held:
    """What a role that stands still was about to do."""

    waiting: Any
    sender: str | None
    unless: Any
    timers: list[tuple[int, int, int]]  # (ns left, priority, what)
    ready: list[Any]  # values with which it may go on
    looks: list[Look] = field(default_factory=list)


class Keeping(Clockwork):
    """Checkpoints in memory: virtual machines lose theirs, and virtual disks do not fail."""

    cluster: Any
    _checkpoints: dict[str, dict[int, Mapping[str, Any]]]

    # checkpoints ------------------------------------------------------------------------------------------------------

    def _keeps(self, role: SimulatedRole) -> None:
        """Let the shard of `role` say when it is to be saved."""
        layout = self.plan.layout
        role.shard.keeper, role.shard.save_at = self._due, NEVER
        if not grouped(layout) or not replicas(layout):
            role.shard.save_at = 0 if grouped(layout) else self.now + self._every()
        elif role is next((r for r in self.roles if r.shard is not None and not r.down), role):
            role.shard.save_at = self.now + self._every()

    def _every(self) -> int:
        cost, every = nanoseconds(self.cluster.checkpoint_time), self.cluster.checkpoint_every
        return max(nanoseconds(1.0), 19 * cost) if every is None else nanoseconds(every)

    def _due(self, shard: Any) -> None:
        """The shard has just applied something, and is to be saved."""
        role, cost = self.roles[shard.recorder.role], nanoseconds(self.cluster.checkpoint_time)
        if shard.save_at == 0 and shard.version % SAVE_EVERY:
            return
        if shard.save_at:
            shard.save_at = self.now + cost + self._every()
        if not cost:
            return self._save(role, shard.to_state())
        arguments = {"name": role.name, "incarnation": role.recorder.incarnation, "state": shard.to_state()}
        self._event(self.now, EARLY, INTERNAL, "_write", arguments)

    def _write(self, name: str, incarnation: int, state: Any) -> None:
        """A checkpoint that takes time: its role stands still meanwhile."""
        role = self.by_name[name]
        if not role.down and role.recorder.incarnation == incarnation:
            self._hold(role)
            at = self.now + nanoseconds(self.cluster.checkpoint_time)
            arguments = {"name": name, "incarnation": incarnation, "state": state}
            self._event(at, EARLY, INTERNAL, "_written", arguments)

    def _written(self, name: str, incarnation: int, state: Any) -> None:
        role = self.by_name[name]
        if not role.down and role.recorder.incarnation == incarnation:
            self._save(role, state)
            self._release(role)

    def _save(self, role: SimulatedRole, state: Mapping[str, Any]) -> None:
        kept = self._checkpoints.setdefault(role.name, {})
        kept.pop(int(state["version"]), None)
        kept[int(state["version"])] = state
        while len(kept) > KEEP:
            del kept[next(iter(kept))]

    def _saved_states(self, name: str) -> Mapping[int, Mapping[str, Any]]:
        """{version: state} of a role's checkpoints, oldest first."""
        return self._checkpoints.get(name, {})

    def _restored(self, name: str) -> Mapping[str, Any] | None:
        """What a role's next incarnation begins with."""
        return next(reversed(list(self._saved_states(name).values())), None)

    # standing still ---------------------------------------------------------------------------------------------------

    def _hold(self, role: SimulatedRole) -> None:
        """`role` stands still: what it was about to do is postponed, what comes for it waits."""
        role.holds += 1
        if role.holds > 1:
            return
        mine = [e for e in self._heap if e[4] is role and e[3] in (DONE, WAKE) and e[5] == role.token]
        timers = [(e[0] - self.now, e[1], e[3]) for e in sorted(mine, key=lambda e: e[:3])]
        ready = [e[4] for e in self._ready if e[3] is role]
        self._ready = type(self._ready)(e for e in self._ready if e[3] is not role)
        role.held = Held(role.waiting, role.wait_sender, role.unless, timers, ready)
        role.waiting = role.unless = None
        role.token += 1

    def _release(self, role: SimulatedRole) -> None:
        """It goes on where it was."""
        role.holds -= 1
        if role.holds or role.held is None:
            return
        held, role.held = role.held, None
        role.waiting, role.wait_sender, role.unless = held.waiting, held.sender, held.unless
        for left, priority, what in held.timers:
            self._event(self.now + left, priority, what, role, role.token)
        for value in held.ready:
            self._go_on(role, value)
        for look in held.looks:
            self._looked(role, look)
        for i, message in enumerate(role.inbox):
            kind = message.__class__
            fits = role.waiting is not None and kind in role.waiting and role.wait_sender in (None, message.sender)
            if fits or (kind is role.unless and role.unless is not None):
                del role.inbox[i]
                return self._deliver(role, message)
