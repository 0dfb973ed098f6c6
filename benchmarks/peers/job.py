"""The jobs of peers and their measurement, the same for every peer.

A peer that trains is a program, `python -m benchmarks.peers.NAME [ARGUMENTS] JOBS`, which does its jobs in sequence and
prints a list of numbers, one per job. All peers have labkit's data, split and initial weights, and each worker has
labkit's batches. So synchronous peers (a synchronous server, an all-reduce) compute the same weights, except for rounding.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream

RULES = {
    "single": "single process",
    "async": "asynchronous server",
    "sync": "synchronous server",
    "reduce": "all-reduce",
}


@dataclass(frozen=True)
class Job:
    """One job: train digits by one of `RULES`, for `warm_up` and then `duration` seconds.

    With `accuracy`, train until that accuracy on the test set is reached, for at most `duration` seconds. The clock is
    read every `check_every` updates.
    """

    rule: str
    hidden: tuple[int, ...]
    workers: int
    learning_rate: float
    warm_up: float
    duration: float
    accuracy: float | None = None
    check_every: int = 20
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the measurement, such as "64-128-10, all-reduce, 2 workers"."""
        net = "-".join(map(str, (64, *self.hidden, 10)))
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{net}, {RULES[self.rule]}" if self.rule == "single" else f"{net}, {RULES[self.rule]}, {workers}"

    @cached_property
    def problem(self) -> lk.Problem:
        """labkit's problem, with mini-batches of 32."""
        return lk.Problem("digits", hidden=tuple(self.hidden), batch_size=32, seed=self.seed)

    @property
    def start(self) -> np.ndarray:
        """The initial weights, one flat vector of float32: for every dense layer W (inputs, outputs), then b."""
        return self.problem.objective().start(self.seed)

    def batches(self, worker: int) -> Batches:
        """Return the batches of labkit's `worker-<worker>`."""
        data = self.problem.dataset
        own = self.problem.partition.split(data.y_train, self.workers, self.seed)[worker]
        rng = role_stream(self.seed, "worker", worker, BATCHES)
        return Batches(data.x_train[own], data.y_train[own], self.problem.batch_size, rng)

    def gradient(self) -> Callable[[np.ndarray, Any], np.ndarray]:
        """Return a function (weights, batch) -> gradient of labkit's network, which has been called once.

        Every call writes the gradient to the same array.
        """
        objective = self.problem.objective()
        out = np.empty(objective.size, objective.dtype)

        def gradient(weights: np.ndarray, batch: Any) -> np.ndarray:
            objective.gradient(weights, batch.x, batch.y, out)
            return out

        gradient(self.start, next(self.batches(0)))
        return gradient


class JobClock:
    """Measures one job, in the process that has the weights. The clock is stopped during evaluations."""

    def __init__(self, job: Job) -> None:
        self.job, self.result = job, float("nan")
        self._objective, self._data = job.problem.objective(), job.problem.dataset
        self._accuracy(job.start)  # the first evaluation in a process takes many times as long
        self._zero = self._began = 0.0
        self._gradients_before: int | None = None

    def begin(self) -> None:
        """Start the clock: training begins."""
        self._zero = time.perf_counter()

    def should_continue(self, gradients: int, weights: Callable[[], np.ndarray]) -> bool:
        """Return False when the job is done. Call this every `check_every` updates, with the number of gradients applied so far.

        When the job is done, `result` is the gradients per second, or the seconds to the accuracy (nan if it was not reached).
        """
        now = time.perf_counter() - self._zero
        if self.job.accuracy is not None:
            reached = self._accuracy(weights()) >= self.job.accuracy
            self._zero = time.perf_counter() - now
            self.result = now if reached else self.result
            return not reached and now < self.job.duration
        if self._gradients_before is None:
            if now >= self.job.warm_up:
                self._began, self._gradients_before = now, gradients
            return True
        self.result = (gradients - self._gradients_before) / (now - self._began)
        return now < self._began + self.job.duration

    def _accuracy(self, weights: np.ndarray) -> float:
        return self._objective.evaluate(weights, self._data.x_test, self._data.y_test)[1]


def as_json(jobs: Sequence[Job]) -> str:
    """Return jobs as text for the command line of a peer."""
    return json.dumps([asdict(job) for job in jobs])


def from_json(text: str) -> list[Job]:
    """Read the jobs that `as_json` wrote."""
    return [Job(**fields) for fields in json.loads(text)]


def run_jobs(jobs: Sequence[Job], do: Callable[[Job], float]) -> None:
    """Do the jobs and print the results. Exits early if the benchmark has ended."""
    threading.Thread(target=_exit_with_the_benchmark, daemon=True).start()
    results = [do(job) for job in jobs]
    print(f"\n{json.dumps(results)}", flush=True)


def _exit_with_the_benchmark() -> None:
    while os.read(0, 1):  # the benchmark keeps the other end open without writing
        continue
    os.killpg(os.getpgrp(), signal.SIGKILL)
