"""Processes are killed, frozen and cut off; the run reaches its budget, and its ledger balances.

One test for each trigger of the lifecycle of a role, and for each way of recovery (replicas of a ring begin again together in
`test_link_faults.py`). Any sequence of these, at any time, with orders that get lost, is tested without processes in
`tests/engines/dask/client/test_recovery_policy.py`.
"""

import os
import signal
from dataclasses import dataclass

import dask
import numpy as np
import pytest

import labkit as lk
from labkit.engines.dask.cluster.settings import settings
from tests.dask.helpers import (
    closes,
    computed,
    computes,
    events,
    further,
    labkit_threads,
    nothing_left,
    process_of,
    released,
    updates,
    usable,
    whole,
)  # fmt: skip


@pytest.fixture
def small(cluster):
    """Two workers that take 10 ms for a gradient. The heartbeat timeout is long, so that a slow machine adds no losses."""
    return cluster.resized(workers=2, pace=0.01, heartbeat_timeout=60.0)


def ends_well(run, more=30):
    """Apply more updates, and assert that the run ends completely, with a ledger that balances."""
    further(run, more).stop()
    assert run.stopped_by == "user"
    assert run.trace.ending["lost"] == []
    assert labkit_threads() == []
    return closes(run)


def lost_incarnations(run):
    names = list(run.trace.roles)
    return [(names[role], instance) for role, instance in run.trace.ending["lost_instances"]]


# killed ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crashing(lk.AsyncPS):
    """The process of the server ends each time the server begins."""

    async def server(self, ctx, shard):
        os.kill(os.getpid(), signal.SIGSEGV)


def test_a_process_that_dies_each_time_its_role_begins_ends_the_run_with_the_reason(started):
    run = started(Crashing())
    with pytest.raises(lk.ClusterError, match=r"server-0 did not last: each of 5 attempts .* \(signal 11, SIGSEGV\)"):
        run.wait(progress=False)
    assert len(events(run, "lost")) == 5
    assert closes(run)


def test_a_process_that_ends_unexpectedly_is_replaced_by_one_with_the_same_settings(small, started):
    run = further(started(on=small), 20)
    process = process_of(run, "worker-1")
    process.kill()
    lost = run.wait_for("lost", "worker-1")
    assert lost.incarnation == 0
    assert lost.reason == "ended unexpectedly (signal 9, SIGKILL, which the system sends if memory is short)"
    process.wait()
    assert run.wait_for("restarted", "worker-1").incarnation == 1
    computes(run, "worker-1", 1)
    names = ("distributed.admin.tick.interval", "distributed.worker.profile.enabled")
    found = small.client.run(lambda: [dask.config.get(name) for name in names])
    with settings:
        expected = [dask.config.get(name) for name in names]
    assert len(found) > 1
    assert all(each == expected for each in found.values()), found
    ends_well(run)
    assert lost_incarnations(run) == [("worker-1", 0)]
    released(run)
    nothing_left(small.client)
    usable(small)


def test_a_frozen_process_is_killed(small, started):
    """No answer is needed: the signal goes to the process, long before its silence would be noticed."""
    run = further(started(on=small))
    process = process_of(run, "worker-0")
    process.suspend()
    run.kill("worker-0")
    assert run.wait_for("lost", "worker-0").reason == "was killed"
    process.wait()
    run.wait_for("restarted", "worker-0")
    ends_well(run)


def test_a_synchronous_run_waits_for_a_role_that_is_not_restarted_until_it_is_restarted(small, started):
    run = further(started(lk.SyncPS(), on=small), 20)
    with pytest.raises(lk.BadInput, match="only a role that was killed without restart"):
        run.restart("worker-0")
    with pytest.raises(lk.BadInput, match="it is not frozen"):
        run.thaw("worker-0")
    run.kill("worker-0", restart=False)
    waits = run.wait_for("waits", "worker-0")
    assert str(waits) == "waits for worker-0, which was killed"
    with pytest.raises(lk.BadInput, match=r"freeze\('worker-0'\): it is not present \(worker-0 was killed\)"):
        run.freeze("worker-0")
    run.kill("worker-0", restart=False)
    run.kill("worker-0")  # a second kill decides whether the role is restarted
    back = run.wait_for("restarted", "worker-0")
    assert back.incarnation == 1
    assert len(events(run, "killed")) == 3
    applied = run.trace.column("applies", "time")
    assert not np.any((waits.time < applied) & (applied < back.time))
    ends_well(run)
    assert lost_incarnations(run) == [("worker-0", 0)]


def test_a_server_costs_what_it_applied_since_its_checkpoint(cluster, started):
    on = cluster.resized(workers=2, servers=2, pace=0.01, checkpoint_every=0.2)
    run = started(on=on, budget=lk.Budget(updates=200))
    further(run, 60).kill("server-1")
    back = run.wait_for("restarted", "server-1")
    assert str(back).startswith(f"server-1 restarted, restored from update {back.update} of ")
    assert (back.source, back.at_least) == ("checkpoint", True)
    assert back.update > 0
    assert run.wait().stopped_by == "updates"
    assert updates(run) == 200
    entries = closes(run)
    restored, known = back.update, run.trace.instances[1].version
    cost = entries["rolled_back"] + entries["partly_applied"] + entries["lost"]
    assert cost >= known - restored  # it may have applied more than it had reported; the ledger counts them
    assert run.trace.instances[1 + 5].version == 200


