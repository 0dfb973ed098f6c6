"""Speed of the simulator: updates of a timing-only AsyncPS per second of wall time, for 8 to 10,000 workers.

There are two peers, both in SimPy. They have the same draws as labkit's workers, and all three simulations end at the
same nanosecond.

"SimPy, nodes and links" is the fair comparison, because it is the same general model, written in the style of SimPy's
documentation. It has roles on nodes, queues for cores and cut-through links, mailboxes that are read by kind, and
counts of the bytes of every message; the algorithm uses this model. As in any general model, links and cores cost
events even if they take no time.

"SimPy, this algorithm only" is a lower bound of the cost of a SimPy program. It can simulate nothing else, and omits
what this run does not need (cores, bytes, events on links that take no time).

labkit records every span, message and application, which is the default; the peers record nothing. One side runs labkit
without recording, to show the cost of recording. There are two networks: a network that takes no time (the default), on
which a simulator only delivers messages, and a network with latency and bandwidth, with a busy server. The setup of the
roles is timed separately, so that the rates of few and of many workers can be compared.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import labkit as lk
from labkit.engines.distributions import Distribution, Sampler
from labkit.random_streams import COMPUTE_TIME, role_stream

from .rows import Benchmark, Pair, Row, Settings, Side, Values, alternate

PEERS = {"SimPy, nodes and links": "simpy_nodes", "SimPy, this algorithm only": "simpy_server"}  # side: its file
MANY_WORKERS, UPDATES_PER_WORKER = 10_000, 100  # workers, updates of each


@dataclass(frozen=True)
class Case:
    """One model. If `links`, latency is 0.1 ms, bandwidth 1 GB/s and server work 10 us per update; else these take no time."""

    workers: int
    updates: int
    distribution: Distribution
    links: bool = False
    repetitions: int | None = None  # None: those of the settings

    @property
    def name(self) -> str:
        """The name of the case, such as "8 workers, exponential:0.01, links"."""
        return f"{self.workers:,} workers, {self.distribution.describe()}" + (", links" if self.links else "")

    def cluster(self, **more: Any) -> lk.SimulatedCluster:
        """labkit's cluster for this case."""
        network = {"latency": 1e-4, "bandwidth": 1e9, "server_time": 1e-5} if self.links else {}
        return lk.SimulatedCluster(workers=self.workers, compute=self.distribution, **network, **more)


FIXED, RANDOM = lk.distributions.Deterministic(0.01), lk.distributions.Exponential(0.01)
CASES = (
    Case(8, 12_000, FIXED), Case(8, 12_000, RANDOM), Case(8, 12_000, RANDOM, links=True),
    Case(1_000, 12_000, FIXED), Case(1_000, 12_000, RANDOM), Case(1_000, 12_000, RANDOM, links=True),
    Case(10_000, 25_000, RANDOM, repetitions=3), Case(10_000, 25_000, RANDOM, links=True, repetitions=3),
)  # fmt: skip
QUICK = (Case(8, 1_000, FIXED), Case(8, 1_000, RANDOM, links=True), Case(100, 1_000, RANDOM))


def labkit_run(case: Case, **more: Any) -> lk.Run:
    """Return the run of the model in labkit, at time zero."""
    problem, budget = lk.Problem("digits", timing_only=True), lk.Budget(updates=case.updates)
    return lk.train(problem, lk.AsyncPS(), case.cluster(**more), budget, checkpoint=False)


def simpy_outcome(case: Case, peer: str) -> Any:
    """Run the model in one of `PEERS` to its end, with the draws that labkit's workers take."""
    module = importlib.import_module(f".peers.{PEERS[peer]}", __package__)
    problem = lk.Problem("digits", timing_only=True)
    draws = [
        Sampler(case.distribution, role_stream(problem.seed, "worker", i, COMPUTE_TIME)).next
        for i in range(case.workers)
    ]
    network = {"latency": 100_000, "per_byte": 1.0, "service": 10_000} if case.links else {}
    return module.simulate(draws, case.updates, nbytes=problem.objective().start(0).nbytes, **network)


def updates_rate(cluster: lk.SimulatedCluster, updates: int) -> dict[str, float]:
    """Measure one timing-only run of AsyncPS: updates per second of wall and of processor time, and the time to set it up."""
    began = time.perf_counter()
    problem = lk.Problem("digits", timing_only=True)
    run = lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(updates=updates), checkpoint=False)
    ready, processor = time.perf_counter(), time.process_time()
    run.wait()
    wall, processor = time.perf_counter() - ready, time.process_time() - processor
    return {"updates/s": updates / wall, "updates/CPU s": updates / processor, "s to set up": ready - began}


def run(settings: Settings) -> list[Row]:
    """Make a table for every case, and one line for the largest run."""
    rows: list[Row] = []
    for case in QUICK if settings.quick else CASES:
        sides = [
            Side("labkit", functools.partial(_labkit, case)),
            Side("labkit, recording off", functools.partial(_labkit, case, record=False)),
            *(Side(peer, functools.partial(_simpy, case, peer), needs=("simpy",)) for peer in PEERS),
        ]
        pairs = [Pair(case.name, ("labkit", case.name), (peer, case.name), "updates/s") for peer in PEERS]
        rows += alternate(settings, case.name, sides, repetitions=case.repetitions, pairs=pairs)
    return [*rows, _largest(settings)]


def _labkit(case: Case, **more: Any) -> Values:
    return {(case.name, "updates/s"): updates_rate(case.cluster(**more), case.updates)["updates/s"]}


def _simpy(case: Case, peer: str) -> Values:
    return {(case.name, "updates/s"): case.updates / simpy_outcome(case, peer).wall}


def _largest(settings: Settings) -> Row:
    """Measure the seconds of a run of a million updates with the default distribution, including its setup.

    It is measured once, because it takes long and has no peer.
    """
    workers, each = (100, 10) if settings.quick else (MANY_WORKERS, UPDATES_PER_WORKER)
    name = f"{workers:,} workers x {each} updates each"
    settings.report_progress(name)
    taken = _seconds(lambda: labkit_run(Case(workers, workers * each, FIXED)).wait())
    return Row(name, "labkit", "s", taken, taken, taken, 1)


def _seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


NOTE = (
    "SimPy, nodes and links: the same general model, written in the style of SimPy's documentation (the comparison). "
    "SimPy, this algorithm only: a program that can simulate nothing else and omits what a run does not need (the "
    "lower bound of its cost). Both use labkit's draws and end at the same nanosecond; only labkit records events."
)

BENCHMARK = Benchmark("simulator", "updates per second of a timing-only simulated run", run, NOTE)
