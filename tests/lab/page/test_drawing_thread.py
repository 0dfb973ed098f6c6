"""The drawing thread alone: when it draws, that it ends when the figure is hidden or unchanged, and that it restarts."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from labkit.lab.page import drawing_thread as module
from labkit.lab.page.drawing_thread import DrawingThread, TokenBucket


class Clock:
    """Seconds, of which 0.05 pass whenever the thread looks at it."""

    def __init__(self):
        self.seconds, self.changed = 0.0, threading.Condition()

    def __call__(self):
        with self.changed:
            self.seconds += 0.05
            self.changed.notify_all()
            return self.seconds

    def pass_by(self, seconds):
        """Wait until the thread has seen these seconds pass."""
        with self.changed:
            end = self.seconds + seconds
            self.changed.wait_for(lambda: self.seconds >= end)


class Scene:
    """A source of frames. `moves`: whether there will be more; `sends`: whether a frame is sent to the browser."""

    def __init__(self, moves=True, sends=True, answers=True, during=lambda frame: None, **clocks):
        self.moves, self.sends, self.answers, self.during = moves, sends, answers, during
        self.clock, self.changed = Clock(), threading.Condition()
        self.drawn_at = []  # seconds
        self.painter = DrawingThread("labkit-test-drawing", self.paint, clock=self.clock, **clocks)

    @property
    def frames(self):
        return len(self.drawn_at)

    def paint(self):
        with self.changed:
            self.drawn_at.append(self.clock.seconds)
            self.changed.notify_all()
        self.during(self.frames)
        if self.sends:
            number = self.painter.next_frame()
            if self.answers:
                self.painter.acknowledge(number)
        return 0.001 if self.moves else None

    def until_drawn(self, frames):
        """Wait until so many frames have been drawn."""
        with self.changed:
            self.changed.wait_for(lambda: self.frames >= frames)


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
    one.until_drawn(5)
    assert one.painter.alive


def test_the_thread_ends_when_nothing_moves_and_a_wake_starts_it_again(scene):
    one = scene(moves=False)
    one.painter.wake()
    assert one.painter.join()
    assert one.frames == 1
    one.painter.wake()
    assert one.painter.join()
    assert one.frames == 2


def test_an_answer_to_the_last_frame_starts_nothing(scene):
    one = scene(moves=False, answers=False)
    one.painter.wake()
    assert one.painter.join()
    for _ in range(3):
        one.painter.acknowledge(one.painter.sent)
        assert one.painter.join()
    assert one.frames == 1


def test_a_wake_up_during_the_last_frame_is_not_lost(scene):
    entered, leave = threading.Event(), threading.Event()

    def during(frame):
        if frame == 1:
            entered.set()
            leave.wait()

    one = scene(moves=False, sends=False, during=during)
    one.painter.wake()
    entered.wait()
    one.painter.wake()
    leave.set()
    one.until_drawn(2)
    assert one.painter.join()
    assert one.frames == 2


def test_at_most_two_frames_are_unacknowledged(scene, monkeypatch):
    monkeypatch.setattr(module, "LATE", 1000.0)
    monkeypatch.setattr(module, "GONE", 1000.0)
    one = scene()
    one.painter.wake()
    one.until_drawn(3)
    one.answers = False
    one.clock.pass_by(2)
    stands = one.frames
    assert one.painter.sent - one.painter.acknowledged == 2
    one.painter.wake()  # not even then
    one.clock.pass_by(2)
    assert one.frames == stands
    one.painter.acknowledge(one.painter.sent)
    one.until_drawn(stands + 1)


def test_a_browser_that_is_gone_ends_the_thread_and_its_next_answer_starts_it(scene, monkeypatch):
    monkeypatch.setattr(module, "GONE", 2.0)
    one = scene()
    one.painter.wake()
    one.until_drawn(3)
    one.answers = False
    assert one.painter.join()
    stands = one.frames
    one.painter.wake()  # the lab goes on: one frame for a browser that may come back
    assert one.painter.join()
    assert one.frames == stands + 1
    one.answers = True
    one.painter.acknowledge(one.painter.sent)
    one.until_drawn(stands + 6)
    assert one.painter.alive


def test_frames_are_sent_slowly_without_acknowledgements(scene):
    one = scene(answers=False)
    one.painter.wake()
    one.until_drawn(4)
    assert min(later - earlier for earlier, later in pairwise(one.drawn_at)) >= module.SILENT


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
    one.until_drawn(1)
    one.clock.pass_by(2)
    assert one.frames == 1


def test_closing_twice_and_waking_after_that_is_harmless(scene):
    one = scene()
    one.painter.wake()
    one.until_drawn(1)
    one.painter.close()
    one.painter.close()
    stands = one.frames
    one.painter.wake()
    one.painter.acknowledge(1)
    assert one.painter.join()
    assert one.frames == stands