@pytest.mark.slow
def test_the_roles_of_a_lost_process_are_restarted_together_and_the_chief_has_what_it_had_evaluated(small, started):
    run = further(started(lk.SyncPS(chief_works=True), on=small), 20)
    run.kill("chief")
    for role in ("chief", "worker-0"):
        run.wait_for("lost", role)
    assert run.wait_for("restarted", "chief").source == "evaluation"
    run.wait_for("restarted", "worker-0")
    where = whole(run).engine.members.where
    assert where["chief"] == where["worker-0"]
    ends_well(run)
    assert run.summary()["accuracy"] is not None
    assert run.result()


@pytest.mark.slow
def test_all_processes_are_killed_at_once_and_begin_without_checkpoints(small, started):
    run = further(started(on=small, checkpoint=False), 20)
    for role in run.trace.roles:
        run.kill(role)
    for role in run.trace.roles:
        run.wait_for("restarted", role)
    assert "restored from the first weights" in str(run.wait_for("restarted", "server-0"))
    ends_well(run)
    assert len(lost_incarnations(run)) == 4


def test_a_paused_run_recovers_without_advancing(small, started):
    # a step, as after a pause the server may not have reported all of its updates yet
    run = further(started(on=small), 20).step()
    at, stood = run.engine.seconds, updates(run)
    run.kill("worker-1")
    run.wait_for("restarted", "worker-1")
    assert updates(whole(run)) == stood
    assert run.engine.seconds == at  # though a process has started since
    assert events(run, "restarted")[0].time == events(run, "lost")[0].time
    run.step()
    assert updates(run) == stood + 1
    ends_well(run.resume())
    start, end, who = run.trace.column("spans", "start", "end", "role")
    for role in range(len(run.trace.roles)):  # no role's time ran backwards
        assert (start[who == role][1:] >= end[who == role][:-1]).all()


@pytest.mark.slow
def test_a_role_is_killed_again_during_its_restart(small, started):
    run = further(started(on=small), 20)
    run.kill("worker-1")
    for incarnation in (1, 2):
        run.wait_for(lambda run, number=incarnation: run.engine.members.is_present("worker-1", number))
        run.kill("worker-1")
    assert run.wait_for("restarted", "worker-1", incarnation=3)
    ends_well(run)
    assert lost_incarnations(run)[0] == ("worker-1", 0)


@pytest.mark.slow
def test_options_slowdowns_and_link_faults_hold_for_the_next_incarnation(small, started):
    run = further(started(on=small), 20)
    run.slow("worker-1", 20).set(learning_rate=0.03)
    run.cut("worker-1", "server-0").kill("worker-1")
    run.wait_for("restarted", "worker-1")
    assert run.engine.supervisor.factor("worker-1") == 20
    further(run, 40)
    assert computed(run, "worker-1", 1) == 0  # it has not got any weights
    run.reconnect("worker-1", "server-0")
    computes(run, "worker-1", 1)
    before = computed(run, "worker-1", 1)
    assert computed(further(run, 60), "worker-1", 1) - before < 15
    run.stop()
    closes(run)


# together -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_parts_of_a_split_model_go_back_to_a_version_that_all_have_kept(cluster, started):
    on = cluster.resized(workers=3, pace=0.01, heartbeat_timeout=60.0)
    run = further(started(lk.FSDP(), on=on), 70)
    run.kill("worker-2")
    assert run.wait_for("restarted", "worker-2").update % 50 == 0
    entries = ends_well(run)
    assert entries["rolled_back"] > 0


# silent ---------------------------------------------------------------------------------------------------------------


def test_a_role_thawed_before_the_heartbeat_timeout_continues(small, started):
    run = further(started(on=small), 20)
    run.freeze("worker-1")
    further(run, 20)
    run.thaw("worker-1")
    computes(run, "worker-1")
    ends_well(run)
    frozen, thawed = (event.time for event in events(run, "frozen", "thawed"))
    start, who = run.trace.column("spans", "start", "role")
    own = start[who == run.trace.roles.index("worker-1")]
    assert ((frozen < own) & (own < thawed)).sum() <= 1  # it may begin once between the command and the signal
    assert not events(run, "lost", "fenced", "restarted")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "away", "back"),
    [("worker-1", "freeze", "thaw"), ("server-0", "cut", "reconnect")],
    ids=["frozen", "cut off"],
)
def test_a_role_that_answers_after_the_heartbeat_timeout_is_fenced(small, started, role, away, back):
    run = further(started(on=small.resized(heartbeat_timeout=3.0)), 20)
    getattr(run, away)(role)
    assert "did not answer for 3 s" in run.wait_for("lost", role).reason
    run.wait_for("restarted", role)
    getattr(further(run, 20), back)(role)
    assert run.wait_for("fenced", role).incarnation == 0
    assert run.engine.members.incarnation[role] == 1
    ends_well(run)
    nothing_left(small.client)


@pytest.mark.slow
def test_a_process_that_stays_frozen_does_not_affect_later_runs(cluster, started):
    run = further(started(on=cluster.resized(pace=0.005, heartbeat_timeout=1.0)))
    frozen = process_of(run, "worker-0")
    frozen.suspend()
    try:
        run.wait_for("restarted", "worker-0")
        further(run).stop()
        closes(run)
        usable(cluster)
        following = further(started(on=cluster.resized(pace=0.005)))
    finally:
        frozen.resume()
    further(following, 50).stop()
    closes(following)
    released(following)
    nothing_left(cluster.client)


# permanently ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ledger_balances_when_a_run_ends_while_one_of_two_shards_is_lost(cluster, started):
    run = further(started(on=cluster.resized(servers=2, pace=0.002)), 50)
    run.kill("server-1", restart=False)
    run.wait_for("waits", "server-1")
    run.stop()  # it does not wait for the lost shard
    assert run.trace.ending["lost"] == ["server-1"]
    closes(run)
