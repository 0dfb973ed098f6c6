"""The events of a run on the client: the values in the queue of the run's thread, one dataclass per kind.

Roles send reports as plain dicts (`{"what": "batch", "role": ..., "incarnation": ..., ...}`), which `read_report` converts to
events. All other events are posted by threads of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ....errors import BadInput
from ...commands import Command

Done = Callable[[BadInput | None], None]  # called once, when a command has been executed or rejected


@dataclass(frozen=True)
class RecoveryEvent:
    """An event in the queue of a run's thread."""


# from roles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfRole(RecoveryEvent):
    """An event of one role instance."""

    role: str
    incarnation: int


@dataclass(frozen=True)
class Report(OfRole):
    """The rows that a role has recorded since its last report (`batch`), and its state.

    `change`: number of the newest membership broadcast that the role has received. `waiting`: names of the kinds of
    messages for which it waits without timeout; empty if its coroutine has returned, None if it does not wait. `only`:
    the only sender from which it waits for a message, or None. `sent`, `received`: numbers of messages. `flow`: number
    of the newest order to pause or resume that the role has received. `finishing`: whether it has received the request
    for a final evaluation. `unanswered`: {role that its messages do not reach: [incarnation, for how many seconds, why]}.
    """

    batch: dict[str, Any]
    change: int
    waiting: list[str] | None
    only: str | None
    sent: int
    received: int
    flow: int
    finishing: bool
    unanswered: Mapping[str, Any]


@dataclass(frozen=True)
class Heartbeat(OfRole):
    """A sign of life of a role that has not reported for a while."""


@dataclass(frozen=True)
class RoleUp(OfRole):
    """A role is up: it listens at `address` (host, port, public key), and waits for the order to begin.

    `process`: identity of its process, see `processes.this_process`. `restored`: (source, update, note) of the state
    that was restored, empty if there is none. `saved_at`: engine time (ns) at which this state was saved. `version`:
    version of the role's shard.
    """

    address: list[Any]
    process: list[Any]
    restored: list[Any]
    saved_at: int | None
    version: int

    @property
    def contact(self) -> tuple[str, int, str]:
        """`address` as a tuple."""
        host, port, key = self.address
        return host, port, key


@dataclass(frozen=True)
class Returned(OfRole):
    """The coroutine of a role has returned. `verdict`: if the role is the chief, the reason why training has ended, else None."""

    verdict: str | None


@dataclass(frozen=True)
class RoleFailed(OfRole):
    """The coroutine of a role has raised an exception. `report`: see `error_texts.failure_report`."""

    report: dict[str, Any]


@dataclass(frozen=True)
class VersionReported(OfRole):
    """The version of a role's shard, in answer to a request."""

    version: int


@dataclass(frozen=True)
class Stepped(OfRole):
    """A role has reached its goal version of a step, and pauses."""


@dataclass(frozen=True)
class RoleEnded(OfRole):
    """A role has sent its close frames after the order to end."""


@dataclass(frozen=True)
class Departed(OfRole):
    """A role has left the run as ordered. `report`: its final report. `retired`: it left because Dask is closing its process."""

    report: dict[str, Any]
    retired: bool


# from Dask ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskFinished(OfRole):
    """The task of a role has returned its final report, which stays on the Dask worker until it is fetched."""


@dataclass(frozen=True)
class TaskFailed(OfRole):
    """The task of a role has ended without a report.

    `status`: Dask's status of the task, "error", "cancelled" or "lost". `why`: the error.
    """

    status: str
    why: str = ""


@dataclass(frozen=True)
class StateCollected(OfRole):
    """The final report of a role that has ended for a group restart has been fetched."""

    report: dict[str, Any]


@dataclass(frozen=True)
class FinalReport(RecoveryEvent):
    """The final report of a role has been fetched at shutdown. `report`: None if it could not be fetched."""

    role: str
    report: dict[str, Any] | None


@dataclass(frozen=True)
class WorkerJoined(RecoveryEvent):
    """A Dask worker has joined the cluster."""

    worker: str


@dataclass(frozen=True)
class WorkerLeft(RecoveryEvent):
    """A Dask worker has left the cluster. `expected`: whether Dask has retired it. `how`: how its process ended, or ""."""

    worker: str
    expected: bool
    how: str = ""


@dataclass(frozen=True)
class WorkerHeartbeats(RecoveryEvent):
    """Signs of life of the Dask workers. `seen`: {address: value that changes while the Dask worker lives}.

    On processes of labkit's own the values are processor times, else times of heartbeats.
    """

    seen: Mapping[str, Hashable]


# from the run to its recovery policy ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timer(RecoveryEvent):
    """Some time has passed. This event must be sent several times per second."""


@dataclass(frozen=True)
class Announced(RecoveryEvent):
    """A membership broadcast was acknowledged, or has failed. Now `instances` (role, incarnation) may begin."""

    instances: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Killed(RecoveryEvent):
    """The kill of a role was requested.

    `worker`: the Dask worker whose process is being killed; None if the role has no process now. `restart`: whether the
    roles of its node are restarted.
    """

    role: str
    restart: bool
    worker: str | None


# from threads of the client -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommandRequested(RecoveryEvent):
    """A thread requests the execution of a command; `done` is called afterwards."""

    command: Command
    done: Done


@dataclass(frozen=True)
class StepRequested(RecoveryEvent):
    """A thread requests one more update of every shard.

    `limit`: timeout, seconds. `done` is called when the run is paused again.
    """

    limit: float | None
    done: Done


@dataclass(frozen=True)
class Answered(RecoveryEvent):
    """A request to other processes was answered, or timed out. `then`: called on the run's thread."""

    then: Callable[[], None]


@dataclass(frozen=True)
class InternalError(RecoveryEvent):
    """Another thread has failed because of a bug in labkit."""

    error: Exception


_REPORTS: dict[str, type[OfRole]] = {
    "batch": Report,
    "heartbeat": Heartbeat,
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
    """Return the event of a report that was sent as plain values. Raises `KeyError` if it is invalid."""
    kind = _REPORTS[plain["what"]]
    return kind(**{name: plain[name] for name in _FIELDS[kind]})
