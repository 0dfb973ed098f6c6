"""The program of a run is killed: its roles end, and another program resumes from their checkpoints."""

import os
import signal
import subprocess
import sys

import pytest

import labkit as lk
from labkit.engines.storage.store import Store
from tests.dask.helpers import closes, eventually, moving, updates

SCRIPT = """
import os, sys, time
import labkit as lk

if __name__ == "__main__":
    cluster = lk.DaskCluster(workers=2, servers=None, pace=0.01, checkpoint_every=0.2)
    problem = lk.Problem("moons", hidden=(8,))
    strategy = getattr(lk, sys.argv[1])()
    run = lk.train(problem, strategy, cluster, lk.Budget(updates=300), checkpoint=sys.argv[2])
    while run.summary()["updates"] < 100:
        time.sleep(0.01)
    supervisor = run.engine.supervisor
    print(*set(supervisor.client.run(os.getpid).values()), flush=True)
    time.sleep(60)
"""


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def killed(tmp_path, strategy):
    """The folder of a run whose program was killed at update 100 of 300."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "run"
    program = subprocess.Popen([sys.executable, str(script), strategy, str(folder)], stdout=subprocess.PIPE, text=True)
    pids = [int(word) for word in program.stdout.readline().split()]
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    assert pids
    eventually(lambda: not any(map(is_there, pids)), 180)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc, to see that no process is left")
@pytest.mark.parametrize("strategy", ["AsyncPS", "RingAllReduce"])
def test_a_run_whose_program_was_killed_can_be_resumed(tmp_path, cluster, strategy):
    folder = killed(tmp_path, strategy)
    owner = "server-0" if strategy == "AsyncPS" else "worker-0"
    saved = Store(folder).read(owner)[0]["version"]
    assert 50 <= saved < 300
    with pytest.raises(lk.BadInput, match="has not ended"):
        lk.train(lk.Problem("moons", hidden=(8,)), lk.AsyncPS(), cluster, checkpoint=folder)
    run = lk.resume(folder, cluster=cluster.resized(workers=2, pace=0.01)).wait(180)
    assert (run.stopped_by, updates(run)) == ("updates", 300)
    entries = closes(run)
    each = 1 if strategy == "AsyncPS" else 2  # gradients in an update
    assert 0 < entries["applied"] <= each * (300 - saved)
    assert run.result()
    with pytest.raises(lk.BadInput, match="is over"):
        lk.resume(folder, cluster=cluster)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.LocalSGD(), lk.FSDP()], ids=lambda s: s.name)
def test_a_run_that_is_over_goes_on_with_another_budget(tmp_path, cluster, strategy):
    on, problem = cluster.resized(workers=2, pace=0.005), lk.Problem("moons", hidden=(8,))
    lk.train(problem, strategy, on, lk.Budget(updates=60), checkpoint=tmp_path).wait(180)
    run = lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=120)).wait(180)
    assert (run.stopped_by, updates(run)) == ("updates", 120)
    assert closes(run)["applied"] < 120 * (2 if strategy.name in ("SyncPS", "LocalSGD") else 1) + 10
    again = lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=150)).wait(180)
    assert updates(again) == 150
    closes(again)


def test_a_role_lost_after_a_resume_begins_from_a_checkpoint_of_the_new_run(tmp_path, cluster):
    on = cluster.resized(workers=2, pace=0.01, replicas=1, checkpoint_every=0.2)
    problem = lk.Problem("moons", hidden=(8,))
    lk.train(problem, lk.AsyncPS(), on, lk.Budget(updates=60), checkpoint=tmp_path).wait(180)
    run = moving(lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=200)), 30)
    run.kill("server-0")
    run.wait(180)
    assert (run.stopped_by, updates(run)) == ("updates", 200)
    entries = closes(run)
    assert (entries["rolled_back"], entries["lost"]) == (0, 0)  # the backup had the full state, from the start
