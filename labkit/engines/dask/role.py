"""A role in real time: one long-running task on a Dask worker, in a thread of its own.

The thread drives the role's coroutine by hand and performs what it asks for: computes, paces, talks over the wire,
waits. Between two effects it hears commands and reports. It ends when it is told to: it says goodbye on every link,
reads what is still under way, and hands in its last counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...nn import SparseParameters
from ...roles.context import NOTED, SAVED, Context, stream
from ...roles.effects import COMPUTE, RECV, SLEEP, Posted
from ...roles.shard import Shard
from ...trace.vocabulary import APPLY, EVALUATE, NANO, nanoseconds, seconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..drive import failure_report, foreign_effect
from ..laws import Sampler
from ..parts import batch_maker, build_parts
from .mailbox import Slot
from .station import Station, Ticket
from .wire import Wire

__all__ = ["RealRole"]

PHASE = {"gradient": COMPUTING, "server": APPLY, "measure": EVALUATE}
ROW_BYTES = 16_384  # of rows in one report
LAST_BYTES = 4_000_000  # of rows in the last report
GOODBYE_S = 2.0  # seconds for saying goodbye, and for reading what is under way
LINGER_S = 30.0  # seconds that a role which has said goodbye waits for the others to do so
# A role that computes and never waits looks at its mail that often: the chief may want to see its shard.
LISTEN_NS = 10_000_000


class Ended(BaseException):
    """The role was told to end, by the command it holds. Raised inside its thread, never seen by a strategy."""


class RealContext(Context):
    """The posts, performed in real time."""

    def __init__(self, role: RealRole, peers: Mapping[str, tuple[str, ...]], batches: Any):
        spec = role.spec
        super().__init__(spec.name, spec.kind, spec.index, role.plan.seed, peers, batches)
        self._role = role
        self.send = role.send  # type: ignore[method-assign]  # one call less on the hot path

    def note(self, text: str, **numbers: float) -> Posted:
        """Write a remark into the trace."""
        self._role.recorder.mark(self._role.clock(), "note", text, numbers={k: float(v) for k, v in numbers.items()})
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Keep `state` on disk, at most once a second, and always the last one."""
        self._role.keep(state)
        return SAVED

    @property
    def now(self) -> float:
        """Seconds since the run began; pauses do not count."""
        return seconds(self._role.clock())


