"""One role instance in real time: it drives the coroutine of its role by hand, in a thread of its own.

The thread performs what the coroutine asks for: it computes, paces, sends, receives, waits. Between two effects it carries out
commands of the client and reports. It runs until it is told to end: then it ends its connections with a close frame each, reads
what is still in flight, and returns its final report.

What may be sent, matching, incarnations and accounting are those of `RoleCore`. The other parts are objects: the endpoint
(messages), the command channel (commands and reports), the clock (engine time), checkpoints, and pacing.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import numpy as np

from ....errors import RoleError
from ....nn import SparseParameters
from ....roles.context import NOTED, SAVED, Context, stream
from ....roles.effects import COMPUTE, RECV, SLEEP, Posted
from ....roles.evaluator import Evaluator
from ....roles.group_restart import SAVE_EVERY, drop_unapplied
from ....roles.messages import Message, Snapshot, SnapshotRequest, loose_bytes
from ....roles.part import Part
from ....roles.shard import Shard
from ....trace.events import ConnectionRefused, EngineWarning, Note
from ....trace.recorder import MESSAGE, Recorder
from ....trace.vocabulary import NANO, SEND, nanoseconds, seconds
from ....trace.vocabulary import SLEEP as SLEEPING
from ....trace.vocabulary import WAIT as WAITING
from ...distributions import Sampler
from ...failures import failure_report, foreign_effect
from ...plan import batch_maker, begin, build_parts
from ...role_core import PHASE, Membership, RoleCore
from ...storage.store import Store
from ..protocol import ProtocolError
from ..transport.endpoint import Endpoint
from .assignment import RoleAssignment
from .checkpointing import Checkpointing
from .command_channel import Command, CommandChannel
from .pacing import Pacing, WorkTimes
from .role_clock import RoleClock

__all__ = ["RealRole"]

# A role that computes and never waits polls for messages that often: the chief may request a snapshot of its shard.
LISTEN_NS = 10_000_000
POLL_S = 0.25  # seconds of one wait at most
ROW_BYTES = 16_384  # of rows in one report
LAST_BYTES = 4_000_000  # of rows in the final report
TEND_S = 0.05  # seconds between two turns of a paused role at its connections
GOODBYE_S = 2.0  # seconds for close frames, and for reading what is in flight
LINGER_S = 30.0  # seconds that a role which has ended its connections waits for the others to do so


class Ended(BaseException):
    """The role was told to end, by the command it holds. Raised inside its thread, never seen by a strategy."""


class RealContext(Context):
    """The posts, performed in real time."""

    def __init__(self, role: RealRole, batches: Any):
        spec, members = role.spec, role.members
        super().__init__(spec.name, spec.kind, spec.index, role.assignment.plan.seed, members.peers, batches)
        self._role = role
        self.incarnation = role.assignment.incarnation
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
        role.checkpoints.request(state, role.shard, role.clock())
        return SAVED

    @property
    def now(self) -> float:
        """Seconds since the run began; pauses do not count."""
        return seconds(self._role.clock())


class RealRole(RoleCore):
    """The role instance of an `assignment`. Its thread calls `begin`, then `run`, which returns the final report.

    `share`: its data; `test`: held-out data (of the chief). `endpoint`, `channel`: its connections to other roles and to the
    client. `checkpoints`: of this instance.
    """

    def __init__(
        self, assignment: RoleAssignment, share: Any, test: Any, endpoint: Endpoint, channel: CommandChannel,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ):  # fmt: skip
        plan, spec, incarnation = assignment.plan, assignment.spec, assignment.incarnation
        recorder = Recorder(assignment.index, incarnation, plan.record, len(plan.role_ids))
        if spec.shard is not None or spec.backs is not None:  # drops that it has reported may be lost with it
            recorder.unacknowledged = deque()
        members = Membership(dict(plan.layout.peers()), dict.fromkeys(plan.role_ids, 0))
        super().__init__(spec, recorder, plan.role_ids, plan.message_set, members, plan.strategy)
        self.assignment, self._plan, self._incarnation = assignment, plan, incarnation
        self._endpoint, self._channel = endpoint, channel
        self._poll = endpoint.poll  # wait for messages, at most so many seconds
        self._monotonic, self._clock = monotonic_ns, RoleClock(monotonic_ns)
        self._now = self._clock.now
        endpoint.clock, endpoint.deliver = self._now, self._delivered
        self._membership_number = self._links_number = -1  # of the newest broadcast of each kind
        self._flow_number = 0
        self._resume_from: int | None = None  # the pause is over: when engine time was zero, as the run counts it now
        self._joined: dict[str, int] = {}  # the newest incarnation of each role that has been present
        self._links: dict[str, dict[str, Any]] = {}  # the faults of links that have any
        self._waiting: tuple[tuple[type, ...], str | None] | None = None  # (kinds, sender): without a time limit
        self._interrupted = False  # a wait or a sleep is to end now
        self._polled_at, self._step_to, self._repeated = 0, -1, 0
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
        store = None if assignment.folder is None else Store(assignment.folder, age=assignment.age)
        self.checkpoints = Checkpointing(spec.name, incarnation, store, assignment.every, self._warn)
        self._saved_at: int | None = None  # engine time of the checkpoint that it begins with
        self._restored = self._restore() if incarnation or assignment.restored else []
        if spec.backs is not None and assignment.restored is not None:
            parts[0].restore(*assignment.restored)
        if self.shard is not None and assignment.together:
            self.shard.save_at, self.shard.keeper = 0, self._save_together
        self._coroutine: Coroutine[Any, Any, Any] = begin(self.strategy, plan, spec, self._context, parts)
        self._handlers: dict[str, Callable[[Command], None]] = {
            "begin": lambda command: None,  # a repetition
            "members": self._update_members, "impair": self._set_link_faults, "flow": self._set_flow,
            "set": self._set_options, "slow": self._slow, "finish": self._finish_early,
            "version": self._report_version, "acknowledge": self._acknowledge, "end": self._end, "leave": self._end,
            "drain": self._end, "regroup": self._end, "depart": self._end,
        }  # fmt: skip

    def _samplers(self) -> dict[str, Sampler | None]:
        """What each kind of work is paced by, each with a random stream of its own."""
        plan, spec, assignment = self._plan, self.spec, self.assignment

        def sampler(distribution: Any, purpose: str) -> Sampler | None:
            drawn = stream(plan.seed, spec.kind, spec.index, purpose, assignment.incarnation)
            return Sampler(distribution, drawn) if distribution else None

        return {
            "gradient": sampler(assignment.pace, "time"), "server": sampler(assignment.server_time, "service"),
            "measure": None,
        }  # fmt: skip

    def _restore(self) -> list[Any]:
        """Restore what the last incarnation left, and save it at once under this one. See `Checkpointing.restore`."""
        checkpoints = self.checkpoints
        self._context.restored, begins = checkpoints.restore(self.shard, self._evaluator, self.assignment.restored)
        self._saved_at = checkpoints.saved_at
        checkpoints.save(self.shard, 0)
        checkpoints.saved_at = None
        return begins

    def _save_together(self, shard: Shard) -> None:
        """The parts of a split model are saved at the same versions, or they would be no model."""
        if shard.version % SAVE_EVERY == 0:
            self.checkpoints.save(shard, self._now())

    def _warn(self, what: str) -> None:
        self.recorder.event(EngineWarning(self._now(), f"{self.name} {what}"))

    # the driver of the core -------------------------------------------------------------------------------------------

    def clock(self) -> int:
        """Engine time, ns."""
        return self._now()

    def transmit(self, to: str, message: Message, category: int) -> int:
        """See `RoleCore.transmit`."""
        counters, began = self.counters, self._monotonic()  # a role that sends is not paused: one call less than `_now`
        size = self._endpoint.send(to, message, category, counters.computed or counters.steps)
        if (
            message.__class__ is not Snapshot
        ):  # which is sent while the shard applies, and belongs to no phase of its own
            counters.phases[SEND] += self._monotonic() - began
        return size

    def deliver(self, message: Message) -> None:
        """See `RoleCore.deliver`."""
        self.inbox.append(message)

    def _delivered(
        self, message: Message, kind: int, category: int, nbytes: int, sent_ns: int, received_ns: int, computed: int
    ) -> None:
        """A message has arrived: record it, and put it into the inbox."""
        sender = message.sender
        nbytes += loose_bytes(message)
        self.recorder.messages += MESSAGE(self.ids[sender], kind, category, nbytes, sent_ns, received_ns)
        if computed and not (self.counters.computed or self.counters.steps):
            self.trained.add(sender)  # its frame says so
        if message.__class__ is SnapshotRequest:
            self.requested(message)  # type: ignore[arg-type]
        else:
            self.inbox.append(message)

    def _watch(self, shard: Shard) -> None:
        """The shard has come to a version that the chief wants to see."""
        self.send_snapshot()

    # the loop ---------------------------------------------------------------------------------------------------------

    def beginning(self) -> dict[str, Any]:
        """What the instance begins with: for its first report."""
        return {"restored": self._restored, "kept_at": self._saved_at, "version": self.counters.version}

    def abandon(self) -> None:
        """The instance will never begin."""
        self._coroutine.close()

    def begin(self, command: Command) -> None:
        """Engine time, the present members and the options of the run as it begins."""
        self._clock.begin(command["zero"], command.get("frozen"))
        self._set_options({"knobs": command.get("knobs", {})})
        self._learn(command)
        self._joined = {name: incarnation for name, (*_, incarnation) in command["here"].items()}
        self.unacknowledged.update(name for name in command["lives"] if name not in command["here"])
        for order in command.get("orders", ()):
            self._carry_out(order)
        self._channel.pending |= self._clock.paused
        if self._restored:
            self.recorder.restored(self._now())

    def run(self) -> dict[str, Any]:
        """Run the role until it is told to end; returns the final report."""
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
                self._attend()
            try:
                effect = resume(value)
            except StopIteration:
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
            else:
                resume, value = self._coroutine.throw, foreign_effect(self.name, effect)

    def _failed(self, error: BaseException) -> None:
        step = self.counters.computed if self.spec.computes else self.counters.version
        self._channel.report("failed", report=failure_report(self.name, step, error))

    def _idle(self) -> None:
        """The coroutine has returned: keep the connections open until the end."""
        self._waiting = ((), None)
        while True:
            self._poll(0.5)
            if self._channel.pending:
                self._attend()

    # effects ----------------------------------------------------------------------------------------------------------

    def _compute(self, effect: tuple[Any, ...]) -> tuple[Any, Any]:
        """(how to go on, with what)."""
        _, fn, args, cost, unless = effect
        part = getattr(fn, "__self__", None)
        try:
            work = self.kind_of_work(part)
        except RoleError as error:
            return self._coroutine.throw, error
        self._endpoint.flush()
        began = self._now()
        if began - self._polled_at > LISTEN_NS:
            self._poll(0.0)
            began = self._polled_at = self._now()
        self.counters.open, step = [PHASE[work], began], self.counters.computed
        try:
            value = fn(*args)
        except BaseException as error:
            return self._coroutine.throw, error
        if self._work_times.paced(work):
            until = self._pacing.deadline(began, self._work_times.wanted(work, cost, self._now() - began))
            finished = self._pass(until, unless)
            self._pacing.ended(until, self._now() if finished else until)
        else:
            finished = unless is None or not self._has(unless)
        if not finished:
            try:
                value = _discard(part, value)
            except BaseException as error:
                return self._coroutine.throw, error
        self.counters.open = []
        self.recorder.span(PHASE[work], began, self._now(), step)
        if part is self.shard and 0 <= self._step_to <= self.counters.version:
            self._step_to = -1
            if self.spec.computes or self._plan.layout.replication != "local":
                self._clock.pause()  # else others may have to ask this replica before they can step: it pauses with them
            self._report()
            self._channel.report("stepped")
            self._channel.pending = True  # pause now, before the next effect
        return self._coroutine.send, value

    def _receive(self, effect: tuple[Any, ...]) -> Message | None:
        kinds, timeout, sender = effect[1], effect[2], effect[3]
        self.listens = kinds
        message = self.take(kinds, sender)
        if message is not None:
            return message
        if timeout is not None and timeout <= 0:
            self._poll(0.0)
            return self.take(kinds, sender)
        began = self._now()
        until = None if timeout is None else began + nanoseconds(timeout)
        limit = self._plan.budget.seconds if self._evaluator is not None else None
        if until is None or (limit is not None and until >= nanoseconds(limit)):  # the end of the run ends no wait
            self._waiting = (kinds, sender)
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
                self._attend()
                message = self.take(kinds, sender)  # news of a member
                if message is not None:
                    break
        self._waiting = None
        self.recorder.span(WAITING, began, self._now())
        return message

    def _sleep(self, duration: float) -> None:
        began = self._now()
        if duration > 0 and not (self._evaluator is not None and self._evaluator.stop_requested):
            self._interrupted = False
            self._pass(began + nanoseconds(duration), None)
            self.recorder.span(SLEEPING, began, self._now())

    def _pass(self, until: int, unless: type | None) -> bool:
        """Let engine time pass, carrying out commands and taking in messages. False if a message of kind `unless` came."""
        while True:
            if unless is not None and self._has(unless):
                return False
            left = until - self._now()
            if left <= 0 or self._interrupted:
                return True
            self._poll(min(POLL_S, left / NANO), False)
            if self._channel.pending:
                self._attend()

    def _has(self, kind: type) -> bool:
        """Whether a message of this kind has come."""
        if not self._channel.pending:
            self._poll(0.0)
        return any(message.__class__ is kind for message in self.inbox)

    # commands ---------------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """Carry out the commands that wait, and report if it is time; returns when the role is not paused."""
        for command in self._channel.commands():
            self._carry_out(command)
        if self._channel.report_due:
            self._channel.report_due = False
            if not self.assignment.together:
                self.checkpoints.save_if_due(self.shard, self._now())
            self._report()
        while self._clock.paused and not self._goes_on():
            self._channel.posted.wait(TEND_S if self._resume_from is None else min(TEND_S, self._ahead))
            self._endpoint.progress()
            if self._channel.pending:
                for command in self._channel.commands():
                    self._carry_out(command)
                self._channel.report_due = False
                self._report()

    def _carry_out(self, command: Command) -> None:
        handler = self._handlers.get(command["do"])
        if handler is None:
            raise ProtocolError(f"{self.name} was sent a command that it does not know: {command['do']!r}")
        handler(command)

    def _end(self, command: Command) -> None:
        raise Ended(command)

    def _learn(self, command: Command) -> None:
        """Take over a membership broadcast, which says everything: who is present, where, and in which incarnation."""
        members, here, incarnations = self.members, command["here"], command["lives"]
        self._membership_number = command["change"]
        members.incarnations.update(incarnations)
        members.absent = {name for name in incarnations if name not in here and name != self.name}
        for name in incarnations:
            if name in here:
                self._endpoint.add_peer(name, *here[name])
            elif name in members.absent:  # frames that it still sends are refused from now on
                self._endpoint.fence(name, incarnations[name])
        members.peers.clear()
        members.peers.update({kind: tuple(names) for kind, names in command["peers"].items()})

    def _update_members(self, command: Command) -> None:
        """Membership has changed: `ctx.peers` first, then news for the coroutine. Older broadcasts are ignored."""
        if command["change"] <= self._membership_number:
            return
        if command["lives"][self.name] > self._incarnation:
            raise Ended({"do": "leave", "fenced": True})
        before = {name for names in self.members.peers.values() for name in names}
        self._learn(command)
        now = {name for names in self.members.peers.values() for name in names}
        self.unacknowledged |= self.members.absent
        for name in command["lives"]:
            if name in before and name not in now:
                self.peer_left(name)
        for name, (*_, incarnation) in command["here"].items():
            if name != self.name and self._joined.get(name, -1) < incarnation:
                self._joined[name] = incarnation
                if name == "chief" and self.shard is not None and self.shard.finished:
                    self.send_snapshot()  # a shard that is finished says so once, and the new chief has not received it
                self.unacknowledged.add(name)
                self.peer_joined(name)

    def _set_link_faults(self, command: Command) -> None:
        """The faults of all links; those that have not changed are left alone. Older orders are ignored."""
        if command["number"] > self._links_number:
            self._links_number, before, self._links = command["number"], self._links, command["links"]
            for peer in before.keys() | self._links.keys():
                if before.get(peer) != self._links.get(peer):
                    self._endpoint.set_link_fault(peer, **self._links.get(peer, {}))

    def _set_flow(self, command: Command) -> None:
        """Pause, or go on, perhaps to a version of the shard. Older orders are ignored."""
        if command["number"] <= self._flow_number:
            return
        self._flow_number, self._resume_from = command["number"], None
        if command["paused"]:
            self._clock.pause()
        elif self._clock.paused or command["zero"] != self._clock.zero:  # the latter: it has missed a pause
            self._clock.pause()
            self._resume_from = command["zero"]
        self._step_to = command["goals"].get(self.name, -1)

    @property
    def _ahead(self) -> float:
        """By how many seconds this role has come further than the run, which goes on."""
        return 0.0 if self._resume_from is None else max(0.0, seconds(self._clock.ahead_of(self._resume_from)))

    def _goes_on(self) -> bool:
        """End the pause if it is over, and the run has come as far as this role. Whether it has ended."""
        if self._resume_from is None or self._ahead > 0:
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
        for name, value in command["knobs"].items():
            object.__setattr__(self.strategy, name, value)

    def _acknowledge(self, command: Command) -> None:
        self.recorder.acknowledged(command["number"])

    def _finish_early(self, command: Command) -> None:
        """The chief is asked for its final evaluation."""
        if self._evaluator is not None and self._evaluator.stop_requested is None:
            self._evaluator.stop_requested = command["reason"]
            self._interrupted, self._waiting = True, None  # the next report does not say that it waits

    # reports ----------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report rows since the last report, counters, and what the role waits for."""
        if not self._clock.paused:
            self._endpoint.flush()
        self._count_repeated()
        kinds, sender = self._waiting or ((), None)
        busy = self._waiting is None or self._clock.paused
        self._channel.report(
            "batch", change=self._membership_number, batch=self.recorder.take(self._now(), ROW_BYTES), only=sender,
            waiting=None if busy else [k.__name__ for k in kinds],
            sent=self._count(self._endpoint.sent), received=self._count(self._endpoint.received), flow=self._flow_number,
            finishing=self._evaluator is not None and self._evaluator.stop_requested is not None,
        )  # fmt: skip

    def _count(self, messages: Counter[str]) -> int:
        """Of how many messages roles that are present are the other end: deadlock detection compares their counts."""
        absent = self.members.absent
        return sum(number for name, number in messages.items() if name not in absent)

    def _count_repeated(self) -> None:
        repeated = sum(self._endpoint.repeated.values())
        self.counters.duplicates += repeated - self._repeated
        self._repeated = repeated

    # the end ----------------------------------------------------------------------------------------------------------

    def _finish(self, command: Command) -> dict[str, Any]:
        """End in order: close frames; when all roles have sent theirs, read what is in flight; the final report."""
        ended = self._clock.pause()
        with contextlib.suppress(Exception):  # a coroutine that yields again is not driven any more
            self._coroutine.close()
        if not command.get("fenced"):
            self.checkpoints.finish(self.shard, ended)
        gone = set(command.get("lost", ()))
        for name in gone:
            self._endpoint.remove_peer(name)
        late: set[str] = set()
        if command["do"] == "end":
            late = self._endpoint.finish_sending(GOODBYE_S)
            self._channel.report("ended")
            if self._all_have_ended():
                late |= self._endpoint.drain(set(self.ids) - gone, GOODBYE_S)
        elif command["do"] == "depart" and self._may_leave:
            late = self._endpoint.finish_sending(GOODBYE_S)
            drop_unapplied(self.recorder, ended, self.ids[self.name], len(self.ids), None)
        report = self._final_report(command, ended, late)
        if command["do"] == "depart":
            retired = bool(command.get("retired"))
            self._channel.report("departed", report={**report, "parameters": None}, retired=retired)
        return report

    @property
    def _may_leave(self) -> bool:
        """Whether the run goes on without this role if it leaves."""
        return self._plan.elastic is not None and self.spec.kind == "worker"

    def _all_have_ended(self) -> bool:
        """Read on until the client says that every role has ended its connections; False if it will not say so any more."""
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            for command in self._channel.commands():
                if command["do"] in ("drain", "leave"):
                    return bool(command["do"] == "drain")
            self._endpoint.poll(POLL_S)
        return False

    def _final_report(self, command: Command, ended: int, late: set[str]) -> dict[str, Any]:
        """All counts, and the gradients that were still in flight. `late`: peers whose connections did not end in time."""
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
            "batch": self.recorder.take(ended, LAST_BYTES), "late": sorted(late),
            "verdict": evaluator.stopped_by if evaluator else None,
            "update": evaluator.update if evaluator else None, "samples": evaluator.samples if evaluator else None,
            "loss": evaluator.loss if evaluator else None,
            "accuracy": evaluator.accuracy if evaluator else None, "held": evaluator.held if evaluator else None,
            "parameters": None if evaluator is None else _whole(evaluator.parameters), "incarnation": self._incarnation,
            "state": self.shard.to_state() if command["do"] == "regroup" and self.shard is not None else None,
        }  # fmt: skip


def _discard(part: Any, value: Any) -> Any:
    """Work was done whose result is not used: see `roles.part.Part`."""
    return part.discard(value) if isinstance(part, Part) else None


def _whole(values: Any) -> Any:
    """Parameters as they travel to the client; None in a timing-only run."""
    if isinstance(values, SparseParameters):
        return values
    return None if values is None or values.strides == (0,) else np.array(values)
