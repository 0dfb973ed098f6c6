"""Absent roles: hatched in the timeline, dashed in the topology, no step back in the clocks, and the same picture after
scrubbing back.
"""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.trace.clocks import leads
from labkit.views import PANELS, make_panel, panel_figure
from labkit.views.timeline import computing_since, shown_roles
from labkit.views.topology_layout import nodes_of

pytestmark = pytest.mark.sample(4, slow=4)

S = 1_000_000_000
SIZES = ((354, 180), (724, 200), None)


def run(strategy=None, compute=0.1, **more):
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.LogNormal(compute, 0.2), **more})
    return lk.train(lk.Problem("digits", hidden=(16,)), strategy or lk.AsyncPS(), cluster, lk.Budget(seconds=6))


@pytest.fixture(scope="module")
def killed():
    """w2 is away from 1.05 s to 2.55 s, the server, whose backup takes over, from 3.05 s to 3.55 s."""
    made = run(replicas=1).advance(1.05).kill("worker-2", restart=False).advance(1.5).restart("worker-2").advance(0.5)
    return made.kill("server-0", restart=False).advance(0.5).restart("server-0").wait().trace


def drawn(name, trace, seconds):
    panel = make_panel(name)
    panel_figure(panel, trace, None if seconds is None else round(seconds * S))
    return panel


def gaps(panel):
    """(row, begin, end) of the hatched boxes, rounded."""
    boxes = [path.get_extents() for path in panel.gaps.get_paths()]
    return [(round((b.y0 + b.y1) / 2), round(b.x0, 3), round(b.x1, 3)) for b in boxes]


def test_a_role_that_is_away_is_hatched_and_its_return_is_marked(killed):
    rows = [killed.roles[r] for r in shown_roles(killed, 2 * S)]
    assert rows == ["server-0", "backup-0", "worker-0", "worker-1", "worker-2", "worker-3"]
    away = drawn("timeline", killed, 2.0)
    assert gaps(away) == [(4, 1.05, 2.0)]
    assert [words.get_text() for words in away.words if words.get_text()] == ["killed"]
    assert len(away.back.get_xdata()) == 0
    back = drawn("timeline", killed, 2.8)
    assert gaps(back) == [(4, pytest.approx(1.3, abs=0.05), 2.55)]
    assert back.back.get_xydata().tolist() == [[2.55, 4.0]]
    assert gaps(drawn("timeline", killed, 1.0)) == []  # an earlier time is shown


def test_the_labels_of_absent_roles_are_orange(killed):
    def ink(panel):
        ticks = zip(panel.axes.get_yticklabels(), panel.axes.get_yticks())
        return {label.get_text(): label.get_color() for label, _ in ticks}

    away, well = ink(drawn("timeline", killed, 2.0)), ink(drawn("timeline", killed, 2.8))
    assert away["w2"] != well["w2"] == away["w1"]


def test_the_computation_of_a_lost_role_is_not_shown_as_running():
    going = run().advance(1.05)
    two = going.trace.roles.index("worker-2")
    assert two in computing_since(going.trace, round(1.05 * S))
    going.kill("worker-2", restart=False).advance(0.5)
    assert two not in computing_since(going.trace, round(1.5 * S))
    going.restart("worker-2").advance(0.05)
    assert computing_since(going.trace, round(1.6 * S))[two] >= round(1.55 * S)


def test_an_absent_node_is_hollow_and_dashed_and_labelled(killed):
    servers, (workers,) = nodes_of(killed, 2 * S)
    assert [node.name for node in servers] == ["s0", "b0"]
    assert {node.name: node.condition for node in workers} == {"w0": "", "w1": "", "w2": "killed", "w3": ""}
    panel = drawn("topology", killed, 2.0)
    text = {words.get_text() for words in panel.names}
    assert "killed" in text
    styles = panel.nodes[False].get_linestyle()
    assert [style[1] is not None for style in styles] == [False, False, True, False]
    assert not any(word.get_text() == "killed" for word in drawn("topology", killed, 2.8).names)


def test_many_workers_the_lost_one_has_a_node_and_a_row_of_its_own():
    made = run(workers=100).advance(0.3).kill("worker-57", restart=False).advance(0.2).trace
    assert "w57" in [node.name for node in nodes_of(made, made.now)[1][0]]
    assert made.roles.index("worker-57") in shown_roles(made, made.now)


@pytest.mark.parametrize("s", [0, 2, 4])
def test_clocks_continue_after_restarts_and_stay_within_the_bound(s):
    going = run(lk.SSP(s=s))
    for role in ("worker-2", "worker-0", "worker-2"):
        going.advance(0.9).kill(role)
    trace = going.wait().trace
    found = leads(trace, trace.watermark())
    assert found.lead.min() >= 0
    assert found.lead.max() <= s


def test_absent_workers_do_not_count_for_the_lead():
    trace = run(compute=0.05).advance(1.0).kill("worker-2", restart=False).wait().trace
    found = leads(trace, trace.watermark())
    assert found.lead[:, -1].max() < 30  # of the others; w2 is at 20 of 120


def test_unknown_staleness_is_in_the_caption_and_has_no_bar():
    trace = run().advance(1.0).trace
    rows = trace.tables["applies"]
    assert "unknown" not in make_panel("staleness").caption(trace)
    counters = trace.counters[trace.roles.index("server-0")]
    counters.staleness[-1] = counters.staleness.get(-1, 0) + 7
    panel = drawn("staleness", trace, None)
    assert "7 unknown" in panel.caption(trace)
    assert min(path.get_extents().x0 for path in panel.bars.get_paths()) > -1
    assert len(rows)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PANELS)
def test_every_panel_draws_losses_at_the_sizes_of_the_page(killed, name, size):
    for seconds in (1.0, 2.8, None):
        made = make_panel(name)
        if size is not None:
            made.size = size
        figure = panel_figure(made, killed, None if seconds is None else round(seconds * S))
        assert figure._repr_png_()[0][:4] == b"\x89PNG" if hasattr(figure, "_repr_png_") else figure
