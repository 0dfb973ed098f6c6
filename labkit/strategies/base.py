"""Base classes of strategies. A strategy is a frozen dataclass of options; its async methods are the roles.

A role method has the name of the kind of role (`worker`, `server`, `chief`). Its arguments are `ctx` and the components that
the layout gives the role: a `model` if the role computes, a `shard` if it owns parameters. The options that all strategies
have are declared here.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

from ..description import Description, HasDescription
from ..errors import BadInput, lacks, shown
from ..nn import SGD, Constant, Optimizer, Schedule, optimizer_by_name, schedule_by_name
from ..nn.codecs import CODECS, Codec, as_codec
from ..nn.compensation import COMPENSATIONS, Compensation, compensation_by_name
from ..nn.named_objects import name_as_text
from ..nn.optimizers import OPTIMIZERS
from ..nn.schedules import SCHEDULES, schedule_as_text
from ..options import Converted, HasOptions, Option, check_option, is_one_of, option, options_of, same_option
from ..problem import Problem
from ..roles.chief import all_full, pause_after_evaluation, snapshots_of_one_version
from ..roles.context import Context
from ..roles.evaluator import Evaluator
from ..roles.layout import ClusterShape, Layout
from ..roles.messages import Joined, Left, Message, Pull, Push, Snapshot, Weights
from ..roles.standard_layouts import replica_layout, server_layout
from ..table import Table


@dataclass(frozen=True, kw_only=True)
class Strategy(HasOptions, HasDescription):
    """The base class of all strategies.

    A strategy is a frozen dataclass. Its fields are options (`lk.option`), and its async methods are its roles: the method
    `worker` runs on every worker, `server` on every server. A role method has the parameter `ctx` (`Context`) and one for each
    component that the layout gives the role: `model` computes gradients, `shard` owns parameters, `replica` is a shard with the
    whole model on a worker.

    Attributes
    ----------
    messages : tuple of type
        The kinds of message that roles send. Engines deliver `Joined` and `Left` only to strategies that list them.
    uses_servers : bool
        Whether the default layout has servers. If not, every worker has a replica of the model.
    summary : str
        What the strategy does, in one line, for lists.
    description : str
        A short sentence that begins with the kind of synchronization, for figures.
    suggested_problem : dict
        Arguments of `Problem` that suit the strategy, if the default problem does not.

    See Also
    --------
    ServerStrategy : Base class of strategies with servers.
    AsynchronousServer : Base class of strategies with servers that apply stale gradients.
    option : Declares an option.

    Examples
    --------
    Strategies are values. They can be compared, and changed with `dataclasses.replace`. Options that are objects can be given by
    name.

    >>> strategy = lk.SSP(s=2, optimizer="momentum:0.5")
    >>> strategy.optimizer
    Momentum(momentum=0.5)
    >>> strategy == lk.SSP(s=2, optimizer=lk.Momentum(0.5))
    True

    The options, their defaults and their limits are listed in the docstring of each strategy. Other values are refused.

    >>> lk.SSP(s=-1)
    Traceback (most recent call last):
        ...
    labkit.errors.BadInput: SSP: s=-1 is not allowed; s is a whole number from 0 to 1,000,000.
    """

    learning_rate: float = option(0.1, low=1e-6, high=10.0, log=True, live=True, help="length of a step")
    optimizer: Converted[Optimizer, str] = option(
        SGD(), names=OPTIMIZERS, read=optimizer_by_name, write=partial(name_as_text, allowed=OPTIMIZERS),
        help="how a shard turns a gradient into a step",
    )  # fmt: skip
    schedule: Converted[Schedule, str] = option(
        Constant(), names=SCHEDULES, read=schedule_by_name, write=schedule_as_text,
        help="the learning rate's course, counted in updates",
    )  # fmt: skip
    weight_decay: float = option(0.0, low=0.0, high=1.0, help="every step first shrinks the weights by rate x this")
    clip_norm: float | None = option(
        None, low=1e-9, high=1e9, help="longest gradient a worker sends; longer ones are scaled down"
    )
    eval_every: int = option(10, low=1, high=10**9, help="updates between two evaluations on held-out data")
    chief_works: bool = option(False, help="worker 0 shares the chief's node")
    on_loss: str = option(
        "wait", choices=("wait", "continue"), help="a worker is lost: wait until it is back, or go on without it"
    )

    messages: ClassVar[tuple[type[Message], ...]] = ()
    uses_servers: ClassVar[bool] = True
    summary: ClassVar[str] = ""  # one line, for lists
    # options of a problem that suits the strategy, if the default problem does not
    suggested_problem: ClassVar[dict[str, Any]] = {}
    description: ClassVar[str] = ""  # a short description as a sentence: "synchronous: all wait for the slowest."

    def __post_init__(self) -> None:
        super().__post_init__()
        more = [name for name, known in options_of(self).items() if known.names is OPTIMIZERS and name != "optimizer"]
        for name in ("optimizer", *more):  # also a plain attribute of a class, which is no option
            if not hasattr(getattr(self, name), "apply"):
                raise BadInput(
                    f"{name}={shown(getattr(self, name))}: give one of labkit's optimizers, as lk.Momentum(0.9)."
                )
        if not callable(self.schedule):
            raise BadInput(
                f"schedule={shown(self.schedule)}: give one of labkit's schedules, as lk.schedules.Cosine(1000)."
            )

    @classmethod
    def _notes(cls) -> str:
        """Return the docstring of the module, without its first line, if it contains pseudo-code."""
        paragraphs = (inspect.getdoc(sys.modules.get(cls.__module__)) or "").split("\n\n")
        if not any(text.startswith("    ") for text in paragraphs):
            return ""
        return "\n\n".join(f"::\n\n{text}" if text.startswith("    ") else text for text in paragraphs[1:])

    @property
    def name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def changed(self, **options: Any) -> Self:
        """Return a copy with other values of live options. `Run.set` uses it during a run.

        Parameters
        ----------
        **options : object
            Values of live options, by name.

        Returns
        -------
        Strategy
            The changed strategy.

        Raises
        ------
        BadInput
            If there is no such option, if it is not live, or if its value is not allowed.

        Examples
        --------
        >>> lk.SSP(s=3).changed(s=1).s
        1
        """
        known = options_of(self)
        for name, value in options.items():
            if name not in known:
                raise lacks(self.name, "setting", name, known)
            if not known[name].live:
                live = ", ".join(k for k in known if known[k].live) or "none"
                raise BadInput(f"{self.name}.{name} cannot change during a run; what can: {live}.")
            check_option(self.name, known[name], value)
        return replace(self, **options)

    def describe(self) -> dict[str, Any]:
        """Return the strategy as plain values, for the header of a trace.

        Returns
        -------
        dict
            The `name`, the `description`, the values of all `options`, and their defaults (`usual`).
        """
        plain = (int, float, str, bool, type(None))
        values = {name: getattr(self, name) for name in options_of(self)}
        usual = {name: k.default for name, k in options_of(self).items()}
        return {
            "name": self.name, "description": self.description,
            "options": {k: v if isinstance(v, plain) else repr(v) for k, v in values.items()},
            "usual": {k: d if isinstance(d, plain) else repr(d) for k, d in usual.items()},
        }  # fmt: skip

    def _described(self) -> Description:
        rows = []
        for name, k in sorted(options_of(self).items(), key=lambda known: known[0] not in type(self).__annotations__):
            value = getattr(self, name)
            default = "" if is_one_of(value, (k.default,)) else _option_text(k.default, k)
            rows.append(
                [name, _option_text(value, k), default, k.help + ("; can change during a run" if k.live else "")]
            )
        columns = ["option", "value", "changed from", "meaning"]
        if not any(default for _, _, default, _ in rows):
            columns, rows = (
                [c for c in columns if c != "changed from"],
                [[name, value, text] for name, value, _, text in rows],
            )
        module = type(self).__module__
        page = module.replace(".", "/") + ".py" if module.startswith("labkit.") else module
        return Description(
            f"{self.name}: {self.summary}" if self.summary else self.name,
            (("one update", self.one_update()), ("algorithm", page)),
            (Table(columns, rows),),
        )

    def one_update(self) -> str:
        """Return a text that defines one update.

        Numbers of updates are comparable only if their definitions are equal.

        Returns
        -------
        str
            The definition, as "the mean of one gradient of every worker".
        """
        return "one gradient, applied at the full rate"

    def mean_staleness(self, workers: int) -> float | None:
        """Return the theoretical mean staleness of the applied gradients.

        Parameters
        ----------
        workers : int
            The number of workers.

        Returns
        -------
        float or None
            The mean staleness, in updates; None if there is no formula.
        """
        return None

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return the roles of a run, with their nodes and components. A pure function.

        These are a chief and, if `uses_servers`, servers and workers, otherwise workers with a replica of the model each.

        Parameters
        ----------
        problem : Problem
            The learning problem.
        cluster : ClusterSpec
            The options of the cluster, as the numbers of workers and servers.

        Returns
        -------
        Layout
            The layout.

        Raises
        ------
        BadInput
            If the cluster does not fit the problem or the strategy.
        """
        make = server_layout if self.uses_servers else replica_layout
        return make(self, problem, cluster)

    async def snapshots(self, ctx: Context, evaluator: Evaluator) -> tuple[Snapshot, ...]:
        """Request the snapshots to evaluate next, those of the model at the next multiple of `eval_every`.

        Parameters
        ----------
        ctx : Context
            The chief's interface to the engine.
        evaluator : Evaluator
            The component of the chief that evaluates.

        Returns
        -------
        tuple of Snapshot
            One snapshot of each observed shard.
        """
        return await snapshots_of_one_version(ctx, evaluator)

    async def chief(self, ctx: Context, evaluator: Evaluator) -> None:
        """Evaluate the model every `eval_every` updates. Returns when the budget is met, which ends the run.

        Parameters
        ----------
        ctx : Context
            The chief's interface to the engine.
        evaluator : Evaluator
            The component that evaluates.
        """
        while not evaluator.stopped_by:
            snapshots = await self.snapshots(ctx, evaluator)
            began = ctx.now
            await ctx.compute(evaluator.evaluate, snapshots)
            ctx.save(evaluator.state())
            await pause_after_evaluation(ctx, evaluator, ctx.now - began)
        await all_full(ctx, evaluator)


