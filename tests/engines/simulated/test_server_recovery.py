"""Loss of servers and the chief in virtual time: the state of their next incarnations, and the cost of a loss.

A gradient takes 10 ms and nothing else takes time, so all times are known in advance. A role that is killed at T is
back at T + 0.8.
"""

import numpy as np
import pytest

import labkit as lk
from tests.engines.simulated.test_recovery import BACK, applied, closed, events, shard, started
from tests.engines.simulated.test_time import RANDOM, TIMING

# a server -------------------------------------------------------------------------------------------------------------


NETWORK = {"latency": 0.001}  # so that a restarted server has received nothing yet, and a step takes 12 ms


def saved(run, name="server-0"):
    """The newest checkpoint of a role."""
    return list(run.engine.checkpoints.of(name).values())[-1]


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(), lk.Adam()], ids=lambda o: type(o).__name__)
def test_a_server_loses_at_most_what_was_applied_since_its_last_checkpoint(optimizer):
    run = started(lk.AsyncPS(optimizer=optimizer, learning_rate=0.01), checkpoint_every=0.2, **NETWORK).advance(0.51)
    applied = shard(run).version
    assert applied == 3 * 42
    state = saved(run)
    assert state["version"] == 3 * 33 + 1  # the first application from 0.4 on, of the three at 34 x 0.012 s
    before, remembered = state["values"].copy(), {k: v.copy() for k, v in state.items() if ":" in k}
    run.kill("server-0").advance(BACK)
    now = shard(run)
    assert (now.version, now.generation) == (state["version"], 1)
    assert np.array_equal(now.values, before)
    assert now.values.tobytes() == before.tobytes()
    again = now.to_state()
    assert all(again[k].tobytes() == v.tobytes() for k, v in remembered.items())
    (event,) = events(run, "restarted")
    lost = applied - state["version"]
    assert str(event).endswith(f"restored from update {state['version']}: {lost} updates are rolled back")
    run.advance(1)
    assert closed(run)["rolled_back"] == lost


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(), lk.Adam()], ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("servers", [1, 2])
def test_a_loss_right_after_a_checkpoint_changes_no_bit(optimizer, servers):
    """One worker, saved after every update: a run that lost its server equals one that did not, except for a delay."""

    def made(faults):
        strategy = lk.AsyncPS(optimizer=optimizer, learning_rate=0.01)
        run = started(strategy, 1, budget=lk.Budget(updates=200), faults=faults, servers=servers, checkpoint_every=1e-6)
        return run.wait()

    whole, lost = made(()), made([f"kill:server-{servers - 1}@{at}" for at in (0.505, 1.5, 2.9)])
    assert lost.result().parameters.tobytes() == whole.result().parameters.tobytes()
    assert lost.engine.seconds == pytest.approx(whole.engine.seconds + 3 * BACK, abs=0.05)
    assert closed(lost)["rolled_back"] == 0


def test_a_server_that_never_saved_begins_with_the_first_weights():
    run = started(lk.AsyncPS(), checkpoint_every=100.0, **NETWORK).advance(0)
    first = shard(run).values.copy()
    run.advance(0.5).kill("server-0").advance(BACK)
    assert np.array_equal(shard(run).values, first)
    assert "restored from the first weights" in str(events(run, "restarted")[0])
    run.advance(0.5)
    assert closed(run)["rolled_back"] == 3 * 41


