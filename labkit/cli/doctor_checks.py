"""The checks of `labkit doctor`. A check examines one property, never raises, and yields findings with advice."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..engines.machine_limits import free_memory, memory_limit, usable_cpus

OK, WARNING, PROBLEM = "ok", "warning", "problem"
PACKAGES = ("labkit-distributed", "numpy", "dask", "distributed", "click", "rich", "psutil", "threadpoolctl")
NOTEBOOK_PACKAGES = ("jupyterlab", "anywidget", "ipywidgets", "matplotlib")
NEEDED_MEMORY = 1_000_000_000  # bytes; chief, 4 workers and 1 server take up to 700 MB, and a notebook needs more
NEEDED_DISK = 50_000_000
SLOW_IMPORT, SLOW_CLUSTER = 2.0, 10.0  # seconds
PORTS = {8787: "Dask's dashboard", 8888: "JupyterLab"}
TIME_IMPORT = """
import time; began = time.perf_counter()
import numpy; middle = time.perf_counter()
import labkit.run; print(middle - began, time.perf_counter() - middle)
"""


@dataclass(frozen=True)
class Finding:
    """One finding of a check. `advice`: what the user can do, or ""."""

    name: str
    state: str
    value: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.state:<8} {self.name:<20} {self.value}" + (f" - {self.advice}" if self.advice else "")


def versions() -> Iterator[Finding]:
    """Check Python and the packages that labkit needs."""
    found = f"{platform.python_version()} ({sys.executable})"
    yield _finding("python", found, sys.version_info >= (3, 11), "labkit needs 3.11 or newer", PROBLEM)
    for package in (*PACKAGES, *NOTEBOOK_PACKAGES):
        try:
            yield Finding(package, OK, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            if package == PACKAGES[0]:
                yield Finding(package, WARNING, "not installed, imported from its folder", "pip install -e .")
            else:
                state = WARNING if package in NOTEBOOK_PACKAGES else PROBLEM
                yield Finding(package, state, "not installed", f"pip install {package}")


def cpus() -> Iterator[Finding]:
    """Check how many CPUs this process may use, within its affinity and the container's quota."""
    usable, total = usable_cpus(), os.cpu_count() or 1
    advice = "processes share them: use --pace deterministic:0.1 to see workers scale"
    yield _finding("cpus", f"{usable:g} of {total} usable", usable >= 2, advice)


def memory() -> Iterator[Finding]:
    """Check how much memory is free, within the container's limit."""
    try:
        free, (limit, _) = free_memory(), memory_limit()
    except ImportError:
        yield Finding("memory", WARNING, "unknown", "pip install psutil")
        return
    value = f"{free / 1e9:.1f} GB free" + (f", limit {limit / 1e9:.1f} GB" if limit is not None else "")
    yield _finding("memory", value, free >= NEEDED_MEMORY, "close other programs, or use fewer workers: --workers 2")


def ports() -> Iterator[Finding]:
    """Check whether processes of this machine can connect to each other, and which usual ports are in use."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                accepted, _ = server.accept()
                accepted.close()
                client.close()
        yield Finding("loopback", OK, f"127.0.0.1:{port} accepts connections")
    except OSError as why:
        advice = "allow Python in the firewall; labkit simulate works without it"
        yield Finding("loopback", PROBLEM, f"127.0.0.1 does not work: {why.strerror or why}", advice)
    for port, owner in PORTS.items():
        try:
            socket.create_server(("127.0.0.1", port)).close()
            yield Finding(f"port {port}", OK, f"free for {owner}")
        except OSError:
            yield Finding(f"port {port}", OK, f"in use; {owner} will use another one")


def temporary_folder() -> Iterator[Finding]:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"labkit")
        folder = tempfile.gettempdir()
        stats = os.statvfs(folder) if hasattr(os, "statvfs") else None
        free = stats.f_bavail * stats.f_frsize if stats else NEEDED_DISK
        value = f"{folder}, {free / 1e9:.1f} GB free"
        yield _finding(
            "temporary folder", value, free >= NEEDED_DISK, "free some space, or set TMPDIR to another folder"
        )
    except OSError as why:
        value = f"cannot be written: {why.strerror or why}"
        yield Finding("temporary folder", PROBLEM, value, "set TMPDIR to a folder that you may write to")


def import_time() -> Iterator[Finding]:
    """Measure the time of `import labkit` in a new process."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-c", TIME_IMPORT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
        numpy, labkit = map(float, done.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError) as why:
        yield Finding("import labkit", PROBLEM, f"failed: {why}", "install labkit again: pip install -e .")
        return
    value = f"{labkit:.2f} s after numpy's {numpy:.2f} s"
    yield _finding(
        "import labkit", value, numpy + labkit <= SLOW_IMPORT, "the disk may be slow; later imports are faster"
    )


def cluster_time() -> Iterator[Finding]:
    """Measure the time that a cluster of 2 processes takes to start, to apply a first update, and to stop."""
    try:
        from ..engines.dask import DaskCluster
        from ..problem import Problem
        from ..roles.budget import Budget
        from ..run import train
        from ..strategies import AsyncPS

        began = time.monotonic()
        problem, strategy = Problem("moons", hidden=(4,)), AsyncPS(chief_works=True)
        with DaskCluster(workers=1) as cluster:
            train(problem, strategy, cluster, Budget(updates=1), checkpoint=False).wait(60)
            trained = time.monotonic()
        ended = time.monotonic()
    except Exception as why:  # any error is reported as a finding
        first_line = (str(why) or type(why).__name__).split("\n", 1)[0]
        yield Finding("cluster of 2", PROBLEM, f"failed: {first_line}", "labkit simulate works without a cluster")
        return
    value = f"first update after {trained - began:.1f} s, stopped in {ended - trained:.1f} s"
    advice = "the machine is busy, or a virus scanner checks every new process"
    yield _finding("cluster of 2", value, ended - began <= SLOW_CLUSTER, advice)


def _finding(name: str, value: str, good: bool, advice: str, otherwise: str = WARNING) -> Finding:
    """Return a finding with state ok if `good`, else with state `otherwise` and the advice."""
    return Finding(name, OK, value) if good else Finding(name, otherwise, value, advice)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    versions, cpus, memory, ports, temporary_folder, import_time, cluster_time,
)  # fmt: skip
