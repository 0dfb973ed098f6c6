"""Topology and its slow motion: the positions of roles, the messages in a replay, their order, and the slowdown that is shown."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex

import labkit as lk
from labkit.formatting import duration, speed
from labkit.trace.schema import COMPUTE, NANO
from labkit.views import bare_figure, make_panel
from labkit.views.message_replay import REST, build_replay, last_update, loop_ns, phase_of, replay
from labkit.views.style import BLUE, GREEN, ORANGE, ORANGE_FILL
from labkit.views.topology import way
from labkit.views.topology_layout import nodes_of, place_nodes

pytestmark = pytest.mark.filterwarnings("error")
TIMING = lk.Problem("digits", timing_only=True)
DEEP = lk.Problem("digits", hidden=(32, 32, 32))


def run(strategy, seconds=3.0, problem=TIMING, **cluster):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.LogNormal(0.1, 0.2), **cluster})
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds)).wait().trace


@pytest.fixture(scope="module")
def free():
    """A network that takes no time."""
    return run(lk.AsyncPS(), slow={"worker-2": 3})


@pytest.fixture(scope="module")
def wired():
    return run(lk.AsyncPS(), slow={"worker-2": 3}, latency=0.002, bandwidth=2e7)


def updates_of(trace):
    """An update at each of some times."""
    return [last_update(trace, t) for t in range(NANO // 2, trace.now, 170_000_000)]


def of(trace, shown, kind):
    return shown.kind == trace.header.messages.index(kind)


# the replay -------------------------------------------------------------------------------------------------------------------


def test_a_replay_spans_two_consecutive_updates_of_one_worker(free):
    rows = free.tables["applies"].rows().tolist()
    for t in range(NANO // 2, free.now, 170_000_000):
        update = last_update(free, t)
        newest = [row for row in rows if row[2] <= t][-1]
        assert (update.last, update.sender, update.staleness) == (newest[2], newest[3], newest[7])
        assert update.first == [row for row in rows if row[2] < newest[2] and row[3] == newest[3]][-1][2]


def test_the_replay_of_an_update_shows_staleness_plus_one_gradients(free):
    for update in updates_of(free):
        shown = build_replay(free, update)
        assert np.count_nonzero(of(free, shown, "Push")) == update.staleness + 1
        assert np.count_nonzero(of(free, shown, "Weights") & (shown.target == update.sender)) == 1


@pytest.mark.parametrize("name", ["free", "wired"])
def test_read_compute_send_apply_follow_each_other(name, request):
    trace = request.getfixturevalue(name)
    for update in updates_of(trace):
        shown = build_replay(trace, update)
        (read,) = np.flatnonzero(of(trace, shown, "Weights") & (shown.target == update.sender))
        (sent,) = np.flatnonzero(of(trace, shown, "Push") & (shown.source == update.sender))
        _, begin, end = shown.works[shown.works[:, 0] == update.sender][0]
        applied = shown.applied[:, 1].max()
        order = [
            0,
            shown.leaves[read],
            shown.arrives[read],
            begin,
            end,
            shown.leaves[sent],
            shown.arrives[sent],
            applied,
        ]
        assert all(a <= b + 0.031 for a, b in itertools.pairwise(order)), order  # each is visible for at least 3% of it
        assert applied == pytest.approx(1 - REST)


def test_the_shown_slowdown_factor_of_messages_is_exact():
    wired = run(lk.AsyncPS(), latency=0.0004)
    loop = loop_ns(wired)
    for update in updates_of(wired):
        shown = build_replay(wired, update)
        assert shown.words[0].endswith("other times shortened")
        reported = float(re.search(r"messages ([\d.,]+)x slower", shown.words[0])[1].replace(",", ""))
        (i,) = np.flatnonzero(of(wired, shown, "Push") & (shown.source == update.sender))
        rows = wired.tables["messages"].rows().tolist()
        (took,) = [row[6] - row[5] for row in rows if row[1] == update.sender and update.first < row[6] <= update.last]
        shows = (shown.arrives[i] - shown.leaves[i]) * loop
        assert shows == pytest.approx(reported * took, rel=0.06) or shows == pytest.approx(0.03 * loop)


def test_a_replay_of_a_busy_link_is_slowed_evenly():
    trace = run(lk.AsyncPS(), latency=0.03)
    update = last_update(trace, 2 * NANO)
    shown = build_replay(trace, update)
    reported = float(re.search(r"· ([\d.,]+)x slower", shown.words[0])[1])
    assert reported == pytest.approx(loop_ns(trace) * (1 - REST) / (update.last - update.first), rel=0.05)
    work = [r for r in trace.tables["spans"].rows().tolist() if r[1] == COMPUTE and r[0] == update.sender]
    real = next((a, b) for _, _, a, b, _ in work if update.first < a and b < update.last)
    begin, end = shown.works[shown.works[:, 0] == update.sender][0][1:]
    expected = [(x - update.first) / (update.last - update.first) * (1 - REST) for x in real]
    assert [begin, end] == pytest.approx(expected)


def test_a_ring_of_six_sends_sixty_chunks_each_after_the_one_before():
    for network in ({}, {"latency": 0.001}):
        trace = run(lk.RingAllReduce(), workers=6, **network)
        update = last_update(trace, 2 * NANO)
        shown = build_replay(trace, update)
        per_worker = np.bincount(shown.source)
        assert per_worker.min() == 2 * (6 - 1)
        assert per_worker.max() == 2 * (6 - 1) or network  # there the first may be done before the last ones are
        assert shown.words[0].startswith("the last step, ")
        for worker in range(6):
            gaps = np.diff(shown.leaves[shown.source == worker])
            assert (gaps >= 0).all()
            assert network or (gaps > 0).all()  # a late role finds several in its inbox, and forwards them at once


def test_the_replay_of_a_synchronous_round_shows_all_workers():
    trace = run(lk.SyncPS(), latency=0.001)
    shown = build_replay(trace, last_update(trace, 2 * NANO))
    assert shown.words[0].startswith("the last step, ")
    assert sorted(shown.source[of(trace, shown, "Push")].tolist()) == [1, 2, 3, 4]
    assert sorted(shown.target[of(trace, shown, "Weights")].tolist()) == [1, 2, 3, 4]


def test_each_loop_of_the_replay_shows_the_newest_update(wired):
    loop = loop_ns(wired)
    assert loop == 4 * NANO  # about forty gradients of a tenth of a second
    trace = run(lk.AsyncPS(), seconds=10.0, latency=0.002)
    phases, shown = [], []
    for t in range(2 * NANO, 9 * NANO, NANO // 10):
        made, phase = replay(trace, t)
        phases.append(phase)
        shown.append(made.update)
        assert made.update.last <= max(t - phase * loop, shown[0].last)
    turns = [k for k in range(1, len(phases)) if phases[k] < phases[k - 1]]
    changes = [k for k in range(1, len(shown)) if shown[k] != shown[k - 1]]
    assert turns == changes != []
    assert phase_of(trace, 4 * NANO)[0] == pytest.approx(0.8)


def test_there_is_no_replay_before_the_first_update(free):
    assert replay(free, 0)[0] is None
    first = int(free.column("applies", "time").min())
    assert replay(free, first - 1)[0] is None
    assert replay(free, first)[0].update.last == first


@pytest.mark.parametrize(
    "strategy",
    [
        lk.Pipeline(), lk.PipeDream(), lk.Hybrid(shape="2x2"), lk.FSDP(), lk.ADPSGD(), lk.HalvingDoubling(),
        lk.Downpour(),
    ],
    ids=lambda s: s.name,
)  # fmt: skip
@pytest.mark.parametrize("latency", [0.0, 0.002])
def test_every_replay_runs_forward(strategy, latency):
    trace = run(strategy, seconds=1.5, problem=DEEP, latency=latency)
    shown = build_replay(trace, last_update(trace, trace.now))
    assert len(shown.source) > 0
    assert (shown.arrives - shown.leaves >= 0.03 - 1e-9).all()
    inside = (shown.leaves < 1) & (shown.arrives > 0)
    assert inside.all()
    assert (shown.works[:, 1] <= shown.works[:, 2] + 1e-9).all()


def test_factors_and_durations_in_words():
    assert [speed(x, 2) for x in (712.0, 42.4, 1.0, 1 / 3.3, 12_345)] == [
        "710x slower", "42x slower", "1x slower", "3.3x faster", "12,000x slower",
    ]  # fmt: skip
    assert [duration(x, 2) for x in (900, 41_000, 2_130_000, 104e6, 1.44e9)] == [
        "900 ns",
        "41 us",
        "2.1 ms",
        "104 ms",
        "1.4 s",
    ]


# the places -----------------------------------------------------------------------------------------------------------

SIZES = [(446, 208), (338, 150), (708, 170)]
RUNS = {
    "async": lambda: run(lk.AsyncPS(), seconds=0.5),
    "twenty-four, two servers": lambda: run(lk.AsyncPS(), seconds=0.3, workers=24, servers=2),
    "twelve servers": lambda: run(lk.AsyncPS(), seconds=0.3, workers=12, servers=12),
    "thousand": lambda: run(lk.AsyncPS(), seconds=0.3, workers=1000, slow={"worker-500": 5}, latency=1e-4),
    "ring of fifty": lambda: run(lk.RingAllReduce(), seconds=0.3, workers=50),
    "gossip": lambda: run(lk.ADPSGD(), seconds=0.5, workers=8),
    "hybrid": lambda: run(lk.Hybrid(shape="3x2"), seconds=0.5, problem=DEEP, workers=6),
}


@pytest.fixture(scope="module", params=list(RUNS))
def some(request):
    return RUNS[request.param]()


def test_every_role_but_the_chief_is_in_one_node_and_no_node_on_another(some):
    servers, rows = nodes_of(some, some.now)
    nodes = [*servers, *(node for row in rows for node in row)]
    assert sorted(r for node in nodes for r in node.roles) == [i for i, k in enumerate(some.kinds) if k != "chief"]
    machines = {some.nodes[i] for i, kind in enumerate(some.kinds) if kind != "chief"}
    assert sum(node.count for node in nodes) == len(machines)
    assert sum(not node.server for node in nodes) <= 24
    for size in SIZES:
        where = place_nodes(some, servers, rows, *size)
        assert all(5 < x < size[0] - 5 and 5 < y < size[1] - 5 for x, y in where.values()), size
        assert min(math.dist(a, b) for a, b in itertools.combinations(where.values(), 2)) > 12, size


def test_nodes_are_arranged_in_rows_and_rings():
    hybrid = RUNS["hybrid"]()
    _, rows = nodes_of(hybrid, hybrid.now)
    assert [[node.name for node in row] for row in rows] == [["w0", "w1"], ["w2", "w3"], ["w4", "w5"]]
    pipe = run(lk.Pipeline(), seconds=0.5, problem=DEEP)
    assert len({y for _, y in place_nodes(pipe, *nodes_of(pipe, 0), 400, 200).values()}) == 1
    ring = run(lk.RingAllReduce(), seconds=0.3, workers=12)
    around = list(place_nodes(ring, *nodes_of(ring, 0), 400, 200).values())
    steps = [math.dist(a, b) for a, b in zip(around, around[1:] + around[:1])]
    assert max(steps) < 1.3 * min(steps)
    many = RUNS["thousand"]()
    _, (row,) = nodes_of(many, many.now)
    assert [(node.name, node.count) for node in row if node.slow] == [("w500", 1)]


# the picture ----------------------------------------------------------------------------------------------------------


def test_a_line_begins_and_ends_at_its_nodes_and_swings_out_to_its_right():
    there, back = way((0, 0), (100, 0), 5, np.array([0, 0.5, 1])), way((100, 0), (0, 0), 5, np.array([0.5]))
    assert there.tolist() == [[0, 0], [50, -5], [100, 0]]
    assert back.tolist() == [[50, 5]]


def test_dots_have_the_colour_of_their_direction_and_the_position_of_the_replay(wired):
    panel = make_panel("topology")
    bare_figure(panel)
    seen = set()
    for t in range(NANO, 3 * NANO, 37_000_000):
        panel.update(wired, t)
        shown, phase = replay(wired, t)
        flying = np.flatnonzero((shown.leaves <= phase) & (phase < shown.arrives))
        places = panel.dots.get_offsets()
        assert len(places) == len(flying)
        for i, place, face in zip(flying, places, panel.dots.get_facecolor()):
            down = wired.kinds[shown.source[i]] == "server"
            colour = to_hex(face)
            assert colour == ((GREEN if down else BLUE) if shown.size[i] else "#9aa5b5")
            server, worker = panel.nodes[True].get_offsets()[0], panel.nodes[False].get_offsets()[0]
            assert worker[1] < place[1] < server[1]
            seen.add(down)
    assert seen == {True, False}


def test_a_worker_is_orange_only_while_it_is_slowed(slowed_trace):
    panel = make_panel("topology")
    bare_figure(panel)
    for t, slow in ((1_000_000_000, False), (2_000_000_000, True), (2_900_000_000, False)):
        panel.update(slowed_trace, t)
        edges = [to_hex(e) for e in panel.nodes[False].get_edgecolor()]
        faces = [to_hex(f) for f in panel.nodes[False].get_facecolor()]
        assert [edge == ORANGE for edge in edges] == [False, False, slow, False]
        assert (ORANGE_FILL in faces) <= slow


def test_the_busiest_link_has_the_widest_line():
    trace = run(lk.AsyncPS(), slow={"worker-2": 10}, latency=0.001)
    panel = make_panel("topology")
    bare_figure(panel)
    panel.update(trace, None)
    wide = dict(zip(panel.rates, panel.lines.get_linewidth()))
    slow = [width for (a, b), width in wide.items() if 3 in (a, b)]  # nodes: the server, then the workers
    assert max(slow) < min(width for (a, b), width in wide.items() if 3 not in (a, b))


@pytest.mark.parametrize("size", SIZES)
def test_names_do_not_lie_on_each_other_and_the_slow_motion_text_is_not_cut(some, size):
    from labkit.views.figures import blank, place

    panel = make_panel("topology")
    left, right, below, above = panel.margins
    figure = blank(size[0] + left + right, size[1] + 22 + below + above)
    place(figure, panel, 0, 0, size[0] + left + right, size[1] + 22 + below + above, title=False)
    panel.update(some, None)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in (*panel.names, panel.slow_motion) if text.get_text()]
    assert len(boxes) > 4
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 + 1 for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.shrunk(0.9, 0.8).overlaps(other.shrunk(0.9, 0.8))


def test_past_states_are_unchanged_by_later_rows():
    cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.LogNormal(0.1, 0.2), latency=0.01)
    early, late = (lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=3)).advance(s).trace for s in (1.5, 2.5))
    for t in (10**9, 15 * 10**8):
        (one, at), (other, there) = replay(early, t), replay(late, t)
        assert at == there
        assert one.update == other.update
        assert one.words == other.words
        for name in ("source", "target", "leaves", "arrives"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
