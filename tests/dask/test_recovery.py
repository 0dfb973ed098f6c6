"""Processes are killed, frozen and cut off; the run reaches its budget, and its ledger balances."""

import os
import signal

import dask
import pytest

import labkit as lk
from labkit.engines.dask.cluster.settings import settings
from tests.dask.helpers import closes, eventually, labkit_threads, moving, pid_of, plugins, updates

pytestmark = pytest.mark.sample(2)


@pytest.fixture
def small(cluster):
    """Two workers that take 10 ms for a gradient. The heartbeat timeout is long, so that a slow machine adds no losses."""
    return cluster.resized(workers=2, pace=0.01, patience=60.0)


def events(run, *kinds):
    return [m for m in run.trace.events if m.kind in kinds]


def seen(run, kind, role):
    """Wait for an event of that kind about `role`; the event."""
    return eventually(lambda: next((m for m in events(run, kind) if getattr(m, "name", None) == role), None))


def comes_to_its_end(run, count, limit=60):
    """Assert that the run applies `count` updates in all, and that nothing of it is left."""
    run.wait(limit)
    assert run.stopped_by == "updates"
    assert updates(run) == count
    assert run.trace.ending["lost"] == []
    assert labkit_threads() == []
    return closes(run)


def lost_incarnations(run):
    names = [role["name"] for role in run.trace.header["layout"]["roles"]]
    return [(names[role], instance) for role, instance in run.trace.ending["lost_lives"]]


# killed ---------------------------------------------------------------------------------------------------------------


def test_an_asynchronous_run_goes_on_without_its_worker_and_takes_it_back(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=400)), 40)
    os.kill(pid_of(run, "worker-1"), signal.SIGKILL)
    lost = seen(run, "lost", "worker-1")
    assert (lost.incarnation, lost.reason) == (0, "ended unexpectedly")
    assert seen(run, "restarted", "worker-1").incarnation == 1
    comes_to_its_end(run, 400)
    assert lost_incarnations(run) == [("worker-1", 0)]
    assert run.trace.instances[2 + 4].computed > 0  # its incarnation 1 has computed
    eventually(lambda: not plugins(small.client))
    assert not any(small._connection.usage.values())


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_a_synchronous_run_waits_or_goes_on(small, started, on_loss):
    run = moving(started(lk.SyncPS(on_loss=on_loss), on=small), 20)
    run.kill("worker-0", restart=False)
    if on_loss == "wait":
        assert str(seen(run, "waits", "worker-0")) == "waits for worker-0, which was killed"
        stood = updates(run)
        assert updates(run) <= stood + 1
    else:
        assert seen(run, "left", "worker-0")
        moving(run, 20)
    run.restart("worker-0")
    assert seen(run, "restarted", "worker-0")
    moving(run, 20).stop()
    assert run.trace.ending["lost"] == []
    closes(run)


def test_a_run_that_waits_is_stopped(small, started):
    run = moving(started(lk.SyncPS(), on=small), 20)
    run.kill("worker-0", restart=False)
    seen(run, "waits", "worker-0")
    run.stop()
    assert run.stopped_by == "user"
    assert run.trace.ending["lost"] == ["worker-0"]
    closes(run)


def test_a_server_costs_what_it_applied_since_its_checkpoint(cluster, started):
    on = cluster.resized(workers=2, servers=2, pace=0.01, checkpoint_every=0.2)
    run = moving(started(on=on, budget=lk.Budget(updates=300)), 60)
    run.kill("server-1")
    back = seen(run, "restarted", "server-1")
    assert str(back).startswith(f"server-1 restarted, restored from update {back.update} of ")
    assert (back.source, back.at_least) == ("checkpoint", True)
    assert back.update > 0
    entries = comes_to_its_end(run, 300)
    restored, known = back.update, run.trace.instances[1].version
    assert entries["rolled_back"] + entries["partly_applied"] + entries["lost"] < known - restored + 40  # known: 0.1 s before
    assert run.trace.instances[1 + 5].version == 300


def test_without_checkpoints_a_server_begins_with_the_first_weights(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=150), checkpoint=False), 40)
    run.kill("server-0")
    assert "restored from the first weights" in str(seen(run, "restarted", "server-0"))
    comes_to_its_end(run, 150)


def test_the_chief_comes_back_with_what_it_had_evaluated(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=300)), 60)
    run.kill("chief")
    assert seen(run, "restarted", "chief")
    comes_to_its_end(run, 300)
    assert run.summary()["accuracy"] is not None
    assert run.result()


def test_all_processes_are_killed_at_once(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=200)), 40)
    for role in ("worker-0", "worker-1", "server-0", "chief"):
        run.kill(role)
    for role in ("worker-0", "worker-1", "server-0", "chief"):
        seen(run, "restarted", role)
    comes_to_its_end(run, 200)
    assert len(lost_incarnations(run)) == 4


def test_a_restarted_process_has_the_settings_of_the_others(small, started):
    run = started(on=small)
    run.kill("worker-1")
    assert seen(run, "restarted", "worker-1")
    names = ("distributed.admin.tick.interval", "distributed.worker.profile.enabled")
    found = small.client.run(lambda: [dask.config.get(name) for name in names])
    with settings:
        expected = [dask.config.get(name) for name in names]
    assert len(found) > 1
    assert all(each == expected for each in found.values()), found


