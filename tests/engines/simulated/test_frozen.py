"""Roles that are frozen or killed repeatedly; runs that wait; and replays of runs with faults."""

import pytest

import labkit as lk
from tests.engines.simulated.test_recovery import BACK, applied, closed, events, shard, started
from tests.engines.simulated.test_time import MOONS, RANDOM, contents

pytestmark = pytest.mark.sample(2)

TELLING = ("frozen", "thawed", "killed", "lost", "restarted", "fenced", "waits")


def fault_times(run):
    return [(m.kind, round(m.time / 1e9, 6)) for m in run.trace.events if m.kind in TELLING]


def everything(run):
    parameters = run.engine.parameters
    return contents(run.trace, in_order=False), None if parameters is None else parameters.tobytes()


# frozen ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_role_thawed_before_the_heartbeat_timeout_continues_its_work(role):
    run = started(lk.AsyncPS(), heartbeat_timeout=1.0).advance(0.505).freeze(role).advance(0.9)
    if role == "worker-1":
        assert applied(run, 0.505, 1.405, role) == 0
        assert applied(run, 0.505, 1.405, "worker-0") == 90
    elif role == "server-0":
        assert applied(run, 0.505, 1.405) == 0
    run.thaw(role).advance(1)
    assert fault_times(run) == [("frozen", 0.505), ("thawed", 1.405)]
    assert all(r.recorder.incarnation == 0 for r in run.engine.roles.values())
    assert applied(run, 1.405, 2.405, "worker-1") == 100
    entries = closed(run)
    assert (entries["lost"], entries["rolled_back"], entries["dropped"]) == (0, 0, {})


def test_a_frozen_worker_finishes_what_it_had_begun():
    """Half of a gradient is computed before, half after it: its duration is not drawn again."""
    run = (
        started(lk.AsyncPS(), 1, heartbeat_timeout=1.0).advance(0.105).freeze("worker-0").advance(0.5).thaw("worker-0")
    )
    assert applied(run, 0.105, 0.609) == 0
    run.advance(0.005)
    assert applied(run, 0.609, 0.610) == 1
    whole = started(lk.AsyncPS(), 1, budget=lk.Budget(updates=60)).wait()
    again = started(lk.AsyncPS(), 1, budget=lk.Budget(updates=60), heartbeat_timeout=1.0)
    again.advance(0.105).freeze("worker-0").advance(0.5).thaw("worker-0").wait()
    assert again.result().parameters.tobytes() == whole.result().parameters.tobytes()
    assert again.engine.seconds == pytest.approx(whole.engine.seconds + 0.5)


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_role_thawed_after_its_replacement_began_is_fenced(role):
    run = started(lk.AsyncPS(), heartbeat_timeout=1.0, checkpoint_every=0.1).advance(0.505).freeze(role).advance(3)
    assert fault_times(run) == [("frozen", 0.505), ("lost", 1.505), ("restarted", 2.305)]
    assert events(run, "lost")[0].reason == "was silent for 1 s"
    before = run.summary()["updates"]
    run.thaw(role).advance(0.1)
    assert fault_times(run)[-2:] == [("thawed", 3.505), ("fenced", 3.505)]
    assert run.engine.roles[role].recorder.incarnation == 1  # never both
    assert run.summary()["updates"] == before + 30
    run.thaw(role)
    assert [m.kind for m in run.trace.events].count("fenced") == 1
    closed(run)


def test_a_role_thawed_between_its_loss_and_its_restart_is_fenced():
    run = started(lk.AsyncPS(), heartbeat_timeout=1.0).advance(0.505).freeze("worker-1").advance(1.4).thaw("worker-1")
    assert applied(run, 0.505, 1.905, "worker-1") == 0
    run.advance(1)
    assert fault_times(run) == [
        ("frozen", 0.505),
        ("lost", 1.505),
        ("thawed", 1.905),
        ("fenced", 1.905),
        ("restarted", 2.305),
    ]
    closed(run)


