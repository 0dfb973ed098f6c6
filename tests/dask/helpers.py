"""Helpers for the tests of the Dask engine."""

import os
import threading
import time

import labkit as lk


def eventually(condition, limit=180.0):
    """The result of `condition` once it is true, polled every 10 ms; fails after `limit` seconds."""
    until = time.monotonic() + limit
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit:g} s: {getattr(condition, '__doc__', '') or condition}")
        time.sleep(0.01)


def passed(seconds):
    """Wait for some time in which an event must not happen."""
    since = time.monotonic()
    eventually(lambda: time.monotonic() - since > seconds)


def pid_of(run, role):
    """The process id of a role."""
    supervisor = run.engine.supervisor
    address = supervisor.where[role]
    return supervisor.client.run(os.getpid, workers=[address])[address]


def updates(run):
    """Updates applied so far, as reported to the client."""
    return run.summary()["updates"]


def moving(run, more=5):
    """Wait until the run has applied some more updates."""
    goal = updates(run) + more
    eventually(lambda: updates(run) >= goal)
    return run


def computed(run, role, instance=0):
    """The number of gradients that this instance of a role has reported, 0 before its first report."""
    ids = run.plan.role_ids
    found = run.trace.instances.get(ids[role] + instance * len(ids))
    return found.computed if found else 0


def labkit_threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("labkit")]


def plugins(client):
    """{address: the names of labkit's plugins}, of Dask workers that have any."""
    found = client.run(lambda dask_worker: [name for name in dask_worker.plugins if name.startswith("labkit")])
    return {address: names for address, names in found.items() if names}


def closes(run):
    entries = run.summary().book
    assert entries["closes"], entries
    assert entries["missing"] == 0, entries
    return entries


def usable(cluster):
    """Assert that the cluster executes another run to its end."""
    run = lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, lk.Budget(updates=50)).wait(180)
    assert run.stopped_by == "updates"
    closes(run)
