"""The actions of the recovery policy: what the run is to do, as values with everything that is needed to do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .....trace.events import Event
from ..recovery_events import RoleUp


@dataclass(frozen=True)
class RecoveryAction:
    """An action for the run to perform."""


@dataclass(frozen=True)
class RoleAction(RecoveryAction):
    """An action on one role instance."""

    role: str
    incarnation: int


@dataclass(frozen=True)
class Submit(RoleAction):
    """Start the task of an instance on this Dask worker."""

    worker: str


@dataclass(frozen=True)
class Admit(RoleAction):
    """Let an instance that is up take part from now on."""


@dataclass(frozen=True)
class Dismiss(RoleAction):
    """Release the task of an instance that has ended."""


@dataclass(frozen=True)
class Begin(RoleAction):
    """Send the order to begin to an instance. `order`: the membership."""

    worker: str
    order: Mapping[str, Any]


@dataclass(frozen=True)
class Order(RoleAction):
    """Send an order (`command`) to an instance."""

    worker: str
    command: Mapping[str, Any]


@dataclass(frozen=True)
class Fence(RoleAction):
    """Make an instance exit that was declared lost, but has reported again."""

    worker: str


@dataclass(frozen=True)
class Fetch(RoleAction):
    """Fetch the final report of an instance whose task has ended. The report arrives as `StateCollected`."""


@dataclass(frozen=True)
class Announce(RecoveryAction):
    """Broadcast the membership to the roles on these Dask workers.

    `then`: the instances (role, incarnation) that may begin afterwards. They are posted as `Announced` when all Dask
    workers have answered, or a second has passed.
    """

    workers: tuple[str, ...]
    order: Mapping[str, Any]
    then: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class StartGroup(RecoveryAction):
    """Start the next incarnations of a group.

    The run chooses their initial states, accounts for dropped gradients, and starts the tasks. `workers`: {role: Dask
    worker}. `reports`: {role: final report} of the incarnations that ended for the restart.
    """

    incarnation: int
    workers: Mapping[str, str]
    reports: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Account(RecoveryAction):
    """Add a final report to the trace. `in_flight`: whether the gradients that were in flight are added to the ledger, too."""

    report: Mapping[str, Any]
    in_flight: bool = True


@dataclass(frozen=True)
class Record(RecoveryAction):
    """Record an event of this kind in the trace. `fields`: its fields after the time."""

    kind: type[Event]
    fields: tuple[Any, ...]


@dataclass(frozen=True)
class RecordRestart(RecoveryAction):
    """Record that a lost role has restarted. `from_backup`: whether the role was restored from its backup."""

    up: RoleUp
    from_backup: bool


@dataclass(frozen=True)
class ScaleUp(RecoveryAction):
    """Ensure that labkit starts processes until there are `nodes` of them."""

    nodes: int


@dataclass(frozen=True)
class RequestHeartbeats(RecoveryAction):
    """Request the times of the last heartbeats of all Dask workers. The answer arrives as `WorkerHeartbeats`."""


@dataclass(frozen=True)
class CheckReturned(RecoveryAction):
    """Check whether all awaited roles have returned. Needed when a role has left, or is not restarted."""


@dataclass(frozen=True)
class FailRun(RecoveryAction):
    """End the run with an error. `roles`: roles whose final reports are not awaited."""

    roles: tuple[str, ...]
    why: str