class RealRole(Station):
    """The role's thread. `run()` returns the last report."""

    def __init__(self, ticket: Ticket, share: Any, test: Any, wire: Wire, slot: Slot):
        super().__init__(ticket, wire, slot)
        plan, spec = self.plan, self.spec
        self.factor, self.step_to = ticket.factor, -1
        self.waiting: tuple[tuple[type, ...], str | None] | None = None
        self.interrupt, self.listened = False, 0
        rng = stream(plan.seed, spec.kind, spec.index, "time")
        pace = Sampler(ticket.pace, rng) if ticket.pace else None
        service = stream(plan.seed, spec.kind, spec.index, "service")
        serving = Sampler(ticket.server_time, service) if ticket.server_time else None
        self.laws = {"gradient": pace, "server": serving, "measure": None}
        watch, objective = self.watch, ticket.objective
        parts = build_parts(plan, spec, self.recorder, self.clock, watch, objective, self.strategy, test)
        self.shard = next((p for p in parts if isinstance(p, Shard)), None)
        self.judge = parts[0] if spec.kind == "chief" else None
        if self.judge is not None:
            self.judge.warm_up(plan.seed)
        context = RealContext(self, plan.layout.peers(), batch_maker(plan, spec, share))
        self.coroutine = getattr(self.strategy, spec.kind)(context, *parts)

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
        self.wire.flush()
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
            if not self._pass(began + wanted, unless):
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
            self.poll(min(0.25, left / NANO))
            if self.slot.flag:
                self._attend()

    # commands ---------------------------------------------------------------------------------------------------------

    def begin(self, command: dict[str, Any]) -> None:
        """The run begins: who is where, and when is zero."""
        self.zero = command["zero"]
        for name, (host, port, incarnation) in command["peers"].items():
            self.wire.know(name, host, port, incarnation)

    def _attend(self) -> None:
        """Carry out what has been asked for, and report if it is time."""
        for command in self.slot.take():
            getattr(self, f"_do_{command['do']}")(command)
        if self.slot.tick:
            self.slot.tick = False
            self._report()
        while self.frozen is not None:
            self.slot.arrived.wait(0.25)
            if self.slot.flag:
                self._attend_frozen()

    def _attend_frozen(self) -> None:
        for command in self.slot.take():
            getattr(self, f"_do_{command['do']}")(command)
        self.slot.tick = False
        self._report()

    def _do_end(self, command: dict[str, Any]) -> None:
        raise Ended(command)

    _do_leave = _do_drain = _do_end

    def _do_pause(self, command: dict[str, Any]) -> None:
        self._freeze()

    def _freeze(self) -> None:
        if self.frozen is None:
            self.frozen = self.clock()

    def _do_resume(self, command: dict[str, Any]) -> None:
        self.zero = command["zero"]
        if self.frozen is not None:  # long work that ended during the pause is ahead of the others: they catch up first
            ahead = self.frozen - (time.monotonic_ns() - self.zero)
            time.sleep(max(0.0, seconds(ahead)))
        self.frozen = None
        self.step_to = command["goals"].get(self.spec.name, -1)

    def _do_version(self, command: dict[str, Any]) -> None:
        if self.shard is not None:
            self.slot.report("version", version=self.counters.version)

    def _do_slow(self, command: dict[str, Any]) -> None:
        self.factor = command["factor"]

    def _do_set(self, command: dict[str, Any]) -> None:
        for name, value in command["knobs"].items():
            object.__setattr__(self.strategy, name, value)

    def _do_hurry(self, command: dict[str, Any]) -> None:
        if self.judge is not None and self.judge.hurry is None:
            self.judge.hurry = command["reason"]
            self.interrupt = True

    def _report(self) -> None:
        """Rows since the last report, counters, and what the role is waiting for."""
        if self.frozen is None:
            self.wire.flush()
        kinds, sender = self.waiting or ((), None)
        busy = self.waiting is None or self.frozen is not None
        self.slot.report(
            "batch", batch=self.recorder.take(self.clock(), ROW_BYTES), only=sender,
            waiting=None if busy else [k.__name__ for k in kinds],
            sent=sum(self.wire.sent.values()), received=sum(self.wire.received.values()),
        )  # fmt: skip

    def _farewell(self, command: dict[str, Any]) -> dict[str, Any]:
        """Close in order: say goodbye; when everybody has said so, read what is still under way; count it."""
        ended = self.frozen = self.clock()
        with contextlib.suppress(Exception):  # a role that goes on after it was told to end: nobody drives it any more
            self.coroutine.close()
        self.write()
        gone = set(command.get("lost", ()))
        for name in gone:
            self.wire.forget(name)
        late = set()
        if command["do"] == "end":
            late = self.wire.finish_sending(GOODBYE_S)
            self.slot.report("ended")
            if self._all_have_ended():
                late |= self.wire.drain(set(self.ids) - gone, GOODBYE_S)
        shard = -1 if self.shard is None else self.shard.index
        in_flight = [
            [shard, self.ids[m.sender], m.incarnation, m.step, m.count]  # type: ignore[attr-defined]
            for m in self.inbox
            if m.carries
        ]
        for refusal in self.wire.refused:
            self.recorder.mark(ended, "refused", refusal)
        judge = self.judge
        return {
            "role": self.spec.name, "time": ended, "in_flight": in_flight,
            "batch": self.recorder.take(ended, LAST_BYTES), "late": sorted(late),
            "verdict": judge.verdict if judge else None,
            "update": judge.update if judge else None, "loss": judge.loss if judge else None,
            "accuracy": judge.accuracy if judge else None,
            "parameters": None if judge is None else _whole(judge.parameters),
        }  # fmt: skip

    def _all_have_ended(self) -> bool:
        """Read on until the client says that every role has said goodbye; False if nobody will say so any more."""
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            for command in self.slot.take():
                if command["do"] in ("drain", "leave"):
                    return bool(command["do"] == "drain")
            self.wire.poll(0.25)
        return False


def _whole(values: Any) -> Any:
    if isinstance(values, SparseParameters):
        return values
    return None if values is None or values.strides == (0,) else np.array(values)
