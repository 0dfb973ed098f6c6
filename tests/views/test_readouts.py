"""Values where one points, and as tables: compared with the rows of the trace, and the same by pointer and by keyboard."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import labkit as lk
from labkit.formatting import short
from labkit.trace import ledger
from labkit.trace.clocks import leads
from labkit.trace.query import computed_gradients
from labkit.trace.schema import COMPUTE, NANO, TRAINING
from labkit.views import PANELS, bare_figure, make_panel

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.sample(6, slow=12)]
SLOWED = [lk.Slow("worker-2", 5, at=1.5)]
FROZEN = [lk.Freeze("worker-1", at=3.0, until=6.0)]
DIGITS = lk.Problem("digits", hidden=(16,))


def run(strategy, problem=DIGITS, seconds=3.0, faults=(), **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.LogNormal(0.1, 0.25), **cluster})
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds), faults=faults).wait().trace


RUNS = {
    "async": lambda: run(lk.AsyncPS(), faults=SLOWED, latency=0.002, bandwidth=4e5),
    "ssp": lambda: run(lk.SSP(s=3), faults=SLOWED),
    "frozen": lambda: run(lk.AsyncPS(), seconds=12.0, faults=FROZEN),
    "moons": lambda: run(lk.AsyncPS(), lk.Problem("moons", hidden=(16,))),
    "sync": lambda: run(lk.SyncPS(), seconds=6.0),
    "clicks": lambda: run(lk.SparsePS(), lk.Problem("clicks")),
    "quadratic": lambda: run(lk.AsyncPS(learning_rate=0.1), lk.Problem("quadratic")),
    "crowd": lambda: run(lk.AsyncPS(), seconds=1.0, workers=30, faults=[lk.Slow("worker-2", 5, at=0.5)]),
    "ring": lambda: run(lk.RingAllReduce(), seconds=1.0),
    "buckets": lambda: run(lk.BucketedAllReduce(), bandwidth=1e5),
}  # fmt: skip
SUITED = {
    "decision_boundary": "moons",
    "hot_rows": "clicks",
    "stability": "quadratic",
    "progress": "ssp",
    "noise_scale": "sync",
}


@pytest.fixture(scope="module")
def traces():
    """Created on first use."""

    class Made(dict):
        def __missing__(self, name):
            self[name] = RUNS[name]()
            return self[name]

    return Made()


def drawn(name, trace, t=None):
    """(panel, time in ns) of a panel that shows `t`."""
    panel = make_panel(name)
    panel.kept = bare_figure(panel)
    t = trace.watermark() if t is None else t
    panel.update(trace, t)
    return panel, t


def readout(panel, trace, t, x, y):
    return panel.readout(trace, t, float(x), float(y))


@pytest.mark.parametrize("name", list(PANELS))
@pytest.mark.parametrize("run_name", ["suited", "crowd", "ring", "frozen", "buckets"])
@pytest.mark.parametrize("share", [1.0, 0.6])
def test_every_stop_of_the_keyboard_is_in_the_picture_and_has_a_value(traces, name, run_name, share):
    trace = traces[SUITED.get(name, "async") if run_name == "suited" else run_name]
    panel, t = drawn(name, trace, round(share * trace.watermark()))
    rows = panel.stops(trace, t)
    assert rows or run_name != "suited"
    (left, right), (low, high) = sorted(panel.axes.get_xlim()), sorted(panel.axes.get_ylim())
    for row in rows:
        assert row
        for x, y in row:
            assert left - 1e-9 <= x <= right + 1e-9
            assert low - 1e-9 <= y <= high + 1e-9
            assert readout(panel, trace, t, x, y)


@pytest.mark.parametrize("name", list(PANELS))
@pytest.mark.parametrize("run_name", ["suited", "crowd", "ring", "buckets"])
def test_rows_of_a_table_have_a_value_for_each_column(traces, name, run_name):
    trace = traces[SUITED.get(name, "async") if run_name == "suited" else run_name]
    panel, t = drawn(name, trace)
    columns, rows = panel.table(trace, t)
    assert rows or run_name != "suited"
    assert len(set(columns)) == len(columns)
    assert all(len(row) == len(columns) for row in rows)
    for value in (value for row in rows for value in row):
        assert isinstance(value, (str, int, float))
        assert isinstance(value, str) or math.isfinite(value)


@pytest.mark.parametrize("name", list(PANELS))
def test_before_the_first_gradient_there_is_nothing_to_read_and_no_error(name):
    cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1))
    trace = lk.train(DIGITS, lk.AsyncPS(), cluster, lk.Budget(seconds=1)).trace
    panel, t = drawn(name, trace)
    for row in panel.stops(trace, t):
        for x, y in row:
            panel.readout(trace, t, x, y)
    (left, right), (low, high) = panel.axes.get_xlim(), panel.axes.get_ylim()
    assert isinstance(panel.readout(trace, t, (left + right) / 2, (low + high) / 2), str)
    panel.table(trace, t)


def test_the_timeline_has_the_span_of_the_role_at_that_time(traces):
    trace = traces["async"]
    panel, t = drawn("timeline", trace)
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    left, _ = panel.axes.get_xlim()
    seen = np.flatnonzero((phase == COMPUTE) & (start / NANO > left) & (end <= t))
    names = [label.get_text() for label in panel.axes.get_yticklabels()]
    for k in seen:
        middle = (start[k] + end[k]) // 2
        said = readout(panel, trace, t, middle / NANO, names.index(short(trace.roles[role[k]])))
        assert said.startswith(
            f"{trace.roles[role[k]]}: computes from {start[k] / NANO:,.4f} s to {end[k] / NANO:,.4f} s"
        )
    times = trace.column("applies", "time")
    inside = int(((times / NANO > left) & (times <= t)).sum())
    _, rows = panel.table(trace, t)
    assert sum(row[1] == "apply" for row in rows) == inside


def test_the_lanes_have_the_piece_and_the_bucket_at_that_time(traces):
    trace = traces["buckets"]
    panel, t = drawn("timeline", trace)
    names = [label.get_text() for label in panel.axes.get_yticklabels()]
    _, rows = panel.table(trace, t)
    said = set()
    for role, activity, begin, end in (row for row in rows if row[3] and row[1] != "apply"):
        word, _, what = activity.partition(" ")
        y = names.index(short(role)) + (0.3 if word == "communicate" else -0.2)
        text = readout(panel, trace, t, (begin + end) / 2, y)
        verb = {"compute": "computes", "backward": "computes the backward pass of ", "communicate": "communicates "}[
            word
        ]
        assert text.startswith(f"{role}: {verb}{what} from {begin:,.4f} s to {end:,.4f} s"), (text, activity)
        said.add(activity)
    assert {"compute", "backward output", "backward dense1", "communicate bucket 0"} <= said
    role, number, start, end, hidden = (column[0] for column in trace.column(
        "communications", "role", "number", "start", "end", "hidden"
    ))  # fmt: skip
    panel.update(trace, int(end) - 1)
    y = names.index(short(trace.roles[role])) + 0.3
    at = (start + end) / 2e9
    assert readout(panel, trace, int(end) - 1, at, y).endswith(
        f"communicates bucket {number} since {start / NANO:,.4f} s"
    )
    assert readout(panel, trace, int(end), at, y).endswith(f"{hidden / (end - start):.0%} hidden")
    assert readout(panel, trace, int(end), start / NANO - 1e-3, y).endswith("does not communicate")


def test_the_message_zoom_has_the_messages_in_flight(traces):
    trace = traces["async"]
    panel, t = drawn("message_zoom", trace)
    to, sender, category, size, sent, there = trace.column(
        "messages", "role", "sender", "category", "bytes", "sent", "received"
    )
    _, rows = panel.table(trace, t)
    flying = [row for row in rows if row[2]]
    begin, end = (float(edge) for edge in (min(row[3] for row in flying), max(row[4] for row in flying)))
    known = {
        (trace.roles[a], trace.roles[b], s / NANO, r / NANO, n)
        for a, b, c, n, s, r in zip(sender, to, category, size, sent, there)
        if c == TRAINING and begin <= s / NANO and r / NANO <= end
    }
    assert {row[1:] for row in flying} == known
    _, first, second, sent_at, received_at, _ = flying[len(flying) // 2]
    names = [label.get_text() for label in panel.axes.get_yticklabels()]
    at = next(axis for axis in panel.axes.get_xlabel().split() if axis.replace(".", "").isdigit())
    unit = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6}[panel.axes.get_xlabel().split()[0]]
    x = ((sent_at + received_at) / 2 - float(at)) / unit
    row = names.index("server" if first.startswith("server") else short(first))
    assert f"from {short(first)} to {short(second)}" in readout(panel, trace, t, x, row)


@pytest.mark.parametrize("name", ["accuracy", "loss"])
def test_curves_have_the_newest_evaluation_before_the_pointer(traces, name):
    trace = traces["async"]
    panel, t = drawn(name, trace)
    time, values = trace.column("evaluations", "time", name)
    for x in (0.4, 1.3, 2.9):
        k = np.flatnonzero(time / NANO <= x)[-1]
        value = f"{100 * values[k]:.2f}%" if name == "accuracy" else f"{values[k]:.4g}"
        assert readout(panel, trace, t, x, -1).splitlines()[0] == f"this run: {value} at {time[k] / NANO:,.3f} s"
    _, rows = panel.table(trace, t)
    assert [row[2] for row in rows] == pytest.approx(list(values * (100 if name == "accuracy" else 1)))


def test_an_event_is_named_where_its_line_is(traces):
    trace = traces["async"]
    panel, t = drawn("throughput", trace)
    assert "w2 5x slower at 1.500 s" in readout(panel, trace, t, 1.5, -1)
    assert "slower" not in readout(panel, trace, t, 2.5, -1)


def test_throughput_has_the_worker_whose_line_is_near(traces):
    trace = traces["async"]
    panel, t = drawn("throughput", trace)
    _, table = panel.table(trace, t)
    rows = [row for row in table if row[0] == "w1"]
    _, x, y = rows[len(rows) // 2]
    assert f"w1: {y:.4g}/s" in readout(panel, trace, t, x, y)
    assert "w1:" not in readout(panel, trace, t, x, 3 * y)
    _, end, total = [row for row in table if row[0] == "this run"][-1]
    each = [np.interp(end, *zip(*(row[1:] for row in table if row[0] == name))) for name in ("w0", "w1", "w2", "w3")]
    assert total == pytest.approx(sum(each), rel=0.1)


@pytest.mark.parametrize("run_name", ["async", "frozen"])
def test_bars_of_staleness_count_every_gradient_once(traces, run_name):
    trace = traces[run_name]
    panel, t = drawn("staleness", trace)
    stale, count = trace.column("applies", "staleness", "count")
    (row,) = panel.stops(trace, t)
    said = [readout(panel, trace, t, x, y) for x, y in row]
    assert sum(int(text.split(": ")[1].split(" of ")[0].replace(",", "")) for text in said) == count.sum()
    values = dict(panel.table(trace, t)[1])
    assert values == {int(v): int(count[stale == v].sum()) for v in np.unique(stale)}


def test_one_freeze_does_not_stretch_the_staleness_axis_and_its_gradients_are_counted(traces):
    trace = traces["frozen"]
    panel, _ = drawn("staleness", trace)
    stale = np.sort(trace.column("applies", "staleness"))
    assert stale[-1] > 50
    assert panel.axes.get_xlim()[1] < 20
    label = next(text.get_text() for text in panel.axes.texts if "largest" in text.get_text())
    above, last, largest = (int(number) for number in re.findall(r"\d+", label))
    assert largest == stale[-1]
    assert above == (stale > last).sum() >= 1
    assert last >= np.quantile(stale, 0.98)
    assert all(float(tick.get_text().replace("−", "-") or 0) <= last for tick in panel.axes.get_xticklabels())


def test_a_slow_worker_keeps_its_place_on_the_staleness_axis(traces):
    trace = traces["async"]
    panel, _ = drawn("staleness", trace)
    assert panel.axes.get_xlim()[1] >= trace.column("applies", "staleness").max()
    assert not any("largest" in text.get_text() for text in panel.axes.texts)


def test_clocks_have_the_exact_leads(traces):
    trace = traces["ssp"]
    panel, t = drawn("progress", trace)
    found = leads(trace, t)
    for x in (0.5, 1.7, 2.8):
        k = int(np.searchsorted(found.time, x * NANO, side="right")) - 1
        said = readout(panel, trace, t, x, 0).splitlines()
        assert "bound: 3 ahead" in said
        for role, lead in zip(found.roles, found.lead[:, k]):
            assert f"{short(trace.roles[role])}: " + (f"{lead} ahead of the slowest" if lead else "last") in said


def test_the_ledger_has_its_own_counts(traces):
    trace = traces["async"]
    panel, t = drawn("ledger", trace)
    book = ledger(trace)
    (row,) = panel.stops(trace, t)
    said = [readout(panel, trace, t, x, y) for x, y in row]
    assert said[0] == f"computed: {book['computed']:,} gradients"
    assert said[1].startswith(f"applied: {book['applied']:,} gradients ({book['applied'] / book['computed']:.1%}")


def test_cells_and_totals_of_the_data_are_those_of_the_header(traces):
    trace = traces["async"]
    panel, t = drawn("data_distribution", trace)
    counts = trace.header.shares.counts
    total = sum(counts[2])
    assert readout(panel, trace, t, 3.5, 2.5) == f"w2, class 3: {counts[2][3]:,} of {total:,} training samples"
    assert readout(panel, trace, t, panel.axes.get_xlim()[1], 2.5) == f"w2: {total:,} training samples"
    assert [row[1:] for row in panel.table(trace, t)[1]] == [(*row, sum(row)) for row in counts]


def test_predictions_name_class_and_answer_of_the_sample(traces):
    trace = traces["async"]
    panel, t = drawn("predictions", trace)
    labels, said = trace.header.samples.labels, list(trace.predictions_at(t).samples)
    points = [point for row in panel.stops(trace, t) for point in row]
    for k, (x, y) in enumerate(points):
        wrong = "" if labels[k] == said[k] else " (wrong)"
        assert readout(panel, trace, t, x, y) == f"sample {k + 1}: class {labels[k]}, predicted {said[k]}{wrong}"
    assert (
        panel.table(trace, t)[1]
        == [(k + 1, str(a), str(b)) for k, (a, b) in enumerate(zip(labels, said))][: len(points)]
    )


def test_the_plane_has_the_class_of_the_cell_and_the_sample(traces):
    trace = traces["moons"]
    panel, t = drawn("decision_boundary", trace)
    plane, look = trace.header.samples.plane, trace.predictions_at(t)
    cells = np.frombuffer(look.grid, np.uint8).reshape(plane.side, -1)
    (low_x, low_y), (high_x, high_y), side = plane.low, plane.high, plane.side
    for row, column in ((0, 0), (side - 1, side // 2), (side // 3, side - 1)):
        x, y = low_x + (column + 0.5) / side * (high_x - low_x), low_y + (row + 0.5) / side * (high_y - low_y)
        assert f"predicted class {cells[row, column]}" in readout(panel, trace, t, x, y)
    samples = trace.header.samples
    for (x, y), label, said in zip(samples.features, samples.labels, look.samples):
        assert "held-out sample of class" in readout(panel, trace, t, x, y)
        assert any(row[1:] == (x, y, str(label), str(said)) for row in panel.table(trace, t)[1])


def test_hot_rows_are_shares_of_the_computed_gradients(traces):
    trace = traces["clicks"]
    panel, t = drawn("hot_rows", trace)
    hot = sorted(
        ((n, row) for c in trace.counters.values() for row, n, _ in c.hot), key=lambda both: (-both[0], both[1])
    )
    batches = computed_gradients(trace)
    for k in range(4):
        pulls, row = hot[k]
        assert (
            readout(panel, trace, t, k, 1) == f"row {row}: in {pulls:,} of {batches:,} batches ({pulls / batches:.1%})"
        )


def test_links_and_nodes_have_the_bytes_of_the_last_interval():
    trace = run(lk.AsyncPS(), latency=0.001)
    panel, t = drawn("links", trace)
    from labkit.views.links import recent_ns

    first = t - recent_ns(trace)
    to, sender, category, size, received = trace.column("messages", "role", "sender", "category", "bytes", "received")
    kept = (category == TRAINING) & (received > first) & (received <= t)
    server = trace.roles.index("server-0")
    into = size[kept & (to == server) & np.isin(sender, trace.role_ids("worker"))].sum() / (recent_ns(trace) / NANO)
    row = next(row for row in panel.table(trace, t)[1] if row[0] == "server")
    assert row[1] == pytest.approx(into, rel=0.05)  # a message in flight at the start of the interval arrives in it
    assert f"receives {row[1]:,.0f} bytes/s" in readout(panel, trace, t, 0, 0)
    panel, t = drawn("topology", trace)
    (x, y), *_ = panel.stops(trace, t)[0]
    assert f"receives {row[1]:,.0f} bytes/s" in readout(panel, trace, t, x, y)
    sums = sum(rate for _, receiver, rate in panel.table(trace, t)[1] if receiver == "server")
    assert sums == pytest.approx(row[1], rel=1e-3)


def test_stability_has_both_limits_and_the_run(traces):
    trace = traces["quadratic"]
    panel, t = drawn("stability", trace)
    said = readout(panel, trace, t, 1.0, 0.1)
    assert "edge 1" in said  # 2 sin(pi / 6)
    assert "no oscillation below 0.25" in said  # 1^1 / 2^2
    stale, count = trace.column("applies", "staleness", "count")
    time = trace.column("applies", "time")
    recent = time >= t // 2
    assert f"this run: staleness {np.average(stale[recent], weights=count[recent]):.4g}" in said


def test_many_events_are_a_few_lines_with_the_number_of_the_others():
    faults = [lk.Slow(f"worker-{k % 4}", 2 + k % 3, at=0.5 + 0.12 * k) for k in range(20)]
    trace = run(lk.AsyncPS(), faults=faults)
    panel, t = drawn("throughput", trace)
    x, y = panel.events.lines.get_data()
    lines, ends = x[::3], np.array(y).reshape(-1, 3)
    assert lines == pytest.approx([fault.at for fault in faults])  # each event keeps a mark
    full = lines[ends[:, 0] == 0]
    assert 2 <= len(full) <= 20 / 2
    assert np.diff(panel.axes.transData.transform(np.c_[full, full])[:, 0]).min() > 3
    labels = [text.get_text() for text in panel.axes.texts if re.search(r" \+\d+$", text.get_text())]
    assert labels
    for fault in faults:
        assert f"at {fault.at:.3f} s" in readout(panel, trace, t, fault.at, -1)
