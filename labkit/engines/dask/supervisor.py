"""The client's side of a run: place the roles, start them together, hear from them, command them, bring them home.

Everything that waits has a limit, and every command goes to one Dask worker at a time with a limit of its own: one
process that does not answer never holds up the others.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection
from queue import Empty
from typing import Any

import cloudpickle
from distributed import Client, Future

from ...errors import BadInput, ClusterError
from ..parts import Plan, split
from .ask import ask
from .dispatch import dispatcher_of
from .homecoming import Homecoming
from .mailbox import deliver
from .processes import boot_id, end_process, end_this_process, this_process
from .station import Ticket
from .task import clock, play

__all__ = ["Supervisor"]

START_S, COMMAND_S, KILL_S = 30.0, 5.0, 2.0


class Supervisor:
    """Roles of one run on one client.

    `workers`: addresses to place nodes on, one each; `usage`: roles now on each address.
    """

    def __init__(self, client: Client, plan: Plan, workers: list[str], usage: Counter[str]):
        self.client, self.plan, self.usage = client, plan, usage
        self.run, self.secret = secrets.token_hex(4), secrets.token_bytes(16)
        self.address = dict(zip(plan.layout.nodes, workers))
        self.where = {spec.name: self.address[spec.node] for spec in plan.layout.roles}
        self.futures: dict[str, Future] = {}
        self.zero = 0
        self.peers: dict[str, Any] = {}  # role -> (host, port, incarnation)
        self._offsets: dict[str, int | None] = {}  # None: another machine's clock, not yet measured
        self._closed = False
        self._processes: dict[str, tuple[Any, ...]] = {}  # address -> the process there
        self.queue = dispatcher_of(client).open(self.run)
        usage.update(self.where.values())

    # start ------------------------------------------------------------------------------------------------------------

    def start(self, settings: dict[str, Any]) -> None:
        """Submit every role, wait until all are up, and let them begin together. `ClusterError` if that fails."""
        shares, test = self._data()
        secret, objective = self.secret, self.plan.problem.objective()
        plan, factors = self.plan.without_data(), settings.pop("factors")
        _check_travels(plan)
        for index, spec in enumerate(plan.layout.roles):
            needs_it = spec.computes or spec.shard is not None or spec.kind == "chief"
            ticket = Ticket(
                self.run, index, 0, plan, objective if needs_it else None, secret,
                factor=factors.get(spec.name, 1.0), **settings,
            )  # fmt: skip
            share = shares[spec.data] if shares and spec.data is not None else None
            self.futures[spec.name] = self.client.submit(
                play, ticket, share, test if spec.kind == "chief" else None, key=f"{spec.name}#0-labkit-{self.run}",
                workers=[self.where[spec.name]], allow_other_workers=False, pure=False, retries=0,
            )  # fmt: skip
            self.futures[spec.name].add_done_callback(self._task_done(spec.name))
        self._begin(self._wait_until_up())

    def _data(self) -> tuple[Any, Any]:
        """Each worker's share and the held-out part: by value, or, for Dask arrays, computed where they are needed."""
        problem, layout = self.plan.problem, self.plan.layout
        if problem.timing_only:
            return None, None
        dataset = problem.dataset
        if not hasattr(dataset, "shares"):
            return split(dataset, problem, layout.shares), (dataset.x_test, dataset.y_test)
        first = {spec.data: spec.name for spec in reversed(layout.roles) if spec.data is not None}
        homes = [self.where[first[number]] for number in range(layout.shares)]
        with self.client.as_current():
            parts = dataset.shares(layout.shares, problem.partition, problem.seed, addresses=homes)
            lazy = [*parts, dataset.test(self.where["chief"])]
        futures = [
            self.client.compute(part, workers=[home], allow_other_workers=False)
            for part, home in zip(lazy, [*homes, self.where["chief"]])
        ]
        self._wait_for_data(futures)  # before roles start: they may hold the only thread of the worker that computes
        return futures[:-1], futures[-1]

    def _wait_for_data(self, futures: list[Future]) -> None:
        for future in futures:
            error = future.exception(timeout=600)
            if error is not None:
                raise error

    def _task_done(self, role: str) -> Any:
        def done(future: Future) -> None:
            what = "task finished" if future.status == "finished" else "task failed"
            self.queue.put({"what": what, "role": role, "status": future.status})

        return done

    def _wait_until_up(self) -> dict[str, Any]:
        """{role: (host, port, incarnation)} once every role listens."""
        peers: dict[str, Any] = {}
        until = time.monotonic() + START_S
        while len(peers) < len(self.where):
            try:
                event = self.queue.get(timeout=max(0.0, min(3.0, until - time.monotonic())))
            except Empty:
                self._look_for(set(self.where) - set(peers), time.monotonic() >= until)
                continue
            if event["what"] == "up":
                peers[event["role"]] = (*event["address"], event["incarnation"])
                home = self.where[event["role"]]
                self._processes[home] = tuple(event["process"])
                self._offsets.setdefault(home, 0 if event["process"][0] == boot_id() else None)
            elif event["what"] == "task failed":
                raise ClusterError(f"{event['role']} could not start: {self.why_failed(event['role'])}")
            elif event["what"] == "worker lost" and event["worker"] in self.where.values():
                raise ClusterError(f"The process of {self.roles_on(event['worker'])} ended while the run was starting.")
        return peers

    def _look_for(self, missing: set[str], late: bool) -> None:
        """Roles have not reported yet: are their Dask workers still there?"""
        answers = ask(self.client, {self.where[role] for role in missing}, COMMAND_S, clock, lambda address: ())
        for address, answer in answers.items():
            if isinstance(answer, Exception):
                raise ClusterError(f"The process of {self.roles_on(address)} does not answer; the run could not start.")
        if late:
            names = ", ".join(sorted(missing))
            raise ClusterError(
                f"These roles did not start within {START_S:g} s: {names}. Is the cluster busy with other work?"
            )

    def _begin(self, peers: dict[str, Any]) -> None:
        for address, offset in self._offsets.items():
            if offset is None:
                self._offsets[address] = self._measure_offset(address)
        self.zero, self.peers = time.monotonic_ns(), peers
        deaf = self.command({"do": "begin", "zero": self.zero, "peers": peers})
        if deaf:
            names = ", ".join(self.roles_on(address) for address in deaf)
            raise ClusterError(f"{names} did not hear within {COMMAND_S:g} s that the run begins; it could not start.")

    def _measure_offset(self, address: str) -> int:
        """How far another machine's clock is ahead of ours, ns: the middle of the shortest of five round trips."""
        best = (1 << 62, 0)
        for _ in range(5):
            before = clock()
            there = ask(self.client, [address], COMMAND_S, clock, lambda address: ())[address]
            after = clock()
            if isinstance(there, Exception):
                raise ClusterError(f"The Dask worker at {address} does not answer ({there}).")
            best = min(best, (after - before, there - (before + after) // 2))
        return best[1]

    # while it runs ----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """Engine time, ns."""
        return time.monotonic_ns() - self.zero

    def command(
        self, command: dict[str, Any], role: str | None = None, but: Collection[str] = (), limit: float = COMMAND_S
    ) -> list[str]:  # fmt: skip
        """Send a command to `role`, or to all `but` some, at the same time. Returns who did not answer."""
        homes = self.where if role is None else {role: self.where[role]}

        def arguments(address: str) -> tuple[Any, ...]:
            zero = {"zero": command["zero"] + (self._offsets.get(address) or 0)} if "zero" in command else {}
            return self.run, role, {**command, **zero}

        addresses = sorted({home for name, home in homes.items() if name not in but})
        answers = ask(self.client, addresses, limit, deliver, arguments, lambda: self._closed)
        return [address for address, answer in answers.items() if answer is not True]

    def check_kill(self, role: str) -> None:
        """`BadInput` if the end of the process of `role` were the end of this one."""
        if self._processes[self.where[role]] == this_process():
            raise BadInput(f"{role} plays in this very process, which would be killed; start workers in processes.")

    def kill(self, role: str, ours: bool) -> bool:
        """End the process of `role`: ours at once, whatever it does; another one when it hears of it. False: it did not."""
        address = self.where[role]
        if ours:
            end_process(self._processes[address])
            return True
        nothing, over = (lambda address: ()), (lambda: self._closed)
        answer = ask(self.client, [address], KILL_S, end_this_process, nothing, over)[address]
        return not isinstance(answer, TimeoutError)  # an error of the connection is what we want to see

    def roles_on(self, address: str) -> str:
        """The names of the roles on a Dask worker."""
        return ", ".join(name for name, home in self.where.items() if home == address)

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
        """End every role but the `lost`, and collect their last reports. `hear`: what they say until then.

        Roles that do not answer in time are missing from the result.
        """
        return Homecoming(self, lost, hear).bring(why)

    def abandon(self) -> None:
        """Give up a run that could not start."""
        self.command({"do": "leave", "why": "the run could not start"})
        self.close()

    def close(self) -> None:
        """Let go of everything that the run had on the cluster."""
        self._closed = True
        self.usage.subtract(self.where.values())
        dispatcher_of(self.client).shut(self.run)
        if self.client.status != "running":
            return
        for future in self.futures.values():
            future.release()  # a role that is still there finds that nobody waits for it, and leaves


def _check_travels(plan: Plan) -> None:
    """A strategy of one's own may hold what no other process can have."""
    try:
        cloudpickle.dumps(plan)
    except Exception as error:
        what = f"{plan.strategy.name} cannot travel to other processes: {type(error).__name__}: {error}"
        raise BadInput(f"{what}. No locks, files or sockets may be in it or in what its roles refer to.") from None
