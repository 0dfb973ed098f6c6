"""The chief's protocol: which snapshots the chief requests, and when it has received all of them.

After an evaluation the chief waits nineteen times as long as the evaluation took, so that it uses at most 5% of a core. In
virtual time an evaluation takes the cluster's `evaluation_time` (default 0). If a shard is restarted, the chief repeats its
request to the shard.
"""

from __future__ import annotations

from dataclasses import replace

from .context import Context
from .evaluator import Evaluator
from .messages import Joined, Snapshot, SnapshotRequest

PAUSE_FACTOR = 19
MAX_AHEAD = 16  # a common version is requested at most this far ahead, in multiples of eval_every


async def snapshots_of_one_version(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Request snapshots of all shards at one version, the next multiple of `eval_every`; at the end of the budget, at the
    present versions.

    A shard whose version is higher already sends a snapshot of its next multiple of `eval_every`. In that case a version that
    no shard has reached is requested, so that all parts belong to one model. (If the versions of the shards still differ after
    a few tries, as is possible with an asynchronous server, the parts are evaluated as they are, like a worker's torn read.)
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
            shows = len(arrived.values) > 0 or arrived.ids is not None  # ids: from a shard without rows to evaluate
            if shows and (arrived.version >= goal or evaluator.is_full(arrived.shard)):
                by_shard[arrived.shard] = arrived
        snapshots = tuple(by_shard[shard] for shard in sorted(evaluator.shard_numbers(evaluator.observed(ctx))))
        last = max(s.version for s in snapshots)
        if (
            all(s.version == last or evaluator.is_full(s.shard) for s in snapshots)
            or ahead > MAX_AHEAD * evaluator.eval_every
        ):
            return snapshots
        # further ahead each time: asynchronous shards go on while a request is on its way
        goal, ahead = last + ahead, 2 * ahead


async def snapshots_of_replicas(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Request snapshots of all replicas when one of them reaches the next multiple of `eval_every`.

    For replicas that do not wait for each other. Snapshots of the same version would be taken at very different times if one of
    the replicas is slow.
    """
    goal = evaluator.next_goal()
    going = [
        owner for owner in evaluator.observed(ctx) if not all(map(evaluator.is_full, evaluator.shard_numbers([owner])))
    ]
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
    last: dict[int, Snapshot] = {}
    for owner in evaluator.observed(ctx):
        ctx.send(owner, SnapshotRequest(final=True))
    while not evaluator.complete(ctx, last):
        arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(final=True))
        if arrived is not None:
            evaluator.register(arrived)  # a shard reports that it is full only once
            if arrived.final:
                last[arrived.shard] = arrived
    return tuple(last[shard] for shard in sorted(evaluator.shard_numbers(evaluator.observed(ctx))))


async def all_full(ctx: Context, evaluator: Evaluator) -> None:
    """If a limit of updates or samples ended the run, wait until all shards and replicas have reached this limit.

    A shard sends its last snapshot once, without a request. A chief that was restarted may have missed it, and requests it.
    """
    for owner in evaluator.unfinished(ctx) if ctx.incarnation and evaluator.stopped_by else ():
        ctx.send(owner, SnapshotRequest(evaluator.next_goal()))
    while evaluator.stopped_by in ("updates", "samples", "epochs") and not evaluator.all_full(ctx):
        arrived = await _next_snapshot(ctx, evaluator, SnapshotRequest(evaluator.next_goal()))
        if arrived is None:
            return
        evaluator.register(arrived)


async def _next_snapshot(ctx: Context, evaluator: Evaluator, request: SnapshotRequest) -> Snapshot | None:
    """Wait for the next snapshot. Returns None at the end of the budget (unless the request is final). Repeats the request to
    shards that are restarted.
    """
    while True:
        left = None if request.final else evaluator.time_left(ctx.now)
        arrived = await ctx.recv(Snapshot, Joined, timeout=left)
        if arrived is None or isinstance(arrived, Snapshot):
            return arrived
        evaluator.rejoined(arrived.name)
        if arrived.name in (evaluator.unfinished(ctx) if evaluator.stopped_by else evaluator.observed(ctx)):
            ctx.send(arrived.name, request)
