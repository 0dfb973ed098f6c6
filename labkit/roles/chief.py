"""The chief's protocol: which snapshots it requests, and when it has all of them.

After an evaluation the chief waits nineteen times as long as the evaluation took, so that it uses at most 5% of a core. In
virtual time an evaluation takes the cluster's `evaluation_time` (default 0). Requests are repeated to restarted shards.
"""

from __future__ import annotations

from dataclasses import replace

from .context import Context
from .evaluator import Evaluator
from .messages import Joined, Snapshot, SnapshotRequest

__all__ = ["all_full", "final_snapshots", "pause_after_evaluation", "snapshots_of_one_version", "snapshots_of_replicas"]

PAUSE_FACTOR = 19
MAX_AHEAD = 16  # a common version is requested at most this far ahead, in multiples of eval_every


async def snapshots_of_one_version(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of all shards at one version, the next multiple of `eval_every`; at the end of the budget, the present ones.

    A shard that is past this version sends its next multiple. In that case a version far enough ahead of all shards is
    requested, so that all parts belong to one model. (Shards of an asynchronous server may not reach one version at the same
    time; after a few tries their parts are evaluated as they are, like a worker's torn read.)
    """
    goal, ahead = evaluator.next_goal(), evaluator.eval_every
    while True:
        by_shard: dict[int, Snapshot] = {}
        for owner in evaluator.observed(ctx):
            ctx.send(owner, SnapshotRequest(goal))
        while not evaluator.complete(ctx, by_shard):
            arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(goal))
            if arrived is None:
                return await final_snapshots(ctx, evaluator)
            evaluator.register(arrived)
            shows = len(arrived.values) > 0 or arrived.ids is not None  # the latter of a shard with no row to show
            if shows and (arrived.version >= goal or evaluator.is_full(arrived.shard)):
                by_shard[arrived.shard] = arrived
        snapshots = tuple(by_shard[shard] for shard in sorted(evaluator.shard_numbers(evaluator.observed(ctx))))
        last = max(s.version for s in snapshots)
        if all(s.version == last or evaluator.is_full(s.shard) for s in snapshots) or ahead > MAX_AHEAD * evaluator.eval_every:
            return snapshots
        goal, ahead = last + ahead, 2 * ahead


async def snapshots_of_replicas(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of replicas that do not wait for each other, all as they are when one of them reaches its next multiple of
    `eval_every`. Snapshots of one version would be of different times, the further apart the slower the slowest is.
    """
    goal = evaluator.next_goal()
    going = [owner for owner in evaluator.observed(ctx) if not all(map(evaluator.is_full, evaluator.shard_numbers([owner])))]
    for owner in going:
        ctx.send(owner, SnapshotRequest(goal))
    arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(goal)) if going else None
    snapshots = await final_snapshots(ctx, evaluator)
    for snapshot in snapshots:
        evaluator.register(snapshot)
    return snapshots if going and arrived is None else tuple(replace(snapshot, final=False) for snapshot in snapshots)


async def pause_after_evaluation(ctx: Context, evaluator: Evaluator, duration: float) -> None:
    """Wait nineteen times as long as the evaluation took (`duration`, s), or until the end of the budget."""
    left = evaluator.time_left(ctx.now)
    pause = PAUSE_FACTOR * duration if left is None else min(PAUSE_FACTOR * duration, left)
    if pause > 0 and not evaluator.stopped_by:
        arrived = await ctx.recv(Snapshot, timeout=pause)
        if arrived is not None:
            evaluator.register(arrived)


async def final_snapshots(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of all observed shards as they are now."""
    last: dict[int, Snapshot] = {}
    for owner in evaluator.observed(ctx):
        ctx.send(owner, SnapshotRequest(final=True))
    while not evaluator.complete(ctx, last):
        arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(final=True))
        if arrived is not None:
            evaluator.register(arrived)  # a shard reports only once that it is full
            if arrived.final:
                last[arrived.shard] = arrived
    return tuple(last[shard] for shard in sorted(evaluator.shard_numbers(evaluator.observed(ctx))))


async def all_full(ctx: Context, evaluator: Evaluator) -> None:
    """If the run ended by updates or samples, wait until all shards and replicas have reached this limit. A shard sends its last
    snapshot once, without a request; a chief that was restarted requests it.
    """
    for owner in evaluator.unfinished(ctx) if ctx.incarnation and evaluator.stopped_by else ():
        ctx.send(owner, SnapshotRequest(evaluator.next_goal()))
    while evaluator.stopped_by in ("updates", "samples", "epochs") and not evaluator.all_full(ctx):
        arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(evaluator.next_goal()))
        if arrived is None:
            return
        evaluator.register(arrived)


async def _next_snapshot(ctx: Context, evaluator: Evaluator, request: SnapshotRequest) -> Snapshot | None:
    """The next snapshot; None at the end of the budget (no timeout for final snapshots). Repeats the request to restarted
    shards.
    """
    while True:
        left = None if request.final else evaluator.time_left(ctx.now)
        arrived = await ctx.recv(Snapshot, Joined, timeout=left)
        if arrived is None or isinstance(arrived, Snapshot):
            return arrived
        evaluator.rejoined(arrived.name)
        if arrived.name in (evaluator.unfinished(ctx) if evaluator.stopped_by else evaluator.observed(ctx)):
            ctx.send(arrived.name, request)
