"""Replicas, centres, a worker's local weights, and the state of staleness corrections, tested without an engine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.errors import RoleError
from labkit.roles.budget import Limits
from labkit.roles.dense_parameters import DenseParameters
from labkit.roles.layout import mean_of_replicas
from labkit.roles.local_weights import Local
from labkit.roles.messages import CentreWeights, Position, Snapshot, copied_for_sending
from labkit.roles.replica import Centre, Replica
from labkit.roles.shard import Shard
from labkit.roles.staleness_correction import StalenessCorrection, staleness_correction
from labkit.trace import Recorder

WORKERS = ("worker-0", "worker-1", "worker-2")
IDS = {name: i for i, name in enumerate(WORKERS)}
ROLES = len(IDS)


def made(kind=Replica, values=(1.0, 2.0), role=0, limits=None, **more):
    seen = []
    parameters = DenseParameters(
        more.pop("index", role), slice(0, len(values)), np.array(values), more.pop("optimizer", lk.SGD()),
        correction=more.pop("correction", None),
    )  # fmt: skip
    recorder = Recorder(role, more.pop("incarnation", 0), roles=ROLES)
    shard = kind(parameters, recorder, lambda: 0, IDS, limits or Limits(), watcher=seen.append, **more)
    return shard, seen


def gradient(*values, step=0):
    return lk.Gradient(np.array(values), step, ((0, step),), 4, (slice(0, len(values)),))


def push(values, step, version=0, sender="worker-0", count=1):
    message = lk.Push(np.array(values, float), step, 0, version, count, 4)
    message.__dict__["sender"] = sender
    return message


def position(values, step, sender="worker-0", incarnation=0, clock=()):
    """Pushed after every 4 steps."""
    message = Position(np.array(values, float), step, 0, 0, 4, 4, clock)
    message.__dict__.update(sender=sender, incarnation=incarnation)
    return message


# a replica ------------------------------------------------------------------------------------------------------------


def test_a_replica_records_which_gradients_its_parameters_contain():
    replica, _ = made()
    assert replica.clock_of(WORKERS) == (-1, -1, -1)
    replica.apply(gradient(1.0, 1.0, step=0), 0.5)
    replica.apply(gradient(1.0, 1.0, step=1), 0.5)
    assert replica.values.tolist() == [0.0, 1.0]
    assert replica.clock_of(WORKERS) == (1, -1, -1)
    replica.assign(np.array([7.0, 8.0]), WORKERS, (1, 4, 0))
    assert replica.clock_of(WORKERS) == (1, 4, 0)
    assert replica.clock_of(("worker-2", "worker-1")) == (0, 4)
    assert (replica.values.tolist(), replica.version) == ([7.0, 8.0], 2)  # mixing is no update
    assert replica.recorder.counters.applied == {0: [2, 1], 1: [5, 4], 2: [1, 0]}
    replica.assign(np.array([0.0, 0.0]), WORKERS, (0, 3, 2))  # an older clock removes nothing
    assert replica.clock_of(WORKERS) == (1, 4, 2)


def test_assign_copies_and_refuses_other_shapes():
    replica, _ = made()
    new = np.array([5.0, 6.0])
    replica.assign(new, WORKERS, (-1, -1, -1))
    new[:] = 0
    assert replica.values.tolist() == [5.0, 6.0]
    mine = replica.copy()
    mine[:] = 0
    assert replica.values.tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match="read-only"):
        replica.values[0] = 1.0  # no other object writes to them
    with pytest.raises(RoleError, match=r"A replica of 2 parameters cannot take values of shape \(3,\)"):
        replica.assign(np.zeros(3), WORKERS, (0, 0, 0))


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), min_size=1, max_size=5),
    st.lists(st.floats(0, 1), min_size=5, max_size=5),
)
def test_mixing_is_the_weighted_sum(others, weights):
    replica, _ = made(values=(1.0, -2.0, 3.0))
    weights = weights[: len(others) + 1]
    others = [np.array(o) for o in others][: len(weights) - 1]
    mixed = replica.weighted_mean(others, weights)
    expected = sum(w * x for w, x in zip(weights, [np.array([1.0, -2.0, 3.0]), *others]))
    np.testing.assert_allclose(mixed, expected, rtol=1e-12, atol=1e-9)
    assert replica.values.tolist() == [1.0, -2.0, 3.0]
    mixed[:] = 0
    assert replica.values.tolist() == [1.0, -2.0, 3.0]


def test_single_precision_is_mixed_in_single_precision():
    replica, _ = made()
    parameters = DenseParameters(0, slice(0, 2), np.ones(2, np.float32), lk.SGD())
    single = Replica(parameters, Recorder(0), lambda: 0, IDS, Limits())
    assert single.weighted_mean([np.ones(2, np.float32)], (0.25, 0.75)).dtype == np.float32
    assert single.mean_of(np.full(2, 6, np.float32), 3).tolist() == [2.0, 2.0]
    assert replica.weighted_mean([], (1.0,)).tolist() == [1.0, 2.0]  # alone


def test_replicas_without_memory_only_count():
    nothing = np.broadcast_to(np.float32(0), (1000,))
    replica = Replica(DenseParameters(0, slice(0, 1000), nothing, lk.SGD()), Recorder(0), lambda: 0, IDS, Limits())
    for values in (replica.copy(), replica.weighted_mean([nothing], (0.5, 0.5)), replica.mean_of(nothing, 2)):
        assert values.strides == (0,)
    replica.assign(nothing, WORKERS, (3, 2, 1))
    assert replica.clock_of(WORKERS) == (3, 2, 1)


def test_the_mean_of_replicas_is_the_model():
    shown = tuple(Snapshot(np.array([1.0 * i, 10.0]), i, 5, 20) for i in range(4))
    assert mean_of_replicas(shown).tolist() == [1.5, 10.0]
    assert shown[0].values.tolist() == [0.0, 10.0]  # a snapshot is not changed


def test_an_evaluated_replica_is_the_one_right_after_a_step():
    """Mixed with others meanwhile, replicas at the same step would have a mean that no step ever had."""
    replica, seen = made(eval_every=2)
    assert replica.request(0)  # at the start no average was made
    for step in range(2):
        replica.apply(gradient(1.0, 1.0, step=step), 0.5)
    replica.assign(np.array([9.0, 9.0]), WORKERS, (1, 1, 1))
    assert not replica.request(2)  # it is at 2, but no snapshot of 2 was sent: the next one
    assert seen == []
    replica.apply(gradient(1.0, 1.0, step=2), 0.5)
    assert seen == []
    replica.apply(gradient(1.0, 1.0, step=3), 0.5)
    assert seen == [replica]


def test_at_the_end_of_the_budget_what_is_shown_stands_still():
    replica, seen = made(eval_every=10, limits=Limits(updates=2))
    assert replica.apply(gradient(1.0, 1.0, step=0), 0.5)
    assert replica.apply(gradient(1.0, 1.0, step=1), 0.5)
    assert seen == [replica]
    replica.assign(np.array([9.0, 9.0]), WORKERS, (1, 1, 1))
    assert not replica.apply(gradient(1.0, 1.0, step=2), 0.5)
    assert replica.values.tolist() == [9.0, 9.0]
    assert replica.request(10)
    for final in (False, True):
        assert replica.snapshot(final, True).values.tolist() == [0.0, 1.0]
        assert replica.snapshot(final, False).values.tolist() == []
        assert replica.snapshot(final, True).final == final


# a centre -------------------------------------------------------------------------------------------------------------


def test_a_centre_applies_each_elastic_step_once_and_accounts_for_it():
    centre, _ = made(Centre, (0.0, 4.0), limits=Limits(updates=2))
    assert centre.elastic_step(position([2.0, 2.0], 3), 0.25)
    assert centre.values.tolist() == [0.5, 3.5]
    assert (centre.version, centre.samples, centre.recorder.counters.gradients) == (1, 4, 4)
    assert not centre.elastic_step(position([2.0, 2.0], 3), 0.25)  # once only
    assert centre.elastic_step(position([0.5, 3.5], 7), 0.25)
    assert centre.values.tolist() == [0.5, 3.5]
    assert not centre.elastic_step(position([9.0, 9.0], 11), 0.25)  # after the end
    assert centre.values.tolist() == [0.5, 3.5]
    assert sum(centre.recorder.counters.drops) == 4


def restored(centre):
    """A centre of the next incarnation, with the first weights."""
    again, _ = made(Centre, tuple(centre.values), incarnation=1)
    again.restore(None)
    return again


def test_a_restored_centre_holds_what_positions_bring_back():
    """Also of workers that are lost; and a position that is pushed again is no second gradient."""
    centre, _ = made(Centre, (0.0, 0.0))
    centre.elastic_step(position([1.0, 1.0], 3), 0.5)
    centre.elastic_step(position([1.0, 1.0], 3, "worker-1"), 0.5)
    weights = centre.weights()
    assert weights.clock == (0, 3, 1, 3)
    again = restored(centre)
    assert again.weights().clock == ()
    again.elastic_step(position([1.0, 1.0], 7, clock=weights.clock), 0.5)
    counters = again.recorder.counters
    assert counters.applied == {1: [4, 3], 0: [8, 7]}
    assert counters.gradients == 12
    again.elastic_step(position([1.0, 1.0], 3, "worker-1"), 0.5)  # it was not answered
    assert (counters.applied, counters.gradients) == ({1: [4, 3], 0: [8, 7]}, 12)
    again.elastic_step(position([1.0, 1.0], 3, "worker-1", incarnation=1), 0.5)
    assert counters.applied == {1: [4, 3], 0: [8, 7], 1 + ROLES: [4, 3]}
    assert sum(counters.drops) == 0


@settings(deadline=None, max_examples=50)
@given(rng=st.randoms(use_true_random=False), shards=st.integers(1, 3))
def test_clocks_describe_which_gradients_centres_and_positions_contain(rng, shards):
    """Coordinate (worker, incarnation, step) of each part shows whether the part holds that gradient; shards and workers are
    lost.
    """
    marks = [(worker, instance, step) for worker in range(2) for instance in range(4) for step in range(8)]
    size, names = len(marks), WORKERS[:2]
    parts = tuple(slice(i * size, (i + 1) * size) for i in range(shards))
    centres = [made(Centre, (0.0,) * size, index=i)[0] for i in range(shards)]
    lives, steps, locals_ = [0, 0], [0, 0], [None, None]

    def pulled():
        answers = [centre.weights() for centre in centres]
        values = np.concatenate([answer.values for answer in answers])
        return lk.Parameters(values, ((0, 0),) * shards, tuple(answer.clock for answer in answers))

    def holds(values):
        return {marks[i] for i in np.flatnonzero(values)}

    for _ in range(30):
        what, worker = rng.choice(["step", "step", "exchange", "exchange", "shard", "worker"]), rng.randrange(2)
        if what == "shard":
            number = rng.randrange(shards)
            centres[number], _ = made(Centre, (0.0,) * size, index=number)
        elif (what == "worker" and lives[worker] < 3) or locals_[worker] is None:
            lives[worker] += locals_[worker] is not None
            steps[worker], locals_[worker] = 0, Local(pulled(), lk.EASGD())
        elif what in ("step", "exchange") and steps[worker] < 8:
            values = np.zeros(shards * size)
            values[marks.index((worker, lives[worker], steps[worker])) :: size] = 1.0
            mine = lk.Gradient(values, steps[worker], ((0, 0),) * shards, 1, parts)
            steps[worker] += 1
            locals_[worker].step(mine)
            locals_[worker].add(mine)
            if what == "exchange":
                moved, then = locals_[worker].position(), pulled()
                for number, centre in enumerate(centres):
                    text = moved.push(number)
                    text.__dict__.update(sender=names[worker], incarnation=lives[worker])
                    assert centre.elastic_step(text, 0.25)
                locals_[worker].set_elastic_force(then, 0.25)
        for centre in centres:
            clock = centre.weights().clock
            text = {
                (instance % ROLES, instance // ROLES, step)
                for instance, last in zip(clock[::2], clock[1::2])
                for step in range(last + 1)
            }
            assert text == holds(centre.values)


def test_clocks_do_not_count_as_payload():
    values = np.zeros(5)
    for message in (Position(values, 3, 0, 0, 4, 4, (0, 3, 1, 3)), CentreWeights(values, 0, 0, 7, (0, 3, 1, 3))):
        copy, size = copied_for_sending(message, "worker-0")
        assert (size, copy.clock) == (40, (0, 3, 1, 3))


# a worker's local weights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_local_steps_are_the_optimizers_with_decay_and_schedule(decay):
    strategy = lk.EASGD(
        learning_rate=0.2,
        optimizer=lk.Momentum(0.5),
        weight_decay=decay,
        schedule=lk.schedules.StepDecay(1, factor=0.5),
    )
    local = Local(lk.Weights(np.array([1.0, 2.0]), 0, 0, 5), strategy)
    w, v = np.array([1.0, 2.0]), np.zeros(2)
    for step, g in enumerate((np.array([1.0, -1.0]), np.array([0.5, 0.5]), np.array([-2.0, 0.0]))):
        local.step(gradient(*g, step=step))
        rate = 0.2 * 0.5**step
        w = w * (1 - rate * decay)
        v = 0.5 * v + g
        w = w - rate * v
        np.testing.assert_allclose(local.values, w, rtol=1e-14)
    assert local.read == ((0, 5),)


def test_local_gradients_are_sent_once_as_a_sum():
    local = Local(lk.Weights(np.zeros(2), 0, 0, 0), lk.AsyncPS())
    for step in range(3):
        local.add(gradient(1.0, float(step), step=step))
    total = local.gradients()
    assert (total.values.tolist(), total.step, total.count, total.samples) == ([3.0, 3.0], 2, 3, 12)
    local.add(gradient(5.0, 5.0, step=3))
    assert (local.gradients().values.tolist(), total.values.tolist()) == ([5.0, 5.0], [3.0, 3.0])


def test_the_servers_weights_are_copied_and_the_spring_pulls_with_the_next_step():
    start = np.array([0.0, 8.0])
    local = Local(lk.Weights(start, 0, 0, 3), lk.EASGD())
    local.step(gradient(1.0, 1.0))
    assert start.tolist() == [0.0, 8.0]
    local.reset(lk.Weights(start, 0, 0, 4))
    local.set_elastic_force(lk.Weights(np.array([4.0, 4.0]), 0, 0, 9), 0.25)
    assert (local.values.tolist(), local.read) == ([0.0, 8.0], ((0, 9),))  # the next gradient is taken where it was
    local.step(gradient(10.0, 10.0))
    # -1 of the gradient, +1 and -1 of the elastic force
    np.testing.assert_allclose(local.values, [0.0, 6.0], rtol=1e-14)
    local.step(gradient(10.0, 10.0))
    np.testing.assert_allclose(local.values, [-1.0, 5.0], rtol=1e-14)  # the elastic force is applied once


# corrections ----------------------------------------------------------------------------------------------------------


class Exact:
    """The true Hessian of a quadratic in place of g g."""

    def __init__(self, curvature):
        self.hessian = np.array(curvature)

    def state(self, size, dtype):
        return {}

    def compensate(self, gradient, now, then, state):
        return gradient + self.hessian * (now - then)


def test_without_options_there_is_no_staleness_correction():
    assert staleness_correction(lk.AsyncPS()) is None
    assert staleness_correction(lk.SyncPS()) is None
    assert staleness_correction(lk.AsyncPS(staleness_aware=True)).aware
    assert staleness_correction(lk.AsyncPS(compensation="constant:0.1")).compensation.strength == 0.1


@pytest.mark.parametrize(("stale", "divisor"), [(0, 1), (1, 1), (2, 2), (7, 7)])
def test_staleness_aware_divides_by_the_staleness_from_2_on(stale, divisor):
    """alpha / tau for tau > 0, alpha for tau = 0 (Zhang et al.): so 0 and 1 are both full steps."""
    made = StalenessCorrection(None, True).correct(np.array([6.0]), 3, 3 + stale, np.zeros(1))
    assert made.tolist() == [6.0 / divisor]


def reader(shard, sender, values=None):
    """Do what the engine does when `sender` receives the weights."""
    weights = shard.weights()
    shard.recorder.counters.reads[IDS[sender]] = weights.version
    return weights.version


@given(rng=st.randoms(use_true_random=False), k=st.integers(1, 5), at_once=st.booleans())
def test_every_gradient_meets_the_weights_that_it_was_computed_on(rng, k, at_once):
    """Any order of arrival, K gradients a step, answered before the step or after it: with the exact Hessian a stale
    gradient is always the gradient at today's weights. And no more than two copies a reader are kept.
    """
    curvature, rate = np.array([0.5, 2.0]), 0.1
    shard, _ = made(Shard, (1.0, -1.0), correction=StalenessCorrection(Exact(curvature), False))
    workers = WORKERS[: max(1, k) if not at_once and k < 3 else 3]
    k = k if at_once else min(k, len(workers))
    history, steps = [np.array([1.0, -1.0])], dict.fromkeys(WORKERS, 0)
    holds = {w: reader(shard, w) for w in workers}
    pending, expected = [], np.array([1.0, -1.0])
    for _ in range(60):
        free = [w for w in workers if holds[w] is not None]
        w = rng.choice(free)
        pending.append(push(curvature * history[holds[w]], steps[w], holds[w], w))
        steps[w] += 1
        holds[w] = None
        served = [w] if at_once else [p.sender for p in pending]
        if len(pending) == k:
            shard.apply(list(pending), rate)
            expected = expected - rate * curvature * expected
            np.testing.assert_allclose(shard.values, expected, rtol=0, atol=1e-12)
            history.append(shard.values.copy())
            pending = []
        if at_once or not pending:
            for one in served:
                holds[one] = reader(shard, one)
        assert len(shard.parameters.correction.kept) <= 2 * len(workers) + 1


def test_one_copy_is_stored_per_version_that_was_read():
    shard, _ = made(Shard, (1.0,), correction=StalenessCorrection(Exact([1.0]), False))
    for worker in WORKERS * 3:
        reader(shard, worker)
    assert list(shard.parameters.correction.kept) == [0]
    assert not np.shares_memory(shard.parameters.correction.kept[0], shard.values)


def test_a_gradient_of_weights_that_are_not_known_is_applied_as_it_is():
    """For example from before a restore: there are no weights to compare with."""
    shard, _ = made(Shard, (1.0,), correction=StalenessCorrection(Exact([1.0]), False))
    reader(shard, "worker-0")
    shard.apply(push([1.0], 0, 77), 0.5)
    assert shard.values.tolist() == [0.5]
    shard.generation = 1
    shard.apply(push([1.0], 1, 0), 0.5)
    assert shard.values.tolist() == [0.0]
