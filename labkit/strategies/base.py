"""What every strategy is: a frozen dataclass of knobs whose async methods are its roles.

A role method is named after its kind (`worker`, `server`, `chief`) and gets `ctx` and the parts that the layout gives
it: a `model` if it computes, a `shard` if it owns parameters. Knobs that all strategies share are declared here, once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..errors import BadInput, nearest
from ..knobs import check_knob, check_knobs, knob, knobs_of
from ..nn import SGD, Constant, optimizer_by_name, schedule_by_name
from ..roles.context import Context
from ..roles.judge import Judge, all_full, next_snapshot, rest
from ..roles.layout import Layout, RoleSpec, shard_slices
from ..roles.messages import Message

__all__ = ["Strategy", "server_layout"]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The base of all strategies. A subclass lists its `messages` and writes its roles."""

    optimizer: Any = knob(SGD(), help="how a shard turns a gradient into a step")
    schedule: Any = knob(Constant(), help="the learning rate's course, counted in updates")
    weight_decay: float = knob(0.0, low=0.0, high=1.0, help="every step first shrinks the weights by rate x this")
    clip_norm: float | None = knob(
        None, low=1e-9, high=1e9, help="longest gradient a worker sends; longer ones are scaled down"
    )
    eval_every: int = knob(10, low=1, high=10**9, help="updates between two looks at the held-out accuracy")
    chief_works: bool = knob(False, help="worker 0 shares the chief's node")

    messages: ClassVar[tuple[type[Message], ...]] = ()
    uses_servers: ClassVar[bool] = True
    summary: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str):
            object.__setattr__(self, "optimizer", optimizer_by_name(self.optimizer))
        if isinstance(self.schedule, str):
            object.__setattr__(self, "schedule", schedule_by_name(self.schedule))
        if not hasattr(self.optimizer, "apply"):
            raise BadInput(f"optimizer={self.optimizer!r}: give one of labkit's optimizers, as lk.Momentum(0.9).")
        if not callable(self.schedule):
            raise BadInput(f"schedule={self.schedule!r}: give one of labkit's schedules, as lk.Cosine(1000).")
        check_knobs(self)

    @property
    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    def changed(self, **knobs: Any) -> Strategy:
        """A copy with these knobs, during a run: only knobs declared `live=True` may change; others are refused by
        name.
        """
        known = knobs_of(self)
        for name, value in knobs.items():
            if name not in known:
                raise nearest(f"knob of {self.name}", name, known)
            if not known[name].live:
                live = ", ".join(k for k in known if known[k].live) or "none"
                raise BadInput(f"{self.name}.{name} cannot change during a run; what can: {live}.")
            check_knob(self.name, known[name], value)
        return replace(self, **knobs)

    def describe(self) -> dict[str, Any]:
        """Name and knobs in plain values, for the header of a trace."""
        plain = (int, float, str, bool, type(None))
        values = {name: getattr(self, name) for name in knobs_of(self)}
        return {"name": self.name, "knobs": {k: v if isinstance(v, plain) else repr(v) for k, v in values.items()}}

    def mean_staleness(self, workers: int) -> float | None:
        """What the algorithm's own law says of the mean staleness with so many workers; None if there is no law."""
        return None

    def layout(self, problem: Any, cluster: Any) -> Layout:
        """Who is there, where, with which part. Pure. Impossible shapes are refused here, before anything starts."""
        return server_layout(self, problem, cluster)

    async def chief(self, ctx: Context, judge: Judge) -> None:
        """Look at the model every `eval_every` updates; return, and so end the run, when the budget is met."""
        while not judge.verdict:
            snapshot = await next_snapshot(ctx, judge)
            began = ctx.now
            await ctx.compute(judge.evaluate, snapshot)
            ctx.save(judge.state())
            await rest(ctx, judge, ctx.now - began)
        await all_full(ctx, judge)


def server_layout(strategy: Strategy, problem: Any, cluster: Any) -> Layout:
    """Parameter servers, workers, and a chief: every role on a node of its own, shards of even size."""
    servers = 1 if cluster.servers is None else cluster.servers
    size = problem.objective().size
    if servers < 1:
        raise BadInput(
            f"{strategy.name} keeps its parameters on servers and was given servers={servers}; it needs at least 1."
        )
    if servers > size:
        raise BadInput(f"servers={servers}: the model has {size} parameters, so at most {size} servers.")
    parts = shard_slices(size, servers)
    workers, chief = worker_specs(strategy, cluster.workers), RoleSpec("chief", "chief", 0, "chief")
    owners = [RoleSpec(f"server-{i}", "server", i, f"server-{i}", shard=i, part=parts[i]) for i in range(servers)]
    return Layout((*owners, *workers, chief), tuple(r.name for r in owners), parts)


def worker_specs(strategy: Strategy, workers: int, **more: Any) -> list[RoleSpec]:
    """Workers that compute, each with a share of the data; worker 0 on the chief's node if the chief works."""
    nodes = ["chief" if strategy.chief_works and i == 0 else f"worker-{i}" for i in range(workers)]
    return [RoleSpec(f"worker-{i}", "worker", i, nodes[i], computes=True, data=i, **more) for i in range(workers)]
