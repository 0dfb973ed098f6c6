"""Handling of `os.fork()`: the child has copies of a cluster's objects without their threads, but with their exit handlers.

The processes, connections and files belong to the parent. The child must not wait for threads that it does not have.
Exit handlers in the child must not end or remove the parent's resources: Dask's handlers would close the parent's
clusters and delete their folders, and the handlers of `multiprocessing` would end the parent's processes.
"""

from __future__ import annotations

import multiprocessing.process
import os
import weakref
from typing import Any

from distributed import Client

from ..dask_private import mark_closed


def in_forked_child(method: Any) -> None:
    """Register a bound method that is called in every child forked from now on, as long as its object exists."""
    if hasattr(os, "register_at_fork"):
        reference = weakref.WeakMethod(method)

        def call() -> None:
            found = reference()
            if found is not None:
                found()

        os.register_at_fork(after_in_child=call)


def disown(client: Client | None, cluster: Any) -> None:
    """In a forked child: mark `client` and `cluster` as closed, and cancel their exit handlers."""
    mark_closed(client, cluster)
    # neither registry has a public interface; if another Python has none, a child exits as it would without labkit
    for finalizer, about in list(getattr(weakref.finalize, "_registry", {}).items()):
        if about.atexit and (getattr(about.func, "__module__", None) or "").partition(".")[0] == "distributed":
            finalizer.detach()
    children: set[Any] = getattr(multiprocessing.process, "_children", set())
    for process in list(children):
        if getattr(process, "_parent_pid", None) != os.getpid():
            children.discard(process)
