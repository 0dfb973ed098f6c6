"""A role in real time: one long-running task on a Dask worker, in a thread of its own.

The thread drives the role's coroutine by hand and performs what it asks for: computes, paces, talks over the wire,
waits. Between two effects it hears commands and reports. It ends when it is told to: it says goodbye on every link,
reads what is still under way, and hands in its last counts.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...roles.context import NOTED, SAVED, SENT, Context, stream
from ...roles.effects import COMPUTE, RECV, SLEEP, Posted
from ...roles.layout import RoleSpec
from ...roles.messages import Look, Message, Snapshot, Weights
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ...trace.vocabulary import APPLY, EVALUATE, EVALUATION, NANO, SEND, STARTUP, TRAINING, nanoseconds, seconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..booking import hand_on, refused
from ..checkpoints import write_state
from ..drive import failure_report, foreign_effect
from ..laws import Law, Sampler
from ..parts import Plan, batch_maker, build_parts
from .mailbox import Slot
from .wire import Wire

__all__ = ["RealRole", "Ticket"]

PHASE = {"gradient": COMPUTING, "server": APPLY, "measure": EVALUATE}
ROW_BYTES = 16_384  # of rows in one report
LAST_BYTES = 4_000_000  # of rows in the last report
SAVE_EVERY = 1.0  # seconds between two checkpoints of a role


GOODBYE_S = 2.0  # seconds for saying goodbye, and for reading what is under way
LINGER = 30.0  # seconds that a role which has said goodbye waits for the others to do so


class Ended(BaseException):
    """The role was told to end, by the command it holds. Raised inside its thread, never seen by a strategy."""


@dataclass(frozen=True)
class Ticket:
    """All that a role's task is given. `plan` carries no data; `objective` is the role's own."""

    run: str
    index: int
    incarnation: int
    plan: Plan
    objective: Any
    secret: bytes
    pace: Law | None
    server_time: Law | None
    factor: float
    folder: str | None

    @property
    def spec(self) -> RoleSpec:
        """The role's entry in the layout."""
        return self.plan.layout.roles[self.index]


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


