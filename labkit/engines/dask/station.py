"""Where a role stands: its endpoint, its inbox, its clock and its books. What it says and hears goes through here.

Used by the role's thread only. Sending never waits; waiting is `poll`, and nothing else waits.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from ...roles.context import SENT
from ...roles.effects import Posted
from ...roles.layout import RoleSpec
from ...roles.messages import Look, Message, loose_bytes
from ...roles.shard import Shard
from ...trace.events import EngineWarning
from ...trace.recorder import MESSAGE, Recorder
from ...trace.vocabulary import EVALUATION, SEND, STARTUP, TRAINING
from ..booking import hand_on, refused
from ..laws import Law
from ..parts import Plan
from .keeping import Keeper
from .mailbox import Slot
from .transport.endpoint import Endpoint

__all__ = ["Station", "Ticket"]


@dataclass(frozen=True)
class Ticket:
    """All that a life of a role, one task, is given. `plan` carries no data; `objective` is the role's own.

    `folder`: where checkpoints are kept; None: nowhere. `every`: seconds between two of a shard, None: as often as is
    cheap. `together`: the shards are parts of one step, and keep the versions that they are told. `restored`: the
    state that the life begins with (None: the first weights), and whether nothing of it was lost; without it, a first
    life begins with the first weights, and a later one with its own checkpoint. `age`: of the run, as `Store` has it.
    """

    run: str
    index: int
    incarnation: int
    plan: Plan
    objective: Any
    pace: Law | None
    server_time: Law | None
    factor: float
    folder: str | None
    ours: bool  # the processes are labkit's own, on this machine
    every: float | None = None
    together: bool = False
    restored: tuple[dict[str, Any] | None, bool] | None = None
    age: int = 0

    @property
    def spec(self) -> RoleSpec:
        """The role's entry in the layout."""
        return self.plan.layout.roles[self.index]


class Station:
    """The part of a role's thread that is the same whatever the role does."""

    shard: Shard | None

    def __init__(self, ticket: Ticket, endpoint: Endpoint, slot: Slot):
        self.ticket, self.plan, self.spec = ticket, ticket.plan, ticket.spec
        self.strategy = ticket.plan.strategy
        self.endpoint, self.slot = endpoint, slot
        self.zero = 0  # the machine's nanoseconds at engine time zero, pauses added
        self.frozen: int | None = None  # engine time at which a pause began
        self.incarnation = ticket.incarnation
        self.recorder = Recorder(ticket.index, ticket.incarnation, self.plan.record, len(self.plan.role_ids))
        if self.spec.shard is not None or self.spec.backs is not None:  # what of its drops was reported may be lost with it
            self.recorder.unacknowledged = deque()
        self.counters = self.recorder.counters
        self.ids = self.plan.role_ids
        self.kinds = self.plan.message_set
        self.inbox: deque[Message] = deque()
        self.poll = endpoint.poll  # wait for messages, at most so many seconds
        endpoint.deliver = self._delivered
        self.trained: set[str] = set()  # peers that have computed a gradient
        self.lives: dict[str, int] = {}  # the newest life of each role, as far as is known here
        self.listens: tuple[type, ...] = ()  # kinds of message that it waited for last
        self.unaware: set[str] = set()  # who is lost, or back, and it does not know yet: it talks to nobody
        self.keeper = Keeper(ticket, self._trouble)

    def clock(self) -> int:
        """Engine time, ns."""
        return time.monotonic_ns() - self.zero if self.frozen is None else self.frozen

    def send(self, to: str | Message, message: Message) -> Posted:
        """Say `message` to role `to`: see `Context.send`."""
        followed = False
        if to.__class__ is not str:
            followed = to.incarnation != self.lives.get(to.sender, 0)  # type: ignore[union-attr]
            to = to.sender  # type: ignore[union-attr]
        counters, category, now = self.counters, TRAINING, self.clock()
        if to not in self.ids or message.__class__ not in self.kinds:
            raise refused(self.spec.name, to, message, self.ids, self.strategy)
        kind = message.__class__
        if message.carries:
            hand_on(self.recorder, now, message)
        elif kind.reads:
            counters.reads[self.ids[to]] = message.version  # type: ignore[attr-defined]
            if to not in self.trained and not (counters.computed or counters.steps):
                category = STARTUP
        elif kind is Look:
            category = EVALUATION
        elif not (counters.computed or counters.steps) and to not in self.trained:
            category = STARTUP
        if followed or (self.unaware and to in self.unaware):  # said to somebody who is not there any more
            counters.messages += 1
            return SENT
        counters.bytes[category] += self.endpoint.send(to, message, category, counters.computed or counters.steps)
        counters.messages += 1
        counters.phases[SEND] += self.clock() - now
        return SENT

    def _delivered(
        self, message: Message, kind: int, category: int, nbytes: int, sent_ns: int, received_ns: int, computed: int
    ) -> None:
        """A message has arrived: record it, and put it into the inbox."""
        sender = message.sender
        nbytes += loose_bytes(message)
        self.recorder.messages += MESSAGE(self.ids[sender], kind, category, nbytes, sent_ns, received_ns)
        if computed and not (self.counters.computed or self.counters.steps):
            self.trained.add(sender)
        if message.__class__ is Look:
            self._look(message)
        else:
            self.inbox.append(message)

    def find(self, kinds: tuple[type, ...], sender: str | None) -> Message | None:
        """Take the first message of these kinds (from `sender`) out of the inbox, if there is one."""
        inbox = self.inbox
        for i, message in enumerate(inbox):
            if message.__class__ in kinds and (sender is None or message.sender == sender):
                del inbox[i]
                if message.carries:
                    life = self.ids[message.sender] + message.incarnation * len(self.ids)
                    self.counters.taken[life] = message.step  # type: ignore[attr-defined]
                if self.unaware and message.incarnation == self.lives[message.sender]:
                    self.unaware.discard(message.sender)  # it is, or talks about, the newest life
                return message
        return None

    def has(self, kind: type) -> bool:
        """Whether a message of this kind has come."""
        if not self.slot.flag:
            self.poll(0.0)
        return any(message.__class__ is kind for message in self.inbox)

    def _look(self, look: Any) -> None:
        """The chief asks to see the shard: now, or when it comes to a certain version."""
        assert self.shard is not None
        if self.shard.requested(look.at, look.final):
            self._show(look.final)

    def watch(self, shard: Shard) -> None:
        """The shard has come to a version that the chief wants to see."""
        self._show(False)

    def _show(self, final: bool) -> None:
        shard = self.shard
        assert shard is not None
        snapshot = shard.evaluation(final, self.clock())
        self.counters.bytes[EVALUATION] += self.endpoint.send("chief", snapshot, EVALUATION, self.counters.computed)

    def _trouble(self, what: str) -> None:
        self.recorder.event(EngineWarning(self.clock(), f"{self.spec.name} {what}"))
