"""What a role may say (messages), ask for (effects) and touch (context), and the parts it is given (model, shard,
judge).
"""

from __future__ import annotations

from .collectives import all_gather, all_reduce, barrier, broadcast, reduce_scatter
from .context import Context
from .gradient import Gradient, Model, Parameters
from .judge import Budget, Judge
from .layout import Layout, RoleSpec, shard_slices
from .messages import Ack, Chunk, Joined, Left, Message, Pull, Push, Weights
from .servers import pull, push, push_pull
from .shard import Shard

__all__ = [
    "Ack",
    "Budget",
    "Chunk",
    "Context",
    "Gradient",
    "Joined",
    "Judge",
    "Layout",
    "Left",
    "Message",
    "Model",
    "Parameters",
    "Pull",
    "Push",
    "RoleSpec",
    "Shard",
    "Weights",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "pull",
    "push",
    "push_pull",
    "reduce_scatter",
    "shard_slices",
]
