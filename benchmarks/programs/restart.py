"""Kills one role of a run, then all roles at once, and prints the times until they have restarted and compute again.

`python -m benchmarks.programs.restart WORKERS SERVERS`. Times are in seconds of engine time, from the kill.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import labkit as lk

TIMEOUT_S = 60.0  # of every wait
STEADY_UPDATES = 50  # updates between two kills, so that the run is in a steady state
PACE = 0.01  # seconds that a worker takes for a gradient


def _main(workers: int, servers: int) -> None:
    budget = lk.Budget(seconds=600)
    with (
        lk.DaskCluster(workers=workers, servers=servers, pace=PACE).open() as cluster,
        lk.train(lk.Problem("digits"), lk.AsyncPS(), cluster, budget) as run,
    ):
        result = {"one": _restart_times(run, ["worker-1"]), "all": _restart_times(run, list(run.trace.roles))}
        run.stop()
    print(json.dumps(result))


def _restart_times(run: lk.Run, roles: list[str]) -> list[float]:
    """Return [seconds from the kill until all of `roles` have restarted, and until a worker among them begins to compute]."""
    _until(run, STEADY_UPDATES + run.summary()["updates"])
    since, killed_at = len(run.trace.events), run.engine.seconds
    for role in roles:
        run.kill(role)
    while len(restarted := [e for e in run.trace.events[since:] if e.kind == "restarted"]) < len(roles):
        _wait(run, killed_at)
    lost_at = max(event.time for event in run.trace.events[since:] if event.kind == "lost")
    workers = [run.trace.roles.index(event.name) for event in restarted if event.name.startswith("worker")]
    while True:
        role, start = run.trace.column("spans", "role", "start")
        first = start[np.isin(role, workers) & (start > lost_at)]
        if len(first):
            return [max(event.time for event in restarted) / 1e9 - killed_at, first.min() / 1e9 - killed_at]
        _wait(run, killed_at)


def _until(run: lk.Run, updates: int) -> None:
    since = run.engine.seconds
    while run.summary()["updates"] < updates:
        _wait(run, since)


def _wait(run: lk.Run, since: float) -> None:
    if run.done or run.engine.seconds - since > TIMEOUT_S:
        raise RuntimeError(f"the run does not continue: {run.stopped_by}, {[str(e) for e in run.trace.events]}")
    time.sleep(0.01)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
