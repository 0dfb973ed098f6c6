"""Partitioning of a network into pipeline stages.

A stage consists of consecutive blocks. Stages are balanced by multiply-adds as far as whole layers allow, because the slowest
stage determines the throughput.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import BadInput, shown
from ...nn import Network
from ...nn.index_sets import Boxes
from .model_part import network_of
from .stages import PipelineStage

Blocks = tuple[int, int]  # blocks first..last-1 of the network


def pipeline_parts(
    strategy: Any, problem: Any, stages: int, order: str = "1f1b", chunks: int = 1, micro_batches: int = 1
) -> tuple[list[Boxes], list[Any]]:
    """Return (the parameters of each stage, the factory of each stage's model). Raises `BadInput` if the
    network cannot be cut in this way.
    """
    check_order(strategy.name, order, stages, micro_batches, problem.batch_size)
    network = network_of(problem.objective(), strategy.name)
    own = stages_of(network, stages, chunks, strategy.name)
    return [part_of(network, blocks) for blocks in own], [
        partial(PipelineStage, blocks, micro_batches) for blocks in own
    ]


def stages_of(network: Network, workers: int, chunks: int, who: str) -> list[tuple[Blocks, ...]]:
    """Return the blocks of every worker's chunks: the network in workers x chunks pieces, assigned round-robin.

    Raises `BadInput` if the network has fewer blocks than pieces.
    """
    blocks = len(network.blocks)
    if workers * chunks > blocks:
        each = f"{workers} stages, one a worker" + (f", of {chunks} chunks each" if chunks > 1 else "")
        allowed = f"stages x chunks up to {blocks}" if chunks > 1 else f"stages from 1 to {blocks}"
        raise BadInput(
            f"{who} cuts a network between its layers: this one has {blocks}, too few for {each}. Allowed: {allowed}, "
            "or more hidden layers."
        )
    pieces = balanced([block.dense.multiply_adds for block in network.blocks], workers * chunks)
    return [tuple(pieces[worker::workers]) for worker in range(workers)]


def replicas_and_parts(who: str, shape: str, workers: int) -> tuple[int, int]:
    """Parse "2x3", which means 2 replicas of 3 parts. Raises `BadInput` if the product is not `workers`."""
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", shape)
    replicas, parts = map(int, found.groups()) if found else (0, 0)
    if replicas * parts != workers:
        allowed = ", ".join(f"{n}x{workers // n}" for n in range(1, workers + 1) if workers % n == 0)
        raise BadInput(f"{who}(shape={shown(shape)}) with workers={workers}, replicas x parts; allowed: {allowed}.")
    return replicas, parts


def check_order(who: str, order: str, stages: int, micro_batches: int, batch_size: int) -> None:
    """Raise `BadInput` if micro-batches would have no samples, or if an interleaved order does not support the numbers."""
    if micro_batches > batch_size:
        raise BadInput(
            f"{who}: micro_batches={micro_batches} cuts a batch of {batch_size} into pieces of less than one sample; "
            f"allowed: 1 to {batch_size}."
        )
    if order == "interleaved" and (stages < 2 or micro_batches % stages):
        raise BadInput(
            f"{who}: micro-batches go through interleaved stages in groups of as many as there are stages, at least 2; "
            f"{micro_batches} micro-batches over {stages} stages do not. Allowed: a multiple of {max(stages, 2)}, or "
            "another order."
        )


def balanced(work: Sequence[int], pieces: int) -> list[Blocks]:
    """Divide a sequence into `pieces` non-empty contiguous pieces such that the largest sum of `work` is minimal."""
    best: list[list[tuple[float, int]]] = [[(0.0 if i == 0 else math.inf, 0) for i in range(len(work) + 1)]]
    for _ in range(pieces):
        before = best[-1]
        best.append([
            min(((max(before[j][0], sum(work[j:i])), j) for j in range(i)), default=(math.inf, 0))
            for i in range(len(work) + 1)
        ])  # fmt: skip
    edges = [len(work)]
    for row in reversed(best[1:]):
        edges.append(row[edges[-1]][1])
    return list(itertools.pairwise(reversed(edges)))


def part_of(network: Network, chunks: Sequence[Blocks]) -> Boxes:
    """Return the parameters of these blocks, in the order of the chunks."""
    return Boxes(box for blocks in chunks for box in Boxes.of(network.stage(*blocks).slice).boxes)
