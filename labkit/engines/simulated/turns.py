"""Turns: which event, or which role that may go on, is next.

Events, and roles that may go on at once, are ordered by (integer nanoseconds, priority, sequence): what happens in an
instant happens in the order in which it was caused, so all workers that finish together push before the first of them
pulls again. Nothing here reads the machine's clock and nothing iterates over a set: the same plan and commands give
the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from ...trace.vocabulary import nanoseconds
from ..commands import Command, Executed
from ..parts import Plan
from .roles import SimulatedRole

__all__ = ["COMMAND", "DELIVER", "DONE", "EARLY", "INTERNAL", "LATE", "OF_THE_RUN", "WAKE", "Turns"]

# What an event is: from COMMAND on of the run and not of a role, a command or a call of a method of the engine.
DONE, DELIVER, WAKE, COMMAND, INTERNAL = range(5)
OF_THE_RUN = (COMMAND, INTERNAL)
EARLY, LATE = 0, 1  # timeouts come after everything else of their instant


class Turns:
    """A heap of events and a queue of roles that may go on in this instant. A turn is one of either."""

    plan: Plan
    chief: SimulatedRole
    by_name: dict[str, SimulatedRole]
    execute: Callable[[Command], None]

    def __init__(self) -> None:
        self.now = 0
        self.stopped_by: str | None = None
        self._heap: list[tuple[int, int, int, int, Any, Any]] = []
        self._ready: deque[tuple[int, int, int, SimulatedRole, Any]] = deque()
        self._script: list[Executed] = []  # of an earlier run's log, the next entry last
        self._sequence = self._turn = 0
        self._rest = self._pause = 0  # before this turn the loop comes back, or looks at more than the next event

    # what happens in a turn

    def _drive(self, role: SimulatedRole, value: Any) -> None:
        raise NotImplementedError("the clockwork lets a role go on")

    def _deliver(self, role: SimulatedRole, message: Any) -> None:
        raise NotImplementedError("the clockwork hands over a message")

    def _done(self, role: SimulatedRole) -> None:
        raise NotImplementedError("the clockwork finishes work")

    def _woken(self, role: SimulatedRole) -> None:
        raise NotImplementedError("the clockwork ends a wait")

    def _stuck(self) -> None:
        raise NotImplementedError("a run says what it means that nothing is under way")

    def _name_awaited(self) -> None:
        raise NotImplementedError("a run knows who is lost")

    # the loop ---------------------------------------------------------------------------------------------------------

    def _loop(self, until: int, one_update: bool) -> bool:
        """One turn after the other. True if it only takes a rest, and should go on."""
        script, versions = self._script, self._versions() if one_update else 0
        while self.stopped_by is None:
            if self._turn >= self._rest:
                return True
            if script and script[-1].turn == self._turn and nanoseconds(script[-1].at) <= until:
                self._repeat()
            else:
                self._pause = self._turn + 1 if script or one_update else self._rest
                if not self._turns(until):
                    return False
            if one_update and self._versions() > versions:
                return False
        return False

    def _turns(self, until: int) -> bool:
        """Turns up to `_pause`. False if there is nothing more to do up to `until`."""
        heap, ready, drive = self._heap, self._ready, self._drive
        while self._turn < self._pause:
            if ready and not (heap and heap[0] < ready[0]):  # type: ignore[operator]
                self._turn += 1
                _, _, _, role, value = ready.popleft()
                drive(role, value)
            elif not heap:
                self._stuck()
                return False
            elif heap[0][0] > until:
                self._name_awaited()
                return False
            else:
                time, _, _, what, role, payload = heappop(heap)
                if what == WAKE and role is self.chief and self._ends(time):
                    self._stuck()
                    return False
                self.now = time
                if what >= COMMAND:
                    self._of_the_run(what, role, payload)
                    return True
                self._turn += 1
                if what == DELIVER:
                    self._deliver(role, payload)
                elif role.token == payload:
                    (self._done if what == DONE else self._woken)(role)
        return True

    def _of_the_run(self, what: int, method: str, payload: Any) -> None:
        """Carry out an event that is about no role in particular."""
        if what == COMMAND:
            self.execute(payload)
        else:  # it follows from what was done, and is no entry of the log
            self._turn += 1
            getattr(self, method)(**payload)

    def _take_a_rest(self) -> None:
        """Come back from the loop before the next turn."""
        self._rest = self._pause = 0

    def _repeat(self) -> None:
        """Execute the next command of an earlier run's log, before the same turn as then."""
        entry = self._script.pop()
        self.now = max(self.now, nanoseconds(entry.at))
        self.execute(entry.command)

    def _versions(self) -> int:
        looked_at = (self.by_name[owner] for owner in self.plan.layout.observed)
        return min((role.shard.version for role in looked_at if not role.down), default=0)

    def _ends(self, time: int) -> bool:
        self._name_awaited()
        return self._idle(time)

    def _idle(self, time: int) -> bool:
        """Whether only the end of the budget's seconds would move this run: then it has got stuck before."""
        limit = self.plan.budget.seconds
        if limit is None or time < nanoseconds(limit) or self.chief.waiting is None or self._ready:
            return False
        return not any(e[3] == DELIVER or (e[3] not in OF_THE_RUN and e[4].token == e[5]) for e in self._heap)

    def _go_on(self, role: SimulatedRole, value: Any) -> None:
        """`role` may go on with `value`, after all that was caused before."""
        self._sequence += 1
        self._ready.append((self.now, EARLY, self._sequence, role, value))

    def _event(self, time: int, priority: int, what: int, role: Any, payload: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (time, priority, self._sequence, what, role, payload))
