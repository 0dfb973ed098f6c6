"""PipeDream: a pipeline that is never emptied. The backward pass of a mini-batch uses the same weights as its forward pass.

    stage k: forever: forward of mini-batch t + P-1-k, at the weights as they are; keep a copy of them (the stash)
                      backward of mini-batch t, at the weights of its forward;  w_k <- w_k - rate * g_k, at once

P mini-batches are in progress at the same time, so no stage is idle once the pipeline is full. The price is staleness, which
differs by stage: between the forward and the backward of a mini-batch, stage k takes P-1-k steps. Therefore

    w_k(t+1) = w_k(t) - rate * grad_k(w_0(t-(P-1)), w_1(t-(P-2)), ..., w_(P-1)(t))

and stage k stores P-k versions of its weights. Without the stash, backward would use other weights than forward. (`Pipeline`
needs no stash, because it empties the pipeline after every mini-batch.)

Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, sections 3.2 and 3.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..problem import Problem
from ..roles.context import Context
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Message, Weights
from ..roles.model_parallel.model_part import model_parallel_layout
from ..roles.model_parallel.partitioning import pipeline_parts
from ..roles.model_parallel.schedules import FORWARD, pipe_dream
from ..roles.model_parallel.stages import Activation, Delta, PipelineStage, perform, stash
from ..roles.shard import Shard
from ..roles.standard_layouts import refuse_servers
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class PipeDream(Strategy):
    """A pipeline that is never emptied: no bubble, but the first stages' gradients are stale.

    See Also
    --------
    Pipeline : Empties the pipeline after every mini-batch; no staleness.

    Examples
    --------
    A step takes as long as the work of the largest stage: there is no bubble. The gradients of stage k of 4 are 3 - k updates
    old.

    >>> problem = lk.Problem("digits", hidden=(64, 64, 64), timing_only=True)
    >>> cluster = lk.SimulatedCluster(workers=4, compute=0.1)
    >>> run = lk.train(problem, lk.PipeDream(), cluster, lk.Budget(updates=100)).wait()
    >>> print(f"{run.summary()['seconds'] / 100:.3f} s")
    0.032 s
    >>> run.summary()["staleness"]["histogram"]  # the pipeline is full after three updates
    {'0': 103, '1': 101, '2': 99, '3': 97}
    """

    messages: ClassVar[tuple[type[Message], ...]] = (Activation, Delta)
    uses_servers: ClassVar[bool] = False
    summary: ClassVar[str] = "pipeline without a flush: no bubble; stages stash weights, gradients are stale"
    suggested_problem: ClassVar[dict[str, Any]] = {"hidden": (64, 64, 64)}
    description: ClassVar[str] = "pipeline without a flush: never idle, and stale."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm is not None:
            raise BadInput(
                f"PipeDream: clip_norm={self.clip_norm:g} needs the length of the whole gradient, and each stage steps "
                "before the next one has its part; allowed: None, or use Pipeline."
            )

    def one_update(self) -> str:
        """Return the definition of an update."""
        return "one gradient of one mini-batch, every stage's part of it"

    def mean_staleness(self, workers: int) -> float | None:
        """Return None, because the staleness differs by stage: P-1-k for stage k once the pipeline is full."""
        return None

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign stage k to worker k. A stage consists of neighbouring layers; all stages have about the same work."""
        refuse_servers(self, cluster)
        return model_parallel_layout(self, *pipeline_parts(self, problem, cluster.workers))

    async def worker(self, ctx: Context, stage: PipelineStage, shard: Shard) -> None:
        """Alternate a forward at the newest weights and a backward at the weights of its forward.

        A step is taken after each backward.
        """
        batches, stashed = ctx.batches(), dict[int, Weights]()
        for work in pipe_dream(len(ctx.peers("worker")), stage.index):
            if work.kind == FORWARD:
                stage.begin(next(batches), work.micro)
                stashed[work.micro] = stash(stage, shard, stashed)
            await perform(ctx, stage, stashed[work.micro].values, work)
            if work.kind != FORWARD:
                gradient = stage.gradient(stashed.pop(work.micro), work.micro)
                await ctx.compute(shard.apply, gradient, self.learning_rate)
