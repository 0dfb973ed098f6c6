"""What an engine is, and what a cluster is: the interfaces that `Run`, the lab and the command line use.

A `Cluster` says where a run takes place, and starts runs. An `Engine` is one run. Where engines differ, the difference is
declared: `supported_commands` names the commands that an engine executes; an engine in virtual time is a
`VirtualTimeEngine`, which can also be advanced and forked; `Cluster.virtual_time` says so before a run exists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ..errors import LabkitError
from ..nn import SparseParameters
from ..trace.trace import Trace
from .cluster_spec import ClusterSpec
from .commands import Command, Executed
from .storage.store import Store

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Cluster", "Engine", "VirtualTimeEngine"]


class Engine(ABC):
    """One run of a plan: its roles, its clock, its trace.

    `stopped_by` is None until the run is over, then the reason ("updates", "user", "error", ...); `error` is the error that
    ended it. `commands` is the log of the commands that were executed, in the order of time.
    """

    plan: Plan
    cluster: Cluster
    trace: Trace
    commands: list[Executed]
    supported_commands: frozenset[type[Command]]
    stopped_by: str | None
    error: LabkitError | None

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Engine time, in seconds since the run began. Pauses do not count."""

    @property
    @abstractmethod
    def present(self) -> tuple[str, ...]:
        """The names of the workers that take part, or are about to, in the order of the layout."""

    @property
    @abstractmethod
    def parameters(self) -> np.ndarray | SparseParameters | None:
        """The evaluated parameters that met the budget, or the newest evaluated ones; None if nothing was evaluated."""

    @abstractmethod
    def execute(self, command: Command) -> None:
        """Execute a primitive command now, whatever its `at`. Any thread may ask.

        Does nothing if the run is over. `BadInput` if the command is not supported, names roles that do not exist, or is not
        possible now; the run goes on.
        """

    @abstractmethod
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run is over; `TimeoutError` after `timeout` seconds of wall time, and the run goes on."""

    @abstractmethod
    def step(self, timeout: float | None = None) -> bool:
        """Go on to the next update, then stand still. False once the run is over.

        `timeout`: after about so many seconds of wall time it stands still without one.
        """

    @abstractmethod
    def flush(self) -> None:
        """Bring the trace up to the present, as far as the engine can."""


class VirtualTimeEngine(Engine):
    """A run in virtual time: it moves only when it is asked to, and can be repeated exactly."""

    @abstractmethod
    def advance(self, until: float, timeout: float | None = None) -> bool:
        """Let virtual time pass up to `until` seconds. False once the run is over.

        `timeout`: after about so many seconds of wall time it stops on the way; the next call goes on from there.
        """

    @abstractmethod
    def fork(self, at: float | None = None) -> VirtualTimeEngine:
        """A run at time zero that repeats this one, to the last bit, up to `at` seconds (None: up to the present)."""


class Cluster(ABC):
    """Where runs take place. `spec`: its options, in values. A context manager that closes it.

    `engine` is its name in specifications and traces. `virtual_time`: whether its runs are `VirtualTimeEngine`s.
    """

    spec: ClusterSpec
    engine: ClassVar[str]
    virtual_time: ClassVar[bool]

    @property
    def may_kill(self) -> bool:
        """Whether a run may kill, freeze and thaw the processes of its roles."""
        return True

    @property
    def paced(self) -> bool:
        """Whether the time of a gradient is drawn from a distribution."""
        return self.spec.paced

    def describe(self) -> dict[str, Any]:
        """Its options in plain values, as in the header of a trace."""
        return self.spec.describe()

    @property
    def starts_processes(self) -> bool:
        """Whether runs start processes of labkit's own on this machine."""
        return False

    @abstractmethod
    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> Engine:  # fmt: skip
        """Start a run of `plan`.

        `commands`: primitive commands, executed at their times, and entries of an earlier run's log. `checkpoint`: where roles
        keep their states: a folder or URL, None (the cluster's own choice), False (nowhere). `resume`: the states of an earlier
        run at the place `checkpoint`, which this one goes on with; not for clusters in virtual time, which repeat the log.

        `BadInput` if the plan does not fit the cluster, `ClusterError` if the run cannot be started.
        """

    @abstractmethod
    def with_spec(self, spec: ClusterSpec) -> Cluster:
        """The same cluster with the options of `spec`."""

    @abstractmethod
    def close(self) -> None:
        """End what belongs to the cluster. Runs on it end first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
