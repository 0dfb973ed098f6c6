"""The layout of parameter servers for models with an embedding table, whose rows are distributed by a placement."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...data import recipe_of
from ...errors import BadInput
from ...nn import SGD, Adagrad, Recommender
from ...nn.objective import represented
from ...problem import Problem
from ..layout import ClusterShape, Layout, RoleSpec, shard_slices
from ..standard_layouts import worker_specs
from .row_shard import Assembly, RowShard, dense_replica
from .rows import RowModel

LAZY = (SGD, Adagrad)


def row_layout(strategy: Any, problem: Problem, cluster: ClusterShape) -> Layout:
    """Return a layout of servers that own rows by `strategy.placement`, workers, and a chief.

    The dense part is divided into one slice per server or, with `strategy.dense="all-reduce"`, replicated on every worker.
    Raises `BadInput` if the model has no table, or if an option of the strategy is not supported.
    """
    network = _recommender(strategy, problem)
    servers = 1 if cluster.servers is None else cluster.servers
    _check(strategy, servers)
    dense, replicated = network.tower.size, strategy.dense == "all-reduce"
    placement = strategy.placement.of_table(network.bag.rows)
    parts = (slice(0, 0),) * servers if replicated else shard_slices(dense, servers)
    held = None if problem.timing_only else np.unique(np.concatenate(problem.dataset.evaluated[::2]))
    owner = None if held is None else placement.owner(held, servers)
    owners = [
        RoleSpec(
            f"server-{i}", "server", i, f"server-{i}", shard=i, part=parts[i],
            store=partial(RowShard.make, held=None if held is None else held[owner == i]),
        )
        for i in range(servers)
    ]  # fmt: skip
    recipe = recipe_of(str(problem.data), problem.options) if problem.timing_only else None
    every = 0 if not cluster.record else 1 if cluster.paced else 10
    model = partial(RowModel, placement, parts, recipe, problem.seed, every)
    workers = worker_specs(strategy, cluster.workers, model=model)
    if replicated:
        own = {"part": slice(0, dense), "store": dense_replica}
        workers = [RoleSpec(**{**vars(w), "shard": servers + w.index, **own}) for w in workers]
    observed = [r.name for r in owners] + ["worker-0"] * replicated
    return Layout(
        (*owners, *workers, RoleSpec("chief", "chief", 0, "chief")), tuple(observed), parts,
        replication="synchronized" if replicated else "", assemble=Assembly(network.bag, problem.seed, problem.timing_only),
    )  # fmt: skip


def _recommender(strategy: Any, problem: Any) -> Recommender:
    """Return the problem's model. Raises `BadInput` if it has no embedding table."""
    network = represented(problem.objective())
    if not isinstance(network, Recommender):
        raise BadInput(
            f"{strategy.name} moves rows of an embedding table, and the model of {problem.name} has none; "
            "use the data set 'clicks', or a dense strategy, as SyncPS."
        )
    if problem.timing_only and not isinstance(problem.data, str):
        raise BadInput(f"{strategy.name}: a timing-only run draws its ids by the data set's law; give it by name.")
    return network


def _check(strategy: Any, servers: int) -> None:
    if servers < 1:
        raise BadInput(
            f"{strategy.name} keeps its rows on servers and was given servers={servers}; it needs at least 1."
        )
    if not isinstance(strategy.optimizer, LAZY):
        raise BadInput(
            f"{strategy.name}: optimizer={strategy.optimizer!r} moves rows that have no gradient, and those stay where "
            "they are here; use lk.SGD() or lk.Adagrad()."
        )
    if strategy.weight_decay:
        raise BadInput(
            f"{strategy.name}: weight_decay={strategy.weight_decay:g} would shrink every row of the table in every "
            "step, used or not; it must be 0."
        )
    if not strategy.synchronous and strategy.dense == "all-reduce":
        raise BadInput(
            f"{strategy.name}: dense='all-reduce' makes all workers step together, so it is not asynchronous; "
            "use synchronous=True, or dense='server'."
        )
