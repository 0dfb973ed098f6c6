"""Strategies that split the model: how long one update takes.

    tensor parallel   N workers compute one gradient and sum activations: for each pair of layers with x inputs and
                      y outputs 4(N-1) a + 2(N-1)/N b (x + y) bytes' time
    pipeline          the longest path through the schedule (paths.py); with P equal stages, M micro-batches and a free
                      network c (M + P - 1)/(M P)
    hybrid            as its parts, each with its own batches, and then an all-reduce of a part between R replicas

Exact for deterministic times. With random ones the replicas of a hybrid also wait for each other: their paths are evaluated
together, with draws of a fixed seed. (Messages by which a replica that is ahead delays one that is behind are not modelled:
an eighth on busy links, see `errors`.)

The workers of a replica compute one gradient together, so N gradients take N/R times as many updates. Splitting saves
memory; it saves time only if summing gradients costs more than computing them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..nn.split import boxes_of, split_pairs
from ..roles.layout import shard_slices
from ..roles.model_parallel.partitioning import replicas_and_parts, stages_of
from ..roles.model_parallel.schedules import BACKWARD, SCHEDULES, Work, pipe_dream
from .estimate import Estimate, slots
from .estimate import time_text as t
from .facts import Facts
from .paths import Stage, period
from .peers import summed

__all__ = ["hybrid", "pipedream", "pipeline", "tensor_parallel"]

STEPS, DRAWN = 4, 400  # steps of a path to evaluate: with constant times, with random times


def tensor_parallel(strategy: Any, f: Facts) -> Estimate:
    """Every worker has a part of every layer."""
    compute, latency, wire, moved, text = _tensor(f, f.n)
    text = f"c*/N + s + 4 L (N-1) a + 2(N-1)/N (activations) = {text} + {t(f.s)}"
    memory = f.itemsize * _rank_sizes(f, f.n) * (2 + slots(strategy))
    return Estimate(compute + f.s, latency, wire, 1, moved, memory, 0.0, text)


def _tensor(f: Facts, ranks: int, replicas: int = 1) -> tuple[float, float, float, float, str]:
    """(compute, latency, wire, bytes a rank sends, formula) of one pass over `ranks` workers, of the slowest of `replicas`."""
    pairs = [split_pairs(f.network, rank, ranks) for rank in range(ranks)]
    shares = [max(pair[i].share for pair in pairs) for i in range(len(pairs[0]))]
    widths = sum(pair.inputs + pair.outputs for pair in pairs[0])
    steps, moved = 4 * len(pairs[0]) * (ranks - 1), 2 * (ranks - 1) / ranks * f.problem.batch_size * widths * f.itemsize
    thirds = [share * third / 3 for share in shares for third in (1, 2)]  # forward and backward: one draw each
    compute, latency, wire = f.c.slowest_in_turns(ranks, thirds, replicas), steps * f.a, f.held(moved)
    return compute, latency, wire, moved, f"{t(compute)} + {steps} x {t(f.a)} + {t(wire)}"


def _rank_sizes(f: Facts, ranks: int) -> int:
    """The number of parameters of the largest rank."""
    return max(boxes_of(split_pairs(f.network, rank, ranks)).size for rank in range(ranks))


def pipeline(strategy: Any, f: Facts) -> Estimate:
    """Every worker has some layers; a step begins when the pipeline is empty."""
    parts = _pipe(strategy, f, f.n, [f.s] * f.n)
    text = _path_text(strategy, f, f.n, sum(parts))
    sizes, moved = _stage_sizes(strategy, f, f.n)
    memory = max(sizes) * (2 + slots(strategy) + (strategy.micro_batches > 1))
    return Estimate(*parts, 1, moved, memory, 0.0, text)


def pipedream(strategy: Any, f: Facts) -> Estimate:
    """P mini-batches are in flight; stage k keeps P - k versions of its weights."""
    n = f.n
    stages = _stages(f, n, 1, 1, lambda k: [_taken(f, n, k)], [f.s] * n, always=True)
    parts = _parts(f, stages)
    slowest = max(_share(f, blocks) for blocks in stages_of(f.network, n, 1, strategy.name))
    text = f"longest path; max over stages of c_k + s = {t(slowest * f.c.mean + f.s)} where links are free: {t(sum(parts))}"
    sizes, moved = _stage_sizes(strategy, f, n)
    memory = max(size * (n - k + 2 + slots(strategy)) for k, size in enumerate(sizes))
    return Estimate(*parts, 1, moved, memory, None, text)


def _taken(f: Facts, stages: int, k: int) -> tuple[Work, ...]:
    """A prefix of a stage's endless list of work."""
    batches = (8 if f.c.constant else DRAWN) * stages
    return tuple(itertools.islice(pipe_dream(stages, k), stages - 1 - k + 2 * batches))


