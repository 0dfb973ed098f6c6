"""Optimizations of the virtual-time engine are not observable by roles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.engines.distributions import Sampler
from labkit.roles.messages import copied_for_sending, timing_only_message
from labkit.trace import Recorder
from labkit.trace.schema import TABLES

TIMING = lk.Problem("digits", timing_only=True)


@dataclass(frozen=True)
class Catches(lk.AsyncPS):
    """A server whose first update fails; it continues with the messages in its inbox."""

    async def server(self, ctx, shard):
        def fail():
            raise ValueError("once")

        await ctx.sleep(1)  # all pulls have arrived
        try:
            await ctx.compute(fail)
        except ValueError:
            for _ in ctx.peers("worker"):
                request = await ctx.recv(lk.Pull)
                ctx.send(request.sender, shard.weights())
        async for request in ctx.inbox(lk.Push):
            await ctx.compute(shard.apply, request, 0.1)
            ctx.send(request.sender, shard.weights())


def test_a_role_that_catches_an_error_loses_no_message():
    run = lk.train(TIMING, Catches(), lk.SimulatedCluster(workers=5), lk.Budget(updates=20))
    run.wait()
    assert sorted(run.trace.counters[0].applied) == [1, 2, 3, 4, 5]


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_the_garbage_collector_gets_its_thresholds_back(thresholds):
    @dataclass(frozen=True)
    class PredictionHistory(lk.AsyncPS):
        async def worker(self, ctx, model):
            ctx.note("threshold", objects=gc.get_threshold()[0])
            await super().worker(ctx, model)

    run = lk.train(TIMING, PredictionHistory(), lk.SimulatedCluster(workers=1), lk.Budget(updates=5))
    assert gc.get_threshold() == thresholds
    run.wait()
    assert gc.get_threshold() == thresholds
    assert run.trace.events[0].numbers["objects"] > thresholds[0]


def test_a_message_without_weight_is_its_own_copy_and_another_sender_gets_another():
    values = np.broadcast_to(np.float32(0), (1000,))
    fields = {"values": values, "shard": 0, "generation": 0, "version": 7}
    made = timing_only_message(lk.Weights, {**fields, "timing_only_bytes": values.nbytes})
    assert made == lk.Weights(**fields)
    first, size = copied_for_sending(made, "server-0")
    second, same = copied_for_sending(made, "server-1")
    assert (first.sender, second.sender, size, same) == ("server-0", "server-1", 4000, 4000)


@pytest.mark.parametrize(
    "distribution",
    [lk.distributions.Deterministic(0.25), lk.distributions.Exponential(0.01), lk.distributions.Pareto(0.005, 2.5)],
)
def test_drawn_times_are_those_of_the_distribution_in_whole_nanoseconds(distribution):
    sampler = Sampler(distribution, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    drawn = np.concatenate([distribution.draw(rng, n) for n in (8, 16, 32)])
    assert [sampler.next() for _ in range(56)] == np.rint(drawn * 1e9).astype(int).tolist()


def test_rows_are_the_same_bytes_however_they_are_added():
    packed, given = Recorder(0), Recorder(0)
    packed.span(1, 10, 20, -1)
    given.spans.extend((1, 10, 20, -1))
    assert packed.rows_waiting() == given.rows_waiting() == len(TABLES["spans"].names)
    assert packed.take(20)["tables"] == given.take(20)["tables"]
    assert packed.take(30)["tables"] == {}
    blind = Recorder(0, record=False)
    blind.span(1, 10, 20)
    blind.messages.extend((0,) * 6)
    assert blind.take(20)["tables"] == {}
    assert blind.counters.phases[1] == 10
