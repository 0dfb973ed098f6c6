"""The drawing thread: as many frames as the budget and the browser allow, the newest always, none for nobody.

Drawing takes processor time from the roles that are watched. So there is a purse: it fills with `share` seconds of
processor time a second of wall time, frames are paid out of it by the time that this thread has really used, and while
it is empty there is none. The thread is "nice", so it gives way when a role wakes up.

Each frame that is sent has a number that the browser writes back. The next one waits until at most one is unanswered. A
browser that has answered before and says nothing for a while is gone: the thread ends, and its next answer starts it
again. Where answers never come, frames come at a slow rate. When nothing moves any more `paint` says so, and the thread
ends too; then it takes a `wake` to start it, and an answer does not.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

__all__ = ["BUSY", "SHARE", "Painter"]

SHARE, BUSY = 0.28, 0.12  # of one core: while the cores are idle most of the time; beside roles that never wait
NICE = 5  # lower priority, on Linux, where a thread has its own; more, and a busy machine shows no frames at all
SAVED = 1.2  # seconds of wall time whose share can be saved up: a click may then redraw everything at once
TREAT, SELDOM = (
    0.15,
    1.0,
)  # seconds of processor time that are there when somebody acts; wall time between two such gifts
URGENT = 0.03  # seconds between two frames at least, however much somebody presses
BLIND, BLINDEST = 0.4, 2.0  # seconds between two frames if no browser has ever answered: at first, and later
PATIENCE, GONE = 1.0, 15.0  # seconds without an answer: until frames come at the slow rate; until nobody is there


class Painter:
    """Calls `paint()` from a thread of its own: it draws one frame and returns the seconds until it wants to draw the
    next, or None: nothing moves, and the thread ends. `paint` may not raise.

    `share`: of one core, at most, for drawing; it can be changed at any time.
    """

    def __init__(self, name: str, paint: Callable[[], float | None], share: float = SHARE):
        self.name, self._paint, self.share = name, paint, share
        self.sent = 0  # frames sent so far
        self.answered = -1  # the last one that a browser has shown; -1: none has ever answered
        self.thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._urgent = self._gone = self._closed = False
        self._purse, self._filled, self._spent = share * SAVED, time.monotonic(), 0.0
        self._heard = 0.0
        self._acted = self._treated = -SELDOM
        self._process = os.getpid()
        atexit.register(self.close)

    # from any thread --------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self.thread is not None

    @property
    def urgent(self) -> bool:
        """Whether a newer frame is wanted than the one that is being drawn."""
        return self._urgent

    @property
    def quiet(self) -> float:
        """Seconds since a person did something."""
        return time.monotonic() - self._acted

    def wake(self) -> None:
        """Something has changed: draw now; begin again if the thread has ended."""
        with self._lock:
            self._urgent = True
            self._go()
        self._bell.set()

    def treat(self) -> None:
        """A person has acted: what follows is drawn at once, whatever was spent before."""
        self._acted = now = time.monotonic()
        if now - self._treated > SELDOM:
            self._treated, self._purse = now, max(self._purse, TREAT)

    def answer(self, frame: int) -> None:
        """The browser has shown this frame."""
        with self._lock:
            self.answered, self._heard = frame, time.monotonic()
            if self._gone:
                self._gone = False
                self._go()
        self._bell.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end by itself; whether it has."""
        thread = self.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return not self.alive

    def close(self) -> None:
        """End the thread and wait for it. Twice is as good as once. Does nothing in a forked child: the thread is not there."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            thread = self.thread
        self._bell.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)
        atexit.unregister(self.close)

    def _go(self) -> None:
        if self._closed or self.thread is not None:
            return
        if not self._gone:
            self._heard = time.monotonic()
        self.thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self.thread.start()

    # on the thread ----------------------------------------------------------------------------------------------------

    def stamp(self) -> int:
        """The number of the frame that is being sent."""
        self.sent += 1
        return self.sent

    def left(self) -> float:
        """Seconds of processor time that there are still to spend in this frame."""
        now, spent = time.monotonic(), time.thread_time()
        self._purse += self.share * (now - self._filled) - (spent - self._spent)
        self._purse = min(self._purse, self.share * SAVED)
        self._filled, self._spent = now, spent
        return self._purse

    def _work(self) -> None:
        _stand_back()
        self._spent = time.thread_time()  # of this thread: each has its own
        rest: float | None = 0.0
        while True:
            with self._lock:
                self._urgent = False
            began = time.monotonic()
            try:
                rest = self._paint()
            except BaseException:
                self.thread = None
                raise
            with self._lock:
                if self._closed or (rest is None and not self._urgent):
                    self.thread = None
                    break
            if not self._wait(began, rest or 0.0):
                break

    def _wait(self, began: float, rest: float) -> bool:
        """Until the next frame is due; False if there is to be none: then the thread is no more."""
        while True:
            now = time.monotonic()
            if self._due(now, began, rest):
                return True
            with self._lock:
                self._gone = self.answered >= 0 and self._pending > 0 and now - self._heard > GONE
                if self._closed or self._gone:
                    self.thread = None
                    return False
            if self._bell.wait(0.02):
                self._bell.clear()

    @property
    def _pending(self) -> int:
        return self.sent - self.answered

    def _due(self, now: float, began: float, rest: float) -> bool:
        if self.left() < 0 or now < began + URGENT:
            return False
        if self.answered < 0:
            return self._urgent or now >= began + max(rest, min(BLIND + 0.02 * self.sent, BLINDEST))
        if self._pending > 1:
            return now - self._heard > PATIENCE and now >= began + PATIENCE
        return self._urgent or now >= began + rest


def _stand_back() -> None:
    """Lower the priority of this thread, where threads have their own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
