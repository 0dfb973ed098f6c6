"""CPU, memory and file limits of this process, and the number of roles that fit into them.

The tightest limit applies. Sources are control groups (versions 2 and 1, from the process's group up to the root), CPU
affinity, the free memory of the machine, and the environment variables `CPU_LIMIT` (CPUs) and `MEM_LIMIT` (bytes), which
JupyterHub and Binder set. A missing or invalid file or variable sets no limit.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import BadInput

DEFAULT_WORKERS = 4  # as in the lessons
WORKERS_PER_CPU = 4  # paced workers sleep most of the time
MAX_PROCESSES = 64  # processes started on one machine, at most
PROCESS_BYTES = 50 << 20  # unshared memory of a role's process, with a margin; 20 to 30 MiB with small networks
# files that the client opens for a cluster, and for each of its processes (measured: 13)
FILES, FILES_PER_PROCESS = 24, 16
RESERVED_BYTES = 200 << 20  # reserved for the notebook, its figures, and the Jupyter server
MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
UNLIMITED = 1 << 60  # version 1 encodes "no limit" as a number near 2^63


def usable_cpus(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> float:
    """Usable CPUs: the minimum of affinity, quota and `CPU_LIMIT`. `environ`: None for the environment of this process."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = _positive_number("CPU_LIMIT", environ)
    return min(limit for limit in (allowed, cpu_quota(root), given) if limit is not None)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the number of CPUs allowed by control group quotas; None if there is no quota."""
    quotas = []
    for folder in _cgroup_folders(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> tuple[int | None, int]:
    """Return (bytes allowed by the tightest limit, bytes in use there without file cache); (None, 0) without a limit.

    If `MEM_LIMIT` is the tightest, the bytes in use are those of the tightest control group, or 0 (unknown) without one.
    """
    limit, used = _cgroup_memory(root)
    given = _positive_number("MEM_LIMIT", environ)
    if given is not None and (limit is None or given < limit):
        return int(given), used
    return limit, used


def free_memory(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> int:
    """Bytes that this process may still allocate: the minimum over the machine and the tightest limit."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = memory_limit(root, environ)
    return free if limit is None else min(free, max(0, limit - used))


def process_capacity(free: int) -> int:
    """Return the number of further role processes that fit into `free` bytes of memory."""
    return max(0, free - RESERVED_BYTES) // PROCESS_BYTES


def default_local_workers(cpus: float | None = None, free: int | None = None) -> int:
    """Return the default number of workers: 4; fewer, but at least 1, in a container with less than one CPU or with little
    memory.

    `cpus` (CPUs) and `free` (bytes) are measured if None. Memory for a server and a chief is reserved in addition.
    """
    cpus = usable_cpus() if cpus is None else cpus
    free = free_memory() if free is None else free
    return max(1, min(DEFAULT_WORKERS, math.floor(WORKERS_PER_CPU * cpus), process_capacity(free) - 2))


def check_capacity(nodes: int, running: int = 0, free: int | None = None) -> None:
    """Raise `BadInput` if `nodes` processes are too many for one machine or its memory. `running`: the number of them that
    already run.

    `free`: bytes, measured if None. If a container runs out of memory, the system kills a process, often the notebook.
    """
    if nodes > MAX_PROCESSES:
        raise BadInput(
            f"This run has {nodes} nodes; on one machine a DaskCluster has at most {MAX_PROCESSES} processes. Ask for fewer "
            "workers, give it a scheduler of many machines, or use lk.SimulatedCluster."
        )
    if nodes <= running:
        return
    _check_files(nodes - running, FILES if running == 0 else 0)
    free = free_memory() if free is None else free
    room = running + process_capacity(free)
    if nodes > room:
        raise BadInput(
            f"This run has {nodes} nodes, a process each, and with {free >> 20:,} MiB of free memory there is room for "
            f"{room} here. Ask for fewer workers, close other notebooks, or use lk.SimulatedCluster."
        )


def _check_files(processes: int, more: int) -> None:
    """Raise `BadInput` if the limit of open files is too low to start `processes` more processes. `more`: the number of other
    files that will be opened.
    """
    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        opened = len(os.listdir("/dev/fd"))
    except OSError as error:
        if error.errno != errno.EMFILE:  # the number of open files is unknown
            return
        opened = allowed
    except ImportError:  # Windows
        return
    needed = opened + more + FILES_PER_PROCESS * processes
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise BadInput(
            f"The limit of open files is {allowed:,} here, and starting {processes} processes takes about {needed:,}. Raise it "
            f"(`ulimit -n {max(1024, needed)}` in a shell, first), ask for fewer workers, or use lk.SimulatedCluster."
        )


def _positive_number(name: str, environ: Mapping[str, str] | None) -> float | None:
    """Return the value of an environment variable if it is a positive number below `UNLIMITED`; else None."""
    try:
        number = float((os.environ if environ is None else environ)[name])
    except (KeyError, ValueError):
        return None
    return number if 0 < number < UNLIMITED else None


def _cgroup_memory(root: Path) -> tuple[int | None, int]:
    """Return (bytes allowed by the tightest control group, bytes in use there); (None, 0) without a limit."""
    found: list[tuple[int, int, int]] = []
    for folder in _cgroup_folders(root, "memory"):
        for limit_file, use_file in MEMORY_FILES:
            limit = _read(folder / limit_file)
            if limit.isdecimal() and int(limit) < UNLIMITED:
                cache = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
                inactive = cache.get("inactive_file", cache.get("total_inactive_file", ""))
                used = _number_or_zero(_read(folder / use_file)) - _number_or_zero(inactive)
                found.append((int(limit) - used, int(limit), max(0, used)))
    return min(found)[1:] if found else (None, 0)


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups, from its group up to the root, of version 2 and of version 1's `controller`."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, *rest = line.split(":", 2)
        if len(rest) != 2:  # not an entry of a control group
            continue
        controllers, path = rest
        if controllers and controller not in controllers.split(","):
            continue
        for mount in [controllers, controller] if controllers else [""]:
            top = root / "sys/fs/cgroup" / mount
            folder = top / path.lstrip("/")
            while folder != top and top in folder.parents:
                yield folder
                folder = folder.parent
            yield top


def _number_or_zero(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
