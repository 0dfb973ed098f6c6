"""`resume`: continue a run after its program has ended, from its manifest and checkpoints.

A run in virtual time is repeated bit for bit from its command log, up to the time that it had reached. A run of real processes
cannot be repeated: a new run starts, in which every role restores its last checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from .engines.base import Cluster, VirtualTimeEngine
from .engines.commands import Stop, not_executed
from .engines.plan import Plan, make_plan
from .engines.storage.journal import REACHED, read_commands, read_reached
from .engines.storage.store import Store
from .errors import BadInput, shown
from .manifest import Manifest, load_manifest, save_manifest, shards_of
from .problem import Problem
from .roles.budget import Budget
from .run import Run
from .spec import make_cluster, spec_of
from .strategies import Strategy

__all__ = ["resume"]


def resume(
    path: str | Path, *, problem: Problem | None = None, strategy: Strategy | None = None, cluster: Cluster | None = None,
    budget: Budget | None = None, timeout: float | None = None,
) -> Run:  # fmt: skip
    """Continue the run that `lk.train(..., checkpoint=path)` wrote to `path`, a folder or an fsspec URL.

    Simulated: the run is repeated exactly, up to the time that it had reached. If it was over, it is over again. `timeout`
    (wall seconds): after about this time the run is returned before it has reached that time; `advance` continues it.

    On Dask: a new run in which every role restores its newest complete checkpoint. Budgets of updates and samples
    continue; a budget of seconds starts anew. The commands and the faults of the earlier run are not repeated.

    `problem`, `strategy`: required if the run used one that is not labkit's; it must be the same. `cluster`: the
    processes to use (Dask), as `lk.DaskCluster(client)`. `budget`: a new budget, required to continue a run that was over.

    Raises `BadInput` if there is no run in `path`, if its files are damaged, if an argument differs from the run, or if the run
    was over and no budget is given (Dask). Raises `ClusterError` if the cluster cannot be started or reached.
    """
    store = Store(path)
    manifest = load_manifest(store)
    problem, strategy = manifest.part("problem", problem), manifest.part("strategy", strategy)
    engine = manifest.engine
    if cluster is not None and (not isinstance(cluster, Cluster) or cluster.engine != engine):
        raise BadInput(
            f"cluster={shown(cluster)}: the run in {shown(store.location)} is of the engine {shown(engine)}; give such a one."
        )
    if cluster is None:
        cluster = make_cluster(manifest.part("cluster", None))
    else:
        manifest.part("cluster", spec_of(cluster))
    plan = make_plan(problem, strategy, cluster.spec, manifest.budget if budget is None else budget)
    _check_fits(manifest, plan, store.location)
    if cluster.virtual_time:
        return _repeated(store, manifest, plan, cluster, budget, timeout)
    return _restored(store, manifest, plan, cluster, budget)


def _check_fits(manifest: Manifest, plan: Plan, place: str) -> None:
    """Raise `BadInput` if the saved states do not fit this plan."""
    if shards_of(plan) != manifest.shards:
        owners = ", ".join(name for name, _ in manifest.shards[:4])
        raise BadInput(
            f"cluster: the run in {shown(place)} has its parameters on {owners}; on this cluster they would be cut in "
            "another way."
        )


def _repeated(
    store: Store, manifest: Manifest, plan: Plan, cluster: Cluster, budget: Budget | None, timeout: float | None
) -> Run:
    log, reached = read_commands(store)
    if budget is not None:  # without the command or budget that ended the run
        log = [entry for entry in log if not isinstance(entry.command, Stop)]
        save_manifest(store, plan, cluster, budget, manifest.commands, manifest.times_resumed)
    ahead = not_executed(manifest.commands, log)
    engine = cluster.start(plan, commands=[*log, *ahead], checkpoint=store.location)
    assert isinstance(engine, VirtualTimeEngine)
    engine.advance(reached, timeout)
    return Run(plan, engine)


def _restored(store: Store, manifest: Manifest, plan: Plan, cluster: Cluster, budget: Budget | None) -> Run:
    stopped_by = read_reached(store)[1]
    if stopped_by is not None and budget is None:
        raise BadInput(
            f"The run in {shown(store.location)} is over (stopped by {stopped_by}). To go on, give it another budget: lk.resume("
            f"{shown(store.location)}, budget=lk.Budget(...))."
        )
    again = Store(store.location, times_resumed=manifest.times_resumed + 1).check()
    # Before the start: if the start fails, the next resumption still writes checkpoints that are newer than all earlier ones.
    save_manifest(again, plan, cluster, manifest.budget if budget is None else budget, (), again.times_resumed)
    again.files.remove(REACHED)
    return Run(plan, cluster.start(plan, checkpoint=store.location, resume=again))
