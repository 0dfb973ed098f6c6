"""Collectives compared with NumPy: every member gets the same result, for any number of members and any length."""

from dataclasses import dataclass

import numpy as np

import labkit as lk
from tests.contract.engines import over, slow_on_processes
from tests.contract.scripts import QUADRATIC, Script


def brought(rank, length, dtype):
    """The input of member `rank`. Whole numbers: their sums are exact in any order."""
    return np.random.default_rng([rank, length]).integers(-1000, 1000, length).astype(dtype)


@dataclass(frozen=True)
class Together(Script):
    """All collectives one after the other, with members at different pace."""

    async def play(self, ctx, rank):
        members = ctx.peers("worker")
        n = len(members)
        for length in (1, 2, 7, 64, 1001):
            for dtype in (np.float32, np.float64):
                await ctx.sleep(0.001 * ctx.rng.random())
                gathered = [brought(r, length, dtype) for r in range(n)]
                total = np.sum(gathered, axis=0)
                edges = [length * r // n for r in range(n + 1)]

                mine = gathered[rank].copy()
                assert await lk.all_reduce(ctx, mine) is mine
                assert np.array_equal(mine, total)

                mine = gathered[rank].copy()
                part = await lk.reduce_scatter(ctx, mine)
                assert part == slice(edges[rank], edges[rank + 1])
                assert np.array_equal(mine[part], total[part])

                mine = np.full(length, np.nan, dtype)
                mine[part] = gathered[rank][part]
                await lk.all_gather(ctx, mine)
                assert np.array_equal(mine, np.concatenate([gathered[r][edges[r] : edges[r + 1]] for r in range(n)]))

                for root in range(n):
                    mine = gathered[rank].copy()
                    assert await lk.broadcast(ctx, mine, members[root]) is mine
                    assert np.array_equal(mine, gathered[root])
        began = ctx.now
        await ctx.sleep(0.01 * (rank + 1))
        arrived = ctx.now
        await lk.barrier(ctx)
        ctx.note("barrier", arrived=arrived, left=ctx.now, began=began)


@over("workers", {str(n): n for n in (1, 2, 3, 5)}, quick=["5"])
def test_collectives_against_numpy(engine, workers):
    run = engine.wait(QUADRATIC, Together(), lk.Budget(seconds=60), workers=workers)
    assert run.stopped_by == "finished"
    noted = [event.numbers for event in run.trace.events if str(event) == "barrier"]
    assert len(noted) == workers
    # no member leaves a barrier before all have entered it (clocks of processes on one machine agree to well below 1 ms)
    assert min(n["left"] for n in noted) >= max(n["arrived"] for n in noted) - 0.001


class Bits(Script):
    """Sums of floats that depend on their order: still equal to the last bit on all members."""

    async def play(self, ctx, rank):
        values = np.random.default_rng(rank).standard_normal(1000).astype(np.float32)
        await lk.all_reduce(ctx, values)
        ctx.note("sum", **{str(i): float(v) for i, v in enumerate(values[::37])})


@slow_on_processes
def test_all_members_have_the_same_bits(engine):
    run = engine.wait(QUADRATIC, Bits(), lk.Budget(seconds=60), workers=5)
    sums = [event.numbers for event in run.trace.events if str(event) == "sum"]
    assert len(sums) == 5
    assert all(s == sums[0] for s in sums)
    exact = np.sum([np.random.default_rng(r).standard_normal(1000).astype(np.float32) for r in range(5)], axis=0)
    np.testing.assert_allclose(list(sums[0].values()), exact[::37], atol=1e-5)
