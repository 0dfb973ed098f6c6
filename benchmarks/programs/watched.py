"""The program in the kernel for the benchmark of watching: AsyncPS on 2 Dask workers, with or without the live figure."""

from __future__ import annotations

import time

import labkit as lk
from labkit.trace.schema import ALL

from ..run_rate import NANO, Window


class Bench:
    """A cluster, and consecutive runs on it."""

    def __init__(self) -> None:
        self.cluster = lk.DaskCluster(workers=2, servers=1).open()

    def begin(self, duration: float, watched: bool) -> None:
        """Start a run of `duration` seconds, and return at once, as in a notebook."""
        problem, strategy = lk.Problem("digits", hidden=(128,), batch_size=32), lk.AsyncPS(learning_rate=0.01)
        self.processor, self.began = time.process_time(), time.perf_counter()
        self.run = lk.train(problem, strategy, self.cluster, lk.Budget(seconds=duration), checkpoint=False)
        self.watch = self.run.watch() if watched else None

    def end(self, warm_up: float, duration: float) -> tuple[float, float]:
        """Wait for the end of the run. Returns (updates/s within the window, cores that this process used on average)."""
        self.run.wait()
        cores = (time.process_time() - self.processor) / (time.perf_counter() - self.began)
        if self.watch is not None:
            self.watch.wait()
            self.watch.close()
        return _rate(self.run.trace, Window(warm_up, duration)), cores

    def close(self) -> None:
        """Close the cluster."""
        self.cluster.close()


def _rate(trace: lk.Trace, window: Window) -> float:
    """Return updates per second between two reports of the shard: the first report in the window and the first after it."""
    role, time_, sender, gradients = trace.column("progress", "role", "time", "sender", "gradients")
    shard = trace.observed[0]
    ours = (role == shard) & (sender == ALL)
    when, applied = time_[ours], gradients[ours]
    first = int((when < window.warm_up * NANO).sum())
    if first + 1 >= len(when):
        raise RuntimeError(f"the run is over, and the shard has reported {len(when)} times only")
    last = min(int((when < when[first] + window.duration * NANO).sum()), len(when) - 1)
    return float((applied[last] - applied[first]) * NANO / (when[last] - when[first]))