def test_one_of_two_shards_is_lost():
    run = started(lk.AsyncPS(), servers=2, checkpoint_every=0.2, **NETWORK).advance(0.51).kill("server-1").advance(BACK)
    one, other = shard(run, "server-0"), shard(run, "server-1")
    assert one.version == 3 * 43  # workers wait for both answers
    assert other.version == saved(run, "server-1")["version"] == 3 * 33 + 1
    run.advance(1)
    entries = closed(run)
    assert entries["partly_applied"] == 3 * 42 - (3 * 33 + 1)
    assert entries["rolled_back"] == 0


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.SSP(), lk.KSync()], ids=lambda s: s.name)
def test_a_push_that_is_sent_again_is_applied_once(strategy):
    """The server is lost after it has applied and saved, before its answer has arrived."""
    cluster = {"latency": 0.004, "checkpoint_every": 1e-6, "slow": {"worker-1": 1.3}}
    run = started(strategy, 2, budget=lk.Budget(updates=100), **cluster).advance(0.1)
    run.step().advance(0.001).kill("server-0")
    version = shard(run).version
    run.advance(BACK + 0.002)
    assert shard(run).version == version
    run.wait()
    c = sum(c.duplicates for c in run.trace.instances.values())
    # its workers request weights, and do not push again
    assert c >= 1 or isinstance(strategy, lk.KSync | lk.KBatchSync)
    entries = closed(run)
    assert entries["rolled_back"] == 0
    assert (
        entries["applied"] + entries["partly_applied"]
        == run.trace.counters[run.trace.roles.index("server-0")].gradients
    )


# the chief ------------------------------------------------------------------------------------------------------------


def test_a_restarted_chief_continues_its_evaluations():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=600)).advance(0.505).kill("chief").wait()
    time, update = run.trace.column("evaluations", "time", "update")
    assert not ((time > 0.505e9) & (time < 1.305e9)).any()
    assert (np.diff(update) > 0).all()
    assert (time > 1.305e9).sum() > 2
    assert applied(run, 0.505, 1.305) == 240  # no other role is affected
    assert (run.stopped_by, run.trace.ending["update"], closed(run)["applied"]) == ("updates", 600, 600)


def test_a_restarted_chief_restores_the_measurements_of_its_predecessor():
    run = started(lk.AsyncPS(), **NETWORK).advance(0.505)
    reported = run.engine.evaluator.state()
    assert reported["update"] > 0
    run.kill("chief").advance(BACK)
    state = run.engine.evaluator.state()
    assert state.pop("parameters").tobytes() == reported.pop("parameters").tobytes()
    assert state == reported
    closed(run)


def test_a_budget_reached_without_the_chief_ends_the_run_after_its_restart():
    run = started(lk.AsyncPS(), budget=lk.Budget(updates=200)).advance(0.505).kill("chief").wait()
    assert (run.stopped_by, run.summary()["updates"], run.engine.seconds) == ("updates", 200, pytest.approx(1.305))
    closed(run)


@pytest.mark.parametrize("kill", ["chief", "worker-0"])
def test_a_worker_on_the_node_of_the_chief_is_lost_and_restarted_with_it(kill):
    run = started(lk.SyncPS(chief_works=True), 2, budget=lk.Budget(updates=100)).advance(0.305).kill(kill)
    assert sorted(m.name for m in events(run, "lost")) == ["chief", "worker-0"]
    assert [m.name for m in events(run, "killed")] == [kill]
    run.wait()
    assert sorted(m.name for m in events(run, "restarted")) == ["chief", "worker-0"]
    assert run.engine.seconds == pytest.approx(1.0 + BACK, abs=0.02)
    closed(run)


@pytest.mark.parametrize("at", [0.305, 0.9, 1.2])
def test_a_budget_in_seconds_does_not_wait_for_the_lost(at):
    """The chief ends at the time limit even if roles are absent; a worker that joins does not extend it."""
    run = started(lk.AsyncPS(eval_every=10**6), budget=lk.Budget(seconds=1.5), problem=TIMING).advance(at)
    run.kill("worker-0").wait()
    assert (run.stopped_by, run.engine.seconds) == ("seconds", 1.5)
    assert run.trace.ending["lost"] == (["worker-0"] if at > 0.7 else [])
    closed(run)


def test_random_times_change_nothing_of_all_this():
    strategy = lk.AsyncPS(optimizer=lk.Momentum(), learning_rate=0.02)
    faults = ["kill:worker-1@0.2", "kill:server-0@0.5", "kill:chief@0.6", "kill:worker-0@1.0", "kill:server-0@1.5"]
    run = started(strategy, faults=faults, budget=lk.Budget(updates=500), checkpoint_every=0.1, **RANDOM).wait()
    assert len(events(run, "restarted")) == 5
    assert closed(run)["rolled_back"] > 0
    assert run.trace.ending["update"] == 500
