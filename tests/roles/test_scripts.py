"""Roles run as scripts, without an engine: send inputs into the coroutine, compare the effects that it yields."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import labkit as lk
from labkit.roles.budget import Limits
from labkit.roles.chief import all_full, final_snapshots
from labkit.roles.context import Context
from labkit.roles.effects import COMPUTE, RECV
from labkit.roles.evaluator import Evaluator
from labkit.roles.messages import Joined, Snapshot, SnapshotRequest


class Sheet(Context):
    """A context that records what was posted."""

    def __init__(self, name="server-0", clock=0.0, **peers):
        super().__init__(name, name.partition("-")[0], 0, 0, peers, lambda: (f"batch {i}" for i in range(10**6)))
        self.sent: list[tuple[str, Any]] = []
        self.kept: list[Any] = []
        self.clock = clock

    def send(self, to, message):
        self.sent.append((to if isinstance(to, str) else to.sender, message))

    def note(self, text, **numbers):
        self.kept.append((text, numbers))

    def save(self, state):
        self.kept.append(state)

    @property
    def now(self):
        return self.clock

    def posted(self):
        """What was posted since the last call."""
        sent, self.sent = self.sent, []
        return sent


@dataclass
class Counting:
    """A shard that only records its calls."""

    version: int = 0
    asked: list = field(default_factory=list)
    role_ids: dict = field(default_factory=lambda: {f"worker-{i}": i for i in range(9)})

    def weights(self):
        return f"weights {self.version}"

    def fresh(self, push):
        return push.version == self.version

    def apply(self, *args):
        self.asked.append(args)
        self.version += 1


def message_from(kind, sender, *values):
    message = kind(*values)
    message.__dict__["sender"] = sender
    return message


def push(sender, step=0, version=0):
    return message_from(lk.Push, sender, np.zeros(1), step, 0, version)


def perform(effect):
    """Perform a COMPUTE effect."""
    assert effect[0] is COMPUTE
    return effect[1](*effect[2])


def test_an_asynchronous_server_answers_every_push_at_once():
    ctx, shard = Sheet(worker=("worker-0", "worker-1")), Counting()
    server = lk.AsyncPS(learning_rate=0.5).server(ctx, shard)
    wait = server.send(None)
    assert wait == (RECV, (lk.Push, lk.Pull), None, None)
    assert server.send(message_from(lk.Pull, "worker-1")) == wait
    assert ctx.posted() == [("worker-1", "weights 0")]
    mine = push("worker-0")
    work = server.send(mine)
    assert work == (COMPUTE, shard.apply, (mine, 0.5), 1.0, None)
    assert ctx.posted() == []  # no answer before the update
    perform(work)
    assert server.send(None) == wait
    assert ctx.posted() == [("worker-0", "weights 1")]  # only the sender moves on


def test_downpour_server_acknowledges_a_push():
    ctx, shard = Sheet(), Counting()
    server = lk.Downpour().server(ctx, shard)
    server.send(None)
    perform(server.send(push("worker-0", step=4)))
    server.send(None)
    assert ctx.posted() == [("worker-0", lk.Ack(4))]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_sync_server_waits_for_all_and_adds_in_the_order_of_the_workers(order):
    workers = ("worker-0", "worker-1", "worker-2")
    ctx, shard = Sheet(worker=workers), Counting()
    server = lk.SyncPS(learning_rate=0.5, reduce="sum").server(ctx, shard)
    wait = server.send(None)
    for step in range(3):
        pushes = {w: push(w, step, step) for w in workers}
        for i in order[:-1]:
            assert server.send(pushes[workers[i]]) == wait
            assert ctx.posted() == []
        work = server.send(pushes[workers[order[-1]]])
        assert work[2] == ([pushes[w] for w in workers], 0.5, "sum")
        perform(work)
        assert server.send(None) == wait
        assert ctx.posted() == [(w, f"weights {step + 1}") for w in workers]
    assert server.send(message_from(lk.Pull, "worker-1")) == wait
    assert ctx.posted() == [("worker-1", "weights 3")]


class Model:
    """Gradients that contain the weights they were computed on."""

    def __init__(self, *parts):
        self.parts, self.step = parts, -1

    def gradient(self, weights, batch, accumulate=1):
        self.step += 1
        return lk.Gradient(weights.values * 2, self.step, weights.read, 8, self.parts)


def weights(values, shard=0, version=0, generation=0):
    return message_from(lk.Weights, f"server-{shard}", np.array(values, float), shard, generation, version)


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS()], ids=lambda s: s.name)
def test_worker_pulls_computes_and_pushes_what_it_computed_on(strategy):
    ctx = Sheet("worker-0", server=("server-0", "server-1"))
    worker = strategy.worker(ctx, Model(slice(0, 2), slice(2, 3)))
    wait = worker.send(None)
    assert wait == (RECV, (lk.Weights, Joined), None, None)
    assert ctx.posted() == [("server-0", lk.Pull()), ("server-1", lk.Pull())]
    worker.send(weights([3.0], 1, version=7))  # the second shard answers first: a torn read, and recorded so
    work = worker.send(weights([1.0, 2.0], 0, version=5, generation=1))
    fn, (read, batch, accumulate) = work[1], work[2]
    assert accumulate == 1
    assert read.values.tolist() == [1, 2, 3]
    assert read.read == ((1, 5), (0, 7))
    assert batch == "batch 0"
    assert worker.send(fn(read, batch, accumulate)) == wait
    (to0, first), (to1, second) = ctx.posted()
    assert (to0, first.values.tolist(), first.step, first.generation, first.version, first.samples) == (
        "server-0",
        [2, 4],
        0,
        1,
        5,
        8,
    )
    assert (to1, second.values.tolist(), second.step, second.generation, second.version) == ("server-1", [6], 0, 0, 7)
    worker.send(weights([1.0, 2.0], 0, version=6, generation=1))
    work = worker.send(weights([3.0], 1, version=8))
    assert work[2][1] == "batch 1"


def test_worker_of_a_ring():
    ctx = Sheet("worker-1", worker=("worker-0", "worker-1"))

    class Replica(Counting):
        def weights(self):
            return lk.Parameters(np.array([1.0, 2.0]), ((0, self.version),))

    replica = Replica()
    worker = lk.RingAllReduce(learning_rate=0.5).worker(ctx, Model(slice(0, 2)), replica)
    work = worker.send(None)
    wait = worker.send(perform(work))  # the gradient is [2, 4]
    assert wait == (RECV, (lk.Chunk,), None, "worker-0")
    ((to, chunk),) = ctx.posted()
    assert (to, chunk.values.tolist(), chunk.part) == ("worker-0", [2.0], 0)
    wait = worker.send(message_from(lk.Chunk, "worker-0", np.array([10.0]), 0, 1))  # the neighbour's part 1: 4 + 10
    ((to, chunk),) = ctx.posted()
    assert (chunk.values.tolist(), chunk.part) == ([14.0], 1)
    work = worker.send(message_from(lk.Chunk, "worker-0", np.array([7.0]), 2, 0))  # the finished part 0
    gradient, rate = work[2]
    assert (gradient.values.tolist(), gradient.count, gradient.samples, gradient.all_workers, rate) == (
        [3.5, 7.0],
        2,
        16,
        True,
        0.5,
    )


# the chief ------------------------------------------------------------------------------------------------------------


class Book:
    """Stub of a recorder."""

    def __init__(self):
        self.evaluations = []


class Loss:
    """An objective whose loss is the first weight, and whose accuracy is the second."""

    def evaluate(self, values, x, y):
        return values[0], values[1]


def evaluator(budget, owners=("server-0",), limits=None):
    roles = tuple(lk.RoleSpec(name, name[:-2], i, name, shard=i) for i, name in enumerate(owners))
    return Evaluator(
        Loss(),
        np.zeros(1),
        np.zeros(1),
        budget,
        limits or Limits(budget.updates),
        owners,
        len(owners),
        10,
        Book(),
        lambda: 0,
        lk.Layout(roles, tuple(owners), (), assemble=lambda shown: np.concatenate([s.values for s in shown])),
    )


NEWS = (Snapshot, Joined)  # messages for which the chief of parameter servers waits


def snapshot(loss, accuracy, version=10, shard=0, final=False, values=None):
    return Snapshot(np.array([loss, accuracy] if values is None else values), shard, version, 8 * version, final)


def test_the_chief_evaluates_until_the_accuracy_is_reached():
    ctx, j = Sheet("chief"), evaluator(lk.Budget(accuracy=0.9))
    chief = lk.AsyncPS().chief(ctx, j)
    wait = chief.send(None)
    assert wait == (RECV, NEWS, None, None)
    assert ctx.posted() == [("server-0", SnapshotRequest(0))]
    perform(chief.send(snapshot(2.0, 0.5)))
    ctx.clock = 1.0
    assert chief.send(None) == (RECV, (Snapshot,), 19.0, None)  # a rest: nineteen times as long as the evaluation took
    assert ctx.kept == [{
        "parameters": pytest.approx([2.0, 0.5]), "update": 10, "samples": 80, "loss": 2.0, "accuracy": 0.5,
        "evaluated_at": 0,
    }]  # fmt: skip
    assert chief.send(None) == wait
    assert ctx.posted() == [("server-0", SnapshotRequest(20))]
    perform(chief.send(snapshot(1.0, 0.9, 20)))
    with pytest.raises(StopIteration):
        chief.send(None)
    assert (j.stopped_by, j.update, j.loss, j.accuracy) == ("accuracy", 20, 1.0, 0.9)


def test_the_chief_requests_a_last_evaluation_at_the_time_limit():
    ctx, j = Sheet("chief", 0.5), evaluator(lk.Budget(seconds=2.0), ("server-0", "server-1"))
    chief = lk.AsyncPS().chief(ctx, j)
    assert chief.send(None) == (RECV, NEWS, 1.5, None)
    ctx.posted()
    ctx.clock = 2.0
    wait = chief.send(None)
    assert wait == (RECV, NEWS, None, None)
    assert ctx.posted() == [("server-0", SnapshotRequest(final=True)), ("server-1", SnapshotRequest(final=True))]
    assert chief.send(snapshot(1.0, 0.5, 10)) == wait  # an older one, not the answer
    assert chief.send(snapshot(0, 0, 12, 1, True, values=[0.25])) == wait
    perform(chief.send(snapshot(0, 0, 13, 0, True, values=[3.0])))
    with pytest.raises(StopIteration):
        chief.send(None)
    # an update is on every shard
    assert (j.stopped_by, j.update, j.parameters.tolist()) == ("seconds", 12, [3.0, 0.25])


def test_the_chief_sleeps_no_longer_than_the_remaining_budget():
    ctx, j = Sheet("chief", 0.0), evaluator(lk.Budget(seconds=5.0, updates=20))
    chief = lk.AsyncPS().chief(ctx, j)
    chief.send(None)
    perform(chief.send(snapshot(2.0, 0.5, 10)))
    ctx.clock = 1.0
    assert chief.send(None) == (RECV, (Snapshot,), 4.0, None)
    ctx.posted()
    assert chief.send(snapshot(1.0, 0.6, 20)) == (RECV, NEWS, 4.0, None)  # full: it requests a snapshot at once
    assert ctx.posted() == [("server-0", SnapshotRequest(20))]
    perform(chief.send(snapshot(1.0, 0.6, 20)))
    with pytest.raises(StopIteration):
        chief.send(None)
    assert j.stopped_by == "updates"


def test_chief_evaluates_shards_at_one_version():
    ctx, j = Sheet("chief"), evaluator(lk.Budget(updates=100), ("server-0", "server-1"))
    chief = lk.SyncPS().chief(ctx, j)
    wait = chief.send(None)
    chief.send(snapshot(0, 0, 10, 0, values=[1.0]))
    ctx.posted()
    # they were requested while one was at 10, one past it
    assert chief.send(snapshot(0, 0, 20, 1, values=[2.0])) == wait
    assert ctx.posted() == [("server-0", SnapshotRequest(30)), ("server-1", SnapshotRequest(30))]
    assert chief.send(snapshot(0, 0, 30, 1, values=[3.0])) == wait
    perform(chief.send(snapshot(0, 0, 30, 0, values=[4.0])))
    assert (j.update, j.parameters.tolist()) == (30, [4.0, 3.0])


def test_the_chief_records_a_shard_that_reaches_its_budget_during_a_request():
    """A replica that reports it between two answers to the last snapshot request does not report it again."""
    ctx, j = Sheet("chief"), evaluator(lk.Budget(updates=1), ("replica-0", "replica-1"))
    snapshots = final_snapshots(ctx, j)
    snapshots.send(None)
    snapshots.send(snapshot(0, 0, 0, 0, True, values=[1.0]))
    snapshots.send(snapshot(0, 0, 1, 0, values=[2.0]))
    with pytest.raises(StopIteration):
        snapshots.send(snapshot(0, 0, 1, 1, True, values=[3.0]))
    j.stopped_by = "samples"
    with pytest.raises(StopIteration):
        all_full(ctx, j).send(None)


def test_chief_ends_when_shards_reach_the_budget_one_after_the_other():
    """A full shard answers every snapshot request at once; the other one may not be full yet."""
    ctx, j = Sheet("chief"), evaluator(lk.Budget(updates=20), ("server-0", "server-1"))
    chief = lk.SyncPS().chief(ctx, j)
    chief.send(None)
    chief.send(snapshot(0, 0, 20, 0, values=[1.0]))
    chief.send(snapshot(0, 0, 10, 1, values=[2.0]))
    assert ctx.posted()[2:] == [("server-0", SnapshotRequest(30)), ("server-1", SnapshotRequest(30))]
    chief.send(snapshot(0, 0, 20, 0, values=[1.0]))
    perform(chief.send(snapshot(0, 0, 20, 1, values=[5.0])))
    with pytest.raises(StopIteration):
        chief.send(None)
    assert (j.stopped_by, j.update, j.parameters.tolist()) == ("updates", 20, [1.0, 5.0])


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_the_evaluator_checks_divergence_first(loss):
    j = evaluator(lk.Budget(updates=10, accuracy=0.1))
    j.evaluate((snapshot(loss, 0.9),))
    assert j.stopped_by == "diverged"


def test_the_evaluator_evaluates_complete_versions_of_all_shards():
    j = evaluator(lk.Budget(updates=10), ("server-0", "server-1"))
    j.evaluate((snapshot(0, 0, 10, 0, values=[1.0]), snapshot(0, 0, 9, 1, values=[0.5])))
    assert (j.stopped_by, j.update) == (None, 9)


def test_the_evaluator_continues_without_a_reason_to_stop():
    j = evaluator(lk.Budget(updates=10, accuracy=0.9))
    j.evaluate((snapshot(1.0, 0.89, 9),))
    assert j.stopped_by is None
    j.evaluate((snapshot(1.0, 0.89, 10),))
    assert j.stopped_by == "updates"
