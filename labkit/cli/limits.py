"""What a container or a scheduler lets this process have: control groups, version 2 and 1, and CPU affinity.

The limits of every group from this process's own up to the root count; the smallest holds. Files that are not there set
no limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_quota", "memory_limit", "usable_cpus"]

MEMORY_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
UNLIMITED = 1 << 60  # version 1 says "no limit" with a number near 2^63


def usable_cpus(root: Path = Path("/")) -> float:
    """CPUs by affinity, or less if a quota gives less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root)
    return allowed if quota is None else min(allowed, quota)


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


def memory_limit(root: Path = Path("/")) -> tuple[int | None, int]:
    """(bytes allowed by the tightest group, bytes in use there without file cache); (None, 0) without a limit."""
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
