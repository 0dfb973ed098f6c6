"""Counts in the pictures, compared with independent results: by hand, by sorting all rows, from the schedule."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.roles.model_parallel.schedules import BACKWARD, SCHEDULES
from labkit.trace import Trace
from labkit.trace.index import BlockIndex, Lookup, SortedRows
from labkit.trace.passes import Passes
from labkit.trace.query import (
    NO_NORM,
    Cumulative,
    Norms,
    Series,
    StalenessHistory,
    expected_staleness,
    interpolate,
    learning_curve,
    medians,
    rates,
    relative_steps,
    staleness,
)  # fmt: skip
from labkit.trace.recorder import Recorder
from labkit.trace.schema import COMPUTE, NANO, REASONS
from labkit.views import bare_figure, ledger_panel, make_panel, style
from labkit.views.gradient_flow import step_rate
from labkit.views.message_zoom import PERIOD, slow_motion_period, zoom_interval
from labkit.views.throughput import ThroughputPanel


def simulate(strategy, seconds=2.0, problem=None, updates=None, faults=(), **cluster):
    """A run with a gradient every 0.1 s from each worker."""
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.Deterministic(0.1), **cluster})
    problem = problem or lk.Problem("digits", hidden=(8,), timing_only=True)
    budget = lk.Budget(seconds=seconds if updates is None else None, updates=updates)
    return lk.train(problem, strategy, cluster, budget, faults=faults).wait().trace


@pytest.fixture(scope="module")
def header():
    return simulate(lk.AsyncPS(), seconds=0.01).header


# rows in order ------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=8))
def test_rows_that_come_in_any_order_are_kept_in_order_of_time(header, batches):
    trace, ordered, times = Trace(header), SortedRows("spans", "end"), []
    for k, batch in enumerate(batches):
        recorder = Recorder(k % 3)
        for end in batch:
            recorder.span(COMPUTE, end - 1, end, len(times))
            times.append(end)
        trace.append(recorder.take(1))
        ordered.follow(trace)
        order = np.argsort(times, kind="stable")
        assert ordered.rows.tolist() == order.tolist()
        assert ordered.times.tolist() == np.array(times, int)[order].tolist()
    assert len(ordered.follow(Trace(header))) == 0 == len(ordered.times)  # another trace, another order


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=9), max_size=7), st.integers(0, 40))
def test_the_index_finds_the_rows_of_an_interval(header, batches, first):
    trace, spans, last = Trace(header), BlockIndex("spans", "end", "start"), first + 6
    known: list[tuple[int, int, int]] = []  # (end, place, start)
    with mock.patch("labkit.trace.index.SIZE", 4):
        for batch in batches:
            recorder = Recorder(1)
            for start, long in batch:
                recorder.span(COMPUTE, start, start + long, len(known))
                known.append((start + long, len(known), start))
            trace.append(recorder.take(1))
            places = [place for _, place, _ in sorted(k for k in known if first <= k[0] <= last)]
            assert spans.between(trace, first, last)["step"].tolist() == places
            places = [place for _, place, _ in sorted(k for k in known if first <= k[0] and k[2] < last)]
            assert spans.touching(trace, first, last)["step"].tolist() == places
            assert spans.until(trace, [first, last]) == [sum(k[0] <= t for k in known) for t in (first, last)]
            for asked in (spans.newest, spans.oldest):
                rows = asked(trace, last, 6)
                assert len(rows) <= 12
                assert bool(len(rows)) == any(k[0] <= last for k in known)
                assert np.all(rows["end"] <= last)
        assert len(spans.between(Trace(header), 0, 99)) == 0  # another trace


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.lists(st.integers(0, 60), min_size=1, max_size=9))
def test_between_two_moments_the_amount_grows_evenly(when, asked):
    when = np.sort(np.array(when))
    total = np.cumsum(np.ones(len(when)))
    once, last = np.unique(when[::-1], return_index=True)
    expected = np.interp(asked, np.r_[0, once], np.r_[0, total[::-1][last]])
    assert interpolate(Series(when, total), np.array(asked)) == pytest.approx(expected)


# throughput ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [41, 42, 43, 44])
def test_a_budget_that_ends_within_a_round_does_not_lower_the_rate(updates):
    trace = simulate(lk.AsyncPS(), updates=updates)
    _, rate = rates(trace, trace.now)
    assert rate == pytest.approx(np.full(len(rate), 40.0), rel=1e-6)


def test_of_many_workers_each_has_its_own_rate():
    trace = simulate(lk.AsyncPS(), seconds=4.0, workers=16, slow={"worker-3": 4})
    edges = np.arange(0, 41) * NANO // 10
    by = Cumulative().by_worker(trace, edges)
    expected = np.tile(np.arange(41.0), (16, 1))
    expected[3] /= 4  # a gradient in progress counts in proportion
    assert by == pytest.approx(expected, abs=1e-6)
    assert Cumulative().by_worker(trace, edges[:11]) == pytest.approx(by[:, :11])
    assert by.sum(0)[-1] == sum(c.gradients for c in trace.counters.values())


def test_the_band_contains_nine_workers_in_ten_and_is_scaled_to_the_total():
    panel, trace = ThroughputPanel(), simulate(lk.AsyncPS(), seconds=4.0, workers=20)
    curves = panel.others(trace, trace.now)
    assert [curve.name.partition(" ")[0] for curve in curves] == ["5%", "median", "95%"]
    for curve in curves:
        assert np.all(curve.x <= 4.0)
        assert curve.y == pytest.approx(np.full(len(curve.x), 200.0), rel=1e-6)


def test_samples_and_bytes_are_counted_too():
    trace = simulate(lk.AsyncPS(), servers=2)
    per_gradient = trace.header.problem.batch_size
    _, samples = rates(trace, trace.now, counted=Cumulative("samples"))
    assert samples == pytest.approx(np.full(len(samples), 40.0 * per_gradient), rel=1e-6)
    _, total, _ = Cumulative("bytes").gross(trace, trace.now)
    assert total[-1] == sum(c.bytes[0] for c in trace.counters.values())
    with pytest.raises(lk.BadInput, match="of"):
        ThroughputPanel(of="gradient")


def test_a_collective_update_is_divided_among_all_workers():
    trace = simulate(lk.RingAllReduce())
    edges = np.arange(0, 11) * NANO // 10
    assert Cumulative().by_worker(trace, edges) == pytest.approx(np.tile(np.arange(11.0), (4, 1)), abs=1e-6)


# staleness ----------------------------------------------------------------------------------------------------------


def test_staleness_over_time_adds_up_to_the_staleness_of_the_run(slowed_trace):
    x, mean, low, high = StalenessHistory().intervals(slowed_trace, NANO // 10, slowed_trace.now, 4)
    assert np.all((low <= mean) & (mean <= high))
    time, stale = slowed_trace.column("applies", "time", "staleness")
    step = round((x[1] - x[0]) * NANO)
    last = round(x[-1] * NANO)
    inside = (time >= last - 4 * step) & (time < last)
    assert mean[-1] == pytest.approx(stale[inside].mean())
    assert high[-1] == np.sort(stale[inside])[int(np.ceil(0.95 * inside.sum())) - 1]
    assert max(high) <= staleness(slowed_trace)["max"]


@pytest.mark.parametrize(
    ("mean", "options", "words"),
    [
        (None, {}, None), (0.0, {}, "always 0"), (3.0, {}, "mean = N − 1 = 3"), (3.0, {"K": 4}, "mean = N − 1 = 3"),
        (1.5, {"K": 2}, "mean = (N − 1) / K = 1.5"), (1.0, {"K": 3}, "mean = (N − 1) / K = 1"),
        (3.5, {}, "mean = 3.5"), (2.0, {"K": 2}, "mean = 2"), (1 / 3, {}, "mean = 0.3333"),
    ],
)  # fmt: skip
def test_a_formula_is_written_only_where_it_gives_the_value(header, mean, options, words):
    strategy = replace(header.strategy, mean_staleness=mean, options=options)
    expected = expected_staleness(Trace(replace(header, strategy=strategy)))
    assert expected == (None if words is None else (mean, words))


# gradient flow ------------------------------------------------------------------------------------------------------


def test_norms_of_a_past_time_are_those_recorded_at_that_time(slowed_trace):
    role, time, layer, norm = slowed_trace.column("norms", "role", "time", "layer", "gradient")
    followed = Norms()
    for t in (0, NANO, 2 * NANO, slowed_trace.now, NANO):
        workers, values = Norms().newest(slowed_trace, t)
        assert np.array_equal(followed.newest(slowed_trace, t)[1], values, equal_nan=True)
        for i, worker in enumerate(workers):
            for k in range(values.shape[1]):
                mine = np.flatnonzero((role == worker) & (layer == k) & (time <= t))
                newest = norm[mine[np.argmax(time[mine])]] if len(mine) else NO_NORM
                assert values[i, k, 0] == pytest.approx(newest, nan_ok=True)


def test_a_row_of_the_gradient_flow_fills_from_the_last_layer_to_the_first():
    """After each piece of the second gradient: norms of layers that are not done yet are those of the first one, and faint."""
    problem = lk.Problem("moons", hidden=(8, 8, 8), options={"samples": 200})
    cluster = lk.SimulatedCluster(workers=3, compute=0.1, slow={"worker-1": 1.5})
    trace = lk.train(problem, lk.BucketedAllReduce(bucket_size=1), cluster, lk.Budget(updates=3)).wait().trace
    role, time, step, layer = trace.column("pieces", "role", "time", "step", "layer")
    for worker in range(3):
        mine = role == trace.roles.index(f"worker-{worker}")
        for k, t in enumerate(time[mine & (step == 1)].tolist()):
            panel = make_panel("gradient_flow")
            bare_figure(panel)
            panel.update(trace, t)
            opacity = panel.image.get_array()[worker, :, 3]
            known = Norms().newest(trace, t)[1][worker, :, 2]
            assert known.tolist() == [0.0] * (3 - k) + [1.0] * (k + 1)
            faint = [cell.get_color() == style.FAINT for cell in panel.cells[4 * worker : 4 * worker + 4]]
            assert faint == [True] * (3 - k) + [False] * (k + 1)
            if k < 3:
                assert opacity[: 3 - k].max() <= 0.25 * 0.65
        assert layer[mine & (step == 1)].tolist() == [3, 2, 1, 0]


def test_a_step_is_the_rate_times_the_gradient_only_with_plain_descent(slowed_trace):
    lengths = np.array(
        [[[2.0, 4.0], [1.0, 1.0]], [[6.0, 4.0], [np.inf, 1.0]], [[NO_NORM, NO_NORM], [NO_NORM, NO_NORM]]]
    )
    rate = step_rate(slowed_trace, NANO)
    assert relative_steps(lengths, rate).tolist() == pytest.approx([0.1, 0.1])  # medians of 0.05 and 0.15; of 0.1
    header = slowed_trace.header
    other = replace(header.strategy, options={"learning_rate": 0.1, "optimizer": "Adam()"})
    assert step_rate(Trace(replace(header, strategy=other)), NANO) is None
    assert relative_steps(lengths).tolist() == pytest.approx([1.0, 1.0])
    assert np.isnan(medians(np.full((3, 2), np.nan))).all()


# forward and backward -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(SCHEDULES))
def test_forwards_and_backwards_are_distinguished_as_in_the_schedule(order):
    problem = lk.Problem("digits", hidden=(16,) * 7)
    strategy = lk.Pipeline(order=order, micro_batches=4)
    trace = simulate(strategy, problem=problem, updates=3, latency=0.001)
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    work = phase == COMPUTE
    ordered = np.lexsort((start[work], role[work]))
    role, start, end = role[work][ordered], start[work][ordered], end[work][ordered]
    back = Passes().backward(trace, trace.now, role, start, end)
    chunks = strategy.chunks if order == "interleaved" else 1
    for stage, worker in enumerate(trace.role_ids("worker")):
        wanted = [work.kind != "forward" for work in SCHEDULES[order](4, 4, stage, chunks)]
        assert BACKWARD in {w.kind for w in SCHEDULES[order](4, 4, stage, chunks)}
        assert back[role == worker][: 2 * len(wanted)].tolist() == 2 * wanted


def test_other_runs_have_no_backwards(slowed_trace):
    role, start, end = slowed_trace.column("spans", "role", "start", "end")
    assert not Passes().backward(slowed_trace, slowed_trace.now, role, start, end).any()


# accuracy -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "each"), [(lk.SyncPS(), 4 * 32), (lk.AsyncPS(), 32), (lk.RingAllReduce(), 4 * 32)]
)
def test_accuracy_against_updates_and_samples(strategy, each):
    trace = simulate(strategy, problem=lk.Problem("digits", hidden=(8,)))
    _, reached = learning_curve(trace, trace.now, "accuracy")
    updates, same = learning_curve(trace, trace.now, "accuracy", "updates")
    samples, _ = learning_curve(trace, trace.now, "accuracy", "samples")
    assert np.array_equal(reached, same)
    assert updates.tolist() == trace.column("evaluations", "update").tolist()
    assert samples == pytest.approx(updates * each, rel=0.1)  # the last batch of an epoch is smaller
    with pytest.raises(lk.BadInput, match="updates"):
        lk.views.make_panel("accuracy", against="update")


# slow motion --------------------------------------------------------------------------------------------------------


def test_a_replay_lasts_until_the_next_one_begins():
    assert [slow_motion_period(t)[0] / NANO for t in (0, NANO // 4, NANO, 3 * NANO, 7 * NANO, 9 * NANO)] == [
        0,
        0,
        1,
        2,
        4,
        8,
    ]
    for t in range(0, 3 * PERIOD, PERIOD // 64):
        begin, lasts = slow_motion_period(t)
        assert begin <= t < begin + lasts
        assert slow_motion_period(begin + lasts)[0] == begin + lasts


def test_the_message_zoom_shows_two_gradients_of_what_was_known_and_sweeps_over_them():
    cluster = {"compute": lk.distributions.LogNormal(0.001, 0.2), "latency": 2e-4}
    trace = simulate(lk.AsyncPS(), seconds=6.0, **cluster)
    lookup, before = Lookup(), None
    for t in range(NANO // 100, trace.now, NANO // 16):
        seen = zoom_interval(trace, t, lookup)
        assert seen == zoom_interval(trace, t, Lookup())
        assert 0 <= seen.begin <= seen.sweep <= seen.end <= t or seen.first
        assert seen.sweep <= t
        assert 2 <= seen.length / (1.4e-3 * NANO) <= 3
        assert seen.length * seen.slower <= PERIOD
        if before is not None and before.end == seen.end:
            assert before.sweep < seen.sweep or seen.sweep == seen.end
        before = seen
    last = zoom_interval(trace, trace.now, lookup)
    assert (last.end, last.sweep, last.slower) == (trace.now, trace.now, 1.0)


def test_the_names_of_all_categories_of_the_ledger_fit():
    room = ledger_panel.LABEL + ledger_panel.LedgerPanel.margins[0]
    for name in ("partly applied", *(f"dropped: {reason}" for reason in REASONS)):
        assert style.width(name, style.SMALL) <= room
