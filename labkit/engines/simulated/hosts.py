"""Roles that are processes on hosts: they share cores, and messages and waiting cost processor time.

Without `costs`, a role computes for a drawn time and everything else takes no time. With costs, every piece of work of a role is
a job of its host's processor scheduler (`scheduler.py`): gradients, updates, evaluations, sending and receiving.

A role that waits first polls for some time and then sleeps. A role that polls yields its core to every role that has work, so
polling costs nothing. The first job after a sleep takes longer, by an amount that depends on how long the role has slept: the
core has to leave its idle state, and the caches contain nothing of the role. This applies to a wait for a message and to a wait
for a timer, as the end of a paced gradient.

A role has one thread, as on processes. If it has tasks (`roles/tasks.py`), it receives their messages before a piece of work
begins, and while the paced rest of a piece passes, as `dask/worker/role.py` does. Messages that arrive during the work itself, or
while the role sends or receives another one, stay in the inbox until then.

The costs are inserted between the effects of a coroutine (`CostedCoroutine`), so strategies and the event loop are unchanged,
and runs without costs execute none of this code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import RoleError
from ...random_streams import COMPUTE_TIME, SERVER_TIME, SPREAD, role_stream
from ...roles.effects import COMPUTE, TaskWait, TaskWork
from ...roles.layerwise import GradientPiece
from ...roles.messages import Message, copied_for_sending, payload_bytes
from ...roles.tasks import RoleTasks
from ...trace.recorder import MESSAGE
from ...trace.schema import EVALUATION, SEND, nanoseconds
from ..costs import Costs
from ..distributions import Deterministic, Distribution, Sampler
from ..pacing import Pacing, WorkTimes
from ..role_core import PHASE
from .event_loop import DELIVER, DONE, EARLY, EventLoop
from .network import LinkTimes, Mail, SimulatedNetwork
from .role import WAIT, SimulatedRole, TimedWork, give_up
from .scheduler import Core, Host, Job


class HostNetwork(SimulatedNetwork):
    """The network of roles on hosts. A message leaves when its sender has spent the processor time of sending it.

    The links connect hosts. A message between processes takes `latency` ns more, and within a host only these. Evaluation is not
    part of the measured system: its messages leave at once.
    """

    __slots__ = ("_latency", "outboxes")

    def __init__(self, loop: EventLoop, links: LinkTimes, kind_ids: Any, seed: int, latency: int):
        super().__init__(loop, links, kind_ids, seed)
        self._latency = latency
        self.outboxes: dict[str, list[Mail]] = {}  # of each role: messages that it has posted and that have not left

    def send(self, role: SimulatedRole, to: str, message: Message, category: int) -> int:
        """Post a copy of `message` from `role` to the role `to`; returns the bytes of its payload."""
        have = message.__dict__
        size, incarnation = have.get("timing_only_bytes"), role.recorder.incarnation
        if size is None or incarnation or have.setdefault("sender", role.name) != role.name:
            message, size = copied_for_sending(message, role.name, incarnation)
        mail = Mail(role, role.by_name[to], message, size, category, self._loop.now)
        if category == EVALUATION:
            self.depart(mail)
        else:
            self.outboxes.setdefault(role.name, []).append(mail)
        return size

    def depart(self, mail: Mail) -> None:
        role, target, message, size, category, _ = mail
        loop, now = self._loop, self._loop.now
        role.touched = target.touched = True
        if self._faults is not None:
            self._faults.send(mail._replace(sent=now))
            return
        arrival = now if category == EVALUATION or role.node == target.node else self.arrival(role, target, size)
        target.recorder.messages += MESSAGE(role.id, self._kind_ids[message.__class__], category, size, now, arrival)
        loop.schedule(arrival, EARLY, DELIVER, target, message)

    def arrival(self, role: Any, target: Any, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes, sent now to a role on another node, arrives."""
        return self._links.arrival(self._loop.now, role.host.number, target.host.number, size) + self._latency

    def latency(self, role: Any, target: Any) -> int:
        return self._latency + (0 if role.host is target.host else self._links.latency)

    def held(self) -> list[tuple[SimulatedRole, Message]]:
        """Return (receiver, message) of all messages that have not left: held by cut links, or not sent yet."""
        posted = [(mail.target, mail.message) for mails in self.outboxes.values() for mail in mails]
        return [*super().held(), *posted]

    def held_links(self) -> list[tuple[str, str]]:
        """Return the cut links that hold messages, without repetition."""
        return list(dict.fromkeys((message.sender, target.name) for target, message in super().held()))

    def discard_messages(self, names: Any, sent: bool = True) -> None:
        """Discard messages to these roles and, if `sent`, from them."""
        super().discard_messages(names, sent)
        for sender, mails in self.outboxes.items():
            mails[:] = [m for m in mails if m.target.name not in names and not (sent and sender in names)]


