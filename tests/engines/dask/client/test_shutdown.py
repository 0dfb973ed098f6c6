"""Final reports of roles that have ended are fetched from their Dask workers, without waiting for lost ones."""

import asyncio
import types
from collections import Counter
from queue import Queue

import pytest

from labkit.engines.dask.client.recovery_events import RoleEnded, WorkerLeft
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
