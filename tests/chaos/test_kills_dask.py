"""Processes are killed in critical states: during a group restart, the shutdown of a run, a checkpoint, a pause or a step,
during their restart, a server together with its backup, all servers at once. `LABKIT_TESTS=whole pytest -m "" tests/chaos` runs
all combinations of strategies, roles and moments; without it a part of them.

For every kill: it is reported within `REPORT_S`, the run ends, no state of it is left on the cluster or in this process,
and its ledger balances and agrees with the returned parameters. Tests wait for states, which last until an action of
the test ends them, or for entries of the trace, which are permanent.
"""

import gc
import os
import signal
import threading
from contextlib import contextmanager

import psutil
import pytest

import labkit as lk
from labkit.engines.dask.timeouts import REPORT_S
from tests.chaos.process_runs import LIMIT, agree, evaluated, eventually, saved, started

pytestmark = pytest.mark.sample(slow=4)
slow = pytest.mark.slow

ANSWERS = ("restarted", "waits", "left")  # kinds of events with which a run answers a loss


@pytest.fixture(scope="module")
def processes():
    before = forked()
    with lk.DaskCluster(workers=4, servers=2) as cluster:
        yield cluster.open()
    eventually(lambda: not forked() - before)


def forked():
    """The processes of all clusters of this process."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if process.ppid() != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except psutil.NoSuchProcess:
            pass
    return found


@contextmanager
def run_of(processes, strategy, folder, **shape):
    """A run with events, which is stopped when the block is left; then checks that nothing of it is left.

    Its budget has no number of updates: how many it applies before a fault depends on the machine.
    """
    shape = {"room": 8000, "pace": 0.02, "patience": 60.0} | shape
    if strategy.name == "SparsePS":  # which has fewer events
        shape |= {"room": 500, "pace": 0.2}
    if not type(strategy).uses_servers:
        shape["servers"] = None
    run = started(processes, strategy, lk.Budget(updates=100_000), folder, **shape)
    try:
        eventually(lambda: evaluated(run) > 0)
        yield run
    except BaseException:
        print(*(f"{event.time / 1e9:8.3f} {event!s}" for event in run.trace.events), sep="\n")
        raise
    finally:
        run.stop()
    assert run.stopped_by == "user", (run.stopped_by, run.engine.error)
    agree(run, folder)
    nothing_is_left(run, processes)


def goes_on(run):
    """Wait until the chief evaluates more updates than before."""
    version = evaluated(run)
    eventually(lambda: evaluated(run) > version)


def nothing_is_left(run, processes):
    """Assert: no thread of the run, no plugin or role on the cluster, no temporary checkpoint file; every process was
    replaced.
    """
    gc.collect()
    name, client = run.engine.supervisor.run, processes.client
    eventually(lambda: not [t for t in threading.enumerate() if t.name in (f"labkit-run-{name}", "labkit-fetch")])
    eventually(lambda: not any(processes._connection.usage.values()))
    eventually(lambda: all(nanny.has_process for nanny in processes.client.cluster.workers.values()))
    eventually(lambda: not any(plugins_of(client, name).values()))
    drafts = [file for file in os.listdir(run.engine.folder) if file.startswith(".")]
    owners = [file for file in drafts if psutil.pid_exists(int(file.split(".")[-3]))]
    assert owners == []  # temporary files of killed processes are removed by the next checkpoint


def plugins_of(client, name):
    found = client.run(lambda dask_worker: [one for one in dask_worker.plugins if one.endswith(name)], on_error="return")
    return {address: names for address, names in found.items() if not isinstance(names, Exception)}


def events(run, kinds, role, since=0):
    return [m for m in list(run.trace.events)[since:] if m.kind in kinds and role in (None, getattr(m, "name", None))]


def killed(run, *roles, how=None):
    """Kill the processes of these roles, assert that this is reported in time, and return the events."""
    since = len(run.trace.events)
    for role in roles:
        (how or run.kill)(role)
    return [eventually(lambda role=role: events(run, ("lost",), role, since), REPORT_S)[0] for role in roles]


def answered(run, *roles):
    """Assert that the run has answered the loss of these roles in time."""
    for role in roles:
        (lost, *_) = reversed(events(run, ("lost",), role))
        since = list(run.trace.events).index(lost)
        eventually(lambda role=role, since=since: events(run, ANSWERS, role, since), REPORT_S)


def state(run, role):
    return run.engine.members.state[role]


def pid_of(run, role):
    """The process of a role, which has reported its number."""
    supervisor = run.engine.supervisor
    return supervisor.processes[supervisor.where[role]][1]


# group restart ------------------------------------------------------------------------------------------------------------

RINGS = [lk.RingAllReduce(), lk.RingAllReduce(on_loss="continue"), lk.LocalSGD(), lk.HalvingDoubling(), lk.FSDP()]


@pytest.mark.parametrize("second", ["worker-0", "worker-1"])
@pytest.mark.parametrize("when", ["lost", "group restarted", "restarted"])
@pytest.mark.parametrize("strategy", [pytest.param(s, marks=slow) for s in RINGS], ids=lambda s: f"{s.name} {s.on_loss}")
def test_another_member_is_lost_while_a_group_begins_again(processes, tmp_path, strategy, when, second):
    """`worker-1` is lost, and then, at three moments of the group restart, it or another member."""
    with run_of(processes, strategy, tmp_path, workers=4 if strategy.name == "HalvingDoubling" else 3) as run:
        killed(run, "worker-1")
        eventually(lambda: events(run, (when,), None))
        since = len(run.trace.events)
        run.kill(second)
        eventually(lambda: events(run, ("lost",), second, since) or events(run, ("restarted",), second, since), REPORT_S)
        eventually(lambda: run.engine.members.whole)
        goes_on(run)


@slow
@pytest.mark.parametrize("strategy", RINGS, ids=lambda s: f"{s.name} {s.on_loss}")
def test_a_member_that_has_not_handed_over_is_lost(processes, tmp_path, strategy):
    """A frozen member cannot send its shard, so the others wait for it, until it is killed."""
    with run_of(processes, strategy, tmp_path, workers=4 if strategy.name == "HalvingDoubling" else 3) as run:
        run.freeze("worker-0")
        killed(run, "worker-1")
        eventually(lambda: run.engine.recovery.phase == "collect")
        killed(run, "worker-0")
        answered(run, "worker-0", "worker-1")
        goes_on(run)


@slow
@pytest.mark.parametrize("strategy", RINGS, ids=lambda s: f"{s.name} {s.on_loss}")
def test_the_chief_is_lost_while_a_group_begins_again(processes, tmp_path, strategy):
    with run_of(processes, strategy, tmp_path, workers=4 if strategy.name == "HalvingDoubling" else 3) as run:
        killed(run, "worker-1", "chief")
        answered(run, "worker-1", "chief")
        goes_on(run)


@slow
@pytest.mark.parametrize("strategy", RINGS, ids=lambda s: f"{s.name} {s.on_loss}")
def test_a_run_is_stopped_while_a_group_begins_again(processes, tmp_path, strategy):
    with run_of(processes, strategy, tmp_path, workers=4 if strategy.name == "HalvingDoubling" else 3) as run:
        killed(run, "worker-1")


# the end ------------------------------------------------------------------------------------------------------------------

ENDS = [
    pytest.param(lk.AsyncPS(), "server-0", "asked"),
    *(
        pytest.param(strategy, role, when, marks=slow)
        for strategy in (lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.FSDP())
        for role in ("chief", "worker-0", "server-0")
        if strategy.uses_servers or role != "server-0"
        for when in ("asked", "ending", "ended")
        if (strategy.name, role, when) != ("AsyncPS", "server-0", "asked")
    ),
]


@pytest.mark.parametrize(("strategy", "role", "when"), ENDS, ids=lambda part: getattr(part, "name", part))
def test_a_role_is_killed_right_after_stop(processes, tmp_path, strategy, role, when):
    """At three moments: after `stop()`, while stop requests are sent to the roles, and after they were sent."""
    with run_of(processes, strategy, tmp_path) as run:
        engine, pid = run.engine, pid_of(run, role)
        stopping = threading.Thread(target=run.stop)
        stopping.start()
        states = {
            "asked": lambda: engine.stopping,
            "ending": lambda: engine.record.closed,
            "ended": lambda: engine.record.closed and engine.supervisor.futures[role].done(),
        }
        eventually(lambda: states[when]() or engine.stopped_by)
        os.kill(pid, signal.SIGKILL)
        stopping.join(LIMIT)
        assert not stopping.is_alive()


@slow
@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_all_roles_are_killed_right_after_stop(processes, tmp_path, strategy):
    with run_of(processes, strategy, tmp_path) as run:
        pids = [pid_of(run, role) for role in run.trace.roles]
        stopping = threading.Thread(target=run.stop)
        stopping.start()
        eventually(lambda: run.engine.stopping)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        stopping.join(LIMIT)
        assert not stopping.is_alive()


# a checkpoint is being written --------------------------------------------------------------------------------------------


def die_at(run, role, step):
    """Kill the process of `role` during its next checkpoint: when half of it is written, when all of it is, or after it was
    renamed.
    """

    def doomed(role, step):
        whole = os.replace

        def die(source, target):
            if not os.path.basename(target).startswith(f"{role}."):
                return whole(source, target)
            if step == "half":
                os.truncate(source, os.path.getsize(source) // 2)
            if step == "named":
                whole(source, target)
            os.kill(os.getpid(), 9)

        os.replace = die

    address = run.engine.members.where[role]
    run.engine.supervisor.client.run(doomed, role, step, workers=[address])


KEEPERS = [
    (lk.SyncPS(), "server-1"), (lk.AsyncPS(), "server-0"), (lk.AsyncPS(), "chief"), (lk.RingAllReduce(), "worker-1"),
    (lk.FSDP(), "worker-0"), (lk.LocalSGD(), "chief"),
]  # fmt: skip


@slow
@pytest.mark.parametrize("step", ["half", "whole", "named"])
@pytest.mark.parametrize(("strategy", "role"), KEEPERS, ids=lambda part: getattr(part, "name", part))
def test_a_process_is_killed_while_it_writes_a_checkpoint(processes, tmp_path, strategy, role, step):
    with run_of(processes, strategy, tmp_path) as run:
        eventually(lambda: saved(run, role) > 0)
        die_at(run, role, step)
        eventually(lambda: events(run, ("lost",), role))
        answered(run, role)
        goes_on(run)


# a server and its backup --------------------------------------------------------------------------------------------------

PAIRS = [
    pytest.param(("backup-0",), ()),
    *(
        pytest.param(*pair, marks=slow)
        for pair in [
            (("backup-0",), ("server-0",)), (("server-0",), ("backup-0",)), (("server-0", "backup-0"), ()),
            (("server-0",), ("server-0",)), (("backup-0",), ("backup-0",)),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize("strategy", [lk.SyncPS(), pytest.param(lk.AsyncPS(), marks=slow)], ids=lambda s: s.name)
@pytest.mark.parametrize(("first", "then"), PAIRS, ids=lambda roles: " and ".join(roles) or "nothing more")
def test_a_backup_and_its_server_are_lost(processes, tmp_path, strategy, first, then):
    """One of them, then the other as soon as the first is absent; or both at once."""
    with run_of(processes, strategy, tmp_path, workers=2, servers=1, replicas=1) as run:
        killed(run, *first)
        killed(run, *then)
        answered(run, *first, *then)
        goes_on(run)


@slow
@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.AsyncPS()], ids=lambda s: s.name)
@pytest.mark.parametrize(("first", "then"), [("backup-0", "server-0"), ("server-0", "backup-0")])
def test_a_backup_and_its_server_are_lost_one_after_the_other(processes, tmp_path, strategy, first, then):
    """The second one when the first has restarted, while it copies the state."""
    with run_of(processes, strategy, tmp_path, workers=2, servers=1, replicas=1) as run:
        killed(run, first)
        eventually(lambda: events(run, ("restarted",), first), REPORT_S)
        killed(run, then)
        answered(run, then)
        goes_on(run)


# restart ------------------------------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(
    ("strategy", "role"),
    [(lk.AsyncPS(), "worker-0"), (lk.SyncPS(), "worker-0"), (lk.SyncPS(), "server-1"), (lk.AsyncPS(), "chief")],
    ids=lambda part: getattr(part, "name", part),
)
@pytest.mark.parametrize("when", ["lost", "starting", "running"])
def test_a_role_is_killed_again_during_its_restart(processes, tmp_path, strategy, role, when):
    """Three kills: of the running incarnation, and of the next two while they are placed, start, or have begun."""
    with run_of(processes, strategy, tmp_path) as run:
        states = {"lost": ("lost", "starting", "running"), "starting": ("starting", "running"), "running": ("running",)}[when]
        killed(run, role)
        for _ in range(2):
            eventually(lambda: state(run, role) in states, REPORT_S)
            run.kill(role)
        answered(run, role)
        goes_on(run)
        assert len(events(run, ("killed",), role)) == 3


@pytest.mark.parametrize(
    "strategy",
    [pytest.param(s, marks=slow) for s in (lk.AsyncPS(), lk.SyncPS(), lk.BackupWorkers(), lk.SparsePS())],
    ids=lambda s: s.name,
)
@pytest.mark.parametrize("also", [(), ("chief",), ("worker-0", "worker-1")], ids=lambda also: " ".join(also) or "alone")
def test_all_servers_are_lost_at_once(processes, tmp_path, strategy, also):
    with run_of(processes, strategy, tmp_path) as run:
        killed(run, "server-0", "server-1", *also)
        answered(run, "server-0", "server-1", *also)
        goes_on(run)


# pauses and steps ---------------------------------------------------------------------------------------------------------

HELD = [
    pytest.param(lk.SyncPS(), "worker-1"),
    *(
        pytest.param(strategy, role, marks=slow)
        for strategy in (lk.SyncPS(), lk.AsyncPS(), lk.RingAllReduce())
        for role in ("worker-1", "server-0", "chief")
        if (strategy.uses_servers or role != "server-0") and (strategy.name, role) != ("SyncPS", "worker-1")
    ),
]


@pytest.mark.parametrize(("strategy", "role"), HELD, ids=lambda part: getattr(part, "name", part))
@pytest.mark.parametrize("then", ["resume", pytest.param("stop", marks=slow)])
def test_a_role_is_killed_during_a_pause(processes, tmp_path, strategy, role, then):
    with run_of(processes, strategy, tmp_path) as run:
        run.pause()
        killed(run, role)
        if then == "resume":
            run.resume()
            answered(run, role)
            goes_on(run)


@slow
@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.AsyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
@pytest.mark.parametrize("role", ["worker-0", "worker-1", "server-0", "chief"])
def test_a_role_is_killed_during_a_step(processes, tmp_path, strategy, role):
    """A frozen worker keeps the step from ending; the loss of this or another role does not block it permanently."""
    if role == "server-0" and not strategy.uses_servers:
        pytest.skip("it has no servers")
    with run_of(processes, strategy, tmp_path) as run:
        run.pause()
        stepping = threading.Thread(target=run.step)
        run.freeze("worker-0")
        stepping.start()
        killed(run, role)
        if role != "worker-0":
            run.thaw("worker-0")
        stepping.join(LIMIT)
        assert not stepping.is_alive()
        run.resume()
        answered(run, role)
        goes_on(run)




@slow
@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.FSDP()], ids=lambda s: s.name)
def test_an_order_to_begin_again_that_was_lost_is_repeated(processes, tmp_path, strategy):
    """A process that is too busy to receive a request in time does not block its group permanently."""
    with run_of(processes, strategy, tmp_path) as run:
        post, lost = run.engine.supervisor.post, []

        def losing(command, addresses, *more, **how):
            if command["do"] == "group_restart" and len(lost) < 2:
                return lost.append(command)
            return post(command, addresses, *more, **how)

        run.engine.supervisor.post = losing
        killed(run, "worker-1")
        answered(run, "worker-1")
        goes_on(run)
        assert len(lost) == 2
