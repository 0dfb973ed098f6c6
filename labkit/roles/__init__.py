"""Building blocks of roles: messages, effects, the context, and components (model, shard, evaluator, gates, collectives)."""

from __future__ import annotations

from .budget import Budget
from .collectives import all_gather, all_reduce, barrier, broadcast, reduce_scatter
from .context import Context
from .evaluator import Evaluator
from .gates import Accumulator, Gate, Round, all_pushes, first_pushes, next_pushes
from .gradient import Gradient, Model, Parameters
from .layout import Layout, RoleSpec, shard_slices
from .messages import Ack, Chunk, Joined, Left, Message, Mix, Pull, Push, Weights
from .replica import Centre, Replica
from .servers import NewestWeights, post, pull, push, push_pull
from .shard import Shard
from .tasks import TaskGroup, TaskQueue

__all__ = [
    "Accumulator",
    "Ack",
    "Budget",
    "Centre",
    "Chunk",
    "Context",
    "Gate",
    "Gradient",
    "Joined",
    "Evaluator",
    "Layout",
    "Left",
    "Message",
    "Mix",
    "Model",
    "NewestWeights",
    "Parameters",
    "Pull",
    "Push",
    "Replica",
    "RoleSpec",
    "Round",
    "Shard",
    "TaskGroup",
    "TaskQueue",
    "Weights",
    "all_gather",
    "all_pushes",
    "all_reduce",
    "barrier",
    "broadcast",
    "first_pushes",
    "next_pushes",
    "post",
    "pull",
    "push",
    "push_pull",
    "reduce_scatter",
    "shard_slices",
]
