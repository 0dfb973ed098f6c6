"""One role instance in real time: a thread that drives the coroutine of its role.

The thread performs the effects that the coroutine yields: compute, send, receive, sleep. Between two effects it
executes commands of the client and sends reports. On the command to end, it sends a close frame on each connection,
reads the messages that are still in flight, and returns the final report.

`RoleCore` contains the rules for sending, matching, incarnations and accounting. The other components are the endpoint
(messages), the command channel (commands and reports), the clock (engine time), checkpoints, and pacing.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import RoleError
from ....nn import SparseParameters
from ....random_streams import COMPUTE_TIME, SERVER_TIME, role_stream
from ....roles.context import NOTED, SAVED, Context, discard_posts
from ....roles.effects import COMPUTE, OPEN, RECV, SELECT, SLEEP, Posted, TaskWait, TaskWork
from ....roles.evaluator import Evaluator
from ....roles.group_restart import SAVE_EVERY, drop_unapplied
from ....roles.messages import Message, Snapshot, SnapshotRequest, bytes_outside_arrays
from ....roles.part import Part
from ....roles.shard import Shard
from ....roles.tasks import RoleTasks
from ....trace.events import ConnectionRefused, EngineWarning, Note
from ....trace.recorder import MESSAGE, Recorder
from ....trace.schema import COMPUTE as COMPUTING
from ....trace.schema import NANO, SEND, nanoseconds, seconds
from ....trace.schema import SLEEP as SLEEPING
from ....trace.schema import WAIT as WAITING
from ...distributions import Sampler
from ...elastic import moving_roles
from ...error_texts import failure_report, foreign_effect
from ...pacing import Pacing, WorkTimes
from ...plan import batch_maker, build_parts, make_coroutine
from ...role_core import PHASE, Communication, KnownMembers, RoleCore, described
from ...storage.store import Store
from ..protocol import ProtocolError
from ..transport.endpoint import Endpoint
from .assignment import RoleAssignment
from .checkpointing import Checkpointing
from .command_channel import Command, CommandChannel
from .role_clock import RoleClock

# Polling interval (ns) of a role that computes without waiting, because the chief may request a snapshot of its shard.
POLL_INTERVAL_NS = 10_000_000
POLL_S = 0.25  # longest single wait, seconds
REPORT_BYTES = 16_384  # limit of the rows in one report
FINAL_REPORT_BYTES = 4_000_000  # limit of the rows in the final report
PAUSED_POLL_S = 0.05  # interval at which a paused role serves its connections, seconds
CLOSE_S = 2.0  # time limit for sending close frames, and for reading messages in flight, seconds
DRAIN_WAIT_S = 30.0  # time limit for all other roles to send their close frames, seconds


class Ended(BaseException):
    """Raised in the role's thread to end the role. Its argument is the command that ends the role. Never raised in a strategy."""


@dataclass
class PacedWork:
    """Work whose function has been called: its kind, when (ns) it began, the number of the gradient, and the end (ns) of its
    paced duration (None: it is not paced).
    """

    work: TaskWork
    kind: str
    began: int
    step: int
    until: int | None = None


class RealContext(Context):
    def __init__(self, role: RealRole, batches: Any):
        spec, members = role.spec, role.members
        super().__init__(spec.name, spec.kind, spec.index, role.assignment.plan.seed, members.peers, batches)
        self._role = role
        self.incarnation = role.assignment.incarnation
        self.send = role.send  # type: ignore[method-assign]  # saves one call on the hot path

    def send(self, to: str | Message, message: Message) -> Posted:
        """Send `message` to role `to`, without blocking. If `to` is a message, `message` is the reply to it."""
        return self._role.send(to, message)

    def note(self, text: str, **numbers: float) -> Posted:
        self._role.recorder.event(Note(self._role.clock(), text, {k: float(v) for k, v in numbers.items()}))
        return NOTED

    def save(self, state: Mapping[str, Any]) -> Posted:
        """Save `state` in a checkpoint: at most once per second, and the newest state when the role ends."""
        role = self._role
        role.checkpoints.request(state, role.shard, role.clock())
        return SAVED

    def communication(self, number: int) -> Communication:
        return Communication(self._role, number)

    @property
    def now(self) -> float:
        """Seconds since the run began; pauses do not count."""
        return seconds(self._role.clock())


