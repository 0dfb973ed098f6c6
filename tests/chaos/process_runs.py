"""Helpers of the chaos tests on processes: runs whose gradients are marks, comparison of their ledger, and withheld reports.
Every gradient is a unique mark (`indicator`), so the returned parameters show which ones they hold.
"""

from contextlib import contextmanager

import cloudpickle

import labkit as lk
from labkit.engines.storage.store import Store
from tests.accounts import balanced
from tests.chaos import indicator
from tests.chaos.indicator import computed, held_by_model, indicated, mistakes, problem_for
from tests.dask.helpers import nothing_left, released

cloudpickle.register_pickle_by_value(indicator)  # processes do not have this folder on their path


def started(processes, strategy, budget, folder, faults=(), room=2000, **shape):
    shape = {"workers": 3, "servers": 2, "pace": 0.01, "checkpoint_every": 0.2} | shape
    problem = problem_for(type(strategy), shape["servers"] or 1, room)
    marked = indicated(strategy, folder)
    return lk.train(problem, marked, processes.resized(**shape), budget, faults=faults)


@contextmanager
def run_of(processes, strategy, folder, **shape):
    """A run with events, which is stopped when the block is left; then checks its ledger, and that nothing of it is left.

    Its budget has no number of updates: how many it applies before a fault depends on the machine.
    """
    shape = {"room": 8000, "pace": 0.02, "heartbeat_timeout": 60.0} | shape
    if strategy.name == "SparsePS":  # which has fewer events
        shape |= {"room": 500, "pace": 0.2}
    if not type(strategy).uses_servers:
        shape["servers"] = None
    run = started(processes, strategy, lk.Budget(updates=100_000), folder, **shape)
    try:
        run.wait_for(lambda run: evaluated(run) > 0)
        yield run
    except BaseException:
        print(*(f"{event.time / 1e9:8.3f} {event!s}" for event in run.trace.events), sep="\n")
        raise
    finally:
        run.stop()
    assert run.stopped_by == "user", (run.stopped_by, run.engine.error)
    agree(run, folder)
    nothing_left(processes.client)
    released(run)


def goes_on(run):
    """Wait until the chief evaluates more updates than before."""
    version = evaluated(run)
    run.wait_for(lambda run: evaluated(run) > version)


def agree(run, folder):
    """Assert that the ledger balances, and agrees with the returned parameters."""
    entries, parameters = balanced(run), run.engine.parameters
    applied = partly = 0
    if parameters is not None:
        held = held_by_model(run, parameters, folder)
        applied, partly = len(held.everywhere), len(held.somewhere - held.everywhere)
    events = [str(event) for event in run.trace.events]
    assert (entries["applied"], entries["partly_applied"]) == (applied, partly), (entries, events)
    assert entries["computed"] <= computed(folder), (
        entries,
        events,
    )  # a killed role may have computed more than it reported
    assert mistakes(folder) == []
    return entries


def withhold(run, role):
    """From now on no report of `role` leaves its process, which continues and sends heartbeats. It can be killed now."""

    def muted(role, dask_worker):
        boxes = [plugin for name, plugin in dask_worker.plugins.items() if name.startswith("labkit-")]
        (slot,) = [slot for box in boxes for key, slot in box.channels.items() if key[0] == role]
        whole = slot.report
        slot.report = lambda what, **more: None if what == "batch" else whole(what, **more)

    run.engine.supervisor.client.run(muted, role, workers=[run.engine.members.where[role]])


def reported(run, role):
    counters = run.trace.counters.get(run.trace.roles.index(role))
    return 0 if counters is None else counters.updates


def evaluated(run):
    return max(run.trace.column("evaluations", "update").tolist(), default=-1)


def saved(run, role):
    """The version of the newest checkpoint of a role."""
    return max(Store(run.engine.folder).all_tags(role), default=0)
