"""A process that is frozen does not stay so when its client has ended: a guard thaws it, or its nanny does."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.engines.dask import processes
from labkit.engines.dask.processes import LEASE_S, freeze_on_lease, thaw_on_lease

ROOT = Path(__file__).parents[3]
CLIENT = """
import sys
from labkit.engines.dask.processes import Guard, freeze_process
import psutil
number = int(sys.argv[1])
process = ("this machine", number, psutil.Process(number).create_time())
guard = Guard(process)
if sys.argv[2] == "guard ended":
    guard.end()
freeze_process(process)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "WCONTINUED"), reason="this system does not report that a process continues")
@pytest.mark.parametrize("end", ["by SIGKILL", "normally", "guard ended"])
def test_a_guard_thaws_the_process_when_its_client_has_ended(end):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        command = [sys.executable, "-c", CLIENT, str(child.pid), end]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as client:
            assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
            if end == "by SIGKILL":
                client.kill()
        if end == "guard ended":  # it has no effect any more
            assert os.waitpid(child.pid, os.WUNTRACED | os.WCONTINUED | os.WNOHANG) == (0, 0)
            child.kill()
        else:
            assert os.WIFCONTINUED(os.waitpid(child.pid, os.WCONTINUED)[1])
            child.communicate(b"\n")


class Loop:
    """An event loop in virtual time."""

    def __init__(self):
        self.now, self.timers = 0.0, []

    def call_later(self, seconds, call, *arguments):
        timer = types.SimpleNamespace(due=self.now + seconds, call=lambda: call(*arguments))
        timer.cancel = lambda: timer in self.timers and self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def advance(self, seconds):
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.due <= self.now]:
            self.timers.remove(timer)
            timer.call()


STEPS = st.tuples(st.sampled_from(["freeze", "renew", "thaw", "wait"]), st.floats(0, 1.5 * LEASE_S))


@given(st.lists(STEPS, max_size=12))
def test_a_nanny_keeps_a_process_frozen_as_long_as_its_client_asks_for_it(steps):
    """Model: it is frozen from `freeze` until `thaw`, or until nobody has asked for it for `LEASE_S`."""
    loop, nanny, process, frozen, until = Loop(), types.SimpleNamespace(), ("boot", 7, 0.5), [], None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes.asyncio, "get_running_loop", lambda: loop)
        patch.setattr(processes, "freeze_process", lambda process: frozen.append(process))
        patch.setattr(processes, "thaw_process", lambda process: frozen.clear())
        for what, seconds in steps:
            loop.advance(seconds)
            until = None if until is not None and until <= loop.now else until
            if what == "thaw":
                thaw_on_lease(list(process), dask_worker=nanny)
                until = None
            elif what != "wait":
                freeze_on_lease(list(process), what == "renew", dask_worker=nanny)
                until = loop.now + LEASE_S if what == "freeze" or until is not None else None
            assert bool(frozen) == (until is not None)
            assert len(frozen) <= 1
