"""The one hand: order, errors, a thread that comes and goes, and nobody who waits for ever."""

from __future__ import annotations

import threading

import pytest

from labkit.lab import conductor
from labkit.lab.conductor import Conductor


@pytest.fixture
def hand():
    made = []

    def make(tick=lambda: None, name="labkit-test-hand"):
        made.append(Conductor(name, tick))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one.alive


def test_commands_are_carried_out_in_order_on_one_thread(hand):
    one, seen = hand(), []
    for i in range(50):
        one.do(lambda i=i: seen.append((i, threading.current_thread().name)))
    assert one.call(lambda: len(seen)) == 50
    assert [i for i, _ in seen] == list(range(50))
    assert {name for _, name in seen} == {"labkit-test-hand"}


def test_whoever_asked_is_told_what_went_wrong_and_the_hand_goes_on(hand):
    one = hand()
    with pytest.raises(ZeroDivisionError):
        one.call(lambda: 1 // 0)
    future = one.do(lambda: 1 // 0)
    assert isinstance(future.exception(5), ZeroDivisionError)
    assert one.call(lambda: 5) == 5


def test_a_command_may_give_commands(hand):
    one = hand()
    assert one.call(lambda: one.call(lambda: 7)) == 7


def test_many_threads_at_once(hand):
    one, total = hand(), []
    threads = [
        threading.Thread(target=lambda: [one.call(lambda: total.append(1)) for _ in range(30)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(total) == 240
    assert one.waiting == 0


def test_it_ticks_as_long_as_something_goes_on_and_ends_after_that(hand, monkeypatch):
    monkeypatch.setattr(conductor, "LINGER", 0.01)
    left, over = [20], threading.Event()

    def tick():
        left[0] -= 1
        if left[0] > 0:
            return 0.001
        over.set()
        return None

    one = hand(tick)
    one.nudge()
    assert over.wait(10)
    thread = one._thread
    if thread is not None:
        thread.join(10)
    assert not one.alive
    assert one.call(lambda: "again") == "again"


def test_after_close_commands_are_refused_and_those_before_are_done(hand):
    one, seen = hand(), []
    for i in range(10):
        one.do(lambda i=i: seen.append(i))
    one.close()
    one.close()
    assert seen == list(range(10))
    with pytest.raises(RuntimeError, match="closed"):
        one.call(lambda: 1)


def test_a_waiter_for_a_command_that_comes_while_the_thread_ends_is_not_left_alone(hand, monkeypatch):
    monkeypatch.setattr(conductor, "LINGER", 0.0)
    one = hand()
    assert [one.call(lambda i=i: i) for i in range(300)] == list(range(300))


def test_close_ends_a_hand_that_has_always_something_to_do(hand):
    one = hand(lambda: 0.001)
    one.call(lambda: None)
    one.close()
    assert not one.alive
