"""How a lab opens: with what was given, else with the defaults; and with the processes of the lab that stood here before."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from ..engines.base import Cluster
from ..engines.cluster_spec import ClusterSpec, default_workers
from ..errors import BadInput
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run
from ..spec import RunSpec
from .cells import stale
from .processes import Processes
from .settings import Settings

__all__ = ["first_setup", "in_kernel", "inherited"]


def in_kernel() -> bool:
    """Whether there may be a browser: IPython runs in a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def first_setup(problem: Any, strategy: Any, cluster: Any, budget: Budget | None, run: Run | None) -> Settings:
    """What the lab begins with: what was given, else what a run was made of, else the defaults."""
    if run is not None and not isinstance(run, Run):
        raise BadInput(f"run={run!r}: give what lk.train returned.")
    if not isinstance(budget, Budget | None):
        raise BadInput(f"budget={budget!r}: give a lk.Budget, as lk.Budget(seconds=20).")
    if run is not None:
        plan = run.plan
        return Settings(RunSpec(plan.problem, plan.strategy, _recorded(run.engine.cluster), plan.budget))
    plain = Settings().changed(engine="dask", workers=default_workers("dask"))
    if cluster is not None and not isinstance(cluster, Cluster):
        raise BadInput(f"cluster={cluster!r}: give lk.DaskCluster(workers=4) or lk.SimulatedCluster(workers=4).")
    if problem is not None and not isinstance(problem, Problem):
        problem = Problem(problem)
    parts = plain.cluster if cluster is None else _recorded(cluster)
    made = Settings(RunSpec(problem or plain.problem, plain.strategy, parts, budget or plain.budget))
    return made.changed(strategy=strategy) if strategy is not None else made


def _recorded(cluster: Any) -> ClusterSpec:
    """The values of a cluster that was given; a lab shows what is recorded, so everything is."""
    return replace(cluster.spec, record=True)


def inherited(where: tuple[str, str] | None) -> Processes:
    """The processes of the lab that this cell made before, which ends here; else new ones, not started yet."""
    for old in stale(where):
        old.close(keep_processes=True)
        if old.stage.processes.ours:
            kept: Processes = old.stage.processes
            return kept
    return Processes()
