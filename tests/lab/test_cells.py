"""Assignment of labs to notebook cells; and that the lab is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest
from jupyter_client.manager import start_new_kernel

from labkit.lab import cells


def test_running_a_cell_again_closes_what_it_made_before():
    class Lab:
        closed = 0

        def close(self):
            self.closed += 1
            cells.forget(self)

    one, two, three, other = Lab(), Lab(), Lab(), Lab()
    cells.remember(one, ("cell", "first run"))
    cells.remember(two, ("cell", "first run"))
    cells.remember(other, ("other cell", "its run"))
    assert not one.closed
    cells.remember(three, ("cell", "second run"))
    assert (one.closed, two.closed, three.closed, other.closed) == (1, 1, 0, 0)
    assert cells.stale(("cell", "next run")) == [three]
    assert cells.stale(("other cell", "next run")) == [other]
    for lab in (three, other):
        lab.close()
    cells.remember(one, None)
    assert cells.stale(("cell", "next run")) == cells.stale(("other cell", "next run")) == []


def test_the_lab_is_not_loaded_before_it_is_used():
    code = "import sys, labkit.lab; sys.exit(any(m in sys.modules for m in ('anywidget', 'ipywidgets', 'matplotlib')))"
    subprocess.run([sys.executable, "-c", code], check=True)


RUN = "lk.train('moons', lk.AsyncPS(), cluster, lk.Budget(seconds=600))"
SIMULATED = "lk.train('moons', lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=600)).advance(1)"
LAB = "lk.Lab().set(engine='simulated')"
STOPPED, CLOSED = (f"of the previous execution of this cell was {done}." for done in ("stopped", "closed"))
# what is executed, the runs and labs that are then open, what the last cell says
EXECUTED = [
    ("the same name", [f"run = {RUN}"] * 2, 1, 0, STOPPED),
    ("displayed", [f"run = {RUN}\nrun"] * 2, 1, 0, STOPPED),
    ("only in the output history", [RUN] * 2, 1, 0, STOPPED),
    ("only in the history, not executed again", [RUN, "1", "2", "_.done or None"], 1, 0, ""),
    ("in a list", ["runs = []", f"runs.append({RUN})", f"runs.append({RUN})"], 2, 0, ""),
    ("under another name", [f"run = {RUN}", "old = run", f"run = {RUN}"], 2, 0, ""),
    ("under a name that is deleted", [f"run = {RUN}", "old = run", f"run = {RUN}", "del old"], 1, 0, "its cell was stopped"),
    ("a loop", [f"for _ in range(2): run = {RUN}"], 2, 0, ""),
    ("a loop again", [f"for _ in range(2): run = {RUN}"] * 2, 2, 0, "The 2 runs"),
    ("watched", [f"run = {RUN}\nrun.watch()"] * 2, 1, 1, STOPPED),
    ("a cluster that nothing else refers to", [f"run = {RUN.replace('cluster', 'cluster.resized()')}"] * 2, 1, 0, STOPPED),
    ("in virtual time", [f"run = {SIMULATED}\nrun"] * 2, 0, 0, ""),
    ("a lab", [LAB] * 2, 0, 1, CLOSED),
    ("two labs", [f"one = {LAB}; {LAB}"] * 2, 0, 2, "The 2 labs"),
    ("a lab of a function", [f"def show(): return {LAB}", "show()", "show()"], 0, 1, CLOSED),
    ("a lab displayed again", [f"lab = {LAB}\nlab", "lab", "lab"], 0, 1, ""),
    ("labs of two cells", [LAB, f"{LAB}  # another"], 0, 2, ""),
]  # fmt: skip


class Kernel:
    def __init__(self):
        self.manager, self.client = start_new_kernel(kernel_name="python3")

    def run(self, code):
        """Execute a cell; returns its texts."""
        texts = []

        def output(message):
            assert message["msg_type"] != "error", "\n".join(message["content"]["traceback"])
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])

        self.client.execute_interactive(code, output_hook=output, timeout=120)
        return "".join(texts)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel():
    found = Kernel()
    found.run("import gc; import labkit as lk; from labkit.engines.commands import Stop")
    found.run("cluster = lk.DaskCluster(workers=1)")
    yield found
    found.run("cluster.close()")
    found.close()


@pytest.mark.sample(slow=9)
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("executed", "runs", "labs", "said"), [row[1:] for row in EXECUTED], ids=[row[0] for row in EXECUTED]
)
def test_what_the_previous_execution_of_a_cell_has_left(kernel, executed, runs, labs, said):
    *before, last = executed
    for cell in before:
        kernel.run(cell)
    text = kernel.run(last)
    assert (said in text) if said else not text
    kernel.run("found = [o for o in gc.get_objects() if type(o) is lk.Lab and not o.closed]")
    assert kernel.run("print(len(cluster.runs), len(found))").split() == [str(runs), str(labs)]
    kernel.run("for lab in found: lab.close()\nfor run in list(cluster.runs): run.execute(Stop())\ndel found")


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.processes
@pytest.mark.parametrize("displayed", ["run", "own", "(run, own)[1]"])
def test_the_output_history_keeps_no_processes(kernel, displayed):
    training = "lk.train('moons', lk.AsyncPS(), own, lk.Budget(updates=5)).wait()"
    kernel.run(f"own = lk.DaskCluster(workers=1)\nrun = {training}\n{displayed}")
    kernel.run("client = own.client")
    kernel.run("del own")
    kernel.run("import time\nwhile client.status != 'closed': time.sleep(0.02)")  # pytest limits its time
    assert kernel.run("print(run.summary()['updates'], run.engine.cluster.is_closed)") == "5 True\n"
