"""The task that Dask places: sets a role up on a Dask worker, says where it listens, plays it, hands in its report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from distributed import get_worker, secede
from distributed.utils import sync
from distributed.worker import thread_state
from threadpoolctl import threadpool_limits

from .mailbox import check_in, check_out
from .processes import this_process
from .role import RealRole
from .station import Ticket
from .timeouts import BEGIN_S
from .transport.endpoint import Endpoint
from .transport.frames import Codec

__all__ = ["DISTRIBUTION", "WAITING_FOR_A_THREAD", "clock", "play", "task_state", "version"]

DISTRIBUTION = "labkit-distributed"
WAITING_FOR_A_THREAD = ("waiting", "ready", "constrained")


def play(ticket: Ticket, share: Any, test: Any) -> dict[str, Any]:
    """Play one role, from its first to its last effect. The only entry of this engine into a Dask worker."""
    worker = get_worker()
    key = thread_state.key
    secede()
    slot = sync(worker.loop, check_in, worker, ticket.run, ticket.spec.name, ticket.incarnation, key)
    endpoint = None
    try:
        with threadpool_limits(1):
            endpoint = _open_endpoint(ticket, worker)
            role = RealRole(ticket, share, test, endpoint, slot)
            endpoint.clock = role.clock
            slot.wake = endpoint.wake
            restored = {"restored": role.restored, "kept_at": role.kept_at, "version": role.counters.version}
            slot.report("up", address=list(endpoint.contact), process=list(this_process()), **restored)
            begun = _wait_for_begin(slot)
            if begun is None:
                role.coroutine.close()  # it was never begun, and would complain
                return {"role": ticket.spec.name, "abandoned": True}
            role.begin(begun)
            if role.restored:
                role.recorder.restored(role.clock())
            with own_core(ticket):
                return role.run()
    finally:
        if endpoint is not None:
            endpoint.close()
        worker.loop.add_callback(check_out, worker, slot)


def _open_endpoint(ticket: Ticket, worker: Any) -> Endpoint:
    scheme = urlsplit(worker.address).scheme
    host = urlsplit(worker.address).hostname if scheme in ("tcp", "tls") else "127.0.0.1"
    contexts = {}
    if scheme == "tls" and not ticket.ours:  # our own are on one host: nothing leaves it that would have to be encrypted
        security = worker.security
        contexts = {
            "server_context": security.get_listen_args("worker")["ssl_context"],
            "client_context": security.get_connection_args("worker")["ssl_context"],
        }
    codec = Codec(ticket.plan.message_kinds)
    host = host or "127.0.0.1"
    return Endpoint(ticket.spec.name, ticket.incarnation, codec, host, run=ticket.run, **contexts)


@contextlib.contextmanager
def own_core(ticket: Ticket) -> Iterator[None]:
    """On a cluster of our own whose roles outnumber the cores, workers that are neighbours run on different ones.

    Roles that watch for each other's messages look busy to the kernel, which then leaves them piled up on one core: a
    ring of 4 workers on 2 cores made 3,900 gradients a second where the kernel placed them, and 5,400 so. Linux only.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not (ticket.ours and ticket.spec.computes and 1 < len(cores) < len(ticket.plan.layout.roles)):
        yield
        return
    os.sched_setaffinity(0, {sorted(cores)[ticket.spec.index % len(cores)]})  # of this thread
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _wait_for_begin(slot: Any) -> dict[str, Any] | None:
    """The command to begin; None if the role shall not. What else is said first is heard after it."""
    until = time.monotonic() + BEGIN_S
    early: list[dict[str, Any]] = []
    while time.monotonic() < until:
        slot.arrived.wait(0.5)
        for command in slot.take():
            if command["do"] == "begin":
                for other in early:
                    slot.post(other)
                return dict(command)
            if command["do"] in ("end", "leave") or command.get("retired"):
                return None
            early.append(command)
    return None


def version() -> str:
    """The version of labkit that this process has. Where there is no labkit, unpickling a reference to this fails."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "of a source tree"


def task_state(key: str, dask_worker: Any = None) -> str | None:
    """Run on a Dask worker: how far it has come with a task, in Dask's words; None if it has not got it (yet)."""
    task = dask_worker.state.tasks.get(key)
    return None if task is None else str(task.state)


def clock() -> int:
    """The machine's monotonic clock, ns."""
    return time.monotonic_ns()