class RealRole:
    """The role's thread. `run()` returns the last report."""

    def __init__(self, ticket: Ticket, share: Any, test: Any, wire: Wire, slot: Slot):
        self.ticket, self.plan, self.spec = ticket, ticket.plan, ticket.spec
        self.wire, self.slot = wire, slot
        self.zero = 0  # the machine's nanoseconds at engine time zero, pauses added
        self.frozen: int | None = None  # engine time at which a pause began
        self.recorder = Recorder(ticket.index, ticket.incarnation, self.plan.record)
        self.counters = self.recorder.counters
        self.ids = self.plan.role_ids
        self.inbox: deque[Message] = deque()
        self.trained: set[str] = set()  # peers that have computed a gradient
        self.kinds = self.plan.message_set
        self.factor, self.step_from = ticket.factor, -1
        self.waiting: tuple[tuple[type, ...], str | None] | None = None
        self.interrupt = self.watched = False
        self.saved_at, self.unsaved = 0.0, None
        rng = stream(self.plan.seed, self.spec.kind, self.spec.index, "time")
        self.pace = Sampler(ticket.pace, rng) if ticket.pace else None
        serving = Sampler(ticket.server_time, rng) if ticket.server_time else None
        self.laws = {"gradient": self.pace, "server": serving, "measure": None}
        start = ticket.objective.start(self.plan.seed) if self.spec.shard is not None else None
        parts = build_parts(self.plan, self.spec, self.recorder, self.clock, self._watch, ticket.objective, start, test)
        self.shard: Shard | None = next((p for p in parts if isinstance(p, Shard)), None)
        self.judge = parts[0] if self.spec.kind == "chief" else None
        self.strategy = self.plan.strategy
        batches = batch_maker(self.plan, share) if self.spec.data is not None else None
        context = RealContext(self, self.plan.layout.peers(), batches)
        self.coroutine = getattr(self.strategy, self.spec.kind)(context, *parts)

    def clock(self) -> int:
        """Engine time, ns."""
        return time.monotonic_ns() - self.zero if self.frozen is None else self.frozen

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
            self._poll(0.5)
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
        elif unless is not None and self._has(unless):
            cancelled = getattr(part, "discard", None)
            value = None if cancelled is None else cancelled(value)
        self.recorder.span(PHASE[work], began, self.clock(), self.counters.computed)
        if part is self.shard and 0 <= self.step_from < self.counters.version:
            self.step_from = -1
            self._freeze()
            self._report()
            self.slot.report("stepped")
            self.slot.flag = True  # stand still now, before the next effect
        return self.coroutine.send, value

    def _receive(self, effect: tuple[Any, ...]) -> Any:
        kinds, timeout, sender = effect[1], effect[2], effect[3]
        message = self._find(kinds, sender)
        if message is not None:
            return message
        if self.wire.inbox or (timeout is not None and timeout <= 0):
            self._poll(0.0)
            message = self._find(kinds, sender)
            if message is not None or (timeout is not None and timeout <= 0):
                return message
        began = self.clock()
        until = None if timeout is None else began + nanoseconds(timeout)
        limit = self.plan.budget.seconds if self.judge is not None else None
        if until is None or (limit is not None and until >= nanoseconds(limit)):  # the end of the run is no way out
            self.waiting = (kinds, sender)
        self.interrupt = False
        while message is None and not self.interrupt:
            left = 0.25 if until is None else min(0.25, seconds(until - self.clock()))
            if left <= 0:
                break
            self._poll(left)
            message = self._find(kinds, sender)
            if message is None and self.slot.flag:
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
            if unless is not None and self._has(unless):
                return False
            left = until - self.clock()
            if left <= 0 or self.interrupt:
                return True
            self._poll(min(0.25, left / NANO))
            if self.slot.flag:
                self._attend()

    # messages ---------------------------------------------------------------------------------------------------------

    def send(self, to: str, message: Message) -> Posted:
        """Say `message` to role `to`: see `Context.send`."""
        counters, category, now = self.counters, TRAINING, self.clock()
        if getattr(message, "carries", False):
            hand_on(self.recorder, now, message)
        elif not counters.computed and to not in self.trained:
            category = STARTUP
        if message.__class__ is Weights:
            counters.reads[self.ids[to]] = message.version  # type: ignore[attr-defined]
        elif to not in self.ids or message.__class__ not in self.kinds:
            raise refused(self.spec.name, to, message, self.ids, self.strategy)
        counters.bytes[category] += self.wire.send(to, message, category, counters.computed)
        counters.messages += 1
        counters.phases[SEND] += self.clock() - now
        return SENT

    def _poll(self, timeout: float) -> None:
        """Wait for the wire, and sort in what came."""
        wire = self.wire
        wire.poll(timeout)
        rows = self.recorder.messages
        while wire.inbox:
            d = wire.inbox.popleft()
            message = d.message
            rows.extend((self.ids[message.sender], d.kind_index, d.category, d.nbytes, d.sent_ns, d.received_ns))
            if d.computed:
                self.trained.add(message.sender)
            if message.__class__ is Look:
                self._look(message)
            else:
                self.inbox.append(message)

    def _find(self, kinds: tuple[type, ...], sender: str | None) -> Message | None:
        for i, message in enumerate(self.inbox):
            if message.__class__ in kinds and (sender is None or message.sender == sender):
                del self.inbox[i]
                if message.carries:
                    self.counters.taken[self.ids[message.sender]] = message.step  # type: ignore[attr-defined]
                return message
        return None

    def _has(self, kind: type) -> bool:
        if not self.slot.flag:
            self._poll(0.0)
        return any(message.__class__ is kind for message in self.inbox)

    def _look(self, look: Any) -> None:
        if look.final and self.shard is not None:
            self._show(True)
        else:
            self.watched = True

    def _watch(self, shard: Shard) -> None:
        full = shard.limits.reached(shard.version, shard.samples)
        if self.watched or full:
            self.watched = False
            self._show(False)

    def _show(self, final: bool) -> None:
        shard = self.shard
        assert shard is not None
        values = shard.values if self.spec.name in self.plan.layout.observed else shard.values[:0]
        snapshot = Snapshot(values, shard.index, shard.version, shard.samples, final)
        self.counters.bytes[EVALUATION] += self.wire.send("chief", snapshot, EVALUATION, self.counters.computed)

    def keep(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, unless the last is younger than a second; the newest is then written at the end."""
        self.unsaved = dict(state)  # type: ignore[assignment]
        if self.ticket.folder is not None and time.monotonic() - self.saved_at >= SAVE_EVERY:
            self._write()

    def _write(self) -> None:
        self.saved_at = time.monotonic()
        if self.unsaved is None or self.ticket.folder is None:
            return
        try:
            write_state(Path(self.ticket.folder), self.spec.name, self.unsaved)
            self.unsaved = None
        except OSError as error:
            self.recorder.mark(self.clock(), "warning", f"{self.spec.name} could not save its checkpoint: {error}")

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
        self.step_from = self.counters.version if command["step"] and self.shard is not None else -1

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
            sent=sum(self.wire.sent.values()), received=sum(self.wire.received.values()) - len(self.wire.inbox),
            held=len(self.inbox),
        )  # fmt: skip

    def _farewell(self, command: dict[str, Any]) -> dict[str, Any]:
        """Close in order: say goodbye; when everybody has said so, read what is still under way; count it."""
        ended = self.frozen = self.clock()
        with contextlib.suppress(Exception):  # a role that goes on after it was told to end: nobody drives it any more
            self.coroutine.close()
        self._write()
        gone = set(command.get("lost", ()))
        for name in gone:
            self.wire.forget(name)
        late = set()
        if command["do"] == "end":
            late = self.wire.finish_sending(GOODBYE_S)
            self.slot.report("ended")
            if self._all_have_ended():
                late |= self.wire.drain(set(self.ids) - gone, GOODBYE_S)
        while self.wire.inbox:
            self.inbox.append(self.wire.inbox.popleft().message)
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
        until = time.monotonic() + LINGER
        while time.monotonic() < until:
            for command in self.slot.take():
                if command["do"] in ("drain", "leave"):
                    return bool(command["do"] == "drain")
            self.wire.poll(0.25)
        return False


def _whole(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None or values.strides == (0,) else np.array(values)


