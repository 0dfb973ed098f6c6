"""Waiting for sockets and for shared memory, with a bell that another thread can ring.

Law: who is asked to wait looks first, then watches for a moment while offering its core to others, and only then
sleeps. To be woken on an idle core costs more than a 40 KB message itself, about 50 us where cores are virtual. Who
waited longer than a moment last time sleeps at once, so that a role whose answers take long (a paced worker, the chief)
burns no core. The length of the moment: a ring of 4 workers on 2 cores made 2,600 gradients a second with 0.2 ms, 3,700
with 1 ms, 3,900 with 2.5 ms; an asynchronous server with 2 workers made no difference from 0.2 to 1 ms
(`python -m benchmarks --only throughput`).

A wait ends when its time is over, to the accuracy of the kernel's timers (about 0.1 ms), not at the next whole
millisecond, which is as exact as `epoll` and `poll` are: an epoll descriptor is itself waited for by `select`, whose
timeout is in microseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import Any

from .shared import Reader

__all__ = ["READ", "WRITE", "Poller"]

READ, WRITE = select.POLLIN, select.POLLOUT  # epoll's have the same values
_WATCH_NS = 1_000_000  # a moment
_SELECTABLE = 1024  # FD_SETSIZE: descriptors from here on cannot be given to select()
_TURNS = 8  # looks into shared memory for one look at the sockets
_offer = getattr(os, "sched_yield", lambda: time.sleep(0))  # the core, to whoever is ready to run


class Poller:
    """epoll where there is one, poll elsewhere (macOS)."""

    def __init__(self) -> None:
        epoll = hasattr(select, "epoll")
        poller: Any = select.epoll() if epoll else select.poll()
        self._poller = poller
        self._second = 1.0 if epoll else 1000.0  # in the poller's unit of time
        self._exact = epoll and self._poller.fileno() < _SELECTABLE
        self._looks = 0
        self._short = True  # the last wait was
        self.streams: list[Reader] = []  # shared memory to be looked into as well
        self._bell, self._rope = socket.socketpair()
        for sock in (self._bell, self._rope):
            sock.setblocking(False)
        self.register, self.modify = self._poller.register, self._poller.modify
        self.unregister = self._poller.unregister
        self.register(self._bell.fileno(), READ)

    def wait(self, timeout_s: float, watch: bool = True) -> list[int]:
        """Descriptors that something has happened to; none if it was a stream, or nothing.

        Waits at most `timeout_s` seconds, less if the bell rings. `watch=False`: sleeps at once; for a caller that lets
        time pass and does not wait for an answer.
        """
        self._looks += 1
        if self._news():
            if self._looks % _TURNS:
                return []
            timeout_s = 0.0  # where streams always have news, sockets have their turn from time to time
        events = self._poller.poll(0)
        if not events and timeout_s > 0:
            events = self._watch(timeout_s) if watch else self._sleep(timeout_s)
        return self._without_bell(events)

    def look(self) -> list[int]:
        """Descriptors that something has happened to, as of now; memory is not looked into."""
        return self._without_bell(self._poller.poll(0))

    def _without_bell(self, events: list[tuple[int, int]]) -> list[int]:
        ready = [fd for fd, _ in events]
        if self._bell.fileno() in ready:
            ready.remove(self._bell.fileno())
            self._bell.recv(4096)
        return ready

    def _news(self) -> bool:
        for stream in self.streams:  # noqa: SIM110 - a generator costs more than the looks, some 100,000 times a second
            if stream.ready():
                return True
        return False

    def _watch(self, timeout_s: float) -> list[tuple[int, int]]:
        """Nothing has come yet. Watch, if the last wait was a short one; sleep, if it takes long."""
        clock, news = time.perf_counter_ns, self._news
        began = clock()
        end = began + round(timeout_s * 1e9)
        until = min(began + _WATCH_NS, end) if self._short else began
        while clock() < until:
            for _ in range(_TURNS):
                _offer()
                if news():
                    return []
            if events := self._poller.poll(0):
                return events
        events = self._sleep((end - clock()) / 1e9)
        self._short = clock() - began < _WATCH_NS
        return events

    def _sleep(self, timeout_s: float) -> list[tuple[int, int]]:
        awake = [stream for stream in self.streams if not stream.sleep()]
        events = self._poller.poll(0) if awake or timeout_s <= 0 else self._events(timeout_s)
        for stream in self.streams:
            stream.woke()
        return events

    def _events(self, timeout_s: float) -> list[tuple[int, int]]:
        """What has happened to descriptors, within `timeout_s` seconds, to the accuracy of the kernel's timers."""
        if self._exact:
            select.select([self._poller], [], [], timeout_s)
            return self._poller.poll(0)  # type: ignore[no-any-return]
        whole, rest = divmod(timeout_s * 1000, 1)  # milliseconds: these pollers round up to them
        if events := self._poller.poll(whole / 1000 * self._second):
            return events  # type: ignore[no-any-return]
        time.sleep(rest / 1000)
        return self._poller.poll(0)  # type: ignore[no-any-return]

    def wake(self) -> None:
        """End the current `wait`, or the next one. For any thread."""
        with contextlib.suppress(OSError):  # full: it rings already; closed: nobody waits
            self._rope.send(b"!")

    def close(self) -> None:
        self._bell.close()
        self._rope.close()
        if hasattr(self._poller, "close"):
            self._poller.close()
