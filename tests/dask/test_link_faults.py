"""Links between processes are delayed, lose frames and are cut; the run reaches its budget and its ledger balances."""

import json
import subprocess
import sys

import numpy as np
import pytest

import labkit as lk
from labkit.trace.schema import COMPUTE
from tests.dask.helpers import closes, computed, eventually, moving, updates

pytestmark = pytest.mark.sample(1)


@pytest.fixture
def small(cluster):
    """Two workers that take 10 ms for a gradient."""
    return cluster.resized(workers=2, pace=0.01)


def events(run, *kinds):
    return [m for m in run.trace.events if m.kind in kinds]


def comes_to_its_end(run, count):
    run.wait(180)
    assert (run.stopped_by, updates(run)) == ("updates", count)
    assert run.trace.ending["lost"] == []
    assert not events(run, "lost", "gradient refused", "warning")
    return closes(run)


def repeated(run):
    return sum(counters.duplicates for counters in run.trace.counters.values())


STRATEGIES = [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_lost_frames_are_retransmitted_and_counted_once(small, started, strategy):
    faults = [lk.Drop("worker", "*", 0.1)]
    run = started(strategy, on=small, budget=lk.Budget(updates=60), faults=faults)
    entries = comes_to_its_end(run, 60)
    assert repeated(run) > 0  # acknowledgements are lost, too
    assert (entries["lost"], entries["rolled_back"]) == (0, 0)
    drops = [(m.name, m.peer, m.chance) for m in events(run, "lossy")]
    assert drops == [("worker-0", None, 0.1), ("worker-1", None, 0.1)]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.name)
def test_messages_on_a_temporarily_cut_link_arrive_after_it_is_restored(small, started, strategy):
    other = "worker-1" if strategy.name == "RingAllReduce" else "server-0"
    faults = [lk.Partition("worker-0", other, during=(0.2, 0.8))]
    run = started(strategy, on=small, budget=lk.Budget(updates=100), faults=faults)
    entries = comes_to_its_end(run, 100)
    assert (entries["lost"], entries["rolled_back"]) == (0, 0)
    assert [m.kind for m in events(run, "cut", "reconnected")] == ["cut", "reconnected"]


@pytest.mark.slow
def test_messages_come_later(small, started):
    run = started(lk.SyncPS(), on=small, budget=lk.Budget(updates=10), faults=["delay:worker-0:server-0:0.1"])
    comes_to_its_end(run, 10)
    sender, start, arrival = run.trace.column("messages", "sender", "sent", "received")
    slow = sender == run.plan.role_ids["worker-0"]
    to_server = run.trace.column("messages", "role") == run.plan.role_ids["server-0"]
    later = (arrival - start)[slow & to_server][2:]
    assert len(later) > 0
    assert later.min() >= 0.1e9


def test_faults_are_injected_while_it_runs(small, started):
    run = moving(started(on=small), 10)
    run.inject([lk.Slow("worker-0", 3, during=(0.1, 0.3)), lk.Drop("worker-1", "server-0", 0.2)])
    eventually(lambda: len(events(run, "slowed")) == 2)
    assert [m.factor for m in events(run, "slowed")] == [3.0, 1.0]
    eventually(lambda: repeated(run) > 0, 180)
    run.stop()
    closes(run)


def test_a_cut_link_stays_cut_while_other_faults_of_it_change(small, started):
    run = started(on=small)
    eventually(lambda: computed(run, "worker-0") > 5)
    run.cut("worker-0", "server-0")
    run.delay("server-0", 0.001, "worker-1").delay("worker-0", 0.0)

    def waits():
        """worker-0 computes nothing during 30 updates, because it waits for an answer"""
        before = computed(run, "worker-0")
        moving(run, 30)
        return computed(run, "worker-0") == before

    eventually(waits)
    before = computed(run, "worker-0")
    run.reconnect("worker-0", "server-0")
    eventually(lambda: computed(run, "worker-0") > before + 5)
    run.stop()
    closes(run)
    role, phase, start = run.trace.column("spans", "role", "phase", "start")
    mine, other = (start[(phase == COMPUTE) & (role == run.plan.role_ids[name])] for name in ("worker-0", "worker-1"))
    longest = np.argmax(np.diff(mine))
    assert np.sum((mine[longest] < other) & (other < mine[longest + 1])) >= 25  # by the workers' own records


def test_link_faults_hold_for_the_next_incarnation(small, started):
    run = moving(started(on=small), 10)
    run.cut("worker-0", "server-0").kill("worker-0")
    eventually(lambda: any(m.kind == "restarted" for m in run.trace.events), 180)
    moving(run, 40)
    incarnation = run.plan.role_ids["worker-0"] + len(run.plan.role_ids)
    assert incarnation not in run.trace.instances or run.trace.instances[incarnation].computed == 0  # it has not got any weights
    run.reconnect("worker-0", "server-0")
    eventually(lambda: incarnation in run.trace.instances and run.trace.instances[incarnation].computed > 0)
    run.stop()
    closes(run)


def test_gradients_held_by_a_cut_at_the_end_are_in_flight(small, started):
    run = moving(started(on=small), 10)
    run.cut("worker-0", "server-0")
    moving(run, 20).stop()
    entries = closes(run)
    assert entries["lost"] == 0


@pytest.mark.parametrize(("act", "message"), [
    (lambda run: run.drop("worker-0", 0.99), "chance=0.99 is not allowed"),
    (lambda run: run.delay("worker-0", -1), "seconds=-1 is not allowed"),
    (lambda run: run.cut("worker-0", "worker-0"), "nothing lies between a role and itself"),
    (lambda run: run.inject(lk.Kill("worker-7")), "no role 'worker-7'"),
])  # fmt: skip
def test_invalid_link_faults_are_refused(small, started, act, message):
    run = started(on=small)
    with pytest.raises(lk.BadInput, match=message):
        act(run)
    moving(run).stop()
    closes(run)


@pytest.mark.slow
def test_faults_on_the_command_line():
    words = ["train", "--dataset", "moons", "--hidden", "8", "--workers", "2"]
    words += ["--pace", "0.01", "--updates", "200", "--fault", "kill:worker-1@0.5", "--fault", "drop:worker:*:0.05"]
    reported = subprocess.run(
        [sys.executable, "-m", "labkit.cli", *words, "--json"], capture_output=True, text=True, timeout=180, check=False
    )
    assert reported.returncode == 0, reported.stderr
    assert json.loads(reported.stdout)["updates"] == 200
