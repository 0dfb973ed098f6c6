"""A model that is partitioned over several roles; each computes its part of the gradient.

The roles of a group (the stages of a pipeline, the ranks of a tensor-parallel network) draw the same mini-batches, process each
mini-batch together, and take the same step, each on its part of the parameters. There is therefore one gradient per mini-batch.
The first role of the group, its leader, counts the gradient. It counts as applied when every role has taken its step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...nn import NullObjective
from ...nn.index_sets import Boxes
from ...trace.recorder import Recorder
from ..collectives import all_reduce
from ..context import Context
from ..gradient import Gradient, record_norms
from ..layout import Layout, RoleSpec
from ..messages import Push, Weights
from ..part import Part, Work

NORMS_EVERY = 10  # number of mini-batches between two records of gradient norms


class ModelPart(Part):
    """The model of a role that has `size` of the parameters, flat, as member `index` of the group `group`.

    `leads`: it counts the group's gradients. `null`: a timing-only run; arrays have a size but no memory.
    """

    work: ClassVar[Work] = "gradient"

    def __init__(
        self, group: str, index: int, size: int, leads: bool, *, objective: Any, recorder: Recorder,
        clock: Callable[[], int], strategy: Any,
    ):  # fmt: skip
        self.group, self.index, self.leads, self.recorder, self.clock = group, index, leads, recorder, clock
        self.objective = objective
        self.null = isinstance(objective, NullObjective)
        self.dtype = objective.dtype
        self.parts = (slice(0, size),)
        self.values = self.null_values(size) if self.null else np.zeros(size, self.dtype)  # this piece's gradient
        self.step, self.samples = -1, 0
        self.layers: list[tuple[int, slice]] = []  # (number of a layer, its slice in this part's vector), for norms

    def null_values(self, size: int) -> np.ndarray:
        """Return an array of a timing-only run: shape (size,), no memory."""
        return np.broadcast_to(self.dtype.type(0), (size,))

    def count(self, samples: int) -> None:
        """Count the next mini-batch, at the start of its work."""
        self.step, self.samples = self.step + 1, samples
        if self.leads:
            self.recorder.counters.computed += 1
        else:
            self.recorder.counters.steps += 1

    def gradient(self, weights: Weights, step: int | None = None) -> Gradient:
        """Return this role's part of the gradient number `step` (default: the newest), computed on `weights`.

        Its values are a reused buffer, valid until the backward pass of the next mini-batch.
        """
        step = self.step if step is None else step
        if self.measures(step):
            record_norms(self.recorder, self.clock(), step, self.layers, self.values, weights.values)
        return Gradient(self.values, step, weights.read, self.samples, self.parts, all_workers=True)

    def measures(self, step: int) -> bool:
        """Return whether the norms of this gradient's layers are recorded."""
        return step % NORMS_EVERY == 0 and self.recorder.record and not self.null


def adjacent(sizes: Iterable[int]) -> tuple[slice, ...]:
    """Return the slices of parts of these sizes that follow each other in one vector."""
    edges = [0, *itertools.accumulate(sizes)]
    return tuple(slice(a, b) for a, b in itertools.pairwise(edges))


def model_parallel_layout(
    strategy: Any, parts: Sequence[Boxes], models: Sequence[Any], *, replicas: int = 0, served: bool = False,
    own_data: bool = False,
) -> Layout:  # fmt: skip
    """Return a layout of workers that share a model, with part k on worker k, and a chief.

    `models[k]`: the factory of part k's model. `replicas`: the number of replicas of the model, each with its share of the data;
    the groups "replica-i" and "part-k" contain the workers of one replica and of one part. `served`: server k owns part k,
    not the workers. `own_data`: each worker has its share of the data, and counts its gradients.
    """
    specs, pieces = [], len(parts)
    for i, k in itertools.product(range(max(replicas, 1)), range(pieces)):
        w, group = i * pieces + k, f"replica-{i}" if replicas else "worker"
        node = "chief" if strategy.chief_works and w == 0 else f"worker-{w}"
        model = partial(models[k], group=group, index=k, size=parts[k].size, leads=own_data or k == 0)
        spec = RoleSpec(f"worker-{w}", "worker", w, node, computes=True, data=w if own_data else i, model=model)
        specs.append(spec if served else replace(spec, shard=w, part=parts[k]))
    servers = [
        RoleSpec(f"server-{k}", "server", k, f"server-{k}", shard=k, part=part)
        for k, part in enumerate(parts)
        if served
    ]
    names = [spec.name for spec in specs]
    groups = {f"replica-{i}": tuple(names[i * pieces : (i + 1) * pieces]) for i in range(replicas)}
    groups |= {f"part-{k}": tuple(names[k::pieces]) for k in range(pieces) if replicas}
    seen = tuple(spec.name for spec in (servers or specs)[:pieces])
    chief = RoleSpec("chief", "chief", 0, "chief")
    return Layout((*servers, *specs, chief), seen, (), replication="synchronized", groups=groups)


async def clip_by_global_norm(ctx: Context, gradient: Gradient, max_norm: float | None, group: str) -> None:
    """Scale a gradient that is partitioned over the members of `group` down to the norm `max_norm`. Its norm is computed by an
    all-reduce of the sums of squares.
    """
    if max_norm is None:
        return
    values = gradient.values
    real = values.strides != (0,)
    squares = np.array([np.dot(values, values)], np.float64) if real else np.broadcast_to(np.float64(0), (1,))
    total = await all_reduce(ctx, squares, group)
    norm = math.sqrt(total[0])
    if real and math.isfinite(norm) and norm > max_norm:
        values *= max_norm / norm


def mean_of_pushes(pushes: Sequence[Push]) -> Gradient:
    """Return the mean of one push of each replica, as one gradient of all workers; added in the given order."""
    first = pushes[0]
    total = first.values
    if total.strides != (0,):
        total = total.copy()
        for push in pushes[1:]:
            total += push.values
    read = ((first.generation, first.version),)
    return Gradient(total, first.step, read, first.samples, ()).of_all_workers(total, len(pushes))
