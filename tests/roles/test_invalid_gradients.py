"""A worker that sends invalid gradients - another shape, NaN, another dtype, garbage instead of a code - is refused and
recorded; the server continues, the others train, and the ledger balances. A model that diverges still ends its run as
diverged.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import labkit as lk
from labkit.trace.ledger import ledger

MOONS = lk.Problem("moons", hidden=(8,), batch_size=8, seed=3)
DIVERGES = lk.Problem(
    "quadratic", batch_size=4, options={"samples": 64, "dimension": 3, "curvature": 1e6, "noise": 1.0}
)
UPDATES = 60
TRUE = 10  # valid gradients before the invalid ones


def nothing_finite(values):
    return np.full_like(values, np.nan)


def one_number_is_infinite(values):
    return np.where(np.arange(len(values)) == 3, np.inf, values).astype(values.dtype)


def too_long(values):
    return np.append(values, values[:1])


def a_square(values):
    return values[: len(values) // 2 * 2].reshape(2, -1)


def empty(values):
    return values[:0]


def words(values):
    return np.full(len(values), "gradient")


def complex_numbers(values):
    return values * 1j


CORRUPTIONS = [nothing_finite, one_number_is_infinite, too_long, a_square, empty, words, complex_numbers]


def half_a_code(values):
    """A codec's output, truncated."""
    return values[:-1] if len(values) > 1 else (values[0][:-1],)


def wrong_indices(values):
    return tuple(array + 10**6 if array.dtype.kind in "iu" else array for array in values)


def not_a_tuple(values):
    return values[0]


def nan_in_code(values):
    return tuple(np.full_like(array, np.nan) if array.dtype.kind == "f" else array for array in values)


@dataclass(frozen=True)
class FaultyWorker:
    """Worker 1 (every worker, if `all_workers`) sends invalid gradients from its 11th on."""

    corrupt: Any = nothing_finite
    all_workers: bool = False
    shard: int | None = None  # to this one only

    def make_push(self, ctx, shard, push):
        if push.step < TRUE or (not self.all_workers and ctx.name != "worker-1") or self.shard not in (None, shard):
            return push
        return replace(push, values=self.corrupt(push.values))


async def worker(self, ctx, model):
    """A correct worker's loop, except for `make_push`."""
    weights = await lk.pull(ctx)
    servers = ctx.peers("server")
    for batch in ctx.batches():
        gradient = await ctx.compute(model.gradient, weights, batch)
        for shard, server in enumerate(servers):
            ctx.send(server, FAULTY[self.fault].make_push(ctx, shard, gradient.push(shard)))
        answers = [await ctx.recv(lk.Weights, sender=server) for server in servers]
        whole = np.concatenate([answer.values for answer in answers])
        weights = lk.roles.gradient.Parameters(whole, tuple((a.generation, a.version) for a in answers))


FAULTY: dict[str, FaultyWorker] = {corrupt.__name__: FaultyWorker(corrupt) for corrupt in (
    *CORRUPTIONS, half_a_code, wrong_indices, not_a_tuple, nan_in_code,
)} | {"all workers": FaultyWorker(nothing_finite, True), "to server-0 only": FaultyWorker(nothing_finite, shard=0)}  # fmt: skip


@dataclass(frozen=True)
class Async(lk.AsyncPS):
    fault: str = lk.option("nothing_finite", choices=tuple(FAULTY))
    worker = worker


@dataclass(frozen=True)
class Sync(lk.SyncPS):
    fault: str = lk.option("nothing_finite", choices=tuple(FAULTY))
    worker = worker


def trained(strategy, servers=2, **more):
    cluster = lk.SimulatedCluster(workers=3, servers=servers, compute=lk.distributions.Exponential(0.01))
    return lk.train(MOONS, strategy, cluster, lk.Budget(updates=UPDATES), **more)


def refused(run):
    """The refusals in the trace: (worker, text)."""
    return [(event.name, str(event)) for event in run.trace.events if event.kind == "gradient refused"]


def holds(run):
    """Assertions that hold for every kind of invalid gradient."""
    entries = ledger(run.trace)
    assert entries["closes"] is True, entries
    assert entries["missing"] == 0, entries
    assert run.stopped_by == "updates"
    assert run.summary()["updates"] == UPDATES
    refusals = refused(run)
    assert refusals
    assert {name for name, _ in refusals} == {"worker-1"}
    assert entries["dropped"]["refused"] + entries["partly_applied"] > 0
    assert np.isfinite(run.result().parameters).all()
    return refusals


def test_an_invalid_gradient_is_refused_and_training_continues():
    for corrupt, kind in product([corrupt.__name__ for corrupt in CORRUPTIONS], [Async, Sync]):
        run = trained(kind(fault=corrupt)).wait(180)
        refusals = holds(run)
        assert all("step " in text for _, text in refusals), (kind, corrupt)
        honest = [
            c for name, c in zip(run.trace.roles, run.trace.counters.values()) if name in ("worker-0", "worker-2")
        ]
        assert all(c.computed > TRUE for c in honest), (kind, corrupt)


def test_invalid_encoded_gradients_are_refused():
    for codec, corrupt in [
        ("top-k:0.2", half_a_code),
        ("top-k:0.2", wrong_indices),
        ("top-k:0.2", not_a_tuple),
        ("top-k:0.2", nan_in_code),
        ("qsgd:4", half_a_code),
        ("qsgd:4", nan_in_code),
        ("float16", half_a_code),
        ("float16", nan_in_code),
        ("sign-sgd", half_a_code),
        ("power-sgd:2", half_a_code),
        ("power-sgd:2", nan_in_code),
    ]:
        holds(trained(Async(fault=corrupt.__name__, codec=codec), servers=1).wait(180))


def test_the_loss_of_the_others_falls():
    run = lk.train(
        lk.Problem("digits", hidden=(32,), seed=1), Async(fault="nothing_finite"), lk.SimulatedCluster(workers=4),
        lk.Budget(accuracy=0.9, updates=3000),
    ).wait(180)  # fmt: skip
    assert run.stopped_by == "accuracy"
    assert {name for name, _ in refused(run)} == {"worker-1"}


def test_a_gradient_that_is_invalid_on_one_shard_is_partly_applied():
    """The other shard applies its part: partly applied."""
    run = trained(Async(fault="to server-0 only")).wait(180)
    holds(run)
    assert ledger(run.trace)["partly_applied"] > 0


@pytest.mark.parametrize("strategy", [lk.AsyncPS(learning_rate=10.0), lk.SyncPS(learning_rate=10.0), lk.SSP(learning_rate=10.0)],
                         ids=lambda s: s.name)  # fmt: skip
def test_a_diverging_model_is_not_an_invalid_worker(strategy):
    run = lk.train(DIVERGES, strategy, lk.SimulatedCluster(workers=3), lk.Budget(updates=20_000)).wait(180)
    assert run.stopped_by == "diverged"
    assert ledger(run.trace)["closes"] is True


def test_invalid_gradients_of_all_workers_mean_divergence():
    run = trained(Async(fault="all workers"), servers=1)
    run.wait(180)
    assert run.stopped_by == "diverged"
    assert ledger(run.trace)["closes"] is True
