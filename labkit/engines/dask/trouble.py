"""Trouble on links, for real: frames that come late, frames that are lost and said again, connections that are cut.

Law: trouble changes when a frame passes, never whether, how often or in which order a message is delivered. A peer
whose link is in trouble has a line: frames are copied into it and handed to the link in the order in which they were
sent, when they may. A link without trouble has no line, and is not slowed by the possibility of one.

- Late: a frame is handed over `delay` seconds after it was sent.
- Lost: every transmission fails with the same chance, and so does every acknowledgement. What was not acknowledged is
  said again `RESEND_S` later. Behind a lost transmission all that follow wait; after a lost acknowledgement the frame
  arrives once more, and the receiver knows it by its number. A kernel's sockets lose nothing, so the dice are thrown
  here.
- Cut: the frames that the kernel has not begun to take come back into the line, `PAUSED` is said as the last word, and
  the connection is shut. The receiver reads up to that word, remembers the number of the last frame, and closes. That
  is the sender's proof that all before has arrived: only then does it dial again, if it may, and its hello says which
  number comes next. A receiver that has heard of a cut before its sender takes new connections in and leaves them
  unread (`Wire`): nothing that waits in them is lost.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from ...errors import BadInput, shown
from .frames import GOODBYE, PAUSED, last_words
from .outbound import Outbound
from .outgoing import Outgoing, copied

__all__ = ["RESEND_S", "Line", "Lines", "Trouble"]

RESEND_S = 0.05


class Trouble(NamedTuple):
    """How a link behaves: seconds of delay, chance that a transmission is lost, whether it is cut."""

    delay: float = 0.0
    drop: float = 0.0
    cut: bool = False

    def checked(self) -> Trouble:
        """Itself; `BadInput` if a number is not allowed."""
        if not 0 <= self.delay < math.inf:
            raise BadInput(f"A link cannot be delayed by {shown(self.delay)} s; allowed: 0 or more.")
        if not 0 <= self.drop <= 1:
            raise BadInput(f"A link cannot lose frames with chance {shown(self.drop)}; allowed: 0 to 1.")
        return self


class Held(NamedTuple):
    """A frame in a line: when it is due (`time.monotonic`), its number, its bytes. `counts`: it is a message, and no
    goodbye."""

    due: float
    sequence: int
    data: memoryview
    counts: bool = True


class Line:
    """What is said to one peer whose link is in trouble, or recovers from it. `sequence`: of the newest frame."""

    def __init__(self, name: str, link: Outgoing | None, sequence: int) -> None:
        self.name, self.link, self.sequence = name, link, sequence
        self.held: deque[Held] = deque()  # not handed to a link yet, in order
        self.again: deque[Held] = deque()  # handed over, but the acknowledgement was lost
        self.closing = False  # the link has said PAUSED, and the peer has not closed it yet


class Lines:
    """All lines of a role; how every link behaves. `dial`: a new link, as `Outbound.dial` makes it.

    `dice`: a peer's own source of chance.
    """

    def __init__(self, out: Outbound, dial: Callable[[str], Outgoing | None], dice: Callable[[str], Random]) -> None:
        self._out, self._dial, self._new_dice = out, dial, dice
        self.by_name: dict[str, Line] = {}
        self.stopped = False  # nothing is handed over any more
        self._common, self._own = Trouble(), dict[str, Trouble]()
        self._dice: dict[str, Random] = {}
        out.released = self._released

    def trouble(self, name: str) -> Trouble:
        """How the link to and from `name` behaves."""
        return self._own.get(name, self._common)

    def impair(self, peer: str | None, trouble: Trouble) -> None:
        """From now on the link to `peer` behaves so; None: every link, also those that are opened later."""
        if peer is None:
            self._common = trouble
            self._own.clear()
        else:
            self._own[peer] = trouble
        for name in sorted({*self._out.by_name, *self.by_name}) if peer is None else [peer]:
            self._apply(name, time.monotonic())

    def _apply(self, name: str, now: float) -> None:
        trouble, line = self.trouble(name), self.by_name.get(name)
        if line is None:
            link = self._out.by_name.get(name)
            if link is None or not any(trouble):
                return
            del self._out.by_name[name]
            line = self.by_name[name] = Line(name, link, link.sequence)
        line.held = deque(item._replace(due=min(item.due, now + trouble.delay)) for item in line.held)
        if trouble.cut and line.link is not None and not line.closing:
            self._pause(line, line.link, now)
        self._pump(line, now)

    def _pause(self, line: Line, link: Outgoing, now: float) -> None:
        """Shut the link in order. What the kernel has not begun to take comes back."""
        line.closing = True
        line.again.clear()  # that the peer will have closed says more than any acknowledgement
        back = link.take_back()
        link.sequence -= len(back)
        items = [Held(now, number, data) for number, data in enumerate(back, link.sequence + 1)]
        line.held.extendleft(reversed(items))
        self._out.last(link, last_words(PAUSED, link.sequence + 1))

    def reach(self, name: str) -> Line | None:
        """The line to `name`, if its link is, or would be, in trouble."""
        line = self.by_name.get(name)
        if line is None and any(self.trouble(name)):
            line = self.by_name[name] = Line(name, None, self._out.after.get(name, 0))
        return line

    def hold(self, line: Line, pieces: list[Any]) -> None:
        """Frame number `line.sequence` shall be sent."""
        now = time.monotonic()
        line.held.append(Held(now + self.trouble(line.name).delay, line.sequence, copied(pieces, self._out.pool)))
        self._pump(line, now)

    def pump(self) -> float:
        """Hand over what is due. Returns the seconds until more is."""
        if self.stopped:
            return math.inf
        now, due = time.monotonic(), math.inf
        for line in list(self.by_name.values()):
            self._pump(line, now)
            if not (line.closing or self.trouble(line.name).cut):
                due = min(due, *(items[0].due for items in (line.held, line.again) if items), math.inf)
        return max(0.0, due - now)

    def _pump(self, line: Line, now: float) -> None:
        trouble = self.trouble(line.name)
        if self.stopped or trouble.cut or line.closing:
            return
        while line.held and line.held[0].due <= now:
            item = line.held[0]
            if item.counts and self._lost(line, trouble.drop):
                line.held[0] = item._replace(due=now + RESEND_S)
                break
            if not self._hand_over(line, item):
                return
            if self._lost(line, trouble.drop):
                line.again.append(item._replace(due=now + RESEND_S))
        while line.again and line.again[0].due <= now and line.link is not None:
            item = line.again.popleft()
            arrives = not self._lost(line, trouble.drop)
            if not arrives or self._lost(line, trouble.drop):
                line.again.append(item._replace(due=now + RESEND_S))
            if arrives:
                self._out.put(line.link, [item.data], 0)
        if not any(trouble) and not line.held and self.by_name.get(line.name) is line:
            del self.by_name[line.name]
            if line.link is not None:
                self._out.by_name[line.name] = line.link

    def _hand_over(self, line: Line, item: Held) -> bool:
        """The first frame of the line goes to the link. False if nothing can follow it."""
        if line.link is None:
            line.link = self._dial(line.name)
            if line.link is None:
                self._abandon(line)
                return False
            self._out.by_name.pop(line.name)
        line.held.popleft()
        if not item.counts:
            del self.by_name[line.name]
            self._out.last(line.link, bytes(item.data))
            return False
        line.link.sequence = item.sequence
        self._out.put(line.link, [item.data], 1)
        return line.link is not None

    def _lost(self, line: Line, chance: float) -> bool:
        if not chance:
            return False
        dice = self._dice.get(line.name)
        if dice is None:
            dice = self._dice[line.name] = self._new_dice(line.name)
        return dice.random() < chance

    def _released(self, link: Outgoing, said_all: bool, why: str) -> None:
        """A link has ended: of one that was shut in order, and had said all, the peer has read all."""
        line = self.by_name.get(link.name)
        if line is None or line.link is not link:
            return
        line.link = None
        if line.closing and said_all:
            line.closing = False
            self._out.after[line.name] = link.sequence
        else:
            self._out.broken[line.name] = why
            self._abandon(line)

    def _abandon(self, line: Line) -> None:
        """The peer is gone, and what waits for it is undelivered."""
        self.by_name.pop(line.name, None)
        self._out.undeliver(line.name, sum(item.counts for item in line.held))
        line.held.clear()

    def forget(self, name: str) -> None:
        """The peer is gone. How its link behaves is not forgotten: the next incarnation's will be the same."""
        line = self.by_name.get(name)
        if line is not None:
            self._abandon(line)
            if line.link is not None:
                self._out.gone(line.link, "forgotten")

    def finish(self) -> None:
        """A goodbye behind all that is held."""
        for line in list(self.by_name.values()):
            if line.held or (line.link is not None and not line.closing):
                due = line.held[-1].due if line.held else 0.0
                goodbye = memoryview(last_words(GOODBYE, line.sequence + 1))
                line.held.append(Held(due, line.sequence + 1, goodbye, counts=False))
                self._pump(line, time.monotonic())

    def busy(self) -> bool:
        """Whether something is held that may still pass."""
        return any(line.held and not self.trouble(line.name).cut for line in self.by_name.values())

    def frames(self) -> Iterator[tuple[str, memoryview]]:
        """(to, frame) of every message that is held."""
        for line in self.by_name.values():
            yield from ((line.name, item.data) for item in line.held if item.counts)

    def close(self) -> None:
        """What is held is undelivered."""
        for line in list(self.by_name.values()):
            self._abandon(line)
