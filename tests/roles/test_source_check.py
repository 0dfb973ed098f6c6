"""Mistakes in a strategy's source are found before it runs, by line; correct code is accepted."""

import inspect

import pytest

import labkit as lk
from labkit.errors import BadInput
from labkit.roles.source_check import check_source

STORE, LIMIT = {}, [1, 2, 3]


async def helper(ctx):
    await ctx.sleep(0)


async def harmless(self, ctx):
    await ctx.sleep(0)


class Wrong(lk.AsyncPS):
    """Each method has one mistake, on the line after its comment."""

    async def recv(self, ctx):
        ctx.recv(lk.Weights)  # here: `ctx.recv(...)` is never awaited, so it does nothing: write `await ctx.recv(...)`

    async def sleep(self, ctx):
        if ctx.now > 3:
            ctx.sleep(1)  # here: `ctx.sleep(...)` is never awaited

    async def compute(self, ctx, model):
        gradient = ctx.compute(model.gradient, 1, 2)  # here: `ctx.compute(...)` is never awaited
        await lk.push(ctx, gradient)

    async def attribute(self, ctx):
        return lk.pull(ctx).values  # here: `lk.pull(...)` is never awaited

    async def argument(self, ctx, model):
        await ctx.compute(model.gradient, lk.pull(ctx), None)  # here: `lk.pull(...)` is never awaited

    async def collective(self, ctx, values):
        lk.all_reduce(ctx, values)  # here: `lk.all_reduce(...)` is never awaited, so it does nothing

    async def barrier(self, ctx):
        for _ in range(3):
            lk.barrier(ctx)  # here: `lk.barrier(...)` is never awaited

    async def own(self, ctx):
        helper(ctx)  # here: `helper(...)` is never awaited

    async def started(self, ctx, tasks):
        tasks.start(len, helper)
        tasks.begin(helper(ctx))  # here: `helper(...)` is never awaited

    async def method(self, ctx):
        self.own(ctx)  # here: `self.own(...)` is never awaited

    async def post(self, ctx):
        await ctx.send("worker-0", lk.Pull())  # here: `await ctx.send(...)`: it never waits

    async def noted(self, ctx):
        await ctx.note("x")  # here: `await ctx.note(...)`: it never waits

    async def inbox(self, ctx):
        for request in ctx.inbox(lk.Push):  # here: write `async for`
            ctx.send(request.sender, lk.Pull())

    async def batches(self, ctx):
        async for _ in ctx.batches():  # here: write `for`
            pass

    async def renamed(self, context):
        context.recv(lk.Push)  # here: `context.recv(...)` is never awaited

    async def item(self, ctx):
        STORE[ctx.name] = 1  # here: changes `STORE`, a global of its module

    async def deep(self, ctx):
        STORE["a"]["b"].append(1)  # here: changes `STORE`, a global of its module

    async def declared(self, ctx):
        global LIMIT
        LIMIT = ctx.now  # here: changes `LIMIT`, a global of its module

    def plain(self, ctx):
        LIMIT.append(1)  # here: changes `LIMIT`, a global of its module

    async def own_field(self, ctx):
        self.count = 1  # here: changes `self.count`

    async def inside_own_field(self, ctx):
        self.optimizer.seen[0] = 1  # here: changes `self.optimizer`


METHODS = [name for name, f in vars(Wrong).items() if inspect.isfunction(f) and not name.startswith("__")]


def test_each_mistake_is_reported_with_its_line():
    for name in METHODS:
        One = type("One", (lk.AsyncPS,), {"own": harmless, name: vars(Wrong)[name]})
        lines, first = inspect.getsourcelines(vars(Wrong)[name])
        (at,) = [i for i, line in enumerate(lines) if "# here: " in line]
        with pytest.raises(BadInput) as caught:
            check_source(One())
        text = str(caught.value)
        assert text.startswith(f"One.{name}, line {first + at}: "), name
        assert lines[at].partition("# here: ")[2].strip() in text, name


class Right(lk.AsyncPS):
    """Correct code that resembles mistakes."""

    async def worker(self, ctx, model):
        waiting = lk.pull(ctx)
        weights = await waiting
        seen, total = [], {}
        for batch in ctx.batches():
            seen.append(batch)
            total["n"] = len(seen) + len(LIMIT) + STORE.get("x", 0)
            gradient = await ctx.compute(model.gradient, weights, batch, cost=2.0)
            gradient.values[:] = 0
            model.extra = 1
            weights = await lk.push_pull(ctx, gradient)
            if (message := await ctx.recv(lk.Ack, timeout=0)) is not None:
                ctx.note("ack", step=message.step)
            await self.rest(ctx)
            await helper(ctx)

    def rest(self, ctx):
        return ctx.sleep(0.1)

    def again(self, ctx):
        return lk.barrier(ctx)

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            ctx.send(request.sender, shard.weights())
            self.update(request)

    def update(self, request):
        """A method whose name is that of a dict's."""

    async def several(self, ctx):
        async with ctx.tasks() as tasks:
            tasks.start(helper(ctx))
            tasks.start(self.shadow(ctx), name="the other")

    async def shadow(self, ctx):
        STORE = {}  # its own
        STORE["a"] = 1
        return STORE


def test_correct_source_passes_the_check():
    check_source(Right())


def test_labkits_own_strategies_are_right_too():
    for strategy in (lk.AsyncPS, lk.SyncPS, lk.RingAllReduce, lk.BucketedAllReduce):
        foreign = type(
            "Copy", (lk.Strategy,), {k: v for k, v in vars(strategy).items() if inspect.isfunction(v) and k[0] != "_"}
        )
        assert foreign.__module__ != strategy.__module__
        check_source(foreign())


def test_the_check_accepts_strategies_without_source():
    made = {}
    exec("async def worker(self, ctx, model):\n    ctx.recv()", made)
    check_source(type("Unseen", (lk.AsyncPS,), {"worker": made["worker"]})())
