"""The resources of a cluster, the demand of runs, and the speed of each Dask worker.

A role demands one thread, which computes in NumPy with single-threaded linear algebra, and runs on one Dask worker.
Speeds are measured on all Dask workers at the same time, because roles run concurrently, too, and Dask workers on one
host share its cores.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from distributed import Client
from threadpoolctl import threadpool_limits

from ....errors import ClusterError
from ....nn import Network
from ....roles.layout import Layout
from ....table import Table
from ...machine_limits import free_memory, usable_cpus
from ..requests import run_on_workers
from .placement import host_of

ANSWER_S = 5.0
MEASURE_S = 20.0
REPEATS, REPEAT_S = 5, 0.05  # number and duration (seconds) of the measurements of which the median is used
MEGA = 1 << 20


@dataclass(frozen=True)
class Resource:
    """The resources of one Dask worker. Memory in bytes, speed in gradients per second of a small fixed network; None: unknown.

    `cores`: number of cores that its process may use (possibly a fraction in a container), shared with other Dask
    workers on the host. `requested`: number of threads that its roles demand, one each. `allocated`: how many of these
    threads the Dask worker has.
    """

    address: str
    host: str
    threads: int
    cores: float | None
    memory_limit: int | None
    memory_free: int | None
    roles: tuple[str, ...]
    requested: int
    allocated: int
    speed: float | None


class Resources:
    """A table of `rows`, displayed as HTML in a notebook and as text in a terminal."""

    def __init__(self, rows: Iterable[Resource]):
        self.rows = tuple(rows)

    def _table(self) -> Table:
        return Table(
            list(_HEADS.values()), [[_cell(f.name, getattr(row, f.name)) for f in fields(row)] for row in self.rows]
        )

    def __str__(self) -> str:
        return str(self._table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._table()._repr_html_()

    def __len__(self) -> int:
        return len(self.rows)


_HEADS = {
    "address": "Dask worker", "host": "host", "threads": "threads", "cores": "cores", "memory_limit": "memory limit",
    "memory_free": "free memory", "roles": "roles", "requested": "threads requested", "allocated": "allocated",
    "speed": "gradients/s",
}  # fmt: skip


def _cell(name: str, value: Any) -> Any:
    if name == "memory_limit" and value is None:
        return "none"
    if name.startswith("memory") and value is not None:
        return f"{value / MEGA:,.0f} MiB"
    if isinstance(value, tuple):
        return ", ".join(value) or None
    return round(value) if name == "speed" and value is not None else value


def resources(client: Client, runs: Collection[Any] = (), speeds: bool = True) -> Resources:
    """Return the table of all Dask workers of `client`.

    `runs`: the runs whose roles are listed. `speeds`: whether speeds are measured. If a Dask worker does not answer
    within 5 s, its row contains the scheduler's data only. Raises `ClusterError` if the scheduler itself does not
    answer.
    """
    scheduler_data = _scheduler_data(client)
    answers = run_on_workers(client, scheduler_data, ANSWER_S, machine_resources, lambda address: ())
    responsive = [address for address in scheduler_data if isinstance(answers[address], tuple)]
    measured = measure_speed(client, responsive) if speeds else {}
    where: dict[str, list[str]] = {}
    for run in runs:
        for role, address in dict(run.supervisor.where).items():
            where.setdefault(address, []).append(role)
    return Resources(
        _row(address, info, answers[address], tuple(sorted(where.get(address, ()))), measured.get(address))
        for address, info in scheduler_data.items()
    )


def _row(
    address: str, info: Mapping[str, Any], answer: Any, roles: tuple[str, ...], speed: float | None
) -> Resource:  # fmt: skip
    threads, limit = int(info["nthreads"]), int(info.get("memory_limit") or 0) or None
    cores, available = answer if isinstance(answer, tuple) else (None, None)
    if limit is not None:
        used = info.get("metrics", {}).get("memory")
        left = None if used is None else max(0, limit - int(used))
        available = left if available is None else available if left is None else min(left, available)
    requested = len(roles)
    return Resource(
        address, host_of(address), threads, cores, limit, available, roles, requested, min(requested, threads), speed
    )


def _scheduler_data(client: Client) -> dict[str, dict[str, Any]]:
    """Return {address: the scheduler's data about this Dask worker}, sorted by address."""

    async def identity() -> Any:
        scheduler: Any = client.scheduler
        return await asyncio.wait_for(scheduler.identity(n_workers=-1), ANSWER_S)

    try:
        if client.status != "running":
            raise OSError(f"the client is {client.status}")
        found = client.sync(identity, callback_timeout=ANSWER_S + 1)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ClusterError(f"The Dask scheduler did not list its Dask workers ({why}).") from error
    return dict(sorted(found["workers"].items()))


def machine_resources() -> tuple[float, int]:
    """Return (cores that this process may use, free memory of its host or container in bytes). Runs on a Dask worker."""
    return usable_cpus(), free_memory()


# speed ------------------------------------------------------------------------------------------------------------------


def measure_speed(client: Client, addresses: Iterable[str]) -> dict[str, float]:
    """Return {address: gradients per second of a small fixed network}, rounded to three digits.

    All Dask workers are measured concurrently, in about a quarter of a second. Those that do not answer within 20 s are
    missing from the result.
    """
    answers = run_on_workers(client, addresses, MEASURE_S, gradients_per_second, lambda address: ())
    return {address: float(f"{v:.3g}") for address, v in answers.items() if isinstance(v, float)}


async def gradients_per_second() -> float:
    """Return the median of a few short measurements. Runs on a Dask worker, in a separate thread."""
    return await asyncio.to_thread(_gradient_rate)


def _gradient_rate() -> float:
    rng = np.random.default_rng(0)
    network = Network.mlp(64, (128,), 10, "relu", "cross-entropy", "float32")
    weights, out = network.start(0), np.empty(network.size, np.float32)
    x, y = rng.standard_normal((32, 64), np.float32), rng.integers(10, size=32)
    with threadpool_limits(1):
        return statistics.median(
            _calls_per_second(lambda: network.gradient(weights, x, y, out)) for _ in range(REPEATS)
        )


def _calls_per_second(work: Any) -> float:
    """Return the number of calls of `work` per second, measured for at least `REPEAT_S` seconds."""
    begun, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < REPEAT_S:
        work()
        done += 1
    return done / passed


def shares_of_speed(
    layout: Layout, placed: Mapping[str, str], speeds: Mapping[str, float], slow: Mapping[str, float]
) -> tuple[float, ...]:
    """Return, for each share of the data in their order, the speed of the slowest role that computes on this share.

    `placed`: {node: address}. `speeds`: {address: gradients per second}. `slow`: {role: slowdown factor}. Raises
    `ClusterError`, which names the role, if the speed of a role is unknown.
    """
    found: dict[int, float] = {}
    for role in layout.roles:
        if role.data is None or not role.computes:
            continue
        address = placed[role.node]
        if address not in speeds:
            raise ClusterError(
                f"The speed of {role.name} could not be measured: the Dask worker at {address} does not answer."
            )
        speed = speeds[address] / slow.get(role.name, 1.0)
        found[role.data] = min(speed, found.get(role.data, speed))
    return tuple(found[number] for number in sorted(found))
