"""The assignment of a role: all that one role instance, one task, is given by the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....roles.layout import RoleSpec
from ...distributions import Distribution
from ...plan import Plan
from ..protocol import PROTOCOL, ProtocolError, other_protocol

__all__ = ["RoleAssignment"]


@dataclass(frozen=True)
class RoleAssignment:
    """`plan` carries no data; `objective` is the role's own, None where it needs none.

    `factor`: how many times slower the role computes. `folder`: where checkpoints are kept; None: nowhere. `every`: seconds
    between two of a shard; None: as often as is cheap. `together`: the shards are parts of one step, and are saved at the same
    versions. `restored`: the state that the instance begins with (None: the first weights), and whether nothing of it was lost;
    without it, a first incarnation begins with the first weights, and a later one with its own checkpoint. `age`: of the run,
    as `Store` has it. `ours`: the processes are labkit's own, on this machine. `protocol`: of the client.
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
    ours: bool
    every: float | None = None
    together: bool = False
    restored: tuple[dict[str, Any] | None, bool] | None = None
    age: int = 0
    protocol: int = PROTOCOL

    @property
    def spec(self) -> RoleSpec:
        """The role's entry in the layout."""
        return self.plan.layout.roles[self.index]

    def check(self) -> None:
        """`ProtocolError` if the client uses another protocol than this process."""
        if self.protocol != PROTOCOL:
            raise ProtocolError(f"This process was assigned a role by a client: {other_protocol(self.protocol)}.")
