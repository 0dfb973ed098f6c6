"""Clocks: leads compared with a manual count, the bound of bounded staleness, and the lines drawn for few and many workers."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.trace import Trace
from labkit.trace.clocks import Clocks, binned_maximum, leads, roles_with_clock
from labkit.trace.recorder import Recorder
from labkit.trace.schema import ALL, COMPUTE, NANO
from labkit.views import bare_figure, make_panel
from labkit.views.style import BLUE, ORANGE, RED
from tests.headers import header_of

pytestmark = pytest.mark.filterwarnings("error")
TIMING = lk.Problem("digits", timing_only=True)
RANDOM = lk.distributions.LogNormal(0.1, 0.3)


def run(strategy, seconds=6.0, problem=TIMING, faults=(), **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": RANDOM, **cluster})
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds), faults=faults)


def lead_by_hand(trace, role, t):
    """Gradients finished when the newest one was begun, less the fewest finished by any worker at `t`."""
    spans = [row for row in trace.tables["spans"].rows().tolist() if row[1] == COMPUTE]
    finished = {who: sum(r == who and end <= t for r, _, _, end, _ in spans) for who in trace.role_ids("worker")}
    begun = [start for r, _, start, _, _ in spans if r == role and start <= t]
    at_begin = sum(r == role and end <= max(begun, default=0) for r, _, _, end, _ in spans)
    return max(0, at_begin - min(finished.values()))


def test_leads_equal_those_counted_by_hand():
    trace = run(lk.AsyncPS(), seconds=3.0, slow={"worker-1": 2.5}, latency=0.01).wait().trace
    found = leads(trace, trace.now)
    rng = np.random.default_rng(0)
    # gradients in progress later have no row
    for k in rng.integers(0, np.searchsorted(found.time, 2 * NANO), 40).tolist():
        by_hand = [lead_by_hand(trace, role, int(found.time[k])) for role in found.roles]
        assert found.lead[:, k].tolist() == by_hand


@pytest.mark.parametrize("s", [0, 1, 3])
@pytest.mark.parametrize("latency", [0.0, 0.02])
def test_no_lead_exceeds_the_bound_and_fast_workers_reach_it(s, latency):
    trace = run(lk.SSP(s=s), faults=[lk.Slow("worker-2", 6, at=1.0)], latency=latency).wait().trace
    found = leads(trace, trace.now)
    assert found.lead.max() == s
    late = found.time > 4 * NANO
    assert (np.median(found.lead[:, late], axis=1) == [s, s, 0, s]).all()


def test_without_a_bound_the_lead_grows_by_the_difference_of_speeds():
    trace = (
        run(lk.AsyncPS(), seconds=10.0, compute=lk.distributions.Deterministic(0.1), slow={"worker-1": 5}).wait().trace
    )
    found = leads(trace, 9_950_000_000)
    assert found.lead[:, -1].tolist() == [99 - 19, 0, 99 - 19, 99 - 19]


@pytest.mark.parametrize("strategy", [lk.SyncPS(), lk.RingAllReduce()])
def test_synchronous_workers_have_no_lead(strategy):
    trace = run(strategy, seconds=2.0, slow={"worker-2": 3}).wait().trace
    assert not leads(trace, trace.now).lead.any()
    panel = make_panel("progress")
    bare_figure(panel)
    panel.update(trace, None)
    assert panel.note.get_text().startswith("synchronous: all workers")


def test_stages_of_a_pipeline_have_one_clock():
    deep = lk.Problem("digits", hidden=(32, 32, 32))
    trace = run(lk.Pipeline(), seconds=1.0, problem=deep).wait().trace
    assert [trace.roles[role] for role in roles_with_clock(trace)] == ["worker-0"]
    panel = make_panel("progress")
    bare_figure(panel)
    panel.update(trace, None)
    assert panel.note.get_text().startswith("only one worker clock")
    replicas = run(lk.Hybrid(shape="2x2"), seconds=1.0, problem=deep).wait().trace
    assert [replicas.roles[role] for role in roles_with_clock(replicas)] == ["worker-0", "worker-2"]


def handmade():
    """Two workers, of which one is four times as fast."""
    trace = Trace(header_of("server-0", "worker-0", "worker-1"))
    for role, long in ((1, 10), (2, 40)):
        recorder = Recorder(role)
        for k in range(120 // long):
            recorder.span(COMPUTE, k * long, (k + 1) * long, k)
        trace.append(recorder.take(120))
    return trace


def test_a_lead_is_the_difference_of_the_gradients_finished():
    found = leads(handmade(), 119)
    assert found.lead[:, -1].tolist() == [11 - 2, 0]
    assert found.lead[0, found.time == 40] == 4 - 1


def test_a_clock_counts_gradients_and_not_their_mini_batches():
    trace = run(lk.SSP(s=2, accumulate=3), seconds=9.0, slow={"worker-1": 4}).wait().trace
    t = 6_050_000_000
    found = leads(trace, t)
    role, start, end, phase = trace.column("spans", "role", "start", "end", "phase")
    rows = [(role == who) & (phase == COMPUTE) for who in found.roles]
    for k, time in enumerate(found.time.tolist()):
        begun = [max((start[mine] <= time).sum() - 1, 0) // 3 for mine in rows]
        finished = min((end[mine] <= time).sum() // 3 for mine in rows)
        assert found.lead[:, k].tolist() == [max(one - finished, 0) for one in begun], time
    assert found.lead.max() == 2


def test_without_spans_the_progress_is_that_reported_by_the_server():
    trace = handmade()
    server = Recorder(0)
    for row in ((50, 1, 5), (50, 2, 1), (50, ALL, 6), (100, 1, 10), (100, 2, 3), (100, ALL, 13)):
        server.progress.extend(row)
    trace.append(server.take(120) | {"skipped": {"spans": 7}})
    found = leads(trace, 120)
    assert found.applied
    assert found.time.tolist() == [50, 100]
    assert found.lead.tolist() == [[4, 7], [0, 0]]
    assert "applied" in make_panel("progress").caption(trace)


def test_the_maximum_of_an_interval_includes_the_value_at_its_start():
    found = leads(handmade(), 119)
    edges, most = binned_maximum(found, 0, 120, 6)
    assert edges.tolist() == [0, 20, 40, 60, 80, 100, 120]
    for k in range(6):  # by hand, nanosecond for nanosecond
        inside = [found.lead[0, np.flatnonzero(found.time <= t)[-1]] for t in range(20 * k, 20 * k + 20)]
        assert most[0, k] == max(inside)


def drawn(trace, t=None):
    """{colour: heights} of the lines that are drawn, and the words beside them."""
    panel = make_panel("progress")
    bare_figure(panel)
    panel.update(trace, t)
    lines = {}
    for line in panel.lines:
        if len(line.get_xdata()):
            lines.setdefault(line.get_color(), []).append(np.asarray(line.get_ydata()))
    return panel, lines, [name.get_text() for name in panel.names if name.get_text()]


def test_the_picture_of_a_runaway_that_is_caught():
    going = run(lk.SSP(s=3), faults=[lk.Slow("worker-2", 6, at=1.0)]).advance(3.0)
    going.set(s=5)
    trace = going.wait().trace
    _, lines, words = drawn(trace)
    assert "bound: s = 5" in words
    assert "w2, last" in words
    (bound,) = lines[RED]
    step = np.unique(np.round(bound, 1))
    assert step == pytest.approx([3, 5], abs=0.25)
    assert (step > [3, 5]).all()  # slightly above: a line at the bound stays visible
    assert lines[ORANGE][0][-1] == 0
    assert lines[BLUE][0].max() == 5
    _, early, words = drawn(trace, 2_500_000_000)
    assert "bound: s = 3" in words
    assert early[BLUE][0].max() == 3


def test_a_distant_bound_does_not_compress_the_axis():
    trace = run(lk.SSP(s=1000), seconds=2.0, slow={"worker-2": 5}).wait().trace
    panel, _, words = drawn(trace)
    assert panel.axes.get_ylim()[1] < 30
    assert not any("bound" in text for text in words)


def test_many_workers_are_shown_as_a_band_and_extremes():
    trace = run(lk.AsyncPS(), seconds=1.0, workers=200, slow={"worker-33": 8}).wait().trace
    panel, lines, _ = drawn(trace)
    assert len(lines[BLUE]) == len(lines[ORANGE]) == 1
    assert len(panel.band.get_paths()) == 1
    band = panel.band.get_paths()[0].vertices[:, 1]
    assert 0 <= band.min() <= band.max() <= lines[BLUE][0].max()


def test_past_leads_are_unchanged_by_later_rows():
    early, late = (run(lk.AsyncPS(), slow={"worker-1": 2}).advance(s).trace for s in (1.0, 2.0))
    for t in (10**9, 6 * 10**8):
        one, other = leads(early, t), leads(late, t)
        assert one.time.tolist() == other.time.tolist()
        assert one.lead.tolist() == other.lead.tolist()


@pytest.mark.parametrize("faults", [(), ("kill:worker-1@0.8", "freeze:worker-3@1.5-2.2")], ids=["calm", "with losses"])
def test_clocks_of_a_run_that_grows_are_those_of_the_whole_record(faults):
    """Queried forward and backward during the run; without losses each lead is also counted by hand."""
    going, clocks = run(lk.AsyncPS(), seconds=3.0, faults=faults, heartbeat_timeout=0.3, restart_after=0.2), Clocks()
    while not going.done:
        trace = going.advance(0.37).trace
        for t in (trace.watermark(), trace.watermark() // 3, trace.watermark() - 10_000_000):
            found, whole = clocks.leads(trace, t), leads(trace, t)
            assert (found.time.tolist(), found.lead.tolist()) == (whole.time.tolist(), whole.lead.tolist())
            for role in (
                found.roles if not faults and t == trace.watermark() // 3 else ()
            ):  # gradients in progress now have no row
                assert found.lead[found.roles.index(role), -1] == lead_by_hand(trace, role, t)
    other = run(lk.SyncPS(), seconds=1.0).wait().trace
    assert clocks.leads(other, other.now).lead.tolist() == leads(other, other.now).lead.tolist()
