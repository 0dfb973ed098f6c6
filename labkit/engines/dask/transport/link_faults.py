"""Link faults, injected into real connections: bandwidth is limited, frames are delayed, frames are lost and retransmitted, links
are cut.

A fault changes when a frame is transmitted; every message is still delivered once and in order. A link with a fault is
a delayed link: frames are copied into its queue, and passed to its connection in order when they are due. A link
without faults has no such queue, and no overhead.

- Limit: a role sends one frame at a time, over all of its links, and receives one frame at a time. A frame is passed to the
  connection when its last byte would have been sent at the bandwidth of the slower end. The receiver keeps frames that arrive
  faster than its own bandwidth (`LimitedArrivals`). Frames are not split, and those on their way keep their times.
- Delay: a frame is passed to the connection `delay` seconds after it was sent.
- Drop: every transmission is lost with the same probability, and so is every acknowledgement. A frame that was not
  acknowledged is retransmitted after `RESEND_S`. After a lost transmission, all later frames wait. After a lost
  acknowledgement, the frame arrives twice, and the receiver discards the duplicate by its number. Kernel sockets do not
  lose frames, so the losses are drawn here.
- Cut: frames of which the stream has accepted no byte return to the queue, the close frame `SUSPENDED` is sent, and the
  connection ends after this frame. The receiver reads up to the close frame, stores the number of the last frame, and
  closes the connection. The close proves to the sender that all earlier frames have arrived. Only then, and after the
  link was reconnected, the sender dials again; its hello contains the number of the last frame. If the receiver is
  notified of a cut before the sender is, the receiver accepts new connections but suspends reading from them (see
  `Endpoint`), so no frame is lost.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from ....errors import BadInput, shown
from ....nn.buffer_pool import BufferPool
from ...commands import RESEND_S
from .connection import SendConnection, copied
from .frames import FINAL, SUSPENDED, Piece
from .links import RoleLinks


class LinkFault(NamedTuple):
    """The fault of a link: delay in seconds, probability that a transmission is lost, whether it is cut, and the seconds for
    which a byte occupies the slower of its ends.
    """

    delay: float = 0.0
    drop: float = 0.0
    cut: bool = False
    per_byte: float = 0.0

    def checked(self) -> LinkFault:
        """Return the fault itself. Raises `BadInput` if a number is not allowed."""
        if not 0 <= self.delay < math.inf:
            raise BadInput(f"A link cannot be delayed by {shown(self.delay)} s; allowed: 0 or more.")
        if not 0 <= self.drop <= 1:
            raise BadInput(f"A link cannot lose frames with chance {shown(self.drop)}; allowed: 0 to 1.")
        if not 0 <= self.per_byte < math.inf:
            raise BadInput(f"A byte cannot take {shown(self.per_byte)} s; allowed: 0 or more.")
        return self


class HeldFrame(NamedTuple):
    """A frame in a delayed link: its due time (seconds), its number, its bytes (None: the final close frame), the time at which
    its last byte is sent (None: the link is cut), and its size, in bytes, for a limited bandwidth.
    """

    due: float
    sequence: int
    data: memoryview | None
    sent: float | None = 0.0
    size: int = 0


class LimitedArrivals:
    """Messages that have arrived faster than the bandwidth of their receiver, until they are due. `now`: clock, seconds.

    Attribute to set: `per_byte`, the seconds for which a byte that is received occupies this role.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.per_byte = 0.0
        self._now, self._busy_until = now, -math.inf
        self._arrived = self._waits_since = now()  # the earliest time at which what is read now can have arrived
        self._last: dict[str, float] = {}  # {sender: when its last message is due}; the order of a link is kept
        self._held: list[tuple[float, int, str, Callable[[], None]]] = []  # a heap of (due, number, sender, deliver)
        self._numbers = count()

    def before_wait(self, timeout: float) -> float:
        """Return the seconds that the role may wait for messages, at most `timeout`."""
        self._waits_since = self._now()
        return max(0.0, min(timeout, self._held[0][0] - self._waits_since)) if self._held else timeout

    def after_wait(self) -> None:
        """Decide when the messages that are read now have arrived.

        If the role waited for longer than it was busy before, they have just arrived. Otherwise they may have arrived at any
        time, and the earliest one counts, because a message is received while the role computes.
        """
        now = self._now()
        if now - self._waits_since >= self._waits_since - self._arrived:
            self._arrived = now

    def add(self, sender: str, size: int, deliver: Callable[[], None]) -> None:
        """Call `deliver`, at once or in `release`, when a message of `size` bytes has been received."""
        due = self._last.get(sender, -math.inf)
        if size and self.per_byte:
            self._busy_until = max(self._arrived, self._busy_until + size * self.per_byte)
            due = max(due, self._busy_until)
        self._last[sender] = due
        heapq.heappush(self._held, (due, next(self._numbers), sender, deliver))
        self._deliver(self._now())

    def release(self) -> None:
        """Deliver the messages that are due."""
        self._arrived = self._now()
        self._deliver(self._arrived)

    def _deliver(self, now: float) -> None:
        while self._held and self._held[0][0] <= now:
            heapq.heappop(self._held)[-1]()

    def forget(self, sender: str) -> None:
        """Discard the messages of a sender, which has been replaced."""
        self._last.pop(sender, None)
        self._held = [held for held in self._held if held[2] != sender]
        heapq.heapify(self._held)

    def drain(self) -> None:
        """Deliver all messages, and hold none from now on."""
        self.per_byte = 0.0
        self._last.clear()
        held, self._held = sorted(self._held), []
        for *_, deliver in held:
            deliver()