def hybrid(strategy: Any, f: Facts) -> Estimate:
    """One pass of a replica, then an all-reduce of each part."""
    replicas, parts = replicas_and_parts(strategy.name, strategy.shape, f.n)
    if strategy.split == "tensor":
        latency, wire = _agree(strategy, f, replicas, _rank_sizes(f, parts) * f.itemsize)
        compute, inner_latency, inner_wire, moved, text = _tensor(f, parts, replicas)
        times = (compute + f.s, inner_latency + latency, inner_wire + wire)
        largest = float(_rank_sizes(f, parts) * f.itemsize)
    else:
        sizes, moved = _stage_sizes(strategy, f, parts)
        extra = [_agree(strategy, f, replicas, size) for size in sizes]
        times = _pipe(strategy, f, parts, [f.s + latency + wire for latency, wire in extra], replicas)
        latency, wire = extra[0]
        times = (times[0] - latency - wire, times[1] + latency, times[2] + wire)
        largest, text = max(sizes), _path_text(strategy, f, parts, sum(times) - latency - wire - f.s)
    text = f"{text}; + s + {strategy.between} of a part over {replicas} replicas {t(latency + wire)}"
    moved += 2 * (replicas - 1) / replicas * largest if strategy.between == "all-reduce" else replicas * largest
    return Estimate(*times, replicas, moved, largest * (2 + slots(strategy) + 1), 0.0, text)


def _agree(strategy: Any, f: Facts, replicas: int, part: float) -> tuple[float, float]:
    """Seconds of (latency, wire) of the synchronisation of a part's replicas."""
    if strategy.between == "server":
        return 2 * f.a, (1 + replicas) * f.held(part)
    return summed(f, part, replicas, strategy.algorithm)


# pipelines ------------------------------------------------------------------------------------------------------------


def _pipe(strategy: Any, f: Facts, count: int, after: Sequence[float], replicas: int = 1) -> tuple[float, float, float]:
    """(compute, latency, wire) of one step of a pipeline of `count` stages, with `replicas` replicas."""
    chunks = strategy.chunks if strategy.order == "interleaved" else 1
    micro = strategy.micro_batches
    order, rounds = SCHEDULES[strategy.order], STEPS if f.c.constant else DRAWN
    stages = _stages(f, count, chunks, micro, lambda k: [order(count, micro, k, chunks)] * rounds, after)
    return _parts(f, stages, replicas)


def _stages(
    f: Facts, count: int, chunks: int, micro: int, steps: Any, after: Sequence[float], always: bool = False
) -> list[Stage]:
    """The stages of a pipeline as `paths.Stage` objects."""
    rows = [part.stop - part.start for part in shard_slices(f.problem.batch_size, micro)]
    made, last = [], len(f.network.blocks)
    for k, blocks in enumerate(stages_of(f.network, count, chunks, "a pipeline")):
        pieces = [f.network.stage(*chunk) for chunk in blocks]
        shares = [piece.multiply_adds / f.network.multiply_adds for piece in pieces]
        widths = [(piece.inputs, piece.outputs) for piece in pieces]
        made.append(
            Stage(
                steps(k), partial(_cost, shares, rows), partial(_sends, widths, rows, f.itemsize),
                partial(_at, [chunk[0] == 0 for chunk in blocks]), partial(_at, [chunk[1] == last for chunk in blocks]),
                after[k], always,
            )
        )  # fmt: skip
    return made


def _cost(shares: list[float], rows: list[int], work: Work) -> float:
    thirds = 2 if work.kind == BACKWARD and not work.split else 1
    return shares[work.chunk] * rows[work.micro % len(rows)] / sum(rows) * thirds / 3


def _sends(widths: list[tuple[int, int]], rows: list[int], itemsize: int, work: Work) -> int:
    inputs, outputs = widths[work.chunk]
    return (inputs if work.kind == BACKWARD else outputs) * rows[work.micro % len(rows)] * itemsize


def _at(places: list[bool], work: Work) -> bool:
    return places[work.chunk]


def _parts(f: Facts, stages: list[Stage], replicas: int = 1) -> tuple[float, float, float]:
    """The longest path on a free network, and the times that latency and bytes add. With constant times replicas are equal."""
    alike = 1 if f.c.constant else replicas

    def path(latency: float, bandwidth: float) -> float:
        return period(stages, latency, bandwidth, [f.c.draws(i) for i in range(alike * len(stages))], alike)

    free = path(0.0, np.inf)
    late = path(f.a, np.inf) if f.a else free
    whole = path(f.a, f.cluster.bandwidth) if f.m else late
    return free, late - free, whole - late


def _path_text(strategy: Any, f: Facts, count: int, found: float) -> str:
    micro = strategy.micro_batches
    equal = f.c.mean * (micro + count - 1) / (micro * count)
    return f"longest path of {strategy.order}: {t(found)} (equal stages, free links: c (M + P - 1)/(M P) = {t(equal)})"


def _share(f: Facts, blocks: Any) -> float:
    return sum(f.network.stage(*chunk).multiply_adds for chunk in blocks) / f.network.multiply_adds


def _stage_sizes(strategy: Any, f: Facts, count: int) -> tuple[list[float], float]:
    """(bytes of every stage's parameters, bytes that the busiest stage sends in a step)."""
    chunks = strategy.chunks if getattr(strategy, "order", "") == "interleaved" else 1
    sizes, moved = [], [0.0]
    for blocks in stages_of(f.network, count, chunks, strategy.name):
        pieces = [f.network.stage(*chunk) for chunk in blocks]
        sizes.append(float(sum(piece.size for piece in pieces) * f.itemsize))
        widths = sum(
            piece.inputs * (chunk[0] > 0) + piece.outputs * (chunk[1] < len(f.network.blocks))
            for piece, chunk in zip(pieces, blocks)
        )
        moved.append(float(widths * f.problem.batch_size * f.itemsize))
    return sizes, max(moved)
