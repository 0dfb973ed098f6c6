"""Ctrl-C that is deferred: it takes effect at the points for it, once, and whichever thread receives the signal."""

import contextlib
import signal
import threading

import pytest

from labkit.interrupts import DeferredInterrupt, interrupt_is_pending, raise_if_interrupted


class Interrupted(BaseException):
    """Raised by the handler that a program has installed."""


@pytest.fixture(autouse=True)
def handler():
    def handle(number, frame):
        assert number == signal.SIGINT
        raise Interrupted

    before = signal.signal(signal.SIGINT, handle)
    yield handle
    assert signal.getsignal(signal.SIGINT) is handle
    signal.signal(signal.SIGINT, before)


def to_this_thread():
    signal.raise_signal(signal.SIGINT)


def in_another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def to_another_thread():
    def receive():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    in_another_thread(receive)


@contextlib.contextmanager
def blocked():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


CTRL_C = {
    "to the main thread": (to_this_thread, contextlib.nullcontext),
    "to another thread": (to_another_thread, contextlib.nullcontext),
    "to another thread, blocked in the main thread": (to_another_thread, blocked),
    "to the main thread, which blocks it": (to_this_thread, blocked),
    "twice": (lambda: (to_this_thread(), to_this_thread()), contextlib.nullcontext),
}


def interrupted(work):
    """Assert that `work` is interrupted; what interrupted it."""
    with pytest.raises(Interrupted) as found:
        work()
    return found.value


@pytest.mark.parametrize("case", CTRL_C)
@pytest.mark.parametrize("nested", [False, True], ids=["one block", "nested blocks"])
def test_it_takes_effect_where_it_may(case, nested):
    def work():
        with DeferredInterrupt(), around():
            with DeferredInterrupt() if nested else contextlib.nullcontext():
                assert not interrupt_is_pending()
                raise_if_interrupted()
                ctrl_c()
                passed.append("the next statement")
                assert interrupt_is_pending()
            passed.append("the end of the inner block")
            raise_if_interrupted()
            passed.append("a point for it")

    ctrl_c, around = CTRL_C[case]
    passed = []
    interrupted(work)
    assert passed == ["the next statement", "the end of the inner block"]
    raise_if_interrupted()  # only once


@pytest.mark.parametrize("case", CTRL_C)
def test_it_takes_effect_at_the_end_of_the_block(case):
    def work():
        with DeferredInterrupt():
            with around():
                ctrl_c()
            passed.append("the last statement")

    ctrl_c, around = CTRL_C[case]
    passed = []
    interrupted(work)
    assert passed == ["the last statement"]


def test_an_error_in_the_block_does_not_hide_it():
    def work():
        with DeferredInterrupt():
            to_this_thread()
            raise ZeroDivisionError

    assert isinstance(interrupted(work).__context__, ZeroDivisionError)


def test_an_interrupt_that_another_thread_blocks_is_none_of_the_block():
    def blocks():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.raise_signal(signal.SIGINT)
        found.append(interrupt_is_pending())

    found = []
    with DeferredInterrupt():
        in_another_thread(blocks)
    assert found == [False]


def test_a_second_one_does_not_wait_for_code_of_a_user():
    def work():
        with DeferredInterrupt(lambda: passed.append("requested")):
            to_this_thread()
            passed.append("the next statement")
            to_this_thread()
            passed.append("not reached")

    passed = []
    interrupted(work)
    assert passed == ["requested", "the next statement"]


def test_other_threads_and_programs_that_ignore_it_are_left_alone(handler):
    def block():
        with DeferredInterrupt():
            found.append(signal.getsignal(signal.SIGINT))

    found = []
    in_another_thread(block)
    assert found == [handler]
    with DeferredInterrupt():
        to_this_thread()
        in_another_thread(raise_if_interrupted)
        assert interrupt_is_pending()
        with pytest.raises(Interrupted):
            raise_if_interrupted()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DeferredInterrupt():
        to_this_thread()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signal.signal(signal.SIGINT, handler)