def _option_text(value: Any, k: Option) -> str:
    """Return the value of an option with its unit."""
    if value is MISSING or value is None:
        return "none"
    text = str(value) if isinstance(value, str | int) else f"{value:g}" if isinstance(value, float) else shown(value)
    return f"{text} {k.unit}" if k.unit else text


@dataclass(frozen=True, kw_only=True)
class StaleGradients(Strategy):
    """Options of strategies whose servers apply stale gradients: a smaller step, or a compensation of the delay."""

    staleness_aware: bool = option(False, help="a gradient that is k updates old makes a step of rate / k")
    compensation: Converted[Compensation | None, str] = option(
        None, names=COMPENSATIONS, read=compensation_by_name, write=partial(name_as_text, allowed=COMPENSATIONS),
        help="delay compensation (DC-ASGD): constant:0.04, adaptive:2.0",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compensation is not None and not hasattr(self.compensation, "compensate"):
            raise BadInput(
                f"compensation={shown(self.compensation)}: give lk.DelayCompensation(0.04), 'adaptive' or None."
            )


@dataclass(frozen=True, kw_only=True)
class AccumulatedGradients(Strategy):
    """Option of strategies whose workers compute one gradient between two exchanges, on the same weights: it may be the mean
    over several mini-batches.

    A worker's gradient is complete after `accumulate` computations (`gradient.complete`), and only then communicated. It counts
    as one gradient with the samples of all its mini-batches.
    """

    accumulate: int = option(
        1, low=1, high=100_000, help="mini-batches over which a worker averages its gradient before it sends it"
    )

    def one_update(self) -> str:
        """Return the definition of an update: one gradient, and over how many mini-batches it is averaged."""
        return super().one_update() + self.gradient_text

    @property
    def gradient_text(self) -> str:
        """The end of the definition of an update: what a gradient is, if it is not that of one mini-batch."""
        return "" if self.accumulate == 1 else f"; a gradient is the mean over {self.accumulate} mini-batches"


@dataclass(frozen=True, kw_only=True)
class ServerStrategy(Strategy):
    """Base class of strategies in which workers push gradients to servers, which own the parameters.

    See Also
    --------
    pull, push_pull : How a worker communicates with all servers.
    all_pushes, Gate : When a server takes a step or replies.

    Examples
    --------
    A server that applies each gradient with a weight that falls with the number of updates:

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Falling(lk.ServerStrategy):
    ...     power: float = lk.option(0.5, low=0.0, high=1.0, help="exponent of the weight")
    ...
    ...     async def server(self, ctx, shard):
    ...         async for request in ctx.inbox(lk.Push, lk.Pull):
    ...             if isinstance(request, lk.Push):
    ...                 rate = self.learning_rate / (1 + shard.version) ** self.power
    ...                 await ctx.compute(shard.apply, request, rate)
    ...             ctx.send(request, shard.weights())
    ...
    ...     async def worker(self, ctx, model):
    ...         weights = await lk.pull(ctx)
    ...         for batch in ctx.batches():
    ...             gradient = await ctx.compute(model.gradient, weights, batch)
    ...             weights = await lk.push_pull(ctx, gradient)
    >>> run = lk.train("moons", Falling(power=0.6), lk.SimulatedCluster(workers=4), lk.Budget(updates=100)).wait()
    >>> run.summary()["updates"], run.summary()["staleness"]["max"]
    (100, 3)
    """

    codec: Converted[Codec | None, str] = option(
        None, names=CODECS, read=as_codec, write=partial(name_as_text, allowed=CODECS),
        help="compress messages: top-k:0.01, sign-sgd, qsgd:4, float16, power-sgd:2",
    )  # fmt: skip

    messages: ClassVar[tuple[type[Message], ...]] = (Push, Pull, Weights, Left, Joined)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_codec(self.codec)  # raises if it is not a codec


@dataclass(frozen=True, kw_only=True)
class AsynchronousServer(ServerStrategy, StaleGradients):
    """Base class of strategies whose servers apply stale gradients and, by default, do not wait for a lost worker.

    See Also
    --------
    ServerStrategy : Waits for a lost worker by default.
    DelayCompensation : A correction of stale gradients.

    Examples
    --------
    Its options correct stale gradients: by a smaller step, or by an estimate of the gradient at the present weights.

    >>> lk.AsyncPS(staleness_aware=True, compensation="constant:0.04").compensation
    DelayCompensation(strength=0.04)
    >>> lk.AsynchronousServer().on_loss, lk.ServerStrategy().on_loss
    ('continue', 'wait')
    """

    on_loss: str = same_option(Strategy, "on_loss", default="continue")


@dataclass(frozen=True, kw_only=True)
class MixedReplicas(Strategy):
    """Base class of strategies without servers whose workers step on their own replicas, which are averaged.

    The model is the mean of the replicas.
    """

    uses_servers: ClassVar[bool] = False

    def mean_staleness(self, workers: int) -> float | None:
        """Return 0, because only the worker applies gradients to its replica, and averaging is not an update."""
        return 0.0

    def one_update(self) -> str:
        """Return the definition of an update: one step of every replica."""
        return "one step of every replica, each with its own gradient"

    def layout(self, problem: Problem, cluster: ClusterShape) -> Layout:
        """Return workers with a replica each, and a chief, which evaluates the mean of the replicas."""
        return replica_layout(self, problem, cluster, "local")
