"""Roles that are processes on hosts: they share cores, and messages and waiting cost processor time.

Without `costs`, a role computes for a drawn time and everything else takes no time. With costs, every piece of work of a role is
processor time on its host: gradients, updates, evaluations, sending and receiving. The work of all roles of a host shares its
cores equally (processor sharing). A role that waits polls for some time, which occupies a core, and then sleeps; a message then
wakes it with a delay.

The costs are inserted between the effects of a coroutine (`CostedCoroutine`), so strategies and the event loop are unchanged,
and runs without costs execute none of this code.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ...errors import RoleError
from ...random_streams import COMPUTE_TIME, SERVER_TIME, SPREAD, role_stream
from ...roles.effects import COMPUTE
from ...roles.messages import Message, copied_for_sending, payload_bytes
from ...trace.recorder import MESSAGE
from ...trace.schema import EVALUATION, SEND, nanoseconds
from ..costs import Costs
from ..distributions import Deterministic, Distribution, Sampler
from ..role_core import PHASE
from .event_loop import DELIVER, DONE, EARLY, EventLoop
from .network import Links, Mail, Network
from .role import WAIT, SimulatedRole, give_up

__all__ = ["Host", "HostNetwork", "HostedRole"]

MOST_LATE = 250_000  # ns of a late timer that are subtracted from the next paced duration, as on processes


class Worker(Protocol):
    """The owner of processor work on a host."""

    def work_finished(self) -> None:
        """Called when the work is done."""


class Host:
    """The cores of one host, shared equally by all work that can run (processor sharing).

    `busy` roles poll: they occupy a core, but their work has no end. `speed`: processor time of the measured host that passes per
    second on a core of this one. The host has the interface of a role in the event loop: `token` and `work_done`.
    """

    __slots__ = ("_cores", "_finish", "_jobs", "_loop", "_number", "_progress", "_since", "_speed", "polling", "token")

    def __init__(self, loop: EventLoop, cores: int, speed: float):
        self._loop, self._cores, self._speed = loop, cores, speed
        self._progress, self._since = 0.0, 0  # processor time (ns) that each work has got until `_since`
        self._finish: list[tuple[float, int, Worker]] = []  # heap of (progress at which it is done, number, owner)
        self._jobs: dict[Worker, tuple[float, int]] = {}
        self.polling = 0  # roles that poll
        self.token = self._number = 0

    def _rate(self) -> float:
        """Return the processor time that each work gets per time."""
        return self._speed * min(1.0, self._cores / max(1, len(self._jobs) + self.polling))

    def _advance(self) -> None:
        now = self._loop.now
        self._progress += (now - self._since) * self._rate()
        self._since = now

    def _schedule(self) -> None:
        """Schedule the next end of work. Earlier schedules become void."""
        self.token += 1
        while self._finish and self._jobs.get(self._finish[0][2]) != self._finish[0][:2]:
            heapq.heappop(self._finish)  # was cancelled
        if self._finish:
            left = max(0.0, self._finish[0][0] - self._progress)
            time = self._loop.now + round(left / self._rate())
            self._loop.schedule(time, EARLY, DONE, self, self.token)  # type: ignore[arg-type]

    def start(self, owner: Worker, duration: float) -> None:
        """Start work of `duration` ns of processor time. `owner.work_finished()` is called when it is done."""
        self._advance()
        self._number += 1
        self._jobs[owner] = job = (self._progress + duration, self._number)
        heapq.heappush(self._finish, (*job, owner))
        self._schedule()

    def cancel(self, owner: Worker) -> float | None:
        """Cancel the work of `owner`. Returns the processor time (ns) that was left, or None if there is none."""
        if owner not in self._jobs:
            return None
        self._advance()
        left = self._jobs.pop(owner)[0] - self._progress
        self._schedule()
        return max(0.0, left)

    def poll(self, change: int) -> None:
        """Change the number of roles that poll."""
        self._advance()
        self.polling += change
        self._schedule()

    def work_done(self) -> None:
        """Handle the event of the loop: the first work is done."""
        self._advance()
        finish, _, owner = heapq.heappop(self._finish)
        self._progress = max(self._progress, finish)  # the event was rounded to a whole nanosecond
        del self._jobs[owner]
        self._schedule()
        owner.work_finished()


class Timer:
    """A timer of a role that is not one of its waits: calls `fn`. Has the interface of a role in the event loop."""

    __slots__ = ("_fn", "_loop", "token")

    def __init__(self, loop: EventLoop, fn: Callable[[], None]):
        self._loop, self._fn, self.token = loop, fn, 0

    def set(self, delay: int) -> None:
        """Call the function in `delay` ns; an earlier time becomes void."""
        self.token += 1
        self._loop.schedule(self._loop.now + delay, EARLY, DONE, self, self.token)  # type: ignore[arg-type]

    def cancel(self) -> None:
        """Do not call the function."""
        self.token += 1

    def work_done(self) -> None:
        """Handle the event of the loop."""
        self._fn()


class HostNetwork(Network):
    """The network of roles on hosts. A message leaves when its sender has spent the processor time of sending it.

    The links connect hosts; between processes of one host a message takes `latency` ns. Evaluation is not part of the measured
    system: its messages leave at once.
    """

    __slots__ = ("_latency", "outboxes")

    def __init__(self, loop: EventLoop, links: Links, kind_ids: Any, seed: int, latency: int):
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
        """Transport a message."""
        role, target, message, size, category, _ = mail
        loop, now = self._loop, self._loop.now
        role.touched = target.touched = True
        if self._faults is not None:
            self._faults.send(mail._replace(sent=now))
            return
        if category == EVALUATION:
            arrival = now
        elif role.node == target.node:
            arrival = now + self._latency
        else:
            arrival = self._links.arrival(now, role.node, target.node, size) + self._latency
        target.recorder.messages += MESSAGE(role.id, self._kind_ids[message.__class__], category, size, now, arrival)
        loop.schedule(arrival, EARLY, DELIVER, target, message)

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


class CostedCoroutine:
    """A coroutine of a role with its costs: before the coroutine gets a message, the role spends the time of receiving it; after
    it has posted messages, and before its next effect, the role sends them.
    """

    __slots__ = ("_inner", "_next", "_role")

    def __init__(self, inner: Any, role: HostedRole):
        self._inner, self._role = inner, role
        self._next: Callable[[], Any] | None = None  # continues after a cost

    def send(self, value: Any) -> Any:
        """Return the next effect, which may be a cost."""
        if self._next is not None:
            step, self._next = self._next, None
            return step()
        if isinstance(value, Message):
            self._next = lambda: self._step(lambda: self._inner.send(value))
            return self._role.receiving(payload_bytes(value))
        return self._step(lambda: self._inner.send(value))

    def throw(self, error: BaseException) -> Any:
        """Raise `error` inside the coroutine. Returns the next effect."""
        self._next = None
        return self._step(lambda: self._inner.throw(error))

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

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
    """A role that is a process on a host. `host`: its host. `costs`: all costs of the cluster."""

    __slots__ = (
        "_asleep_since", "_charged", "_deadline", "_demands", "_late", "_left", "_mail", "_poll_end", "_polling", "_short",
        "_started", "_waker", "costs", "host", "network",
    )  # fmt: skip

    host: Host
    costs: Costs
    network: HostNetwork

    def place(self, host: Host, number: int, costs: Costs, network: HostNetwork) -> None:
        """Place the role on a host, which is node `number` of the network."""
        self.host, self.node, self.costs, self.network = host, number, costs, network
        self._poll_end, self._waker = Timer(self._loop, self._stop_polling), Timer(self._loop, self._awake)
        self._demands: dict[str, tuple[Callable[[], int], Callable[[], int] | None]] = {}
        self._reset()

    def _reset(self) -> None:
        self._polling, self._short, self._charged = False, True, False
        self._left: float | None = None  # processor time (ns) left of the work of a suspended role
        self._mail: Mail | None = None  # the message that is being sent
        self._deadline, self._late, self._started = 0, 0, 0

    def draw_costs(
        self, seed: int, gradient: float, update: float, evaluation: float, pace: Distribution | None,
        server: Distribution | None,
    ) -> None:  # fmt: skip
        """Set the processor seconds of each kind of work, and the distributions of paced durations (None: full speed)."""
        kind, index = self.spec.kind, self.spec.index

        def draws(distribution: Distribution, purpose: int = 0) -> Callable[[], int]:
            rng = None if isinstance(distribution, Deterministic) else role_stream(seed, kind, index, purpose)
            return Sampler(distribution, rng).next

        unit = draws(self.costs.spread, SPREAD)  # the factor, in 1e-9
        self._demands = {
            "gradient": (lambda: round(gradient * unit()), draws(pace, COMPUTE_TIME) if pace is not None else None),
            "server": (draws(Deterministic(update)), draws(server, SERVER_TIME) if server is not None else None),
            "measure": (draws(Deterministic(evaluation)), None),
        }

    # instances --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the coroutine, with its costs."""
        super().begin()
        self._coroutine = CostedCoroutine(self._coroutine, self)
        self._resume = self._coroutine.send

    def end_instance(self) -> None:
        """End the instance, with its work and the messages that have not left."""
        self._stop_polling()
        self._waker.cancel()
        self.network.outboxes.pop(self.name, None)
        super().end_instance()
        self._reset()

    def _release_core(self) -> None:
        self.host.cancel(self)

    def suspend(self) -> None:
        """Suspend the role; its work stops."""
        if not self._suspensions:
            self._stop_polling()
            self._waker.cancel()
            self._left = self.host.cancel(self)
        super().suspend()

    def resume(self) -> None:
        """Undo one `suspend`."""
        left = self._left
        super().resume()
        if not self._suspensions and left is not None:
            self._left = None
            if self._working is not None or self._charged:
                self.host.start(self, left)

    def interrupt(self) -> None:
        """End a wait without a message."""
        self._stop_polling()
        self._waker.cancel()
        super().interrupt()

    # costs ------------------------------------------------------------------------------------------------------------

    def receiving(self, size: int) -> Any:
        """Return the effect that costs the time of receiving a message of `size` bytes."""
        return COMPUTE, _charge, (), self.costs.receive(size), None

    def sending(self) -> Any:
        """Return the effect that costs the time of sending the next posted message; None if there is none."""
        posted = self.network.outboxes.get(self.name)
        if not posted:
            return None
        return COMPUTE, _charge, (posted[0],), self.costs.send(posted[0].size), None

    def _compute(self, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        if fn is _charge:
            self._mail, self._charged, self._started = args[0] if args else None, True, self._loop.now
            self.host.start(self, cost * 1e9)
            return WAIT
        try:
            part = getattr(fn, "__self__", None)
            kind = self.kind_of_work(part)
        except RoleError as error:
            self._raise_in_coroutine(error)
            return WAIT
        if unless is not None and any(m.__class__ is unless for m in self.inbox):
            return self._call(give_up, (fn,))
        demand, pace = self._demands[kind]
        now, duration = self._loop.now, demand() * cost
        self.since = self._started = now
        self._working, self._unless = (fn, args, PHASE[kind]), unless
        self.token += 1
        slow = 1.0 if kind == "measure" else self.factor
        if pace is not None:
            self._deadline = now + max(0, round(pace() * cost * slow) - self._late)
        else:
            self._deadline = -1 if slow == 1.0 else -2
        self.host.start(self, duration)
        return WAIT

    def work_finished(self) -> None:
        """Handle the end of work on the host: the role continues, or waits until the paced duration has passed."""
        now = self._loop.now
        if self._charged:
            self._charged, mail, self._mail = False, self._mail, None
            if mail is not None:
                self.counters.phases[SEND] += now - self._started
                posted = self.network.outboxes.get(self.name)
                if posted and posted[0] is mail:
                    del posted[0]
                    self.network.depart(mail)
            self.drive(None)
            return
        if self._deadline == -2:
            self._deadline = self._started + round((now - self._started) * self.factor)
        if self._deadline > now:
            late = nanoseconds(self.costs.wake_delay((self._deadline - now) / 1e9))
            self._late = min(late, MOST_LATE)
            self._loop.schedule(self._deadline + late, EARLY, DONE, self, self.token)
        else:
            self._late = min(now - self._deadline, MOST_LATE) if self._deadline >= 0 else 0
            self.work_done()

    # waiting ----------------------------------------------------------------------------------------------------------

    def drive(self, value: Any) -> None:
        """Drive the coroutine; if it then waits for a message, begin to poll."""
        super().drive(value)
        if self.waiting is not None and not self._polling:
            self._asleep_since = self._loop.now
            if self._short and self.costs.polling:
                self._polling = True
                self.host.poll(1)
                self._poll_end.set(nanoseconds(self.costs.polling))

    def _stop_polling(self) -> None:
        """Stop polling: the role sleeps, or a message has arrived."""
        self._poll_end.cancel()
        if self._polling:
            self._polling = False
            self.host.poll(-1)

    def wait_over(self) -> None:
        """Resume after a sleep, or after the timeout of a wait."""
        self._stop_polling()
        self._waker.cancel()
        super().wait_over()

    def deliver(self, message: Message) -> None:
        """Process a message that has arrived. A role that sleeps is woken first, which takes time."""
        waiting = self.waiting
        matches = waiting is not None and message.__class__ in waiting and self._wait_sender in (None, message.sender)
        if not matches:
            super().deliver(message)
            return
        waited = self._loop.now - self._asleep_since
        polling = self._polling
        self._short = waited < nanoseconds(self.costs.polling)
        delay = 0 if polling else nanoseconds(self.costs.wake_delay(waited / 1e9))
        if not delay:
            self._stop_polling()
            super().deliver(message)
            return
        self.touched = True
        assert waiting is not None
        if not any(m.__class__ in waiting and self._wait_sender in (None, m.sender) for m in self.inbox):
            self._waker.set(delay)  # it is not being woken yet
        self.inbox.append(message)

    def _awake(self) -> None:
        """Deliver the message that has woken the role."""
        waiting = self.waiting
        for i, message in enumerate(self.inbox):
            if waiting is not None and message.__class__ in waiting and self._wait_sender in (None, message.sender):
                del self.inbox[i]
                super().deliver(message)
                return
