"""What labkit uses of Dask that has no public interface. No other module uses private names of Dask.

Tried with distributed 2025.4.0 (the oldest version that labkit accepts) and 2026.8.0: `python -m tests.dev.versions`
runs the tests of this module, and runs on processes, with the oldest and the newest version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from typing import Any

import distributed
from distributed import Client, Future, Status
from distributed.client import done_callback
from distributed.deploy.spec import SpecCluster

NAMES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (distributed.Nanny, ("_on_worker_exit_sync", "instantiate", "close_gracefully")),
    (distributed.Scheduler, ("start_http_server", "identity")),
    (distributed.Worker, ("start_http_server", "plugin_add", "plugin_remove", "log_event")),
    (SpecCluster, ("_update_worker_status", "_correct_state", "_close", "_instances")),
)
"""The names that this package uses of Dask's classes without a documented interface, to override or to call them."""


def identity(client: Client) -> Awaitable[dict[str, Any]]:
    """Ask the scheduler what it knows of its workers. `Client.scheduler_info` cannot be cancelled."""
    scheduler: Any = client.scheduler
    return scheduler.identity(n_workers=-1)


def call_when_done(client: Client, future: Future, call: Callable[[Future], Any]) -> None:
    """Call `call(future)` on the client's event loop when the future is done.

    `Future.add_done_callback` needs an executor, which starts no work any more while the program ends.
    """
    loop: Any = client.loop
    loop.add_callback(done_callback, future, call)


class ReportingNanny(distributed.Nanny):
    """A nanny that reports how its process has ended, and whose process can get other arguments when it is started again."""

    def process_ended(self, code: int) -> None:
        """Called when the process has ended. `code`: as `multiprocessing` reports it."""

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.process_ended(exitcode)
        super()._on_worker_exit_sync(exitcode)

    def set_argument(self, name: str, value: object) -> None:
        """Set an argument of the worker that is started next."""
        self.worker_kwargs[name] = value
        if self.process is not None:  # Dask starts a lost process again with the arguments of the first
            self.process.worker_kwargs[name] = value


class ManualCluster(SpecCluster):
    """A `SpecCluster` that never closes a nanny because its process is missing."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, msg)

    @property
    def nannies(self) -> list[Any]:
        """All nannies, also those that are being started."""
        return list(self._created)

    def submit(self, work: Any) -> ThreadFuture[Any]:
        """Run a coroutine of this cluster on its event loop, and return its future. For calls from other threads."""
        loop: Any = self.loop
        return asyncio.run_coroutine_threadsafe(work, loop.asyncio_loop)

    async def replace(self, names: Iterable[Any]) -> None:
        """Replace these nannies. Returns when the new ones have started their processes."""
        for name in names:
            self._futures.add(asyncio.ensure_future(self.workers.pop(name).close()))  # awaited when the cluster closes
        await self._correct_state()

    def start_closing(self) -> asyncio.Future[None]:
        """Start to close everything."""
        return asyncio.ensure_future(self._close())


def mark_closed(client: Client | None, cluster: Any) -> None:
    """Mark a client, its cluster and `cluster` as closed, without closing anything: their exit handlers do nothing."""
    if client is not None:
        client.status = "closed"
    for dead in (cluster, getattr(client, "cluster", None)):
        if isinstance(dead, SpecCluster):
            SpecCluster._instances.discard(dead)
            with contextlib.suppress(Exception):  # in another version of Dask `status` may be read-only
                dead.status = Status.closed
