"""Waiting for sockets, with a bell that another thread can ring.

Law: who is asked to wait looks first, then watches for a moment while offering its core to others, and only then
sleeps. Being woken on an idle core costs more than a 40 KB message itself: a round trip between two processes took 55
to 75 us with the moment of watching, and 60 to 230 us without, depending on where the kernel had put them (2 virtual
cores; `python -m benchmarks --only round-trip`). After watching in vain it sleeps at once for a while, so that a role
whose answers take long burns no core.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import Any

__all__ = ["READ", "WRITE", "Poller"]

READ, WRITE = select.POLLIN, select.POLLOUT  # epoll's have the same values
_WATCH_NS = 120_000  # a moment
_SLEEPS = 8  # waits without watching after one that watched in vain
_offer = getattr(os, "sched_yield", lambda: time.sleep(0))  # the core, to whoever is ready to run


class Poller:
    """epoll where there is one, poll elsewhere (macOS)."""

    def __init__(self) -> None:
        epoll = hasattr(select, "epoll")
        self._poller: Any = select.epoll() if epoll else select.poll()
        self._second = 1.0 if epoll else 1000.0  # in the poller's unit of time
        self._tired = 0
        self._bell, self._rope = socket.socketpair()
        for sock in (self._bell, self._rope):
            sock.setblocking(False)
        self.register, self.modify = self._poller.register, self._poller.modify
        self.unregister = self._poller.unregister
        self.register(self._bell.fileno(), READ)

    def wait(self, timeout_s: float) -> list[int]:
        """Descriptors that something has happened to. Waits at most `timeout_s` seconds, less if the bell rings."""
        poll = self._poller.poll
        events = poll(0)
        if not events and timeout_s > 0:
            events = self._watch() or poll(timeout_s * self._second)
        ready = [fd for fd, _ in events]
        if self._bell.fileno() in ready:
            ready.remove(self._bell.fileno())
            self._bell.recv(4096)
        return ready

    def _watch(self) -> list[tuple[int, int]]:
        if self._tired:
            self._tired -= 1
            return []
        poll, clock = self._poller.poll, time.perf_counter_ns
        until = clock() + _WATCH_NS
        while clock() < until:
            _offer()
            if events := poll(0):
                return events
        self._tired = _SLEEPS
        return []

    def wake(self) -> None:
        """End the current `wait`, or the next one. For any thread."""
        with contextlib.suppress(OSError):  # full: it rings already; closed: nobody waits
            self._rope.send(b"!")

    def close(self) -> None:
        self._bell.close()
        self._rope.close()
        if hasattr(self._poller, "close"):
            self._poller.close()
