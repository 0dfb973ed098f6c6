"""Roles that wait for some workers or for none, run as scripts: inputs and expected effects, without an engine."""

import numpy as np
import pytest

import labkit as lk
from labkit.roles.effects import COMPUTE, RECV
from labkit.roles.messages import Joined, Left, Position, SnapshotRequest
from tests.roles.test_scripts import (
    NEWS,
    Counting,
    Model,
    Sheet,
    evaluator,
    message_from,
    perform,
    push,
    snapshot,
    weights,
)

WORKERS = ("worker-0", "worker-1", "worker-2")
REQUESTS = (RECV, (lk.Push, lk.Pull), None, None)
MEMBERS = (RECV, (lk.Push, lk.Pull, Left, Joined), None, None)  # for roles that need the list of participants


def pull(sender):
    return message_from(lk.Pull, sender)


class Dropping(Counting):
    """A shard that also records what it dropped; it can refuse to apply, as at the end of a budget."""

    full = False

    def apply(self, *args):
        self.asked.append(args)
        self.version += not self.full
        return not self.full

    def drop(self, request, why):
        self.asked.append((request.sender, why))


# servers --------------------------------------------------------------------------------------------------------------


def test_ssp_server_applies_at_once_and_answers_when_the_gate_opens():
    ctx, shard = Sheet(worker=WORKERS[:2]), Counting()
    server = lk.SSP(learning_rate=0.5, s=1).server(ctx, shard)
    assert server.send(None) == MEMBERS
    for worker in WORKERS[:2]:
        assert server.send(pull(worker)) == MEMBERS
        assert ctx.posted() == [(worker, "weights 0")]
    for step, answered in ((0, True), (1, False)):  # worker-0 runs ahead: to 1, then to 2, which is too far
        mine = push("worker-0", step)
        work = server.send(mine)
        assert work == (COMPUTE, shard.apply, (mine, 0.5), 1.0, None)
        assert ctx.posted() == []
        perform(work)
        assert server.send(None) == MEMBERS
        assert ctx.posted() == ([("worker-0", f"weights {step + 1}")] if answered else [])
    perform(server.send(push("worker-1", 0)))
    assert server.send(None) == MEMBERS
    assert ctx.posted() == [("worker-1", "weights 3"), ("worker-0", "weights 3")]  # the one behind first


def test_ssp_without_slack_answers_all_together():
    ctx, shard = Sheet(worker=WORKERS), Counting()
    server = lk.SSP(s=0).server(ctx, shard)
    server.send(None)
    for worker in WORKERS:
        server.send(pull(worker))
    ctx.posted()
    for worker in WORKERS[1:]:
        perform(server.send(push(worker)))
        server.send(None)
        assert ctx.posted() == []
    perform(server.send(push("worker-0")))
    server.send(None)
    assert sorted(ctx.posted()) == [(w, "weights 3") for w in WORKERS]


def test_the_server_of_backup_workers_uses_the_first_pushes_and_answers_all():
    ctx, shard = Sheet(worker=WORKERS), Dropping()
    server = lk.BackupWorkers(learning_rate=0.5, b=1).server(ctx, shard)
    assert server.send(None) == MEMBERS
    first, second = push("worker-2"), push("worker-0")
    assert server.send(first) == MEMBERS
    work = server.send(second)
    assert work == (COMPUTE, shard.apply, ([second, first], 0.5), 1.0, None)  # in the order of the workers: a mean
    perform(work)
    assert server.send(None) == MEMBERS
    assert ctx.posted() == [(w, "weights 1") for w in WORKERS]
    assert server.send(push("worker-1", 0, version=0)) == MEMBERS  # computed on the step that is over
    assert shard.asked[-1] == ("worker-1", "late")
    assert ctx.posted() == []  # it has been notified already


def test_k_async_server_answers_those_of_the_step_when_it_is_made():
    ctx, shard = Sheet(worker=WORKERS), Counting()
    server = lk.KAsync(learning_rate=0.5, K=2).server(ctx, shard)
    server.send(None)
    first, second = push("worker-2"), push("worker-0")
    assert server.send(first) == MEMBERS
    assert ctx.posted() == []
    assert server.send(pull("worker-1")) == MEMBERS
    assert ctx.posted() == [("worker-1", "weights 0")]  # a late comer does not wait for the step
    work = server.send(second)
    assert work == (COMPUTE, shard.apply, ([first, second], 0.5), 1.0, None)
    perform(work)
    assert server.send(None) == MEMBERS
    assert ctx.posted() == [("worker-2", "weights 1"), ("worker-0", "weights 1")]


