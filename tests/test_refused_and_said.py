"""Refusals and reports: limits of the system, checkpoints that fail, faults in the summary."""

import contextlib
import errno
import os
import resource

import numpy as np
import pytest

import labkit as lk
from labkit.engines import machine_limits
from labkit.engines.dask.worker.checkpointing import Checkpointing

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


@pytest.fixture(params=[0, 80], ids=["few are open", "more are open than the limit allows"])
def few_files(request):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        for _ in range(request.param):
            opened.enter_context(open(os.devnull))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_limit_of_open_files_that_is_too_low_is_named_before_anything_starts(few_files):
    with pytest.raises(lk.BadInput, match=r"^The limit of open files is 64 here, and starting \d+ processes takes about"):
        machine_limits.check_capacity(6, 0, free=1 << 40)
    machine_limits.check_capacity(6, 6, free=1 << 40)  # existing ones need no more


class Disk:
    """A store whose disk is full for a while."""

    full = True

    def write(self, role, state, tag):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", f"/somewhere/.draft-{tag}")

    def all_tags(self, role):
        return []


def test_a_checkpoint_that_fails_is_reported_once_and_again_when_it_works():
    told, disk = [], Disk()
    checkpoints = Checkpointing("chief", 0, disk, None, told.append)
    for step in range(43):
        checkpoints.request({"step": step}, None, 0)
        checkpoints.save(None, 0)
    assert len(told) == 1
    assert "No space left" in told[0]
    disk.full = False
    checkpoints.save(None, 0)
    checkpoints.save(None, 0)
    assert len(told) == 2
    assert told[1].startswith("saves its checkpoints again, after ")
    disk.full = True
    checkpoints.save(None, 0)
    assert len(told) == 3


def test_the_summary_mentions_faults():
    faults = [lk.Kill("worker-1", at=0.05), lk.Slow("worker-0", 3, at=0.02)]
    cluster = lk.SimulatedCluster(workers=2, compute=0.01)
    run = lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(updates=50), faults=faults).wait()
    assert "faults" in str(run.summary())
    assert "worker-0 computes 3x slower at 0.02 s; killed worker-1 at 0.05 s" in str(run.summary())
    assert "faults" not in str(lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(updates=5)).wait().summary())


def test_an_unknown_data_set_is_answered_with_what_there_is():
    with pytest.raises(lk.BadInput) as refused:
        lk.Problem("mnist")
    assert "Did you mean" not in str(refused.value)
    assert "digits" in str(refused.value)
    assert "lk.from_arrays" in str(refused.value)


def test_masked_values_are_refused():
    x, y = np.zeros((10, 2)), np.arange(10) % 2
    hidden = np.ma.masked_array(x, mask=False)
    hidden[3, 1] = np.ma.masked
    with pytest.raises(lk.BadInput, match=r"^x is a masked array with 1 masked values, the first at \(3, 1\)"):
        lk.from_arrays(hidden, y)
    lk.from_arrays(np.ma.masked_array(x, mask=False), y)


@pytest.mark.parametrize("call", [
    lambda run: run.wait(float("nan")), lambda run: run.advance(True), lambda run: run.advance("x"), lambda run: run.kill([]),
    lambda run: run.kill("worker-0", restart="no"), lambda run: run.step(-1), lambda run: run.fork(True),
    lambda run: lk.resume("\0"), lambda run: lk.resume("x" * 5000), lambda run: lk.load(3), lambda run: lk.load("x/" * 4000),
    lambda run: lk.Budget(updates=10**400), lambda run: lk.SimulatedCluster(compute=10**400), lambda run: lk.young(10**400, 1),
    lambda run: lk.Problem("moons", batch_size=10**5000),
])  # fmt: skip
def test_refused(call):
    with pytest.raises(lk.BadInput):
        call(lk.train(TIMING, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=50)))
