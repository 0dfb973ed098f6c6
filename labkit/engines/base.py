"""Abstract interfaces of engines and clusters, as used by `Run`, the lab and the command line.

A `Cluster` describes where runs take place, and starts them. An `Engine` is one run. Engines declare their differences:
`supported_commands` lists the commands that an engine executes. An engine in virtual time is a `VirtualTimeEngine`, which can
also be advanced and forked. `Cluster.virtual_time` states which kind of engine the cluster starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from ..description import Description, HasDescription
from ..errors import LabkitError
from ..files import FileLock
from ..nn import SparseParameters
from ..trace.trace import Trace
from .cluster_spec import ClusterSpec
from .cluster_text import cluster_rows
from .commands import Command, Executed
from .storage.store import Store

if TYPE_CHECKING:
    from .plan import Plan

Parameters = np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.float64]] | SparseParameters


class Evaluated(NamedTuple):
    """An evaluated model: what belongs together. `update`: its version. `time`: when it was evaluated (ns); None: in
    a run before this one. `accuracy`: on the test set, or None.
    """

    parameters: Parameters
    update: int
    time: int | None
    accuracy: float | None


class Engine(ABC):
    """One run of a plan: its roles, its clock, its trace.

    `stopped_by` is None until the run is over, then the reason ("updates", "user", "error", ...); `error` is the error that
    ended it. `commands` is the log of executed commands, in order of time.
    """

    plan: Plan
    cluster: Cluster
    trace: Trace
    commands: list[Executed]
    supported_commands: frozenset[type[Command]]
    stopped_by: str | None
    error: LabkitError | None
    _held: FileLock | None = None

    def hold(self, lock: FileLock | None) -> None:
        """Hold the lock of the folder of its checkpoints until the run is over, or is collected."""
        self._held = lock
        if self.stopped_by is not None:
            self._release_folder()

    def _release_folder(self) -> None:
        """To be called when the run is over and `stopped_by` is set."""
        if self._held is not None:
            self._held.release()

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Engine time: seconds since the start of the run, without pauses."""

    @property
    @abstractmethod
    def paused(self) -> bool:
        """Whether the roles are paused until `Resume` or `step`."""

    @property
    @abstractmethod
    def present(self) -> tuple[str, ...]:
        """The names of the workers that take part in the run, or are joining it, in the order of the layout."""

    @property
    @abstractmethod
    def evaluated(self) -> Evaluated | None:
        """The evaluated model that met the budget, or the newest evaluated one; None if nothing was evaluated."""

    @property
    def parameters(self) -> Parameters | None:
        """The parameters of `evaluated`; None if nothing was evaluated."""
        found = self.evaluated
        return None if found is None else found.parameters

    @abstractmethod
    def execute(self, command: Command) -> None:
        """Execute a primitive command now; its `at` is ignored. Can be called from any thread.

        Does nothing if the run is over. Raises `BadInput` if the command is not supported, names roles that do not exist, or is
        not possible now; the run then continues.
        """

    @abstractmethod
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the run is over. Raises `TimeoutError` after `timeout` seconds of wall time; the run then continues."""

    @abstractmethod
    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `condition()` is true. Returns whether it is; False: the run is over, and it is not.

        Raises `TimeoutError` after `timeout` seconds of wall time, and `ClusterError` if the run gives no sign of life; the
        run then continues.
        """

    @abstractmethod
    def step(self, timeout: float | None = None) -> bool:
        """Continue to the next update, then pause. Returns False once the run is over.

        `timeout`: the approximate wall time, in seconds, after which the run is paused even if no update was applied.
        """

    @abstractmethod
    def flush(self) -> None:
        """Bring the trace up to the present, as far as the engine can."""


class VirtualTimeEngine(Engine):
    """A run in virtual time. Time passes only during `wait`, `advance` and `step`; runs are exactly reproducible."""

    @property
    def paused(self) -> bool:
        """False: time never passes by itself, so there is nothing to pause."""
        return False

    @abstractmethod
    def advance(self, until: float, timeout: float | None = None) -> bool:
        """Advance virtual time up to `until` seconds. Returns False once the run is over.

        `timeout`: the approximate wall time, in seconds, after which it returns early; the next call continues from there.
        """

    @abstractmethod
    def fork(self, at: float | None = None) -> VirtualTimeEngine:
        """Return a new run, at time zero, that repeats this run bit for bit up to `at` seconds (None: the present time)."""


class Cluster(HasDescription, ABC):
    """The place where runs take place: processes, or a simulation of them.

    As a context manager, it closes the cluster on exit.

    Attributes
    ----------
    spec : ClusterSpec
        The options of the cluster.
    engine : str
        The name of its engine in specifications and traces.
    virtual_time : bool
        Whether its runs are instances of `VirtualTimeEngine`.
    """

    spec: ClusterSpec
    engine: ClassVar[str]
    virtual_time: ClassVar[bool]

    @property
    def may_kill(self) -> bool:
        """Whether runs may kill, freeze and thaw the processes of their roles."""
        return True

    @property
    def paced(self) -> bool:
        """Whether the time of a gradient is drawn from a distribution."""
        return self.spec.paced

    def describe(self) -> dict[str, object]:
        """Return the options as plain values, as in the header of a trace.

        Returns
        -------
        dict
            The value of each option by its name: distributions as text, infinity as None.
        """
        return self.spec.describe()

    def _described(self) -> Description:
        what = "virtual time, exactly reproducible" if self.virtual_time else "real processes"
        return Description(f"{type(self).__name__}: {what}", tuple(cluster_rows(self.spec)))

    @property
    def starts_processes(self) -> bool:
        """Whether labkit starts processes on this machine for the runs."""
        return False

    @abstractmethod
    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> Engine:  # fmt: skip
        """Start a run. `lk.train` calls it.

        Parameters
        ----------
        plan : Plan
            The checked description of the run.
        commands : iterable of Command or Executed, default: ()
            Primitive commands, which are executed at their times, and log entries of an earlier run.
        checkpoint : str, Path or bool, optional
            Where the roles save their states: a folder or URL, None (the cluster's default), False (no checkpoints).
        resume : Store, optional
            The store at `checkpoint` with the states of an earlier run, from which this run continues. It is not used in virtual
            time, where the log of the earlier run is repeated.

        Returns
        -------
        Engine
            The run: at time zero in virtual time; on a cluster of processes when all its roles run.

        Raises
        ------
        BadInput
            If the plan does not fit the cluster.
        ClusterError
            If the run cannot be started.
        """

    @abstractmethod
    def with_spec(self, spec: ClusterSpec) -> Cluster:
        """Return this cluster with other options.

        Parameters
        ----------
        spec : ClusterSpec
            The options.

        Returns
        -------
        Cluster
            A cluster with the same processes, if it has processes.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the runs on the cluster, then release its resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
