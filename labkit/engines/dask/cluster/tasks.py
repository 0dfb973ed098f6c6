"""Independent function calls as Dask tasks: on processes of labkit's own, or on any existing Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from distributed import as_completed

from ....errors import ClusterError
from .dask_connection import DaskConnection

__all__ = ["TaskPool"]


class TaskPool:
    """Processes that execute function calls. As a context manager, it closes the processes that labkit started.

    `target`: None starts `processes` processes on this machine, with one thread each; else the address of a scheduler or
    a `distributed.Client`, all of whose Dask workers are used. They must have the same version of labkit.
    """

    def __init__(self, target: Any, processes: int):
        self._connection = DaskConnection(target)
        self._processes = processes if target is None else 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def call(self, fn: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call `fn(*arguments[i])` for every i. Yields (i, result) in order of completion.

        If the iteration ends early, the calls that have not started are cancelled. A call that has started on an existing
        cluster ends by itself. Raises the exception of the first failed call, or `ClusterError` if a process was lost while
        it executed the same call several times.
        """
        self._connection.addresses(self._processes, every=True)
        client = self._connection.client()
        futures = {client.submit(fn, *each, pure=False): i for i, each in enumerate(arguments)}
        try:
            for future in as_completed(list(futures), loop=client.loop):
                if future.status == "cancelled":
                    raise ClusterError("The Dask cluster has cancelled tasks of the sweep, or the connection to it is gone.")
                error = future.exception()
                if error is not None:
                    raise error
                yield futures.pop(future), future.result()
                future.release()
        finally:
            if futures and client.status == "running":
                client.cancel(list(futures))
