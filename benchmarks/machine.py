"""Description of the machine, which is part of every result."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from threadpoolctl import threadpool_info

PEERS = ("ray", "torch", "mpi4py", "simpy")  # listed if installed


def describe() -> dict[str, Any]:
    """Return CPU, memory, versions, and the load before the measurements, as plain values."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {
        "cpu": _cpu(),
        "cores": _usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": round(psutil.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "numpy": np.__version__,
        "blas": [f"{p['internal_api']} {p['version']} ({p.get('architecture', 'unknown')})" for p in blas],
        "versions": {name: _version(name) for name in ("labkit-distributed", "distributed", "psutil", *PEERS)},
    }


def describe_as_text(machine: dict[str, Any]) -> str:
    """Return the description as two lines of text."""
    m, blas = machine, ", ".join(machine["blas"]) or "no BLAS found"
    hardware = f"{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 1e9:.1f} GB, load {m['load']}, {m['system']}"
    peers = "".join(f", {name} {m['versions'][name]}" for name in PEERS if m["versions"][name])
    return f"{hardware}\n{m['python']}, NumPy {m['numpy']}, {blas}, distributed {m['versions']['distributed']}{peers}"


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if platform.system() == "Darwin":
        asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if asked.stdout.strip():
            return asked.stdout.strip()
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
