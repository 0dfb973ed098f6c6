"""Processes are killed in critical states: during a group restart, the shutdown of a run, a checkpoint, a step; a server together
with its backup, all servers at once.

One test for each state. Any sequence of faults, at any time, is tested without processes in
`tests/engines/dask/client/test_recovery_policy.py`, and with all strategies in virtual time in `test_simulated.py` and
`test_indicator.py`. For every kill: the run answers it and goes on, no state of it is left on the cluster or in this process,
and its ledger balances and agrees with the returned parameters. Tests wait for states, which last until an action of
the test ends them, or for entries of the trace, which are permanent.
"""

import os
import threading

import pytest

import labkit as lk
from tests.chaos.process_runs import goes_on, run_of, saved
from tests.dask.helpers import events, process_of, whole

slow = pytest.mark.slow


def killed(run, *roles):
    """Kill the processes of these roles, and wait until this has been reported."""
    for role in roles:
        incarnation = run.engine.members.incarnation[role]
        run.kill(role)
        run.wait_for("lost", role, incarnation=incarnation)


def back(run, *roles):
    """Wait until these roles have been restarted, and the run goes on."""
    for role in roles:
        run.wait_for("restarted", role)
    goes_on(whole(run))


# group restart ------------------------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("strategy", [lk.RingAllReduce(on_loss="continue"), lk.FSDP()], ids=lambda s: s.name)
def test_a_member_that_has_not_handed_over_is_lost(dask_processes, tmp_path, strategy):
    """A frozen member cannot send its shard, so the others wait for it, until it is killed."""
    with run_of(dask_processes, strategy, tmp_path) as run:
        run.freeze("worker-0")
        killed(run, "worker-1")
        run.wait_for(lambda run: run.engine.recovery.policy.phase == "collect")
        killed(run, "worker-0")
        back(run, "worker-0", "worker-1")


@slow
def test_the_chief_and_the_run_are_ended_while_a_group_begins_again(dask_processes, tmp_path):
    with run_of(dask_processes, lk.LocalSGD(), tmp_path) as run:
        killed(run, "worker-1", "chief")
        back(run, "worker-1", "chief")
        killed(run, "worker-2")


# the end ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "roles", "when"),
    [
        (lk.AsyncPS(), ["server-0"], "asked"),
        pytest.param(lk.FSDP(), ["worker-0"], "ending", marks=slow),
        pytest.param(lk.RingAllReduce(), None, "asked", marks=slow),
    ],
    ids=["a server", "a piece while roles are told to end", "all"],
)
def test_roles_are_killed_right_after_stop(dask_processes, tmp_path, strategy, roles, when):
    with run_of(dask_processes, strategy, tmp_path) as run:
        engine, processes = run.engine, [process_of(run, role) for role in roles or run.trace.roles]
        reached, go_on = threading.Event(), threading.Event()
        owner, name = {"asked": (engine.final_evaluation, "request"), "ending": (engine.record, "close")}[when]
        call = getattr(owner, name)

        def held(*arguments):
            call(*arguments)
            reached.set()
            go_on.wait()

        setattr(owner, name, held)
        stopping = threading.Thread(target=run.stop)
        stopping.start()
        reached.wait()
        for process in processes:
            process.kill()
        go_on.set()
        stopping.join()


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

    run.engine.supervisor.client.run(doomed, role, step, workers=[run.engine.members.where[role]])


@slow
def test_a_process_is_killed_while_it_writes_a_checkpoint(dask_processes, tmp_path):
    with run_of(dask_processes, lk.SyncPS(), tmp_path) as run:
        run.wait_for(lambda run: saved(run, "server-1") > 0)
        for incarnation, step in enumerate(("half", "whole", "named")):
            die_at(run, "server-1", step)
            run.wait_for("lost", "server-1", incarnation=incarnation)
            run.wait_for("restarted", "server-1", incarnation=incarnation + 1)
            goes_on(whole(run))
        drafts = [file for file in os.listdir(run.engine.folder) if file.startswith(".server-1")]
        assert len(drafts) <= 1  # temporary files of killed processes are removed by the next checkpoint


# several at once ----------------------------------------------------------------------------------------------------------


@slow
def test_a_server_and_its_backup_are_lost_at_once(dask_processes, tmp_path):
    with run_of(dask_processes, lk.SyncPS(), tmp_path, workers=2, servers=1, replicas=1) as run:
        killed(run, "server-0", "backup-0")
        back(run, "server-0", "backup-0")


@slow
def test_all_servers_and_the_chief_are_lost_at_once(dask_processes, tmp_path):
    with run_of(dask_processes, lk.SparsePS(), tmp_path) as run:
        killed(run, "server-0", "server-1", "chief")
        back(run, "server-0", "server-1", "chief")


# pauses and steps ---------------------------------------------------------------------------------------------------------


@slow
def test_a_role_is_killed_during_a_step(dask_processes, tmp_path):
    """A frozen worker keeps the step from ending; its loss does not block it permanently."""
    with run_of(dask_processes, lk.SyncPS(), tmp_path) as run:
        run.pause()
        run.freeze("worker-0")
        stepping = threading.Thread(target=run.step)
        stepping.start()
        killed(run, "server-0", "worker-0")
        stepping.join()
        run.resume()
        back(run, "server-0", "worker-0")
        assert not events(run, "waits")
