"""The processes behind a `DaskCluster`: started late, reached in time or not at all, checked, and ended for certain."""

from __future__ import annotations

import ast
import atexit
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context, in_async_call

from ...errors import BadInput, ClusterError
from .ask import ask, who_is
from .task import DISTRIBUTION, version

__all__ = ["Backend", "guard_line"]

REACH_S = 7.0
START_S = 60.0
LOOK_S = 5.0  # seconds between two looks whether processes that are waited for have been given up
ANSWER_S = 5.0
MOST_PROCESSES = 64  # that one machine is asked to start
PRE_SPAWN = "distributed.nanny.pre-spawn-environ"
# Under Dask's own setting glibc gives memory back after every large free, and large arrays fault in anew each time.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(256 << 20), "MALLOC_MMAP_THRESHOLD_": str(64 << 20)}


class Backend:
    """A Dask client and, if the cluster is ours, its processes. Thread-safe.

    `usage`: how many roles are on each address now. `runs`: those that are going on. `ours`: it starts the processes.
    """

    def __init__(self, target: Any):
        if not (target is None or isinstance(target, str | Client)):
            raise BadInput(
                f"DaskCluster({target!r}): give nothing, a scheduler's address as 'tcp://host:8786', or a Client."
            )
        self._target, self.ours = target, target is None
        self._client: Client | None = target if isinstance(target, Client) else None
        self._cluster: LocalCluster | None = None
        self._lock = threading.RLock()
        self._silent: set[str] = set()  # Dask workers that did not answer when last asked
        self._closed = False
        self.usage: Counter[str] = Counter()
        self.runs: set[Any] = set()

    def describe(self) -> str:
        """Where the processes are."""
        if self._target is None:
            return "on this machine"
        return self._target if isinstance(self._target, str) else "on a given client"

    def client(self) -> Client:
        """The client, connected."""
        with self._lock:
            if self._closed:
                raise ClusterError("This DaskCluster has been closed; make a new one.")
            if self._client is None or self._client.status in ("closed", "closing"):
                if isinstance(self._target, Client):
                    raise ClusterError("The given Client has been closed; make a new one, and a new DaskCluster of it.")
                if isinstance(self._target, str):
                    self._reach()
                elif self._cluster is not None and self._cluster.status.name == "running":
                    self._client = Client(self._cluster, set_as_default=False, timeout=REACH_S)
                else:
                    self._start(1)
            assert self._client is not None
            return self._client

    def addresses(self, nodes: int) -> list[str]:
        """`nodes` Dask workers that answer and have this very labkit, the least used first.

        Ours grow as needed; given ones are what they are.
        """
        if self._target is None and nodes > MOST_PROCESSES:
            raise BadInput(
                f"This run has {nodes} nodes; on one machine a DaskCluster has at most {MOST_PROCESSES} processes. Ask for fewer "
                "workers, give it a scheduler of many machines, or use lk.SimulatedCluster."
            )
        with self._lock:
            if self._target is None and not self._closed:
                if self._cluster is None or self._cluster.status.name != "running":
                    self._start(nodes)
                else:
                    self._grow(nodes)
            client = self.client()
            awake = self._awake(client, nodes)
            if self._target is None and len(awake) < nodes:
                self._grow(nodes + len(self._silent))
                awake = self._awake(client, nodes)
            if len(awake) < nodes:
                has = f"the cluster has {len(awake)} Dask workers"
                needs = f"This run has {nodes} nodes (one Dask worker each) and {has}"
                if self._silent:
                    silent = f"{len(self._silent)} more do not answer (frozen, or cut off)"
                    raise ClusterError(f"{needs} that answer; {silent}.")
                raise BadInput(f"{needs}; start more, or ask for fewer workers or servers.")
            return awake

    def _awake(self, client: Client, nodes: int) -> list[str]:
        """Up to `nodes` Dask workers, each asked: a frozen one would hold up the run."""
        there = list(client.scheduler_info(n_workers=-1)["workers"])
        if not there and self._target is not None:
            there = self._await_workers(client)
        self._silent &= set(there)
        there.sort(key=lambda address: (address in self._silent, self.usage[address], address))
        awake: list[str] = []
        while len(awake) < nodes and there:
            asked, there = there[: nodes - len(awake)], there[nodes - len(awake) :]
            for address, answer in ask(client, asked, ANSWER_S, version, lambda address: ()).items():
                if isinstance(answer, OSError):  # TimeoutError is one
                    self._silent.add(address)
                    continue
                self._silent.discard(address)
                _check(address, answer)
                awake.append(address)
        return awake

    # our own ----------------------------------------------------------------------------------------------------------

    def _start(self, nodes: int) -> None:
        if getattr(sys.modules.get("__main__"), "__file__", "") == "<stdin>":
            raise BadInput(
                "A script that comes through a pipe cannot start processes, which read it again: save it to a file."
            )
        line = guard_line()
        if line is not None:
            raise BadInput(
                f'{line}: a script that starts processes must do so under `if __name__ == "__main__":`, because '
                "every process reads the script again."
            )
        self._end_processes()  # of a cluster that others have closed
        atexit.register(self.close)  # runs before Dask's own handlers: they were registered earlier
        for name in MALLOC:
            os.environ.pop(name, None)  # what an earlier cluster left there would win over the configuration
        try:
            with dask.config.set(_settings() | _quick_start()), _deaf_to_interrupts():
                self._cluster = LocalCluster(
                    n_workers=nodes, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
                    memory_limit=0, silence_logs=50, host="127.0.0.1",
                )  # fmt: skip
                self._client = Client(self._cluster, set_as_default=False, timeout=REACH_S)
                self._client.wait_for_workers(nodes, timeout=START_S)
        except Exception as error:
            self._end_processes()
            why = f"{type(error).__name__}: {error}"
            raise ClusterError(f"The local cluster of {nodes} processes did not start: {why}") from error

    def _grow(self, nodes: int) -> None:
        """Wait until there are `nodes` processes, and start those that are missing.

        A lost process comes back by itself. If it is away just when Dask looks for it, 15 s after a loss, Dask gives it
        up but keeps its place; it comes back with the next call of `scale`.
        """
        assert self._cluster is not None
        assert self._client is not None
        until = time.monotonic() + START_S
        while True:
            if len(self._cluster.workers) < nodes:
                with dask.config.set(_settings()):
                    self._cluster.scale(max(nodes, len(self._cluster.worker_spec)))
            try:
                return self._client.wait_for_workers(nodes, timeout=LOOK_S)
            except Exception as error:
                if time.monotonic() > until:
                    why = f"The local cluster did not grow to {nodes} processes within {START_S:g} s."
                    raise ClusterError(why) from error

    # given ------------------------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        assert isinstance(self._target, str)
        try:
            found = who_is(self._target, REACH_S)
            if found == "Scheduler":
                self._client = Client(self._target, set_as_default=False, timeout=REACH_S)
                return
        except Exception as error:  # whatever stands there may answer anything
            found = type(error).__name__
        raise ClusterError(
            f"No Dask scheduler answers at {self._target!r} within {REACH_S:g} s ({found}). Is the address right, and "
            "the scheduler running (`dask scheduler`)?"
        )

    def _await_workers(self, client: Client) -> list[str]:
        try:
            client.wait_for_workers(1, timeout=REACH_S)
        except Exception:
            return []
        return sorted(client.scheduler_info(n_workers=-1)["workers"])

    # the end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the runs, then what is ours. Safe to call twice, from anywhere."""
        if self._client is not None and in_async_call(self._client.loop):
            threading.Thread(target=self.close, name="labkit-close").start()  # garbage collected on Dask's own thread
            return
        for run in list(self.runs):
            run.stop("closed")
        with self._lock:
            if not self._closed:
                self._closed = True
                atexit.unregister(self.close)
                if not isinstance(self._target, Client):
                    self._end_processes()

    def _end_processes(self) -> None:
        client, cluster = self._client, self._cluster
        self._client = self._cluster = None
        for thing in (client, cluster):
            if thing is not None:
                try:
                    thing.close(timeout=5)
                except Exception as error:  # closing must go on: the rest may still hold processes
                    print(f"labkit: {type(thing).__name__} did not close cleanly: {error}", file=sys.stderr)


