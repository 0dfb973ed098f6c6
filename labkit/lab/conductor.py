"""The one hand that moves a lab: commands in the order in which they came, and what goes on in between.

Buttons are pressed on whichever thread the front end chooses, cells run on another, and a run in virtual time may be
moved by one thread only. So everybody hands commands to this thread. It is there while there is something to do and
ends when there is not; the next command starts another.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Conductor"]

LINGER = 2.0  # seconds without anything to do until the thread ends


class Conductor:
    """`tick()` does what is due and returns the seconds until it wants to be called again, or None: nothing goes on.

    `tick` and all commands run on one thread, one after the other. Neither may block for long.
    """

    def __init__(self, name: str, tick: Callable[[], float | None]):
        self.name, self._tick = name, tick
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.waiting = 0  # commands that are not done yet

    def do(self, command: Callable[[], Any]) -> Future[Any]:
        """Hand a command over; what comes of it is in the future."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(RuntimeError("This lab is closed; make a new one."))
                return future
            self.waiting += 1
            self._queue.put((command, future))
            self._go()
        return future

    def call(self, command: Callable[[], Any]) -> Any:
        """Hand a command over and wait for it: its result, or what it raised. Ctrl-C ends the waiting only."""
        if threading.current_thread() is self._thread:
            return command()
        return self.do(command).result()

    def nudge(self) -> None:
        """There may be something to do: look now."""
        with self._lock:
            if not self._closed:
                self._queue.put(None)
                self._go()

    @property
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """No more commands; those handed over are done first. Twice is as good as once."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)

    def _go(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        idle_since: float | None = None
        while True:
            pause = None if self._closed else self._tick()
            now = time.monotonic()
            if pause is not None:
                idle_since = None
            elif idle_since is None:
                idle_since = now
            if self._take(LINGER if pause is None else pause):
                idle_since = None
                continue
            with self._lock:
                idle = idle_since is not None and time.monotonic() - idle_since >= LINGER
                if (self._closed or idle) and self._queue.empty():
                    self._thread = None
                    return

    def _take(self, timeout: float) -> bool:
        """Carry out the next command, if one comes in time; whether there was one."""
        try:
            item = (
                self._queue.get(timeout=0.0 if self._closed else max(timeout, 0.0))
                if timeout > 0
                else self._queue.get_nowait()
            )
        except queue.Empty:
            return False
        if item is None:
            return False
        command, future = item
        try:
            future.set_result(command())
        except BaseException as error:  # whoever asked is told
            future.set_exception(error)
        finally:
            with self._lock:
                self.waiting -= 1
        return True
