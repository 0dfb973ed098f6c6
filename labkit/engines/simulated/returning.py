"""The way back in virtual time: the next incarnation of one role, or of all that belong together, and who is told.

Nobody can miss that somebody is back: `ctx.peers` says so, and who has listened for `Joined` gets it. Until it has taken
that, or a message of the new incarnation, it talks to nobody: so whoever takes it knows what to say again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from heapq import heapify
from typing import Any

from ...roles.messages import Joined, Left
from ...roles.regroup import begin_together, grouped, leave_in_hand, replicas, spared
from ...trace.events import GroupRestarted, RoleJoined, RoleRestarted
from ...trace.vocabulary import nanoseconds
from .ending import Ending
from .keeping import Keeping
from .making import begin_role
from .roles import SimulatedRole
from .turns import DELIVER, EARLY, INTERNAL, OF_THE_RUN, WAKE

__all__ = ["Returning"]


class Returning(Keeping, Ending):
    """What it takes to begin again."""

    cluster: Any
    peers: dict[str, tuple[str, ...]]  # who takes part, by kind: all contexts look here
    _back: dict[str, int]  # roles that will come back by themselves -> the serial number of that event
    _frozen: dict[str, int]  # roles that were frozen -> the serial number
    _serial: int

    def _bury(self, role: SimulatedRole) -> None:
        """The end of an incarnation: all that it was about to do does not happen."""
        if role.working is not None:
            self._free_core(role)
        role.waiting = role.unless = role.working = role.held = None
        role.holds, role.resume, role.listens = 0, None, ()
        role.token += 1
        role.inbox.clear()
        self._ready = type(self._ready)(entry for entry in self._ready if entry[3] is not role)
        with contextlib.suppress(Exception, SystemExit):
            role.coroutine.close()
        self.trace.append(role.report(self.now))

    def _forget_mail(self, names: set[str]) -> None:
        """What is on its way from or to these never arrives."""
        kept = [
            e for e in self._heap if not (e[3] == DELIVER and (e[4].name in names or e[5].sender in names))
        ]  # fmt: skip
        self._heap[:] = kept
        heapify(self._heap)

    def _goes_on_without(self, role: SimulatedRole) -> bool:
        """Whether the others take no more notice of a lost role, until it is back."""
        return role.name in self._away or spared(self.plan.layout, role.spec, self.plan.strategy.on_loss)

    def _unaware(self, names: list[str]) -> None:
        for role in self.roles:
            if not role.down:
                role.unaware.update(names)

    # and the way back -------------------------------------------------------------------------------------------------

    def _come_back_later(self, names: list[str], node: Iterable[str]) -> None:
        """`restart_after` from now; who is killed again on its way begins anew."""
        for name in node:
            self._back.pop(name, None)
        if not names or self.cluster.restart_after is None:
            return
        self._serial += 1
        self._back.update(dict.fromkeys(names, self._serial))
        at = self.now + nanoseconds(self.cluster.restart_after)
        self._event(at, EARLY, INTERNAL, "_on_its_way", {"names": names, "serial": self._serial})

    def _on_its_way(self, names: list[str], serial: int) -> None:
        self._return([name for name in names if self._back.get(name) == serial])

    def _return(self, names: list[str]) -> None:
        """The next incarnation of each begins."""
        names = [name for name in names if self.by_name[name].down]
        for name in names:
            self._back.pop(name, None)
        everybody = self.plan.layout.peers()
        for kind, members in self.peers.items():
            self.peers[kind] = tuple(m for m in everybody[kind] if m in members or m in names)
        together = [name for name in names if self._in_group(self.by_name[name])]
        for name in names:
            if name not in together:
                self._begin_again(self.by_name[name], self._restored(name), same=False)
                self._announce(self.by_name[name], self.roles)
        if together:
            self._regroup(together)

    def _in_group(self, role: SimulatedRole) -> bool:
        return grouped(self.plan.layout) and role is not self.chief

    def _begin_again(
        self, role: SimulatedRole, state: Any, same: bool, incarnation: int | None = None, back: str = ""
    ) -> None:
        """A role's next incarnation begins with `state`."""
        before, back = role.counters.version, back or role.down
        begin_role(self, role, role.recorder.incarnation + 1 if incarnation is None else incarnation, state, same)
        role.down = ""
        role.unaware = {other.name for other in self.roles if other.down}
        number = role.recorder.incarnation
        if back in ("has not joined yet", "has left"):
            self.trace.event(RoleJoined(self.now, role.name, number))
        elif back:
            copy = self.by_name.get(role.name.replace("server", "backup"), role)
            begins = _begins_with(role, state, before) if copy is role or copy.down else {"source": "backup"}
            self.trace.event(RoleRestarted(self.now, role.name, number, **begins))
        role.coroutine = role.begin()
        role.resume = role.coroutine.send
        self._go_on(role, None)
        if role.name in self._frozen:  # it stands still, and begins when it is thawed
            self._hold(role)

    def _announce(self, role: SimulatedRole, to: Iterable[SimulatedRole]) -> None:
        """`role` is there, in its newest incarnation."""
        joined = Joined(role.name)
        joined.__dict__["incarnation"] = role.recorder.incarnation
        for other in to:
            if other is not role:
                self._tell(other, joined)

    def _tell(self, role: SimulatedRole, news: Left | Joined) -> None:
        """News of a member. Who did not listen for it last has nothing to say again, and is aware of it at once."""
        if role.down or role.returned:
            return
        if news.__class__ in role.listens:
            last = [m for m in role.inbox if not (isinstance(m, (Left, Joined)) and m.name == news.name)]
            role.inbox = deque(last)  # older news of the same member are none any more
            self._deliver(role, news)
        elif news.__class__ is Joined:
            role.unaware.discard(news.name)

    # all together -----------------------------------------------------------------------------------------------------

    def _regroup(self, back: list[str]) -> None:
        """All members of the group begin their next incarnation together; `back`: those that were lost."""
        members = [r for r in self.roles if r is not self.chief and (not r.down or r.name in back)]
        alive = [r for r in members if not r.down]
        owners = [r for r in alive if r.shard is not None]
        if replicas(self.plan.layout) and self.plan.layout.copies == "equal" and owners:
            owners = [max(owners, key=lambda r: r.shard.version)]  # one speaks for all
        states = {r.name: r.shard.to_state() for r in owners}
        begins = begin_together(self.plan.layout, states, self._saved_states, [r.name for r in members])
        epoch = 1 + max(r.recorder.incarnation for r in self.roles if r is not self.chief)
        anybody = next((state for state in begins.values() if state is not None), None)
        for role in alive:
            state = begins.get(role.name) or anybody
            leave_in_hand(role.recorder, self.now, role.id, len(self.roles), state)
            self._bury(role)
        self._forget_mail({r.name for r in members})
        version = max((int(s["version"]) for s in begins.values() if s is not None), default=0)
        away, lost = {r.name: r.down for r in members}, [r.name for r in self.roles if r.down and r not in members]
        for role in members:
            role.down = ""
        for role in members:
            self._begin_again(role, begins.get(role.name), False, epoch, away[role.name])
            self._announce(role, [self.chief])  # the others have heard nothing of anybody yet
            role.unaware = set(lost)
        workers = sum(r.spec.computes for r in members)
        self.trace.event(GroupRestarted(self.now, workers, version))

    def _waits_for(self) -> str:
        """Whom the run waits for, if nobody brings them back; "" if it does not."""
        away = [r for r in self.roles if r.down and r.name not in self._back]
        if any(not r.down for r in self._players):  # else there is nobody to go on without them
            away = [r for r in away if not self._goes_on_without(r)]
        return "; ".join(f"{r.name}, which {r.down}" for r in away)

    def _endless(self) -> bool:
        """Whether the chief is gone for good, who alone can end the run, and nothing is planned that brings it back."""
        return bool(self.chief.down) and self.chief.name not in self._back and all(e[3] not in OF_THE_RUN for e in self._heap)

    def _name_awaited(self) -> None:
        """Say for whom the run waits, if nothing but the end of the budget's seconds is ahead of it."""
        if self._ready or self._frozen or not any(r.down for r in self.roles):
            return
        ahead = (e for e in self._heap if e[3] not in OF_THE_RUN and not (e[3] == WAKE and e[4] is self.chief))
        if not any(e[3] == DELIVER or e[4].token == e[5] for e in ahead):
            self._says_for_whom()

    def _idle(self, time: int) -> bool:
        return not any(r.down for r in self.roles) and super()._idle(time)


def _begins_with(role: SimulatedRole, state: Any, before: int) -> dict[str, Any]:
    """What a restarted role begins with, as fields of `RoleRestarted`. `before`: updates that the lost shard had applied."""
    if role.shard is None:
        return {}
    if state is None:
        return {"source": "first weights", "rolled_back": before}
    update = int(state["version"])
    return {"source": "checkpoint", "update": update, "rolled_back": max(0, before - update)}
