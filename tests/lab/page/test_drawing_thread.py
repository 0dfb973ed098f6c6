"""The drawing thread alone: when it draws, that it ends when the figure is hidden or unchanged, and that it restarts."""

from __future__ import annotations

import threading
import time

import pytest

from labkit.lab.page import drawing_thread as module
from labkit.lab.page.drawing_thread import DrawingThread, TokenBucket


def until(condition, seconds=180.0):
    """Wait until a condition set by another thread is true."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.002)


class Scene:
    """A source of frames. `moves`: whether there will be more; `sends`: whether a frame is sent to the browser."""

    def __init__(self, moves=True, sends=True, answers=True, during=lambda frame: None, **clocks):
        self.moves, self.sends, self.answers, self.during = moves, sends, answers, during
        self.frames = 0
        self.painter = DrawingThread("labkit-test-drawing", self.paint, **clocks)

    def paint(self):
        self.frames += 1
        self.during(self.frames)
        if self.sends:
            number = self.painter.next_frame()
            if self.answers:
                self.painter.acknowledge(number)
        return 0.001 if self.moves else None


@pytest.fixture
def scene():
    made = []

    def make(**more):
        made.append(Scene(**more))
        return made[-1]

    yield make
    for one in made:
        one.painter.close()
        assert not one.painter.alive


def test_frames_are_drawn_continuously_during_a_run(scene):
    one = scene()
    one.painter.wake()
    until(lambda: one.frames >= 5)
    assert one.painter.alive


def test_the_thread_ends_when_nothing_moves_and_a_wake_starts_it_again(scene):
    one = scene(moves=False)
    one.painter.wake()
    assert one.painter.join(180)
    assert one.frames == 1
    one.painter.wake()
    assert one.painter.join(180)
    assert one.frames == 2


def test_an_answer_to_the_last_frame_starts_nothing(scene):
    one = scene(moves=False, answers=False)
    one.painter.wake()
    assert one.painter.join(180)
    for _ in range(3):
        one.painter.acknowledge(one.painter.sent)
        assert one.painter.join(180)
    assert one.frames == 1


def test_a_wake_up_during_the_last_frame_is_not_lost(scene):
    entered, leave = threading.Event(), threading.Event()

    def during(frame):
        if frame == 1:
            entered.set()
            assert leave.wait(180)

    one = scene(moves=False, sends=False, during=during)
    one.painter.wake()
    assert entered.wait(180)
    one.painter.wake()
    leave.set()
    until(lambda: one.frames == 2)
    assert one.painter.join(180)


def test_at_most_two_frames_are_unacknowledged(scene, monkeypatch):
    monkeypatch.setattr(module, "LATE", 1000.0)
    monkeypatch.setattr(module, "GONE", 1000.0)
    one = scene()
    one.painter.wake()
    until(lambda: one.frames >= 3)
    one.answers = False
    until(lambda: one.painter.sent - one.painter.acknowledged == 2)
    stands = one.frames
    one.painter.wake()  # not even then
    threading.Event().wait(0.1)
    assert one.frames == stands
    one.painter.acknowledge(one.painter.sent)
    until(lambda: one.frames > stands)


def test_a_browser_that_is_gone_ends_the_thread_and_its_next_answer_starts_it(scene, monkeypatch):
    monkeypatch.setattr(module, "LATE", 0.01)
    monkeypatch.setattr(module, "GONE", 0.05)
    one = scene()
    one.painter.wake()
    until(lambda: one.frames >= 3)
    one.answers = False
    until(lambda: not one.painter.alive)
    stands = one.frames
    one.painter.wake()  # the lab goes on: one frame for a browser that may come back
    until(lambda: not one.painter.alive and one.frames > stands)
    one.answers = True
    one.painter.acknowledge(one.painter.sent)
    until(lambda: one.frames >= stands + 5)
    assert one.painter.alive


def test_frames_are_sent_slowly_without_acknowledgements(scene):
    one = scene(answers=False)
    one.painter.wake()
    until(lambda: one.frames >= 1)
    began, stands = time.monotonic(), one.frames
    until(lambda: one.frames >= stands + 2)
    assert time.monotonic() - began > module.SILENT / 2


def test_the_token_bucket_fills_with_time_and_drains_with_processor_time():
    now = {"wall": 0.0, "spent": 0.0}
    tokens = TokenBucket(0.25, lambda: now["wall"], lambda: now["spent"])
    assert tokens.left() == pytest.approx(0.25 * module.SAVED)
    now["spent"] += 1.0
    assert tokens.left() == pytest.approx(0.25 * module.SAVED - 1.0)
    now["wall"] += 4.0
    assert tokens.left() == pytest.approx(0.25 * module.SAVED)  # 1 s at a quarter of a core
    now["wall"] += 100.0
    assert tokens.left() == pytest.approx(0.25 * module.SAVED)  # the bucket holds no more


def test_an_action_makes_tokens_available_but_not_too_often():
    now = {"wall": 10.0, "spent": 0.0}
    tokens = TokenBucket(1.0, lambda: now["wall"], lambda: now["spent"])
    now["spent"] = module.SAVED + 5.0
    assert tokens.left() == pytest.approx(-5.0)
    tokens.grant()
    assert tokens.left() == pytest.approx(module.GRANT)
    now["spent"] += 5.0
    tokens.grant()  # too early
    assert tokens.left() == pytest.approx(module.GRANT - 5.0)
    now["wall"] += 2 * module.GRANT_EVERY
    assert tokens.left() < 0
    tokens.grant()
    assert tokens.left() == pytest.approx(module.GRANT)


def test_while_the_bucket_is_empty_nothing_is_drawn(scene):
    spent = [0.0]

    def during(frame):
        spent[0] += 1000.0

    one = scene(during=during, processor_clock=lambda: spent[0])
    one.painter.wake()
    until(lambda: one.frames >= 1)
    threading.Event().wait(0.1)
    assert one.frames == 1


def test_closing_twice_and_waking_after_that_is_harmless(scene):
    one = scene()
    one.painter.wake()
    until(lambda: one.frames >= 1)
    one.painter.close()
    one.painter.close()
    stands = one.frames
    one.painter.wake()
    one.painter.acknowledge(1)
    assert one.painter.join(1)
    assert one.frames == stands
