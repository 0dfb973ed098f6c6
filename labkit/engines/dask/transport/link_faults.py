"""Faults of links, injected into real connections: frames are delayed, frames are lost and retransmitted, links are cut.

A fault changes when a frame passes, never whether, how often or in which order a message is delivered. A link with a fault is
a delayed link: frames are copied into it and handed to its connection in the order in which they were sent, when they are due.
A link without faults has no such queue, and costs nothing.

- Delay: a frame is handed over `delay` seconds after it was sent.
- Drop: every transmission fails with the same probability, and so does every acknowledgement. A frame that was not
  acknowledged is retransmitted after `RESEND_S`. All frames behind a lost transmission wait; after a lost acknowledgement the
  frame arrives once more, and the receiver discards it by its number. The sockets of a kernel lose nothing, so the losses are
  drawn here.
- Cut: the frames that the stream has not begun to take come back into the queue, the close frame `SUSPENDED` is sent, and
  the connection is ended behind it. The receiver reads up to the close frame, remembers the number of the last frame, and
  closes. This proves to the sender that all frames before have arrived: only then does it dial again, if the link is not cut
  any more, and its hello says which number comes next. A receiver that has heard of a cut before its sender accepts new
  connections and suspends reading (see `Endpoint`): no frame that waits in them is lost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from ....errors import BadInput, shown
from ....nn.pool import BufferPool
from ...commands import RESEND_S
from .connection import SendConnection, copied
from .frames import FINAL, SUSPENDED, Piece
from .links import Links

__all__ = ["DelayedLink", "LinkFault", "LinkFaults"]


class LinkFault(NamedTuple):
    """How a link behaves: seconds of delay, probability that a transmission is lost, whether it is cut."""

    delay: float = 0.0
    drop: float = 0.0
    cut: bool = False

    def checked(self) -> LinkFault:
        """Itself; `BadInput` if a number is not allowed."""
        if not 0 <= self.delay < math.inf:
            raise BadInput(f"A link cannot be delayed by {shown(self.delay)} s; allowed: 0 or more.")
        if not 0 <= self.drop <= 1:
            raise BadInput(f"A link cannot lose frames with chance {shown(self.drop)}; allowed: 0 to 1.")
        return self


class Held(NamedTuple):
    """A frame in a delayed link: when it is due (seconds), its number, its bytes; None: the final close frame."""

    due: float
    sequence: int
    data: memoryview | None


class DelayedLink:
    """The link to one peer while it has a fault, or recovers from one. `sequence`: number of the newest frame."""

    def __init__(self, name: str, connection: SendConnection | None, sequence: int) -> None:
        self.name, self.connection, self.sequence = name, connection, sequence
        self.held: deque[Held] = deque()  # not handed to a connection yet, in order
        self.unacknowledged: deque[Held] = deque()  # handed over, but the acknowledgement was lost
        self.suspending = False  # the connection has sent SUSPENDED, and the peer has not closed it yet


class LinkFaults:
    """The faults of all links of a role. `random(peer)`: the source of chance of one link. `now`: seconds.

    To read: `delayed`, the links with faults, by peer.
    """

    def __init__(
        self, links: Links, pool: BufferPool, random: Callable[[str], Random], now: Callable[[], float],
        resend: float = RESEND_S,
    ) -> None:  # fmt: skip
        self._links, self._pool, self._new_random, self._now, self._resend = links, pool, random, now, resend
        self.delayed: dict[str, DelayedLink] = {}
        self._stopped = False
        self._common, self._own = LinkFault(), dict[str, LinkFault]()
        self._random: dict[str, Random] = {}

    def fault(self, name: str) -> LinkFault:
        """How the link to and from `name` behaves."""
        return self._own.get(name, self._common)

    def set(self, peer: str | None, fault: LinkFault) -> None:
        """From now on the link to `peer` behaves so; None: every link, also those that begin later."""
        if peer is None:
            self._common = fault
            self._own.clear()
        else:
            self._own[peer] = fault
        for name in sorted({*self._links.direct, *self.delayed}) if peer is None else [peer]:
            self._apply(name, self._now())

    def _apply(self, name: str, now: float) -> None:
        fault, link = self.fault(name), self.delayed.get(name)
        if link is None:
            connection = self._links.take(name, self._ended) if any(fault) else None
            if connection is None:
                return
            link = self.delayed[name] = DelayedLink(name, connection, connection.sequence)
        link.held = deque(item._replace(due=min(item.due, now + fault.delay)) for item in link.held)
        if fault.cut and link.connection is not None and not link.suspending:
            self._suspend(link, link.connection, now)
        self._release(link, now)

    def _suspend(self, link: DelayedLink, connection: SendConnection, now: float) -> None:
        """End the connection in order. What its stream has not begun to take comes back."""
        link.suspending = True
        link.unacknowledged.clear()  # that the peer closes acknowledges all frames
        back = connection.take_back()
        items = [Held(now, number, data) for number, data in enumerate(back, connection.sequence + 1)]
        link.held.extendleft(reversed(items))
        connection.finish(SUSPENDED)

    def reach(self, name: str) -> DelayedLink | None:
        """The link to `name`, if it has a fault, or a new one would have."""
        link = self.delayed.get(name)
        if link is None and any(self.fault(name)):
            link = self.delayed[name] = DelayedLink(name, None, self._links.last_sequence(name))
        return link

    def hold(self, link: DelayedLink, pieces: Sequence[Piece]) -> None:
        """Send frame number `link.sequence` when it is due."""
        now = self._now()
        link.held.append(Held(now + self.fault(link.name).delay, link.sequence, copied(pieces, self._pool)))
        self._release(link, now)

    def release(self) -> float:
        """Hand over what is due. Returns the seconds until more is."""
        if self._stopped:
            return math.inf
        now, due = self._now(), math.inf
        for link in list(self.delayed.values()):
            self._release(link, now)
            if not (link.suspending or self.fault(link.name).cut):
                due = min(due, *(items[0].due for items in (link.held, link.unacknowledged) if items), math.inf)
        return max(0.0, due - now)

    def stop(self) -> None:
        """Hand over nothing any more."""
        self._stopped = True

    def _release(self, link: DelayedLink, now: float) -> None:
        fault = self.fault(link.name)
        if self._stopped or fault.cut or link.suspending:
            return
        while link.held and link.held[0].due <= now:
            item = link.held[0]
            if item.data is not None and self._lost(link, fault.drop):
                link.held[0] = item._replace(due=now + self._resend)
                break
            if not self._transmit(link, item):
                return
            if self._lost(link, fault.drop):
                link.unacknowledged.append(item._replace(due=now + self._resend))
        while link.unacknowledged and link.unacknowledged[0].due <= now and link.connection is not None:
            item = link.unacknowledged.popleft()
            arrives = not self._lost(link, fault.drop)
            if not arrives or self._lost(link, fault.drop):
                link.unacknowledged.append(item._replace(due=now + self._resend))
            if arrives and item.data is not None:
                link.connection.send([item.data], 0)
        if not any(fault) and not link.held and self.delayed.get(link.name) is link:
            del self.delayed[link.name]
            if link.connection is not None:
                self._links.give_back(link.connection)

    def _transmit(self, link: DelayedLink, item: Held) -> bool:
        """Hand the first held frame to the connection. False if nothing can follow it."""
        if link.connection is None:
            self._links.dial(link.name)
            link.connection = self._links.take(link.name, self._ended)
            if link.connection is None:
                self._abandon(link)
                return False
        connection = link.connection
        link.held.popleft()
        if item.data is None:
            del self.delayed[link.name]
            connection.finish(FINAL)
            return False
        connection.sequence = item.sequence
        connection.send([item.data])
        return link.connection is not None

    def _lost(self, link: DelayedLink, probability: float) -> bool:
        if not probability:
            return False
        random = self._random.get(link.name)
        if random is None:
            random = self._random[link.name] = self._new_random(link.name)
        return random.random() < probability

    def _ended(self, connection: SendConnection, reason: str) -> None:
        """A connection has ended: of one that was suspended, and had nothing left to send, the peer has read everything."""
        link = self.delayed.get(connection.name)
        if link is None or link.connection is not connection:
            return
        link.connection = None
        if link.suspending and connection.complete:
            link.suspending = False
            self._links.suspended(connection)
        else:
            self._links.unreachable[link.name] = reason
            self._abandon(link)

    def _abandon(self, link: DelayedLink) -> None:
        """The peer is gone, and what is held for it is undelivered."""
        self.delayed.pop(link.name, None)
        self._links.undeliver(link.name, sum(item.data is not None for item in link.held))
        link.held.clear()

    def forget(self, name: str) -> None:
        """The peer is gone. The fault of its link is kept: it will be that of the next incarnation's."""
        link = self.delayed.get(name)
        if link is not None:
            self._abandon(link)
            if link.connection is not None:
                link.connection.end("forgotten")

    def finish(self) -> None:
        """Send the final close frame behind all that is held."""
        for link in list(self.delayed.values()):
            if link.held or (link.connection is not None and not link.suspending):
                due = link.held[-1].due if link.held else 0.0
                link.held.append(Held(due, link.sequence + 1, None))
                self._release(link, self._now())

    @property
    def waiting(self) -> bool:
        """Whether a frame is held that may still pass."""
        return any(link.held and not self.fault(link.name).cut for link in self.delayed.values())

    def messages(self) -> Iterator[tuple[str, memoryview]]:
        """(to, frame) of every message that is held."""
        for link in self.delayed.values():
            yield from ((link.name, item.data) for item in link.held if item.data is not None)

    def close(self) -> None:
        """What is held is undelivered."""
        for link in list(self.delayed.values()):
            self._abandon(link)
