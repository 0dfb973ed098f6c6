"""Strategies that split the model: how long one update takes.

    tensor parallel   N workers compute one gradient and sum activations: for each pair of layers with x inputs and
                      y outputs 4(N-1) a + the time of 2(N-1)/N b (x + y) values on a link
    pipeline          the longest path through the schedule (critical_path.py); with P equal stages, M micro-batches
                      and a free network c (M + P - 1)/(M P)
    hybrid            the time of its split for each replica, then an all-reduce of each part between R replicas

The formulas are exact for deterministic times. With random times the replicas of a hybrid also wait for each other;
their paths are evaluated together, with draws of a fixed seed. (The formulas ignore that messages of a replica that is
ahead delay a replica that is behind. This is an error of up to an eighth on busy links, see `accuracy`.)

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
from .critical_path import PipelineStage, pipeline_period
from .estimate import Estimate, slots
from .estimate import time_text as t
from .inputs import CostInputs
from .peers import all_reduce_seconds

STEPS, RANDOM_STEPS = 4, 400  # steps of a path to evaluate: with constant times, with random times


def tensor_parallel(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `TensorParallel`, in which every worker has a part of every layer."""
    compute, latency, wire, moved, text = _tensor_parallel_times(f, f.n)
    text = f"c*/N + s + 4 L (N-1) a + 2(N-1)/N (activations) = {text} + {t(f.s)}"
    memory = f.itemsize * _rank_sizes(f, f.n) * (2 + slots(strategy))
    return Estimate(compute + f.s, latency, wire, 1, moved, memory, 0.0, text)


def _tensor_parallel_times(f: CostInputs, ranks: int, replicas: int = 1) -> tuple[float, float, float, float, str]:
    """Return (compute, latency, wire, bytes that a rank sends, formula) of one pass over `ranks` workers.

    With several `replicas`, the times are those of the slowest replica.
    """
    pairs = [split_pairs(f.network, rank, ranks) for rank in range(ranks)]
    shares = [max(pair[i].share for pair in pairs) for i in range(len(pairs[0]))]
    widths = sum(pair.inputs + pair.outputs for pair in pairs[0])
    steps, moved = 4 * len(pairs[0]) * (ranks - 1), 2 * (ranks - 1) / ranks * f.problem.batch_size * widths * f.itemsize
    phases = [share * third / 3 for share in shares for third in (1, 2)]  # forward and backward: one draw each
    compute, latency, wire = f.c.synchronized_sum(ranks, phases, replicas), steps * f.a, f.transfer_seconds(moved)
    return compute, latency, wire, moved, f"{t(compute)} + {steps} x {t(f.a)} + {t(wire)}"


def _rank_sizes(f: CostInputs, ranks: int) -> int:
    """Return the number of parameters of the rank that has most."""
    return max(boxes_of(split_pairs(f.network, rank, ranks)).size for rank in range(ranks))


