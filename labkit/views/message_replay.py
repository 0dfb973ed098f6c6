"""Slow-motion replay of the messages of one update, for the topology panel. It is a function of the trace and the time
only.

Messages take microseconds and frames are a tenth of a second apart, so messages cannot be shown in real time. Time is
divided into loops of a few seconds. Each loop replays the last update that was complete when the loop began. For a
gradient of a worker, the replay begins with the reply to its previous gradient: it shows the read, the computation, the
gradient in flight, and all messages of other roles in that time. The position of `t` in its loop determines the position
in the replay.

The speed of the replay has three modes. If messages are in flight for a large part (`BUSY`) of the time, time is slowed
evenly. Otherwise there are two speeds: slow while a message is in flight, and fast while no message is. On a network
without delay all messages are shown for the same time, one after the other, in causal order. The text below the picture
names the mode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..formatting import duration, short, speed
from ..trace.index import Lookup, SelectedRows
from ..trace.query import gradient_time, skipped
from ..trace.schema import ALL, COMPUTE, EVALUATION, NANO
from ..trace.trace import Trace

LOOP, SHIFT = 4.0, 0.8  # length of a loop on a cluster (s); phase of a loop at time 0
# messages in flight for at least `BUSY` of the time: even speed; otherwise they get `SLOW` of the loop
BUSY, SLOW = 0.3, 0.7
LEAST, REST = 0.03, 0.06  # shares of the loop: minimum time for which a message is visible; pause at the end
MOST = 240  # maximum number of dots
# number of applications that are searched, from the newest backwards and from the oldest forwards
CANDIDATES, FIRST = 40, 200
NEWEST = 4096  # number of the newest applications that are searched before all are searched


def loop_ns(trace: Trace) -> int:
    """Return the length of a loop in engine time (ns): four seconds on a cluster, or about forty gradients in virtual
    time.
    """
    if not trace.header.cluster.simulated:
        return round(LOOP * NANO)
    return round(NANO * 2.0 ** round(np.log2(40 * max(gradient_time(trace), 1.0) / NANO)))


def phase_of(trace: Trace, t: int) -> tuple[float, int]:
    """Return (position of `t` in its loop, from 0 to 1, start of that loop in ns)."""
    loop = loop_ns(trace)
    phase = (t / loop + SHIFT) % 1.0
    return phase, max(0, round(t - phase * loop))


@dataclass(frozen=True)
class Update:
    """The update to replay.

    `first`, `last`: begin and end (ns). `sender`: the role that sent the gradient, ALL for a synchronous step.
    `staleness`: that of the gradient.
    """

    first: int
    last: int
    sender: int
    staleness: int


def last_update(trace: Trace, t: int, lookup: Lookup | None = None) -> Update | None:
    """Return the last update that was complete at `t` ns. An update begins at the previous update of the same sender.

    A synchronous step is complete when every role with a shard has applied it.
    """
    applies = (lookup or Lookup()).applies
    some = applies.newest(trace, t, NEWEST)
    rows = applies.between(trace, int(some["time"][0]), t) if len(some) else some
    found, sure = _last_of(trace, rows)
    if not sure and len(rows) < applies.until(trace, [t])[0]:
        found, _ = _last_of(trace, applies.between(trace, 0, t))
    return found


def _last_of(trace: Trace, rows: SelectedRows) -> tuple[Update | None, bool]:
    """Return (the last complete update of these applications, whether older applications could not change the result)."""
    layout = trace.header.layout
    owner = trace.observed[0]
    names = ("role", "time", "sender", "step", "count", "staleness", "version")
    role, time, sender, step, count, stale, version = rows.columns(*names)
    mine = np.flatnonzero(role == owner)
    cut = skipped(trace, "applies")  # if so, an interval between non-consecutive steps of a sender lacks rows
    together = layout.replication == "synchronized" and not cut
    makers = sum(spec.shard is not None for spec in layout.roles)
    for i in mine[::-1][:CANDIDATES]:
        before = mine[(sender[mine] == sender[i]) & (time[mine] < time[i])]
        same = time[version == version[i]] if together else time[[i]]
        if (cut and not (len(before) and step[before[-1]] == step[i] - count[i])) or (together and len(same) < makers):
            continue
        several = np.count_nonzero(version[mine] == version[i]) > 1
        first = int(time[before[-1]]) if len(before) else 0
        sure = bool(len(before)) and int(time[0]) < first
        return Update(first, int(same.max()), ALL if several else int(sender[i]), int(stale[i])), sure
    return None, False


@dataclass(frozen=True)
class Replay:
    """Replay of one update. All times are positions in the replay, from 0 to 1.

    Message i goes from role `source[i]` to role `target[i]`, has kind `kind[i]` and `size[i]` bytes, leaves at
    `leaves[i]` and arrives at `arrives[i]`. `works`: rows (role, begin, end) of computing. `applied`: rows (role, time)
    of applications. `words`: versions of the text below the picture, the longest first.
    """

    update: Update
    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    size: np.ndarray
    leaves: np.ndarray
    arrives: np.ndarray
    works: np.ndarray
    applied: np.ndarray
    words: tuple[str, ...]


def replay(trace: Trace, t: int, lookup: Lookup | None = None) -> tuple[Replay | None, float]:
    """Return (the replay at `t` ns, the position in it from 0 to 1). The replay is None before the first update."""
    phase, began = phase_of(trace, t)
    lookup = lookup or Lookup()
    update = last_update(trace, began, lookup)
    if update is None:  # no update was complete when the loop began: use the first update of the run
        done = np.unique(lookup.applies.oldest(trace, t, FIRST * len(trace.roles))["time"])
        found = (last_update(trace, int(time), lookup) for time in done[:FIRST])
        update = next((update for update in found if update is not None), None)
    return (None if update is None else build_replay(trace, update, lookup)), phase


def build_replay(trace: Trace, update: Update, lookup: Lookup | None = None) -> Replay:
    lookup = lookup or Lookup()
    first, last = update.first, update.last
    rows = lookup.messages.touching(trace, first, last + 1)
    names = ("role", "sender", "kind", "category", "bytes", "sent", "received")
    target, source, kind, category, size, sent, received = rows.columns(*names)
    there = np.flatnonzero(category != EVALUATION)
    moving = bool((received[there] > sent[there]).any())
    if moving:
        there = there[(sent[there] < last) & (received[there] > first)]
    there = there[np.argsort(sent[there], kind="stable")]
    if len(there) > MOST:
        there = there[np.linspace(0, len(there) - 1, MOST).astype(int)]
    target, source, kind, size, sent, received = (c[there] for c in (target, source, kind, size, sent, received))
    served = np.array([role == "server" for role in trace.kinds])
    clock: Clock = Moving(first, last, sent, received) if moving else Instant(first, last, source, target, sent, served)
    rows = lookup.spans.touching(trace, first + 1, last)
    role, phase, start, end = rows.columns("role", "phase", "start", "end")
    seen = phase == COMPUTE
    works = np.stack([role[seen], clock.after(start[seen]), clock.before(end[seen])], axis=-1)
    role, time = lookup.applies.between(trace, first + 1, last).columns("role", "time")
    applied = np.stack([role, clock.applied(time)], axis=-1)
    who = "last step" if update.sender == ALL else short(trace.roles[update.sender])
    whose = f"the {who}" if update.sender == ALL else f"last gradient of {who}"
    long, brief = clock.words(loop_ns(trace))
    spoken = tuple(
        f"{x}, {duration(last - first, 2)} · {how}" for x, how in ((whose, long), (whose, brief), (who, brief))
    )
    k = clock.kept
    arrives = np.maximum(clock.arrives, clock.leaves + LEAST)[k]
    return Replay(update, source[k], target[k], kind[k], size[k], clock.leaves[k], arrives, works, applied, spoken)


class Clock:
    """Base class of the mappings from times of the run to positions in the replay.

    `leaves`, `arrives`: the positions at which each message leaves and arrives. `kept`: whether each message is shown.
    """

    leaves: np.ndarray
    arrives: np.ndarray
    kept: np.ndarray

    def before(self, time: np.ndarray) -> np.ndarray:
        """Return the position of `time` (ns), before the events of that instant."""
        raise NotImplementedError

    def after(self, time: np.ndarray) -> np.ndarray:
        """Return the position of `time` (ns), after the events of that instant."""
        return self.before(time)

    def applied(self, time: np.ndarray) -> np.ndarray:
        """Return the position from which a gradient that was applied at `time` (ns) is shown as applied."""
        return self.before(time)

    def words(self, loop: int) -> tuple[str, str]:
        """Describe the speed of a replay that takes `loop` ns, in a long and a short version."""
        raise NotImplementedError


class Moving(Clock):
    """Clock for messages that take time: time is slowed evenly, or there are two speeds."""

    def __init__(self, first: int, last: int, sent: np.ndarray, received: np.ndarray):
        begin, end = np.maximum(sent, first), np.minimum(received, last)
        self.knots = np.unique(np.r_[first, begin, end, last])
        middle, long = (self.knots[1:] + self.knots[:-1]) / 2, np.diff(self.knots)
        open_then = np.searchsorted(np.sort(begin), middle) - np.searchsorted(np.sort(end), middle)
        self.travel, self.whole = int(long[open_then > 0].sum()), last - first
        self.even = self.travel >= BUSY * self.whole or not self.travel
        if not self.even:
            quiet = (1 - SLOW) / (self.whole - self.travel)
            long = np.where(open_then > 0, long * SLOW / self.travel, long * quiet)
        self.places = np.r_[0.0, np.cumsum(long / long.sum())] * (1 - REST)
        self.kept = np.ones(len(sent), bool)
        a, b = self.before(begin), self.before(end)
        # a message in flight at either end of the replay is clipped, not moved
        pace = (b - a) / np.maximum(end - begin, 1)
        self.leaves, self.arrives = a - (begin - sent) * pace, b + (received - end) * pace

    def before(self, time: np.ndarray) -> np.ndarray:
        return np.interp(time, self.knots, self.places)

    def words(self, loop: int) -> tuple[str, str]:
        shown = loop * (1 - REST)
        if self.even:
            return (speed(shown / self.whole, 2),) * 2
        said = f"messages {speed(shown * SLOW / self.travel, 2)}"
        return f"{said}, other times shortened", said


class Instant(Clock):
    """Clock for messages that take no time: the messages of one instant are shown in turns of equal length."""

    def __init__(
        self, first: int, last: int, source: np.ndarray, target: np.ndarray, sent: np.ndarray, served: np.ndarray
    ):
        turn = _turns(source, target, sent, served)
        asks, answers = served[target], served[source]
        # first instant: only messages after the previous update
        begun = (sent > first) | ((asks | answers) & (turn > 0))
        over = (sent == last) & (asks | answers) & (turn > 0)  # last instant: no messages after this update
        self.kept = begun & ~over
        self.instants, where = np.unique(sent[self.kept], return_inverse=True)
        low, high = np.full(len(self.instants), 99_999), np.zeros(len(self.instants), int)
        np.minimum.at(low, where, turn[self.kept])
        np.maximum.at(high, where, turn[self.kept] + 1)
        self.turns = np.r_[0, np.cumsum(high - low)]
        self.unit = SLOW * (1 - REST) / max(1, self.turns[-1])
        self.first, self.whole = first, last - first
        self.leaves, self.arrives = np.zeros(len(sent)), np.zeros(len(sent))
        self.leaves[self.kept] = self.before(sent[self.kept]) + (turn[self.kept] - low[where]) * self.unit
        self.arrives = self.leaves + self.unit

    def _place(self, time: np.ndarray, side: str) -> np.ndarray:
        quiet = (time - self.first) / self.whole * (1 - REST - self.unit * self.turns[-1])
        return quiet + self.unit * self.turns[np.searchsorted(self.instants, time, side=side)]  # type: ignore[call-overload]

    def before(self, time: np.ndarray) -> np.ndarray:
        return self._place(time, "left")

    def after(self, time: np.ndarray) -> np.ndarray:
        return self._place(time, "right")

    def applied(self, time: np.ndarray) -> np.ndarray:
        return np.minimum(self.before(time) + self.unit, self.after(time))

    def words(self, loop: int) -> tuple[str, str]:
        return "no latency: messages shown in sequence", "no latency: in sequence"


def _turns(source: np.ndarray, target: np.ndarray, sent: np.ndarray, served: np.ndarray) -> np.ndarray:
    """Return the turn of each message within its instant, in causal order.

    A reply of a server follows the request, and the second message of a pair of roles follows the first.
    """
    seen: dict[tuple[int, int, int], int] = {}
    turn = np.zeros(len(sent), int)
    for i, key in enumerate(zip(sent.tolist(), source.tolist(), target.tolist())):
        nth = seen[key] = seen.get(key, -1) + 1
        turn[i] = 2 * nth + 1 if served[source[i]] else 2 * nth if served[target[i]] else nth
    return turn
