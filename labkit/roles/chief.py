"""What the chief says and hears: which snapshots it asks for, and when it has them all.

Evaluation is measurement, not training: the chief rests nineteen times as long as an evaluation took (5% of a core). In
virtual time it takes the cluster's `evaluation_time`, 0 unless given. A shard that was restarted has forgotten that it was
asked, and is asked again.
"""

from __future__ import annotations

from dataclasses import replace

from .context import Context
from .judge import Judge
from .messages import Joined, Look, Snapshot

__all__ = ["all_full", "final_snapshot", "next_mixture", "next_snapshot", "rest"]

REST = 19
TRIES = 16  # how far ahead, in multiples of eval_every, shards are asked to meet before their pieces are taken


async def next_snapshot(ctx: Context, judge: Judge) -> tuple[Snapshot, ...]:
    """Snapshots of all shards at one version: the next `eval_every`. When time is up, as they are now.

    A shard that is past the version shows its next multiple. Then all are asked for one that lies far enough ahead, so
    what is evaluated is a model that was, not pieces of two. (Shards of an asynchronous server may never meet; after a
    few tries their pieces are taken as they are, as a worker's torn read is.)
    """
    goal, ahead = judge.next_goal(), judge.eval_every
    while True:
        shown: dict[int, Snapshot] = {}
        for owner in judge.here(ctx):
            ctx.send(owner, Look(goal))
        while not judge.shown(ctx, shown):
            arrived = await _shown(ctx, judge, Look(goal))
            if arrived is None:
                return await final_snapshot(ctx, judge)
            judge.take(arrived)
            shows = len(arrived.values) > 0 or arrived.ids is not None  # the latter of a shard with no row to show
            if shows and (arrived.version >= goal or arrived.shard in judge._full):
                shown[arrived.shard] = arrived
        snapshots = tuple(shown[shard] for shard in sorted(judge.numbers(judge.here(ctx))))
        last = max(s.version for s in snapshots)
        if all(s.version == last or s.shard in judge._full for s in snapshots) or ahead > TRIES * judge.eval_every:
            return snapshots
        goal, ahead = last + ahead, 2 * ahead


async def next_mixture(ctx: Context, judge: Judge) -> tuple[Snapshot, ...]:
    """Snapshots of replicas that do not wait for each other, all as they are when one of them shows its next
    `eval_every`: those of one version would be of many times, as far apart as the slowest is slow.
    """
    goal = judge.next_goal()
    going = [owner for owner in judge.here(ctx) if not judge.numbers([owner]) <= judge._full]
    for owner in going:
        ctx.send(owner, Look(goal))
    arrived = await _shown(ctx, judge, Look(goal)) if going else None
    shown = await final_snapshot(ctx, judge)
    for snapshot in shown:
        judge.take(snapshot)
    return shown if going and arrived is None else tuple(replace(snapshot, final=False) for snapshot in shown)


async def rest(ctx: Context, judge: Judge, worked: float) -> None:
    """Evaluation is to take 5% of a core: rest nineteen times as long, unless the budget is used up meanwhile."""
    left = judge.time_left(ctx.now)
    pause = REST * worked if left is None else min(REST * worked, left)
    if pause > 0 and not judge.verdict:
        arrived = await ctx.recv(Snapshot, timeout=pause)
        if arrived is not None:
            judge.take(arrived)


async def final_snapshot(ctx: Context, judge: Judge) -> tuple[Snapshot, ...]:
    """Snapshots of all observed shards as they are now."""
    last: dict[int, Snapshot] = {}
    for owner in judge.here(ctx):
        ctx.send(owner, Look(final=True))
    while not judge.shown(ctx, last):
        arrived = await _shown(ctx, judge, Look(final=True))
        if arrived is not None:
            judge.take(arrived)  # a shard says only once that it is full
            if arrived.final:
                last[arrived.shard] = arrived
    return tuple(last[shard] for shard in sorted(judge.numbers(judge.here(ctx))))


async def all_full(ctx: Context, judge: Judge) -> None:
    """If the budget of updates or samples ended the run: wait until all shards, and replicas, have applied it all. A shard
    says so by itself, but once: to a chief that is away meanwhile, in vain.
    """
    for owner in judge.unsaid(ctx) if ctx.incarnation and judge.verdict else ():
        ctx.send(owner, Look(judge.next_goal()))
    while judge.verdict in ("updates", "samples", "epochs") and not judge.all_full(ctx):
        arrived = await _shown(ctx, judge, Look(judge.next_goal()))
        if arrived is None:
            return
        judge.take(arrived)


async def _shown(ctx: Context, judge: Judge, look: Look) -> Snapshot | None:
    """The next snapshot, or None when time is up; a final one is worth any time. A shard that was restarted has
    forgotten that it was asked.
    """
    while True:
        left = None if look.final else judge.time_left(ctx.now)
        arrived = await ctx.recv(Snapshot, Joined, timeout=left)
        if arrived is None or isinstance(arrived, Snapshot):
            return arrived
        judge.rejoined(arrived.name)
        if arrived.name in (judge.unsaid(ctx) if judge.verdict else judge.here(ctx)):
            ctx.send(arrived.name, look)
