"""A cluster of Dask processes: a local cluster started by labkit, or any existing scheduler.

A `DaskCluster` consists of its options (`spec`) and a connection, which is the handle on its processes. The processes
are started when the first run needs them. They are shared by all runs and by all views that `resized` returns. Their
number increases when a run needs more. They end with `close()`, with the `with` block, when nothing refers to the cluster (a
run that is over does not), or with the program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from ....description import Description
from ....errors import BadInput, shown
from ....formatting import count_text
from ....interrupts import DeferredInterrupt
from ....options import as_number
from ...base import Cluster, Engine
from ...cluster_spec import PACE, ClusterSpec, check_slow, cluster_options, default_workers
from ...cluster_text import cluster_rows
from ...commands import Command, Executed, Stop
from ...distributions import Distribution
from ...plan import Plan
from ...storage.store import Store
from ..stages import StartProgress
from ..worker.command_channel import HEARTBEAT_S
from .dask_connection import DaskConnection
from .placement import PlacementRule, nodes_text, place

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy import Cluster as DaskDeployment

    from ....problem import Problem
    from ....strategies import Strategy
    from .resources import Resources

DEFAULTS = ClusterSpec("dask")
FIXED = ("engine", "scheduler", "dashboard")  # options that `resized` cannot change
MIN_TIMEOUT_S = HEARTBEAT_S + 0.1  # roles send a heartbeat every `HEARTBEAT_S` seconds


def check_heartbeat_timeout(spec: ClusterSpec) -> None:
    """Raise `BadInput` if the heartbeat timeout is shorter than the heartbeat interval of roles."""
    if spec.heartbeat_timeout < MIN_TIMEOUT_S:
        raise BadInput(
            f"DaskCluster: heartbeat_timeout={spec.heartbeat_timeout:g} is not allowed; real roles report every "
            f"{HEARTBEAT_S:g} s, so it is at least {MIN_TIMEOUT_S:g} s."
        )


def _option_value(name: str, in_spec: str = "") -> Any:
    """Return the property whose value is that of an option in the specification."""
    return property(attrgetter(f"spec.{in_spec or name}"), doc=f"The option `{name}`.")


class DaskCluster(Cluster):
    """A cluster of processes, which runs a strategy in real time.

    There is one process per node of the strategy's layout: one for each worker and server, and one for the chief, which
    evaluates. The processes start with the first run, or with `open`, and end with `close`, with the `with` block, when no
    variable and no active run refers to the cluster, or with the program.

    Parameters
    ----------
    target : str, distributed.Client or a cluster of Dask, optional
        An existing scheduler: its address ("tcp://host:8786"), a client, or a cluster, as ``LocalCluster()``. By default
        processes are started on this machine.
    workers : int, optional
        The number of workers, from 1 to 100,000. By default 4, or as many as fit if this machine is a small container.
    servers : int, optional
        The number of servers. By default the number that the strategy needs.
    pace : Distribution, float or str, optional
        The time of a gradient: a distribution, or seconds. The role computes the gradient, then sleeps until the drawn time has
        passed. By default roles run at full speed.
    server_time : Distribution, float or str, optional
        The same for a piece of server work.
    slow : mapping of str to float, optional
        {role: how many times slower it computes}, as {"worker-2": 5}.
    record : bool, default: True
        Whether everything that happens is recorded; False: only counters.
    dashboard : bool, default: False
        Whether processes of labkit's own have Dask's dashboard (needs bokeh; half a second and 20 MB more).
    may_kill : bool, default: False
        Whether faults may kill, freeze and thaw processes that labkit did not start.
    heartbeat_timeout : float, default: 5.0
        The heartbeat timeout in seconds, at least 0.6; a role that is silent for longer is declared lost.
    checkpoint_every : float, optional
        Seconds between two checkpoints of a shard. By default one second, or more if checkpoints would take more than 5% of the
        time.
    replicas : {0, 1}, default: 0
        The number of backups of every server, on a separate node; with one, the loss of a server loses no update.
    max_workers : int, optional
        The limit of the workers of an elastic run, in which `run.scale(n)` lets workers join and leave. By default the number of
        workers is fixed.
    place : {"spread", "pack"} or dict, optional
        The placement of roles; or hosts by role or kind, as {"server-0": "10.0.0.2", "worker": "10.0.0.3"}. By default the least
        used Dask workers.

    Raises
    ------
    BadInput
        If an option is not allowed.

    See Also
    --------
    SimulatedCluster : Runs the same strategies in virtual time.

    Notes
    -----
    On an existing scheduler a worker of an elastic run joins automatically when a Dask worker is added (as by `cluster.scale` or
    `adapt`), and leaves when Dask retires its Dask worker: `DaskCluster(client, workers=2, max_workers=6)`.

    Examples
    --------
    Two workers, a server and a chief, in four processes on this machine:

    >>> with lk.DaskCluster(workers=2) as cluster:
    ...     run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=200)).wait()
    >>> run.summary()["updates"], run.stopped_by
    (200, 'updates')
    """

    engine = "dask"
    virtual_time = False

    def __init__(
        self, target: str | Client | DaskDeployment | None = None, *,
        workers: int | None = None, servers: int | None = DEFAULTS.servers,
        pace: Distribution | float | str | None = None, server_time: Distribution | float | str | None = None,
        slow: Mapping[str, float] | None = None, record: bool = DEFAULTS.record,
        dashboard: bool = DEFAULTS.dashboard, may_kill: bool = DEFAULTS.may_kill,
        heartbeat_timeout: float = DEFAULTS.heartbeat_timeout,
        checkpoint_every: float | None = DEFAULTS.checkpoint_every, replicas: int = DEFAULTS.replicas,
        max_workers: int | None = DEFAULTS.max_workers, place: PlacementRule = None, _connection: DaskConnection | None = None,
    ):  # fmt: skip
        if isinstance(target, int):
            raise BadInput(
                f"DaskCluster({shown(target)}): name it, as DaskCluster(workers=3); the first argument is a scheduler."
            )
        spec = ClusterSpec(
            "dask", workers=default_workers("dask", target) if workers is None else workers, servers=servers, compute=pace,
            server_time=server_time, slow=check_slow(slow), record=record, replicas=replicas,
            max_workers=max_workers, heartbeat_timeout=heartbeat_timeout, checkpoint_every=checkpoint_every, place=place,
            dashboard=dashboard, may_kill=may_kill, scheduler=target if isinstance(target, str) else None,
        )  # fmt: skip
        check_heartbeat_timeout(spec)
        self._set(spec, DaskConnection(target, spec.dashboard))
        self._owner: DaskCluster | None = None  # of a view: the cluster, whose processes end when nothing refers to it
        self._finalizer = weakref.finalize(self, self._connection.close)

    def _set(self, spec: ClusterSpec, connection: DaskConnection) -> None:
        self._connection = connection
        self.spec = replace(spec, may_kill=connection.local or spec.may_kill)
        self._nodes_wanted = spec.workers + (1 if spec.servers is None else spec.servers) + 1

    @classmethod
    def of(cls, spec: ClusterSpec) -> DaskCluster:
        """Return the cluster of a specification: on processes of labkit's own, or on those at its `scheduler`.

        Parameters
        ----------
        spec : ClusterSpec
            The options.

        Returns
        -------
        DaskCluster
            The cluster, whose processes are not started yet.
        """
        given = {
            name: getattr(spec, name)
            for name in cluster_options("dask")
            if name not in ("engine", "compute", "scheduler")
        }
        return cls(spec.scheduler, pace=spec.compute, **given)

    workers: Final[int] = _option_value("workers")
    servers: Final[int | None] = _option_value("servers")
    pace: Final[Distribution | None] = _option_value("pace", "compute")
    server_time: Final[Distribution | None] = _option_value("server_time")
    slow: Final[dict[str, float]] = _option_value("slow")
    record: Final[bool] = _option_value("record")
    replicas: Final[int] = _option_value("replicas")
    max_workers: Final[int | None] = _option_value("max_workers")
    heartbeat_timeout: Final[float] = _option_value("heartbeat_timeout")
    checkpoint_every: Final[float | None] = _option_value("checkpoint_every")
    place: Final[PlacementRule] = _option_value("place")

    @property
    def may_kill(self) -> bool:
        """Whether a run may kill, freeze and thaw processes. Always True for processes of labkit's own."""
        return self.spec.may_kill

    @property
    def starts_processes(self) -> bool:
        """Whether labkit starts the processes, on this machine."""
        return self._connection.local

    def resized(self, **changes: Any) -> DaskCluster:
        """Return a view of the same processes with other options.

        Parameters
        ----------
        **changes : object
            New values of options by name: all but `target` and `dashboard`.

        Returns
        -------
        DaskCluster
            The view. It shares the processes with this cluster; their number increases when a run needs more.

        Raises
        ------
        BadInput
            If an option is unknown, cannot change, or does not allow the value.

        Examples
        --------
        >>> cluster = lk.DaskCluster(workers=4)
        >>> cluster.resized(workers=2, pace=0.1).workers
        2
        """
        can = [PACE["dask"] if name == "compute" else name for name in cluster_options("dask") if name not in FIXED]
        unknown = sorted(set(changes) - set(can))
        if unknown:
            raise BadInput(f"resized: {shown(unknown[0])} cannot change; what can: {', '.join(can)}.")
        if "pace" in changes:
            changes["compute"] = changes.pop("pace")
        return self.with_spec(replace(self.spec, **changes))

    def with_spec(self, spec: ClusterSpec, keep: bool = True) -> DaskCluster:
        """Return a view of the same processes with the options of a specification.

        Parameters
        ----------
        spec : ClusterSpec
            The options. Its `engine`, `scheduler` and `dashboard` are ignored.
        keep : bool, default: True
            Whether the view keeps the processes alive. Otherwise they end when nothing else refers to the cluster.

        Returns
        -------
        DaskCluster
            The view.
        """
        check_heartbeat_timeout(spec)
        view = object.__new__(DaskCluster)
        fixed = {name: getattr(self.spec, name) for name in FIXED}
        view._set(replace(spec, **fixed), self._connection)
        view._owner = self if keep else None
        return view

    def open(
        self, nodes: int | None = None, *, wait: float = 0.0, on_progress: Callable[[StartProgress], object] | None = None
    ) -> DaskCluster:  # fmt: skip
        """Start the processes, or connect to them, before the first run.

        Parameters
        ----------
        nodes : int, optional
            The number of processes. By default as many as for the workers, the servers and a chief.
        wait : float, default: 0.0
            The seconds to wait for missing Dask workers of an existing cluster, which a batch queue starts one after the other.
        on_progress : callable, optional
            Called with the progress when others have arrived, as `on_progress=print`: "3 of 9 processes connected".

        Returns
        -------
        DaskCluster
            This cluster.

        Raises
        ------
        BadInput
            If an existing cluster has too few Dask workers, also after `wait` seconds.
        ClusterError
            If the cluster is closed, or if the processes cannot be started or reached.
        """
        self._nodes_wanted = nodes or self._nodes_wanted
        limit = as_number(wait)
        if limit is None or not 0 <= limit < float("inf"):
            raise BadInput(f"wait={shown(wait)}: give the seconds to wait for Dask workers, 0 or more.")
        if limit:
            tell = on_progress or (lambda progress: None)
            self._connection.await_workers(self._nodes_wanted, limit, lambda: tell(self.progress()))
        self._connection.addresses(self._nodes_wanted)
        return self

    def progress(self) -> StartProgress:
        """Return the progress of a start: of the processes, or of the roles of a run. Any thread may call it at any time.

        A start passes the stages requested, alive, imported and connected of processes, then up and begun of roles.

        Returns
        -------
        StartProgress
            The stage that the start has reached. Its text is, for example, "3 of 6 processes imported"; its attributes are
            `up` (the number of processes that are connected), `wanted`, `stage`, `reached` and `total`.

        Examples
        --------
        >>> print(lk.DaskCluster(workers=2).progress())
        0 of 4 processes requested
        """
        return self._connection.progress(self._nodes_wanted)

    @property
    def is_open(self) -> bool:
        """Whether the processes have been started or connected to, and not closed since."""
        return self._connection.is_open

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called, after which no run can start."""
        return self._connection.is_closed

    @property
    def dashboard_link(self) -> str | None:
        """The address of Dask's dashboard, as in Dask's settings; None if there is no dashboard."""
        return self._connection.dashboard_link()

    @property
    def runs(self) -> set[Engine]:
        """The current runs on this cluster."""
        return self._connection.runs

    @property
    def client(self) -> Client:
        """The Dask client."""
        return self._connection.client()

    def start(
        self, plan: Plan, commands: Iterable[Command | Executed] = (), checkpoint: object = None, resume: Store | None = None
    ) -> Engine:  # fmt: skip
        run = None
        try:
            with DeferredInterrupt():
                from ..client.start import start_run

                run = start_run(self, self._connection, self._place, plan, commands, checkpoint, resume)
        except BaseException:
            if run is not None:  # Ctrl-C: the caller has no reference to the run
                run.execute(Stop("interrupted"))
            raise
        return run

    def _place(self, roles: Any) -> dict[str, str]:
        nodes = tuple(dict.fromkeys(spec.node for spec in roles))
        there = self._connection.addresses(len(nodes), every=self.place is not None, consisting=nodes_text(roles))
        return place(nodes, roles, there, self._connection.usage, self.place)

    def resources(self, speeds: bool = True) -> Resources:
        """Return a table of the Dask workers: threads, memory, roles, speed.

        Parameters
        ----------
        speeds : bool, default: True
            Whether speeds are measured, which takes half a second and occupies the cores.

        Returns
        -------
        Resources
            The table; its rows are the attribute `rows`.
        """
        from .resources import resources

        return resources(self._connection.client(), self.runs, speeds)

    def speeds(self, problem: Problem, strategy: Strategy) -> tuple[float, ...]:
        """Measure the speed of the role that will compute on each share of the data, for `lk.partitions.ByWeight`.

        The speeds are measured now, on the Dask workers on which the next run would be placed. The factors in `slow` are taken
        into account.

        Parameters
        ----------
        problem : Problem
            The problem, which the layout of the roles depends on.
        strategy : Strategy
            The strategy, which determines the roles.

        Returns
        -------
        tuple of float
            Gradients per second of a small fixed network, one number for each share.
        """
        from .resources import measure_speed, shares_of_speed

        layout = strategy.layout(problem, self)
        placed = self._place(layout.roles)
        return shares_of_speed(layout, placed, measure_speed(self.client, placed.values()), self.slow)

    def close(self) -> None:
        """End the current runs, then the processes if labkit started them."""
        self._connection.close()

    def _described(self) -> Description:
        where, rows = self._connection.describe(), cluster_rows(self.spec)
        rows.insert(1, ("processes", self._processes_text()))
        if self.place is not None:
            rows.append(("placement", str(self.place)))
        if self.starts_processes and (link := self.dashboard_link):  # of other schedulers it is a request
            rows.append(("dashboard", link))
        if runs := [f"{run.plan.strategy.name} on {run.plan.problem.name}" for run in list(self.runs)]:
            rows.append(("runs", ", ".join(runs)))
        return Description(f"DaskCluster: real processes, {where}", tuple(rows))

    def _processes_text(self) -> str:
        """Return whether the processes are up, from what is known without a message to them."""
        if self.is_closed:
            return "closed"
        progress = self.progress()
        if self.is_open:
            return f"{progress.up:,} of {progress.wanted:,} are up" if self.starts_processes else "connected"
        return (
            "not started; the first run starts them"
            if self.starts_processes
            else "not connected; the first run connects"
        )

    def __repr__(self) -> str:
        servers = "" if self.servers is None else f"{count_text(self.servers, 'server')}, "
        return f"<DaskCluster {count_text(self.workers, 'worker')}, {servers}{self._connection.describe()}>"