def test_k_batch_async_server_answers_at_once_and_who_makes_the_step_gets_it():
    ctx, shard = Sheet(worker=WORKERS), Counting()
    server = lk.KBatchAsync(K=2).server(ctx, shard)
    server.send(None)
    assert server.send(push("worker-1", 0)) == MEMBERS
    assert ctx.posted() == [("worker-1", "weights 0")]
    work = server.send(push("worker-1", 1))
    assert ctx.posted() == []
    assert [p.step for p in work[2][0]] == [0, 1]  # both of one worker
    perform(work)
    server.send(None)
    assert ctx.posted() == [("worker-1", "weights 1")]


def test_the_easgd_server_returns_the_centre_before_its_elastic_step():
    ctx, shard = Sheet(worker=WORKERS), Counting()
    shard.elastic_step = lambda request, share: shard.apply(request, share)
    server = lk.EASGD(learning_rate=0.5, rho=0.5).server(ctx, shard)
    server.send(None)
    work = server.send(message_from(Position, "worker-1", np.array([1.0, 1.0]), 0, 0, 0))
    assert ctx.posted() == [("worker-1", "weights 0")]
    assert work[2][1] == 0.25
    perform(work)
    waits = (RECV, (Position, lk.Pull), None, None)
    assert server.send(None) == waits
    assert server.send(pull("worker-0")) == waits
    assert ctx.posted() == [("worker-0", "weights 1")]


# workers --------------------------------------------------------------------------------------------------------------

POLL = (RECV, (lk.Weights, Left, Joined), 0, None)
WAIT = (RECV, (lk.Weights, Left, Joined), None, None)


@pytest.mark.parametrize("strategy", [lk.BackupWorkers(), lk.KSync(), lk.BackupWorkers(give_up=False)])
def test_worker_that_may_be_late_begins_again_on_the_newest_weights(strategy):
    ctx = Sheet("worker-0", server=("server-0",))
    worker = strategy.worker(ctx, Model(slice(0, 1)))
    assert worker.send(None) == WAIT
    assert ctx.posted() == [("server-0", lk.Pull())]
    assert worker.send(weights([1.0])) == POLL
    work = worker.send(None)
    assert work[2][0].values.tolist() == [1.0]
    assert work[4] is (lk.Weights if strategy.give_up else None)
    if strategy.give_up:
        assert worker.send(None) == WAIT  # cancelled: no message is sent
        assert ctx.posted() == []
    else:
        assert worker.send(perform(work)) == WAIT  # late, but sent
        ((to, sent),) = ctx.posted()
        assert (to, sent.version) == ("server-0", 0)
    assert worker.send(weights([2.0], version=1)) == POLL
    assert worker.send(weights([3.0], version=2)) == POLL  # it was busy during a whole step
    work = worker.send(None)
    assert (work[2][0].values.tolist(), work[2][1]) == ([3.0], "batch 1")


def test_worker_with_two_shards_waits_for_the_same_version_of_both():
    ctx = Sheet("worker-0", server=("server-0", "server-1"))
    worker = lk.KSync().worker(ctx, Model(slice(0, 1), slice(1, 2)))
    assert worker.send(None) == WAIT
    assert worker.send(weights([1.0], 0, version=1)) == WAIT  # the first shard is a step ahead
    assert worker.send(weights([5.0], 1, version=0)) == WAIT  # not usable alone
    assert worker.send(weights([6.0], 1, version=1)) == POLL
    work = worker.send(None)
    assert (work[2][0].values.tolist(), work[2][0].read) == ([1.0, 6.0], ((0, 1), (0, 1)))
    assert worker.send(None) == WAIT
    assert worker.send(weights([2.0], 0, version=2)) == WAIT
    assert worker.send(weights([7.0], 1, version=2)) == POLL
    assert worker.send(weights([3.0], 0, version=3)) == WAIT  # torn again
    assert worker.send(weights([8.0], 1, version=3)) == POLL
    work = worker.send(None)
    assert work[2][0].read == ((0, 3), (0, 3))


