"""What the chief says and hears: which snapshots it asks for, and when it has them all.

Evaluation is measurement, not training: the chief rests nineteen times as long as an evaluation took (5% of a core). In
virtual time it takes the cluster's `evaluation_time`, 0 unless given. A shard that was restarted has forgotten that it was
asked, and is asked again.
"""

from __future__ import annotations

from dataclasses import replace

from .context import Context
from .evaluator import Evaluator
from .messages import Joined, Snapshot, SnapshotRequest

__all__ = ["all_full", "final_snapshots", "snapshots_of_replicas", "snapshots_of_one_version", "rest"]

REST = 19
TRIES = 16  # how far ahead, in multiples of eval_every, shards are asked to meet before their pieces are taken


async def snapshots_of_one_version(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of all shards at one version: the next `eval_every`. When time is up, as they are now.

    A shard that is past the version shows its next multiple. Then all are asked for one that lies far enough ahead, so
    what is evaluated is a model that was, not pieces of two. (Shards of an asynchronous server may never meet; after a
    few tries their pieces are taken as they are, as a worker's torn read is.)
    """
    goal, ahead = evaluator.next_goal(), evaluator.eval_every
    while True:
        shown: dict[int, Snapshot] = {}
        for owner in evaluator.observed(ctx):
            ctx.send(owner, SnapshotRequest(goal))
        while not evaluator.complete(ctx, shown):
            arrived = await _shown(ctx, evaluator, SnapshotRequest(goal))
            if arrived is None:
                return await final_snapshots(ctx, evaluator)
            evaluator.take(arrived)
            shows = len(arrived.values) > 0 or arrived.ids is not None  # the latter of a shard with no row to show
            if shows and (arrived.version >= goal or evaluator.is_full(arrived.shard)):
                shown[arrived.shard] = arrived
        snapshots = tuple(shown[shard] for shard in sorted(evaluator.numbers(evaluator.observed(ctx))))
        last = max(s.version for s in snapshots)
        if all(s.version == last or evaluator.is_full(s.shard) for s in snapshots) or ahead > TRIES * evaluator.eval_every:
            return snapshots
        goal, ahead = last + ahead, 2 * ahead


async def snapshots_of_replicas(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of replicas that do not wait for each other, all as they are when one of them shows its next
    `eval_every`: those of one version would be of many times, as far apart as the slowest is slow.
    """
    goal = evaluator.next_goal()
    going = [owner for owner in evaluator.observed(ctx) if not all(map(evaluator.is_full, evaluator.numbers([owner])))]
    for owner in going:
        ctx.send(owner, SnapshotRequest(goal))
    arrived = await _shown(ctx, evaluator, SnapshotRequest(goal)) if going else None
    shown = await final_snapshots(ctx, evaluator)
    for snapshot in shown:
        evaluator.take(snapshot)
    return shown if going and arrived is None else tuple(replace(snapshot, final=False) for snapshot in shown)


async def rest(ctx: Context, evaluator: Evaluator, worked: float) -> None:
    """Evaluation is to take 5% of a core: rest nineteen times as long, unless the budget is used up meanwhile."""
    left = evaluator.time_left(ctx.now)
    pause = REST * worked if left is None else min(REST * worked, left)
    if pause > 0 and not evaluator.stopped_by:
        arrived = await ctx.recv(Snapshot, timeout=pause)
        if arrived is not None:
            evaluator.take(arrived)


async def final_snapshots(ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
    """Snapshots of all observed shards as they are now."""
    last: dict[int, Snapshot] = {}
    for owner in evaluator.observed(ctx):
        ctx.send(owner, SnapshotRequest(final=True))
    while not evaluator.complete(ctx, last):
        arrived = await _shown(ctx, evaluator, SnapshotRequest(final=True))
        if arrived is not None:
            evaluator.take(arrived)  # a shard says only once that it is full
            if arrived.final:
                last[arrived.shard] = arrived
    return tuple(last[shard] for shard in sorted(evaluator.numbers(evaluator.observed(ctx))))


async def all_full(ctx: Context, evaluator: Evaluator) -> None:
    """If the budget of updates or samples ended the run: wait until all shards, and replicas, have applied it all. A shard
    says so by itself, but once: to a chief that is away meanwhile, in vain.
    """
    for owner in evaluator.unfinished(ctx) if ctx.incarnation and evaluator.stopped_by else ():
        ctx.send(owner, SnapshotRequest(evaluator.next_goal()))
    while evaluator.stopped_by in ("updates", "samples", "epochs") and not evaluator.all_full(ctx):
        arrived = await _shown(ctx, evaluator, SnapshotRequest(evaluator.next_goal()))
        if arrived is None:
            return
        evaluator.take(arrived)


async def _shown(ctx: Context, evaluator: Evaluator, look: SnapshotRequest) -> Snapshot | None:
    """The next snapshot, or None when time is up; a final one is worth any time. A shard that was restarted has
    forgotten that it was asked.
    """
    while True:
        left = None if look.final else evaluator.time_left(ctx.now)
        arrived = await ctx.recv(Snapshot, Joined, timeout=left)
        if arrived is None or isinstance(arrived, Snapshot):
            return arrived
        evaluator.rejoined(arrived.name)
        if arrived.name in (evaluator.unfinished(ctx) if evaluator.stopped_by else evaluator.observed(ctx)):
            ctx.send(arrived.name, look)
