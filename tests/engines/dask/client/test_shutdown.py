"""Final reports of roles that have ended are fetched from their Dask workers, without waiting for lost ones."""

import asyncio
import types
from collections import Counter
from queue import Empty, Queue

import pytest

from labkit.engines.dask.client.recovery_events import FinalReport, RoleEnded, WorkerLeft
from labkit.engines.dask.client.shutdown import Shutdown
from tests.engines.dask.client.client_stub import Loop


class Task:
    """A finished Dask task, whose result is stored on a Dask worker. `gone`: that worker is killed before the result
    is fetched.
    """

    def __init__(self, report, gone):
        self.report, self.gone = report, gone

    def done(self):
        return True


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.end()


@pytest.mark.parametrize("gone", [(), ("chief",), ("worker-0",), ("chief", "server-0")])
def test_a_report_lost_with_its_process_is_not_awaited(loop, gone):
    """Processes are killed after all roles have ended, and their loss is reported after the roles' close frames."""
    roles = ["chief", "server-0", "worker-0"]
    queue = Queue()

    async def gather(task, asynchronous):
        if task.gone:
            for role in gone:
                queue.put(WorkerLeft(f"home of {role}", expected=False))
            await asyncio.Event().wait()
        return task.report

    supervisor = types.SimpleNamespace(
        client=types.SimpleNamespace(status="running", loop=loop, gather=gather),
        futures={role: Task({"role": role}, role in gone) for role in roles},
        where={role: f"home of {role}" for role in roles},
        members=types.SimpleNamespace(outside=set()),
        never_began=set(),
        queue=queue,
        order_and_wait=lambda order, but, limit: [queue.put(RoleEnded(role, 0)) for role in roles],
    )
    received = Counter()
    reports = Shutdown(supervisor, (), lambda event: received.update([type(event)])).perform("it is over")
    assert reports == {role: {"role": role} for role in roles if role not in gone}
    assert not received


class BusyMachine:
    """A machine on which every order takes a while, and on which time passes only while the shutdown waits.

    `undelivered`: the first orders to these roles are not delivered. An order to end is answered after `ends[role]` seconds, and
    the final report comes as late after the order to drain.
    """

    def __init__(self, ends, undelivered=()):
        self.now, self.ends, self.undelivered = 0.0, ends, set(undelivered)
        self.due, self.ended = [], set()
        self.client = types.SimpleNamespace(status="running")
        self.futures, self.where = (
            {role: types.SimpleNamespace(done=lambda: False) for role in ends},
            {r: r for r in ends},
        )
        self.members, self.never_began, self.queue = types.SimpleNamespace(outside=set()), set(), self

    def get(self, timeout):
        if self.due and self.due[0][0] <= self.now + timeout:
            at, event = self.due.pop(0)
            self.now = max(self.now, at)
            return event
        self.now += timeout
        raise Empty

    def order_and_wait(self, order, but, limit):
        self.post(order, [role for role in self.ends if role not in but and role not in self.undelivered])
        self.now += limit

    def post(self, order, addresses):
        for role in addresses:
            kind = RoleEnded(role, 0) if order["do"] == "end" else FinalReport(role, {"role": role})
            key = role, order["do"]
            if key not in self.ended and (order["do"] == "end" or (role, "end") in self.ended):  # orders are idempotent
                self.ended.add(key)
                self.due = sorted([*self.due, (self.now + self.ends[role], kind)], key=lambda pair: pair[0])


@pytest.mark.parametrize("undelivered", [(), ("chief",), ("chief", "worker-0")])
@pytest.mark.parametrize("slow", [0.5, 5.0])
def test_no_report_of_a_busy_machine_is_missing(undelivered, slow):
    """Four roles that answer one after the other, as on one core; some orders do not arrive at first."""
    roles = ["server-0", "worker-0", "worker-1", "chief"]
    machine = BusyMachine({role: slow * (1 + i) for i, role in enumerate(roles)}, undelivered)
    reports = Shutdown(machine, (), lambda event: None, lambda: machine.now).perform("it is over")
    assert reports == {role: {"role": role} for role in roles}


def test_a_role_that_gives_no_sign_is_not_awaited_for_ever():
    machine = BusyMachine({"server-0": 0.1, "chief": 1e9})
    reports = Shutdown(machine, (), lambda event: None, lambda: machine.now).perform("it is over")
    assert reports == {"server-0": {"role": "server-0"}}
    assert machine.now < 60
