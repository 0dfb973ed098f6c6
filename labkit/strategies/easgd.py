"""Elastic averaging SGD: workers take local steps; an elastic force pulls them towards a centre.

    worker: z <- pull;  x <- z;  for t = 0, 1, 2 ...:
                if tau divides t, t > 0:  send x, receive z;  f <- a (x - z)      (else f <- 0)
                g <- gradient of the loss on the next mini-batch at x;  x <- x - rate * g - f
    server: forever: receive x from any worker;  send z;  z <- z + a (x - z)

This is the asynchronous algorithm of Zhang et al. The gradient and the elastic force are both evaluated at the x that was sent.
Evaluating the force after the gradient step would be a different algorithm, with a wider region of stability. (At t = 0 the
force is 0, because x equals z.) The force moves the worker and the centre by the same distance towards each other. The centre
therefore follows the workers, and each worker can move away from the centre only to some distance. The model is the centre z.
No worker waits for another.

The moving rate a is `beta` / N for N workers (beta = 0.9 in the experiments of the paper), or rate * `rho` if rho is given. On
f(x) = x^2 / 2, with tau = 1 and workers that take turns, the algorithm is stable if a <= (4 - 2 rate) / (4 - rate) and
0 <= rate <= 2. With beta = 0.9, this is the case for rates up to 0.364 with one worker, and up to 1.746 with four workers.

With `Nesterov` as the optimizer, the algorithm is EAMSGD, except that the force is evaluated at x + momentum * v, not at x.

Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import BadInput
from ..options import option
from ..problem import Problem
from ..roles.context import Context
from ..roles.gradient import Model
from ..roles.layout import ClusterShape, Layout
from ..roles.local_weights import Local
from ..roles.messages import CentreWeights, Joined, Left, Message, Position, Pull
from ..roles.replica import Centre
from ..roles.servers import pull, push_pull
from ..roles.standard_layouts import server_layout
from .base import Strategy


@dataclass(frozen=True, kw_only=True)
class EASGD(Strategy):
    """Workers take tau local steps, then an elastic force pulls each worker and the centre together.

    See Also
    --------
    LocalSGD : Replaces replicas by their average.
    Downpour : Pushes sums of gradients.

    Examples
    --------
    A worker and the centre move towards each other by beta / N of their distance.

    >>> strategy = lk.EASGD(beta=0.9, tau=4)
    >>> strategy.moving_rate(workers=4)
    0.225

    They exchange weights after every 4 gradients.

    >>> summary = lk.train("moons", strategy, lk.SimulatedCluster(workers=4), lk.Budget(seconds=1)).wait().summary()
    >>> summary["gradients"], summary["updates"]
    (400, 100)
    """

    beta: float = option(0.9, low=1e-6, high=1e3, log=True, help="the spring's pull on the centre: N x the moving rate")
    rho: float | None = option(
        None, low=1e-6, high=1e3, log=True, help="if given, the moving rate is rate x rho, not beta / N"
    )
    tau: int = option(4, low=1, high=100_000, help="steps that a worker makes alone between two pulls of the spring")

    messages: ClassVar[tuple[type[Message], ...]] = (Position, Pull, CentreWeights, Left, Joined)
    summary: ClassVar[str] = "workers take local steps; an elastic force couples them to a centre on the server"
    description: ClassVar[str] = "workers take local steps and are coupled to a centre by an elastic force."

    def one_update(self) -> str:
        """Return the definition of an update: one exchange with the centre."""
        return f"one pull of the spring, after {self.tau} steps of one worker"

    def moving_rate(self, workers: int) -> float:
        """Return the moving rate a.

        An exchange moves the worker and the centre towards each other, each by this fraction of the distance between them.

        Parameters
        ----------
        workers : int
            The number of workers.

        Returns
        -------
        float
            The moving rate, from 0 to 1.
        """
        return self.beta / max(workers, 1) if self.rho is None else self.learning_rate * self.rho

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return servers that own the centre, workers, and a chief. Raises `BadInput` if the moving rate is above 1."""
        if self.moving_rate(cluster.workers) > 1:
            given, most = f"beta={self.beta:g}", f"beta is at most {cluster.workers}, the workers,"
            if self.rho is not None:
                given, most = f"rho={self.rho:g}", f"rho is at most {1 / self.learning_rate:g}, 1 / rate,"
            raise BadInput(
                f"EASGD(learning_rate={self.learning_rate:g}, {given}): a pull of the spring would go beyond the centre; "
                f"{most} here."
            )
        return replace(server_layout(self, problem, cluster, store=Centre.make), positions=True)

    async def server(self, ctx: Context, shard: Centre) -> None:
        """Reply with the centre, then move it towards the worker's position."""
        async for request in ctx.inbox(Position, Pull):
            ctx.send(request, shard.weights())  # before z moves, so that worker and centre use the same force
            if isinstance(request, Position):
                await ctx.compute(shard.elastic_step, request, self.moving_rate(len(ctx.peers("worker"))))

    async def worker(self, ctx: Context, model: Model) -> None:
        """Train locally; every tau steps, exchange with the centre."""
        weights = Local(await pull(ctx, CentreWeights), self)
        for step, batch in enumerate(ctx.batches(), 1):
            gradient = await ctx.compute(model.gradient, weights, batch)
            await ctx.compute(weights.step, gradient)
            weights.add(gradient)
            if step % self.tau == 0:
                centre = await push_pull(ctx, weights.position(), CentreWeights)
                # applied with the next step
                weights.set_elastic_force(centre, self.moving_rate(len(ctx.peers("worker"))))
