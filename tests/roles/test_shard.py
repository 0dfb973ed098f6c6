"""Accounting of a shard: staleness, versions, the end of the budget, duplicates."""

import re

import numpy as np
import pytest

import labkit as lk
from labkit.roles.budget import Limits
from labkit.roles.dense_parameters import DenseParameters
from labkit.roles.layout import shard_slices
from labkit.roles.shard import Shard
from labkit.trace import Recorder
from labkit.trace.schema import REASONS, UNKNOWN

IDS = {"server-0": 0, "worker-0": 1, "worker-1": 2}


def made(values=(1.0, 2.0), optimizer=None, **more):
    recorder, times = Recorder(0), iter(range(10**6))
    seen = []
    options = {"limits": Limits(), "watcher": lambda s: seen.append(s.version), **more}
    limits = options.pop("limits")
    parameters = DenseParameters(0, slice(0, len(values)), np.array(values), optimizer or lk.SGD())
    shard = Shard(parameters, recorder, lambda: next(times), IDS, limits, **options)
    return shard, recorder, seen


def push(sender, step, version=0, values=(1.0, 1.0), generation=0, count=1, incarnation=0):
    message = lk.Push(np.array(values), step, generation, version, count, 4)
    message.__dict__.update(sender=sender, incarnation=incarnation)
    return message


def rows(recorder, table, width):
    return np.frombuffer(getattr(recorder, table), np.int64).reshape(-1, width).tolist()


def test_one_gradient_is_applied_and_recorded():
    shard, recorder, _ = made()
    assert shard.apply(push("worker-0", 0), 0.5)
    assert shard.values.tolist() == [0.5, 1.5]
    assert (shard.version, shard.samples) == (1, 4)
    assert rows(recorder, "applies", 8) == [[0, 0, 1, 0, 1, 4, 0, 1]]


def test_mean_and_sum_in_the_order_given():
    big, tiny = 1e16, 1.0  # (big + tiny) + tiny loses both ones, tiny + tiny + big does not
    for reduce, order, total in (
        ("sum", (big, tiny, tiny), 1e16), ("sum", (tiny, tiny, big), 1e16 + 2), ("mean", (3.0, 6.0, 0.0), 3.0),
    ):  # fmt: skip
        shard, _, _ = made((0.0,))
        shard.apply([push("worker-0", i, values=(v,)) for i, v in enumerate(order)], 1.0, reduce)
        assert shard.values.tolist() == [-total]
        assert shard.version == 1


def test_staleness_is_the_versions_since_the_read_and_unknown_across_generations():
    shard, recorder, _ = made()
    for step, version in ((0, 0), (1, 0), (2, 2), (3, 1)):
        shard.apply(push("worker-0", step, version), 0.1)
    assert recorder.counters.staleness == {0: 2, 1: 1, 2: 1}
    shard.generation = 1
    shard.apply(push("worker-0", 4, 3), 0.1)
    assert recorder.counters.staleness[UNKNOWN] == 1


def test_a_repeated_push_is_applied_once():
    shard, recorder, _ = made()
    assert shard.apply(push("worker-0", 0), 0.1)
    assert not shard.apply(push("worker-0", 0), 0.1)
    assert shard.apply(push("worker-1", 0), 0.1)
    assert shard.apply(push("worker-0", 0, incarnation=1), 0.1)  # a restarted worker counts from 0 again
    assert (shard.version, recorder.counters.duplicates, recorder.counters.gradients) == (3, 1, 3)


def test_an_update_beyond_the_budget_is_refused_and_counted():
    shard, recorder, seen = made(limits=Limits(updates=2))
    for step in range(4):
        assert shard.apply(push("worker-0", step), 0.1) == (step < 2)
    assert shard.version == 2
    assert [(row[4], REASONS[row[6]]) for row in rows(recorder, "drops", 7)] == [
        (2, "after the end"),
        (3, "after the end"),
    ]
    assert seen == [2]  # the chief is notified of the last update, for any eval_every


def test_samples_are_a_limit_too():
    shard, _, _ = made(limits=Limits(samples=9))
    assert [shard.apply(push("worker-0", step), 0.1) for step in range(5)] == [True, True, True, False, False]


def test_skipped_pushes_count_as_ignored_and_dropped_pushes_are_counted_once():
    shard, recorder, _ = made()
    shard.apply(push("worker-0", 0), 0.1)
    shard.drop(push("worker-0", 2), "late")
    shard.apply(push("worker-0", 5), 0.1)
    shard.apply(push("worker-0", 6), 0.1)
    assert [(row[4], row[5], REASONS[row[6]]) for row in rows(recorder, "drops", 7)] == [
        (2, 1, "late"), (1, 1, "ignored"), (3, 1, "ignored"), (4, 1, "ignored"),
    ]  # fmt: skip


def test_a_push_of_several_gradients():
    shard, recorder, _ = made()
    shard.apply(push("worker-0", 3, count=4), 0.1)
    shard.apply(push("worker-0", 5, count=2), 0.1)
    assert recorder.counters.gradients == 6
    assert rows(recorder, "drops", 7) == []


def test_schedule_counts_updates_and_optimizers_count_from_one():
    seen = []

    class Notes(lk.SGD):
        def apply(self, params, gradient, learning_rate, state, step):
            seen.append((step, learning_rate))

    shard, _, _ = made(optimizer=Notes(), schedule=lambda step: 1.0 / (1 + step))
    for step in range(3):
        shard.apply(push("worker-0", step), 0.6)
    assert seen == [(1, 0.6), (2, 0.3), (3, pytest.approx(0.2))]


def test_weights_are_the_shards_own_array_and_a_push_of_another_shape_is_refused():
    shard, recorder, _ = made()
    assert shard.weights().values is shard.values
    before = shard.values.copy()
    assert not shard.apply(push("worker-1", 0, values=(1.0, 2.0, 3.0)), 0.1)
    assert shard.version == 0
    assert np.array_equal(shard.values, before)
    assert recorder.counters.drops[REASONS.index("refused")] == 1
    (event,) = recorder.events
    assert (event.kind, event.name) == ("gradient refused", "worker-1")
    assert re.search(r"refused a gradient of worker-1, step 0: it does not fit: .*2 parameters.*\(3,\)", str(event))


def test_conservation_counters():
    """Two readers; one is served while the other waits; a dropped one removes its counter."""
    shard, recorder, _ = made()
    c = recorder.counters
    c.reads |= {1: 0, 2: 0}  # both have read version 0
    shard.apply(push("worker-0", 0, 0), 0.1)
    assert (c.reads, c.outstanding, c.residual) == ({2: 0}, 1, 0)
    c.reads[1] = 1
    shard.apply(push("worker-0", 1, 1), 0.1)
    shard.drop(push("worker-1", 0, 0))
    assert (c.reads, c.outstanding, c.residual) == ({}, 2, 2)
    assert sum(k * n for k, n in c.staleness.items()) == c.outstanding - c.residual == 0


@pytest.mark.parametrize(("size", "shards"), [(10, 3), (1, 1), (7, 7), (9610, 4)])
def test_shard_slices_cover_the_vector_evenly(size, shards):
    parts = shard_slices(size, shards)
    assert np.concatenate([np.arange(size)[p] for p in parts]).tolist() == list(range(size))
    lengths = [p.stop - p.start for p in parts]
    assert max(lengths) - min(lengths) <= 1