def test_worker_of_k_batch_sync_goes_on_until_the_step_is_made_and_never_beyond_k():
    ctx = Sheet("worker-0", server=("server-0",))
    worker = lk.KBatchSync(K=3).worker(ctx, Model(slice(0, 1)))
    worker.send(None)
    worker.send(weights([1.0]))
    work = worker.send(None)
    for step in range(2):
        assert worker.send(perform(work)) == POLL  # have newer ones arrived?
        assert [(m.step, m.version) for _, m in ctx.posted() if isinstance(m, lk.Push)] == [(step, 0)]
        work = worker.send(None)  # no: once more on the same weights
        assert work[2][0].values.tolist() == [1.0]
        assert work[2][1] == f"batch {step + 1}"
    assert worker.send(perform(work)) == WAIT  # three have been sent: with them the step can be made
    ctx.posted()
    assert worker.send(weights([2.0], version=1)) == POLL
    work = worker.send(None)
    assert work[2][0].values.tolist() == [2.0]
    assert worker.send(None) == WAIT  # cancelled half-way
    assert worker.send(weights([3.0], version=2)) == POLL
    work = worker.send(None)
    assert (work[2][0].values.tolist(), work[2][1]) == ([3.0], "batch 4")


def test_the_downpour_worker_pushes_every_n_push_and_fetches_every_n_fetch_steps():
    ctx = Sheet("worker-0", server=("server-0",))
    worker = lk.Downpour(learning_rate=0.5, n_push=2, n_fetch=3).worker(ctx, Model(slice(0, 1)))
    worker.send(None)
    ctx.posted()
    work = worker.send(weights([8.0], version=4))
    steps, sent = [], []
    for _ in range(3):  # the gradient is 2 w: w <- w - .5 * 2 w = 0
        steps.append(work[2][0].values.tolist())
        local = worker.send(perform(work))
        assert local[0] is COMPUTE
        perform(local)
        work = worker.send(None)
        if work == (RECV, (lk.Ack, Joined), None, None):
            sent += [m for _, m in ctx.posted()]
            work = worker.send(message_from(lk.Ack, "server-0", 1))
    assert steps == [[8.0], [0.0], [0.0]]
    assert [(p.values.tolist(), p.step, p.count, p.samples, p.version) for p in sent] == [([16.0], 1, 2, 16, 4)]
    assert work == (RECV, (lk.Weights, Joined), None, None)
    assert ctx.posted() == [("server-0", lk.Pull())]
    work = worker.send(weights([1.0], version=9))
    assert work[2][0].values.tolist() == [1.0]


# gossip ---------------------------------------------------------------------------------------------------------------


class Replica(Counting):
    """Two numbers, whose clock and values are written down."""

    def __init__(self):
        super().__init__()
        self.values, self.clock, self.begun = np.array([0.0, 4.0]), (0, -1, -1), 0

    def clock_of(self, workers):
        return self.clock

    def assign(self, values, workers, clock):
        self.values, self.clock = values, tuple(clock)

    def weighted_mean(self, others, shares):
        return shares[0] * self.values + sum(s * o for s, o in zip(shares[1:], others))

    def count_step(self):
        self.begun += 1

    def copy(self):
        return self.values.copy()


def mix(sender, values, clock):
    return message_from(lk.Mix, sender, np.array(values), clock)


def replicas(name):
    ctx = Sheet(name, worker=WORKERS, replica=("replica-0", "replica-1", "replica-2"))
    return ctx, Replica()


def test_a_replica_that_answers():
    """replica-1 is on the side that only answers: a neighbour's parameters are averaged and sent back at once."""
    ctx, mine = replicas("replica-1")
    role = lk.ADPSGD(learning_rate=0.5).replica(ctx, mine)
    wait = (RECV, (lk.Push, lk.Pull, lk.Mix), None, None)
    assert role.send(None) == wait
    assert role.send(mix("replica-0", [2.0, 2.0], (5, 1, -1))) == wait
    ((to, answer),) = ctx.posted()
    assert (to, answer.values.tolist(), answer.clock) == ("replica-0", [1.0, 3.0], (5, 1, -1))
    assert mine.values.tolist() == [1.0, 3.0]
    work = role.send(push("worker-1"))
    assert work[1:3] == (mine.apply, (work[2][0], 0.5))  # no question first
    perform(work)
    assert role.send(None) == wait
    assert ctx.posted() == [("worker-1", "weights 1")]


