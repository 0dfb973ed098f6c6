"""Waits for sockets and for shared memory, until an event, a timeout, or the doorbell from another thread.

A wait first polls once, then polls repeatedly for 1 ms while yielding its core to other processes, and only then sleeps. The
reason is that a wake-up on an idle core takes about 50 us on virtual cores, which is longer than the transfer of a 40 KB
message. If the last wait took longer than 1 ms, the next wait sleeps at once, so a role that waits long (a paced worker, the
chief) uses no processor time. The limit of 1 ms was chosen by measurement. A ring of 4 workers on 2 cores made 2,600 gradients
per second with 0.2 ms, 3,700 with 1 ms, and 3,900 with 2.5 ms. For an asynchronous server with 2 workers, 0.2 to 1 ms made no
difference (`python -m benchmarks --only throughput`).

Timeouts have the accuracy of the kernel's timers (about 0.1 ms). `epoll` and `poll` themselves round to milliseconds, so the
epoll descriptor is waited for with `select`, whose timeout is in microseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .shared_memory import MemoryReader

READ, WRITE = select.POLLIN, select.POLLOUT  # the constants of epoll have the same values
_SPIN_NS = 1_000_000  # duration of repeated polling
_SELECTABLE = 1024  # FD_SETSIZE: select() accepts only smaller descriptors
_POLLS_PER_TURN = 8  # polls of shared memory per poll of the sockets
_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))  # yields the core to other processes that can run


class Pollable(Protocol):
    def on_ready(self) -> None: ...


class Poller:
    """A poller based on epoll, or on poll where there is no epoll (macOS). Each descriptor is registered with its owner.

    `exact=False`: do not use `select`, as if the poller's descriptor were too large for it.
    """

    def __init__(self, exact: bool = True) -> None:
        epoll = hasattr(select, "epoll")
        poller: Any = select.epoll() if epoll else select.poll()
        self._poller = poller
        self._second = 1.0 if epoll else 1000.0  # one second in the poller's unit of time
        self._exact = exact and epoll and self._poller.fileno() < _SELECTABLE
        self._polls = 0
        self._short = True  # whether the last wait was shorter than `_SPIN_NS`
        self._memories: list[MemoryReader] = []
        self._owners: dict[int, Pollable] = {}
        self._doorbell, self._waker = socket.socketpair()
        for sock in (self._doorbell, self._waker):
            sock.setblocking(False)
        self._poller.register(self._doorbell.fileno(), READ)
        self.modify = self._poller.modify  # (descriptor, interest)

    def register(self, fd: int, interest: int, owner: Pollable) -> None:
        """Add a descriptor. `interest`: READ, WRITE, or both."""
        self._poller.register(fd, interest)
        self._owners[fd] = owner

    def unregister(self, fd: int) -> None:
        self._poller.unregister(fd)
        del self._owners[fd]

    def add_memory(self, memory: MemoryReader) -> None:
        self._memories.append(memory)

    def remove_memory(self, memory: MemoryReader) -> None:
        self._memories.remove(memory)

    def wait(self, timeout_s: float, spin: bool = True) -> list[Pollable]:
        """Wait at most `timeout_s` seconds. Returns the owners of ready descriptors, or [] after an event of shared memory.

        The doorbell ends the wait. `spin=False`: sleep at once, without polling repeatedly first; for callers that let
        time pass and do not wait for an answer.
        """
        self._polls += 1
        if self._has_data():
            if self._polls % _POLLS_PER_TURN:
                return []
            timeout_s = 0.0  # sockets are polled at intervals even if memories always have data
        events = self._poller.poll(0)
        if not events and timeout_s > 0:
            events = self._spin(timeout_s) if spin else self._sleep(timeout_s)
        return self._owners_of(events) if events else []

    def ready_now(self) -> list[Pollable]:
        """Return the owners of descriptors that are ready now. Does not wait, and does not check shared memory."""
        return self._owners_of(self._poller.poll(0))

    def _owners_of(self, events: list[tuple[int, int]]) -> list[Pollable]:
        ready = []
        for fd, _ in events:
            owner = self._owners.get(fd)
            if owner is not None:
                ready.append(owner)
            else:
                with contextlib.suppress(BlockingIOError):
                    self._doorbell.recv(4096)
        return ready

    def _has_data(self) -> bool:
        for memory in self._memories:  # noqa: SIM110 - a generator costs more than the checks, about 100,000 times per second
            if memory.ready():
                return True
        return False

    def _spin(self, timeout_s: float) -> list[tuple[int, int]]:
        """Poll repeatedly if the last wait was short, then sleep."""
        clock, has_data = time.perf_counter_ns, self._has_data
        began = clock()
        end = began + round(timeout_s * 1e9)
        until = min(began + _SPIN_NS, end) if self._short else began
        while clock() < until:
            for _ in range(_POLLS_PER_TURN):
                _yield_core()
                if has_data():
                    return []
            if events := self._poller.poll(0):
                return events
        events = self._sleep((end - clock()) / 1e9)
        self._short = clock() - began < _SPIN_NS
        return events

    def _sleep(self, timeout_s: float) -> list[tuple[int, int]]:
        awake = [memory for memory in self._memories if not memory.sleep()]
        events = self._poller.poll(0) if awake or timeout_s <= 0 else self._events(timeout_s)
        for memory in self._memories:
            memory.cancel_sleep()
        return events

    def _events(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return the events of descriptors within `timeout_s` seconds, with the accuracy of the kernel's timers."""
        if self._exact:
            select.select([self._poller], [], [], timeout_s)
            return self._poller.poll(0)  # type: ignore[no-any-return]
        whole, rest = divmod(timeout_s * 1000, 1)  # in milliseconds, because these pollers round up to milliseconds
        if events := self._poller.poll(whole / 1000 * self._second):
            return events  # type: ignore[no-any-return]
        time.sleep(rest / 1000)
        return self._poller.poll(0)  # type: ignore[no-any-return]

    def wake(self) -> None:
        """End the current `wait`, or the next one. Any thread may call it."""
        # the socket is full (the doorbell rings already) or closed (no thread waits)
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def close(self) -> None:
        self._doorbell.close()
        self._waker.close()
        if hasattr(self._poller, "close"):
            self._poller.close()
