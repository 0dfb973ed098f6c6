"""Roles that are lost in virtual time, and come back: as on a cluster, but exact.

A loss is known at once where a process was killed, and after `patience` seconds where a role is only silent (frozen, or
cut off). What a lost role had in hand, and what was on its way from and to it, is lost with it. `restart_after` seconds
later its next incarnation begins, with what its last one had saved; who has listened for it is told. A role that was
only silent and comes back in time goes on as if nothing had been; one that comes back too late is fenced: its next
incarnation has its place.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from heapq import heapify
from typing import Any

from ...errors import BadInput
from ...roles.messages import Joined, Left
from ...roles.regroup import begin_together, grouped, leave_in_hand, spared
from ...trace.vocabulary import nanoseconds
from ..parts import find_role
from .ending import Ending
from .keeping import Keeping
from .making import begin_role
from .one_hand import OneHand
from .roles import SimulatedRole
from .turns import COMMAND, DELIVER, EARLY

__all__ = ["Recovery"]


class Recovery(Keeping, Ending):
    """What happens to the roles of a run whose nodes fail."""

    cluster: Any
    _hand: OneHand
    peers: dict[str, tuple[str, ...]]  # who takes part, by kind: all contexts look here

    def _log(self, command: str, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError("a run keeps a log of what was done to it")

    def _begin_whole(self) -> None:
        """Everybody is there."""
        self._lost_lives: list[list[int]] = []
        self._back: dict[str, int] = {}  # roles that will come back by themselves -> the serial number of that event
        self._frozen: dict[str, int] = {}  # roles that were frozen -> the serial number
        self._ghosts: set[str] = set()  # roles that are frozen and have been given up
        self._serial = 0
        absent = self.plan.elastic.absent if self.plan.elastic else ()
        self._away = set(absent)  # who is not there, and is not waited for
        self.peers |= {kind: tuple(m for m in members if m not in absent) for kind, members in self.peers.items()}
        for role in self.roles:
            if role.name in absent:
                role.down = "has not joined yet"
        self._unaware(list(absent))

    # commands ---------------------------------------------------------------------------------------------------------

    def kill(self, role: str, restart: bool = True) -> None:
        """The process that plays `role` is gone at this instant, with every role that it plays. `restart=False`: it stays
        away until `restart(role)`."""
        with self._hand:
            target = find_role(role, self.by_name)
            if self.stopped_by is not None:
                return
            self._log("kill", {"role": role, "restart": restart})
            self.trace.mark(self.now, "kill", f"killed {role}", name=role)
            node = [r.name for r in self.roles if r.node == target.node]
            self._lose([name for name in node if not self.by_name[name].down], "was killed")
            self._come_back_later([name for name in node if self.by_name[name].down] if restart else [], node)

    def restart(self, role: str) -> None:
        """`role`, which is away, comes back at this instant in its next incarnation. `BadInput` if it is not away."""
        with self._hand:
            target = find_role(role, self.by_name)
            if self.stopped_by is None:
                if not target.down:
                    raise BadInput(f"restart({role!r}): it is not away; kill it first.")
                self._log("restart", {"role": role})
                self._return([r.name for r in self.roles if r.node == target.node and r.down])

    def freeze(self, role: str) -> None:
        """The process that plays `role` stands still at this instant; after `patience` seconds it counts as lost."""
        with self._hand:
            target = find_role(role, self.by_name)
            if self.stopped_by is not None:
                return
            self._log("freeze", {"role": role})
            node = [r for r in self.roles if r.node == target.node and not r.down and r.name not in self._frozen]
            if node:
                self.trace.mark(self.now, "freeze", f"froze {role}", name=role)
            for one in node:
                self._hold(one)
            self._watch_silence([one.name for one in node], self._frozen)

    def thaw(self, role: str) -> None:
        """A frozen process goes on: where it was, or, if it has been given up meanwhile, not at all."""
        with self._hand:
            target = find_role(role, self.by_name)
            if self.stopped_by is not None:
                return
            self._log("thaw", {"role": role})
            node = [r for r in self.roles if r.node == target.node]
            if any(one.name in self._frozen or one.name in self._ghosts for one in node):
                self.trace.mark(self.now, "thaw", f"thawed {role}", name=role)
            for one in node:
                if one.name in self._ghosts:
                    self._ghosts.discard(one.name)
                    text = f"{one.name} woke up too late: its place is taken, and it was told to leave"
                    self.trace.mark(self.now, "fenced", text, name=one.name)
                if self._frozen.pop(one.name, None) is not None:
                    self._release(one)

    # who comes and goes -----------------------------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers that take part."""
        return self.peers["worker"]

    def join(self, role: str) -> None:
        """A worker that is not there takes part from this instant on."""
        with self._hand:
            find_role(role, self.by_name)
            if self.stopped_by is None and role in self._away:
                self._log("join", {"role": role})
                self._away.discard(role)
                self._return([role])

    def leave(self, role: str) -> None:
        """A worker takes its leave at this instant: what it has in hand is dropped, what it has sent arrives."""
        with self._hand:
            target = find_role(role, self.by_name)
            if self.stopped_by is None and not target.down:
                self._log("leave", {"role": role})
                leave_in_hand(target.recorder, self.now, target.id, len(self.roles), None)
                self._bury(target)
                target.down = "has left"
                self._away.add(role)
                self._unaware([role])
                self._leave([role])

    def _unaware(self, names: list[str]) -> None:
        for role in self.roles:
            if not role.down:
                role.unaware.update(names)

    # silence ----------------------------------------------------------------------------------------------------------

    def _watch_silence(self, names: list[str], since: dict[str, int]) -> None:
        self._serial += 1
        since.update(dict.fromkeys(names, self._serial))
        at = self.now + nanoseconds(self.cluster.patience)
        self._event(at, EARLY, COMMAND, "_silent", {"names": names, "serial": self._serial})

    def _silent(self, names: list[str], serial: int) -> None:
        """Who has been silent since then is given up."""
        frozen = [n for n in names if self._frozen.get(n) == serial]
        for name in frozen:
            del self._frozen[name]
            self._ghosts.add(name)
        cut = [n for n in names if self._alone(n) == serial]
        if frozen or cut:
            self._lose(frozen + cut, f"was silent for {self.cluster.patience:g} s")
            self._come_back_later(frozen + cut, frozen + cut)

    def _alone(self, name: str) -> int | None:
        """The serial number under which a role is cut off from everybody; None if it is not."""
        return None

    # losses -----------------------------------------------------------------------------------------------------------

    def _lose(self, names: list[str], why: str) -> None:
        lost = [self.by_name[name] for name in names]
        if not lost:
            return
        for role in lost:
            self._bury(role)
            self._frozen.pop(role.name, None)  # its next incarnation is another process
            role.down = why
            self._lost_lives.append([role.id, role.recorder.incarnation])
            incarnation = role.recorder.incarnation
            self.trace.mark(
                self.now, "lost", f"lost {role.name}: it {why}", name=role.name, incarnation=incarnation, why=why
            )
        self._forget_mail(set(names))
        self._unaware(names)
        self._leave([r.name for r in lost if self._goes_on_without(r)])

    def _goes_on_without(self, role: SimulatedRole) -> bool:
        """Whether the others take no more notice of a lost role, until it is back."""
        return role.name in self._away or spared(self.plan.layout, role.spec, self.plan.strategy.on_loss)

    def _leave(self, names: list[str]) -> None:
        """These are no peers any more, and nobody waits for them."""
        if not names:
            return
        for kind, members in self.peers.items():
            self.peers[kind] = tuple(m for m in members if m not in names)
        for name in names:
            self.trace.mark(self.now, "left", f"the others go on without {name}", name=name)
        if grouped(self.plan.layout):
            self._regroup([])
            return
        for name in names:
            for role in self.roles:
                self._tell(role, Left(name))

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
        self._event(at, EARLY, COMMAND, "_on_its_way", {"names": names, "serial": self._serial})

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
        if together:
            self._regroup(together)

    def _in_group(self, role: SimulatedRole) -> bool:
        return grouped(self.plan.layout) and role is not self.chief

    def _begin_again(self, role: SimulatedRole, state: Any, same: bool, incarnation: int | None = None) -> None:
        """A role's next incarnation begins with `state`, and everybody is told."""
        before, back = role.counters.version, role.down
        begin_role(self, role, role.recorder.incarnation + 1 if incarnation is None else incarnation, state, same)
        role.down = ""
        role.unaware.clear()
        role.unaware.update(other.name for other in self.roles if other.down)
        number = role.recorder.incarnation
        if back in ("has not joined yet", "has left"):
            self.trace.mark(self.now, "joined", f"{role.name} takes part", name=role.name, incarnation=number)
        elif back:
            copy = self.by_name.get(role.name.replace("server", "backup"), role)
            text = f"{role.name} is back" + (
                _rolled_back(role, state, before) if copy is role or copy.down else " and takes over its backup's copy"
            )
            self.trace.mark(self.now, "restart", text, name=role.name, incarnation=number)
        joined = Joined(role.name)
        joined.__dict__["incarnation"] = number
        for other in self.roles:
            if other is not role:
                self._tell(other, joined)
        role.coroutine = role.begin()
        role.resume = role.coroutine.send
        self._go_on(role, None)
        if role.name in self._frozen:  # it stands still, and begins when it is thawed
            self._hold(role)

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
        states = {r.name: r.shard.to_state() for r in alive if r.shard is not None}
        begins = begin_together(self.plan.layout, states, self._saved_states, [r.name for r in members])
        epoch = 1 + max(r.recorder.incarnation for r in self.roles if r is not self.chief)
        anybody = next((state for state in begins.values() if state is not None), None)
        for role in alive:
            state = begins.get(role.name) or anybody
            leave_in_hand(role.recorder, self.now, role.id, len(self.roles), state)
            self._bury(role)
        self._forget_mail({r.name for r in members})
        version = max((int(s["version"]) for s in begins.values() if s is not None), default=0)
        for role in members:
            self._begin_again(role, begins.get(role.name), False, epoch)
        names = sum(r.spec.computes for r in members)
        self.trace.mark(self.now, "regroup", f"{names} workers go on together from update {version}")

    def _waits_for(self) -> str:
        """Whom the run waits for, if nobody brings them back; "" if it does not."""
        away = [r for r in self.roles if r.down and r.name not in self._back]
        if any(not r.down for r in self._players):  # else there is nobody to go on without them
            away = [r for r in away if not self._goes_on_without(r)]
        return "; ".join(f"{r.name}, which {r.down}" for r in away)

    def _endless(self) -> bool:
        """Whether the chief is gone for good, who alone can end the run, and nothing is planned that brings it back."""
        return bool(self.chief.down) and self.chief.name not in self._back and all(e[3] != COMMAND for e in self._heap)

    def _idle(self, time: int) -> bool:
        return not any(r.down for r in self.roles) and super()._idle(time)


def _rolled_back(role: SimulatedRole, state: Any, before: int) -> str:
    """What a restored shard has lost."""
    if role.shard is None:
        return ""
    if state is None:
        return f" with the first weights: {before} updates are rolled back" if before else ""
    lost = before - int(state["version"])
    return f", restored from update {state['version']}" + (f": {lost} updates are rolled back" if lost > 0 else "")
