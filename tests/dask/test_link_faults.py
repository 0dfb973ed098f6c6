"""Links between processes are delayed, lose frames and are cut; the run reaches its budget and its ledger balances.

How frames are retransmitted is tested in `tests/engines/dask/transport/test_link_faults.py`, and how several faults of one link
are combined in `tests/engines/dask/client/test_commands.py`, without processes.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

import labkit as lk
from labkit.trace.schema import COMPUTE
from tests.dask.helpers import closes, computes, events, further, path_of_labkit, updates


@pytest.fixture
def small(cluster):
    """Two workers that take 10 ms for a gradient."""
    return cluster.resized(workers=2, pace=0.01, heartbeat_timeout=60.0)


def comes_to_its_end(run, count):
    run.wait()
    assert (run.stopped_by, updates(run)) == ("updates", count)
    assert run.trace.ending["lost"] == []
    assert not events(run, "lost", "gradient refused", "warning")
    entries = closes(run)
    assert (entries["lost"], entries["rolled_back"]) == (0, 0)


def repeated(run):
    return sum(counters.duplicates for counters in run.trace.counters.values())


@pytest.mark.parametrize(
    ("strategy", "faults", "kinds"),
    [
        (lk.AsyncPS(), [lk.Drop("worker", "*", 0.1)], ["lossy", "lossy"]),
        (lk.RingAllReduce(), [lk.Partition("worker-0", "worker-1", during=(0.2, 0.8))], ["cut", "reconnected"]),
    ],
    ids=["frames are lost", "a link is cut for some time"],
)
def test_every_message_arrives_and_is_counted_once(small, started, strategy, faults, kinds):
    run = started(strategy, on=small, budget=lk.Budget(updates=60), faults=faults)
    run.wait_for(kinds[-1])
    comes_to_its_end(run, 60)
    assert [event.kind for event in events(run, "lossy", "cut", "reconnected")] == kinds
    if kinds[0] == "lossy":
        assert repeated(run) > 0  # acknowledgements are lost, too


def test_messages_come_later(small, started):
    run = started(lk.SyncPS(), on=small, budget=lk.Budget(updates=8), faults=["delay:worker-0:server-0:0.1"])
    comes_to_its_end(run, 8)
    sender, start, arrival = run.trace.column("messages", "sender", "sent", "received")
    slow = sender == run.plan.role_ids["worker-0"]
    to_server = run.trace.column("messages", "role") == run.plan.role_ids["server-0"]
    during = arrival <= run.trace.column("applies", "time").max()  # the end of the run waits for no delay
    later = (arrival - start)[slow & to_server & during][2:]
    assert len(later) > 0
    assert later.min() >= 0.1e9


def test_a_limited_worker_does_not_block_the_others(small, started):
    """A message of worker-0 takes half a minute; meanwhile the others go on, also after its process was killed."""
    run = started(on=small, problem=lk.Problem("digits", hidden=(64,)))
    further(run, 5)
    limited, other = (run.plan.role_ids[name] for name in ("worker-0", "worker-1"))
    run.limit("worker-0", "1kB/s")
    run.wait_for(lambda run: run.trace.column("applies", "sender")[-20:].tolist() == [other] * 20)
    run.limit("worker-0", None).kill("worker-0")  # what waits for its old process is dropped
    run.wait_for("restarted", "worker-0")
    run.wait_for(lambda run: limited in run.trace.column("applies", "sender")[-20:])
    run.stop()
    closes(run)
    assert [event.bandwidth for event in events(run, "limited")] == [1000.0, None]


def test_a_group_restarts_while_messages_wait_for_the_bandwidth(cluster, started):
    """Replicas begin again together, from what the others have."""
    on = cluster.resized(workers=3, pace=0.01, heartbeat_timeout=60.0)
    run = started(lk.RingAllReduce(), on=on, budget=lk.Budget(updates=60), faults=["limit:worker:100kB/s"])
    further(run, 5)
    run.kill("worker-1")
    run.wait_for("restarted", "worker-1")
    assert events(run, "group restarted")
    for worker in ("worker-0", "worker-1", "worker-2"):
        run.limit(worker, None)
    run.wait()
    assert (run.stopped_by, updates(run)) == ("updates", 60)
    assert run.trace.ending["lost"] == []
    assert run.trace.ending["lost_instances"] == [[run.plan.role_ids["worker-1"], 0]]
    closes(run)


def test_faults_are_injected_while_it_runs(small, started):
    run = further(started(on=small), 10)
    soon = run.engine.seconds + 0.2
    run.inject([lk.Slow("worker-0", 3, during=(soon, soon + 0.1)), lk.Drop("worker-1", "server-0", 0.2)])
    begun, ended = run.wait_for("slowed", factor=3.0), run.wait_for("slowed", factor=1.0)
    assert soon * 1e9 <= begun.time < ended.time
    run.wait_for(repeated)
    for act, message in (
        (lambda: run.drop("worker-0", 0.99), "chance=0.99 is not allowed"),
        (lambda: run.delay("worker-0", -1), "seconds=-1 is not allowed"),
        (lambda: run.cut("worker-0", "worker-0"), "nothing lies between a role and itself"),
        (lambda: run.inject(lk.Kill("worker-7")), "no role 'worker-7'"),
        (lambda: run.cut("worker-0", "server-9"), "no role 'server-9'"),
    ):
        with pytest.raises(lk.BadInput, match=message):
            act()
    further(run).stop()
    closes(run)


def test_a_cut_link_stays_cut_while_other_faults_of_it_change(small, started):
    run = started(on=small)
    computes(run, "worker-0", more=5)
    run.cut("worker-0", "server-0")
    run.delay("server-0", 0.001, "worker-1").delay("worker-0", 0.0)
    further(run, 40)  # the records below show that they are worker-1's
    run.reconnect("worker-0", "server-0")
    computes(run, "worker-0", more=5)
    run.cut("worker-0", "server-0")
    further(run, 20).stop()
    assert closes(run)["lost"] == 0  # what the cut holds back at the end is in flight
    role, phase, start = run.trace.column("spans", "role", "phase", "start")
    mine, other = (start[(phase == COMPUTE) & (role == run.plan.role_ids[name])] for name in ("worker-0", "worker-1"))
    longest = np.argmax(np.diff(mine))
    assert np.sum((mine[longest] < other) & (other < mine[longest + 1])) >= 25  # by the workers' own records


@pytest.mark.slow
@pytest.mark.processes
def test_faults_on_the_command_line():
    words = ["train", "--dataset", "moons", "--hidden", "8", "--workers", "2"]
    words += ["--pace", "0.01", "--updates", "200", "--fault", "kill:worker-1@0.5", "--fault", "drop:worker:*:0.05"]
    command = [sys.executable, "-m", "labkit", *words, "--json"]
    reported = subprocess.run(command, capture_output=True, text=True, check=False, env=path_of_labkit())
    assert reported.returncode == 0, reported.stderr
    assert json.loads(reported.stdout)["updates"] == 200