@pytest.mark.slow
def test_a_role_is_lost_while_it_is_starting(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=300)), 40)
    run.kill("worker-1")
    eventually(lambda: run.engine.members.state["worker-1"] == "starting")
    os.kill(pid_of(run, "worker-1"), signal.SIGKILL)
    eventually(lambda: run.engine.members.incarnation["worker-1"] >= 2)
    eventually(lambda: run.engine.members.state["worker-1"] == "running")
    comes_to_its_end(run, 300)


def test_a_paused_run_recovers_without_advancing(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=200)), 40).pause()
    run.kill("worker-1")
    seen(run, "restarted", "worker-1")
    eventually(lambda: run.engine.members.whole)
    stood = updates(run)
    run.step()
    assert updates(run) <= stood + 3
    run.resume()
    comes_to_its_end(run, 200)


def test_options_and_slowdowns_hold_for_the_next_incarnation(small, started):
    run = moving(started(on=small), 20)
    run.slow("worker-1", 20)
    run.set(learning_rate=0.03)
    run.kill("worker-1")
    seen(run, "restarted", "worker-1")
    assert run.engine.supervisor.factor("worker-1") == 20
    eventually(lambda: (c := run.trace.instances.get(2 + 4)) is not None and c.computed > 0)
    moving(run, 40)
    assert run.trace.instances[2 + 4].computed < 15
    run.stop()
    closes(run)


# together -------------------------------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", [lk.RingAllReduce(), lk.RingAllReduce(on_loss="continue"), lk.LocalSGD()],
                         ids=["ring", "ring that goes on", "local"])  # fmt: skip
def test_replicas_begin_again_together_and_lose_nothing_that_was_applied(cluster, started, strategy):
    on = cluster.resized(workers=3, pace=0.01)
    run = moving(started(strategy, on=on, budget=lk.Budget(updates=150)), 30)
    run.kill("worker-1")
    assert seen(run, "restarted", "worker-1")
    assert events(run, "group restarted")
    comes_to_its_end(run, 150)
    assert lost_incarnations(run) == [("worker-1", 0)]


@pytest.mark.slow
def test_the_parts_of_a_split_model_go_back_to_a_version_that_all_have_kept(cluster, started):
    run = moving(started(lk.FSDP(), on=cluster.resized(workers=3, pace=0.01), budget=lk.Budget(updates=160)), 70)
    run.kill("worker-2")
    assert seen(run, "restarted", "worker-2").update in (50, 100)
    entries = comes_to_its_end(run, 160)
    assert entries["rolled_back"] > 0


# silent ---------------------------------------------------------------------------------------------------------------


def test_a_role_thawed_before_the_heartbeat_timeout_continues(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=200)), 20)
    run.freeze("worker-1")
    moving(run, 10)
    run.thaw("worker-1")
    comes_to_its_end(run, 200)
    assert not events(run, "lost", "fenced", "restarted")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["worker-1", "server-0"])
@pytest.mark.parametrize("how", [("freeze", "thaw"), ("cut", "reconnect")], ids=["frozen", "cut off"])
def test_a_role_that_answers_after_the_heartbeat_timeout_is_fenced(small, started, role, how):
    run = moving(started(on=small.resized(patience=3.0)), 20)
    getattr(run, how[0])(role)
    assert "did not answer for 3 s" in seen(run, "lost", role).reason
    seen(run, "restarted", role)
    moving(run, 20)
    getattr(run, how[1])(role)
    assert seen(run, "fenced", role).incarnation == 0
    assert run.engine.members.incarnation[role] == 1
    moving(run, 20).stop()
    closes(run)
    assert run.trace.ending["lost"] == []
    eventually(lambda: not plugins(small.client))


def test_messages_sent_over_a_temporarily_cut_link_arrive(small, started):
    run = moving(started(on=small, budget=lk.Budget(updates=150)), 20)
    run.cut("worker-1", "server-0")
    moving(run, 20)
    run.reconnect("worker-1", "server-0")
    entries = comes_to_its_end(run, 150)
    assert (entries["lost"], entries["rolled_back"]) == (0, 0)
    assert not events(run, "lost")


# refused --------------------------------------------------------------------------------------------------------------


def test_invalid_fault_commands_are_refused_with_a_reason(small, started):
    run = moving(started(lk.SyncPS(), on=small))
    for act, message in (
        (lambda: run.restart("worker-0"), "only a role that was killed without restart"),
        (lambda: run.thaw("worker-0"), "it is not frozen"),
        (lambda: run.freeze("worker-9"), "no role 'worker-9'"),
        (lambda: run.cut("worker-0", "server-9"), "no role 'server-9'"),
    ):
        with pytest.raises(lk.BadInput, match=message):
            act()
    run.kill("worker-0", restart=False)
    seen(run, "lost", "worker-0")
    with pytest.raises(lk.BadInput, match=r"freeze\('worker-0'\): it is not present \(worker-0 was killed\)"):
        run.freeze("worker-0")
    run.stop()


def test_a_second_kill_decides_whether_a_killed_role_is_restarted(small, started):
    run = moving(started(on=small), 20)
    run.kill("worker-1", restart=False)
    seen(run, "left", "worker-1")
    run.kill("worker-1", restart=False)
    run.kill("worker-1")
    assert len(events(run, "killed")) == 3
    assert seen(run, "restarted", "worker-1").incarnation == 1
    run.stop()
    assert lost_incarnations(run) == [("worker-1", 0)]
    closes(run)
