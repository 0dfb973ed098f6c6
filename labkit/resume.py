"""`resume`: continue a run after its program has ended, from its manifest and checkpoints.

A run in virtual time is repeated bit for bit from its command log, up to the time that it had reached. A run of real processes
cannot be repeated: a new run starts, in which every role restores its last checkpoint.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from .engines.base import Cluster, VirtualTimeEngine
from .engines.commands import Stop, not_executed
from .engines.plan import Plan, make_plan
from .engines.storage.journal import REACHED, past_text, read_commands, read_past, read_reached
from .engines.storage.store import Store
from .errors import BadInput, shown
from .manifest import RUN, Manifest, load_manifest, save_manifest, shards_of
from .problem import Problem
from .roles.budget import Budget
from .run import Run, remembered
from .spec import make_cluster, spec_of
from .strategies import Strategy
from .trace.events import EngineWarning
from .trace.schema import nanoseconds


def resume(
    path: str | Path, *, problem: Problem | None = None, strategy: Strategy | None = None, cluster: Cluster | None = None,
    budget: Budget | None = None, timeout: float | None = None,
) -> Run:  # fmt: skip
    """Continue a run after its program has ended.

    A simulated run is repeated exactly, up to the time that it had reached. If it was over, it is over again. Processors of
    another kind, and other versions of NumPy, compute other last digits: the log then says how the past differs.

    On Dask a new run starts, in which every role restores its newest complete checkpoint. Budgets of updates and samples
    continue; a budget of seconds starts anew. The commands and the faults of the earlier run are not repeated.

    Parameters
    ----------
    path : str or Path
        The folder or fsspec URL to which `lk.train(..., checkpoint=path)` wrote the run.
    problem : Problem, optional
        Required if the data set of the run is not one of labkit's; it must be the same.
    strategy : Strategy, optional
        Required if the strategy of the run is not one of labkit's; it must be the same.
    cluster : DaskCluster or SimulatedCluster, optional
        The processes to use on Dask, as `lk.DaskCluster(client)`. By default a cluster like that of the run.
    budget : Budget, optional
        A new budget, required to continue a run on Dask that was over.
    timeout : float, optional
        Wall seconds after which a simulated run is returned before it has reached its time; `advance` continues it.

    Returns
    -------
    Run
        The run.

    Raises
    ------
    BadInput
        If there is no run in `path`, if its files are damaged, if an argument differs from the run, if the run was over and no
        budget is given (Dask), or if a run that goes on, in this or another program, has the folder. (A URL has no lock.) A
        damaged checkpoint is an error only if no other one is left of its role; the log names it, and the checkpoint that is
        used instead.
    ClusterError
        If the cluster cannot be started or reached.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4)
    >>> run = lk.train("digits", lk.SyncPS(), cluster, lk.Budget(seconds=2), checkpoint="run")
    >>> run.advance(1.0).summary()["updates"]
    100
    >>> del run

    After its end, in another program:

    >>> run = lk.resume("run")
    >>> run.summary()["updates"], run.wait().summary()["updates"]
    (100, 200)
    """
    store = Store(path)
    load_manifest(store)  # refuses a location without a run, in which no lock is created
    with ExitStack() as undone:
        lock = store.lock()
        if lock is not None:
            undone.callback(lock.release)
        run = _resumed(store, problem, strategy, cluster, budget, timeout)
        run.engine.hold(lock)
        undone.pop_all()
        return run


def _resumed(
    store: Store, problem: Problem | None, strategy: Strategy | None, cluster: Cluster | None, budget: Budget | None,
    timeout: float | None,
) -> Run:  # fmt: skip
    manifest = load_manifest(store)
    problem, strategy = manifest.part("problem", problem), manifest.part("strategy", strategy)
    engine = manifest.engine
    if cluster is not None and (not isinstance(cluster, Cluster) or cluster.engine != engine):
        raise BadInput(
            f"cluster={shown(cluster)}: the run in {shown(store.location)} is of the engine {shown(engine)}; give such a one."
        )
    own = cluster is None
    if cluster is None:
        cluster = make_cluster(manifest.part("cluster", None))
    else:
        manifest.part("cluster", spec_of(cluster))
    plan = make_plan(problem, strategy, cluster.spec, manifest.budget if budget is None else budget)
    if shards_of(plan) != manifest.shards:
        raise _unfitting(manifest, cluster_is_own=own)
    if cluster.virtual_time:
        return _repeated(store, manifest, plan, cluster, budget, timeout)
    return _restored(store, manifest, plan, cluster, budget)


def _unfitting(manifest: Manifest, cluster_is_own: bool) -> BadInput:
    """Return the error for saved states that do not fit the plan."""
    if cluster_is_own:
        return BadInput(f"{RUN} in {shown(manifest.location)} is damaged: its shards are not those of its run.")
    owners = ", ".join(name for name, _ in manifest.shards[:4])
    return BadInput(
        f"cluster: the run in {shown(manifest.location)} has its parameters on {owners}; on this cluster they would be cut in "
        "another way."
    )


def _repeated(
    store: Store, manifest: Manifest, plan: Plan, cluster: Cluster, budget: Budget | None, timeout: float | None
) -> Run:
    log, reached = read_commands(store)
    later, _, damage = read_reached(store)
    past = read_past(store)
    if budget is not None:  # without the command or budget that ended the run
        log = [entry for entry in log if not isinstance(entry.command, Stop)]
        save_manifest(store, plan, cluster, budget, manifest.commands, manifest.times_resumed)
    ahead = not_executed(manifest.commands, log)
    engine = cluster.start(plan, commands=[*log, *ahead], checkpoint=store.location)
    assert isinstance(engine, VirtualTimeEngine)
    engine.advance(max(reached, later), timeout)
    if damage:
        text = f"{damage.rstrip('.')}: the run was repeated to {reached:g} s only"
        engine.trace.event(EngineWarning(nanoseconds(engine.seconds), text))
    elif (
        past
        and budget is None
        and engine.seconds >= later
        and (now := past_text(engine.trace, nanoseconds(later))) != past
    ):
        text = (
            f"the past of this run differs from the one that was recorded: {now or 'no evaluation'} instead of {past} "
            "(another processor, NumPy or BLAS computes other last digits)"
        )
        engine.trace.event(EngineWarning(nanoseconds(engine.seconds), text))
    return Run(plan, engine)


def _restored(store: Store, manifest: Manifest, plan: Plan, cluster: Cluster, budget: Budget | None) -> Run:
    _, stopped_by, damage = read_reached(store)
    if stopped_by is not None and budget is None:
        raise BadInput(
            f"The run in {shown(store.location)} is over (stopped by {stopped_by}). To go on, give it another budget: lk.resume("
            f"{shown(store.location)}, budget=lk.Budget(...))."
        )
    again = Store(store.location, times_resumed=manifest.times_resumed + 1).check()
    # Before the start: if the start fails, the next resumption still writes checkpoints that are newer than all earlier ones.
    save_manifest(again, plan, cluster, manifest.budget if budget is None else budget, (), again.times_resumed)
    again.files.remove(REACHED)
    run = Run(plan, cluster.start(plan, checkpoint=store.location, resume=again))
    if damage:
        run.trace.event(EngineWarning(0, f"{damage.rstrip('.')}: whether the run was over is unknown"))
    return remembered(run)
