"""The numbers behind the pictures, compared with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.formatting import short
from labkit.trace.query import StalenessCounts, rates, staleness, staleness_between
from labkit.trace.role_states import slowdowns, slowed
from labkit.views import style
from labkit.views.event_labels import event_labels
from labkit.views.timeline import shown_roles, window_ns


def simulate(strategy, seconds=2.0, **cluster):
    """A run with a gradient every 0.1 s from each of 4 workers."""
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.Deterministic(0.1), **cluster})
    problem = lk.Problem("digits", hidden=(8,), timing_only=True)
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds)).wait().trace


@pytest.mark.parametrize("strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce()])
@pytest.mark.parametrize("servers", [None, 3])
def test_rate_counts_each_gradient_once_however_many_shards_there_are(strategy, servers):
    trace = simulate(strategy, servers=servers if strategy.uses_servers else None)
    seconds, rate = rates(trace, trace.now)
    assert rate == pytest.approx(np.full(len(rate), 40.0), rel=1e-6)
    assert seconds[-1] == pytest.approx(2.0, abs=0.11)
    _, one = rates(trace, trace.now, trace.roles.index("worker-1"))
    assert one == pytest.approx(np.full(len(one), 10.0), rel=1e-6)


def test_histogram_from_rows_is_the_histogram_of_the_counters(slowed_trace, sync_trace):
    for trace in (slowed_trace, sync_trace):
        counted = {int(k): n for k, n in staleness(trace)["histogram"].items()}
        assert _histogram(trace, 0, trace.now) == counted == _histogram(trace, 1, trace.now)
        parts = [_histogram(trace, 0, trace.now // 2), _histogram(trace, trace.now // 2 + 1, trace.now)]
        assert sum(sum(p.values()) for p in parts) == sum(counted.values())
        found = StalenessCounts().at(trace, trace.now // 2)["histogram"]
        assert {int(k): n for k, n in found.items()} == parts[0]


def _histogram(trace, first, last):
    """{staleness: gradients} applied in [first, last] ns."""
    _, stale, count = staleness_between(trace, first, last)
    counts = np.bincount(stale, count)
    return {k: int(counts[k]) for k in np.flatnonzero(counts).tolist()}


def test_events_list_the_slowed_workers_at_a_time(slowed_trace):
    worker = slowed_trace.roles.index("worker-2")
    assert slowdowns(slowed_trace, 3 * 10**9) == {worker: [(1_500_000_000, 5.0), (2_500_000_000, 1.0)]}
    assert slowed(slowed_trace, 10**9) == slowed(slowed_trace, 3 * 10**9) == {}
    assert slowed(slowed_trace, 2 * 10**9) == {worker: 5.0}
    assert [label for _, label in event_labels(slowed_trace, 3 * 10**9)] == ["w2 5x slower", "w2 normal speed"]


def test_slowdowns_from_the_start_are_no_events(sync_trace):
    assert event_labels(sync_trace, sync_trace.now) == []
    assert slowed(sync_trace, sync_trace.now)


def test_the_slowed_one_of_many_workers_is_always_shown():
    trace = simulate(lk.AsyncPS(), seconds=0.3, workers=500, slow={"worker-77": 3})
    rows = shown_roles(trace, trace.now)
    assert len(rows) <= 41
    assert trace.roles.index("worker-77") in rows
    assert rows == sorted(rows)


def test_the_window_contains_about_sixteen_gradients():
    assert 14 <= window_ns(simulate(lk.AsyncPS())) / 1e8 <= 20


@pytest.mark.parametrize(
    ("value", "above"), [(0, 1), (0.003, 0.003), (1.01, 1.2), (7, 8), (99, 100), (100, 100), (1234, 1500), (9.99, 10)]
)
def test_nice_above(value, above):
    assert style.nice_above(value) == pytest.approx(above)


def test_spread_keeps_order_and_gap():
    moved = style.spread([0.5, 0.51, 0.49, 0.99, 1.0], 0.1)
    assert np.diff(sorted(moved)).min() >= 0.1 - 1e-12
    assert np.argsort(moved).tolist() == [2, 0, 1, 3, 4]
    assert max(moved) <= 1.0


def test_short_names():
    assert [short(n) for n in ("worker-12", "server-0", "chief", "my-worker-1")] == [
        "w12",
        "s0",
        "chief",
        "my-worker-1",
    ]
