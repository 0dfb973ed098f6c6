"""A role in real time: one long-running task on a Dask worker, in a thread of its own.

The thread drives the role's coroutine by hand and performs what it asks for: computes, paces, sends, receives,
waits. Between two effects it hears commands and reports. It ends when it is told to: it says goodbye on every link,
reads what is still under way, and hands in its last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...roles.context import NOTED, SAVED, Context, stream
from ...roles.effects import COMPUTE, RECV, SLEEP, Posted
from ...roles.messages import Message
from ...roles.regroup import SAVE_EVERY
from ...roles.shard import Shard
from ...trace.events import Note
from ...trace.vocabulary import APPLY, EVALUATE, NANO, nanoseconds, seconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..drive import failure_report, foreign_effect
from ..laws import Sampler
from ..parts import batch_maker, begin, build_parts
from .duty import Ended, Obedient
from .mailbox import Slot
from .station import Ticket
from .transport.endpoint import Endpoint

__all__ = ["RealRole"]

PHASE = {"gradient": COMPUTING, "server": APPLY, "measure": EVALUATE}
# A role that computes and never waits looks at its mail that often: the chief may want to see its shard.
LISTEN_NS = 10_000_000


class Pacing:
    """Deadlines of paced work, in nanoseconds: exact on average, although a timer wakes a role about 0.1 ms late.

    By how much a piece of work ended late is taken off the next one, up to `most`: more is no lateness of a timer but of
    the process (stopped, or without a core), and stays lost: durations that follow stay what they are meant to be.
    """

    def __init__(self, most: int = 250_000):
        self.most, self.late = most, 0

    def deadline(self, began: int, duration: int) -> int:
        """When work that `began` then, and is to last `duration`, should end; not shorter than the computing itself."""
        return began + duration - self.late

    def ended(self, deadline: int, now: int) -> None:
        """The work with this deadline ended `now`."""
        self.late = min(max(0, now - deadline), self.most)


class RealContext(Context):
    """The posts, performed in real time."""

    def __init__(self, role: RealRole, peers: Mapping[str, tuple[str, ...]], batches: Any):
        spec = role.spec
        super().__init__(spec.name, spec.kind, spec.index, role.plan.seed, peers, batches)
        self._role = role
        self.send = role.send  # type: ignore[method-assign]  # one call less on the hot path

    def send(self, to: str | Message, message: Message) -> Posted:
        """See `Context.send`."""
        return self._role.send(to, message)

    def note(self, text: str, **numbers: float) -> Posted:
        """Write a remark into the trace."""
        self._role.recorder.event(Note(self._role.clock(), text, {k: float(v) for k, v in numbers.items()}))
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Keep `state` on disk, at most once a second, and always the last one."""
        role = self._role
        role.keeper.say(state, role.shard, role.clock())
        return SAVED

    @property
    def now(self) -> float:
        """Seconds since the run began; pauses do not count."""
        return seconds(self._role.clock())


