"""Activity of a run, for threads that wait for it: they wake when something has happened, and give up without signs of life."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping

from ....errors import ClusterError
from ..failure_detector import FailureDetector
from ..timeouts import ABSENT_S, SILENT_S
from .recovery_events import OfRole, RecoveryEvent, WorkerHeartbeats, WorkerJoined, WorkerLeft

CHECK_S = 0.25  # longest interval between two evaluations of a condition, which may depend on the time; seconds


class Activity:
    """The activity of one run. The run's thread calls `handled` and `close`, any thread calls `wait_until`.

    `heartbeat_timeout`: of roles, seconds; recovery acts on a loss after it. `clock`: wall seconds.
    """

    def __init__(self, heartbeat_timeout: float, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._silent_s = max(SILENT_S, 2 * heartbeat_timeout)
        self._changed = threading.Condition()
        self._handled = 0  # events that the run's thread has handled
        self._signs = 0  # of these, signs of life of roles and of Dask workers
        self._heartbeats: Mapping[str, Hashable] = {}
        self._closed = False

    def handled(self, event: RecoveryEvent | None) -> None:
        """Wake the waiting threads after `event`; None: after a check of time limits."""
        new = isinstance(event, WorkerHeartbeats) and event.seen != self._heartbeats
        if isinstance(event, WorkerHeartbeats):
            self._heartbeats = event.seen
        with self._changed:
            self._handled += 1
            self._signs += new or isinstance(event, OfRole | WorkerJoined | WorkerLeft)
            self._changed.notify_all()

    def close(self) -> None:
        """Wake the waiting threads for the last time: the run is over."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until `condition()` is true. Returns whether it is; False: the run is over, and it is not.

        Raises `TimeoutError` after `timeout` seconds, and `ClusterError` if no role and no Dask worker gives a sign of life.
        """
        detector, name, now = FailureDetector(ABSENT_S), "the run", self._clock()
        deadline = math.inf if timeout is None else now + timeout
        detector.watch([name], now)
        while True:
            detector.consult(now)
            handled, over = self._handled, self._closed
            if condition():
                return True
            now = self._clock()
            if over:
                return False
            if now >= deadline:
                raise TimeoutError
            detector.consult(now)
            detector.progress(name, self._signs, now)
            if detector.silent(self._silent_s, now):
                raise ClusterError(f"no role and no Dask worker has given a sign of life for {self._silent_s:g} s")
            with self._changed:
                if self._handled == handled and not self._closed:
                    self._changed.wait(min(CHECK_S, deadline - now))