def pipeline(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `Pipeline`, in which every worker has some layers, and a step begins when the pipeline is empty."""
    parts = _pipeline_times(strategy, f, f.n, [f.s] * f.n)
    text = _path_text(strategy, f, f.n, sum(parts))
    sizes, moved = _stage_sizes(strategy, f, f.n)
    memory = max(sizes) * (2 + slots(strategy) + (strategy.micro_batches > 1))
    return Estimate(*parts, 1, moved, memory, 0.0, text)


def pipedream(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `PipeDream`, in which P mini-batches are in flight and stage k keeps P - k versions of its weights."""
    n = f.n
    stages = _stages(f, n, 1, 1, lambda k: [_schedule_prefix(f, n, k)], [f.s] * n, update_every_backward=True)
    parts = _path_times(f, stages)
    slowest = max(_stage_share(f, blocks) for blocks in stages_of(f.network, n, 1, strategy.name))
    text = f"longest path; max over stages of c_k + s = {t(slowest * f.c.mean + f.s)} where links are free: {t(sum(parts))}"
    sizes, moved = _stage_sizes(strategy, f, n)
    memory = max(size * (n - k + 2 + slots(strategy)) for k, size in enumerate(sizes))
    return Estimate(*parts, 1, moved, memory, None, text)


def _schedule_prefix(f: CostInputs, stages: int, k: int) -> tuple[Work, ...]:
    """Return a prefix of a stage's endless list of work."""
    batches = (8 if f.c.constant else RANDOM_STEPS) * stages
    return tuple(itertools.islice(pipe_dream(stages, k), stages - 1 - k + 2 * batches))


def hybrid(strategy: Any, f: CostInputs) -> Estimate:
    """Estimate `Hybrid`: one pass of a replica, then a synchronisation of each part between the replicas."""
    replicas, parts = replicas_and_parts(strategy.name, strategy.shape, f.n)
    if strategy.split == "tensor":
        latency, wire = _synchronize_replicas(strategy, f, replicas, _rank_sizes(f, parts) * f.itemsize)
        compute, inner_latency, inner_wire, moved, text = _tensor_parallel_times(f, parts, replicas)
        times = (compute + f.s, inner_latency + latency, inner_wire + wire)
        largest = float(_rank_sizes(f, parts) * f.itemsize)
    else:
        sizes, moved = _stage_sizes(strategy, f, parts)
        extra = [_synchronize_replicas(strategy, f, replicas, size) for size in sizes]
        times = _pipeline_times(strategy, f, parts, [f.s + latency + wire for latency, wire in extra], replicas)
        latency, wire = extra[0]
        times = (times[0] - latency - wire, times[1] + latency, times[2] + wire)
        largest, text = max(sizes), _path_text(strategy, f, parts, sum(times) - latency - wire - f.s)
    text = f"{text}; + s + {strategy.between} of a part over {replicas} replicas {t(latency + wire)}"
    moved += 2 * (replicas - 1) / replicas * largest if strategy.between == "all-reduce" else replicas * largest
    return Estimate(*times, replicas, moved, largest * (2 + slots(strategy) + 1), 0.0, text)


def _synchronize_replicas(strategy: Any, f: CostInputs, replicas: int, part: float) -> tuple[float, float]:
    """Return the seconds of (latency, wire) to synchronise the replicas of a part of `part` bytes."""
    if strategy.between == "server":
        return 2 * f.a, (1 + replicas) * f.transfer_seconds(part)
    return all_reduce_seconds(f, part, replicas, strategy.algorithm)


# pipelines ------------------------------------------------------------------------------------------------------------


def _pipeline_times(
    strategy: Any, f: CostInputs, count: int, update_seconds: Sequence[float], replicas: int = 1
) -> tuple[float, float, float]:
    """Return (compute, latency, wire) of one step of a pipeline of `count` stages, with `replicas` replicas."""
    chunks = strategy.chunks if strategy.order == "interleaved" else 1
    micro = strategy.micro_batches
    order, rounds = SCHEDULES[strategy.order], STEPS if f.c.constant else RANDOM_STEPS
    stages = _stages(f, count, chunks, micro, lambda k: [order(count, micro, k, chunks)] * rounds, update_seconds)
    return _path_times(f, stages, replicas)


def _stages(
    f: CostInputs,
    count: int,
    chunks: int,
    micro: int,
    steps: Any,
    update_seconds: Sequence[float],
    update_every_backward: bool = False,
) -> list[PipelineStage]:
    """Return the stages of a pipeline as `critical_path.Stage` objects."""
    rows = [part.stop - part.start for part in shard_slices(f.problem.batch_size, micro)]
    made, last = [], len(f.network.blocks)
    for k, blocks in enumerate(stages_of(f.network, count, chunks, "a pipeline")):
        pieces = [f.network.stage(*chunk) for chunk in blocks]
        shares = [piece.multiply_adds / f.network.multiply_adds for piece in pieces]
        widths = [(piece.inputs, piece.outputs) for piece in pieces]
        made.append(
            PipelineStage(
                steps(k), partial(_cost, shares, rows), partial(_output_bytes, widths, rows, f.itemsize),
                partial(_of_chunk, [chunk[0] == 0 for chunk in blocks]),
                partial(_of_chunk, [chunk[1] == last for chunk in blocks]),
                update_seconds[k], update_every_backward,
            )
        )  # fmt: skip
    return made


def _cost(shares: list[float], rows: list[int], work: Work) -> float:
    thirds = 2 if work.kind == BACKWARD and not work.split else 1
    return shares[work.chunk] * rows[work.micro % len(rows)] / sum(rows) * thirds / 3


def _output_bytes(widths: list[tuple[int, int]], rows: list[int], itemsize: int, work: Work) -> int:
    inputs, outputs = widths[work.chunk]
    return (inputs if work.kind == BACKWARD else outputs) * rows[work.micro % len(rows)] * itemsize


def _of_chunk(flags: list[bool], work: Work) -> bool:
    return flags[work.chunk]


def _path_times(f: CostInputs, stages: list[PipelineStage], replicas: int = 1) -> tuple[float, float, float]:
    """Return the time of the longest path on a free network, and the times that latency and bytes add to it.

    With constant times all replicas are equal, so only one is evaluated.
    """
    distinct = 1 if f.c.constant else replicas

    def path(latency: float, bandwidth: float) -> float:
        return pipeline_period(
            stages, latency, bandwidth, [f.c.draws(i) for i in range(distinct * len(stages))], distinct
        )

    free = path(0.0, np.inf)
    late = path(f.a, np.inf) if f.a else free
    whole = path(f.a, f.cluster.bandwidth) if f.m else late
    return free, late - free, whole - late


def _path_text(strategy: Any, f: CostInputs, count: int, found: float) -> str:
    micro = strategy.micro_batches
    equal = f.c.mean * (micro + count - 1) / (micro * count)
    return f"longest path of {strategy.order}: {t(found)} (equal stages, free links: c (M + P - 1)/(M P) = {t(equal)})"


def _stage_share(f: CostInputs, blocks: Any) -> float:
    return sum(f.network.stage(*chunk).multiply_adds for chunk in blocks) / f.network.multiply_adds


def _stage_sizes(strategy: Any, f: CostInputs, count: int) -> tuple[list[float], float]:
    """Return (bytes of every stage's parameters, bytes that the busiest stage sends in a step)."""
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
