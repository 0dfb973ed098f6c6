"""The client's side of the roles of a run: places them, starts them together, and sends them orders.

An order is sent to each Dask worker separately, with a separate timeout, so a process that does not answer never delays
the other processes. Between the start and the shutdown, no method waits: answers arrive as events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from queue import Empty
from typing import Any

from distributed import Client, Future

from ....errors import ClusterError, LabkitError
from ....interrupts import raise_if_interrupted
from ....packed import Packed
from ....roles.group_restart import not_waited_for
from ....roles.layout import RoleSpec
from ...plan import Plan
from ..cluster.dask_connection import DaskConnection
from ..dask_private import identity
from ..failure_detector import FailureDetector
from ..processes import boot_id
from ..requests import run_on_workers
from ..stages import StartStage, silence_text
from ..timeouts import ABSENT_S, ANSWER_S, BUSY_S, LOOK_S, POST_S, SILENT_S
from ..worker.command_channel import deliver
from ..worker.task import blocking_tasks
from .clock import ClockOffsets, EngineClock
from .event_router import router_of
from .launch import Launcher
from .membership import Membership
from .recovery_events import (
    Answered,
    InternalError,
    RecoveryEvent,
    RoleUp,
    TaskFailed,
    TaskFinished,
    WorkerHeartbeats,
    WorkerLeft,
)

SCHEDULER = "The Dask scheduler"
ERROR_S = 2.0  # timeout for reading the error of a failed task, which the client has received already, seconds
log = logging.getLogger("labkit.engines.dask.client")


class LostWhileStarting(ClusterError):
    """A process that the run needs was lost before the roles began. The start can be retried."""


class Supervisor:
    """The roles of one run on one client.

    The thread that starts the run calls `start` and `cancel_start`; the run's thread calls all other methods.
    `workers`: addresses of the Dask workers, one per node. `cluster`: the processes. `packed`: see `Launcher`.

    Attributes to read: `members`, the membership; `clock`, engine time; `queue`, the events of the run.
    """

    def __init__(self, client: Client, plan: Plan, workers: list[str], cluster: DaskConnection, packed: Packed):
        self.client, self.plan, self._cluster, self._packed = client, plan, cluster, packed
        self.run = secrets.token_hex(4)
        self.queue = router_of(client).open(self.run)
        roles = present_roles(plan)
        address = dict(zip(dict.fromkeys(spec.node for spec in roles), workers))
        where = {spec.name: address[spec.node] for spec in roles}
        absent = plan.elastic.absent if plan.elastic else ()
        self.members = Membership(plan.layout, where, cluster.usage, _spared_roles(plan), absent)
        self.futures: dict[str, Future] = {}
        self.clock = EngineClock()
        self.processes: dict[str, tuple[Any, ...]] = {}  # {address: process}
        # roles whose newest instance was ordered to end before it was ordered to begin
        self.never_began: set[str] = set()
        self.unacknowledged: set[str] = set()  # roles that did not acknowledge the order to begin
        self._offsets = ClockOffsets(client)
        self._order_locks: dict[str, asyncio.Lock] = {}  # {address: lock that keeps orders in sequence}
        self._sending: dict[str, set[asyncio.Task[bool]]] = {}  # {address: orders that are not acknowledged}
        self._closed = False
        self._launcher: Launcher | None = None

    @property
    def where(self) -> dict[str, str]:
        """{role: Dask worker}, for each role that is running or starting."""
        return self.members.where

    # start ------------------------------------------------------------------------------------------------------------

    def start(self, settings: dict[str, Any]) -> None:
        """Submit every role, wait until all are up, and order them to begin together.

        Raises `LostWhileStarting` if this fails and a retry may succeed, else `ClusterError`.
        """
        launcher = self._launcher = Launcher(self.client, self.plan, self.run, self._packed, settings)
        try:
            self._cluster.run_starts(self.run, StartStage.UP, 0, len(self.where))
            launcher.load(self.where)
            begins = launcher.restored
            for name, worker in self.where.items():
                self.submit(name, self.members.incarnation[name], worker, restored=begins.get(name))
            self._wait_until_up()
            self._begin()
        finally:
            self._cluster.run_starts(self.run, None)

    def submit(self, role: str, incarnation: int, worker: str, strategy: Any = None, restored: Any = None) -> None:
        """Start an instance of `role` on a Dask worker. Does not wait."""
        assert self._launcher is not None
        before = self.futures.pop(role, None)
        done = self._task_done(role, incarnation)
        self.futures[role] = self._launcher.start(role, incarnation, worker, done, strategy, restored)
        if before is not None:
            before.release()  # an instance that still runs detects this, and exits

    def set_factor(self, role: str, factor: float) -> None:
        """Set the slowdown factor of instances of `role` that start from now on."""
        assert self._launcher is not None
        self._launcher.factors[role] = factor

    def factor(self, role: str) -> float:
        """Return the slowdown factor of instances of `role` that start from now on."""
        return 1.0 if self._launcher is None else self._launcher.factors.get(role, 1.0)

    def give_up(self, role: str) -> None:
        """Release the task of an instance that is lost."""
        future = self.futures.pop(role, None)
        if future is not None:
            future.release()

    def _task_done(self, role: str, incarnation: int) -> Callable[[Future], None]:
        def done(future: Future) -> None:
            status = str(future.status)
            if status == "finished":
                self.queue.put(TaskFinished(role, incarnation))
            else:
                self.queue.put(TaskFailed(role, incarnation, status, _why_failed(future)))

        return done

    def _wait_until_up(self) -> None:
        """Wait until every role is up, however long this takes.

        Raises `ClusterError` if a Dask worker ends, or if a Dask worker or the scheduler gives no sign of life.
        """
        # a look may take long
        missing, detector, total = set(self.where), FailureDetector(ANSWER_S + ABSENT_S), len(self.where)
        began = looked = time.monotonic()
        detector.watch([SCHEDULER, *self.where.values()], began)
        while missing:
            raise_if_interrupted()
            with contextlib.suppress(Empty):
                self._started(self.queue.get(timeout=LOOK_S), missing)
                self._cluster.run_starts(self.run, StartStage.UP, total - len(missing), total)
            now = time.monotonic()
            if missing and now - looked > LOOK_S:
                self._look_for(missing, detector)
                if now - began > BUSY_S and not self._cluster.local:
                    self._check_threads(missing, now - began)
                looked = time.monotonic()

    def _started(self, event: RecoveryEvent, missing: set[str]) -> None:
        """Handle one event during the start."""
        if isinstance(event, RoleUp):
            missing.discard(event.role)
            self.add_process(event)
            self.members.arrive(event.role, event.contact)
        elif isinstance(event, TaskFailed):
            lost = event.status in ("cancelled", "lost")
            what = f"{event.role} could not start: {event.why}"
            raise LostWhileStarting(what) if lost else ClusterError(what)
        elif isinstance(event, WorkerLeft) and event.worker in self.where.values():
            raise self._lost_while_starting(event.worker)
        elif isinstance(event, InternalError):
            raise event.error

    def _lost_while_starting(self, address: str) -> LostWhileStarting:
        how = self._cluster.how_ended(address)
        text = f" ({how})" if how else ""
        return LostWhileStarting(f"The process of {self.roles_on(address)} ended while the run was starting{text}.")

    def add_process(self, event: RoleUp) -> bool:
        """Record the process of a role that is up. Returns False if the clock of its machine has not been measured yet."""
        address = self.where[event.role]
        self.processes[address] = tuple(event.process)
        return self._offsets.add(address, event.process[0] == boot_id())

    def _look_for(self, missing: set[str], detector: FailureDetector) -> None:
        """Check that the Dask workers of `missing` roles, and the scheduler, are alive. Slow processes are no error."""
        if self.client.status != "running":
            raise ClusterError("The connection to the Dask scheduler was lost while the run was starting.")
        addresses = {self.where[role] for role in missing}
        with contextlib.suppress(OSError):  # includes TimeoutError; a silent scheduler is detected below
            seen = self._cluster.signs_of_life()
            detector.sign(SCHEDULER, time.monotonic())
            for address in addresses:
                if address not in seen:  # `WorkerLeft` has not arrived yet, or was sent before the run subscribed
                    raise self._lost_while_starting(address)
                detector.progress(address, seen[address], time.monotonic())
        now = time.monotonic()
        detector.consult(now)
        silent = detector.silent(SILENT_S, now)
        if SCHEDULER in silent:
            raise ClusterError(f"{SCHEDULER} gave no sign of life for {SILENT_S:g} s while the run was starting.")
        for address in addresses.intersection(silent):
            roles = silence_text(f"{self.roles_on(address)} on {address}", StartStage.CONNECTED, SILENT_S)
            raise LostWhileStarting(f"The run could not start: {roles}.")

    def _check_threads(self, missing: set[str], waited: float) -> None:
        """Raise `ClusterError` if other tasks than roles occupy the threads for which the `missing` roles wait.

        `waited`: seconds since the start.
        """
        keys = {self.where[role]: self.futures[role].key for role in missing}
        tasks = run_on_workers(self.client, keys, ANSWER_S, blocking_tasks, lambda address: (keys[address],))
        blocked = [
            role for role in sorted(missing) if isinstance(tasks[self.where[role]], list) and tasks[self.where[role]]
        ]
        if blocked:
            raise ClusterError(
                f"These roles did not start within {waited:.0f} s, because the cluster is busy with other work: "
                f"{', '.join(blocked)}."
            )

    def _begin(self) -> None:
        for address in self._offsets.unknown:
            try:
                self._offsets.measure(address)
            except ClusterError as error:
                raise LostWhileStarting(str(error)) from error
        self._cluster.run_starts(self.run, StartStage.BEGUN, 0, len(self.where))
        self.clock.begin()
        unresponsive = self.order_and_wait({**self.members.order(), "do": "begin", "zero": self.clock.zero})
        self.unacknowledged = {role for address in unresponsive for role in self.members.on(address)}

    def measure(self, address: str, then: Callable[[], None]) -> None:
        """Measure the clock offset of a Dask worker's machine in a separate thread, then call `then` on the run's thread.

        After a failure `then` is called, too, `LOOK_S` seconds later. The run then retries if the role is still
        present.
        """

        def work() -> None:
            try:
                self._offsets.measure(address)
            except ClusterError:
                time.sleep(LOOK_S)
            self.queue.put(Answered(then))

        threading.Thread(target=work, name="labkit-clock", daemon=True).start()

    # orders that wait: only while the run starts and ends ---------------------------------------------------------------

    def order_and_wait(
        self, order: dict[str, Any], role: str | None = None, but: Collection[str] = (), limit: float = ANSWER_S
    ) -> list[str]:  # fmt: skip
        """Send an order to `role`, or to all roles except `but`, and wait. Returns the addresses that did not answer."""
        of_roles = self._addresses_of(role)

        def arguments(address: str) -> tuple[Any, ...]:
            return self.run, role, self._local(order, address)

        addresses = sorted({address for name, address in of_roles.items() if name not in but})
        answers = run_on_workers(self.client, addresses, limit, deliver, arguments, lambda: self._closed)
        return [address for address, answer in answers.items() if answer is not True]

    def _addresses_of(self, role: str | None) -> dict[str, str]:
        where = self.where
        return where if role is None else {role: where[role]} if role in where else {}

    def _local(self, order: dict[str, Any], address: str) -> dict[str, Any]:
        """Return the order with times converted to the clock of the machine at `address`, also in nested orders."""
        if "zero" in order:
            order = {**order, "zero": self._offsets.local(order["zero"], address)}
        if "orders" in order:
            order = {**order, "orders": [self._local(one, address) for one in order["orders"]]}
        return order

    # orders that do not wait --------------------------------------------------------------------------------------------

    def post(
        self, order: dict[str, Any], addresses: Iterable[str], role: str | None = None, incarnation: int | None = None,
        then: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Send an order to these Dask workers without waiting.

        `incarnation`: send it only to this instance of `role`. `then`: called on the run's thread when all Dask workers
        have answered or left, or a second has passed.
        """
        addresses = sorted(set(addresses))

        async def send() -> None:
            await self._deliver_all({at: self._deliver(order, at, role, incarnation, POST_S) for at in addresses})
            if then is not None:
                self.queue.put(Answered(then))

        self._in_background(send, None if then is None else Answered(then))

    def send_in_order(
        self, order: dict[str, Any], role: str | None, then: Callable[[list[str]], None] = lambda unresponsive: None
    ) -> None:  # fmt: skip
        """Send an order to `role`, or to all roles (None), without waiting. Orders arrive in the order of the calls.

        `then`: called on the run's thread with the addresses that did not answer in time.
        """
        addresses = sorted(set(self._addresses_of(role).values()))

        async def one(address: str) -> bool:
            async with self._order_locks.setdefault(address, asyncio.Lock()):
                return await self._deliver(order, address, role, None, ANSWER_S)

        async def send() -> None:
            unresponsive = await self._deliver_all({address: one(address) for address in addresses})
            self.queue.put(Answered(lambda: then(unresponsive)))

        self._in_background(send, Answered(lambda: then(addresses)))

    async def _deliver_all(self, deliveries: dict[str, Coroutine[Any, Any, bool]]) -> list[str]:
        """Await {address: delivery of an order}. Returns the addresses that did not acknowledge it and have not left."""
        tasks = {address: asyncio.ensure_future(delivery) for address, delivery in deliveries.items()}
        for address, task in tasks.items():
            self._sending.setdefault(address, set()).add(task)
            task.add_done_callback(self._sending[address].discard)
        if tasks:
            await asyncio.wait(tasks.values())
        return [address for address, task in tasks.items() if not task.cancelled() and not task.result()]

    def left(self, address: str) -> None:
        """Stop waiting for acknowledgements of a Dask worker that has left. Without this, each order to it waits `ANSWER_S`."""

        async def stop() -> None:
            for task in list(self._sending.pop(address, ())):
                task.cancel()

        self._in_background(stop, None)

    async def _deliver(
        self, order: dict[str, Any], address: str, role: str | None, incarnation: int | None, limit: float
    ) -> bool:  # fmt: skip
        """Send the order. Returns whether it was acknowledged in time.

        Lost and frozen processes are detected elsewhere.
        """
        call = self.client.run(
            deliver, self.run, role, self._local(order, address), incarnation, workers=[address], on_error="return"
        )
        try:
            return (await asyncio.wait_for(call, limit)).get(address) is True
        except Exception:
            return False

    def call(
        self, address: str, fn: Any, arguments: tuple[Any, ...], limit: float, then: Callable[[Any], None], nanny: bool = False
    ) -> None:  # fmt: skip
        """Call `fn(*arguments)` on a Dask worker, or in its nanny, without waiting.

        `then`: called on the run's thread with the result, or with the exception that was raised.
        """

        async def work() -> None:
            try:
                call = self.client.run(fn, *arguments, workers=[address], nanny=nanny, on_error="return")
                missing = OSError("there is no nanny" if nanny else f"{address} is not there")
                answer = (await asyncio.wait_for(call, limit)).get(address, missing)
            except Exception as error:
                answer = error
            self.queue.put(Answered(lambda: then(answer)))

        lost = OSError("the connection to the Dask scheduler is gone")
        self._in_background(work, Answered(lambda: then(lost)))

    def request_heartbeats(self) -> None:
        """Request signs of life of all Dask workers, without waiting. The answer arrives as `WorkerHeartbeats`."""
        if self._cluster.local:
            return self.queue.put(WorkerHeartbeats(self._cluster.signs_of_life()))

        async def look() -> None:
            with contextlib.suppress(Exception):  # without an answer there is no sign of life
                found = await asyncio.wait_for(identity(self.client), ANSWER_S)
                self.queue.put(
                    WorkerHeartbeats({address: about["last_seen"] for address, about in found["workers"].items()})
                )

        self._in_background(look, None)

    def _in_background(self, work: Callable[[], Any], without: RecoveryEvent | None) -> None:
        """Run a coroutine on the client's event loop. `without`: event to post instead if the client is closed."""

        async def guarded() -> None:
            try:
                await work()
            except Exception as error:
                log.exception("An order to roles of run %s failed", self.run)
                self.queue.put(InternalError(error))

        loop = self.client.loop
        if loop is not None and self.client.status == "running":
            loop.add_callback(guarded)
        elif without is not None:
            self.queue.put(without)

    # about roles --------------------------------------------------------------------------------------------------------

    def roles_on(self, address: str) -> str:
        """Return the names of the roles on a Dask worker."""
        return ", ".join(self.members.on(address))

    # the end ------------------------------------------------------------------------------------------------------------

    def cancel_start(self) -> None:
        """Make the roles of a run that could not start exit, and release its resources."""
        self.order_and_wait({"do": "leave", "why": "the run could not start"}, limit=POST_S)
        self.close()

    def close(self) -> None:
        """Release all resources of the run on the cluster.

        If one of them cannot be released, the error is raised after all others are released.
        """
        self._closed = True
        with contextlib.ExitStack() as ends:  # callbacks run in reverse order
            if self.client.status == "running":
                for future in self.futures.values():
                    ends.callback(future.release)  # a role that still runs detects this, and exits
            ends.callback(router_of(self.client).close, self.run)
            if self._launcher is not None:
                ends.callback(self._launcher.forget)
            ends.callback(self.members.release)


def _why_failed(future: Future) -> str:
    """Return Dask's error for a task that has failed, as text. May block; called on the thread of Dask's callbacks."""
    if future.status != "error":
        return f"its task was {future.status}"
    try:
        error = future.exception(timeout=ERROR_S)
    except Exception as unknown:
        error = unknown
    if error is None:  # the state of the task has changed since
        return f"its task was {future.status}"
    while error.__cause__ is not None:  # Dask wraps errors raised while the task is deserialized
        error = error.__cause__
    return str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"


def present_roles(plan: Plan) -> list[RoleSpec]:
    """Return the roles that are present at the start."""
    absent = plan.elastic.absent if plan.elastic else ()
    return [spec for spec in plan.layout.roles if spec.name not in absent]


def _spared_roles(plan: Plan) -> list[str]:
    """Return the roles without which the run continues. When such a role is lost, it is removed from `ctx.peers`."""
    layout, on_loss = plan.layout, plan.strategy.on_loss
    return [spec.name for spec in layout.roles if not_waited_for(layout, spec, on_loss)]
