"""The program of a run is killed: its roles end, and another program resumes from their checkpoints."""

import subprocess
import sys

import psutil
import pytest

import labkit as lk
from labkit.engines.storage.store import Store
from tests.dask.helpers import MOONS, closes, further, path_of_labkit, updates

SCRIPT = """
import sys
import labkit as lk

if __name__ == "__main__":
    cluster = lk.DaskCluster(workers=2, servers=None, pace=0.01, checkpoint_every=0.2)
    problem = lk.Problem("moons", hidden=(8,))
    strategy = getattr(lk, sys.argv[1])()
    run = lk.train(problem, strategy, cluster, lk.Budget(updates=300), checkpoint=sys.argv[2])
    run.wait_for(lambda run: run.summary()["updates"] >= 100)
    run.pause()
    print(*(process[1] for process in run.engine.supervisor.processes.values()), flush=True)
    sys.stdin.read()
"""


def killed(tmp_path, strategy):
    """The folder of a run whose program was killed after update 100 of 300."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder, pipes = tmp_path / "run", {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, str(script), strategy, str(folder)]
    with subprocess.Popen(command, **pipes, env=path_of_labkit()) as program:
        processes = [psutil.Process(int(word)) for word in program.stdout.readline().split()]
        program.kill()
    assert processes
    psutil.wait_procs(processes)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["AsyncPS", "RingAllReduce"])
def test_a_run_whose_program_was_killed_can_be_resumed(tmp_path, cluster, strategy):
    folder = killed(tmp_path, strategy)
    owner = "server-0" if strategy == "AsyncPS" else "worker-0"
    saved = Store(folder).read(owner)[0]["version"]
    assert 50 <= saved < 300
    with pytest.raises(lk.BadInput, match="has not ended"):
        lk.train(MOONS, lk.AsyncPS(), cluster, checkpoint=folder)
    run = lk.resume(folder, cluster=cluster.resized(workers=2, pace=0.01)).wait()
    assert (run.stopped_by, updates(run)) == ("updates", 300)
    entries = closes(run)
    each = 1 if strategy == "AsyncPS" else 2  # gradients in an update
    assert 0 < entries["applied"] <= each * (300 - saved)
    assert run.result()
    with pytest.raises(lk.BadInput, match="is over"):
        lk.resume(folder, cluster=cluster)


@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(), pytest.param(lk.FSDP(), marks=pytest.mark.slow)], ids=lambda s: s.name
)
def test_a_run_that_is_over_goes_on_with_another_budget(tmp_path, cluster, strategy):
    on = cluster.resized(workers=2, pace=0.005)
    lk.train(MOONS, strategy, on, lk.Budget(updates=60), checkpoint=tmp_path).wait()
    run = lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=120)).wait()
    assert (run.stopped_by, updates(run)) == ("updates", 120)
    assert closes(run)["applied"] < 130
    if strategy.name == "AsyncPS":
        path = max(path for path in tmp_path.iterdir() if path.name.startswith("server-0."))
        path.write_bytes(path.read_bytes()[:-1])
    again = lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=150)).wait()
    assert updates(again) == 150
    closes(again)
    if strategy.name == "AsyncPS":
        assert f": {path.name} is damaged (truncated)" in str(again.log)


def test_a_role_lost_after_a_resume_begins_from_a_checkpoint_of_the_new_run(tmp_path, cluster):
    on = cluster.resized(workers=2, pace=0.01, replicas=1, checkpoint_every=0.2)
    lk.train(MOONS, lk.AsyncPS(), on, lk.Budget(updates=60), checkpoint=tmp_path).wait()
    run = further(lk.resume(tmp_path, cluster=on, budget=lk.Budget(updates=200)), 30)
    run.kill("server-0")
    run.wait()
    assert (run.stopped_by, updates(run)) == ("updates", 200)
    entries = closes(run)
    assert (entries["rolled_back"], entries["lost"]) == (0, 0)  # the backup had the full state, from the start
