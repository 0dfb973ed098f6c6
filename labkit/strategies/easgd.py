"""Elastic averaging SGD: workers train alone, tied to a centre by a spring.

    worker: forever: tau times: g <- gradient of the loss on the next mini-batch at x;  x <- x - rate * g
                     send x, receive z;  x <- x - a (x - z)
    server: forever: receive x from any worker;  send z;  z <- z + a (x - z)

with a = rate * rho. The spring pulls both ends by the same force, so the centre follows the workers and holds them
together, but lets them explore: the model is the centre z. Nobody waits. With N workers N * a should stay below 1.
With `Momentum` as the optimizer it is EAMSGD.

Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import BadInput
from ..knobs import knob
from ..roles.context import Context
from ..roles.layout import Layout
from ..roles.local import Local
from ..roles.messages import Joined, Left, Message, Pull, Push, Weights
from ..roles.replica import Centre
from ..roles.servers import pull, push_pull
from .base import Strategy, server_layout

__all__ = ["EASGD"]


@dataclass(frozen=True)
class EASGD(Strategy):
    """Workers train alone for tau steps, then a spring pulls them and the centre together."""

    learning_rate: float = knob(0.1, low=1e-6, high=10.0, log=True, live=True, help="length of a step")
    rho: float = knob(1.0, low=1e-6, high=1e3, log=True, help="stiffness of the spring; it pulls by rate x rho")
    tau: int = knob(4, low=1, high=100_000, help="steps that a worker makes alone between two pulls of the spring")

    messages: ClassVar[tuple[type[Message], ...]] = (Push, Pull, Weights, Left, Joined)
    summary: ClassVar[str] = "workers train alone; a spring ties them to a centre on the server"
    in_words: ClassVar[str] = "workers train alone, tied to a centre by a spring."

    def one_update(self) -> str:
        """The spring pulls once."""
        return f"one pull of the spring, after {self.tau} steps of one worker"

    def layout(self, problem: Any, cluster: Any) -> Layout:
        """Servers that own the centre, workers, a chief. A spring that overshoots the centre is refused."""
        if self.learning_rate * self.rho > 1:
            raise BadInput(
                f"EASGD(learning_rate={self.learning_rate:g}, rho={self.rho:g}): a pull goes rate x rho of the way to the "
                f"centre, so rho is at most {1 / self.learning_rate:g} here."
            )
        return server_layout(self, problem, cluster, store=Centre.make)

    async def server(self, ctx: Context, shard: Any) -> None:
        """Tell where the centre is, and let it be pulled."""
        async for request in ctx.inbox(Push, Pull):
            ctx.send(request, shard.weights())  # as it was: both ends feel the same force
            if isinstance(request, Push):
                await ctx.compute(shard.attract, request, self.learning_rate * self.rho)

    async def worker(self, ctx: Context, model: Any) -> None:
        """Train alone, and now and then feel the spring."""
        mine = Local(await pull(ctx), self)
        for step, batch in enumerate(ctx.batches(), 1):
            gradient = await ctx.compute(model.gradient, mine, batch)
            await ctx.compute(mine.step, gradient)
            mine.add(gradient)
            if step % self.tau == 0:
                mine.towards(await push_pull(ctx, mine.position()), self.learning_rate * self.rho)
