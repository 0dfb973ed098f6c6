"""What holds for all tests, however they were started."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """SIGINT has Python's own handler, also where the tests were started with SIGINT ignored (in the background by a shell
    script): processes that tests start would inherit that, and a test that interrupts them would wait in vain.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