def test_a_frozen_role_can_be_killed():
    run = (
        started(lk.SyncPS(), heartbeat_timeout=1.0)
        .advance(0.505)
        .freeze("worker-1")
        .advance(0.2)
        .kill("worker-1")
        .advance(3)
    )
    assert fault_times(run) == [("frozen", 0.505), ("killed", 0.705), ("lost", 0.705), ("restarted", 1.505)]
    assert applied(run, 1.505, 3.705) == 3 * 220
    closed(run)


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_a_ring_with_a_frozen_member(on_loss):
    run = (
        started(lk.RingAllReduce(on_loss=on_loss), heartbeat_timeout=1.0).advance(0.505).freeze("worker-1").advance(0.5)
    )
    assert run.summary()["updates"] == 50  # not detected yet
    run.thaw("worker-1").advance(0.5)
    assert run.summary()["updates"] == 100
    run.freeze("worker-1").advance(3)
    assert ("lost", 2.505) in fault_times(run)
    assert run.summary()["updates"] > 200
    run.thaw("worker-1").advance(0.1)
    assert fault_times(run)[-1][0] == "fenced"
    closed(run)


# killed repeatedly ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_a_kill_of_a_lost_role_does_not_postpone_its_restart(strategy):
    run = started(strategy).advance(0.5).kill("worker-1").advance(0.5).kill("worker-1").advance(2)
    assert fault_times(run) == [("killed", 0.5), ("lost", 0.5), ("killed", 1.0), ("restarted", 1.3)]
    assert run.trace.instances[run.trace.roles.index("worker-1") + len(run.trace.roles)].computed == 170
    closed(run)


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_every_kill_adds_one_incarnation(role):
    run = started(lk.AsyncPS(), checkpoint_every=0.1)
    for _ in range(3):
        run.advance(1.0).kill(role)
    run.advance(1.0)
    assert [m.incarnation for m in events(run, "lost")] == [0, 1, 2]
    assert [m.incarnation for m in events(run, "restarted")] == [1, 2, 3]
    closed(run)


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.SSP(), lk.KSync()], ids=lambda s: s.name)
def test_all_roles_are_killed_at_once(strategy):
    run = started(strategy, checkpoint_every=0.1, budget=lk.Budget(updates=200)).advance(0.405)
    for name in list(run.trace.roles):
        run.kill(name)
    run.wait()
    assert (run.stopped_by, run.summary()["updates"]) == ("updates", 200)
    assert len(events(run, "restarted")) == len(run.trace.roles)
    closed(run)


def test_roles_killed_before_their_first_event_are_restarted():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=30))
    run.kill("worker-0").kill("server-0").kill("chief").wait()
    assert run.engine.seconds == pytest.approx(BACK + 0.1)
    closed(run)
    back = started(lk.AsyncPS(), budget=lk.Budget(updates=30))
    for name in ("chief", "server-0", "worker-2"):
        back.kill(name, restart=False).restart(name)
    back.wait()
    assert (back.engine.seconds, len(events(back, "restarted"))) == (pytest.approx(0.1), 3)
    closed(back)
    ring = started(lk.RingAllReduce(on_loss="continue"), budget=lk.Budget(updates=30)).kill("worker-1").wait()
    assert ring.engine.seconds == pytest.approx(0.3)
    closed(ring)


# runs that wait -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_role_killed_without_restart_stays_down_until_it_is_restarted(role):
    run = started(lk.SyncPS(), checkpoint_every=0.1, budget=lk.Budget(updates=200)).advance(0.505)
    run.kill(role, restart=False).advance(5)
    if role != "chief":
        assert [str(m) for m in events(run, "waits")] == [f"waits for {role}, which was killed"]
    assert not events(run, "restarted")
    with pytest.raises(lk.BadInput, match=r"restart\('worker-0'\): it is not away; kill it first"):
        run.restart("worker-0")
    run.restart(role).wait()
    assert (run.stopped_by, run.summary()["updates"]) == ("updates", 200)
    closed(run)


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_run_that_waits_without_end_reports_it(role):
    run = started(lk.SyncPS(), budget=lk.Budget(updates=200)).advance(0.505).kill(role, restart=False)
    with pytest.raises(
        lk.ClusterError, match=f"it waits for {role}, which was killed, and it is not restarted automatically"
    ):
        run.wait()
    assert (run.stopped_by, run.trace.ending["lost"]) == ("error", [role])
    closed(run)


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
@pytest.mark.parametrize("moved", [0.0, 5.0])
def test_stop_ends_a_run_that_waits(role, moved):
    run = started(lk.SyncPS()).advance(0.505).kill(role, restart=False).advance(moved).stop()
    assert (run.stopped_by, run.trace.ending["lost"]) == ("user", [role])
    closed(run)


