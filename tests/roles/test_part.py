"""The kind of work of every component is declared; a function that belongs to no component is work of its role."""

import inspect

import pytest

import labkit as lk
from labkit.roles.evaluator import Evaluator
from labkit.roles.gradient import Model
from labkit.roles.local_weights import Local
from labkit.roles.model_parallel.stages import PipelineStage, ShardedLayers
from labkit.roles.model_parallel.tensor_parallel import TensorRank
from labkit.roles.part import Part
from labkit.roles.replica import Centre, Replica
from labkit.roles.shard import Shard
from labkit.roles.sparse.row_shard import RowShard
from labkit.roles.sparse.rows import RowModel

WORK = {
    "gradient": (Model, RowModel, PipelineStage, ShardedLayers, TensorRank),
    "server": (Shard, RowShard, Replica, Centre, Local),
    "measure": (Evaluator,),
}


def test_the_work_of_every_part_is_declared():
    for work, part in [(work, part) for work, parts in WORK.items() for part in parts]:
        assert issubclass(part, Part), (work, part)
        assert part.work == work, (work, part)


def test_discarded_work_is_recorded_by_models_only():
    overriding = {part for parts in WORK.values() for part in parts if part.cancelled is not Part.cancelled}
    assert overriding == {Model, RowModel}
    assert inspect.signature(Model.discard).parameters.keys() == {"self", "gradient"}


class Timer:
    """A user-defined object with an attribute that resembles a component's."""

    work = "nonsense"

    def wait(self):
        return 1


def test_an_object_that_is_no_part_is_work_of_its_role():
    """A worker's is gradient work: it takes the cluster's `compute`, for any names of the object's attributes."""

    class Own(lk.AsyncPS):
        async def worker(self, ctx, model):
            await ctx.compute(Timer().wait)
            await super().worker(ctx, model)

    cluster = lk.SimulatedCluster(workers=1, compute=lk.distributions.Deterministic(0.1))
    run = lk.train(lk.Problem("moons", hidden=(4,)), Own(), cluster, lk.Budget(updates=2)).wait()
    assert run.trace.now == pytest.approx(0.3e9)