def _check(address: str, answer: Any) -> None:
    """Every worker must have this very labkit: the roles' code is imported there, not sent."""
    mine = version()
    if isinstance(answer, Exception) and "No module named 'labkit" in str(answer):
        raise ClusterError(f"The Dask worker at {address} has no labkit; install {DISTRIBUTION} {mine} there.")
    if isinstance(answer, Exception):
        raise ClusterError(f"The Dask worker at {address} cannot use labkit: {type(answer).__name__}: {answer}")
    if answer != mine:
        raise ClusterError(
            f"The Dask worker at {address} has labkit {answer} and this process has {mine}; they must be equal."
        )


def _settings() -> dict[str, Any]:
    """Dask's settings for a cluster of our own.

    Its servers (the scheduler, and a nanny and a worker for each process) look at the clock fifty times a second and at
    the machine twice, each of them: with six processes that alone took a tenth of a core.
    """
    return {
        PRE_SPAWN: {**dask.config.get(PRE_SPAWN, {}), **MALLOC},
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
        "distributed.admin.system-monitor.interval": "5s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.comm.timeouts.connect": "3s",
        "distributed.logging.distributed": "error",
    }


def _quick_start() -> dict[str, str]:
    """On Linux, processes are forked from one that has already imported everything: 6 of them in 1.7 s instead of 3.0
    s.

    (`python -m benchmarks --only startup`.) Elsewhere forking is not safe, and each process imports for itself.
    """
    if not sys.platform.startswith("linux"):
        return {}
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with dask.config.set(method):
        get_mp_context()  # Dask names its modules once; ours come in addition
    preload = ["distributed", "numpy", "labkit.engines.dask.task"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(preload)
    return method


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Threads that are started here, and all processes that they start, never get SIGINT.

    Ctrl-C, and a notebook's interrupt, go to the whole process group, and the workers must be there to end the run in
    order. This process hears of it when the start is over.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whichever thread starts that one hears signals again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def guard_line() -> str | None:
    """`file:line` of the main script's statement that is running now, if it is not under an `if __name__ ==
    "__main__"`.

    Processes are spawned: each imports the main script again, and would start processes itself. None for notebooks,
    modules, the interactive prompt, and guarded scripts.
    """
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None or not os.path.exists(path):
        return None
    frame = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in ("__main__", "__mp_main__")
    ):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or os.path.abspath(frame.f_code.co_filename) != os.path.abspath(path):
        return None
    try:
        tree = ast.parse(Path(path).read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    for node in tree.body:
        guards = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        if guards and node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
            return None
    return f"{path}:{frame.f_lineno}"
