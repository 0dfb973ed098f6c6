"""Trouble on the links of virtual time: messages that come late, are lost and sent again, or held by a cut.

Law: trouble changes when a message arrives, never whether or in which order: a link stays first-in first-out, and what is
sent is delivered once. Of two roles on one node nothing lies between them, so nothing can happen there.

- Late: a message arrives `delay` later than it would.
- Lost: every transmission is lost with the same chance, and so is every acknowledgement. What is not acknowledged is sent
  again `RESEND_S` later, all of which is decided when it is first sent. A message whose first K transmissions are lost
  arrives K x RESEND_S later. One that arrives again is discarded, and counted. Repeats are bytes that were sent, but they
  take nobody's turn on the wire.
- Cut: what is sent is held, and sent when the link is whole again. What was on its way already arrives.

Evaluation is measurement: it is held by a cut, because nobody sees through one, but neither late nor lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...roles.context import stream
from ...roles.messages import Message
from ...trace.events import LinkCut, LinkDelayed, LinkEvent, LinkLossy, LinkReconnected, RoleFenced
from ...trace.recorder import MESSAGE
from ...trace.vocabulary import EVALUATION, nanoseconds
from ..commands import Cut, Delay, Drop, Reconnect
from .network import RESEND_S
from .recovery import Recovery
from .roles import SimulatedRole
from .turns import DELIVER, EARLY

__all__ = ["Trouble", "Troubles", "transmissions"]

RESEND = nanoseconds(RESEND_S)

Link = tuple[str, str]  # who sends, who receives


class Held(NamedTuple):
    """A message that a cut holds."""

    role: SimulatedRole
    target: SimulatedRole
    message: Message
    size: int
    category: int
    sent: int  # ns


def transmissions(luck: np.random.Generator, chance: float) -> tuple[int, int, int]:
    """How one message fares: (times sent, times lost before it first arrived, times that it arrived again)."""
    sent = lost = arrived = 0
    while True:
        sent += 1
        if luck.random() < chance:
            lost += not arrived
            continue
        arrived += 1
        if luck.random() >= chance:  # the acknowledgement comes through
            return sent, lost, arrived - 1


class Trouble:
    """What is wrong with the links of a run."""

    def __init__(self, run: Any):
        self._run = run
        self._delays: dict[Link, int] = {}  # ns
        self._chances: dict[Link, float] = {}
        self._luck: dict[Link, np.random.Generator] = {}
        self._last: dict[Link, int] = {}  # when the last message of a link arrives
        self._cuts: set[Link] = set()
        self.alone: dict[str, int] = {}  # who is cut off from everybody -> since when, ns
        self._held: list[Held] = []  # in the order in which it was sent

    # what is wrong ----------------------------------------------------------------------------------------------------

    def delay(self, role: SimulatedRole, peer: SimulatedRole, time: int) -> None:
        """Between these two messages come `time` ns later from now on."""
        for link in _links(role, peer):
            self._delays[link] = time

    def drop(self, role: SimulatedRole, peer: SimulatedRole, chance: float) -> None:
        """Between these two a transmission is lost with this chance from now on."""
        for link in _links(role, peer):
            self._chances[link] = chance

    def cut(self, role: SimulatedRole, peer: SimulatedRole) -> None:
        """Between these two nothing passes from now on."""
        self._cuts.update(_links(role, peer))

    def join(self, role: SimulatedRole, peer: SimulatedRole) -> None:
        """Undo `cut`."""
        self._cuts.difference_update(_links(role, peer))

    def is_cut(self, role: SimulatedRole, target: SimulatedRole) -> bool:
        """Whether what `role` sends to `target` is held."""
        if role.node == target.node:
            return False
        return role.name in self.alone or target.name in self.alone or (role.name, target.name) in self._cuts

    # messages ---------------------------------------------------------------------------------------------------------

    def post(self, role: SimulatedRole, target: SimulatedRole, message: Message, size: int, category: int) -> None:
        """See `Clockwork.post`."""
        role.touched = target.touched = True
        role.counters.bytes[category] += size
        role.counters.messages += 1
        mail = Held(role, target, message, size, category, self._run.now)
        if self.is_cut(role, target):
            self._held.append(mail)
        else:
            self._send(mail)

    def release(self) -> None:
        """Send what is held no longer."""
        free = [mail for mail in self._held if not self.is_cut(mail.role, mail.target)]
        self._held = [mail for mail in self._held if self.is_cut(mail.role, mail.target)]
        for mail in free:
            self._send(mail)

    def held(self) -> list[tuple[SimulatedRole, Message]]:
        """(receiver, message) of all that cuts hold."""
        return [(mail.target, mail.message) for mail in self._held]

    def held_links(self) -> list[Link]:
        """The links that hold something, each once."""
        return list(dict.fromkeys((mail.role.name, mail.target.name) for mail in self._held))

    def forget(self, names: set[str]) -> None:
        """What is held from or to these never arrives."""
        self._held = [m for m in self._held if m.role.name not in names and m.target.name not in names]

    def _send(self, mail: Held) -> None:
        role, target, message, size, category, began = mail
        run, now, link = self._run, self._run.now, (mail.role.name, mail.target.name)
        apart = role.node != target.node and category != EVALUATION
        arrival, sent = now, 1
        if apart:
            arrival = run._network.arrival(now, role.node, target.node, size) + self._delays.get(link, 0)
            chance = self._chances.get(link)
            if chance:
                sent, lost, again = transmissions(self._of(link, role, target), chance)
                arrival += lost * RESEND
                role.counters.bytes[category] += (sent - 1) * size
                target.counters.duplicates += again
        last = self._last.get(link, -1)
        arrival = max(arrival, last)
        kind = run._kind_ids[message.__class__]
        role.touched = target.touched = True
        target.recorder.messages += MESSAGE(role.id, kind, category, sent * size, began, arrival)
        if last < now == arrival:
            run._deliver(target, message)
        else:
            self._last[link] = arrival
            run._event(arrival, EARLY, DELIVER, target, message)

    def _of(self, link: Link, role: SimulatedRole, target: SimulatedRole) -> np.random.Generator:
        """The stream of a link: another link, or another role, changes nothing in it."""
        if link not in self._luck:
            spec, other = role.spec, target.spec
            more = (*other.kind.encode(), 0, other.index)
            self._luck[link] = stream(self._run.plan.seed, spec.kind, spec.index, "network", more=more)
        return self._luck[link]


def _links(role: SimulatedRole, peer: SimulatedRole) -> tuple[Link, Link]:
    return (role.name, peer.name), (peer.name, role.name)


class Troubles(Recovery):
    """The commands about the links of a run. `peer` None: every other role."""

    _trouble: Trouble | None
    _cut_off: dict[str, int]  # who is cut off from everybody -> the serial number of its silence
    _strays: set[str]  # who is cut off and has been given up

    def _do_delay(self, command: Delay) -> None:
        for one, other in self._begin(command, LinkDelayed, command.seconds):
            self._links_in_trouble().delay(one, other, nanoseconds(command.seconds))

    def _do_drop(self, command: Drop) -> None:
        for one, other in self._begin(command, LinkLossy, command.chance):
            self._links_in_trouble().drop(one, other, command.chance)

    def _do_cut(self, command: Cut) -> None:
        """A role that is cut off from every other one is given up after `patience` seconds."""
        role, peer = command.role, command.peer
        pairs = self._begin(command, LinkCut)
        trouble = self._links_in_trouble()
        if peer is None and pairs:
            node = self.by_name[role].node
            names = [r.name for r in self.roles if r.node == node and not r.down and r.name not in trouble.alone]
            trouble.alone.update(dict.fromkeys(names, self.now))
            self._watch_silence(names, self._cut_off)
        for one, other in pairs if peer is not None else []:
            trouble.cut(one, other)

    def _do_reconnect(self, command: Reconnect) -> None:
        """What was held is sent now."""
        role, peer = command.role, command.peer
        pairs = self._begin(command, LinkReconnected)
        trouble = self._links_in_trouble()
        if peer is None and pairs:
            for one in [r for r in self.roles if r.node == self.by_name[role].node]:
                self._whole(one.name)
                if one.name in self._strays:
                    self._strays.discard(one.name)
                    after = "was connected again"
                    self.trace.event(RoleFenced(self.now, one.name, self._newest_lost(one.id), after))
        for one, other in pairs:
            trouble.join(one, other)
        trouble.release()

    def _begin(self, command: Delay | Drop | Cut | Reconnect, event: type[LinkEvent], *more: float) -> list[Any]:
        """Log and record a command. Returns the pairs of roles that it is about."""
        role, peer = command.role, command.peer
        target = self.by_name[role]
        others = self.roles if peer is None else [self.by_name[peer]]
        self._log(command)
        self.trace.event(event(self.now, role, peer, *more))
        return [(target, other) for other in others if other is not target]

    def _links_in_trouble(self) -> Trouble:
        if self._trouble is None:
            self._trouble = Trouble(self)
        return self._trouble

    # and what follows -------------------------------------------------------------------------------------------------

    def _begin_whole(self) -> None:
        super()._begin_whole()
        self._cut_off, self._strays = {}, set()

    def _whole(self, name: str) -> None:
        """`name` is not cut off from everybody, or its next incarnation will not be."""
        self._cut_off.pop(name, None)
        if self._trouble is not None:
            self._trouble.alone.pop(name, None)

    def _alone(self, name: str) -> int | None:
        return self._cut_off.get(name)

    def _silent(self, names: list[str], serial: int) -> None:
        strays = [name for name in names if self._cut_off.get(name) == serial]
        super()._silent(names, serial)
        self._strays.update(strays)

    def _lose(self, names: list[str], why: str) -> None:
        for name in names:
            self._whole(name)
            self._strays.discard(name)
        super()._lose(names, why)

    def _forget_mail(self, names: set[str]) -> None:
        super()._forget_mail(names)
        if self._trouble is not None:
            self._trouble.forget(names)

    def _waits_for(self) -> str:
        held = self._trouble.held_links() if self._trouble is not None else []
        cut = [f"{to}, which is cut off from {name}" for name, to in held]
        return "; ".join([said for said in [super()._waits_for()] if said] + cut)

    def _idle(self, time: int) -> bool:
        return not (self._trouble is not None and self._trouble.held()) and super()._idle(time)
