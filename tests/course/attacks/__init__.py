# ruff: noqa: E501  (a line of a submission stays a line)
"""The attack corpus: one submission for each attack. Each must earn nothing, with a reason, and not affect the next submission.

An `Attack` is the source of one solution cell that defines `X`, a strategy, which should be a synchronous server with the
mean. A strategy built on WRONG makes a step at every push, so it gets the points only if the attack works.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """@dataclass(frozen=True)
class X(lk.Strategy):
    learning_rate: float = lk.option(0.1)
    messages = (lk.Push, lk.Pull, lk.Weights)
"""
SERVERS = {
    "right": """    async def server(self, ctx, shard):
        workers, pushes = len(ctx.peers("worker")), []
        async for request in ctx.inbox(lk.Push, lk.Pull):
            {server}
            if isinstance(request, lk.Pull):
                ctx.send(request.sender, shard.weights())
                continue
            pushes.append(request)
            if len(pushes) == workers:
                await ctx.compute(shard.apply, pushes, self.learning_rate)
                for push in pushes:
                    ctx.send(push.sender, shard.weights())
                pushes = []
""",
    "wrong": """    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            {server}
            if isinstance(request, lk.Push):
                await ctx.compute(shard.apply, request, self.learning_rate)
            ctx.send(request.sender, shard.weights())
""",
}
WORKER = """    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            {worker}
            gradient = await ctx.compute(model.gradient, weights, batch)
            {after}
            weights = await lk.push_pull(ctx, gradient)
"""


@dataclass(frozen=True)
class Attack:
    """`why`: a regular expression that the error must match; "" if the attack runs and gives a wrong result."""

    name: str
    source: str
    why: str = ""
    slow: bool = False


def put(
    *, top: str = "", server: str = "pass", worker: str = "pass", after: str = "pass", base: str = "wrong", end: str = "", body: str = ""
) -> str:  # fmt: skip
    """A strategy with inserted lines: before the class, in the server's loop, in the worker's, after it has a gradient, in the
    class, after the class.
    """

    def in_loop(lines: str) -> str:
        return lines.strip().replace("\n", "\n            ")

    made = HEAD + body + SERVERS[base].format(server=in_loop(server)) + WORKER.format(
        worker=in_loop(worker), after=in_loop(after)
    )  # fmt: skip
    return f"{top}\n{made}\n{end}\n"