def test_a_replica_that_asks():
    """replica-0 sends a request to one neighbour of the other side before it computes, and waits for that answer only."""
    ctx, mine = replicas("replica-0")
    role = lk.ADPSGD(learning_rate=0.5).replica(ctx, mine)
    wait = role.send(None)
    assert role.send(pull("worker-0")) == wait
    assert ctx.posted() == [("worker-0", "weights 0")]
    assert role.send(push("worker-0")) == (RECV, (lk.Mix,), None, "replica-1")
    ((to, question),) = ctx.posted()
    assert (to, question.values.tolist(), question.clock) == ("replica-1", [0.0, 4.0], (0, -1, -1))
    work = role.send(mix("replica-1", [1.0, 3.0], (0, 7, 2)))
    assert work[0] is COMPUTE
    assert (mine.values.tolist(), mine.clock, mine.begun) == ([1.0, 3.0], (0, 7, 2), 1)
    perform(work)
    assert role.send(None) == wait
    assert ctx.posted() == [("worker-0", "weights 1")]


def test_worker_of_d_psgd_sends_computes_at_what_it_sent_mixes_and_steps():
    ctx = Sheet("worker-1", worker=WORKERS)
    mine = Replica()
    mine.weights = lambda: lk.Parameters(mine.values, ((0, 0),))
    role = lk.DPSGD(learning_rate=0.5, graph="grid").worker(ctx, Model(slice(0, 2)), mine)  # a line of three
    work = role.send(None)
    assert [(to, m.values.tolist(), m.clock) for to, m in ctx.posted()] == [
        ("worker-0", [0.0, 4.0], (0, -1, -1)), ("worker-2", [0.0, 4.0], (0, -1, -1)),
    ]  # fmt: skip
    gradient = perform(work)
    assert gradient.values.tolist() == [0.0, 8.0]
    assert role.send(gradient) == (RECV, (lk.Mix,), None, "worker-0")
    assert role.send(mix("worker-0", [3.0, 1.0], (4, -1, -1))) == (RECV, (lk.Mix,), None, "worker-2")
    work = role.send(mix("worker-2", [6.0, 1.0], (0, -1, 3)))
    np.testing.assert_allclose(mine.values, [3.0, 2.0])
    assert mine.clock == (4, -1, 3)
    assert work[2] == (gradient, 0.5)


def test_the_chief_of_ad_psgd_evaluates_all_when_one_replica_reaches_the_next_multiple():
    ctx, owners = Sheet("chief"), ("replica-0", "replica-1")
    j = evaluator(lk.Budget(updates=20), owners)
    chief = lk.ADPSGD().chief(ctx, j)
    wait = chief.send(None)
    assert wait == (RECV, NEWS, None, None)
    assert ctx.posted() == [(r, SnapshotRequest(0)) for r in owners]
    for goal, shown in ((0, (0, 0)), (10, (10, 3)), (10, (20, 7)), (10, (20, 20))):
        full = shown[0] == 20
        assert chief.send(snapshot(0, 0, shown[0], 0, values=[1.0])) == wait  # one has arrived so far
        assert ctx.posted() == [(r, SnapshotRequest(final=True)) for r in owners]
        assert chief.send(snapshot(0, 0, shown[1], 1, values=[9.0])) == wait  # an answer to an earlier snapshot request
        assert chief.send(snapshot(0, 0, shown[1], 1, final=True, values=[2.0])) == wait
        perform(chief.send(snapshot(0, 0, shown[0], 0, final=True, values=[1.0])))
        assert (j.update, j.parameters.tolist()) == (min(shown), [1.0, 2.0])
        if shown[1] == 20:
            break
        assert chief.send(None) == wait
        # a full one sends nothing more
        assert ctx.posted() == [(r, SnapshotRequest(max(goal, 10))) for r in owners[full:]]
    assert j.stopped_by == "updates"
    with pytest.raises(StopIteration):
        chief.send(None)


def test_the_chief_of_ad_psgd_ends_with_the_time():
    ctx, j = Sheet("chief", 0.5), evaluator(lk.Budget(seconds=2.0), ("replica-0",))
    chief = lk.ADPSGD().chief(ctx, j)
    assert chief.send(None) == (RECV, NEWS, 1.5, None)
    ctx.clock = 2.0
    assert chief.send(None) == (RECV, NEWS, None, None)
    perform(chief.send(snapshot(0, 0, 3, 0, final=True, values=[1.0, 0.5])))
    assert j.stopped_by == "seconds"
    with pytest.raises(StopIteration):
        chief.send(None)
