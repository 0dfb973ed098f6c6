"""The drawing thread: as many frames as the budget and the browser allow, the newest always, none for nobody.

Drawing takes processor time from the roles that are watched. So the thread takes at most `share` of one core, counted in
its own processor time: a frame that had to wait for a core is not paid for twice. And it stands behind the roles: it is
"nice", so it gives way when one of them wakes up. Each frame has a number that the browser writes back. The next one
waits until at most one is unanswered; a browser that has answered before and now says nothing for a while is gone, and
the thread ends (an answer starts it again). Where answers never come, frames come at a fixed slow rate.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

__all__ = ["SHARE", "Painter"]

SHARE = 0.12  # of one core; a frame takes 20 to 50 ms of it: `python -m benchmarks --only watching`
NICE = 5  # lower priority, on Linux, where a thread has its own; more, and a busy machine shows no frames at all
FASTEST, BLIND = 0.1, 0.4  # seconds between two frames: at best; if no browser has ever answered
PATIENCE, GONE = 1.0, 60.0  # seconds without an answer: until frames come at the slow rate; until nobody is there


class Painter:
    """Calls `paint(frame)` from a thread of its own until it returns False. `paint` may not raise.

    `tick()`, if given, is called between frames, about every 20 ms: something that has to go on while nothing is drawn.
    `share`: of one core, at most, for drawing.
    """

    def __init__(
        self, name: str, paint: Callable[[int], bool], tick: Callable[[], None] | None = None, share: float = SHARE
    ):
        self.name, self._paint, self._tick, self.share = name, paint, tick, share
        self.frame = 0
        self.answered = -1
        self._heard = 0.0
        self._urgent = False
        self._stop, self._wake = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self.thread is not None and self.thread.is_alive()

    def start(self) -> None:
        """Begin, or begin again after the thread has ended; nothing if it runs or was closed."""
        with self._lock:
            if self._stop.is_set() or self.alive:
                return
            self._heard = time.monotonic()
            self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            atexit.register(self.close)
            self.thread.start()

    def wake(self) -> None:
        """Draw at once: somebody pressed a button."""
        self._urgent = True
        self._wake.set()

    def answer(self, frame: int) -> None:
        """The browser has shown this frame."""
        self.answered, self._heard = frame, time.monotonic()
        self._wake.set()
        if not self.alive:
            self.start()

    def close(self) -> None:
        """End the thread and wait for it. Twice is as good as once."""
        self._stop.set()
        self._wake.set()
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)
        atexit.unregister(self.close)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end by itself; whether it has."""
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return not self.alive

    def _run(self) -> None:
        _stand_back()
        try:
            while not self._stop.is_set():
                began, spent = time.monotonic(), time.thread_time()
                self.frame += 1
                if not self._paint(self.frame):
                    return
                now, spent = time.monotonic(), time.thread_time() - spent
                if not self._rest(now, self._period(spent) - (now - began)):
                    return
        finally:
            atexit.unregister(self.close)

    def _period(self, spent: float) -> float:
        """Seconds from the beginning of a frame that took `spent` seconds of processor time to that of the next."""
        return max(FASTEST, spent / self.share)

    def _rest(self, since: float, least: float) -> bool:
        """Sleep until the next frame is due; False if nobody is there any more."""
        while not self._stop.is_set():
            now = time.monotonic()
            if self._urgent or self._due(now, since, least):
                self._urgent = False
                return True
            if self.answered >= 0 and now - self._heard > GONE:
                return self._tick is not None  # a player plays on to its end, unseen
            if self._tick is not None:
                self._tick()
            if self._wake.wait(0.02 if self._tick is not None else min(0.1, max(0.005, since + least - now))):
                self._wake.clear()
        return False

    def _due(self, now: float, since: float, least: float) -> bool:
        if now < since + least:
            return False
        if self.answered < 0:
            return now >= since + BLIND
        unanswered = self.frame - self.answered
        return unanswered <= 1 or (now - self._heard > PATIENCE and now >= since + PATIENCE)


def _stand_back() -> None:
    """Lower the priority of this thread, where threads have their own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
