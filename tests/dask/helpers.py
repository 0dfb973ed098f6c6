"""Helpers for the tests of the Dask engine."""

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import socket
import threading

import psutil
from distributed import Client

import labkit as lk
from tests.accounts import balanced

MOONS = lk.Problem("moons", hidden=(8,))


def updates(run):
    """Updates applied so far, as reported to the client."""
    return run.summary()["updates"]


def further(run, more=5):
    """Wait until the run has applied more updates; the run."""
    goal = updates(run) + more
    run.wait_for(lambda run: updates(run) >= goal)
    return run


def endless(cluster):
    """A run without an end that has made a few updates."""
    return further(lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=10**9)))


def computed(run, role, instance=0):
    """The number of gradients that this instance of a role has reported, 0 before its first report."""
    ids = run.plan.role_ids
    found = run.trace.instances.get(ids[role] + instance * len(ids))
    return found.computed if found else 0


def computes(run, role, instance=0, more=1):
    """Wait until this instance of a role has computed more gradients."""
    goal = computed(run, role, instance) + more
    run.wait_for(lambda run: computed(run, role, instance) >= goal)


def events(run, *kinds):
    """The events of these kinds, in order."""
    return [event for event in run.trace.events if event.kind in kinds]


def whole(run):
    """Wait until every role of the run is running; the run."""
    run.wait_for(lambda run: run.engine.members.whole)
    return run


def process_of(run, role):
    """The process of a role."""
    supervisor = run.engine.supervisor
    return psutil.Process(supervisor.processes[supervisor.where[role]][1])


def labkit_threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("labkit")]


def addresses(client):
    """The addresses of all Dask workers."""
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def plugins(client):
    """{address: the names of labkit's plugins}, of Dask workers that have any."""
    found = client.run(lambda dask_worker: [name for name in dask_worker.plugins if name.startswith("labkit")])
    return {address: names for address, names in found.items() if names}


async def _last_role_has_ended(dask_worker):
    for name, plugin in list(dask_worker.plugins.items()):
        if name.startswith("labkit"):
            ended, teardown = asyncio.Event(), plugin.teardown

            async def tear_down(worker, ended=ended, teardown=teardown):
                await teardown(worker)
                ended.set()

            plugin.teardown = tear_down
            await ended.wait()


def nothing_left(client):
    """Wait until all roles on the cluster have ended. Then nothing of them is left: no plugin, and no thread."""
    client.run(_last_role_has_ended)
    assert plugins(client) == {}
    threads = client.run(lambda: [t.name for t in threading.enumerate() if t.name.startswith("labkit")])
    assert not any(threads.values()), threads


def progress(cluster):
    """(processes that are up, wanted ones)"""
    found = cluster.progress()
    return found.up, found.wanted


def closes(run):
    """Assert that the ledger of a run that is over balances; the ledger."""
    assert run.summary().book == balanced(run)
    return run.summary().book


def released(run):
    """Assert that a run that is over occupies no Dask worker, if no other run is going on; the run."""
    assert not any(run.engine.connection.usage.values())
    assert run.engine.connection.runs == set()
    assert labkit_threads() == []
    return run


def usable(cluster):
    """Assert that the cluster executes another run to its end; the run."""
    run = lk.train(MOONS, lk.AsyncPS(), cluster, lk.Budget(updates=50)).wait()
    assert run.stopped_by == "updates"
    closes(run)
    return run


def another_client(cluster):
    """Another client of the cluster's scheduler, as of a user who has started the Dask workers."""
    scheduler = cluster.open().client.scheduler
    return Client(scheduler.address, security=cluster.client.security, set_as_default=False)


def together(*works):
    """Call these at the same moment, each on a separate thread, and wait until all have returned."""
    start, errors = threading.Barrier(len(works)), []

    def do(work):
        start.wait()
        try:
            work()
        except lk.LabkitError:
            pass  # refused, because another one was first
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=do, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def path_of_labkit():
    """The environment of programs that import labkit and the tests."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


# clusters of others ---------------------------------------------------------------------------------------------------


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def scheduler_and_workers(folder, workers, preload=None):
    """`dask scheduler` and `dask worker` in processes of their own: (address, processes)."""
    address = f"tcp://127.0.0.1:{free_port()}"
    started = [_dask("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard")]
    options = ["--preload", str(preload)] if preload else []
    options += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)]
    try:
        started += [_dask("worker", address, *options) for _ in range(workers)]
        with Client(address, set_as_default=False, timeout=600) as client:
            client.wait_for_workers(workers)
            yield address, started
    finally:
        for process in started:
            process.kill()
            process.join()


def _dask(what, *arguments):
    """Forked: the imports of a program take more than half a second of a core."""
    process = multiprocessing.get_context("forkserver").Process(target=_serve, args=(what, arguments))
    process.start()
    return process


def _serve(what, arguments):
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    importlib.import_module(f"distributed.cli.dask_{what}").main(arguments)
