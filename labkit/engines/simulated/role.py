"""A role in virtual time: drives its coroutine and performs the effects that it awaits.

The coroutine is driven by `coroutine.send`. The duration of work is drawn from the distribution for its kind of work. The
function of the work is called at the end of this duration, so it is never called if the work is cancelled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RoleError
from ...random_streams import COMPUTE_TIME, SERVER_TIME, role_stream
from ...roles.context import NOTED, SAVED, Context, discard_posts
from ...roles.effects import COMPUTE, OPEN, RECV, SELECT, SLEEP, Posted, TaskWait, TaskWork
from ...roles.layout import RoleSpec
from ...roles.messages import Message, SnapshotRequest
from ...roles.part import Part
from ...roles.tasks import RoleTasks
from ...trace.events import Note
from ...trace.recorder import SPAN, Counters, Recorder
from ...trace.schema import COMPUTE as COMPUTING
from ...trace.schema import SLEEP as SLEEPING
from ...trace.schema import WAIT as WAITING
from ...trace.schema import nanoseconds, seconds
from ..distributions import Deterministic, Distribution, Sampler
from ..error_texts import foreign_effect
from ..role_core import PHASE, Communication, KnownMembers, RoleCore, described
from .event_loop import CHIEF_WAKE, DONE, EARLY, LATE, WAKE, EventLoop
from .network import SimulatedNetwork

if TYPE_CHECKING:
    from .run import SimulatedRun

POLLS = 100_000  # receives without a wait in one instant, after which a role gets an error, because time does not pass

# (draws the duration in ns, None: no time; phase; whether it is an update, which ends a turn)
Job = tuple[Callable[[], int] | None, int, bool]

WAIT: Any = object()  # returned in place of an effect's result if the role has to wait


class Cores:
    """The cores of one node. Its roles queue for them; a role uses one core at a time."""

    __slots__ = ("_ends",)

    def __init__(self, count: int):
        self._ends: list[dict[str, int]] = [{} for _ in range(count)]  # of each core: {role: when (ns) its work ends}

    def reserve(self, role: str, now: int, duration: int) -> int:
        """Reserve the core that is free first for `duration` ns of work of `role`; returns when (ns) the work starts."""
        free = [max(ends.values(), default=0) for ends in self._ends]
        start = max(now, min(free))
        self._ends[free.index(min(free))][role] = start + duration
        return start

    def postpone(self, role: str, delay: int) -> None:
        """Postpone the end of the work of `role` by `delay` ns."""
        for ends in self._ends:
            if role in ends:
                ends[role] += delay

    def release(self, role: str) -> None:
        """Release the core of `role`, whose work is done or cancelled. The start times already reserved for
        roles in the queue do not change.
        """
        for ends in self._ends:
            ends.pop(role, None)


class TimedWork:
    """Work in progress of a role with tasks. It has the interface of a role in the event loop, with a timer of its own: the work
    goes on while messages are delivered to other tasks of the role.

    `phase`: that of its span. `end`: when (ns) it is done.
    """

    __slots__ = ("end", "name", "phase", "role", "token", "work")

    def __init__(self, role: SimulatedRole, work: TaskWork, phase: int, end: int):
        self.role, self.name, self.work, self.phase, self.end = role, role.name, work, phase, end
        self.token = 0

    def schedule(self, loop: EventLoop) -> None:
        """Schedule its end. It may have passed, if the role was suspended when it was busy with a message."""
        loop.schedule(max(loop.now, self.end), EARLY, DONE, self, self.token)  # type: ignore[arg-type]

    def work_done(self) -> None:
        """Handle the event of the loop."""
        self.role.piece_done()


@dataclass
class Suspended:
    """The pending operations of a role that was suspended at `since` (ns)."""

    since: int
    waiting: Any
    sender: str | None
    unless: Any
    timers: list[tuple[int, int, int]]  # (ns left, priority, what)
    values: list[Any]  # with which it is resumed
    waits: list[TaskWait] | None = None  # of its tasks
    snapshot_requests: list[SnapshotRequest] = field(default_factory=list)  # snapshot requests received since


class SimulatedRole(RoleCore):
    """One role in virtual time, in its newest incarnation.

    `id`: its number in the trace. `node`: the number of its node. `cores`: the cores of the node, if several roles share them.
    `factor`: slowdown relative to its distribution. `down`: why no instance is present; "" if one is. `returned`: whether its
    coroutine has returned. `state`: saved by `ctx.save` for the next incarnation. `context`: the context of the newest instance.
    """

    __slots__ = (
        "_coroutine", "_jobs", "_latest", "_loop", "_piece", "_polls", "_resume", "_selects", "_suspended", "_suspensions",
        "_unless", "_wait_sender", "_waits", "_wake", "_working", "by_name", "context", "cores", "down", "factor", "id",
        "make_coroutine", "node", "returned", "run", "since", "state", "token", "touched", "transmit", "waiting",
    )  # fmt: skip

    transmit: Callable[[str, Message, int], int]  # an attribute, not a method: saves one call per message

    def __init__(
        self, spec: RoleSpec, node: int, recorder: Recorder, ids: Mapping[str, int], kinds: frozenset[type],
        members: KnownMembers, strategy: Any, loop: EventLoop, network: SimulatedNetwork, by_name: Mapping[str, SimulatedRole],
        run: SimulatedRun,
    ):  # fmt: skip
        super().__init__(spec, recorder, ids, kinds, members, strategy)
        self.id, self.node, self.by_name, self.run = ids[spec.name], node, by_name, run
        self._loop, self.transmit = loop, partial(network.send, self)
        self.cores: Cores | None = None
        self.context: SimulatedContext | None = None
        self.factor = 1.0
        self.down, self.returned = "", False
        self.state: dict[str, Any] | None = None
        self.make_coroutine: Callable[[], Any] | None = None
        self._coroutine: Any = None
        self._resume: Any = None  # coroutine.send
        self.waiting: tuple[type, ...] | None = None  # kinds of message that it waits for
        self._wait_sender: str | None = None
        self.since = 0  # when (ns) the wait, the work or the sleep began
        self._unless: Any = None  # the kind of message that cancels its work
        self._working: Any = None  # (fn, args, phase) of the work in progress
        self._selects = False  # whether its present effect, or one before it, was that of a role with tasks
        self._waits: list[TaskWait] | None = None  # what its tasks wait for, until it is resumed
        self._piece: TimedWork | None = None  # work in progress of its tasks
        self.token = 0  # timers that carry another number are void
        self._wake = CHIEF_WAKE if spec.kind == "chief" else WAKE
        self.touched = True  # whether it may have rows or counts that are not in the trace yet
        self._polls = (0, 0)  # (instant, number of receives without a wait in it)
        self._jobs: dict[str, Job] = {}  # by kind of work
        self._latest: tuple[Any, Any] = (self, None)  # cache: the object of the latest work, and its job
        self._suspensions = 0  # nesting depth of `suspend`
        self._suspended: Suspended | None = None

    def draw_times(
        self, seed: int, gradient: Distribution, server: Distribution | None, evaluation: Distribution
    ) -> None:
        """Set the distributions of the durations of work. Each draws from a separate random stream, so that a different
        distribution for server work does not change the times of gradients."""
        kind, index = self.spec.kind, self.spec.index

        def draw(distribution: Distribution, purpose: int) -> Callable[[], int]:
            rng = None if isinstance(distribution, Deterministic) else role_stream(seed, kind, index, purpose)
            return Sampler(distribution, rng).next

        self._jobs = {
            "gradient": (draw(gradient, COMPUTE_TIME), PHASE["gradient"], False),
            "server": (draw(server, SERVER_TIME) if server else None, PHASE["server"], True),
            "measure": (draw(evaluation, COMPUTE_TIME), PHASE["measure"], False),
        }

    # instances --------------------------------------------------------------------------------------------------------

    def next_incarnation(self, recorder: Recorder) -> None:
        """Reset the role for another incarnation, with a new recorder."""
        self.recorder, self.counters = recorder, recorder.counters
        self.returned, self._latest = False, (self, None)
        self.trained.clear()

    @property
    def begun(self) -> bool:
        return self._resume is not None or self._coroutine is not None

    def begin(self) -> None:
        """Begin an instance. Its coroutine is created in its first turn: Python warns of a coroutine that is dropped before."""
        self._resume = self._first_turn

    def new_coroutine(self) -> Any:
        assert self.make_coroutine is not None
        return self.make_coroutine()

    def _first_turn(self, value: Any) -> Any:
        self._coroutine = self.new_coroutine()
        self._resume = self._coroutine.send
        return self._resume(value)

    def close(self) -> None:
        """Close the coroutine. Posts that it makes while it is closed, as in a `finally` block, have no effect."""
        if self.context is not None:
            discard_posts(self.context)
        with contextlib.suppress(Exception, SystemExit):  # it may ignore GeneratorExit; it is not driven any more
            self._coroutine.close()

    def end_instance(self) -> None:
        """Voids its timers, discards its inbox, closes its coroutine."""
        self._release_core()
        self._end_piece()
        self.waiting = self._unless = self._working = self._suspended = self._waits = None
        self._suspensions, self._resume, self.awaited_kinds, self._selects = 0, None, (), False
        self.token += 1
        self.inbox.clear()
        self._loop.cancel(self)
        self.close()

    def suspend(self) -> None:
        """Suspend the role: timers are stopped, and arriving messages stay in the inbox. Nested calls are counted."""
        self._suspensions += 1
        if self._suspensions == 1:
            timers, values = self._loop.suspend(self)
            waiting, now = self.waiting, self._loop.now
            before = Suspended(now, waiting, self._wait_sender, self._unless, timers, values, self._waits)
            self._suspended = before
            self.waiting = self._unless = self._waits = None
            if self._piece is not None:
                self._piece.token += 1
            self.token += 1

    def resume(self) -> None:
        """Undo one `suspend`. When all calls of `suspend` are undone, the role continues where it was."""
        self._suspensions -= 1
        if self._suspensions or self._suspended is None:
            return
        before, self._suspended, loop = self._suspended, None, self._loop
        self.waiting, self._wait_sender, self._unless = before.waiting, before.sender, before.unless
        delay = loop.now - before.since
        if self.cores is not None:
            self.cores.postpone(self.name, delay)
        if self.since > before.since:  # work for which no core was free yet
            self.since += delay
        if self._piece is not None:
            self._piece.end += delay
            self._piece.schedule(loop)
        self._waits = before.waits
        for wait in before.waits or ():
            wait.until += delay if wait.until >= 0 else 0
        for left, priority, what in before.timers:
            loop.schedule(loop.now + left, priority, what, self, self.token)
        for value in before.values:
            loop.make_ready(self, value)
        for request in before.snapshot_requests:
            self.snapshot_requested(request)
        if self._waits is not None or self._piece is not None:
            return self._offer()
        for i, message in enumerate(self.inbox):
            kind = message.__class__
            if self.waiting is not None and kind in self.waiting and self._wait_sender in (None, message.sender):
                del self.inbox[i]
                return self.deliver(message)
            if self._unless is not None and kind is self._unless:
                return self._cancel_work()  # the message stays in the inbox

    @property
    def suspended(self) -> bool:
        return self._suspensions > 0

    def interrupt(self) -> None:
        """If the role waits for a message, end the wait without a message: now, or when the role is no longer suspended."""
        before = self._suspended
        if before is not None and before.waiting is not None:
            before.waiting, before.timers = None, []
            before.values.append(None)
        elif before is not None and before.waits is not None:
            before.waits, before.timers = None, []
            before.values.append(None)
        elif self.waiting is not None or self._waits is not None:
            self.waiting = self._waits = None
            self.token += 1
            self._loop.make_ready(self, None)

    @property
    def waits_for(self) -> tuple[tuple[str, ...], str | None]:
        """(names of the kinds of message that it waits for, the required sender or None)."""
        if self._waits is not None:
            return described(self._waits)
        return tuple(kind.__name__ for kind in self.waiting or ()), self._wait_sender

    # effects ----------------------------------------------------------------------------------------------------------

    def drive(self, value: Any) -> None:
        """Send `value` into the coroutine, and perform the effects that it awaits until it has to wait."""
        self.touched = True
        while True:
            try:
                effect = self._resume(value)
            except StopIteration:
                self._returned()
                return
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # sys.exit() in a role ends the run, not the program
                self.run.role_failed(self, error)
                return
            mark = effect[0] if effect.__class__ is tuple and effect else None
            if mark is RECV:
                self.awaited_kinds = kinds = effect[1]
                value = self.take(kinds, effect[3]) if self.inbox else None
                if value is None:
                    if effect[2] is None:
                        self.waiting, self._wait_sender, self.since = kinds, effect[3], self._loop.now
                        return
                    value = self._receive(kinds, effect[2], effect[3])
            elif mark is COMPUTE:
                value = self._compute(effect)
            elif mark is SLEEP:
                value = self._sleep(effect[1])
            elif mark is SELECT:
                value = self._select(effect[1], effect[2])
            elif mark is OPEN:
                value = self._open(effect)
            else:
                self._raise_in_coroutine(foreign_effect(self.name, effect))
                return
            if value is WAIT:
                return

    # Each of the following returns the result of an effect, or `WAIT`.

    def _receive(self, kinds: tuple[type, ...], timeout: float, sender: str | None) -> Any:
        """Wait at most `timeout` seconds for a message that is not in the inbox yet."""
        if timeout <= 0:
            return self._at_once()
        loop = self._loop
        self.token += 1
        loop.schedule(loop.now + nanoseconds(timeout), LATE, self._wake, self, self.token)
        self.waiting, self._wait_sender, self.since = kinds, sender, loop.now
        return WAIT

    def _sleep(self, duration: float) -> Any:
        if duration <= 0:
            return self._at_once()
        loop = self._loop
        self.since = loop.now
        self.token += 1
        loop.schedule(loop.now + nanoseconds(duration), EARLY, self._wake, self, self.token)
        return WAIT

    def _at_once(self) -> Any:
        """Return the result of a receive or sleep that takes no time. After `POLLS` of these in one instant the role gets an
        error.
        """
        instant, polls = self._polls
        self._polls = (self._loop.now, polls + 1 if instant == self._loop.now else 1)
        if polls < POLLS:
            return None
        error = RoleError(
            f"looked {POLLS:,} times in one instant (timeout=0, or sleep(0), in a loop): virtual time passes only in a wait; let "
            "the loop `await ctx.sleep(0.001)`, or wait without timeout=0."
        )
        self._raise_in_coroutine(error)
        return WAIT

    def _compute(self, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        part, job = self._latest
        if getattr(fn, "__self__", None) is not part:
            try:
                job = self._job_of(fn)
            except RoleError as error:
                self._raise_in_coroutine(error)
                return WAIT
        draw, phase, serves = job
        duration = draw() if draw is not None else 0
        if cost != 1.0 or self.factor != 1.0:
            duration = round(duration * cost * self.factor)
        if unless is not None and any(m.__class__ is unless for m in self.inbox):
            return self._call(give_up, (fn,))
        if not duration:
            return self._update(fn, args) if serves else self._call(fn, args)
        loop = self._loop
        start = loop.now
        if self.cores is not None:
            start = self.cores.reserve(self.name, start, duration)
        end = start + duration
        self.since, self._working, self._unless = start, (fn, args, phase), unless
        self.token = token = self.token + 1
        loop.sequence = entry = loop.sequence + 1
        loop.add_event((end, EARLY, entry, DONE, self, token))
        return WAIT

    def _open(self, effect: tuple[Any, ...]) -> Any:
        """Let `RoleTasks` drive the coroutine from now on."""
        self._coroutine = RoleTasks(self._coroutine, effect)
        self._resume = self._coroutine.send

    def _select(self, work: TaskWork | None, waits: list[TaskWait]) -> Any:
        """Begin `work`, unless it is in progress, and wait until it is done or one of `waits` is over."""
        self._selects, now = True, self._loop.now
        if self._piece is not None and self._piece.work is not work:
            self._cancel_piece()
        if work is not None and not work.begun:
            self._begin_piece(work)
        first = self.begin_waits(waits, now)
        if work is not None and work.finished:
            return work
        if self.inbox:
            wait = self.take_first(waits)
            if wait is not None:
                return wait
        if first is not None and first.timeout <= 0:  # type: ignore[operator]
            return self._at_once() or first
        if work is None and not waits:
            return None
        self._wait_for_tasks(waits, first)
        return WAIT

    def _wait_for_tasks(self, waits: list[TaskWait], first: TaskWait | None) -> None:
        """Wait until the work in progress is done or one of `waits` is over; `first`: the one whose timeout ends first."""
        loop = self._loop
        self._waits = waits
        if self._piece is None:
            self.since = loop.now
        self.token += 1
        if first is not None:
            loop.schedule(first.until, LATE if first.kinds else EARLY, self._wake, self, self.token)

    def _begin_piece(self, work: TaskWork) -> None:
        """Begin work of a task. It is over at once if a message of the kind `unless` has arrived before."""
        work.begun = True
        if work.unless is not None and any(m.__class__ is work.unless for m in self.inbox):
            self._give_up(work)
            return
        try:
            draw, phase, _ = self._job_of(work.fn)
        except RoleError as error:
            work.finished, work.error = True, error
            return
        loop = self._loop
        duration = round((draw() if draw is not None else 0) * work.cost * self.factor)
        start = loop.now if self.cores is None else self.cores.reserve(self.name, loop.now, duration)
        self._piece = piece = TimedWork(self, work, phase, start + duration)
        self.since, self._working, self._unless = start, (work.fn, work.args, phase), work.unless
        piece.schedule(loop)

    def _end_piece(self) -> None:
        """End the work in progress of a task: its timer is void."""
        if self._piece is not None:
            self._piece.token += 1
            self._piece = self._working = self._unless = None

    def _cancel_piece(self) -> None:
        """Cancel the work in progress of a task."""
        piece, now = self._piece, self._loop.now
        assert piece is not None
        self.recorder.span(piece.phase, min(self.since, now), now, self.counters.computed)
        self._release_core()
        self._end_piece()
        self.since = now
        self._give_up(piece.work)

    def _give_up(self, work: TaskWork) -> None:
        """Notify the part whose work is cancelled."""
        work.finished = True
        try:
            give_up(work.fn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            work.error = error

    def _offer(self) -> None:
        """Resume the role if one of its tasks waits for a message of the inbox. Work is cancelled if one of the kind `unless` is
        there.
        """
        over: TaskWait | TaskWork | None = None if self._waits is None else self.take_first(self._waits)
        if over is not None:
            self._resume_tasks(over)
        unless = self._unless
        if unless is not None and any(m.__class__ is unless for m in self.inbox):
            if self._piece is None:
                self._cancel_work()
                return
            work = self._piece.work
            self._cancel_piece()
            if self._waits is not None:
                self._resume_tasks(work)

    def _resume_tasks(self, over: TaskWait | TaskWork) -> None:
        """Resume the role in this instant, because what one of its tasks waits for is over."""
        if self._piece is None and self._loop.now > self.since:
            self.recorder.span(WAITING, self.since, self._loop.now)
        self._waits = None
        self.token += 1
        self._loop.make_ready(self, over)

    def piece_done(self) -> None:
        """Complete the work of a task, whose duration has passed."""
        work = self._complete_piece()
        if self._waits is not None:  # else it is resumed in this instant anyway
            self._waits = None
            self.token += 1
            self.drive(work)

    def _complete_piece(self) -> TaskWork:
        piece, now, counters = self._piece, self._loop.now, self.counters
        assert piece is not None
        work = piece.work
        since = self.since
        counters.phases[piece.phase] += now - since
        self.recorder.spans += SPAN(piece.phase, since, now, counters.computed)
        self._release_core()
        self._end_piece()
        self.since, self.touched, work.finished = now, True, True
        try:
            work.result = work.fn(*work.args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            work.error = error
        return work

    def _job_of(self, fn: Any) -> Job:
        """Return the duration and phase of work by its kind: see `RoleCore.kind_of_work`."""
        part = getattr(fn, "__self__", None)
        job = self._jobs[self.kind_of_work(part)]
        if part is not None:
            self._latest = part, job
        return job

    def _update(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """Perform an update that takes no time. It ends the turn, so that a run can stop after each update. Roles that were
        ready before continue first.
        """
        loop = self._loop
        loop.sequence = number = loop.sequence + 1
        value = self._call(fn, args)
        return value if value is WAIT or loop.make_ready_at(self, value, number) else WAIT

    def _call(self, fn: Any, args: tuple[Any, ...]) -> Any:
        """Call `fn(*args)`; an exception is raised inside the coroutine, at its `await`."""
        try:
            return fn(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._raise_in_coroutine(error)
            return WAIT

    def _raise_in_coroutine(self, error: BaseException) -> None:
        """Raise `error` inside the coroutine. If it is caught there, the role continues with its next effect."""
        self.touched = True
        try:
            effect = self._coroutine.throw(error)
        except StopIteration:
            self._returned()
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            self.run.role_failed(self, failure)
        else:
            self._resume = self._effect_first(effect)
            self._loop.make_ready(self, None)

    def _effect_first(self, effect: Any) -> Callable[[Any], Any]:
        """Return a replacement for `coroutine.send` that first returns `effect`, which is already known."""

        def resume(_: Any) -> Any:
            self._resume = self._coroutine.send
            return effect

        return resume

    def _error_first(self, error: BaseException) -> Callable[[Any], Any]:
        """Return a replacement for `coroutine.send` that first raises `error` inside the coroutine, at the role's next turn."""

        def resume(_: Any) -> Any:
            self._resume = self._coroutine.send
            return self._coroutine.throw(error)

        return resume

    def _returned(self) -> None:
        if self._piece is not None:
            self._cancel_piece()
        self._resume, self.returned = None, True
        self.run.role_returned(self)

    def _release_core(self) -> None:
        if self.cores is not None:
            self.cores.release(self.name)

    def _cancel_work(self) -> None:
        """Cancel the work in progress, because a message of the kind `unless` has arrived."""
        fn, _, phase = self._working
        self.token += 1
        self.recorder.span(phase, self.since, self._loop.now, self.counters.computed)
        self._release_core()
        self._working = self._unless = None
        try:
            give_up(fn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._resume = self._error_first(error)
        self._loop.make_ready(self, None)

    # events -----------------------------------------------------------------------------------------------------------

    def work_done(self) -> None:
        """Complete the work, whose duration has passed: call its function, and resume the coroutine with the result."""
        fn, args, phase = self._working
        self._working = self._unless = None
        if self.cores is not None:
            self.cores.release(self.name)
        since, now, counters = self.since, self._loop.now, self.counters
        counters.phases[phase] += now - since
        self.touched = True
        self.recorder.spans += SPAN(phase, since, now, counters.computed)
        value = self._call(fn, args)
        if value is not WAIT:
            self.drive(value)

    def wait_over(self) -> None:
        """Resume after a sleep, or after the timeout of a wait."""
        waits, self._waits = self._waits, None
        if waits is not None:
            if self._piece is None:
                phase = WAITING if any(wait.kinds for wait in waits) else SLEEPING
                self.recorder.span(phase, self.since, self._loop.now)
            return self.drive(self.begin_waits(waits, self._loop.now))
        waited = self.waiting is not None
        self.waiting = None
        self.recorder.span(WAITING if waited else SLEEPING, self.since, self._loop.now)
        self.drive(None)

    def deliver(self, message: Message) -> None:
        """Process a message that has arrived, as `RoleCore.deliver`. A snapshot request is answered without the coroutine."""
        kind, waiting, loop = message.__class__, self.waiting, self._loop
        self.touched = True
        if (
            waiting is not None
            and kind in waiting
            and (self._wait_sender is None or self._wait_sender == message.sender)
        ):
            now = loop.now
            if now > self.since:
                self.recorder.span(WAITING, self.since, now)
            self.waiting = None
            self.token += 1
            if message.carries or self.unacknowledged:
                self.received(message)
            loop.sequence = entry = loop.sequence + 1
            loop.add_ready((now, EARLY, entry, self, message))
        elif kind is SnapshotRequest:
            if self._suspended is not None:
                self._suspended.snapshot_requests.append(message)  # type: ignore[arg-type]
            else:
                self.snapshot_requested(message)  # type: ignore[arg-type]
        else:
            self.inbox.append(message)
            if self._selects:
                self._offer()
            elif self._unless is kind:
                self._cancel_work()

    # implementation of RoleCore ---------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Virtual time, ns."""
        return self._loop.now

    def computed_until(self, now: int) -> int:
        done = self.counters.phases[COMPUTING]
        computing = self._working is not None and self._working[2] == COMPUTING
        return done + max(0, now - self.since) if computing else done

    def has_computed(self, peer: str) -> bool:
        """Return whether the present instance of `peer` has computed a gradient. In virtual time this is always known."""
        counters = self.by_name[peer].counters
        return bool(counters.computed or counters.steps or counters.activations)

    # the record -------------------------------------------------------------------------------------------------------

    def report(self, now: int) -> dict[str, Any]:
        """Return a batch for the trace: the records since the last report. Counters are copied, because other threads read the
        trace while the role continues."""
        self.touched = False
        self.counters.open = [] if self._working is None else [self._working[2], self.since]
        return self.recorder.take(now, plain=False) | {"counters": _copied(self.counters)}


def give_up(fn: Any) -> None:
    """Notify the part whose method `fn` is that its work is cancelled."""
    part = getattr(fn, "__self__", None)
    if isinstance(part, Part):
        part.cancelled()


def _copied(counters: Counters) -> Counters:
    made = Counters.__new__(Counters)
    for name, value in zip(_COUNTED, _COUNTS(counters)):
        setattr(made, name, value)
    for name in _COLLECTED:
        setattr(made, name, getattr(made, name).copy())
    return made


# Counters are copied often, so the names of the collections are determined once.
_COUNTED: Sequence[str] = Counters.__slots__
_COUNTS = attrgetter(*_COUNTED)
_COLLECTED = tuple(name for name in _COUNTED if isinstance(getattr(Counters(), name), dict | list))


class SimulatedContext(Context):
    """The context of one role instance: performs its posts in virtual time."""

    def __init__(self, role: SimulatedRole, seed: int, batches: Any):
        super().__init__(role.name, role.spec.kind, role.spec.index, seed, role.members.peers, batches)
        self._role = role
        self.send = role.send  # type: ignore[method-assign]  # saves one call per message

    def send(self, to: str | Message, message: Message) -> Posted:
        return self._role.send(to, message)

    def note(self, text: str, **numbers: float) -> Posted:
        """Add a note to the trace."""
        role = self._role
        role.recorder.event(Note(role.clock(), text, {k: float(v) for k, v in numbers.items()}))
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Save `state` for the next incarnation of this role. It is stored in memory and survives the loss of the role."""
        self._role.state = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
        return SAVED

    def communication(self, number: int) -> Communication:
        return Communication(self._role, number)

    @property
    def now(self) -> float:
        """Virtual seconds since the start of the run."""
        return seconds(self._role.clock())
