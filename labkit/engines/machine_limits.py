"""What a container, a hub or a scheduler lets this process have, and how many roles that is enough for.

The smallest limit holds. There are control groups, version 2 and 1, this process's own and all up to the root; CPU
affinity; the memory that the machine has free; and `CPU_LIMIT` and `MEM_LIMIT`, with which JupyterHub and Binder tell a
session what it has (CPUs; bytes). A file or a variable that is not there, or makes no sense, sets no limit.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import BadInput

__all__ = [
    "MOST_PROCESSES", "USUAL_WORKERS", "check_room", "cpu_quota", "free_memory", "memory_limit", "room_for_processes",
    "usable_cpus", "usual_workers",
]  # fmt: skip

USUAL_WORKERS = 4  # as in the lessons
WORKERS_A_CPU = 4  # paced ones, which sleep most of the time
MOST_PROCESSES = 64  # that one machine is asked to start
PROCESS_BYTES = 50 << 20  # of a role's process, what it shares with nobody; 20 to 30 MiB with small networks
FILES, FILES_A_PROCESS = 24, 16  # files that the client opens for a cluster, and for each process of it (13 measured)
SPARE_BYTES = 200 << 20  # left to the notebook, its pictures, and the server that shows them
MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63


def usable_cpus(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> float:
    """CPUs by affinity, or less if a quota or the hub gives less. `environ`: None is this process's own."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = _positive("CPU_LIMIT", environ)
    return min(limit for limit in (allowed, cpu_quota(root), told) if limit is not None)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPUs that the quotas allow; None if there is no quota."""
    quotas = []
    for folder in _groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> tuple[int | None, int]:
    """(bytes allowed by the tightest limit, bytes in use there without file cache); (None, 0) without a limit.

    What is in use under the hub's own limit is taken from the group that has a limit, or is not known: 0.
    """
    limit, used = _group_memory(root)
    told = _positive("MEM_LIMIT", environ)
    if told is not None and (limit is None or told < limit):
        return int(told), used
    return limit, used


def free_memory(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> int:
    """Bytes that may still be taken: of the machine's, and of the tightest limit."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = memory_limit(root, environ)
    return free if limit is None else min(free, max(0, limit - used))


def room_for_processes(free: int) -> int:
    """How many more processes of roles `free` bytes of memory can hold."""
    return max(0, free - SPARE_BYTES) // PROCESS_BYTES


def usual_workers(cpus: float | None = None, free: int | None = None) -> int:
    """How many workers there are where nobody says: 4, fewer in a container of less than a CPU or of little memory.

    `cpus` (CPUs) and `free` (bytes): None looks. A server and a chief have their place besides. At least 1.
    """
    cpus = usable_cpus() if cpus is None else cpus
    free = free_memory() if free is None else free
    return max(1, min(USUAL_WORKERS, math.floor(WORKERS_A_CPU * cpus), room_for_processes(free) - 2))


def check_room(nodes: int, there: int = 0, free: int | None = None) -> None:
    """`BadInput` if `nodes` processes, of which some are `there`, are too many for one machine, or for its memory.

    `free`: bytes; None looks. In a container that runs out of memory the system ends a process, often the notebook.
    """
    if nodes > MOST_PROCESSES:
        raise BadInput(
            f"This run has {nodes} nodes; on one machine a DaskCluster has at most {MOST_PROCESSES} processes. Ask for fewer "
            "workers, give it a scheduler of many machines, or use lk.SimulatedCluster."
        )
    if nodes <= there:
        return
    _check_files(nodes - there, FILES if there == 0 else 0)
    free = free_memory() if free is None else free
    room = there + room_for_processes(free)
    if nodes > room:
        raise BadInput(
            f"This run has {nodes} nodes, a process each, and with {free >> 20:,} MiB of free memory there is room for "
            f"{room} here. Ask for fewer workers, close other notebooks, or use lk.SimulatedCluster."
        )


def _check_files(processes: int, more: int) -> None:
    """`BadInput` if this process may not open the files (connections, pipes) that it takes to start so many processes."""
    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        opened = len(os.listdir("/dev/fd"))
    except OSError as error:
        if error.errno != errno.EMFILE:  # the system does not tell
            return
        opened = allowed
    except ImportError:  # Windows
        return
    needed = opened + more + FILES_A_PROCESS * processes
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise BadInput(
            f"The limit of open files is {allowed:,} here, and starting {processes} processes takes about {needed:,}. Raise it "
            f"(`ulimit -n {max(1024, needed)}` in a shell, first), ask for fewer workers, or use lk.SimulatedCluster."
        )


def _positive(name: str, environ: Mapping[str, str] | None) -> float | None:
    """The number in a variable of the environment, if it is one and says anything."""
    try:
        number = float((os.environ if environ is None else environ)[name])
    except (KeyError, ValueError):
        return None
    return number if 0 < number < UNLIMITED else None


def _group_memory(root: Path) -> tuple[int | None, int]:
    """(bytes allowed by the tightest control group, bytes in use there); (None, 0) without a limit."""
    found: list[tuple[int, int, int]] = []
    for folder in _groups(root, "memory"):
        for limit_file, use_file in MEMORY_FILES:
            limit = _read(folder / limit_file)
            if limit.isdecimal() and int(limit) < UNLIMITED:
                used = int(_read(folder / use_file) or 0)
                cache = dict(line.split(" ", 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
                used -= int(cache.get("inactive_file", cache.get("total_inactive_file", 0)))
                found.append((int(limit) - used, int(limit), max(0, used)))
    return min(found)[1:] if found else (None, 0)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in, its own first, for version 2 and for version 1's `controller`."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        for mount in [controllers, controller] if controllers else [""]:
            top = root / "sys/fs/cgroup" / mount
            folder = top / path.lstrip("/")
            while folder != top and top in folder.parents:
                yield folder
                folder = folder.parent
            yield top


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
