"""How processes end, as text."""

import signal
import subprocess
import sys

import pytest

from labkit.engines.dask.cluster.nannies import exit_text


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("", "exit code 0"),
        ("raise ValueError", "exit code 1"),
        ("import os; os._exit(70)", "exit code 70"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11, SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "signal 15, SIGTERM"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9, SIGKILL, which the system sends if memory is short"),
    ],
)
def test_the_end_of_a_process_is_told_by_its_exit_code_or_signal(program, text):
    code = subprocess.run([sys.executable, "-S", "-c", program], stderr=subprocess.DEVNULL, check=False).returncode
    assert exit_text(code) == text


def test_a_signal_without_a_name_is_told_by_its_number():
    assert signal.SIGRTMIN + 5 not in set(signal.Signals)
    assert exit_text(-(signal.SIGRTMIN + 5)) == f"signal {signal.SIGRTMIN + 5}"
