"""The events of a run on the client: everything that its thread takes out of its queue, one dataclass per kind.

Reports of roles travel as plain dicts (`{"what": "batch", "role": ..., "incarnation": ..., ...}`) and become events in
`read_report`. The others are posted by the client's own threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ....errors import BadInput
from ...commands import Command

__all__ = [
    "Answered",
    "Departed",
    "Done",
    "Event",
    "Execute",
    "FinalReport",
    "HandedOver",
    "Heartbeat",
    "InternalError",
    "OfRole",
    "Report",
    "Returned",
    "RoleEnded",
    "RoleFailed",
    "RoleUp",
    "Step",
    "Stepped",
    "TaskFailed",
    "TaskFinished",
    "VersionReported",
    "WorkerJoined",
    "WorkerLeft",
    "WorkersSeen",
    "read_report",
]

Done = Callable[[BadInput | None], None]  # called once, when a command has been executed or refused


@dataclass(frozen=True)
class Event:
    """What a run's thread is told."""


# from roles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfRole(Event):
    """An event of one role instance."""

    role: str
    incarnation: int


@dataclass(frozen=True)
class Report(OfRole):
    """What a role has recorded since its last report (`batch`), and its state.

    `change`: the newest membership broadcast that it knows. `waiting`: names of the kinds of messages that it waits for
    without a limit (empty: its coroutine has returned), from `only` if that is not None; None: it does not wait. `sent`,
    `received`: counts of messages. `flow`: the number of the newest order to pause or to go on that it knows. `finishing`:
    whether it knows that a final evaluation was requested.
    """

    batch: dict[str, Any]
    change: int
    waiting: list[str] | None
    only: str | None
    sent: int
    received: int
    flow: int
    finishing: bool


@dataclass(frozen=True)
class Heartbeat(OfRole):
    """A sign of life of a role that had nothing to report."""


@dataclass(frozen=True)
class RoleUp(OfRole):
    """A role listens at `address` (host, port, public key), in this process, and waits for the order to begin.

    `restored`: (source, update, remark) of what it begins with, empty if these are the first weights. `kept_at`: when that was
    saved (engine time, ns). `version`: of its shard.
    """

    address: list[Any]
    process: list[Any]
    restored: list[Any]
    kept_at: int | None
    version: int

    @property
    def contact(self) -> tuple[str, int, str]:
        """The address as a tuple."""
        host, port, key = self.address
        return host, port, key


@dataclass(frozen=True)
class Returned(OfRole):
    """The coroutine of a role has returned. `verdict`: the chief's, why training is over."""

    verdict: str | None


@dataclass(frozen=True)
class RoleFailed(OfRole):
    """The coroutine of a role has raised; see `drive.failure_report`."""

    report: dict[str, Any]


@dataclass(frozen=True)
class VersionReported(OfRole):
    """The version of a role's shard, which was asked for."""

    version: int


@dataclass(frozen=True)
class Stepped(OfRole):
    """A role has reached the version that it was to step to, and is paused."""


@dataclass(frozen=True)
class RoleEnded(OfRole):
    """A role was told to end, and has sent its close frames."""


@dataclass(frozen=True)
class Departed(OfRole):
    """A role has left the run in order, with its final report. `retired`: because Dask closes its process."""

    report: dict[str, Any]
    retired: bool


# from Dask ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskFinished(OfRole):
    """The task of a role has returned its final report, which lies on the Dask worker until it is fetched."""


@dataclass(frozen=True)
class TaskFailed(OfRole):
    """The task of a role has ended without a report. `status`: Dask's, "error", "cancelled" or "lost". `why`: the error."""

    status: str
    why: str = ""


@dataclass(frozen=True)
class HandedOver(OfRole):
    """The final report of a role that has ended for a group restart has been fetched."""

    report: dict[str, Any]


@dataclass(frozen=True)
class FinalReport(Event):
    """The final report of a role has been fetched at shutdown; None if it could not be."""

    role: str
    report: dict[str, Any] | None


@dataclass(frozen=True)
class WorkerJoined(Event):
    """A Dask worker has joined the cluster."""

    worker: str


@dataclass(frozen=True)
class WorkerLeft(Event):
    """A Dask worker has left the cluster. `expected`: it was retired in order."""

    worker: str
    expected: bool


@dataclass(frozen=True)
class WorkersSeen(Event):
    """{address of each Dask worker: when the scheduler heard of it last (seconds, by its own clock)}."""

    seen: dict[str, float]


# from threads of the client -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Execute(Event):
    """A thread asks for a command to be executed; `done` is called when it has been."""

    command: Command
    done: Done


@dataclass(frozen=True)
class Step(Event):
    """A thread asks for one more update. `limit`: seconds to wait for it. `done` is called when the run is paused again."""

    limit: float | None
    done: Done


@dataclass(frozen=True)
class Answered(Event):
    """A request to other processes was answered, or given up: `then` is to be called on the run's thread."""

    then: Callable[[], None]


@dataclass(frozen=True)
class InternalError(Event):
    """Another thread has failed because of a mistake inside labkit."""

    error: Exception


_REPORTS: dict[str, type[OfRole]] = {
    "batch": Report,
    "beat": Heartbeat,
    "up": RoleUp,
    "returned": Returned,
    "failed": RoleFailed,
    "version": VersionReported,
    "stepped": Stepped,
    "ended": RoleEnded,
    "departed": Departed,
}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _REPORTS.values()}


def read_report(plain: Mapping[str, Any]) -> OfRole:
    """The event that a role has reported as plain values. `KeyError` if it is none."""
    kind = _REPORTS[plain["what"]]
    return kind(**{name: plain[name] for name in _FIELDS[kind]})
