"""Sparse parameter server: workers fetch only the rows that their batch needs, and send only those rows' gradients.

    server: forever: receive a pull of rows or a push of row gradients
                     synchronous: when all have pushed, step by the mean;  else: step at once
                     answer pulls; a worker that has pushed waits for the step
    worker: forever: U <- the distinct ids of the next mini-batch;  pull rows U from their owners
                     g <- gradient at those rows;  push g to the owners
                     the dense part: with the rows, or added up by an all-reduce among the workers

An embedding table contains most of a recommender's parameters, and a batch uses few of its rows. For a batch with U distinct
ids, a pull and a push each move U (8 + row bytes), not the whole model. A synchronous run with SGD or Adagrad has the same
results as `SyncPS` on the whole table. The price: the most used row is on one server, and more servers do not divide its load.
The dense layers are used by every batch. They are therefore updated by an all-reduce (`dense="all-reduce"`), so that the
servers are no bottleneck for them.

Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Kim et al., "Parallax:
sparsity-aware data parallel training of deep neural networks", EuroSys 2019 (servers for sparse, all-reduce for dense).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from ..nn import Adagrad, Optimizer
from ..nn.named_objects import name_as_text
from ..options import Converted, option, same_option
from ..problem import Problem
from ..roles.chief import final_snapshots
from ..roles.collectives import all_reduce
from ..roles.context import Context
from ..roles.evaluator import Evaluator
from ..roles.gates import Round
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Chunk, Joined, Left, Message
from ..roles.shard import Shard
from ..roles.sparse.placement import PLACEMENTS, HashPlacement, Placement, placement_of
from ..roles.sparse.row_layout import row_layout
from ..roles.sparse.row_shard import RowShard
from ..roles.sparse.rows import RowModel, RowPull, RowPush, Rows, pull_rows, push_rows
from ..trace.header import RULES
from .base import ServerStrategy, StaleGradients


@dataclass(frozen=True, kw_only=True)
class SparsePS(StaleGradients):
    """Workers pull only the rows that a batch needs, and push the gradients of these rows to the servers that own them.

    See Also
    --------
    SyncPS : Sends the whole table.
    RangePlacement, HashPlacement, ConsistentHash : Which server owns which row.

    Examples
    --------
    A batch needs few rows of the embedding table, so the servers send a small part of it.

    >>> problem = lk.Problem("clicks", batch_size=16, hidden=(16,))
    >>> for strategy in (lk.SparsePS(), lk.SyncPS()):
    ...     run = lk.train(problem, strategy, lk.SimulatedCluster(workers=2), lk.Budget(updates=20)).wait()
    ...     print(f"{run.summary()['bytes_sent']['server']['training'] / 40:,.0f} bytes per gradient")
    2,909 bytes per gradient
    640,712 bytes per gradient
    """

    placement: Converted[Placement, str] = option(
        HashPlacement(), names=PLACEMENTS, read=placement_of, write=partial(name_as_text, allowed=PLACEMENTS),
        help="which server owns which row: range, hash or consistent-hash, or lk.placements.HashPlacement(3)",
    )  # fmt: skip
    dense: str = option(
        "all-reduce", choices=("all-reduce", "server"), help="what adds up the gradients behind the table"
    )
    synchronous: bool = option(True, help="wait for all workers; False: apply each push at once (needs dense=server)")
    reduce: str = option(
        "mean", choices=("mean", "sum"), help="average the workers' gradients, or add them up (the linear scaling rule)"
    )
    optimizer: Converted[Optimizer, str] = same_option(
        ServerStrategy,
        "optimizer",
        default=Adagrad(),
        help="how a shard turns a gradient into a step: SGD or Adagrad, lazily",
    )

    messages: ClassVar[tuple[type[Message], ...]] = (RowPull, Rows, RowPush, Chunk, Left, Joined)
    summary: ClassVar[str] = "parameter server for embedding tables: only the rows of a batch are sent"
    suggested_problem: ClassVar[dict[str, Any]] = {"data": "clicks"}
    description: ClassVar[str] = "sparse: only the rows of a batch are sent."

    def __post_init__(self) -> None:
        super().__post_init__()
        placement_of(self.placement)  # raises if it is not a placement

    def one_update(self) -> str:
        """Return the definition of an update."""
        return f"the {self.reduce} of one gradient of every worker" if self.synchronous else super().one_update()

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0 if all workers take each step together (synchronous), else None."""
        return 0.0 if self.synchronous else None

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Assign rows to servers by the placement. The dense part is on the servers, or replicated on every worker."""
        return row_layout(self, problem, cluster)

    async def server(self, ctx: Context, shard: RowShard) -> None:
        """Take a step when all workers have pushed (asynchronous: at once), and answer pulls.

        Pulls are answered at once, except those of workers whose push is not applied yet.
        """
        step, pulls = Round[RowPush](shard), list[RowPull]()
        async for request in ctx.inbox(RowPull, RowPush, Left, Joined):
            if isinstance(request, RowPull):
                pulls.append(request)
            elif isinstance(request, RowPush) and self.synchronous:
                step.add(request)
            elif isinstance(request, RowPush):
                await ctx.compute(shard.apply, request, self.learning_rate, self.reduce)
            elif isinstance(request, Joined):
                step.restart(ctx.peers("server"))
            if step.complete(ctx.peers("worker")):
                await ctx.compute(shard.apply, step.pushes(), self.learning_rate, self.reduce)
            for pull in pulls:
                if pull.sender not in step.received:
                    ctx.send(pull, shard.rows(pull))
            pulls = [pull for pull in pulls if pull.sender in step.received]

    async def worker(self, ctx: Context, model: RowModel, replica: Shard | None = None) -> None:
        """Pull the rows of the batch, compute on them, push their gradient; then step on the dense part if it is replicated."""
        gradient = None
        for batch in ctx.batches():
            weights = await pull_rows(ctx, model.rows_needed(batch), replica, gradient)
            gradient = await ctx.compute(model.gradient, weights, batch)
            push_rows(ctx, gradient)
            if replica is not None:
                dense = gradient.dense_for(replica)
                dense.of_all_workers(await all_reduce(ctx, dense.values), len(ctx.peers("worker")), self.reduce)
                await ctx.compute(replica.apply, dense, self.learning_rate)

    async def chief(self, ctx: Context, evaluator: Evaluator) -> None:
        """Evaluate the model with the rows of the held-out samples. The final model contains all rows that were accessed."""
        await super().chief(ctx, evaluator)
        if evaluator.stopped_by in RULES:  # otherwise the last snapshots contain all rows
            last = evaluator.layout.assemble_model(await final_snapshots(ctx, evaluator))
            evaluator.parameters = last.updated(evaluator.parameters)
            evaluator.all_rows_known()
