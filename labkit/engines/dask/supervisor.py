"""The client's side of a run: place the roles, start them together, hear from them, command them, bring them home.

Everything that waits has a limit, and every command goes to one Dask worker at a time with a limit of its own: one
process that does not answer never holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from queue import Empty
from typing import Any

from distributed import Client, Future

from ...errors import BadInput, ClusterError
from ...roles.layout import RoleSpec
from ...roles.regroup import spared
from ..parts import Plan
from .ask import ask, heartbeats
from .detector import FailureDetector
from .dispatch import dispatcher_of
from .homecoming import Homecoming
from .launch import Launcher
from .mailbox import deliver
from .membership import Membership
from .processes import boot_id, end_process, end_this_process, this_process
from .task import WAITING_FOR_A_THREAD, clock, task_state
from .timeouts import ABSENT_S, ANSWER_S, BUSY_S, KILL_S, LOOK_S, POST_S, SILENT_S, START_S

__all__ = ["LostWhileStarting", "Supervisor", "present_roles"]

SCHEDULER = "The Dask scheduler"


class LostWhileStarting(ClusterError):
    """A process that the run needs was lost before the roles began; the run can be started over."""


class Supervisor:
    """Roles of one run on one client.

    `workers`: addresses to place nodes on, one each; `usage`: roles now on each address. `members`: who takes part.
    """

    def __init__(self, client: Client, plan: Plan, workers: list[str], usage: Counter[str]):
        self.client, self.plan = client, plan
        self.run = secrets.token_hex(4)
        roles = present_roles(plan)
        address = dict(zip(dict.fromkeys(spec.node for spec in roles), workers))
        where = {spec.name: address[spec.node] for spec in roles}
        absent = plan.elastic.absent if plan.elastic else ()
        self.members = Membership(plan.layout, where, usage, _who_leaves(plan), absent)
        self.futures: dict[str, Future] = {}
        self.zero = 0
        self.processes: dict[str, tuple[Any, ...]] = {}  # address -> the process there
        self._offsets: dict[str, int | None] = {}  # None: another machine's clock, not yet measured
        self._closed = False
        self.never_began: set[str] = set()  # roles whose newest life was told to end before it was told to begin
        self.unheard: set[str] = set()  # roles that did not answer when they were told to begin
        self.launcher: Any = None
        self.queue = dispatcher_of(client).open(self.run)

    @property
    def where(self) -> dict[str, str]:
        """The Dask worker that plays each role which is here or starting."""
        return self.members.where

    # start ------------------------------------------------------------------------------------------------------------

    def start(self, settings: dict[str, Any]) -> None:
        """Submit every role, wait until all are up, and let them begin together.

        `ClusterError` if that fails, `LostWhileStarting` if it may succeed when it is tried again.
        """
        self.launcher = Launcher(self.client, self.plan, self.run, settings)
        self.launcher.load(self.where)
        begins = self.launcher.restored
        for name in self.where:
            self.submit(name, restored=begins.get(name))
        self._wait_until_up()
        self._begin()

    def submit(self, role: str, strategy: Any = None, restored: Any = None) -> None:
        """Start the life of `role` that is due, where it is placed. Waits for nothing."""
        life = self.members.life[role]
        before = self.futures.pop(role, None)
        done = self._task_done(role, life)
        self.futures[role] = self.launcher.start(role, life, self.where[role], done, strategy, restored)
        if before is not None:
            before.release()  # whoever still plays it finds that nobody waits for that life, and leaves

    def give_up(self, role: str) -> None:
        """Wait no more for the task of a life that is lost."""
        future = self.futures.pop(role, None)
        if future is not None:
            future.release()

    def _task_done(self, role: str, life: int) -> Any:
        def done(future: Future) -> None:
            what = "task finished" if future.status == "finished" else "task failed"
            self.queue.put({"what": what, "role": role, "incarnation": life, "status": future.status})

        return done

    def _wait_until_up(self) -> None:
        """Until every role listens, for as long as their Dask workers give signs of life."""
        missing, detector = set(self.where), FailureDetector(ABSENT_S)
        began = looked = time.monotonic()
        detector.watch([SCHEDULER, *self.where.values()], began)
        while missing:
            with contextlib.suppress(Empty):
                self._started(self.queue.get(timeout=LOOK_S), missing)
            now = time.monotonic()
            if missing and now - looked > LOOK_S:
                self._look_for(missing, detector)
                if now - began > BUSY_S:
                    self._check_begun(missing, now - began)
                looked = time.monotonic()

    def _started(self, event: dict[str, Any], missing: set[str]) -> None:
        """Take in one event of the start."""
        if event["what"] == "up":
            missing.discard(event["role"])
            self.meet(event)
            self.members.arrive(event["role"], tuple(event["address"]))
        elif event["what"] == "task failed":
            lost = event["status"] in ("cancelled", "lost")
            what = f"{event['role']} could not start: {self.why_failed(event['role'])}"
            raise LostWhileStarting(what) if lost else ClusterError(what)
        elif event["what"] == "worker lost" and event["worker"] in self.where.values():
            raise self._lost_while_starting(event["worker"])

    def _lost_while_starting(self, address: str, how: str = "ended") -> LostWhileStarting:
        return LostWhileStarting(f"The process of {self.roles_on(address)} {how} while the run was starting.")

    def meet(self, event: dict[str, Any]) -> bool:
        """A life listens: which process is it? False: the clock of its machine has not been measured yet."""
        home = self.where[event["role"]]
        self.processes[home] = tuple(event["process"])
        self._offsets.setdefault(home, 0 if event["process"][0] == boot_id() else None)
        return self._offsets[home] is not None

    def _look_for(self, missing: set[str], detector: FailureDetector) -> None:
        """Roles have not reported yet: are their Dask workers alive? Slow ones are waited for."""
        if self.client.status != "running":
            raise ClusterError("The connection to the Dask scheduler was lost while the run was starting.")
        homes = {self.where[role] for role in missing}
        detector.consult(time.monotonic())
        with contextlib.suppress(OSError):  # TimeoutError is one; a scheduler that does not answer is noticed below
            seen = heartbeats(self.client, ANSWER_S)
            detector.sign(SCHEDULER, time.monotonic())
            for home in homes:
                if home not in seen:  # the event that says so is on its way, or came before the run listened
                    raise self._lost_while_starting(home)
                detector.progress(home, seen[home], time.monotonic())
        now = time.monotonic()
        detector.consult(now)
        silent = detector.silent(SILENT_S, now)
        if SCHEDULER in silent:
            raise ClusterError(f"{SCHEDULER} gave no sign of life for {SILENT_S:g} s while the run was starting.")
        for home in homes.intersection(silent):
            raise self._lost_while_starting(home, f"gave no sign of life for {SILENT_S:g} s")

    def _check_begun(self, missing: set[str], waited: float) -> None:
        """Roles whose Dask workers are alive have not reported for long. `ClusterError` if other work keeps them."""
        keys = {self.where[role]: self.futures[role].key for role in missing}
        states = ask(self.client, keys, ANSWER_S, task_state, lambda home: (keys[home],))
        waiting = [role for role in sorted(missing) if states[self.where[role]] in WAITING_FOR_A_THREAD]
        if waiting or waited > START_S:
            raise ClusterError(
                f"These roles did not start within {waited:.0f} s: {', '.join(waiting or sorted(missing))}. "
                "Is the cluster busy with other work?"
            )

    def _begin(self) -> None:
        for address, offset in self._offsets.items():
            if offset is None:
                self._offsets[address] = self._measure_offset(address)
        self.zero = time.monotonic_ns()
        deaf = self.command({**self.members.order(), "do": "begin", "zero": self.zero})
        self.unheard = {role for address in deaf for role in self.members.on(address)}

    def measure(self, address: str, then: Callable[[], None]) -> None:
        """Find out about the clock of a Dask worker's machine, in a thread of its own; then call `then` there."""

        def work() -> None:
            try:
                self._offsets[address] = self._measure_offset(address)
            except ClusterError:  # it does not answer: its silence will be noticed
                return
            then()

        threading.Thread(target=work, name="labkit-clock", daemon=True).start()

    def _measure_offset(self, address: str) -> int:
        """How far another machine's clock is ahead of ours, ns: the middle of the shortest of five round trips."""
        best = (1 << 62, 0)
        for _ in range(5):
            before = clock()
            there = ask(self.client, [address], SILENT_S, clock, lambda address: ())[address]
            after = clock()
            if isinstance(there, Exception):
                raise LostWhileStarting(f"The Dask worker at {address} does not answer ({there}).")
            best = min(best, (after - before, there - (before + after) // 2))
        return best[1]

    # while it runs ----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Engine time, ns."""
        return time.monotonic_ns() - self.zero

    def command(
        self, command: dict[str, Any], role: str | None = None, but: Collection[str] = (), limit: float = ANSWER_S
    ) -> list[str]:  # fmt: skip
        """Send a command to `role`, or to all `but` some, at the same time. Returns who did not answer."""
        homes = self.where if role is None else {role: self.where[role]} if role in self.where else {}

        def arguments(address: str) -> tuple[Any, ...]:
            return self.run, role, self._local(command, address)

        addresses = sorted({home for name, home in homes.items() if name not in but})
        answers = ask(self.client, addresses, limit, deliver, arguments, lambda: self._closed)
        return [address for address, answer in answers.items() if answer is not True]

    def _local(self, command: dict[str, Any], address: str) -> dict[str, Any]:
        """The command, with times by the clock of the machine that gets it."""
        zero = {"zero": command["zero"] + (self._offsets.get(address) or 0)} if "zero" in command else {}
        return {**command, **zero}

    def post(
        self, command: dict[str, Any], addresses: Collection[str], role: str | None = None, life: int | None = None,
        then: Callable[[], None] = lambda: None, deaf: Callable[[str], None] = lambda address: None,
    ) -> None:  # fmt: skip
        """Send a command and wait for nothing. `then`: called when all have answered, or a second has passed. `deaf`:
        called for whoever has not. Both on the client's own thread.
        """

        async def one(address: str) -> None:
            arguments = (self.run, role, self._local(command, address), life)
            call = self.client._run(deliver, *arguments, workers=[address], on_error="return")
            try:
                answer = (await asyncio.wait_for(call, POST_S)).get(address)
            except Exception as error:  # whoever it was: gone, or frozen, which is noticed elsewhere
                answer = error
            if answer is not True:
                deaf(address)

        async def everyone() -> None:
            await asyncio.gather(*map(one, sorted(set(addresses))))
            then()

        loop = self.client.loop
        if loop is not None and self.client.status == "running":
            loop.add_callback(everyone)

    def check_kill(self, role: str) -> None:
        """`BadInput` if the end of the process of `role` were the end of this one."""
        if self.processes[self.where[role]] == this_process():
            raise BadInput(f"{role} plays in this very process, which would be killed; start workers in processes.")

    def kill(self, address: str, ours: bool) -> bool:
        """End the process there: ours, or a frozen one, at once; another one when it hears of it. False: it did not."""
        if ours or self.processes[address][0] == boot_id():
            end_process(self.processes[address])
            return True
        nothing, over = (lambda address: ()), (lambda: self._closed)
        answer = ask(self.client, [address], KILL_S, end_this_process, nothing, over)[address]
        return not isinstance(answer, TimeoutError)  # an error of the connection is what we want to see

    def look_at_workers(self) -> None:
        """Ask the scheduler when it heard of each Dask worker last. Waits for nothing: the answer is an event, `signs`."""

        async def look() -> None:
            with contextlib.suppress(Exception):  # no answer, no sign
                scheduler: Any = self.client.scheduler
                found = await asyncio.wait_for(scheduler.identity(n_workers=-1), ANSWER_S)
                seen = {address: about["last_seen"] for address, about in found["workers"].items()}
                self.queue.put({"what": "signs", "seen": seen})

        loop = self.client.loop
        if loop is not None and self.client.status == "running":
            loop.add_callback(look)

    def roles_on(self, address: str) -> str:
        """The names of the roles on a Dask worker."""
        return ", ".join(self.members.on(address))

    def why_failed(self, role: str) -> str:
        """What Dask says about a role's task."""
        future = self.futures[role]
        if future.status == "error":
            try:
                error = future.exception(timeout=2)
            except Exception as unknown:
                error = unknown
            while error.__cause__ is not None:  # Dask wraps what went wrong while the task was unpacked
                error = error.__cause__
            return f"{type(error).__name__}: {error}"
        return f"its task was {future.status}"

    # the end ----------------------------------------------------------------------------------------------------------

    def bring_home(
        self, why: str, lost: Collection[str] = (), hear: Callable[[dict[str, Any]], None] = lambda event: None
    ) -> dict[str, dict[str, Any]]:
        """End every role but the `lost` and those outside, and collect their last reports. `hear`: what they say until then.

        Roles that do not answer in time are missing from the result.
        """
        return Homecoming(self, lost, hear).bring(why)

    def abandon(self) -> None:
        """Give up a run that could not start."""
        self.command({"do": "leave", "why": "the run could not start"}, limit=POST_S)
        self.close()

    def close(self) -> None:
        """Let go of everything that the run had on the cluster."""
        self._closed = True
        self.members.leave_for_good()
        if self.launcher is not None:
            self.launcher.forget()
        dispatcher_of(self.client).shut(self.run)
        if self.client.status != "running":
            return
        for future in self.futures.values():
            future.release()  # a role that is still there finds that nobody waits for it, and leaves


def present_roles(plan: Plan) -> list[RoleSpec]:
    """The roles that are there at the start."""
    absent = plan.elastic.absent if plan.elastic else ()
    return [spec for spec in plan.layout.roles if spec.name not in absent]


def _who_leaves(plan: Plan) -> list[str]:
    """The roles without which the others go on, and which are no peers any more when they are lost."""
    layout, on_loss = plan.layout, plan.strategy.on_loss
    return [spec.name for spec in layout.roles if spared(layout, spec, on_loss)]
