"""The event loop of virtual time.

Events and ready roles are ordered by (integer nanoseconds, priority, sequence number). Within an instant, the sequence numbers
give a causal order: if several workers finish at the same time, all of them push before the first of them pulls again. The loop
does not read the clock of the machine and does not iterate over sets, so runs are exactly reproducible.

A turn is one event of a role, or one step of a ready role. Turns are counted: when a run is repeated, each command of its log
is executed before the same turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...roles.messages import Message
    from .role import SimulatedRole

# Kinds of events. DONE: the time of a role's work is over. DELIVER: a message arrives. WAKE: the timeout of a wait, or the time
# of a sleep, is over. CHIEF_WAKE: the same for the chief. CALL: the run calls a function, as of a planned command or a restart.
# The loop hands CHIEF_WAKE and CALL to the run instead of handling them.
DONE, DELIVER, WAKE, CHIEF_WAKE, CALL = range(5)
EARLY, LATE = 0, 1  # priorities: timeouts come after everything else of their instant

RunEvent = tuple[int, int, int, int, Any, Any]  # time (ns), priority, sequence, what, role or function, payload
Outcome = RunEvent | str


class EventLoop:
    """A heap of events and a queue of roles that are ready in this instant.

    Other objects may read, but not change, `now` (ns) and `turn` (the number of turns so far). `pause`: `run` returns before
    this turn. `sequence`: the newest sequence number; a role takes the next number by adding 1. `add_event` and `add_ready`
    add complete entries, like `schedule` and `make_ready`. They are implemented in C and therefore faster, which matters for
    messages.
    """

    __slots__ = ("_heap", "_ready", "add_event", "add_ready", "now", "pause", "sequence", "turn")

    # why `run` returned, if it returned no event
    PAUSED, EMPTY, AHEAD = "paused", "no event", "the next event is later"

    def __init__(self) -> None:
        self.now = self.turn = self.pause = 0
        self._heap: list[RunEvent] = []
        self._ready: deque[tuple[int, int, int, SimulatedRole, Any]] = deque()
        self.add_event: Callable[[RunEvent], None] = partial(heappush, self._heap)
        self.add_ready = self._ready.append
        self.sequence = 0

    def run(self, until: int) -> Outcome:
        """Perform turns up to `pause`, with events not later than `until` (ns). Returns why it stopped, or an event that the run
        has to handle; this event is removed from the heap, but `now` is not yet set to its time.
        """
        heap, ready = self._heap, self._ready
        while self.turn < self.pause:
            # Entries of both begin with (time, priority, sequence): what was caused first comes first, wherever it waits.
            if ready and not (heap and heap[0] < ready[0]):  # type: ignore[operator]
                self.turn += 1
                _, _, _, role, value = ready.popleft()
                role.drive(value)
            elif not heap:
                return self.EMPTY
            elif heap[0][0] > until:
                return self.AHEAD
            else:
                event = heappop(heap)
                time, _, _, what, role, payload = event
                if what >= CHIEF_WAKE:
                    return event
                self.now = time
                self.turn += 1
                if what == DELIVER:
                    role.deliver(payload)
                # A timer that was cancelled stays in the heap, with an older token: to remove it would take a search.
                elif role.token == payload:
                    if what == DONE:
                        role.work_done()
                    else:
                        role.wait_over()
        return self.PAUSED

    # scheduling -------------------------------------------------------------------------------------------------------

    def schedule(self, time: int, priority: int, what: int, role: SimulatedRole, payload: Any) -> None:
        """Schedule an event of a role at `time` (ns)."""
        self.sequence = entry = self.sequence + 1
        heappush(self._heap, (time, priority, entry, what, role, payload))

    def call_at(self, time: int, fn: Callable[..., Any], *args: Any) -> None:
        """Schedule the call `fn(*args)` by the run at `time` (ns)."""
        self.sequence += 1
        heappush(self._heap, (time, EARLY, self.sequence, CALL, fn, args))

    def make_ready(self, role: SimulatedRole, value: Any) -> None:
        """Resume `role` with `value` in this instant, after everything that was scheduled before."""
        self.sequence = entry = self.sequence + 1
        self._ready.append((self.now, EARLY, entry, role, value))

    def make_ready_at(self, role: SimulatedRole, value: Any, number: int) -> bool:
        """Resume `role` with `value` at the sequence number `number`. The role has reserved this number before work that takes
        no time, so that the role is resumed before all consequences of the work.

        Returns True if nothing else precedes the role in this instant. The role then continues at once, which counts as a turn.
        """
        ready, heap = self._ready, self._heap
        if not ready and self.turn + 1 < self.pause and not (heap and heap[0][0] == self.now):
            self.turn += 1
            return True
        at = len(ready)
        while at and ready[at - 1][2] > number:
            at -= 1
        ready.insert(at, (self.now, EARLY, number, role, value))
        return False

    def clock(self) -> int:
        """Virtual time, ns."""
        return self.now

    # removing ---------------------------------------------------------------------------------------------------------

    def suspend(self, role: SimulatedRole) -> tuple[list[tuple[int, int, int]], list[Any]]:
        """Remove the timers of `role` and the values it is resumed with: ([(ns left, priority, kind), ...], [value, ...])."""
        mine = [e for e in self._heap if e[4] is role and e[3] != DELIVER and e[5] == role.token]
        timers = [(e[0] - self.now, e[1], e[3]) for e in sorted(mine, key=lambda e: e[:3])]
        values = [e[4] for e in self._ready if e[3] is role]
        self.cancel(role)
        return timers, values

    def cancel(self, role: SimulatedRole) -> None:
        """Remove `role` from the ready queue. (Its timers are not removed; they become void when the token of the role
        changes.)
        """
        kept = [entry for entry in self._ready if entry[3] is not role]
        # in place, because `add_ready` is bound to the queue
        self._ready.clear()
        self._ready.extend(kept)

    def discard_messages(self, names: Collection[str], sent: bool = True) -> None:
        """Discard messages in flight to these roles and, if `sent`, from them."""
        # in place, because `add_event` is bound to the heap
        self._heap[:] = [
            e for e in self._heap
            if not (e[3] == DELIVER and (e[4].name in names or (sent and e[5].sender in names)))
        ]  # fmt: skip
        heapify(self._heap)

    # what is ahead ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self._ready)

    def messages(self) -> list[tuple[SimulatedRole, Message]]:
        """Return (receiver, message) of all messages in flight, in order of arrival."""
        return [(e[4], e[5]) for e in sorted(self._heap, key=lambda e: e[:3]) if e[3] == DELIVER]

    def roles_have_events(self, but_chief: bool = False) -> bool:
        """Return whether a message is in flight, or a role has a timer or work. `but_chief`: ignore the chief's timers."""
        last = WAKE if but_chief else CHIEF_WAKE
        return any(e[3] <= last and (e[3] == DELIVER or e[4].token == e[5]) for e in self._heap)

    def run_has_events(self) -> bool:
        return any(e[3] == CALL for e in self._heap)
