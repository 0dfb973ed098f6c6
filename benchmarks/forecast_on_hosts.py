"""Forecasts for three hosts that are connected by links of limited bandwidth.

The hosts are network namespaces of this machine (`tests/multihost/net.py`), each with Dask workers, and a token bucket filter in
both directions of each link. They share the cores of the machine, which a calibration does not measure, so all runs are paced.
The client, with the program `forecast_on_hosts` of `benchmarks/programs`, runs on a fourth host.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .forecast import Point, Rate, hosts_grid, summarized
from .rows import Benchmark, Row, Settings, Unmeasured

HOSTS, WORKERS_PER_HOST = 3, 3
RATE = "100mbit"  # of each link: 12.5 MB/s
PORT = 8786
TIME_LIMIT_S = 1800.0
QUICK = 2  # runs of a quick benchmark
ROOT = Path(__file__).parent.parent


def run(settings: Settings) -> list[Row]:
    """Start the hosts, calibrate and measure on them, and return the rows."""
    from tests.multihost.net import Network, missing, sweep

    sweep()
    why = missing()
    if why:
        raise Unmeasured(f"no hosts: {why}")
    seconds, points = int(settings.choose(10, 1)), int(settings.choose(len(hosts_grid()), QUICK))
    settings.report_progress(f"{points} runs on {HOSTS} hosts")
    with Network(HOSTS) as network, tempfile.TemporaryDirectory() as folder:
        try:
            for host in network.all:
                host.limit(RATE)
        except RuntimeError as error:
            raise Unmeasured(str(error)) from None
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        address = f"tcp://{network.head.address}:{PORT}"

        def dask(host: Any, what: str, *arguments: str) -> None:
            with open(Path(folder, f"{host.name}.log"), "ab") as log:
                command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
                host.spawn(command, env=environment, stdout=log, stderr=log)

        dask(network.head, "scheduler", "--host", network.head.address, "--port", str(PORT), "--no-dashboard")
        for host in network.hosts:
            dask(
                host, "worker", address, "--host", host.address, "--nworkers", str(WORKERS_PER_HOST), "--nthreads", "1",
                "--nanny", "--no-dashboard", "--local-directory", folder,
            )  # fmt: skip
        program_name, workers = "benchmarks.programs.forecast_on_hosts", HOSTS * WORKERS_PER_HOST
        command = [sys.executable, "-m", program_name, address, str(workers), str(seconds), str(points)]
        pipe = subprocess.PIPE
        program = network.head.spawn(command, env=environment, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
        out, error = program.communicate(timeout=TIME_LIMIT_S)
        if program.returncode:
            last = (error.strip() or "no message").splitlines()[-1]
            raise Unmeasured(f"the program on the hosts failed: {last}")
    return rows_of([json.loads(line) for line in out.splitlines() if line.startswith("{")])


def rows_of(lines: list[dict[str, Any]]) -> list[Row]:
    """Return the rows of what the program has printed."""
    link, *found = lines
    rows = [
        Row("link", f"{name} found", unit, link[name], link[name], link[name], 1)
        for name, unit in (("latency", "s"), ("bandwidth", "B/s"))
    ]  # fmt: skip
    measured, made = {}, {}
    for line in found:
        point = Point(**{**line["point"], "hidden": tuple(line["point"]["hidden"])})
        measured[point], made[point] = [Rate(**line["measured"])], [Rate(**line["forecast"])]
    return rows + summarized(measured, made)


BENCHMARK = Benchmark(
    "forecast-on-hosts",
    "the same on three hosts (network namespaces) with links of 100 Mbit/s; all runs are paced",
    run,
    "The hosts share the cores of the machine.",
)
