"""The command thread: order, errors, end and restart of the thread, and that no caller waits without end."""

from __future__ import annotations

import threading

import pytest

from labkit.lab import command_thread
from labkit.lab.command_thread import CommandQueue, CommandThread


@pytest.fixture
def commands():
    made = []

    def make(tick=lambda: None, name="labkit-test-commands"):
        made.append(CommandThread(name, tick))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one.alive


def test_commands_are_carried_out_in_order_on_one_thread(commands):
    one, seen = commands(), []
    for i in range(50):
        one.submit(lambda i=i: seen.append((i, threading.current_thread().name)))
    assert one.call(lambda: len(seen)) == 50
    assert [i for i, _ in seen] == list(range(50))
    assert {name for _, name in seen} == {"labkit-test-commands"}


def test_an_error_is_raised_in_the_caller_and_the_thread_goes_on(commands):
    one = commands()
    with pytest.raises(ZeroDivisionError):
        one.call(lambda: 1 // 0)
    future = one.submit(lambda: 1 // 0)
    assert isinstance(future.exception(5), ZeroDivisionError)
    assert one.call(lambda: 5) == 5


def test_a_command_may_call_commands(commands):
    one = commands()
    assert one.call(lambda: one.call(lambda: 7)) == 7


def test_many_threads_at_once(commands):
    one, total = commands(), []
    threads = [
        threading.Thread(target=lambda: [one.call(lambda: total.append(1)) for _ in range(30)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(total) == 240
    assert one.pending == 0


def test_the_command_thread_ticks_until_no_tick_is_due(commands, monkeypatch):
    monkeypatch.setattr(command_thread, "LINGER", 0.01)
    left, over = [20], threading.Event()

    def tick():
        left[0] -= 1
        if left[0] > 0:
            return 0.001
        over.set()
        return None

    one = commands(tick)
    one.wake()
    over.wait()
    assert one.join()
    assert one.call(lambda: "again") == "again"


def test_after_close_commands_are_refused_and_those_before_are_done(commands):
    one, seen = commands(), []
    for i in range(10):
        one.submit(lambda i=i: seen.append(i))
    one.close()
    one.close()
    assert seen == list(range(10))
    with pytest.raises(RuntimeError, match="closed"):
        one.call(lambda: 1)


def test_a_command_that_comes_while_the_thread_ends_is_executed(commands, monkeypatch):
    monkeypatch.setattr(command_thread, "LINGER", 0.0)
    one = commands()
    assert [one.call(lambda i=i: i) for i in range(300)] == list(range(300))


def test_close_ends_a_thread_that_always_has_something_to_do(commands):
    one = commands(lambda: 0.001)
    one.call(lambda: None)
    one.close()
    assert not one.alive


# the queue ------------------------------------------------------------------------------------------------------------


class Moves:
    """A task that advances for `left` ticks, and then optionally fails."""

    def __init__(self, left=0, fails=False):
        self.left, self.fails, self.aborted = left, fails, False

    def advance(self):
        if self.left > 0:
            self.left -= 1
            return 0.001
        if self.fails and not self.aborted:
            raise ValueError("on purpose")
        return None

    def finish(self):
        self.left = 0

    def abort(self):
        self.aborted = True


@pytest.fixture
def queue_of():
    made = []

    def make(moves):
        made.append(CommandQueue("labkit-test-queue", moves, lambda: None))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_error_of_a_press_is_shown_and_that_of_a_call_is_raised(queue_of):
    one = queue_of(Moves())
    one.press("working", lambda: 1 // 0)
    one.rest(10, fast=False)
    assert one.problem == "ZeroDivisionError: integer division or modulo by zero"
    with pytest.raises(ZeroDivisionError):
        one.call("working", lambda: 1 // 0)
    assert one.problem == ""


def test_an_error_of_a_tick_is_stored_and_stops_the_ticks(queue_of):
    moves = Moves(left=3, fails=True)
    one = queue_of(moves)
    one.wake()
    one.call("working", lambda: None)
    one.rest(10, fast=True)
    assert moves.aborted
    assert isinstance(one.error, ValueError)
    assert one.problem == "ValueError: on purpose"


def test_rest_waits_for_the_ticks_and_for_a_run_paused_by_a_button(queue_of):
    one = queue_of(Moves(left=5))
    one.wake()
    one.press("pausing", lambda: None, holds=True)
    assert one.held
    with pytest.raises(TimeoutError, match="not idle"):
        one.rest(0.01, fast=False)
    one.press("resuming", lambda: None)
    one.rest(10, fast=False)
    assert not one.held
