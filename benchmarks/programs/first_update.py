"""Starts a cluster and a run, and prints when the cluster was ready, when the first update was applied, and the memory used.

`python -m benchmarks.programs.first_update WORKERS SERVERS`. Times are read from the machine's monotonic clock.
"""

from __future__ import annotations

import json
import sys
import time

import psutil

import labkit as lk

MEMORY_DELAY_S = 0.5  # seconds of training after which memory is read


def _main(workers: int, servers: int) -> None:
    with lk.DaskCluster(workers=workers, servers=servers).open() as cluster:
        ready = time.monotonic()
        with lk.train(lk.Problem("digits"), lk.AsyncPS(), cluster, lk.Budget(seconds=60)) as run:
            first_update = _first_update(run)
            time.sleep(MEMORY_DELAY_S)
            sizes = _private_bytes()
    result = {"ready": ready, "first_update": first_update, "private_bytes": sum(sizes), "processes": len(sizes)}
    print(json.dumps(result))


def _first_update(run: lk.Run) -> float:
    """Return the monotonic time in seconds of the first application, computed from its age when it is reported."""
    while not run.done:
        times = run.trace.column("applies", "time")
        if len(times):
            return time.monotonic() - (run.engine.seconds - times.min() / 1e9)
        time.sleep(0.01)
    run.wait()
    raise RuntimeError(f"the run ended without an update: {run.stopped_by}")


def _private_bytes() -> list[int]:
    """Return the private bytes of this process and of all its descendants."""
    me = psutil.Process()
    sizes = []
    for process in (me, *me.children(recursive=True)):
        try:
            sizes.append(process.memory_full_info().uss)
        except psutil.NoSuchProcess:
            continue
    return sizes


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