class RealRole(RoleCore):
    """The role instance of an `assignment`. Its thread calls `begin`, then `run`, which returns the final report.

    `share`: training data of this role; `test`: held-out data (for the chief). `endpoint`: connections to the other roles.
    `channel`: connection to the client. `checkpoints`: checkpoints of this instance.
    """

    def __init__(
        self, assignment: RoleAssignment, share: Any, test: Any, endpoint: Endpoint, channel: CommandChannel,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ):  # fmt: skip
        plan, spec, incarnation = assignment.plan, assignment.spec, assignment.incarnation
        recorder = Recorder(assignment.index, incarnation, plan.record, len(plan.role_ids))
        if spec.shard is not None or spec.backs is not None:  # keep drops until they are acknowledged
            recorder.unacknowledged = deque()
        members = KnownMembers(dict(plan.layout.peers()), dict.fromkeys(plan.role_ids, 0))
        super().__init__(spec, recorder, plan.role_ids, plan.message_set, members, plan.strategy)
        self.assignment, self._plan, self._incarnation = assignment, plan, incarnation
        self._endpoint, self._channel = endpoint, channel
        self._poll = endpoint.poll  # (timeout in seconds)
        channel.wake = endpoint.wake  # a command ends the role's wait
        self._monotonic, self._clock = monotonic_ns, RoleClock(monotonic_ns)
        self._now = self._clock.now
        endpoint.clock, endpoint.deliver = self._now, self._delivered
        self._membership_number = self._links_number = -1  # numbers of the newest commands "members" and "link_faults"
        self._flow_number = 0
        self._resume_from: int | None = None  # new origin of engine time, if the run has resumed and this role has not
        self._joined: dict[str, int] = {}  # newest incarnation of each role that has been present
        self._links: dict[str, dict[str, Any]] = {}  # {peer: link fault}, only links with a fault
        # (names of the kinds, sender) of a wait without timeout
        self._waiting: tuple[tuple[str, ...], str | None] | None = None
        self._piece: PacedWork | None = None  # paced work in progress of a task
        self._interrupted = False  # the current wait or sleep must end now
        self._polled_at, self._step_to, self._repeated = 0, -1, 0
        self._looked_at, self._unreached = 0, dict[str, Any]()
        self._pacing = Pacing()
        self._work_times = WorkTimes(self._samplers(), assignment.factor)
        parts = build_parts(
            plan, spec, recorder, self._now, self._watch, assignment.objective, self.strategy, test, incarnation
        )
        self.shard = next((p for p in parts if isinstance(p, Shard) and spec.backs is None), None)
        self._evaluator: Evaluator | None = parts[0] if spec.kind == "chief" else None
        if self._evaluator is not None:
            self._evaluator.warm_up(plan.seed)
        batches = batch_maker(plan, spec, share, incarnation, lambda: self._context.peers("worker"))
        self._context = RealContext(self, batches)
        store = None if assignment.folder is None else Store(assignment.folder, times_resumed=assignment.times_resumed)
        self.checkpoints = Checkpointing(spec.name, incarnation, store, assignment.every, self._warn)
        self._saved_at: int | None = None  # engine time of the checkpoint that was restored
        self._restored = self._restore() if incarnation or assignment.restored else []
        if spec.backs is not None and assignment.restored is not None:
            parts[0].restore(*assignment.restored)
        if self.shard is not None and assignment.synchronized:
            self.shard.save_at, self.shard.on_checkpoint_due = 0, self._save_synchronized
        self._coroutine: Any = make_coroutine(self.strategy, plan, spec, self._context, parts)
        self._handlers: dict[str, Callable[[Command], None]] = {
            "begin": lambda command: None,  # a duplicate, which is ignored
            "members": self._update_members, "link_faults": self._set_link_faults, "flow": self._set_flow,
            "set": self._set_options, "slow": self._slow, "finish": self._finish_early,
            "version": self._report_version, "acknowledge": self._acknowledge, "end": self._end, "leave": self._end,
            "drain": self._end, "group_restart": self._end, "depart": self._end,
        }  # fmt: skip

    def _samplers(self) -> dict[str, Sampler | None]:
        """Return {kind of work: the sampler that paces it, or None}. Each sampler has a separate random stream."""
        plan, spec, assignment = self._plan, self.spec, self.assignment

        def sampler(distribution: Any, purpose: int) -> Sampler | None:
            drawn = role_stream(plan.seed, spec.kind, spec.index, purpose, assignment.incarnation)
            return Sampler(distribution, drawn) if distribution else None

        return {
            "gradient": sampler(assignment.pace, COMPUTE_TIME), "server": sampler(assignment.server_time, SERVER_TIME),
            "measure": None,
        }  # fmt: skip

    def _restore(self) -> list[Any]:
        """Restore the state of the last incarnation, and save it at once as a checkpoint of this incarnation.

        Returns [source, update, note] for `RoleRestarted`, as `Checkpointing.restore` does.
        """
        checkpoints = self.checkpoints
        self._context.restored, begins = checkpoints.restore(self.shard, self._evaluator, self.assignment.restored)
        self._saved_at = checkpoints.saved_at
        checkpoints.save(self.shard, 0)
        checkpoints.saved_at = None
        return begins

    def _save_synchronized(self, shard: Shard) -> None:
        """Save the shard if its version is a multiple of `SAVE_EVERY`, so all shards of a model are saved at equal versions."""
        if shard.version % SAVE_EVERY == 0:
            self.checkpoints.save(shard, self._now())

    def _warn(self, what: str) -> None:
        self.recorder.event(EngineWarning(self._now(), f"{self.name} {what}"))

    # the driver of the core -------------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Engine time, ns."""
        return self._now()

    def computed_until(self, now: int) -> int:
        done, piece = self.counters.phases[COMPUTING], self._piece
        return done + now - piece.began if piece is not None and PHASE[piece.kind] == COMPUTING else done

    def transmit(self, to: str, message: Message, category: int) -> int:
        """Send `message` to role `to`, without blocking. Returns its payload bytes."""
        counters, began = self.counters, self._monotonic()  # cheaper than `_now`; a sending role is not paused
        size = self._endpoint.send(to, message, category, counters.computed or counters.steps or counters.activations)
        # A snapshot is sent while the shard applies gradients, messages of tasks while the pace of a piece of work passes: this
        # time is counted already.
        if self._piece is None and message.__class__ is not Snapshot:
            counters.phases[SEND] += self._monotonic() - began
        return size

    def deliver(self, message: Message) -> None:
        """Put a message that has arrived into the inbox."""
        self.inbox.append(message)

    def _delivered(
        self, message: Message, kind: int, category: int, nbytes: int, sent_ns: int, received_ns: int, computed: int
    ) -> None:
        """Record a message that has arrived, and append it to the inbox. A `SnapshotRequest` is answered directly."""
        sender = message.sender
        nbytes += bytes_outside_arrays(message)
        self.recorder.messages += MESSAGE(self.ids[sender], kind, category, nbytes, sent_ns, received_ns)
        counters = self.counters
        if computed and not (counters.computed or counters.steps or counters.activations):
            self.trained.add(sender)  # `computed` comes from the frame header
        if message.__class__ is SnapshotRequest:
            self.snapshot_requested(message)  # type: ignore[arg-type]
        else:
            self.inbox.append(message)

    def _watch(self, shard: Shard) -> None:
        """Send the snapshot that the chief requested. Called when the shard has reached its version."""
        self.send_snapshot()

    # the loop ---------------------------------------------------------------------------------------------------------

    def initial_state(self) -> dict[str, Any]:
        """Return fields for the first report: source, time and version of the restored state."""
        return {"restored": self._restored, "saved_at": self._saved_at, "version": self.counters.version}

    def cancel_start(self) -> None:
        """Close the coroutine of an instance that will not begin."""
        self._coroutine.close()

    def begin(self, command: Command) -> None:
        """Set engine time, membership and options from the command to begin."""
        self._clock.begin(command["zero"], command.get("paused_at"))
        self.recorder.begin(self._now())
        self._set_options({"options": command.get("options", {})})
        self._apply_membership(command)
        self._joined = {name: incarnation for name, (*_, incarnation) in command["here"].items()}
        self.unacknowledged.update(name for name in command["incarnations"] if name not in command["here"])
        for order in command.get("orders", ()):
            self._execute(order)
        self._channel.pending |= self._clock.paused
        if self._restored:
            self.recorder.restored(self._now())

    def run(self) -> dict[str, Any]:
        """Run the role until a command ends it. Returns the final report."""
        try:
            self._drive()
            self._idle()
        except Ended as ended:
            return self._finish(ended.args[0])
        raise AssertionError("a role does not end by itself")

    def _drive(self) -> None:
        resume, value = self._coroutine.send, None
        while True:
            if self._channel.pending:
                self._process_commands()
            try:
                effect = resume(value)
            except StopIteration:
                self._finish_piece(finished=False)
                if self._evaluator is not None:  # the result is kept, even if this process is lost before it reports
                    self.checkpoints.finish(self.shard, self._now())
                self._channel.report("returned", verdict=self._evaluator.stopped_by if self._evaluator else None)
                return
            except BaseException as error:  # sys.exit() in a role ends the role, not the Dask worker
                self._failed(error)
                return
            mark = effect[0] if effect.__class__ is tuple and effect else None
            if mark is COMPUTE:
                resume, value = self._compute(effect)
            elif mark is RECV:
                resume, value = self._coroutine.send, self._receive(effect)
            elif mark is SLEEP:
                self._sleep(effect[1])
                resume, value = self._coroutine.send, None
            elif mark is SELECT:
                resume, value = self._coroutine.send, self._select(effect[1], effect[2])
            elif mark is OPEN:
                self._coroutine = RoleTasks(self._coroutine, effect)
                resume, value = self._coroutine.send, None
            else:
                resume, value = self._coroutine.throw, foreign_effect(self.name, effect)

    def _failed(self, error: BaseException) -> None:
        step = self.counters.computed if self.spec.computes else self.counters.version
        self._channel.report("failed", report=failure_report(self.name, step, error))

    def _idle(self) -> None:
        """Serve the connections after the coroutine has returned, until a command ends the role."""
        self._waiting = ((), None)
        while True:
            self._poll(0.5)
            if self._channel.pending:
                self._process_commands()

    # effects ----------------------------------------------------------------------------------------------------------

    def _compute(self, effect: tuple[Any, ...]) -> tuple[Any, Any]:
        """Perform a compute effect. Returns (method of the coroutine to call next, its argument)."""
        work = TaskWork(None, *effect[1:])
        piece = self._perform(work)
        if piece is not None:
            if piece.until is not None:
                finished = self._wait_until(piece.until, work.unless)
            else:
                finished = work.unless is None or not self._has_arrived(work.unless)
            self._complete(piece, finished)
        if work.error is not None:
            return self._coroutine.throw, work.error
        return self._coroutine.send, work.result

    def _perform(self, work: TaskWork) -> PacedWork | None:
        """Call the function of some work. Returns None if there is an error, which is stored."""
        work.begun = True
        try:
            kind = self.kind_of_work(getattr(work.fn, "__self__", None))
        except RoleError as error:
            work.finished, work.error = True, error
            return None
        self._endpoint.flush()
        began = self._now()
        if began - self._polled_at > POLL_INTERVAL_NS:
            self._poll(0.0)
            began = self._polled_at = self._now()
        self.counters.open = [PHASE[kind], began]
        piece = PacedWork(work, kind, began, self.counters.computed)
        try:
            work.result = work.fn(*work.args)
        except BaseException as error:
            work.finished, work.error = True, error
            return None
        if self._work_times.paced(kind):
            piece.until = self._pacing.deadline(began, self._work_times.duration(kind, work.cost, self._now() - began))
        return piece

    def _complete(self, piece: PacedWork, finished: bool) -> None:
        """Record that some work is done. If it is not `finished`, it was cancelled, and its result is discarded."""
        work, part = piece.work, getattr(piece.work.fn, "__self__", None)
        if piece.until is not None:
            self._pacing.ended(piece.until, self._now() if finished else piece.until)
        work.finished = True
        if not finished:
            try:
                work.result = _discard(part, work.result)
            except BaseException as error:
                work.error = error
                return
        self.counters.open = []
        self.recorder.span(PHASE[piece.kind], piece.began, self._now(), piece.step)
        if part is self.shard and 0 <= self._step_to <= self.counters.version:
            self._step_to = -1
            if self.spec.computes or self._plan.layout.replication != "local":
                # a local replica keeps answering the others until they have stepped, and pauses with them
                self._clock.pause()
            self._report()
            self._channel.report("stepped")
            self._channel.pending = True  # pauses before the next effect

    def _select(self, work: TaskWork | None, waits: list[TaskWait]) -> TaskWork | TaskWait | None:
        """Begin `work`, unless it is in progress, and wait until it is done or one of `waits` is over.

        Messages are received before the function of work is called, and while the paced duration of work passes.
        """
        if self._piece is not None and self._piece.work is not work:
            self._finish_piece(finished=False)
        if work is None and not waits:
            return None
        began = self._now()
        first = self.begin_waits(waits, began)
        if waits:
            over = self.take_first(waits)
            if over is None and (first is not None or work is not None):
                self._poll(0.0)
                over = self.take_first(waits)
            if over is None and first is not None and began >= first.until:
                over = first
            if over is not None:
                return over
        if work is not None and not work.begun:
            self._piece = self._perform(work)
            if self._piece is not None and self._piece.until is None:
                self._finish_piece(finished=work.unless is None or not self._has_arrived(work.unless))
            if self._piece is None:
                return work
        if self._piece is None and first is None:
            self._waiting = described(waits)
        self._interrupted = False
        ended = self._wait_for_one(waits, first)
        self._waiting = None
        if work is None:
            phase = WAITING if any(wait.kinds for wait in waits) else SLEEPING
            self.recorder.span(phase, began, self._now())
        return ended

    def _wait_for_one(self, waits: list[TaskWait], first: TaskWait | None) -> TaskWork | TaskWait | None:
        """Wait until the work in progress is done or one of `waits` is over; `first`: the one whose timeout ends first."""
        piece = self._piece
        unless = None if piece is None else piece.work.unless
        while not self._interrupted:
            now, left = self._now(), POLL_S
            if piece is not None and piece.until is not None:
                arrived = unless is not None and any(message.__class__ is unless for message in self.inbox)
                if arrived or now >= piece.until:
                    self._finish_piece(finished=not arrived)
                    return piece.work
                left = min(left, (piece.until - now) / NANO)
            if first is not None:
                if now >= first.until:
                    return first
                left = min(left, (first.until - now) / NANO)
            self._poll(left, piece is None)  # without spinning while the role would sleep until its pace has passed
            over = self.take_first(waits)
            if over is None and self._channel.pending:
                self._process_commands()
                over = self.take_first(waits)  # a command may have added a membership event
            if over is not None:
                return over
        return None

    def _finish_piece(self, finished: bool) -> None:
        """Complete the work in progress of a task; if it is not `finished`, it is cancelled."""
        piece, self._piece = self._piece, None
        if piece is not None:
            self._complete(piece, finished)

    def _receive(self, effect: tuple[Any, ...]) -> Message | None:
        kinds, timeout, sender = effect[1], effect[2], effect[3]
        self.awaited_kinds = kinds
        message = self.take(kinds, sender)
        if message is not None:
            return message
        if timeout is not None and timeout <= 0:
            self._poll(0.0)
            return self.take(kinds, sender)
        began = self._now()
        until = None if timeout is None else began + nanoseconds(timeout)
        limit = self._plan.budget.seconds if self._evaluator is not None else None
        if until is None or (limit is not None and until >= nanoseconds(limit)):  # no timeout before the end
            self._waiting = tuple(kind.__name__ for kind in kinds), sender
        self._interrupted, left = False, POLL_S
        while not self._interrupted:
            if until is not None:
                left = min(POLL_S, seconds(until - self._now()))
                if left <= 0:
                    break
            self._poll(left)
            message = self.take(kinds, sender)
            if message is not None:
                break
            if self._channel.pending:
                self._process_commands()
                message = self.take(kinds, sender)  # a command may have added a membership event
                if message is not None:
                    break
        self._waiting = None
        self.recorder.span(WAITING, began, self._now())
        return message

    def _sleep(self, duration: float) -> None:
        began = self._now()
        if duration > 0 and not (self._evaluator is not None and self._evaluator.stop_requested):
            self._interrupted = False
            self._wait_until(began + nanoseconds(duration), None)
            self.recorder.span(SLEEPING, began, self._now())

    def _wait_until(self, until: int, unless: type | None) -> bool:
        """Wait until engine time `until` (ns), executing commands and receiving messages.

        Returns False as soon as a message of kind `unless` has arrived.
        """
        while True:
            if unless is not None and self._has_arrived(unless):
                return False
            left = until - self._now()
            if left <= 0 or self._interrupted:
                return True
            self._poll(min(POLL_S, left / NANO), False)
            if self._channel.pending:
                self._process_commands()

    def _has_arrived(self, kind: type) -> bool:
        if not self._channel.pending:
            self._poll(0.0)
        return any(message.__class__ is kind for message in self.inbox)

    # commands ---------------------------------------------------------------------------------------------------------

    def _process_commands(self) -> None:
        """Execute pending commands, and send a report if one is due. Returns when the role is not paused."""
        for command in self._channel.commands():
            self._execute(command)
        if self._channel.report_due:
            self._channel.report_due = False
            if not self.assignment.synchronized:
                self.checkpoints.save_if_due(self.shard, self._now())
            self._report()
        while self._clock.paused and not self._try_resume():
            self._channel.posted.wait(
                PAUSED_POLL_S if self._resume_from is None else min(PAUSED_POLL_S, self._lead_seconds)
            )
            self._endpoint.progress()
            if self._channel.pending:
                for command in self._channel.commands():
                    self._execute(command)
                self._channel.report_due = False
                self._report()

    def _execute(self, command: Command) -> None:
        handler = self._handlers.get(command["do"])
        if handler is None:
            raise ProtocolError(f"{self.name} received an unknown command: {command['do']!r}")
        handler(command)

    def _end(self, command: Command) -> None:
        raise Ended(command)

    def _apply_membership(self, command: Command) -> None:
        """Apply a membership broadcast: the complete list of present roles with addresses and incarnations."""
        members, here, incarnations = self.members, command["here"], command["incarnations"]
        self._membership_number = command["change"]
        members.incarnations.update(incarnations)
        members.absent = {name for name in incarnations if name not in here and name != self.name}
        for name in incarnations:
            if name in here:
                self._endpoint.add_peer(name, *here[name])
            elif name in members.absent:  # connections of earlier incarnations are rejected from now on
                self._endpoint.fence(name, incarnations[name])
        members.peers.clear()
        members.peers.update({kind: tuple(names) for kind, names in command["peers"].items()})

    def _update_members(self, command: Command) -> None:
        """Apply a membership change: update `ctx.peers`, then add membership events for the coroutine.

        Ignores older broadcasts. Ends the role if a later incarnation of it exists.
        """
        if command["change"] <= self._membership_number:
            return
        if command["incarnations"][self.name] > self._incarnation:
            raise Ended({"do": "leave", "fenced": True})
        before = {name for names in self.members.peers.values() for name in names}
        self._apply_membership(command)
        now = {name for names in self.members.peers.values() for name in names}
        self.unacknowledged |= self.members.absent
        for name in command["incarnations"]:
            if name in before and name not in now:
                self.peer_left(name)
        for name, (*_, incarnation) in command["here"].items():
            if name != self.name and self._joined.get(name, -1) < incarnation:
                self._joined[name] = incarnation
                if name == "chief" and self.shard is not None and self.shard.finished:
                    self.send_snapshot()  # a finished shard sends its snapshot once; the new chief has not received it
                self.unacknowledged.add(name)
                self.peer_joined(name)

    def _set_link_faults(self, command: Command) -> None:
        """Set the faults of all links; unchanged links are not touched. Ignores older commands."""
        if command["number"] > self._links_number:
            self._links_number, before, self._links = command["number"], self._links, command["links"]
            self._endpoint.limit(command["per_byte"])
            for peer in before.keys() | self._links.keys():
                if before.get(peer) != self._links.get(peer):
                    self._endpoint.set_link_fault(peer, **self._links.get(peer, {}))

    def _set_flow(self, command: Command) -> None:
        """Pause the role, or resume it, optionally only until its shard has reached a goal version. Ignores older commands."""
        if command["number"] <= self._flow_number:
            return
        self._flow_number, self._resume_from = command["number"], None
        if command["paused"]:
            self._clock.pause()
        elif self._clock.paused or command["zero"] != self._clock.zero:  # different origins: a pause was missed
            self._clock.pause()
            self._resume_from = command["zero"]
        self._step_to = command["goals"].get(self.name, -1)

    @property
    def _lead_seconds(self) -> float:
        """Seconds by which this role's engine time is ahead of the resumed run; 0.0 if the run has not resumed."""
        return 0.0 if self._resume_from is None else max(0.0, seconds(self._clock.ahead_of(self._resume_from)))

    def _try_resume(self) -> bool:
        """End the pause if the run has resumed and this role is not ahead of it. Returns whether the pause has ended."""
        if self._resume_from is None or self._lead_seconds > 0:
            return False
        self._clock.resume(self._resume_from)
        self._resume_from = None
        return True

    def _report_version(self, command: Command) -> None:
        if self.shard is not None:
            self._channel.report("version", version=self.counters.version)

    def _slow(self, command: Command) -> None:
        self._work_times.factor = command["factor"]

    def _set_options(self, command: Command) -> None:
        for name, value in command["options"].items():
            object.__setattr__(self.strategy, name, value)

    def _acknowledge(self, command: Command) -> None:
        self.recorder.acknowledge(command["number"])

    def _finish_early(self, command: Command) -> None:
        """Let the chief make its final evaluation now."""
        if self._evaluator is not None and self._evaluator.stop_requested is None:
            self._evaluator.stop_requested = command["reason"]
            self._interrupted, self._waiting = True, None  # so the next report does not contain the interrupted wait

    # reports ----------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Send a report: the rows since the last report, the counters, and the kinds of messages that the role waits for."""
        if not self._clock.paused:
            self._endpoint.flush()
        self._count_repeated()
        kinds, sender = self._waiting or ((), None)
        busy = self._waiting is None or self._clock.paused
        self._channel.report(
            "batch", change=self._membership_number, batch=self.recorder.take(self._now(), REPORT_BYTES), only=sender,
            waiting=None if busy else list(kinds),
            sent=self._count(self._endpoint.sent), received=self._count(self._endpoint.received), flow=self._flow_number,
            finishing=self._evaluator is not None and self._evaluator.stop_requested is not None,
            unanswered=self._unanswered(),
        )  # fmt: skip

    def _unanswered(self) -> dict[str, Any]:
        """Return the peers that messages do not reach, looked up once per second: see `Endpoint.unanswered`."""
        now = self._monotonic()
        if now - self._looked_at >= NANO:
            self._looked_at = now
            self._unreached = {name: list(found) for name, found in self._endpoint.unanswered().items()}
        return self._unreached

    def _count(self, messages: Counter[str]) -> int:
        """Return the number of messages exchanged with roles that are present. Deadlock detection compares these counts."""
        absent = self.members.absent
        return sum(number for name, number in messages.items() if name not in absent)

    def _count_repeated(self) -> None:
        repeated = sum(self._endpoint.repeated.values())
        self.counters.duplicates += repeated - self._repeated
        self._repeated = repeated

    # the end ----------------------------------------------------------------------------------------------------------

    def _finish(self, command: Command) -> dict[str, Any]:
        """Shut down, and return the final report.

        On the command to end, sends close frames; when all roles have sent theirs, reads the messages in flight.
        """
        ended = self._clock.pause()
        discard_posts(self._context)
        with contextlib.suppress(Exception):  # a coroutine that yields again is abandoned
            self._coroutine.close()
        if command["do"] == "leave":
            self._channel.report("heartbeat")  # of an instance that was replaced: its return is recorded
        if not command.get("fenced"):
            self.checkpoints.finish(self.shard, ended)
        gone = set(command.get("lost", ()))
        for name in gone:
            self._endpoint.remove_peer(name)
        late: set[str] = set()
        if command["do"] == "end":
            late = self._endpoint.finish_sending(CLOSE_S)
            self._channel.report("ended")
            if self._all_have_ended():
                late |= self._endpoint.drain(set(self.ids) - gone, CLOSE_S)
        elif command["do"] == "depart" and self._may_leave:
            late = self._endpoint.finish_sending(CLOSE_S)
            drop_unapplied(self.recorder, ended, self.name, {})
        report = self._final_report(command, ended, late)
        if command["do"] == "depart":
            retired = bool(command.get("retired"))
            self._channel.report("departed", report={**report, "parameters": None}, retired=retired)
        return report

    @property
    def _may_leave(self) -> bool:
        layout = self._plan.layout
        workers = [role.name for role in layout.roles if role.kind == "worker" and role.node == self.spec.node]
        return self._plan.elastic is not None and any(self.name in moving_roles(layout, worker) for worker in workers)

    def _all_have_ended(self) -> bool:
        """Read until the client reports that every role has closed its connections.

        Returns False on the command to leave, and after `DRAIN_WAIT_S` seconds.
        """
        until = time.monotonic() + DRAIN_WAIT_S
        while time.monotonic() < until:
            for command in self._channel.commands():
                if command["do"] in ("drain", "leave"):
                    return bool(command["do"] == "drain")
            self._endpoint.poll(POLL_S)
        return False

    def _final_report(self, command: Command, ended: int, late: set[str]) -> dict[str, Any]:
        """Return the final report: all counts, and the gradients still in flight.

        `late`: the peers whose connections did not end in time.
        """
        shard = -1 if self.shard is None else self.shard.index
        in_flight = [
            [shard, self.ids[m.sender], m.incarnation, m.step, m.count]  # type: ignore[attr-defined]
            for m in self.inbox
            if m.carries
        ]
        shards = {s.name: -1 if s.shard is None else s.shard for s in self._plan.layout.roles}
        for to, step, count in self._endpoint.unsent_gradients():
            in_flight.append([shards[to], self.ids[self.name], self._incarnation, step, count])
        self._count_repeated()
        for refusal in self._endpoint.refused:
            self.recorder.event(ConnectionRefused(ended, refusal))
        evaluator = self._evaluator
        return {
            "role": self.name, "time": ended, "in_flight": in_flight,
            "batch": self.recorder.take(ended, FINAL_REPORT_BYTES), "late": sorted(late),
            "verdict": evaluator.stopped_by if evaluator else None,
            "update": evaluator.update if evaluator else None, "samples": evaluator.samples if evaluator else None,
            "evaluated_at": evaluator.evaluated_at if evaluator else None,
            "loss": evaluator.loss if evaluator else None,
            "accuracy": evaluator.accuracy if evaluator else None, "contained": evaluator.contained if evaluator else None,
            "parameters": None if evaluator is None else _whole(evaluator.parameters), "incarnation": self._incarnation,
            "state": self.shard.to_state() if command["do"] == "group_restart" and self.shard is not None else None,
        }  # fmt: skip


def _discard(part: Any, value: Any) -> Any:
    """Discard the result of cancelled work, as `roles.part.Part` describes."""
    return part.discard(value) if isinstance(part, Part) else None


def _whole(values: Any) -> Any:
    """Return parameters as they are sent to the client, or None in a timing-only run."""
    if isinstance(values, SparseParameters):
        return values
    return None if values is None or values.strides == (0,) else np.array(values)
