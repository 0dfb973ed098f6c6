"""Replicated shards: killing a server loses no update, and the role that holds the copy can be killed, too."""

import itertools

import numpy as np
import pytest

import labkit as lk
from labkit.roles.backup import with_backups
from labkit.trace.schema import UNKNOWN
from tests.contract.engines import over, slow_on_processes
from tests.contract.statements import closed
from tests.contract.test_kill import begun, moves

STRATEGIES = {
    "momentum": lk.AsyncPS(optimizer="momentum:0.5", learning_rate=0.02), "sync": lk.SyncPS(), "ssp": lk.SSP(),
    "easgd": lk.EASGD(), "k-sync": lk.KSync(), "codec": lk.AsyncPS(codec="top-k:0.2"),
}  # fmt: skip


@over("strategy", STRATEGIES, slow=["momentum", "sync"])
def test_a_killed_server_with_a_backup_loses_no_update(engine, strategy):
    run = begun(engine, strategy, workers=3, replicas=1).kill("server-0")
    run.wait_for("restarted", "server-0")
    moves(run)
    run.stop()
    entries = closed(run)
    assert (entries["rolled_back"], entries["lost"]) == (0, 0)
    versions = run.trace.column("applies", "version").tolist()
    if engine.simulated:  # for traces with all rows
        assert sorted(set(versions)) == list(range(1, max(versions) + 1))
    assert UNKNOWN not in run.trace.column(
        "applies", "staleness"
    )  # the same generation: staleness can still be counted


@slow_on_processes
def test_a_killed_backup_is_replaced(engine):
    run = begun(engine, lk.AsyncPS(), workers=2, replicas=1).kill("backup-0")
    run.wait_for("restarted", "backup-0")
    run.wait_for(lambda run: any("backup-0 holds a copy of server-0 again" in str(m) for m in run.trace.events))
    run.kill("server-0")
    run.wait_for("restarted", "server-0")
    moves(run)
    run.stop()
    assert closed(run)["rolled_back"] == 0


@slow_on_processes
def test_without_its_backup_a_server_goes_on(engine):
    run = begun(engine, lk.SyncPS(), workers=2, replicas=1).kill("backup-0", restart=False)
    run.wait_for("left", "backup-0")
    moves(run)
    run.stop()
    closed(run)


def test_killing_a_server_and_its_backup_is_losing_a_server_without_backup(simulated):
    run = begun(simulated, lk.AsyncPS(), workers=2, replicas=1)
    run.kill("backup-0").kill("server-0")
    for name in ("server-0", "backup-0"):
        run.wait_for("restarted", name)
    moves(run)
    run.stop()
    closed(run)


def test_a_backup_is_the_server_to_the_bit():
    """Whenever the server is killed, its next incarnation has the same state: the run ends with the same parameters
    as a run
    without faults (exactly, since with one worker there is only one order of events).
    """
    problem = lk.Problem("moons", hidden=(8,), batch_size=8)
    strategy = lk.AsyncPS(optimizer="adam", learning_rate=0.01)
    ends = []
    for faults in ([], [lk.Kill("server-0", at=0.155)], [lk.Kill("server-0", at=0.2), lk.Kill("server-0", at=1.3)]):
        cluster = lk.SimulatedCluster(workers=1, compute=0.01, latency=0.001, replicas=1, checkpoint_every=100)
        run = lk.train(problem, strategy, cluster, lk.Budget(updates=100), faults=faults).wait()
        ends.append((run.trace.ending["parameters_sha256"], run.summary()["gradients"]))
        assert run.summary()["seconds"] > 0.8 * len(faults)
    assert all(a == b for a, b in itertools.pairwise(ends))


def test_each_server_has_a_backup_on_a_node_of_its_own():
    problem = lk.Problem("moons", hidden=(8,))
    layout = with_backups(lk.AsyncPS().layout(problem, lk.SimulatedCluster(workers=2, servers=3)), 1, "AsyncPS")
    backups = [role for role in layout.roles if role.kind == "backup"]
    assert [layout.roles[role.backs].name for role in backups] == ["server-0", "server-1", "server-2"]
    assert len({role.node for role in layout.roles}) == len(layout.roles)


def test_a_backup_adds_one_round_trip_to_an_update():
    """Virtual time: with a latency of 1 ms an update of one worker takes 10 + 2 ms, and 10 + 4 with a backup."""
    took = []
    for replicas in (0, 1):
        cluster = lk.SimulatedCluster(workers=1, compute=0.01, latency=0.001, replicas=replicas)
        run = lk.train(lk.Problem("moons", timing_only=True), lk.AsyncPS(), cluster, lk.Budget(updates=101)).wait()
        took.append(float(np.diff(run.trace.column("applies", "time")).mean()) / 1e6)
    assert took == pytest.approx([12.0, 14.0])


def test_replicas_without_servers_are_refused(simulated):
    with pytest.raises(lk.BadInput, match="RingAllReduce has no servers that could be replicated"):
        simulated.train("moons", lk.RingAllReduce(), lk.Budget(updates=1), replicas=1)


@pytest.mark.parametrize("gap", [-0.4, -0.001, 0.0, 0.001, 0.4, 0.79, 0.81])
def test_the_server_and_its_backup_return_in_either_order(gap):
    """Server and backup are killed `gap` seconds one after the other, so one of them requests the state while the
    other is absent.
    """
    faults = [lk.Kill("backup-0", at=0.5), lk.Kill("server-0", at=0.5 + gap)]
    cluster = lk.SimulatedCluster(workers=2, compute=0.01, latency=0.001, replicas=1, checkpoint_every=0.2)
    run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(updates=300), faults=faults).wait()
    assert run.stopped_by == "updates"
    closed(run)