@pytest.mark.parametrize("role", ["worker-1", "server-0", "chief"])
def test_a_cluster_without_restarts(role):
    run = started(lk.SyncPS(), restart_after=None).advance(0.505).kill(role).advance(2)
    assert not events(run, "restarted")
    run.restart(role).advance(1)
    assert len(events(run, "restarted")) == 1
    closed(run)


@pytest.mark.parametrize("on_loss", ["wait", "continue"])
def test_a_budget_in_seconds_ends_a_run_that_waits(on_loss):
    run = started(lk.SyncPS(on_loss=on_loss), budget=lk.Budget(seconds=3.0)).advance(0.5)
    run.kill("worker-0", restart=False).wait()
    assert (run.stopped_by, run.engine.seconds, run.trace.ending["lost"]) == ("seconds", 3.0, ["worker-0"])
    assert run.summary()["updates"] == (50 if on_loss == "wait" else 300)
    text = [(m.time, str(m)) for m in events(run, "waits")]
    assert text == ([(510_000_000, "waits for worker-0, which was killed")] if on_loss == "wait" else [])
    closed(run)


@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.RingAllReduce()], ids=lambda s: s.name)
def test_the_awaited_role_is_reported_long_before_the_time_limit(strategy):
    run = started(strategy, budget=lk.Budget(seconds=30.0)).advance(0.5).kill("worker-0", restart=False).advance(1)
    assert [str(m) for m in events(run, "waits")] == ["waits for worker-0, which was killed"]
    run.restart("worker-0").advance(1)
    assert run.summary()["updates"] == 150
    assert len(events(run, "waits")) == 1
    closed(run)


class Stands(lk.AsyncPS):
    """A server that does not answer the fifth push."""

    async def server(self, ctx, shard):
        served = 0
        async for request in ctx.inbox(lk.Push, lk.Pull):
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, 0.1)
                served += 1
            if served < 5:
                ctx.send(request, shard.weights())


def test_a_deadlocked_run_is_not_reported_as_waiting():
    run = started(Stands(), 1).kill("worker-0")
    with pytest.raises(lk.Deadlock):
        run.wait()
    assert not events(run, "waits")
    assert run.engine.seconds == pytest.approx(BACK + 0.05)


# repeated -------------------------------------------------------------------------------------------------------------

KINDS = [
    lk.AsyncPS(),
    lk.SyncPS(on_loss="continue"),
    lk.RingAllReduce(),
    lk.BucketedAllReduce(),
    lk.LocalSGD(on_loss="continue"),
    lk.SSP(),
]
FAULTS = ["kill:worker-1@0.2", "freeze:worker-2@0.3-0.6", "kill:chief@0.5", "slow:worker-0:3@0.4-0.9"]


def lively(strategy, seed=0):
    cluster = lk.SimulatedCluster(workers=3, heartbeat_timeout=0.2, checkpoint_every=0.05, **RANDOM)
    faults = [*FAULTS, *(["kill:server-0@0.7"] if strategy.uses_servers else [])]
    run = lk.train(MOONS, strategy, cluster, lk.Budget(seconds=3), seed=seed, faults=faults)
    run.advance(0.1).step().step().advance(0.15).kill("worker-0", restart=False)
    return run.advance(1.0 - run.engine.seconds).restart("worker-0").advance(0.3).kill("worker-2")


@pytest.mark.parametrize("strategy", KINDS, ids=lambda s: s.name)
def test_the_same_seed_and_the_same_faults_are_the_same_run(strategy):
    one = everything(lively(strategy).wait())
    assert everything(lively(strategy).wait()) == one
    assert everything(lively(strategy, 1).wait()) != one


@pytest.mark.parametrize("strategy", KINDS, ids=lambda s: s.name)
def test_a_run_with_faults_is_repeated_from_its_log_and_forked(strategy):
    run = lively(strategy)
    fork, early = run.fork(1.1), run.fork(0.55)
    one = everything(run.wait())
    assert everything(fork.wait()) != one  # the last kill was not yet
    early.restart("worker-0").advance(0.2)
    again = run.engine.cluster.start(run.plan, commands=run.engine.commands)
    again.wait()
    assert (contents(again.trace, in_order=False), again.parameters.tobytes()) == one
    late = run.fork(1.4)
    assert everything(late.wait()) == one
    for made in (run, fork, late):
        closed(made)
    assert shard(run, run.plan.layout.observed[0]).version > 0
    closed(early)
