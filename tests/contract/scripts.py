"""Strategies that are written for the contract: most have workers and a chief only, and the workers check what they
receive.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import labkit as lk
from labkit.roles import Layout
from labkit.roles.standard_layouts import worker_specs
from tests.contract.statements import evaluated

QUADRATIC = lk.Problem("quadratic", batch_size=4, options={"samples": 64, "dimension": 5, "noise": 1.0})


@dataclass(frozen=True)
class Done(lk.Message):
    """worker -> chief: I have finished."""


@dataclass(frozen=True)
class Parcel(lk.Message):
    """A message with a field of every supported type."""

    number: Any = 0
    real: Any = 0.0
    text: Any = ""
    flag: Any = False
    nothing: Any = None
    things: Any = ()
    array: Any = None


@dataclass(frozen=True)
class Letter(lk.Message):
    """A number, and some bytes to carry."""

    number: int
    load: Any = None


@dataclass(frozen=True)
class Other(lk.Message):
    """A second kind, in the same order on the same link."""

    number: int


@dataclass(frozen=True)
class Unlisted(lk.Message):
    """A kind that no strategy lists."""


@dataclass(frozen=True)
class Script(lk.Strategy):
    """Workers that run `play(ctx, rank)`, and a chief that waits until all have finished."""

    messages = (Done, Parcel, Letter, Other, lk.Chunk)

    def layout(self, problem, cluster):
        workers = worker_specs(self, cluster.workers)
        return Layout((*workers, lk.RoleSpec("chief", "chief", 0, "chief")), (), ())

    async def chief(self, ctx, evaluator):
        for _ in ctx.peers("worker"):
            if await ctx.recv(Done) is None:
                return

    async def worker(self, ctx, model):
        await self.play(ctx, ctx.peers("worker").index(ctx.name))
        ctx.send("chief", Done())

    async def play(self, ctx, rank):
        """The behaviour under test."""


@dataclass(frozen=True)
class OneAfterTheOther(Script):
    """Several scripts in one run, each with as many workers as it is written for."""

    scripts: tuple = ()  # of (script, number of workers)

    async def play(self, ctx, rank):
        for script, workers in self.scripts:
            if rank < workers:
                await script.play(ctx, rank)
            await lk.barrier(ctx)


def same(a, b):
    """Equal in type, and arrays in dtype, shape and bits."""
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return type(b) is tuple and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def learned(engine, strategy):
    """A run that ended at 85% of moons, and whose model has the reported accuracy and loss."""
    problem = lk.Problem("moons", hidden=(16, 16, 8), batch_size=16, options={"samples": 400})
    workers = 4 if isinstance(strategy, lk.Hybrid) else 2
    run = engine.wait(problem, strategy, lk.Budget(accuracy=0.85, seconds=40), workers=workers, time=0.002)
    summary = run.summary()
    assert run.stopped_by == "accuracy"
    assert summary["accuracy"] >= 0.85
    assert summary["time_to_accuracy"] <= summary["seconds"]
    evaluated(run)
    return run
