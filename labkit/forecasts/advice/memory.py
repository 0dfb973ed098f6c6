"""The memory of each node for parameters, gradients and the optimizer's state, from the layout of a run.

Activations, messages, and buffers for them are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ...nn.index_sets import Boxes
from ...roles.layout import Layout, RoleSpec
from ...roles.replica import outer_optimizer
from ...trace import Trace
from .inputs import Inputs


def memory_of_nodes(layout: Layout, strategy: Any, f: Inputs, trace: Trace | None = None) -> dict[str, float]:
    """Return {node: bytes}.

    - A shard has its parameters and the states of the optimizer and of an outer optimizer. Parameters that are in no shard's part
      (rows of an embedding table) are divided between the servers.
    - A role that computes has a gradient, two if it accumulates those of mini-batches, and, if it has no shard, the weights that
      it received: of its part of the model, or of the rows that its mini-batch touches.
    - A pipeline's stage has the versions of its weights that it held in the run of `trace`.
    """
    vectors = 1  # each as long as the parameters
    for optimizer in filter(None, (strategy.optimizer, outer := outer_optimizer(strategy))):
        vectors += sum(not name.startswith("_") for name in optimizer.state(1, "float32"))
    vectors += outer is not None  # whose steps begin at the last model
    owners = [role for role in layout.roles if role.name in layout.observed]
    rows = max(0, f.objective.size - sum(map(_size, owners)))
    servers = sum(role.shard is not None and not role.computes for role in layout.roles)
    sums: defaultdict[str, float] = defaultdict(float)
    for i, role in enumerate(layout.roles):
        held = 0.0
        if role.shard is not None:
            counters = trace.counters.get(i) if trace else None
            stashed = max(1, counters.stashed if counters else 1)
            share = 0.0 if role.computes or not rows else rows / servers
            held += vectors * (_size(role) + share) + (stashed - 1) * _size(role)
        if role.computes:
            if rows:
                held += 2 * f.density * f.objective.size - (_size(role) if role.shard is not None else 0)
            elif role.shard is not None:
                held += _size(role)
            else:
                held += 2 * _computed(role, f)
            if getattr(strategy, "accumulate", 1) > 1:
                held += _computed(role, f)
        sums[role.node] += held * f.itemsize
    return dict(sums)


def _size(role: RoleSpec) -> int:
    """Return the number of parameters of a role's shard."""
    return 0 if role.part is None else Boxes.of(role.part).size


def _computed(role: RoleSpec, f: Inputs) -> int:
    """Return the number of parameters of which a role computes the gradient."""
    return int(getattr(role.model, "keywords", {}).get("size", f.objective.size))
