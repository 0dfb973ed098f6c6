"""The engine of virtual time: a heap, a ready queue, and `coroutine.send`.

Events, and roles that may go on at once, are ordered by (integer nanoseconds, priority, sequence): what happens in an
instant happens in the order in which it was caused, so all workers that finish together push before the first of them
pulls again. Nothing here reads the machine's clock and nothing iterates over a set: the same plan and commands give
the same bytes.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Any

from ...errors import RoleError
from ...roles.effects import COMPUTE, RECV, SLEEP
from ...roles.messages import Look, Message
from ...trace.vocabulary import APPLY, EVALUATE, EVALUATION, nanoseconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..drive import foreign_effect
from ..parts import Plan
from .network import Network
from .roles import SimulatedRole

__all__ = ["COMMAND", "DELIVER", "DONE", "EARLY", "WAKE", "Clockwork"]

DONE, DELIVER, WAKE, COMMAND = range(4)  # what an event is
EARLY, LATE = 0, 1  # timeouts come after everything else of their instant
POLLS = 100_000  # looks in a row, in one instant, until a role is told that virtual time stands still for it
PHASE = {"gradient": COMPUTING, "server": APPLY, "measure": EVALUATE}


class Clockwork:
    """Roles, their events and messages. What a run is, and when it is over, is said by its subclass."""

    chief: SimulatedRole
    roles: list[SimulatedRole]
    by_name: dict[str, SimulatedRole]
    _cores: dict[int, list[int]]  # of nodes with several roles: until when each core is busy

    def __init__(self, plan: Plan, network: Network):
        self.plan = plan
        self.now = 0
        self.stopped_by: str | None = None
        self._network = network
        self._heap: list[tuple[int, int, int, int, Any, Any]] = []
        self._ready: deque[tuple[int, int, int, SimulatedRole, Any]] = deque()
        self._script: list[tuple[float, str, dict[str, Any], int]] = []
        self._sequence = self._turn = 0
        self._rest = 0  # the loop comes back before this turn
        self._kind_ids = {kind: i for i, kind in enumerate(plan.message_kinds)}

    # what a run does when ...

    def _returned(self, role: SimulatedRole) -> None:
        raise NotImplementedError("a run says what it means that a role has returned")

    def _failed(self, role: SimulatedRole, error: BaseException) -> None:
        raise NotImplementedError("a run says what it means that a role has failed")

    def _stuck(self) -> None:
        raise NotImplementedError("a run says what it means that nothing is under way")

    def _looked(self, role: SimulatedRole, look: Look) -> None:
        raise NotImplementedError("a run shows the chief what it asks for")

    # the loop ---------------------------------------------------------------------------------------------------------

    def _loop(self, until: int, one_update: bool) -> bool:
        """One event after the other. True if it only takes a rest, and should go on."""
        heap, ready, drive = self._heap, self._ready, self._drive
        versions = self._versions()
        while self.stopped_by is None:
            if self._turn >= self._rest:
                return True
            if self._script and self._script[-1][3] == self._turn and nanoseconds(self._script[-1][0]) <= until:
                at, name, arguments, _ = self._script.pop()
                self.now = max(self.now, nanoseconds(at))
                getattr(self, name)(**arguments)
            elif ready and not (heap and heap[0] < ready[0]):  # type: ignore[operator]
                self._turn += 1
                _, _, _, role, value = ready.popleft()
                drive(role, value)
            elif heap:
                if heap[0][0] > until:
                    return False
                time, _, _, what, role, payload = heappop(heap)
                if role is self.chief and self._idle(time, what):
                    self._stuck()
                    return False
                self.now = time
                self._turn += what != COMMAND
                if what == DELIVER:
                    self._deliver(role, payload)
                elif what == DONE:
                    if role.token == payload:
                        self._done(role)
                elif what == WAKE:
                    if role.token == payload:
                        self._woken(role)
                else:
                    getattr(self, role)(**payload)
            else:
                self._stuck()
                return False
            if one_update and self._versions() > versions:
                return False
        return False

    def _versions(self) -> int:
        return min((self.by_name[owner].shard.version for owner in self.plan.layout.observed), default=0)

    def _idle(self, time: int, what: int) -> bool:
        """Whether only the end of the budget's seconds would move this run: then it has got stuck before."""
        limit = self.plan.budget.seconds
        if what != WAKE or limit is None or time < nanoseconds(limit) or self.chief.waiting is None or self._ready:
            return False
        return not any(e[3] == DELIVER or (e[3] != COMMAND and e[4].token == e[5]) for e in self._heap)

    def _go_on(self, role: SimulatedRole, value: Any) -> None:
        """`role` may go on with `value`, after all that was caused before."""
        self._sequence += 1
        self._ready.append((self.now, EARLY, self._sequence, role, value))

    def _event(self, time: int, priority: int, what: int, role: Any, payload: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (time, priority, self._sequence, what, role, payload))

    def _drive(self, role: SimulatedRole, value: Any) -> None:
        """Perform what `role` asks for until it has to wait."""
        resume = role.resume
        while True:
            try:
                effect = resume(value)
            except StopIteration:
                self._returned(role)
                return
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # sys.exit() in a role ends the run, not the program
                self._failed(role, error)
                return
            mark = effect[0] if effect.__class__ is tuple and effect else None
            if mark is RECV:
                value = self._receive(role, effect)
                if value is self:
                    return
            elif mark is COMPUTE:
                value = self._compute(role, effect)
                if value is self:
                    return
            elif mark is SLEEP:
                if effect[1] > 0:
                    role.since = self.now
                    role.token += 1
                    self._event(self.now + nanoseconds(effect[1]), EARLY, WAKE, role, role.token)
                    return
                value = self._at_once(role)
                if value is self:
                    return
            else:
                self._throw(role, foreign_effect(role.name, effect))
                return

    # effects: each returns a value, or `self` if the role has to wait -------------------------------------------------

    def _receive(self, role: SimulatedRole, effect: tuple[Any, ...]) -> Any:
        kinds, sender, inbox = effect[1], effect[3], role.inbox
        if inbox:
            for i, message in enumerate(inbox):
                if message.__class__ in kinds and (sender is None or message.sender == sender):
                    if i:
                        del inbox[i]
                    else:
                        inbox.popleft()
                    return self._taken(role, message)
        timeout = effect[2]
        if timeout is not None:
            if timeout <= 0:
                return self._at_once(role)
            role.token += 1
            self._event(self.now + nanoseconds(timeout), LATE, WAKE, role, role.token)
        role.waiting, role.wait_sender, role.since = kinds, sender, self.now
        return self

    def _at_once(self, role: SimulatedRole) -> Any:
        """A look, or a sleep of no length. In a loop without end they would hold virtual time for ever."""
        instant, looks = role.looks
        role.looks = (self.now, looks + 1 if instant == self.now else 1)
        if looks < POLLS:
            return None
        error = RoleError(
            f"looked {POLLS:,} times in one instant (timeout=0, or sleep(0), in a loop): virtual time passes only in a wait; let "
            "the loop `await ctx.sleep(0.001)`, or wait without timeout=0."
        )
        self._throw(role, error)
        return self

    def _taken(self, role: SimulatedRole, message: Message) -> Message:
        if message.carries:
            role.counters.taken[self.by_name[message.sender].id] = message.step  # type: ignore[attr-defined]
        return message

    def _compute(self, role: SimulatedRole, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        work = getattr(getattr(fn, "__self__", None), "work", "gradient" if role.spec.computes else "server")
        sampler = role.samplers[work]
        duration = 0 if sampler is None else sampler.next()
        if cost != 1.0 or role.factor != 1.0:
            duration = round(duration * cost * role.factor)
        if unless is not None and any(m.__class__ is unless for m in role.inbox):
            return self._give_up(fn)
        if not duration:
            if work != "server":
                return self._call(role, fn, args)
            # An update ends a turn: a run can be stepped, and others come first; but not those whom the update itself
            # woke up.
            self._sequence += 1
            entry, place = self._sequence, len(self._ready)
            value = self._call(role, fn, args)
            if value is not self:
                self._ready.insert(place, (self.now, EARLY, entry, role, value))
            return self
        start, core = self.now, -1
        cores = self._cores.get(role.node) if self._cores else None
        if cores is not None:
            core = min(range(len(cores)), key=cores.__getitem__)
            start = max(start, cores[core])
            cores[core] = start + duration
        role.since, role.working, role.unless = start, (fn, args, PHASE[work], core, start + duration), unless
        role.token += 1
        self._event(start + duration, EARLY, DONE, role, role.token)
        return self

    def _call(self, role: SimulatedRole, fn: Any, args: tuple[Any, ...]) -> Any:
        """`fn(*args)`; an exception goes to the role, at the line where it waits."""
        try:
            return fn(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._throw(role, error)
            return self

    def _throw(self, role: SimulatedRole, error: BaseException) -> None:
        """Raise `error` inside the role. If the role catches it, it goes on with its next effect."""
        try:
            effect = role.coroutine.throw(error)
        except StopIteration:
            self._returned(role)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            self._failed(role, failure)
        else:
            role.resume = _once(effect, role)
            self._go_on(role, None)

    @staticmethod
    def _give_up(fn: Any) -> None:
        cancelled = getattr(getattr(fn, "__self__", None), "cancelled", None)
        if cancelled is not None:
            cancelled()

    def _free_core(self, role: SimulatedRole) -> None:
        """Work was given up. Whoever has queued behind it keeps its turn; who comes now may start at once."""
        _, _, _, core, end = role.working
        if core >= 0 and self._cores[role.node][core] == end:
            self._cores[role.node][core] = max(self.now, role.since)

    def _done(self, role: SimulatedRole) -> None:
        fn, args, phase, _, _ = role.working
        role.working = role.unless = None
        role.counters.phases[phase] += self.now - role.since
        role.recorder.spans.extend((phase, role.since, self.now, role.counters.computed))
        value = self._call(role, fn, args)
        if value is not self:
            self._drive(role, value)

    def _woken(self, role: SimulatedRole) -> None:
        """A sleep is over, or a wait has lasted long enough."""
        waited = role.waiting is not None
        role.waiting = None
        role.recorder.span(WAITING if waited else SLEEPING, role.since, self.now)
        self._drive(role, None)

    # messages ---------------------------------------------------------------------------------------------------------

    def post(self, role: SimulatedRole, target: SimulatedRole, message: Message, size: int, category: int) -> None:
        """Put `message` of `size` bytes on its way; it is the target's own already."""
        now = self.now
        role.counters.bytes[category] += size
        role.counters.messages += 1
        free = category == EVALUATION or self._network.free or role.node == target.node
        arrival = now if free else self._network.arrival(now, role.node, target.node, size)
        kind = self._kind_ids[message.__class__]
        target.recorder.messages.extend((role.id, kind, category, size, now, arrival))
        if free:
            self._deliver(target, message)
        else:
            self._event(arrival, EARLY, DELIVER, target, message)

    def _deliver(self, role: SimulatedRole, message: Message) -> None:
        kind = message.__class__
        waiting = role.waiting
        if waiting is not None and kind in waiting and (role.wait_sender is None or role.wait_sender == message.sender):
            if self.now > role.since:
                role.recorder.span(WAITING, role.since, self.now)
            role.waiting = None
            role.token += 1
            self._go_on(role, self._taken(role, message))
        elif kind is Look:
            self._looked(role, message)  # type: ignore[arg-type]
        else:
            role.inbox.append(message)
            if role.unless is kind:
                role.token += 1
                role.recorder.span(role.working[2], role.since, self.now, role.counters.computed)
                self._give_up(role.working[0])
                self._free_core(role)
                role.working = role.unless = None
                self._go_on(role, None)


def _once(effect: Any, role: SimulatedRole) -> Any:
    """A stand-in for `coroutine.send` that first hands over an effect that is already known."""

    def resume(_: Any) -> Any:
        role.resume = role.coroutine.send
        return effect

    return resume
