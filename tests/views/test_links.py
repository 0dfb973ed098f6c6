"""Links: bytes per second by node, compared with integrals over messages, for one server, three servers and a ring."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.formatting import bytes_text
from labkit.trace import Trace
from labkit.trace.query import traffic, traffic_by_node
from labkit.trace.recorder import Recorder
from labkit.trace.schema import EVALUATION, NANO, TRAINING
from labkit.views import bare_figure, make_panel
from labkit.views.links import rate_text, recent_ns, rows, share_text
from tests.headers import header_of

pytestmark = pytest.mark.filterwarnings("error")
TIMING = lk.Problem("digits", hidden=(256,), timing_only=True)


def run(strategy, seconds=4.0, **cluster):
    cluster = {
        "workers": 8,
        "compute": lk.distributions.LogNormal(0.1, 0.2),
        "latency": 0.001,
        "bandwidth": 3e6,
        **cluster,
    }
    return lk.train(TIMING, strategy, lk.SimulatedCluster(**cluster), lk.Budget(seconds=seconds)).wait().trace


def lately(trace, t):
    """The numbers that the panel shows at `t`."""
    return traffic(trace, max(0, t - recent_ns(trace)), t)


@pytest.fixture(scope="module")
def one():
    return run(lk.AsyncPS())


def test_a_limited_node_has_a_row_and_a_red_mark_at_its_limit():
    cluster = lk.SimulatedCluster(workers=8, compute=0.1)
    faults = [lk.Limit("worker-6", "500kB/s", during=(1, 3)), lk.Limit("worker-6", "1MB/s")]
    trace = lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=4), faults=faults).wait().trace
    for second, limit in ((0.9, 1e6), (2.0, 5e5), (3.5, 1e6)):
        t = round(second * NANO)
        found = rows(trace, t)
        assert {row.name: row.limit for row in found if row.limit is not None} == {"w6": limit}
        panel = make_panel("links")
        bare_figure(panel)
        panel.update(trace, t)
        k = [row.name for row in found].index("w6")
        marks = [path.vertices for path in panel.bars.get_paths() if path.vertices[0][0] > 0]
        assert [(round(mark[0][0], 3), round(mark[:, 1].mean())) for mark in marks] == [(limit / 1e6, k)]
        assert f"limited to {bytes_text(limit)}/s" in panel.readout(trace, t, 0.0, float(k))


def busy(trace, name, first, last, into):
    """Nanoseconds of [first, last] in which the link of a node was busy: message by message, from the network model."""
    cluster, role, total = trace.header.cluster, trace.roles.index(name), 0.0
    for row in trace.tables["messages"].rows().tolist():
        receiver, sender, _, category, size, _, received = row
        if category == TRAINING and (receiver if into else sender) == role:
            end = received - (0 if into else round(cluster.latency * NANO))
            total += max(0.0, min(end, last) - max(end - size / cluster.bandwidth * NANO, first))
    return total


def test_link_utilization_is_the_share_of_busy_time(one):
    for t in (300_000_000, 1_234_567_891, 2_500_000_000, one.now):
        first = max(0, t - recent_ns(one))
        rates = traffic_by_node(one, lately(one, t))
        for role, (into, out) in rates.items():
            for rate, inward in ((into, True), (out, False)):
                held = busy(one, one.roles[role], first, t, inward)
                assert rate / 3e6 == pytest.approx(held / (t - first), abs=1e-6)
                assert rate <= 3e6 * (1 + 1e-6)  # to whole nanoseconds


def test_one_server_saturates_its_link_and_shards_and_a_ring_do_not(one):
    def use(trace):
        found = {
            trace.roles[r]: max(pair) / 3e6 for r, pair in traffic_by_node(trace, lately(trace, trace.now)).items()
        }
        return max(found.values()), {name: value for name, value in found.items() if name.startswith("worker")}

    full, workers = use(one)
    assert full > 0.97
    assert max(workers.values()) < 0.25
    sharded, _ = use(run(lk.AsyncPS(), servers=3))
    assert sharded < 0.7
    ring, equal = use(run(lk.RingAllReduce()))
    assert ring < 0.5
    assert max(equal.values()) - min(equal.values()) < 0.05


def test_traffic_within_a_node_and_outside_training_is_left_out():
    trace = handmade()
    rates = traffic_by_node(trace, lately(trace, 2 * NANO))
    assert rates == {0: (500.0, 0.0), 1: (0.0, 500.0), 2: (0.0, 0.0)}


def test_traffic_counts_the_part_of_a_message_within_the_interval():
    trace = handmade(bandwidth=1000.0)  # 1,000 bytes that arrived at 1.5 s occupied the link for a second
    assert traffic_by_node(trace, lately(trace, NANO))[0] == pytest.approx((500.0, 0.0))
    assert lately(trace, NANO).out.sum() == pytest.approx(500.0)


def handmade(bandwidth=None, engine="simulated"):
    """A server and two workers; worker-1 shares the chief's machine. Of four messages one counts."""
    roles = {"server-0": "a", "worker-0": "b", "worker-1": "c", "chief": "c"}
    trace = Trace(header_of(*roles, nodes=roles.values(), engine=engine, bandwidth=bandwidth))
    server, chief = Recorder(0), Recorder(3)
    server.span(0, 0, NANO // 8)  # time scale of this run: the window is 2 s
    server.messages.extend((1, 0, TRAINING, 1000, NANO // 2, 3 * NANO // 2))
    server.messages.extend((1, 0, TRAINING, 7000, 3 * NANO, 4 * NANO))  # later
    chief.messages.extend((0, 0, EVALUATION, 5000, 0, 0))
    chief.messages.extend((2, 0, TRAINING, 5000, NANO, NANO))  # does not leave its machine
    for recorder in (server, chief):
        trace.append(recorder.take(4 * NANO))
    return trace


def test_messages_that_were_not_reported_are_made_up_for_by_what_the_senders_have_counted():
    trace = handmade(engine="dask")
    assert traffic_by_node(trace, lately(trace, 2 * NANO)) == {0: (500.0, 0.0), 1: (0.0, 500.0), 2: (0.0, 0.0)}
    sender = Recorder(1)
    sender.counters.bytes[TRAINING] = 24_000  # of which 8,000 are in the rows
    trace.append(sender.take(4 * NANO) | {"skipped": {"messages": 16}})
    assert traffic_by_node(trace, lately(trace, 2 * NANO)) == {0: (1500.0, 0.0), 1: (0.0, 1500.0), 2: (0.0, 0.0)}
    assert "estimated" in make_panel("links").caption(trace, 2 * NANO)


def test_workers_that_are_not_shown_alone_are_shown_as_their_mean():
    trace = run(lk.AsyncPS(), seconds=1.0, workers=50, slow={"worker-33": 5}, bandwidth=1e8)
    found, rates = rows(trace, trace.now), traffic_by_node(trace, lately(trace, trace.now))
    assert [row.name for row in found if row.colour == "slowed"] == ["w33"]
    assert len(found) <= 6
    workers = [row for row in found if row.name != "server"]
    assert workers[-1].name == f"{50 - len(workers) + 1} others"
    total = sum(row.into * (50 - len(workers) + 1 if "others" in row.name else 1) for row in workers)
    assert total == pytest.approx(sum(into for role, (into, _) in rates.items() if trace.kinds[role] == "worker"))


def test_the_picture_has_the_bandwidth_in_red_and_the_share_beside_each_bar(one):
    panel = make_panel("links")
    bare_figure(panel)
    panel.update(one, None)
    assert panel.link_text.get_text().strip() == "bandwidth: 3 MB/s"
    assert panel.link.get_xdata()[0] == 3.0
    assert panel.words[0].get_text().startswith(("98%", "99%", "100%"))
    right = max(box.vertices[:, 0].max() for box in panel.bars.get_paths())
    assert right == pytest.approx(3.0, rel=0.03)
    free = run(lk.AsyncPS(), seconds=1.0, bandwidth=float("inf"))
    panel.update(free, None)
    assert panel.link_text.get_text() == ""
    assert panel.words[0].get_text().endswith("MB/s")


def test_the_rate_text_of_a_row():
    assert rate_text(340.0, 341.0, 1000.0) == "34%"
    assert rate_text(340.0, 120.0, 1000.0) == "34% in, 12% out"
    assert rate_text(2e6, 1.98e6, None) == "2 MB/s"
    assert rate_text(2e6, 4e5, None) == "2 MB/s in, 400 kB/s out"
    assert [share_text(x) for x in (0.0, 0.0003, 0.003, 0.0149, 1.0)] == ["0%", "0%", "0.3%", "1%", "100%"]
    assert [bytes_text(x) for x in (0, 999, 999.9, 1234, 5e6, 2.5e9)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.23 kB",
        "5 MB",
        "2.5 GB",
    ]


def test_past_traffic_is_unchanged_by_later_rows():
    cluster = lk.SimulatedCluster(workers=3, compute=lk.distributions.LogNormal(0.1, 0.2), latency=0.01, bandwidth=1e6)
    early, late = (lk.train(TIMING, lk.AsyncPS(), cluster, lk.Budget(seconds=3)).advance(s) for s in (1.0, 2.0))
    for t in (10**9, 6 * 10**8):
        one, other = lately(early.trace, t), lately(late.trace, t)
        assert np.sort(one.into).tolist() == np.sort(other.into).tolist()
