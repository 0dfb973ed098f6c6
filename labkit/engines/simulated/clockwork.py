"""The clockwork of virtual time: what happens in a turn. Roles are moved by `coroutine.send`; here is what each effect
that they ask for means, and where a message goes.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any

from ...errors import RoleError
from ...roles.effects import COMPUTE, RECV, SLEEP
from ...roles.messages import Joined, Look, Message
from ...trace.recorder import MESSAGE, SPAN
from ...trace.vocabulary import EVALUATION, nanoseconds
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..drive import foreign_effect
from ..parts import Plan
from .network import Network
from .roles import SimulatedRole
from .turns import DELIVER, DONE, EARLY, LATE, WAKE, Turns

__all__ = ["Clockwork"]

POLLS = 100_000  # looks in a row, in one instant, until a role is told that virtual time stands still for it


class Clockwork(Turns):
    """Roles, their effects and messages. What a run is, and when it is over, is said by its subclass."""

    roles: list[SimulatedRole]
    _cores: dict[int, list[int]]  # of nodes with several roles: until when each core is busy

    def __init__(self, plan: Plan, network: Network):
        super().__init__()
        self.plan = plan
        self._network, self._free = network, network.free
        self._trouble: Any = None  # what is wrong with links, from the first time that something is
        self._kind_ids = {kind: i for i, kind in enumerate(plan.message_kinds)}
        self._ids, self._many = plan.role_ids, len(plan.role_ids)  # a life is a role's number + incarnation x roles

    # what a run does when ...

    def _returned(self, role: SimulatedRole) -> None:
        raise NotImplementedError("a run says what it means that a role has returned")

    def _failed(self, role: SimulatedRole, error: BaseException) -> None:
        raise NotImplementedError("a run says what it means that a role has failed")

    def _looked(self, role: SimulatedRole, look: Look) -> None:
        raise NotImplementedError("a run shows the chief what it asks for")

    # effects ----------------------------------------------------------------------------------------------------------

    def _drive(self, role: SimulatedRole, value: Any) -> None:
        """Perform what `role` asks for until it has to wait."""
        role.touched = True
        while True:
            try:
                effect = role.resume(value)
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
                role.listens = effect[1]
                if not role.inbox and effect[2] is None:
                    role.waiting, role.wait_sender, role.since = effect[1], effect[3], self.now
                    return
                value = self._receive(role, effect)
            elif mark is COMPUTE:
                value = self._compute(role, effect)
            elif mark is SLEEP:
                if effect[1] > 0:
                    role.since = self.now
                    role.token += 1
                    self._event(self.now + nanoseconds(effect[1]), EARLY, WAKE, role, role.token)
                    return
                value = self._at_once(role)
            else:
                self._throw(role, foreign_effect(role.name, effect))
                return
            if value is self:
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
                    if message.carries:
                        role.counters.taken[self._ids[message.sender] + message.incarnation * self._many] = message.step  # type: ignore[attr-defined]
                    if role.unaware:
                        self._aware(role, message)
                    return message
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

    def _compute(self, role: SimulatedRole, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        part, job = role.latest
        if getattr(fn, "__self__", self) is not part:
            job = role.job_of(fn)
        draw, phase, serves = job
        duration = draw() if draw is not None else 0
        if cost != 1.0 or role.factor != 1.0:
            duration = round(duration * cost * role.factor)
        if unless is not None and any(m.__class__ is unless for m in role.inbox):
            return self._give_up(fn)
        if not duration:
            return self._update(role, fn, args) if serves else self._call(role, fn, args)
        start, core = self.now, -1
        cores = self._cores.get(role.node) if self._cores else None
        if cores is not None:
            core = min(range(len(cores)), key=cores.__getitem__)
            start = max(start, cores[core])
            cores[core] = start + duration
        end = start + duration
        role.since, role.working, role.unless = start, (fn, args, phase, core, end), unless
        role.token = token = role.token + 1
        self._sequence = entry = self._sequence + 1
        heappush(self._heap, (end, EARLY, entry, DONE, role, token))
        return self

    def _update(self, role: SimulatedRole, fn: Any, args: tuple[Any, ...]) -> Any:
        """An update in no time. It ends a turn: a run can be stepped, and others come first; but not those whom the
        update itself woke up.
        """
        ready, heap = self._ready, self._heap
        self._sequence = entry = self._sequence + 1
        place = len(ready)
        value = self._call(role, fn, args)
        if value is self:
            return self
        if not ready and self._turn + 1 < self._pause and not (heap and heap[0][0] == self.now):
            self._turn += 1  # nobody else is there: the next turn is this role's, too
            return value
        ready.insert(place, (self.now, EARLY, entry, role, value))
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
        role.touched = True
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
        since, now, counters = role.since, self.now, role.counters
        counters.phases[phase] += now - since
        role.touched = True
        role.recorder.spans += SPAN(phase, since, now, counters.computed)
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
        if self._trouble is not None:
            self._trouble.post(role, target, message, size, category)
            return
        now, counters = self.now, role.counters
        role.touched = target.touched = True
        counters.bytes[category] += size
        counters.messages += 1
        free = self._free or category == EVALUATION or role.node == target.node
        arrival = now if free else self._network.arrival(now, role.node, target.node, size)
        kind = self._kind_ids[message.__class__]
        target.recorder.messages += MESSAGE(role.id, kind, category, size, now, arrival)
        if free:
            self._deliver(target, message)
        else:
            self._event(arrival, EARLY, DELIVER, target, message)

    def _deliver(self, role: SimulatedRole, message: Message) -> None:
        kind, waiting, now = message.__class__, role.waiting, self.now
        role.touched = True
        if waiting is not None and kind in waiting and (role.wait_sender is None or role.wait_sender == message.sender):
            if now > role.since:
                role.recorder.span(WAITING, role.since, now)
            role.waiting = None
            role.token += 1
            if message.carries:
                role.counters.taken[self._ids[message.sender] + message.incarnation * self._many] = message.step  # type: ignore[attr-defined]
            if role.unaware:
                self._aware(role, message)
            self._sequence = entry = self._sequence + 1
            self._ready.append((now, EARLY, entry, role, message))
        elif kind is Look:
            if role.held is not None:
                role.held.looks.append(message)
            else:
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

    def _aware(self, role: SimulatedRole, message: Message) -> None:
        """`role` takes `message`: from now on it talks to the incarnation that this is about, or from."""
        name = message.name if message.__class__ is Joined else message.sender  # type: ignore[attr-defined]
        if name in role.unaware:
            other = self.by_name[name]  # a last word of somebody who has been lost since is no reason to talk to it
            if not other.down and message.incarnation == other.recorder.incarnation:
                role.unaware.discard(name)


def _once(effect: Any, role: SimulatedRole) -> Any:
    """A stand-in for `coroutine.send` that first hands over an effect that is already known."""

    def resume(_: Any) -> Any:
        role.resume = role.coroutine.send
        return effect

    return resume