class DelayedLink:
    """The link to one peer while the link has a fault, or recovers from a fault. `sequence`: number of the newest frame."""

    def __init__(self, name: str, connection: SendConnection | None, sequence: int) -> None:
        self.name, self.connection, self.sequence = name, connection, sequence
        self.held: deque[HeldFrame] = deque()  # frames not passed to a connection yet, in order
        self.unacknowledged: deque[HeldFrame] = deque()  # transmitted frames whose acknowledgement was lost
        self.suspending = False  # SUSPENDED was sent on the connection, and the peer has not closed the connection yet


class FaultyLinks:
    """The faults of all links of a role. `random(peer)`: random generator of one link. `now`: clock, seconds.

    Attribute to read: `delayed`, {peer: link with a fault}. Attribute to set: `per_byte`, the seconds for which a byte that
    is sent occupies this role.
    """

    def __init__(
        self, links: RoleLinks, pool: BufferPool, random: Callable[[str], Random], now: Callable[[], float],
        resend: float = RESEND_S,
    ) -> None:  # fmt: skip
        self._links, self._pool, self._new_random, self._now, self._resend = links, pool, random, now, resend
        self.delayed: dict[str, DelayedLink] = {}
        self.per_byte, self._busy_until = 0.0, -math.inf
        self._stopped = False
        self._common, self._own = LinkFault(), dict[str, LinkFault]()
        self._random: dict[str, Random] = {}

    def fault(self, name: str) -> LinkFault:
        return self._own.get(name, self._common)

    def set(self, peer: str | None, fault: LinkFault) -> None:
        """Set the fault of the link to `peer`; None: of every link, including later ones."""
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
        link.held = deque(self._rescheduled(item, fault, now) for item in link.held)
        if fault.cut and link.connection is not None and not link.suspending:
            self._suspend(link, link.connection, now)
        self._release(link, now)

    def _suspend(self, link: DelayedLink, connection: SendConnection, now: float) -> None:
        """End the connection with a close frame. Frames of which the stream has accepted no byte return to the queue."""
        link.suspending = True
        link.unacknowledged.clear()  # the peer's close acknowledges all frames
        back = connection.take_back()
        items = [HeldFrame(now, number, data, now) for number, data in enumerate(back, connection.sequence + 1)]
        link.held.extendleft(reversed(items))
        connection.finish(SUSPENDED)

    def reach(self, name: str) -> DelayedLink | None:
        """Return the delayed link to `name`, or None if the link has no fault. Creates the delayed link if necessary."""
        link = self.delayed.get(name)
        if link is None and any(self.fault(name)):
            link = self.delayed[name] = DelayedLink(name, None, self._links.last_sequence(name))
        return link

    def hold(self, link: DelayedLink, pieces: Sequence[Piece], size: int) -> None:
        """Queue frame number `link.sequence`, and send it when it is due. `size`: bytes for which it occupies a limited role."""
        now, fault = self._now(), self.fault(link.name)
        item = HeldFrame(math.inf, link.sequence, copied(pieces, self._pool), None, size)
        link.held.append(self._rescheduled(item, fault, now))
        self._release(link, now)

    def _rescheduled(self, item: HeldFrame, fault: LinkFault, now: float) -> HeldFrame:
        """Return a held frame with its due time under a new fault. A frame of a cut link occupies the role after the cut."""
        if fault.cut and item.sent is None:
            return item
        if item.sent is None:
            start = now
            if item.size and self.per_byte:
                start = max(now, self._busy_until)
                self._busy_until = start + item.size * self.per_byte
            item = item._replace(sent=start + item.size * fault.per_byte)
        assert item.sent is not None
        return item._replace(due=min(item.due, max(now, item.sent) + fault.delay))

    def release(self) -> float:
        """Send the frames that are due. Returns the seconds until the next frame is due."""
        if self._stopped:
            return math.inf
        now, due = self._now(), math.inf
        for link in list(self.delayed.values()):
            self._release(link, now)
            if not (link.suspending or self.fault(link.name).cut):
                due = min(due, *(items[0].due for items in (link.held, link.unacknowledged) if items), math.inf)
        return max(0.0, due - now)

    def stop(self) -> None:
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
                self._links.return_connection(link.connection)

    def _transmit(self, link: DelayedLink, item: HeldFrame) -> bool:
        """Pass the first held frame to the connection. Returns False if no frame can follow it."""
        if link.connection is None:
            self._links.dial(link.name)
            link.connection = self._links.take(link.name, self._ended)
            if link.connection is None:
                self._discard(link)
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
        """Handle the end of a connection.

        If the connection was suspended and its queue was empty, the peer has read all frames.
        """
        link = self.delayed.get(connection.name)
        if link is None or link.connection is not connection:
            return
        link.connection = None
        if link.suspending and connection.complete:
            link.suspending = False
            self._links.suspended(connection)
        else:
            self._links.unreachable[link.name] = reason
            self._discard(link)

    def _discard(self, link: DelayedLink) -> None:
        """Remove the link to a peer that is gone; its held messages count as undelivered."""
        self.delayed.pop(link.name, None)
        self._links.count_undelivered(link.name, sum(item.data is not None for item in link.held))
        link.held.clear()

    def forget(self, name: str) -> None:
        """Remove the link to a peer that is gone. The fault is kept for the link to its next incarnation."""
        link = self.delayed.get(name)
        if link is not None:
            self._discard(link)
            if link.connection is not None:
                link.connection.end("forgotten")

    def finish(self) -> None:
        """Send the final close frame after all held frames."""
        for link in list(self.delayed.values()):
            if link.held or (link.connection is not None and not link.suspending):
                due = link.held[-1].due if link.held else 0.0
                link.held.append(HeldFrame(due, link.sequence + 1, None))
                self._release(link, self._now())

    @property
    def waiting(self) -> bool:
        """Whether frames are held on links that are not cut."""
        return any(link.held and not self.fault(link.name).cut for link in self.delayed.values())

    def messages(self) -> Iterator[tuple[str, memoryview]]:
        """Yield (to, frame) of every held message."""
        for link in self.delayed.values():
            yield from ((link.name, item.data) for item in link.held if item.data is not None)

    def close(self) -> None:
        """Remove all links; held messages count as undelivered."""
        for link in list(self.delayed.values()):
            self._discard(link)