def _charge() -> None:
    """The function of the work that stands for a cost."""


# Costs are work without a result between the effects of a coroutine. So strategies, the event loop and `SimulatedRole` do not
# know of costs, and runs without costs neither change nor take longer.
class CostedCoroutine:
    """A coroutine of a role with its costs: before the coroutine gets a message, the role spends the time of receiving it; after
    it has posted messages, and before its next effect, the role sends them.
    """

    __slots__ = ("_inner", "_next", "_role")

    def __init__(self, inner: Any, role: HostedRole):
        self._inner, self._role = inner, role
        self._next: Callable[[], Any] | None = None  # continues after a cost

    def send(self, value: Any) -> Any:
        if self._next is not None:
            step, self._next = self._next, None
            return step()
        message = value.result if value.__class__ is TaskWait else value
        if isinstance(message, Message):
            self._next = lambda: self._step(lambda: self._inner.send(value))
            return self._role.receiving(message)
        return self._step(lambda: self._inner.send(value))

    def throw(self, error: BaseException) -> Any:
        self._next = None
        return self._step(lambda: self._inner.throw(error))

    def close(self) -> None:
        self._inner.close()

    def open(self, effect: Any) -> None:
        """Let `RoleTasks` drive the coroutine from now on."""
        self._inner = RoleTasks(self._inner, effect)

    def _step(self, step: Callable[[], Any]) -> Any:
        """Execute one step of the coroutine. If it has posted messages, its effect follows when they are sent."""
        try:
            effect = step()
        except BaseException as end:  # a return, or an error: what was posted before is sent first
            return self._after_sending(partial(_raise, end))
        return self._after_sending(lambda: effect)

    def _after_sending(self, then: Callable[[], Any]) -> Any:
        sending = self._role.sending()
        if sending is None:
            return then()
        self._next = lambda: self._after_sending(then)
        return sending


def _raise(error: BaseException) -> Any:
    raise error


