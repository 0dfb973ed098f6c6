"""The Dask task: sets up a role instance on a Dask worker, reports its address, runs it, and returns its final report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from distributed import get_worker, secede
from distributed.utils import sync
from threadpoolctl import threadpool_limits

from ....data import MappedSamples
from ....errors import ClusterError
from ....packed import Packed
from ..processes import this_process
from ..transport.endpoint import Endpoint
from ..transport.frames import FrameCodec
from .assignment import RoleAssignment
from .command_channel import Command, CommandChannel, close_channel, open_channel
from .role import RealRole

DISTRIBUTION = "labkit-distributed"
WAITING_FOR_A_THREAD = ("waiting", "ready", "constrained")


def run_role(packed: Packed, options: dict[str, Any], own: dict[str, Any], share: Any, test: Any) -> dict[str, Any]:
    """Run one role instance, and return its final report. Every role instance is one Dask task that runs this function.

    `packed`, `options`, `own`: see `RoleAssignment.of`. `share`, `test`: arrays, or samples in a file. Raises `ProtocolError` if
    the client uses another protocol, and `ClusterError` if this Dask worker cannot load the user's code or the file.
    """
    worker = get_worker()
    assignment = RoleAssignment.of(packed, worker.address, options, **own)
    assignment.check()
    for array in (*(share or ()), *(test or ())):
        if isinstance(array, MappedSamples):
            array.file.open(f"The Dask worker at {worker.address}")
    key: Any = worker.get_current_task()
    secede()
    name = assignment.spec.name
    channel = sync(worker.loop, open_channel, worker, assignment.run, name, assignment.incarnation, key)
    endpoint = None
    try:
        with threadpool_limits(1):
            endpoint = _open_endpoint(assignment, worker)
            role = RealRole(assignment, share, test, endpoint, channel)
            channel.report("up", address=list(endpoint.contact), process=list(this_process()), **role.initial_state())
            command = _wait_for_begin(channel)
            if command is None:
                role.cancel_start()
                return {"role": name, "never_began": True}
            role.begin(command)
            with pinned_core(assignment):
                return role.run()
    finally:
        if endpoint is not None:
            endpoint.close()
        worker.loop.add_callback(close_channel, worker, channel)


def _open_endpoint(assignment: RoleAssignment, worker: Any) -> Endpoint:
    scheme = urlsplit(worker.address).scheme
    host = urlsplit(worker.address).hostname if scheme in ("tcp", "tls") else "127.0.0.1"
    contexts = {}
    if (
        scheme == "tls" and not assignment.local
    ):  # processes of labkit's own are on one host, so their messages are not encrypted
        security = worker.security
        contexts = {
            "server_context": security.get_listen_args("worker")["ssl_context"],
            "client_context": security.get_connection_args("worker")["ssl_context"],
        }
    codec = FrameCodec(assignment.plan.message_kinds)
    host = host or "127.0.0.1"
    return Endpoint(assignment.spec.name, assignment.incarnation, codec, host, run=assignment.run, **contexts)


@contextlib.contextmanager
def pinned_core(assignment: RoleAssignment) -> Iterator[None]:
    """Pin this thread, if its role computes, to a core, on a local cluster with more roles than cores. Linux only.

    The roles are assigned to the cores in turn. Roles that poll for messages look busy to the kernel, which then keeps
    several of them on one core: a ring of 4 workers on 2 cores made 3,900 gradients per second when placed by the
    kernel, and 5,400 when pinned.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if not (assignment.local and assignment.spec.computes and 1 < len(cores) < len(assignment.plan.layout.roles)):
        yield
        return
    os.sched_setaffinity(0, {sorted(cores)[assignment.spec.index % len(cores)]})  # pins this thread only
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _wait_for_begin(channel: CommandChannel) -> Command | None:
    """Wait for the command to begin, and return it, or None if the role must not begin.

    Commands that arrive earlier are executed after the command to begin. There is no timeout, because the channel posts
    the command to leave when the client, or the task, is gone.
    """
    early: list[Command] = []
    while True:
        channel.posted.wait()
        for command in channel.commands():
            if command["do"] == "begin":
                for other in early:
                    channel.post(other)
                return command
            if command["do"] in ("end", "leave") or command.get("retired"):
                return None
            early.append(command)


def call_packed(packed: Packed) -> Any:
    """Call a packed (function, arguments), and return the result. Runs on the Dask worker."""
    function, arguments = packed.value(get_worker().address)
    return function(*arguments)


def versions() -> dict[str, str]:
    """Return the versions in this process that must be equal in all processes of a run.

    Roles import labkit's code; a strategy that is defined in a program is sent as bytecode, which another Python does not
    execute but may crash of; arrays are pickled, which differs between the major versions of NumPy. Without labkit, a
    reference to this function cannot be unpickled.
    """
    try:
        mine = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        mine = "of a source tree"
    python = ".".join(platform.python_version_tuple()[:2])
    return {"labkit": mine, platform.python_implementation(): python, "NumPy": f"{np.__version__.partition('.')[0]}.x"}


def check_versions(address: str, answer: object) -> None:
    """Raise `ClusterError` unless the Dask worker at `address` has the same versions. `answer`: its `versions`, or the error."""
    mine = versions()
    if isinstance(answer, AttributeError) and versions.__name__ in str(answer):  # a labkit without this function
        answer = {}
    if isinstance(answer, Exception):
        without = "No module named 'labkit" in str(answer)
        why = f"has no labkit; install {DISTRIBUTION} {mine['labkit']} there" if without else None
        raise ClusterError(
            f"The Dask worker at {address} {why or f'cannot use labkit: {type(answer).__name__}: {answer}'}."
        )
    its = answer if isinstance(answer, dict) else {}
    for name, version in mine.items():
        if its.get(name) != version:
            other = (
                f"{name} {its[name]}"
                if name in its
                else "another labkit"
                if not its
                else f"no {name} but {', '.join(its)}"
            )
            here = f"this process has {name} {version}"
            raise ClusterError(f"The Dask worker at {address} has {other} and {here}; they must be equal.")


def blocking_tasks(key: str, dask_worker: Any = None) -> list[str]:
    """Return the keys of the tasks, other than roles, that occupy the threads for which a task waits. Runs on the Dask worker."""
    state = dask_worker.state
    task = state.tasks.get(key)
    if task is None or task.state not in WAITING_FOR_A_THREAD:
        return []
    return [str(other.key) for other in state.executing if "-labkit-" not in str(other.key)]


def clock() -> int:
    """Return the time of the machine's monotonic clock, ns."""
    return time.monotonic_ns()
