"""Independent function calls as Dask tasks: on processes of labkit's own, or on any existing Dask cluster."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from ....errors import BadInput, ClusterError, shown
from ....packed import Packed
from ..dask_private import call_when_done
from ..timeouts import RETURN_S
from ..worker.task import call_packed
from .dask_connection import DaskConnection

TICK_S = 0.25  # seconds between two calls of `tick`
LOOK_S = 2.0  # seconds between two requests for the list of Dask workers


class TaskPool:
    """Processes that execute function calls. As a context manager, it closes the processes that labkit started.

    `target`: None starts `processes` processes on this machine, with one thread each; else the address of a scheduler or
    a `distributed.Client`, all of whose Dask workers are used. They must have the same version of labkit. Raises `BadInput` for
    any other target.
    """

    def __init__(self, target: Any, processes: int):
        if not (target is None or isinstance(target, str | Client)):
            raise BadInput(f"client={shown(target)}: give a distributed.Client, or the address of a Dask scheduler.")
        self._connection = DaskConnection(target)
        self._processes = processes if target is None else 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def call(
        self, fn: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], tick: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        """Call `fn(*arguments[i])` for every i. Yields (i, result) in order of completion.

        If a call is lost with its process several times, its result is a `ClusterError`. `tick` is called a few times per
        second during a wait. If the iteration ends early, the calls that have not started are cancelled. A call that has started
        on an existing cluster ends by itself.

        Raises the exception of the first failed call, or `ClusterError` if the cluster is gone: Dask has cancelled the calls,
        or for 15 s there is no Dask worker.
        """
        tick()
        self._connection.addresses(self._processes, every=True)
        client = self._connection.client()
        done: queue.SimpleQueue[Future] = queue.SimpleQueue()
        futures: dict[Future, int] = {}
        try:
            for i, each in enumerate(arguments):
                future = client.submit(call_packed, Packed.of((fn, each), "The task"), pure=False)
                futures[future] = i
                call_when_done(client, future, done.put)
            watch = _Watch(self._connection, self._processes)
            while futures:
                tick()
                try:
                    future = done.get(timeout=TICK_S)
                except queue.Empty:
                    watch.look()
                    continue
                if future.status in ("cancelled", "lost"):
                    raise ClusterError("The Dask cluster has cancelled the tasks, or the connection to it is gone.")
                error = future.exception()
                if error is not None and not isinstance(error, KilledWorker):
                    raise error
                i = futures.pop(future)
                yield i, future.result() if error is None else _lost(error)
                future.release()
        finally:
            if futures and client.status == "running":
                client.cancel(list(futures))


class _Watch:
    """Observes the Dask workers: replaces lost processes of labkit's own, and finds out whether there are none left."""

    def __init__(self, connection: DaskConnection, processes: int):
        self._connection, self._processes = connection, processes
        self._looked = self._seen = time.monotonic()

    def look(self) -> None:
        """Raise `ClusterError` if there has been no Dask worker for some time, or if the scheduler does not answer."""
        now = time.monotonic()
        if now < self._looked + LOOK_S:
            return
        found = self._connection.worker_addresses()
        self._looked = time.monotonic()
        if self._connection.local and len(found) < self._processes:
            self._connection.scale_up(self._processes)
        if found:
            self._seen = self._looked
        elif self._looked > self._seen + RETURN_S:
            raise ClusterError(
                f"All Dask workers of the cluster are gone, and none has come back within {RETURN_S:g} s."
            )


def _lost(error: KilledWorker) -> ClusterError:
    """Return the error of a call whose process was lost each time."""
    return ClusterError(
        f"The process that executed it was lost {error.allowed_failures + 1} times, perhaps because its memory was not enough."
    )
