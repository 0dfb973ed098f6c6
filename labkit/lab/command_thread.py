"""The command queue of a lab and the thread that executes it.

Button events can arrive on any thread, cells run on another thread, and a run in virtual time must be advanced by a
single thread. Therefore commands are put into a queue. One thread executes the commands in order, and advances the run
between two commands.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from ..errors import LabkitError

LINGER = 2.0  # idle seconds after which the thread ends
FINISH_POLL = 0.02  # seconds between two slices of a run that is advanced as fast as possible


class CommandThread:
    """A thread that executes commands in order, and calls `tick` between them. It ends when it is idle, and the next
    command starts it again.

    `tick()` does the work that is due, and returns the seconds until its next call, or None if it is idle. Neither `tick`
    nor a command may block for long.
    """

    def __init__(self, name: str, tick: Callable[[], float | None]):
        self.name, self._tick = name, tick
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.pending = 0  # commands that are not done yet

    def submit(self, command: Callable[[], Any]) -> Future[Any]:
        """Put a command into the queue, and return a future with its result or its exception."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(RuntimeError("This lab is closed; make a new one."))
                return future
            self.pending += 1
            self._queue.put((command, future))
            self._start()
        return future

    def call(self, command: Callable[[], Any]) -> Any:
        """Execute a command and wait for it. Return its result, or raise its exception. Ctrl-C ends the wait, but not the
        command.
        """
        if threading.current_thread() is self._thread:
            return command()
        return self.submit(command).result()

    def wake(self) -> None:
        """Call `tick` now, because there may be work."""
        with self._lock:
            if not self._closed:
                self._queue.put(None)
                self._start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the thread ends because it is idle. Return whether it has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        return not self.alive

    def close(self) -> None:
        """Accept no more commands, and end the thread after the commands in the queue. Idempotent."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self.join(10)

    def _start(self) -> None:
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
            if self._execute_next(LINGER if pause is None else pause):
                idle_since = None
                continue
            with self._lock:
                idle = idle_since is not None and time.monotonic() - idle_since >= LINGER
                if (self._closed or idle) and self._queue.empty():
                    self._thread = None
                    return

    def _execute_next(self, timeout: float) -> bool:
        """Execute the next command, if one arrives within `timeout` seconds. Return whether a command was executed."""
        wait = 0.0 if self._closed else max(timeout, 0.0)
        try:
            item = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
        except queue.Empty:
            return False
        if item is None:
            return False
        command, future = item
        try:
            future.set_result(command())
        except BaseException as error:  # the future passes it to the caller
            future.set_exception(error)
        finally:
            with self._lock:
                self.pending -= 1
        return True


class Movable(Protocol):
    """Interface of the object that the thread advances between two commands."""

    def advance(self) -> float | None:
        """Do the work that is due. Return the seconds until there may be more work, or None if idle."""

    def finish(self) -> None:
        """Advance a simulated run by one slice, as fast as possible."""

    def abort(self) -> None:
        """Stop advancing, because `advance` raised an error."""


class CommandQueue:
    """The queue of the commands of programs and buttons, which one thread executes.

    A program waits for its command, and its exception is raised there. For a button, the page shows the command in
    progress at once, and an error later.

    `moves`: the object that the thread advances between two commands. `changed`: called, on any thread, when the page may
    have to be drawn again. `busy`: the text of the command in progress, or "". `problem`: the text of the last error.
    `error`: the last error that was not raised by a command, but for example in the next step of a scenario, or when
    processes were started.
    """

    def __init__(self, name: str, moves: Movable, changed: Callable[[], None]):
        self._moves, self._changed = moves, changed
        self.busy, self.problem = "", ""
        self.error: Exception | None = None
        self._at_rest = threading.Condition()
        self._moving = False
        self._held = False
        self._thread = CommandThread(name, self._advance)

    @property
    def held(self) -> bool:
        """Whether the Pause button was pressed. If so, `rest` waits until the run has been resumed and has ended."""
        return self._held

    def call(self, busy: str, command: Callable[[], Any]) -> Any:
        """Execute a command, wait for it, and return its result or raise its exception. `busy`: the text on the page in
        the meantime.
        """
        self._held, self.error, self.problem = False, None, ""
        return self._thread.call(partial(self._execute, busy, command))

    def press(self, busy: str, command: Callable[[], Any], once: bool = False, holds: bool = False) -> None:
        """Execute a command as soon as possible. An error is shown, and not raised.

        `once`: ignore the command if the same command is in progress, as after a double click. `holds`: the new value of
        `held`.
        """
        if once and busy == self.busy:
            return
        self._held = holds
        self.problem, self.error, self.busy = "", None, busy
        self._set_moving(True)
        self._thread.submit(partial(self._execute, busy, command)).add_done_callback(self._show_error)
        self._changed()

    def refuse(self, problem: str) -> None:
        """Show the reason why a button did not submit a command, or why its command failed."""
        self.problem = problem
        self._changed()

    def wake(self) -> None:
        """Notify the thread of possible work, and the page of a change."""
        self._thread.wake()
        self._changed()

    def rest(self, timeout: float | None, fast: bool) -> None:
        """Wait until idle.

        `fast`: whether a simulated run is advanced as fast as possible, and not played at its speed. Raises
        `TimeoutError` after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._thread.call(lambda: None)  # wait for the commands that are already in the queue
        while True:
            if fast:
                self._thread.call(self._moves.finish)
            with self._at_rest:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                limit = min(FINISH_POLL, left or FINISH_POLL) if fast else left
                if self._at_rest.wait_for(lambda: not self._moving and not self._held, limit):
                    return
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"The lab is not idle after {timeout:g} s; it continues.")

    def close(self) -> None:
        """End the thread, after the commands that are in the queue."""
        self._thread.close()
        self._set_moving(False)

    # on the command thread --------------------------------------------------------------------------------------------

    def _execute(self, busy: str, command: Callable[[], Any]) -> Any:
        self.busy = busy
        self._set_moving(True)
        self._changed()
        try:
            return command()
        finally:
            self.busy = ""
            self._changed()

    def _advance(self) -> float | None:
        try:
            pause = self._moves.advance()
        except Exception as error:  # no caller waits for this exception, so it is shown, and raised by `Lab.wait`
            self.error, self.problem = error, _text(error)
            self._moves.abort()
            pause = None
        self._set_moving(pause is not None)
        if pause is None:
            self._changed()
        return pause

    def _show_error(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            self.refuse(_text(error))

    def _set_moving(self, moving: bool) -> None:
        with self._at_rest:
            self._moving = moving
            if not moving:
                self._at_rest.notify_all()


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