class HostedRole(SimulatedRole):
    """A role that is a process on a host. `host`: its host. `core`: the core on which it ran last, or to which it is pinned.
    `costs`: all costs of the cluster.
    """

    __slots__ = (
        "_charged", "_deadline", "_demands", "_extra", "_mail", "_pacing", "_selected", "_short", "_stopped", "_waiting_since",
        "_woken", "_work", "_work_times", "core", "costs", "host", "network", "pinned",
    )  # fmt: skip

    host: Host
    core: Core | None
    pinned: bool
    costs: Costs
    network: HostNetwork

    def place(self, host: Host, costs: Costs, network: HostNetwork, core: int | None) -> None:
        """Place the role on a host, and pin it to a core (None: any core)."""
        self.host, self.costs, self.network = host, costs, network
        self.core, self.pinned = (None, False) if core is None else (host.core(core), True)
        if self.core is not None:
            self.core.pinned += 1
        self._demands: dict[str, Callable[[Any, float, tuple[Any, ...]], float]] = {}  # (part, cost, arguments): ns
        self._reset()

    def _reset(self) -> None:
        self._short, self._charged = True, False
        self._stopped: Job | None = None  # the job of a suspended role
        self._mail: Mail | None = None  # the message that is being sent
        self._extra = 0.0  # additional processor time (ns) of the next job, because the role has slept
        self._woken = False  # whether the role has slept before its next job
        self._work = "", 0.0  # the kind and the cost of the present work
        self._selected: tuple[TaskWork, list[TaskWait]] | None = None  # the `SELECT` whose work a core executes
        self._pacing = Pacing()
        self._deadline: int | None = None  # the time (ns) of a timer after which the role has not executed anything yet
        self._waiting_since = 0

    def draw_costs(
        self, seed: int, parameters: int, samples: int, update: float, evaluation: float, pace: Distribution | None,
        server: Distribution | None,
    ) -> None:  # fmt: skip
        """Set the processor seconds of each kind of work, and the distributions of paced durations (None: full speed).

        `parameters`, `samples`: the size of the network and of a batch, which determine the time of a gradient. A piece of a
        gradient, as the backward pass of a stage for a micro-batch, takes half of the fixed time, because one gradient
        consists of two passes (a backward pass layer by layer divides it equally); its share of the parameters, which are read
        for every micro-batch; and its share of the products.
        An update with several gradients takes as long as that many updates, because each of them is read.
        """
        kind, index = self.spec.kind, self.spec.index

        def sampler(distribution: Distribution, purpose: int) -> Sampler:
            rng = None if isinstance(distribution, Deterministic) else role_stream(seed, kind, index, purpose)
            return Sampler(distribution, rng)

        self._work_times = WorkTimes(
            {
                "gradient": None if pace is None else sampler(pace, COMPUTE_TIME),
                "server": None if server is None else sampler(server, SERVER_TIME), "measure": None,
            },
            self.factor,
        )  # fmt: skip
        unit = sampler(self.costs.spread, SPREAD).next  # the factor, in 1e-9
        work = self.costs.gradient

        def gradient_time(part: Any, cost: float, args: tuple[Any, ...]) -> float:
            if cost >= 1:
                return work(parameters, samples) * cost * unit()
            divided = getattr(part, "micro_batches", 1)
            sized = divided * (work(parameters, samples / divided) - work.fixed)  # what depends on the size
            pieces = len(part.pieces) if args and isinstance(args[0], GradientPiece) else 1  # of a backward pass
            return (work.fixed / 2 / pieces + sized * cost) * unit()

        def update_time(part: Any, cost: float, args: tuple[Any, ...]) -> float:
            gradients = args[0] if args else None
            return 1e9 * update * cost * (len(gradients) if isinstance(gradients, list | tuple) else 1)

        self._demands = {
            "gradient": gradient_time, "server": update_time, "measure": lambda part, cost, args: 1e9 * evaluation * cost,
        }  # fmt: skip

    # instances --------------------------------------------------------------------------------------------------------

    def new_coroutine(self) -> CostedCoroutine:
        return CostedCoroutine(super().new_coroutine(), self)

    def end_instance(self) -> None:
        self.network.outboxes.pop(self.name, None)
        super().end_instance()
        self._reset()

    def _release_core(self) -> None:
        self.host.cancel(self)

    def suspend(self) -> None:
        if not self._suspensions:
            self._stopped = self.host.cancel(self)
        super().suspend()

    def resume(self) -> None:
        job, before = self._stopped, self._suspended
        super().resume()
        if self._suspensions or before is None:
            return
        delay, self._stopped = self._loop.now - before.since, None  # the rest of a paced duration follows the thaw
        if self._deadline is not None:
            self._deadline += delay
        if job is not None and (self._working is not None or self._charged):
            self.host.start(self, job.left, job.began + delay if job.began >= 0 else job.began)

    # costs ------------------------------------------------------------------------------------------------------------

    def receiving(self, message: Message) -> Any:
        return COMPUTE, _charge, (), self.costs.receive(payload_bytes(message)), None

    def sending(self) -> Any:
        """Return the effect that costs the time of sending the next posted message; None if there is none."""
        posted = self.network.outboxes.get(self.name)
        if not posted:
            return None
        target = posted[0].target
        remote = isinstance(target, HostedRole) and target.host is not self.host
        cost = self.costs.remote_send if remote and self.costs.remote_send is not None else self.costs.send
        return COMPUTE, _charge, (posted[0],), cost(posted[0].size), None

    def _start(self, duration: float) -> None:
        """Start a job of `duration` ns. The first job after a sleep takes longer."""
        extra, woken, self._extra, self._woken = self._extra, self._woken, 0.0, False
        self.host.start(self, duration + extra, woken=woken)

    def _slept(self, duration: int) -> None:
        self._extra, self._woken = 1e9 * self.costs.wake_delay(duration / 1e9), True

    def _compute(self, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        if fn is _charge:
            self._mail, self._charged = args[0] if args else None, True
            self._start(cost * 1e9)
            return WAIT
        try:
            kind = self.kind_of_work(getattr(fn, "__self__", None))
        except RoleError as error:
            self._raise_in_coroutine(error)
            return WAIT
        if unless is not None and any(m.__class__ is unless for m in self.inbox):
            return self._call(give_up, (fn,))
        self._unless = unless
        self.token += 1
        self._begin_work(kind, fn, args, cost)
        return WAIT

    def _begin_work(self, kind: str, fn: Any, args: tuple[Any, ...], cost: float) -> None:
        duration = self._demands[kind](getattr(fn, "__self__", None), cost, args)
        self.since = self._loop.now
        self._working = fn, args, PHASE[kind]
        self._work, self._work_times.factor = (kind, cost), self.factor
        self._start(duration)

    def job_finished(self, began: int) -> None:
        """Handle the end of a job that a core began to execute at `began`: the role continues, or waits until the duration of
        paced work has passed since then.
        """
        now = self._loop.now
        if self._deadline is not None:
            self._pacing.ended(self._deadline, began)
            self._deadline = None
        if self._charged:
            self._charged, mail, self._mail = False, self._mail, None
            if mail is not None:
                if self._piece is None:  # communication during computing is hidden
                    self.counters.phases[SEND] += now - began
                posted = self.network.outboxes.get(self.name)
                if posted and posted[0] is mail:
                    del posted[0]
                    self.network.depart(mail)
            self.drive(None)
            return
        kind, cost = self._work
        paced = self._work_times.paced(kind)
        end = self._pacing.deadline(began, self._work_times.duration(kind, cost, now - began)) if paced else now
        if self._selected is not None:
            self._begin_rest(end, paced)
        elif not paced:
            self.work_done()
        elif end > now:
            self._slept(end - now)
            self._deadline = end
            self._loop.schedule(end, EARLY, DONE, self, self.token)
        else:
            self._pacing.ended(end, now)
            self.work_done()

    # tasks ------------------------------------------------------------------------------------------------------------

    def _open(self, effect: tuple[Any, ...]) -> Any:
        self._coroutine.open(effect)

    def _select(self, work: TaskWork | None, waits: list[TaskWait]) -> Any:
        """Receive a message, or begin `work`, or wait until it is done or one of `waits` is over, as `RealRole` does."""
        self._selects, now = True, self._loop.now
        if self._piece is not None and self._piece.work is not work:
            self._cancel_piece()
        first = self.begin_waits(waits, now)
        if work is not None and work.finished:
            return work
        over = self.take_first(waits)
        if over is not None:
            return over
        if first is not None and first.until <= now:
            return self._at_once() or first
        if work is not None and not work.begun:
            self._begin_piece(work)
            if work.finished:
                return work
            self._selected = work, waits
            return WAIT
        if self._piece is not None and self._rest_over(paced=True):
            return work
        if work is None and not waits:
            return None
        if self._deadline is not None:  # the role has nothing to execute after the end of paced work
            self._pacing.ended(self._deadline, now)
            self._deadline = None
        self._waiting_since = now
        self._wait_for_tasks(waits, first)
        return WAIT

    def _begin_piece(self, work: TaskWork) -> None:
        work.begun = True
        try:
            kind = self.kind_of_work(getattr(work.fn, "__self__", None))
        except RoleError as error:
            work.finished, work.error = True, error
            return
        self._begin_work(kind, work.fn, work.args, work.cost)

    def _begin_rest(self, end: int, paced: bool) -> None:
        """Continue after the processor time of the work of a task: it is done, or its paced rest passes until `end` (ns)."""
        assert self._selected is not None
        (work, waits), self._selected = self._selected, None
        self._piece = piece = TimedWork(self, work, PHASE[self._work[0]], end)
        self._unless = work.unless
        value: Any = work
        if not self._rest_over(paced):
            piece.schedule(self._loop)
            value = self._select(work, waits)
        if value is not WAIT:
            self.drive(value)

    def _rest_over(self, paced: bool) -> bool:
        """Cancel the work in progress of a task if a message of the kind `unless` has arrived, or complete it if its duration has
        passed. Returns whether it is over.
        """
        piece, now, unless = self._piece, self._loop.now, self._unless
        assert piece is not None
        if unless is not None and any(m.__class__ is unless for m in self.inbox):
            self._cancel_piece()
        elif piece.end <= now:
            if paced:
                self._pacing.ended(piece.end, now)
            self._complete_piece()
        return self._piece is None

    def piece_done(self) -> None:
        if self._waits is None:  # the role is busy with a message: its next `SELECT` completes the work
            return
        assert self._piece is not None
        self._slept(self._loop.now - self._waiting_since)
        self._deadline = self._piece.end
        super().piece_done()

    def _cancel_piece(self) -> None:
        if self._waits is not None:  # a message has woken the role
            self._slept(self._loop.now - self._waiting_since)
        self._pacing.ended(0, 0)  # its duration contains the earlier lateness
        super()._cancel_piece()

    def _offer(self) -> None:
        if self._piece is None or self._waits is not None:  # else the role is busy: its next `SELECT` receives
            super()._offer()

    def _resume_tasks(self, over: TaskWait | TaskWork) -> None:
        self._woken_by_message()
        super()._resume_tasks(over)

    # waiting ----------------------------------------------------------------------------------------------------------

    def drive(self, value: Any) -> None:
        super().drive(value)
        if self.waiting is not None:
            self._waiting_since = self._loop.now

    def wait_over(self) -> None:
        self._slept(self._loop.now - (self.since if self._waits is None else self._waiting_since))
        super().wait_over()

    def deliver(self, message: Message) -> None:
        waiting = self.waiting
        if waiting is not None and message.__class__ in waiting and self._wait_sender in (None, message.sender):
            self._woken_by_message()
        super().deliver(message)

    def _woken_by_message(self) -> None:
        """Account for the end of a wait. A role that has waited for longer than it polls has slept; during the paced rest of work
        it does not poll.
        """
        waited, polling = self._loop.now - self._waiting_since, nanoseconds(self.costs.polling)
        # A waiting role first polls, as on processes. It yields its core meanwhile, so polling takes no time from other
        # roles (measured: about 5% of a core per worker).
        polls = self._piece is None
        if waited >= polling or not (polls and self._short):
            self._slept(waited)
        if polls:
            self._short = waited < polling
