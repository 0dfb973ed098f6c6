"""Queries of single runs: staleness by worker, the largest lead, updates to an accuracy. Known from schedules done by hand."""

import pytest

import labkit as lk
from labkit.engines.commands import Join, Leave
from labkit.lessons import largest_lead, staleness_by_worker, updates_to_accuracy
from labkit.trace.clocks import leads

TIMING = lk.Problem("moons", timing_only=True)


def run(strategy, budget, workers=3, **cluster):
    return lk.train(TIMING, strategy, lk.SimulatedCluster(workers=workers, compute=0.1, **cluster), budget).wait().trace


def test_staleness_of_three_equal_workers():
    """The first gradients have staleness 0, 1 and 2, because all workers read the initial weights; then each has 2."""
    found = staleness_by_worker(run(lk.AsyncPS(), lk.Budget(updates=9)))
    assert {name: values.tolist() for name, values in found.items()} == {
        "worker-0": [0, 2, 2], "worker-1": [1, 2, 2], "worker-2": [2, 2, 2],
    }  # fmt: skip


def test_a_worker_without_an_applied_gradient_is_listed():
    found = staleness_by_worker(run(lk.BackupWorkers(b=1), lk.Budget(updates=4), slow={"worker-1": 5}))
    assert {name: len(values) for name, values in found.items()} == {"worker-0": 4, "worker-1": 0, "worker-2": 4}


def test_several_shards_count_a_gradient_once():
    found = staleness_by_worker(run(lk.AsyncPS(), lk.Budget(updates=9), servers=2))
    assert sum(map(len, found.values())) == 9


@pytest.mark.parametrize("s", [0, 1, 4])
@pytest.mark.parametrize("factor", [5, 0.2])
def test_the_largest_lead_is_the_bound(s, factor):
    trace = run(lk.SSP(s=s), lk.Budget(updates=200), slow={"worker-1": factor})
    assert largest_lead(trace) == s
    assert leads(trace, trace.watermark()).lead.max() == s  # counted from the times at which gradients were begun


def test_the_largest_lead_without_a_bound():
    """In 0.95 s each fast worker finishes 9 gradients, and the slow one finishes 1, at 0.5 s."""
    trace = run(lk.AsyncPS(), lk.Budget(seconds=0.95), slow={"worker-1": 5})
    assert largest_lead(trace) == 7  # the ninth gradient arrives after eight others, when the slow worker has one
    assert largest_lead(run(lk.AsyncPS(), lk.Budget(updates=1))) == 0


def test_equal_workers_do_not_lead_one_that_was_away():
    """While it is away the others finish 10 gradients each; it goes on from their count."""
    cluster, budget = lk.SimulatedCluster(workers=3, max_workers=4, compute=0.1), lk.Budget(seconds=2.0)
    elastic = lk.train(TIMING, lk.AsyncPS(), cluster, budget)
    elastic.advance(0.35).execute(Leave("worker-1"))
    elastic.advance(1.0).execute(Join("worker-1"))
    assert largest_lead(elastic.wait().trace) == 0


def test_updates_to_an_accuracy():
    problem = lk.Problem("moons", hidden=(8,), batch_size=16)
    budget = lk.Budget(updates=60)
    trace = lk.train(problem, lk.SyncPS(eval_every=1), lk.SimulatedCluster(workers=1), budget).wait().trace
    update, accuracy = trace.column("evaluations", "update", "accuracy")
    reached = updates_to_accuracy(trace, 0.8)
    assert 0 < reached < 60
    by_update = dict(zip(update.tolist(), accuracy.tolist()))
    assert by_update[reached] >= 0.8 > max(by_update[k] for k in range(reached))
    assert updates_to_accuracy(trace, 1.1) is None
