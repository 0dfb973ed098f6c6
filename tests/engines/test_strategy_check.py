"""Mistakes in a strategy's class are found before anything starts, in one sentence."""

from dataclasses import dataclass

import pytest

import labkit as lk

PAPER = lk.SimulatedCluster(workers=2)
MOONS = lk.Problem("moons", hidden=(4,))


def refusal(strategy):
    with pytest.raises(lk.BadInput) as error:
        lk.train(MOONS, strategy, PAPER, lk.Budget(updates=2))
    return str(error.value)


def test_options_without_a_dataclass():
    class Plain(lk.AsyncPS):
        momentum = lk.option(0.5)

    assert "Plain.momentum is not a field yet: write @dataclass(frozen=True)" in refusal(Plain())


def test_a_role_with_another_name():
    @dataclass(frozen=True)
    class Typo(lk.Strategy):
        messages = (lk.Push, lk.Pull, lk.Weights)

        async def servr(self, ctx, shard):
            await ctx.recv(lk.Pull)

        async def worker(self, ctx, model):
            await lk.pull(ctx)

    assert "has no role `server`" in refusal(Typo())
    assert "It has `servr`: is that it?" in refusal(Typo())


def test_a_misspelled_role_method_is_reported():
    @dataclass(frozen=True)
    class Typo(lk.AsyncPS):
        async def workers(self, ctx, model):
            await lk.pull(ctx)

    assert "Typo.workers is not a role of this run, and is never called: is it `worker`?" in refusal(Typo())


def test_a_role_that_is_no_coroutine():
    @dataclass(frozen=True)
    class Plain(lk.AsyncPS):
        def server(self, ctx, shard):
            return None

    assert "Plain.server is not `async def`" in refusal(Plain())


@pytest.mark.parametrize("listed", [lk.Push, ["Push"], ("Push",), (lk.Push, int)])
def test_messages_are_a_tuple_of_messages(listed):
    @dataclass(frozen=True)
    class Wrong(lk.AsyncPS):
        messages = listed

    assert "list the classes in a tuple" in refusal(Wrong())


def test_waiting_for_nothing_or_for_names():
    @dataclass(frozen=True)
    class Deaf(lk.AsyncPS):
        async def worker(self, ctx, model):
            await ctx.recv()

    @dataclass(frozen=True)
    class Named(lk.AsyncPS):
        async def worker(self, ctx, model):
            await ctx.recv("Weights")

    for strategy, given in ((Deaf(), "ctx.recv()"), (Named(), "ctx.recv('Weights')")):
        with pytest.raises(lk.RoleError) as error:
            lk.train(MOONS, strategy, PAPER, lk.Budget(updates=2)).wait()
        assert f"{given}: name the kinds of message to wait for" in str(error.value)


def test_parameters_change_only_through_apply():
    @dataclass(frozen=True)
    class Behind(lk.AsyncPS):
        async def server(self, ctx, shard):
            async for request in ctx.inbox(lk.Push, lk.Pull):
                if isinstance(request, lk.Push):
                    values = shard.values
                    values -= 0.1 * request.values
                ctx.send(request.sender, shard.weights())

    with pytest.raises(lk.RoleError, match="read-only"):
        lk.train(MOONS, Behind(), PAPER, lk.Budget(updates=2)).wait()


@pytest.mark.parametrize(("reduce", "why"), [("avg", "late"), ("mean", "too old")])
def test_unknown_reductions_and_reasons(reduce, why):
    @dataclass(frozen=True)
    class Odd(lk.AsyncPS):
        async def server(self, ctx, shard):
            async for request in ctx.inbox(lk.Push, lk.Pull):
                if isinstance(request, lk.Push):
                    shard.drop(request, why) if request.step else shard.apply([request], 0.1, reduce)
                ctx.send(request.sender, shard.weights())

    with pytest.raises(lk.RoleError, match=reduce if reduce != "mean" else why):
        lk.train(MOONS, Odd(), PAPER, lk.Budget(updates=3)).wait()
