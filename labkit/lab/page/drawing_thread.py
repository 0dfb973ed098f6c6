"""The drawing thread: draws the newest frame as often as the budget and the browser allow, and stops when nothing changes.

Drawing takes processor time from the roles. It is limited by a token bucket, which fills with `share` seconds of processor time
per second of wall time; each frame takes out the processor time that the thread used, and while the bucket is empty nothing is
drawn. The thread has a lower priority, so that it yields to roles.

Each frame that is sent has a number that the browser acknowledges. The next frame waits until at most one is unacknowledged. If a
browser that has acknowledged frames stops doing so, it is taken to be gone: the thread ends, and the next acknowledgement starts
it again. Without any acknowledgements frames are sent at a slow rate. When the lab is idle `paint` returns None and the thread
ends too; then `wake` starts it again, and an acknowledgement does not.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable

# Of one core: while a run is played or is idle; while paced processes train; while processes train at full speed, so that each
# frame takes time from them, twice: here, and in a browser on the same machine.
SHARE, BUSY, FULL_SPEED = 0.28, 0.12, 0.08
NICE = 5  # lower priority, on Linux, where threads have their own; with a higher value a busy machine shows no frames
SAVED = 1.2  # capacity of the bucket in seconds of wall time, so that a click can redraw everything at once
GRANT = 0.15  # seconds of processor time that are available at once after an action of the user
GRANT_EVERY = 1.0  # seconds of wall time between two such grants
URGENT = 0.03  # minimum seconds between two frames, for any number of button presses
SILENT, MOST_SILENT = (
    0.4,
    2.0,
)  # seconds between two frames if no browser has ever acknowledged one: at first, and later
LATE = 1.0  # seconds without an acknowledgement after which frames come at a slow rate
GONE = 15.0  # seconds without an acknowledgement after which the browser is taken to be gone


class TokenBucket:
    """Seconds of processor time that may be used for drawing. `share`: the fill rate per second of wall time."""

    def __init__(self, share: float, clock: Callable[[], float], processor_clock: Callable[[], float]):
        self.share, self._clock, self._processor_clock = share, clock, processor_clock
        self._tokens, self._filled, self._spent = share * SAVED, clock(), 0.0
        self._granted = -GRANT_EVERY

    def restart(self) -> None:
        """Restart the measurement of processor time, for a new thread."""
        self._spent = self._processor_clock()

    def left(self) -> float:
        """Seconds of processor time that may still be used now; negative after an expensive frame."""
        now, spent = self._clock(), self._processor_clock()
        self._tokens += self.share * (now - self._filled) - (spent - self._spent)
        self._tokens = min(self._tokens, self.share * SAVED)
        self._filled, self._spent = now, spent
        return self._tokens

    def grant(self) -> None:
        """Make at least `GRANT` seconds available, but not more often than every `GRANT_EVERY` seconds."""
        now = self._clock()
        if now - self._granted > GRANT_EVERY:
            self._granted, self._tokens = now, max(self._tokens, GRANT)


class DrawingThread:
    """Calls `paint()` on a separate thread. `paint` draws one frame and returns the seconds until the next one, or None if the
    lab is idle: then the thread ends. `paint` must not raise.

    `share`: the maximum fraction of one core for drawing. The clocks return seconds of wall time, and of processor time of the
    calling thread.
    """

    def __init__(
        self, name: str, paint: Callable[[], float | None], share: float = SHARE,
        clock: Callable[[], float] = time.monotonic, processor_clock: Callable[[], float] = time.thread_time,
    ):  # fmt: skip
        self.name, self._paint, self._clock = name, paint, clock
        self.sent = 0  # frames sent so far
        self.acknowledged = -1  # the last frame that a browser acknowledged; -1: none
        self._tokens = TokenBucket(share, clock, processor_clock)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._wakes = threading.Event()
        self._urgent = self._gone = self._closed = False
        self._heard = 0.0
        self._acted = -GRANT_EVERY
        self._process = os.getpid()
        atexit.register(self.close)

    # from any thread --------------------------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """The maximum fraction of one core for drawing. It can be changed at any time."""
        return self._tokens.share

    @share.setter
    def share(self, share: float) -> None:
        self._tokens.share = share

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    @property
    def watched(self) -> bool:
        """Whether a browser has acknowledged a frame and is not taken to be gone."""
        return self.acknowledged >= 0 and not self._gone

    @property
    def since_action(self) -> float:
        """Seconds since the last action of the user."""
        return self._clock() - self._acted

    def wake(self) -> None:
        """Something has changed: draw now; start the thread again if it has ended."""
        with self._lock:
            self._urgent = True
            self._start()
        self._wakes.set()

    def after_action(self) -> None:
        """The user has acted: draw the next frame at once, even if the budget is spent."""
        self._acted = self._clock()
        self._tokens.grant()

    def acknowledge(self, frame: int) -> None:
        """The browser has shown this frame."""
        with self._lock:
            self.acknowledged, self._heard = frame, self._clock()
            if self._gone:
                self._gone = False
                self._start()
        self._wakes.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread ends because the lab is idle; returns whether it has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return not self.alive

    def close(self) -> None:
        """End the thread and wait for it. Idempotent. Does nothing in a forked child, which has no such thread."""
        if os.getpid() != self._process:
            return
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wakes.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(5)
        atexit.unregister(self.close)

    def _start(self) -> None:
        if self._closed or self._thread is not None:
            return
        if not self._gone:
            self._heard = self._clock()
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    # on the thread ----------------------------------------------------------------------------------------------------

    def next_frame(self) -> int:
        """The number of the frame that is being sent."""
        self.sent += 1
        return self.sent

    def left(self) -> float:
        """Seconds of processor time that may still be used in this frame."""
        return self._tokens.left()

    def _work(self) -> None:
        _lower_priority()
        self._tokens.restart()
        rest: float | None = 0.0
        while True:
            with self._lock:
                self._urgent = False
            began = self._clock()
            try:
                rest = self._paint()
            except BaseException:
                self._thread = None
                raise
            with self._lock:
                if self._closed or (rest is None and not self._urgent):
                    self._thread = None
                    break
            if not self._wait(began, rest or 0.0):
                break

    def _wait(self, began: float, rest: float) -> bool:
        """Wait until the next frame is due. Returns False, and the thread has ended, if there is none."""
        while True:
            now = self._clock()
            if self._due(now, began, rest):
                return True
            with self._lock:
                self._gone = self.acknowledged >= 0 and self._pending > 0 and now - self._heard > GONE
                if self._closed or self._gone:
                    self._thread = None
                    return False
            if self._wakes.wait(0.02):
                self._wakes.clear()

    @property
    def _pending(self) -> int:
        return self.sent - self.acknowledged

    def _due(self, now: float, began: float, rest: float) -> bool:
        if self.left() < 0 or now < began + URGENT:
            return False
        if self.acknowledged < 0:
            return self._urgent or now >= began + max(rest, min(SILENT + 0.02 * self.sent, MOST_SILENT))
        if self._pending > 1:
            return now - self._heard > LATE and now >= began + LATE
        return self._urgent or now >= began + rest


def _lower_priority() -> None:
    """Lower the priority of this thread, where threads have their own."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
