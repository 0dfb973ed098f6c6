"""What `os.fork()` leaves of a cluster in the child: a copy of the objects, without their threads, and with their exit handlers.

The processes, connections and files belong to the parent. In the child nothing may wait for threads that are not there, and
no handler that runs when the child exits may end or remove what the parent uses: Dask's handlers would close its clusters
and delete its folders, and those of `multiprocessing` would end its processes.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import weakref
from typing import Any

from distributed import Client, Status
from distributed.deploy.spec import SpecCluster

__all__ = ["disown", "in_forked_child"]


def in_forked_child(method: Any) -> None:
    """Call this bound method in every child that is forked from now on, as long as its object exists."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.WeakMethod(method)

        def call() -> None:
            found = reference()
            if found is not None:
                found()

        os.register_at_fork(after_in_child=call)


def disown(client: Client | None, cluster: Any) -> None:
    """In a forked child: make `client` and `cluster` count as closed, and call off all that they would do at exit."""
    if client is not None:
        client.status = "closed"
    for dead in (cluster, getattr(client, "cluster", None)):
        if isinstance(dead, SpecCluster):
            SpecCluster._instances.discard(dead)
            with contextlib.suppress(Exception):  # another version of Dask may compute it
                dead.status = Status.closed
    # neither registry has a public way in; without them (another Python) children exit as they would without labkit
    for finalizer, about in list(getattr(weakref.finalize, "_registry", {}).items()):
        if about.atexit and (getattr(about.func, "__module__", None) or "").partition(".")[0] == "distributed":
            finalizer.detach()
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    for process in list(children):
        if getattr(process, "_parent_pid", None) != os.getpid():
            children.discard(process)
