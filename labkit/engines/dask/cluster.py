"""A cluster of Dask processes: one of our own on this machine, or any running scheduler.

`DaskCluster` is a value with a backend behind it: the processes are started when the first run needs them, are shared
by all runs and all `resized` views, grow when a run needs more, and end with `close()`, with the `with` block, or with
the program.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput, shown
from ...knobs import check_knob, knob, knobs_of
from ..checkpoints import open_store
from ..laws import as_law
from ..limits import USUAL_WORKERS, usual_workers
from ..parts import check_factor, check_slow, find_role
from .backend import Backend
from .placement import Wish, check_place, check_wish, host_of, place

__all__ = ["DaskCluster"]


@dataclass(frozen=True)
class _Shape:
    """What can be wrong with the numbers of a cluster."""

    workers: int = knob(USUAL_WORKERS, low=1, high=10_000)
    servers: int | None = knob(None, low=0, high=10_000)
    record: bool = knob(True)
    dashboard: bool = knob(False)
    may_kill: bool = knob(False)
    replicas: int = knob(0, low=0, high=1)
    max_workers: int | None = knob(None, low=1, high=10_000)
    patience: float = knob(5.0, low=0.6, high=3600.0)
    checkpoint_every: float | None = knob(None, low=0.001, high=86_400.0)

    def __post_init__(self) -> None:
        for name, k in knobs_of(self).items():
            check_knob("DaskCluster", k, getattr(self, name))


class DaskCluster:
    """Runs a strategy for real: one process per node of its layout.

    `target`: None starts processes on this machine; else the address of a scheduler ("tcp://host:8786") or a
    `distributed.Client`. `workers=None`: 4; on this machine, if it is a small container, as many as that can hold.
    `pace`: a law of time for gradients (or seconds): work is really done, then slept until the drawn duration has
    passed; None: full speed. `server_time`: the same for server work. `slow`: {role: factor}.
    `servers=None`: what the strategy needs. `record=False`: counters only. `dashboard=True`: processes of labkit's own
    come with Dask's dashboard (needs bokeh; half a second and 20 MB more). `may_kill=True`: `run.kill` may end
    processes that labkit did not start. `patience`: seconds after which a role that is silent is lost.
    `replicas=1`: every server has a backup, on a node of its own. `max_workers`: so many may be there at a time:
    `run.scale(n)` has workers join and leave. On a scheduler that was given one also joins by itself when a Dask worker
    comes (as `cluster.scale` or `adapt` start them), and leaves in order when Dask retires its Dask worker:
    `DaskCluster(client, workers=2, max_workers=6)`.
    `checkpoint_every`: seconds between two checkpoints of a shard; None is every second, but at most 5% of its time.
    `place`: who plays where, as "spread", "pack" or {"server-0": "10.0.0.2", "worker": "10.0.0.3"}, by role or kind;
    None takes the least used Dask workers.
    """

    engine = "dask"

    def __init__(
        self, target: Any = None, *, workers: int | None = None, servers: int | None = None, pace: Any = None,
        server_time: Any = None, slow: Mapping[str, float] | None = None, record: bool = True,
        dashboard: bool = False, may_kill: bool = False, patience: float = 5.0,
        checkpoint_every: float | None = None, replicas: int = 0, max_workers: int | None = None,
        place: Wish = None, _backend: Backend | None = None,
    ):  # fmt: skip
        if isinstance(target, int):
            raise BadInput(
                f"DaskCluster({shown(target)}): name it, as DaskCluster(workers=3); the first argument is a scheduler."
            )
        if workers is None:
            workers = usual_workers() if target is None else USUAL_WORKERS
        shape = _Shape(workers, servers, record, dashboard, may_kill, replicas, max_workers, patience, checkpoint_every)
        self.workers, self.servers, self.record = shape.workers, shape.servers, shape.record
        self.replicas, self.max_workers = shape.replicas, shape.max_workers
        self.patience, self.checkpoint_every = shape.patience, shape.checkpoint_every
        self.pace, self.server_time = as_law("pace", pace), as_law("server_time", server_time)
        self.slow, self.place = check_slow(slow), check_wish(place)
        self._backend = _backend or Backend(target, shape.dashboard)
        self.may_kill = self._backend.ours or shape.may_kill
        self._wanted = shape.workers + (1 if shape.servers is None else shape.servers) + 1
        if _backend is None:
            self._finalizer = weakref.finalize(self, self._backend.close)

    @property
    def ours(self) -> bool:
        """Whether the processes are labkit's own, on this machine."""
        return self._backend.ours

    @property
    def paced(self) -> bool:
        """Whether gradients take the time of a law."""
        return self.pace is not None

    def resized(self, **changes: Any) -> DaskCluster:
        """The same processes, seen with another shape or pace: `cluster.resized(workers=2, pace=0.1)`."""
        now = {
            "workers": self.workers, "servers": self.servers, "pace": self.pace, "server_time": self.server_time,
            "slow": self.slow, "record": self.record, "may_kill": self.may_kill,
            "replicas": self.replicas, "max_workers": self.max_workers,
            "patience": self.patience, "checkpoint_every": self.checkpoint_every,
            "place": self.place,
        }  # fmt: skip
        unknown = sorted(set(changes) - set(now))
        if unknown:
            raise BadInput(f"resized: {shown(unknown[0])} cannot change; what can: {', '.join(now)}.")
        made = DaskCluster(_backend=self._backend, **{**now, **changes})
        made._owner = self  # type: ignore[attr-defined]  # keeps the processes alive as long as a view on them
        return made

    def widened(self) -> DaskCluster:
        """With all workers that there may be."""
        return self if self.max_workers is None else self.resized(workers=self.max_workers, max_workers=None)

    def describe(self) -> dict[str, Any]:
        """Plain values, for the header of a trace."""
        return {
            "engine": self.engine, "workers": self.workers, "servers": self.servers,
            "pace": self.pace.describe() if self.pace else None,
            "server_time": self.server_time.describe() if self.server_time else None, "slow": dict(self.slow),
        }  # fmt: skip

    def open(self, nodes: int | None = None) -> DaskCluster:
        """Start (or reach) the processes now rather than with the first run.

        `nodes`: how many; None is workers, servers and a chief.
        """
        self._wanted = nodes or self._wanted
        self._backend.addresses(self._wanted)
        return self

    def progress(self) -> tuple[int, int]:
        """(processes that are up, processes wanted), at any time and from any thread: how far `open` has come."""
        return self._backend.up(self._wanted), self._wanted

    @property
    def is_open(self) -> bool:
        """Whether the processes are there: started or reached, and not closed since, by whomever."""
        return self._backend.is_open

    @property
    def is_closed(self) -> bool:
        """Whether `close` has been called: nothing can run here any more."""
        return self._backend.is_closed

    @property
    def dashboard_link(self) -> str | None:
        """The address of Dask's dashboard, as Dask's own settings have it; None if there is no dashboard."""
        return self._backend.dashboard_link()

    @property
    def runs(self) -> set[Any]:
        """The runs that are going on here."""
        return self._backend.runs

    @property
    def client(self) -> Any:
        """The Dask client."""
        return self._backend.client()

    def start(self, plan: Any, commands: Any = (), checkpoint: Any = None, resume: Any = None) -> Any:
        """A run of `plan`; returns when all its roles run. `ClusterError` if they cannot.

        `commands`: [(seconds, name, arguments), ...] to carry out at their times. `resume`: the `Store`, at the place
        `checkpoint`, of a run that is gone on with.
        """
        from .engine import DaskRun
        from .starting import start_over
        from .supervisor import Supervisor, present_roles

        began = time.monotonic()
        store = open_store(checkpoint)  # what can be refused is refused before anything starts
        for role, factor in self.slow.items():
            find_role(role, plan.role_ids)
            check_factor(factor)
        where = store.place if store is not None and not store.local else checkpoint

        def attempt() -> DaskRun:
            placed = self._place(present_roles(plan))
            check_place(where, {host_of(address) for address in placed.values()})
            supervisor = Supervisor(self._backend.client(), plan, list(placed.values()), self._backend.usage)
            return DaskRun(plan, self, supervisor, commands, False if checkpoint is False else store, began, resume)

        return start_over(attempt)

    def _place(self, roles: Any) -> dict[str, str]:
        nodes = tuple(dict.fromkeys(spec.node for spec in roles))
        there = self._backend.addresses(len(nodes), every=self.place is not None)
        return place(nodes, roles, there, self._backend.usage, self.place)

    def resources(self, speeds: bool = True) -> Any:
        """A table of the Dask workers that are there (`.rows`): threads, memory, the roles they play, their speed.

        `speeds=False`: not measured, which takes half a second and the cores.
        """
        from .resources import resources

        return resources(self._backend.client(), self.runs, speeds)

    def speeds(self, problem: Any, strategy: Any) -> tuple[float, ...]:
        """For each share of the data, the speed (gradients a second) of who will compute on it: for `lk.ByWeight`.

        Measured now, where a run of `strategy` that starts next will be placed; a role that is `slow` counts as such.
        """
        from .resources import measure_speed, shares_of_speed

        layout = strategy.layout(problem, self)
        placed = self._place(layout.roles)
        return shares_of_speed(layout, placed, measure_speed(self.client, placed.values()), self.slow)

    def close(self) -> None:
        """End the processes, if they are ours. Runs on them end first."""
        self._backend.close()

    def __enter__(self) -> DaskCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<DaskCluster {self.workers} workers, servers={self.servers}, {self._backend.describe()}>"