class RealRole(Obedient):
    """The role's thread. `run()` returns the last report."""

    def __init__(self, ticket: Ticket, share: Any, test: Any, endpoint: Endpoint, slot: Slot):
        super().__init__(ticket, endpoint, slot)
        plan, spec = self.plan, self.spec
        self.factor, self.step_to = ticket.factor, -1
        self.waiting: tuple[tuple[type, ...], str | None] | None = None
        self.interrupt, self.listened = False, 0
        self.pacing = Pacing()
        life = ticket.incarnation
        rng = stream(plan.seed, spec.kind, spec.index, "time", life)
        pace = Sampler(ticket.pace, rng) if ticket.pace else None
        service = stream(plan.seed, spec.kind, spec.index, "service", life)
        serving = Sampler(ticket.server_time, service) if ticket.server_time else None
        self.laws = {"gradient": pace, "server": serving, "measure": None}
        watch, objective = self.watch, ticket.objective
        parts = build_parts(plan, spec, self.recorder, self.clock, watch, objective, self.strategy, test, life)
        self.shard = next((p for p in parts if isinstance(p, Shard) and spec.backs is None), None)
        self.judge = parts[0] if spec.kind == "chief" else None
        if self.judge is not None:
            self.judge.warm_up(plan.seed)
        batches = batch_maker(plan, spec, share, life, lambda: self.context.peers("worker"))
        self.context = RealContext(self, plan.layout.peers(), batches)
        self.context.incarnation = life
        self.kept_at: int | None = None
        self.restored: list[Any] = self._restore() if ticket.incarnation or ticket.restored else []
        if spec.backs is not None and ticket.restored is not None:
            parts[0].restore(*ticket.restored)
        if self.shard is not None and ticket.together:
            self.shard.save_at, self.shard.keeper = 0, self._keep_together
        self.coroutine = begin(self.strategy, plan, spec, self.context, parts)

    def _keep_together(self, shard: Shard) -> None:
        """The parts of a split model are kept at the same versions, or they would be no model."""
        if shard.version % SAVE_EVERY == 0:
            self.keeper.keep(shard, self.clock())

    def _restore(self) -> list[Any]:
        """Take up what the life before has left, and keep it at once under this life's name. See `Keeper.restore`."""
        said, begins = self.keeper.restore(self.shard, self.judge, self.ticket.restored)
        self.context.restored, self.kept_at = said, self.keeper.kept_at
        self.keeper.keep(self.shard, 0)
        self.keeper.kept_at = None
        return begins

    # the loop ---------------------------------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Play the role until it is told to end; the last report comes back."""
        try:
            self._drive()
            self._idle()
        except Ended as ended:
            return self._farewell(ended.args[0])
        raise AssertionError("a role does not end by itself")

    def _drive(self) -> None:
        resume, value = self.coroutine.send, None
        while True:
            if self.slot.flag:
                self._attend()
            try:
                effect = resume(value)
            except StopIteration:
                self.slot.report("returned", verdict=self.judge.verdict if self.judge else None)
                return
            except BaseException as error:  # sys.exit() in a role ends the role, not the Dask worker
                self._failed(error)
                return
            mark = effect[0] if effect.__class__ is tuple and effect else None
            if mark is COMPUTE:
                resume, value = self._compute(effect)
            elif mark is RECV:
                resume, value = self.coroutine.send, self._receive(effect)
            elif mark is SLEEP:
                self._sleep(effect[1])
                resume, value = self.coroutine.send, None
            else:
                resume, value = self.coroutine.throw, foreign_effect(self.spec.name, effect)

    def _failed(self, error: BaseException) -> None:
        step = self.counters.computed if self.spec.computes else self.counters.version
        self.slot.report("failed", report=failure_report(self.spec.name, step, error))

    def _idle(self) -> None:
        """The coroutine has returned: keep the links open, so that nobody is disturbed, until the end."""
        self.waiting = ((), None)
        while True:
            self.poll(0.5)
            if self.slot.flag:
                self._attend()

    # effects ----------------------------------------------------------------------------------------------------------

    def _compute(self, effect: tuple[Any, ...]) -> tuple[Any, Any]:
        """(how to go on, with what)."""
        _, fn, args, cost, unless = effect
        part = getattr(fn, "__self__", None)
        work = getattr(part, "work", "gradient" if self.spec.computes else "server")
        self.endpoint.flush()
        began = self.clock()
        if began - self.listened > LISTEN_NS:
            self.poll(0.0)
            began = self.listened = self.clock()
        self.counters.open, step = [PHASE[work], began], self.counters.computed
        try:
            value = fn(*args)
        except BaseException as error:
            return self.coroutine.throw, error
        law = self.laws[work]
        if law is not None or (self.factor != 1.0 and work != "measure"):
            own = self.clock() - began
            wanted = round(law.next() * cost * self.factor) if law is not None else round(own * self.factor)
            until = self.pacing.deadline(began, max(own, wanted))
            finished = self._pass(until, unless)
            self.pacing.ended(until, self.clock() if finished else until)
            if not finished:
                cancelled = getattr(part, "discard", None)
                value = None if cancelled is None else cancelled(value)
        elif unless is not None and self.has(unless):
            cancelled = getattr(part, "discard", None)
            value = None if cancelled is None else cancelled(value)
        self.counters.open = []
        self.recorder.span(PHASE[work], began, self.clock(), step)
        if part is self.shard and 0 <= self.step_to <= self.counters.version:
            self.step_to = -1
            if self.spec.computes or self.plan.layout.copies != "own":
                self._freeze()  # else others may have to ask this replica before they can step: it stands still with them
            self._report()
            self.slot.report("stepped")
            self.slot.flag = True  # stand still now, before the next effect
        return self.coroutine.send, value

    def _receive(self, effect: tuple[Any, ...]) -> Any:
        kinds, timeout, sender = effect[1], effect[2], effect[3]
        self.listens = kinds
        message = self.find(kinds, sender)
        if message is not None:
            return message
        if timeout is not None and timeout <= 0:
            self.poll(0.0)
            return self.find(kinds, sender)
        began = self.clock()
        until = None if timeout is None else began + nanoseconds(timeout)
        limit = self.plan.budget.seconds if self.judge is not None else None
        if until is None or (limit is not None and until >= nanoseconds(limit)):  # the end of the run is no way out
            self.waiting = (kinds, sender)
        self.interrupt, left = False, 0.25
        while not self.interrupt:
            if until is not None:
                left = min(0.25, seconds(until - self.clock()))
                if left <= 0:
                    break
            self.poll(left)
            message = self.find(kinds, sender)
            if message is not None:
                break
            if self.slot.flag:
                self._attend()
                message = self.find(kinds, sender)  # of somebody who has come or gone
                if message is not None:
                    break
        self.waiting = None
        self.recorder.span(WAITING, began, self.clock())
        return message

    def _sleep(self, duration: float) -> None:
        began = self.clock()
        if duration > 0 and not (self.judge is not None and self.judge.hurry):
            self.interrupt = False
            self._pass(began + nanoseconds(duration), None)
            self.recorder.span(SLEEPING, began, self.clock())

    def _pass(self, until: int, unless: Any) -> bool:
        """Let engine time pass, hearing commands and taking in messages. False if a message of kind `unless` came."""
        while True:
            if unless is not None and self.has(unless):
                return False
            left = until - self.clock()
            if left <= 0 or self.interrupt:
                return True
            self.poll(min(0.25, left / NANO), False)
            if self.slot.flag:
                self._attend()
