"""Closed forms of collectives, for steps that send too many messages to be simulated.

    all-reduce, ring               2(N-1) a + 2(N-1)/N m
    recursive halving-doubling     2k a + 2(N-1)/N m,  N = 2^k;  N = P + r, P = 2^k: (2k+2) a + (2(P-1)/P + 2) m
    bucketed                       all-reduces of the buckets in sequence, each when the slowest worker has the bucket
    fully sharded                  two all-gathers and a reduce-scatter of each of L layers: 3 L (N-1) a + 3(N-1)/N m
    tensor parallel                4(N-1) a + 2(N-1)/N of the activations, for each pair of layers

A step begins when the slowest worker has its gradient: c* is the mean of the largest of N sums of a gradient and an update, from
draws with a fixed seed. With constant times the forms are exact (to a thousandth). With random times they assume that a
collective begins when its last member does, so they are rather too long; `BOUND` is their largest error. A test compares both
with the simulator.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2), 2009.
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (1), 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import strategies as known
from ...engines.distributions import Distribution
from ...nn.split import split_pairs
from ...roles.gradient import Model
from ...roles.layerwise import FORWARD_COST, GradientBucket, LayerwiseModel
from ...roles.model_parallel.partitioning import replicas_and_parts
from ...trace.recorder import Recorder
from ..steady_state import MOST_MESSAGES
from .inputs import Inputs

MANY_MESSAGES = MOST_MESSAGES // 20  # of one update: with more, a simulation has too few updates for a narrow interval
TOO_MANY_MESSAGES = MOST_MESSAGES // 5  # of one update: more are not simulated, even if there is no closed form
BOUND = 0.1  # the largest error with random times, as a share of the step time that the simulator finds
DRAWS = 1_000_000  # durations from which the mean of the slowest is computed


@dataclass(frozen=True)
class ClosedForm:
    """A step in closed form: seconds of computing (with waiting for the slowest and updates), latency and transfer, bytes through
    the busiest direction of a link, the share of time in which workers wait, and the formula.
    """

    compute: float
    latency: float
    wire: float
    bytes: float
    waiting: float
    formula: str

    @property
    def step(self) -> float:
        """The seconds of a step."""
        return self.compute + self.latency + self.wire


def messages_of_update(strategy: Any, f: Inputs) -> int:
    """Return the number of messages that the collectives of one update send; 0 for a strategy without collectives."""
    found = MESSAGES.get(type(strategy))
    return 0 if found is None else found(strategy, f)


def closed_form(strategy: Any, f: Inputs) -> ClosedForm | None:
    """Return a step in closed form. None: there is no closed form, or it does not hold, because messages are compressed or
    because workers share cores.
    """
    form = FORMS.get(type(strategy))
    if form is None or getattr(strategy, "codec", None) is not None or f.cluster.costs is not None:
        return None
    return form(strategy, f)


class Draws:
    """Durations of many steps, shape (steps, N), with a fixed seed. `terms`: how many of them a step needs."""

    def __init__(self, f: Inputs, terms: int):
        self.shape = max(20, DRAWS // (f.n * terms)), f.n
        self._rng = np.random.default_rng(0)
        self._factors = np.array([f.cluster.slow.get(f"worker-{i}", 1.0) for i in range(f.n)])

    def of(self, distribution: Distribution | None) -> np.ndarray:
        """Return a new duration of every worker; 0 if there is no distribution."""
        if distribution is None:
            return np.zeros(self.shape)
        return np.asarray(distribution.draw(self._rng, math.prod(self.shape))).reshape(self.shape) * self._factors


def slowest(f: Inputs, gradients: int = 1, updates: int = 1, late: Sequence[float] = ()) -> tuple[float, float]:
    """Return the means, in seconds, of the largest of N sums and of one sum: of durations of `gradients` and `updates`.
    `late`: seconds that the first workers are ready later.
    """
    draws = Draws(f, max(gradients, updates))
    total = np.zeros(draws.shape)
    for distribution, terms in ((f.cluster.compute, gradients), (f.cluster.server_time, updates)):
        for _ in range(terms):
            total += draws.of(distribution)
    mean = float(total.mean())
    total[:, : len(late)] += late
    return float(total.max(axis=1).mean()), mean


def all_reduce(algorithm: str, n: int) -> tuple[int, float, int, str]:
    """Return (latencies in sequence, bytes through a link in sequence as a multiple of the vector, messages, the formula)."""
    if algorithm == "ring":
        return 2 * (n - 1), 2 * (n - 1) / n, 2 * n * (n - 1), "2(N-1) a + 2(N-1)/N m"
    power = 1 << n.bit_length() - 1
    k, share = power.bit_length() - 1, 2 * (power - 1) / power
    if power == n:
        return 2 * k, share, 2 * n * k, "2 log2(N) a + 2(N-1)/N m"
    return 2 * k + 2, share + 2, 2 * power * k + 2 * (n - power), "(2 log2(P) + 2) a + (2(P-1)/P + 2) m"


def _replicas(strategy: Any, f: Inputs) -> ClosedForm:
    updates, batches = getattr(strategy, "H", 1), getattr(strategy, "accumulate", 1)  # between two all-reduces
    every = updates * batches
    steps, share, _, text = all_reduce(strategy.algorithm, f.n)
    folded = f.n - (1 << f.n.bit_length() - 1) if strategy.algorithm == "halving-doubling" else 0
    # Every second of the first 2r members receives the sum one message later than the others, and sends its vector one message
    # earlier. The formula has both messages, but a step takes longer by them only if one of these members is the slowest.
    late = 2 * (f.a + f.m) if folded else 0.0
    longest, mean = slowest(f, every, updates, late=[late, 0.0] * folded)
    longest -= late
    between = "H" if updates > 1 else "k"
    text = f"c* + {text}" if every == 1 else f"(c*({between}) + {text})/{between}"
    moved = (share - 1 if folded else share) * f.model / every  # one of the two vectors is sent, the other one received
    return _form(longest / every, mean / every, steps * f.a / every, share * f.m / every, moved, text)


def _buckets(strategy: Any, f: Inputs) -> list[GradientBucket]:
    model = Model(f.objective, Recorder(0), lambda: 0, [slice(0, f.objective.size)])
    return LayerwiseModel(model).buckets(strategy.bucket_size)


def _bucketed(strategy: Any, f: Inputs) -> ClosedForm:
    """The recurrence of the buckets: each is summed when the slowest worker has it and the sum before it is complete."""
    buckets = _buckets(strategy, f)
    pieces, batches = [piece for bucket in buckets for piece in bucket.pieces], strategy.accumulate
    draws = Draws(f, 1 + batches * len(pieces))
    ready, done, sums = draws.of(f.cluster.server_time), 0.0, [0.0, 0.0]
    for _ in range(batches - 1):
        for cost in (FORWARD_COST, *(piece.cost for piece in pieces)):
            ready += cost * draws.of(f.cluster.compute)
    ready += FORWARD_COST * draws.of(f.cluster.compute)
    for bucket in buckets:
        for piece in bucket.pieces:
            ready += piece.cost * draws.of(f.cluster.compute)
        moved = 2 * (f.n - 1) / f.n * (bucket.part.stop - bucket.part.start) * f.itemsize
        parts = 2 * (f.n - 1) * f.a, f.transfer_seconds(moved)
        sums = [total + part for total, part in zip(sums, parts)]
        done = np.maximum(done, ready.max(axis=1)) + sum(parts)
    longest, mean = float(ready.max(axis=1).mean()), float(ready.mean())
    exposed = float(np.mean(done)) - longest
    latency, wire = (exposed * part / (sum(sums) or 1.0) for part in sums)
    text = "c* + what is not hidden of B all-reduces in sequence, each 2(N-1) a + 2(N-1)/N of its bucket"
    if batches > 1:
        text = f"(c*(k) {text.removeprefix('c* ')})/k"
    moved = 2 * (f.n - 1) / f.n * f.model
    return _form(longest / batches, mean / batches, latency / batches, wire / batches, moved / batches, text)


def _fsdp(strategy: Any, f: Inputs) -> ClosedForm:
    layers, share = len(f.objective.stages), 3 * (f.n - 1) / f.n
    longest, mean = slowest(f)
    latency = 3 * layers * (f.n - 1) * f.a
    return _form(longest, mean, latency, share * f.m, share * f.model, "c* + 3 L (N-1) a + 3(N-1)/N m")


def _tensor_parallel(strategy: Any, f: Inputs) -> ClosedForm:
    pairs = split_pairs(f.objective.network, f.n - 1, f.n)  # the last rank has the largest share
    share, widths = sum(pair.share for pair in pairs), sum(pair.inputs + pair.outputs for pair in pairs)
    longest, mean = slowest(f, updates=0)
    update = 0.0 if f.cluster.server_time is None else slowest(f)[0] - longest
    moved = 2 * (f.n - 1) * f.problem.batch_size * widths * f.itemsize  # of N updates
    latency = f.n * 4 * len(pairs) * (f.n - 1) * f.a
    text = "N (c* share + s + 4 L (N-1) a) + 2(N-1) of the activations"
    return _form(
        f.n * (share * longest + update), f.n * (share * mean + update), latency, f.transfer_seconds(moved), moved, text
    )


def _form(longest: float, mean: float, latency: float, wire: float, moved: float, text: str) -> ClosedForm:
    step = longest + latency + wire
    return ClosedForm(longest, latency, wire, moved, 1 - mean / step if step else 0.0, text)


def _hybrid_messages(strategy: Any, f: Inputs) -> int:
    replicas, parts = replicas_and_parts(strategy.name, strategy.shape, f.n)
    return parts * all_reduce(strategy.algorithm, replicas)[2] if strategy.between == "all-reduce" else 0


def _sparse_messages(strategy: Any, f: Inputs) -> int:
    return all_reduce("ring", f.n)[2] if strategy.dense == "all-reduce" else 0


MESSAGES: Mapping[type, Callable[[Any, Inputs], int]] = {
    **dict.fromkeys(
        (known.RingAllReduce, known.HalvingDoubling, known.LocalSGD), lambda strategy, f: all_reduce(strategy.algorithm, f.n)[2]
    ),
    known.BucketedAllReduce: lambda strategy, f: len(_buckets(strategy, f)) * all_reduce("ring", f.n)[2],
    known.FSDP: lambda strategy, f: 3 * len(f.objective.stages) * f.n * (f.n - 1),
    known.TensorParallel: lambda strategy, f: 4 * len(split_pairs(f.objective.network, 0, f.n)) * f.n * (f.n - 1),
    known.Hybrid: _hybrid_messages, known.SparsePS: _sparse_messages,
}  # fmt: skip
FORMS: Mapping[type, Callable[[Any, Inputs], ClosedForm]] = {
    known.RingAllReduce: _replicas, known.HalvingDoubling: _replicas, known.LocalSGD: _replicas,
    known.BucketedAllReduce: _bucketed, known.FSDP: _fsdp, known.TensorParallel: _tensor_parallel,
}  # fmt: skip
