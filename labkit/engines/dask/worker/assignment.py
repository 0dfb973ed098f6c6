"""The assignment of a role: the arguments that the client passes to one role instance, which is one task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from ....packed import Packed
from ....roles.layout import RoleSpec
from ...distributions import Distribution
from ...plan import Plan
from ..protocol import PROTOCOL, ProtocolError, other_protocol


@dataclass(frozen=True)
class RoleAssignment:
    """The assignment of one role instance.

    `run`: identifier of the run. `index`: number of the role. `plan`: the plan, without data. `objective`: None for
    roles that need none. `pace`, `server_time`: distributions of the times of a gradient and of server work; None: full
    speed. `factor`: slowdown factor of the role. `folder`: folder for checkpoints; None: no checkpoints are saved.
    `local`: whether labkit started the processes, on one machine. `every`: seconds between two checkpoints of a shard;
    None: the interval described in `checkpointing`. `synchronized`: whether the shards take part in the same steps, and
    are saved at the same versions.

    `restored`: (initial state, whether nothing of it was lost); an initial state of None means the initial weights. If
    `restored` is None, incarnation 0 begins with the initial weights, and later incarnations begin with their last
    checkpoint. `times_resumed`: how often the run was resumed (see `Store`). `protocol`: protocol number of the client.
    """

    run: str
    index: int
    incarnation: int
    plan: Plan
    objective: Any
    pace: Distribution | None
    server_time: Distribution | None
    factor: float
    folder: str | None
    local: bool
    every: float | None = None
    synchronized: bool = False
    restored: tuple[dict[str, Any] | None, bool] | None = None
    times_resumed: int = 0
    protocol: int = PROTOCOL

    @classmethod
    def of(cls, packed: Packed, address: str, options: Mapping[str, Any], **own: Any) -> Self:
        """Return an assignment. `packed`: the fields that all roles of the run have in common and that contain a user's code;
        `address`: this Dask worker; `options`: those of the strategy that were changed since; `own`: all other fields.

        Raises `ClusterError` if the code cannot be loaded here.
        """
        common = packed.value(address)
        if options:
            common["plan"] = replace(common["plan"], strategy=common["plan"].strategy.changed(**options))
        return cls(**common | own)

    @property
    def spec(self) -> RoleSpec:
        return self.plan.layout.roles[self.index]

    def check(self) -> None:
        """Raise `ProtocolError` if the client and this process use different protocols."""
        if self.protocol != PROTOCOL:
            raise ProtocolError(f"This process was assigned a role by a client: {other_protocol(self.protocol)}.")
