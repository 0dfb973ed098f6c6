"""Partitioning of a model into pipeline stages.

A pipeline stage consists of consecutive stages of the objective, such as the layers of a network. Pipeline stages are balanced by
multiply-adds as far as these allow, because the slowest one determines the throughput.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import BadInput, shown
from ...nn.index_sets import Boxes
from ...nn.objective import ObjectiveStage
from .stages import PipelineStage

StageRange = tuple[int, int]  # stages first..last-1 of the objective


def pipeline_parts(
    strategy: Any, problem: Any, stages: int, order: str = "1f1b", chunks: int = 1, micro_batches: int = 1
) -> tuple[list[Boxes], list[Any]]:
    """Return (the parameters of each stage, the factory of each stage's model). Raises `BadInput` if the
    model cannot be cut in this way.
    """
    check_order(strategy.name, order, stages, micro_batches, problem.batch_size)
    smallest = stages_of(problem.objective(), strategy.name)
    own = divided(smallest, stages, chunks, strategy.name)
    return [part_of(smallest, ranges) for ranges in own], [
        partial(PipelineStage, ranges, micro_batches) for ranges in own
    ]


def stages_of(objective: Any, who: str) -> Sequence[ObjectiveStage]:
    """Return the stages of an objective. Raises `BadInput` if its gradient is computed in one piece."""
    stages: Sequence[ObjectiveStage] = objective.stages
    if not stages:
        raise BadInput(
            f"{who} cuts a model into stages, as a network between its layers, and this one has none: {objective.architecture}. "
            "Use a model with stages, or a strategy that keeps the model whole, as SyncPS."
        )
    return stages


def divided(stages: Sequence[ObjectiveStage], workers: int, chunks: int, who: str) -> list[tuple[StageRange, ...]]:
    """Return the stages of every worker's chunks: workers x chunks pieces, assigned round-robin.

    Raises `BadInput` if there are fewer stages than pieces.
    """
    if workers * chunks > len(stages):
        each = f"{workers} stages, one a worker" + (f", of {chunks} chunks each" if chunks > 1 else "")
        allowed = f"stages x chunks up to {len(stages)}" if chunks > 1 else f"stages from 1 to {len(stages)}"
        raise BadInput(
            f"{who} cuts a model into stages, as a network between its layers: this one has {len(stages)}, too few for {each}. "
            f"Allowed: {allowed}, or more layers."
        )
    pieces = balanced([stage.multiply_adds for stage in stages], workers * chunks)
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


def balanced(work: Sequence[int], pieces: int) -> list[StageRange]:
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


def part_of(stages: Sequence[ObjectiveStage], chunks: Sequence[StageRange]) -> Boxes:
    """Return the parameters of these stages, in the order of the chunks."""
    own = [slice(stages[first].slice.start, stages[end - 1].slice.stop) for first, end in chunks]
    return Boxes(box for part in own for box in Boxes.of(part).boxes)
