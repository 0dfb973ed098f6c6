"""Derived numbers compared with sums over all rows ever appended; cursors compared with fresh objects."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.trace import Recorder, Trace, ledger
from labkit.trace.index import Lookup
from labkit.trace.query import (
    Cumulative,
    StalenessCounts,
    StalenessHistory,
    bytes_sent_until,
    in_flight,
    last_reported,
    mean_staleness,
    rates,
    reports,
    samples_per_update,
    staleness_between,
    traffic,
)  # fmt: skip
from labkit.trace.schema import COMPUTE, NANO, TRAINING, UNKNOWN
from tests.headers import header_of

WORKERS = 3


def empty(servers=1, keep=4_000_000, copies=""):
    """An empty trace of a parameter server: servers, then three workers."""
    names = [f"server-{i}" for i in range(servers)] + [f"worker-{i}" for i in range(WORKERS)]
    return Trace(header_of(*names, replication=copies, engine="dask"), keep)


@dataclass
class Server:
    """A scripted server: applies, reports, is restored from the state of an earlier version."""

    trace: Trace
    role: int
    clock: int = 0
    incarnation: int = 0
    held: list[tuple[int, int]] = field(default_factory=list)  # (sender, gradients) of each version
    # (ns, sender, gradients, held after it): all ever
    done: list[tuple[int, int, int, int]] = field(default_factory=list)
    reported: list[tuple[int, int, int]] = field(default_factory=list)  # (ns, done by then, held by then)
    simulated: bool = False  # batches of a simulated run have no rows of progress

    def __post_init__(self):
        self._begin()

    def _begin(self):
        self.recorder = Recorder(self.role, self.incarnation, roles=len(self.trace.roles))
        counters = self.recorder.counters
        counters.shard = self.role
        counters.gradients = sum(count for _, count in self.held)
        counters.samples = 10 * counters.gradients
        counters.updates = counters.version = len(self.held)
        for sender, count in self.held:
            before, _ = counters.applied.get(sender, [0, 0])
            counters.applied[sender] = [before + count, before + count - 1]

    def apply(self, wait, sender, count, stale=0):
        self.clock += wait
        self.held.append((sender, count))
        counters, version = self.recorder.counters, len(self.held)
        counters.updates = counters.version = version
        step = counters.applied.get(sender, [0, -1])[1] + count
        self.recorder.apply(self.role, self.clock, sender, step, count, 10 * count, stale, version)
        self.done.append((self.clock, sender, count, sum(n for _, n in self.held)))

    def report(self):
        self.trace.append(self.recorder.take(self.clock, plain=not self.simulated))
        self.reported.append((self.clock, len(self.done), sum(count for _, count in self.held)))

    def restore(self, version):
        self.clock += 1
        self.incarnation += 1
        self.held = self.held[:version]
        self._begin()
        self.recorder.restored(self.clock)

    def gross(self, t, sender=None):
        """All gradients applied by `t`."""
        return sum(count for time, who, count, _ in self.done if time <= t and sender in (None, who))

    def net(self, t):
        """Gradients held after its last application by `t`."""
        return ([0] + [held for time, _, _, held in self.done if time <= t])[-1]


WORKER = st.integers(0, WORKERS - 1)
APPLY = st.tuples(st.just("apply"), st.integers(0, 9), WORKER, st.integers(1, 3))
RESTORE = st.tuples(st.just("restore"), st.integers(0, 12))
PARTS = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.one_of(APPLY, APPLY, APPLY, RESTORE), max_size=6)), min_size=1, max_size=8
)  # actions of servers between two reports
MOMENTS = st.lists(st.integers(0, 120), min_size=1, max_size=4)


def play(servers, part):
    which, actions = part
    server = servers[which % len(servers)]
    for kind, *more in actions:
        if kind == "apply":
            wait, sender, count = more
            server.apply(wait, len(servers) + sender, count)
        else:
            server.report()  # gradients applied before it was lost are known
            server.restore(min(more[0], len(server.held)))
    server.report()


def last(series):
    return float(series.total[-1]) if len(series.total) else 0.0


@settings(max_examples=80, deadline=None)
@given(PARTS, MOMENTS, st.integers(1, 2))
def test_gross_counts_everything_that_was_ever_applied_and_net_what_is_held(parts, moments, count):
    trace = empty(count)
    servers = [Server(trace, k) for k in range(count)]
    followed, samples = Cumulative(), Cumulative("samples")
    for part in parts:
        play(servers, part)
        for t in (*moments, trace.now):
            gross = sum(server.gross(t) for server in servers) / count
            assert last(followed.gross(trace, t)) == pytest.approx(gross)
            assert last(samples.gross(trace, t)) == pytest.approx(10 * gross)
            assert last(followed.net(trace, t)) == pytest.approx(sum(server.net(t) for server in servers) / count)
            for sender in range(count, count + WORKERS):
                own = sum(server.gross(t, sender) for server in servers) / count
                assert last(followed.gross(trace, t, sender)) == pytest.approx(own)
            for mine, new in ((followed.gross(trace, t), Cumulative().gross(trace, t)), (
                followed.gross(trace, t, count), Cumulative().gross(trace, t, count)
            )):  # fmt: skip
                assert mine.time.tolist() == new.time.tolist()
                assert mine.total == pytest.approx(new.total)
    assert (np.diff(followed.gross(trace, trace.now).total) >= 0).all()
    assert (rates(trace, trace.now)[1] >= 0).all()
    assert last(Cumulative().gross(empty(count), 99)) == 0 == last(followed.gross(empty(count), 99))  # another trace


@settings(max_examples=80, deadline=None)
@given(PARTS, st.sampled_from(["skipped", "spilled"]))
def test_reports_of_roles_replace_missing_rows(parts, how):
    trace = empty()
    server, followed = Server(trace, 0), Cumulative()
    if how == "spilled":
        trace.tables["applies"].keep = 4
    for which, actions in parts:
        play([server], (which, actions))
        if how == "skipped":
            trace.tables["applies"].skipped = 1
        if how == "spilled" and not trace.tables["applies"].spilled:
            continue
        for time in {time for time, _, _ in server.reported}:
            known = server.done[: max(done for t, done, _ in server.reported if t == time)]
            assert last(followed.gross(trace, time)) == pytest.approx(sum(n for _, _, n, _ in known))
            for sender in range(1, 1 + WORKERS):
                own = sum(n for _, who, n, _ in known if who == sender)
                assert last(followed.gross(trace, time, sender)) == pytest.approx(own)
        assert last(followed.net(trace, trace.now)) == server.reported[-1][2] == last_reported(trace, trace.now)
        assert followed.gross(trace, trace.now).since == 0
        assert (rates(trace, trace.now)[1] >= 0).all()


@settings(max_examples=60, deadline=None)
@given(PARTS, MOMENTS, st.integers(2, 12))
def test_remaining_rows_are_counted_when_old_ones_and_reports_are_missing(parts, moments, keep):
    trace = empty(keep=keep)
    server, followed, rows = Server(trace, 0, simulated=True), Cumulative(), []
    for _, actions in parts:
        play([server], (0, [action for action in actions if action[0] == "apply"]))
        assert not len(trace.tables["progress"])
        rows = server.done[trace.tables["applies"].spilled :]
        for t in moments:
            series = followed.gross(trace, t)
            assert last(series) == sum(count for time, _, count, _ in rows if time <= t)
            if trace.tables["applies"].spilled and len(series.time):
                assert series.since == rows[0][0]


def restored_server():
    """100 gradients in 2 s, restored from 80 of them, 30 more in the next 2 s; a report a second."""
    trace = empty()
    server = Server(trace, 0)
    for k in range(100):
        server.apply(NANO // 50, 1 + k % 2, 1)
        if k % 50 == 49:
            server.report()
    server.restore(80)
    for k in range(30):
        server.apply(NANO // 15, 1 + k % 2, 1)
        if k % 15 == 14:
            server.report()
    return trace


def test_gross_and_net_counts_of_a_restored_server_do_not_depend_on_missing_rows():
    """Regression: the narrative gave 210 (the 80 restored gradients were counted twice), and the throughput 110 (work that
    was rolled back was counted as negative).
    """
    trace = restored_server()
    for _ in range(2):
        assert last(Cumulative().gross(trace, trace.now)) == 130
        assert last(Cumulative().gross(trace, trace.now, 1)) == 65
        assert last(Cumulative().net(trace, trace.now)) == 110
        assert last(Cumulative("samples").net(trace, trace.now)) == 1100
        assert trace.counters[0].gradients == 110  # what the ledger uses
        _, rate = rates(trace, trace.now)
        assert rate.min() > 14
        trace.tables["applies"].skipped = 1
    assert [last_reported(trace, round(t * NANO)) for t in (0, 1, 2, 2.5, 3, 4)] == [None, 50, 100, 80, 95, 110]


def test_the_ledger_of_a_past_time_excludes_rolled_back_gradients():
    trace = restored_server()
    trace.tables["applies"].skipped = 1
    assert ledger(trace, round(3.5 * NANO))["applied"] == 95


def test_counts_of_a_resumed_run_begin_at_zero():
    trace = empty()
    server = Server(trace, 0)
    server.held = [(1, 1)] * 500
    server._begin()
    server.recorder.restored(0)
    server.apply(NANO, 1, 1)
    server.apply(NANO, 2, 1)
    server.report()
    for _ in range(2):
        assert last(Cumulative().gross(trace, trace.now)) == last(Cumulative().net(trace, trace.now)) == 2
        assert last(Cumulative().gross(trace, trace.now, 1)) == 1
        trace.tables["applies"].skipped = 1


def test_samples_of_an_update_are_those_that_the_model_holds():
    """If the 20 updates that were rolled back were included, an update would appear to have 130/110 of a batch."""
    trace = restored_server()
    assert samples_per_update(trace, trace.now) == 10
    trace.tables["applies"].skipped = 1
    assert samples_per_update(trace, trace.now) == 10


@pytest.mark.slow
@pytest.mark.dask
def test_gross_and_net_of_a_run_on_processes_whose_server_is_killed_and_restored():
    """The ledger and the counters of the last incarnation are the oracle of net; the rows, each an application, of gross."""
    with lk.DaskCluster(
        workers=2, servers=1, pace=lk.distributions.Deterministic(0.02), checkpoint_every=1.0
    ) as cluster:
        run = lk.train(
            "moons", lk.AsyncPS(), cluster, lk.Budget(seconds=5), faults=[lk.Kill("server-0", at=2.3)]
        ).wait()
        trace = run.trace
    assert len(trace.instances) > len(trace.counters)  # it was restored
    applied = int(trace.column("applies", "count").sum())
    begun = reports(trace, 0)
    before, again = trace.instances[0].gradients, int(begun.gradients[begun.restored][0])
    assert begun.restored.sum() == 1
    assert (begun.time > 0).all()
    for _ in range(2):  # from rows, then from reports
        assert last(Cumulative().gross(trace, trace.now)) == applied == before + trace.counters[0].gradients - again
        assert last(Cumulative().net(trace, trace.now)) == trace.counters[0].gradients
        assert last(Cumulative().gross(trace, trace.now, 1)) + last(Cumulative().gross(trace, trace.now, 2)) == applied
        trace.tables["applies"].skipped = 1
    assert last_reported(trace, trace.now) == trace.counters[0].gradients
    assert ledger(trace)["applied"] <= trace.counters[0].gradients  # the snapshot that was evaluated may be older


# staleness ----------------------------------------------------------------------------------------------------------

STALE = st.lists(
    st.lists(st.tuples(st.integers(0, 9), WORKER, st.integers(1, 3), st.integers(UNKNOWN, 6)), max_size=8), max_size=6
)


@settings(max_examples=80, deadline=None)
@given(STALE, MOMENTS)
def test_staleness_as_of_any_moment_is_counted_over_all_rows(batches, moments):
    trace = empty()
    server, followed, course, lookup = Server(trace, 0), StalenessCounts(), StalenessHistory(), Lookup()
    rows = []
    for batch in batches:
        for wait, sender, count, stale in batch:
            server.apply(wait, 1 + sender, count, stale)
            rows.append((server.clock, 1 + sender, count, stale))
        server.report()
        for t in (*moments, *moments[::-1]):
            values = sorted(s for time, _, n, s in rows if time <= t and s != UNKNOWN for _ in range(n))
            found = followed.at(trace, t)
            assert found == StalenessCounts().at(trace, t)
            assert found["histogram"] == {str(v): values.count(v) for v in sorted(set(values))}
            assert found["unknown"] == sum(n for time, _, n, s in rows if time <= t and s == UNKNOWN)
            if values:
                assert found["mean"] == pytest.approx(np.mean(values))
                assert found["max"] == max(values)
                assert found["p95"] == values[int(np.ceil(0.95 * len(values))) - 1]
            sender, stale, count = staleness_between(trace, t // 2, t, lookup)
            kept = [(w, s, n) for time, w, n, s in rows if t // 2 <= time <= t and s != UNKNOWN]
            assert list(zip(sender.tolist(), stale.tolist(), count.tolist())) == kept
        seconds, mean, low, high, *own = course.intervals(trace, 10, trace.now, 2, [1])
        fresh = StalenessHistory().intervals(trace, 10, trace.now, 2, [1])
        for a, b in zip((seconds, mean, low, high, *own), fresh):
            assert np.array_equal(a, b, equal_nan=True)
        for x, average in zip(seconds, mean):
            end = round(x * NANO)
            inside = [s for time, _, n, s in rows if end - 20 <= time < end and s != UNKNOWN for _ in range(n)]
            assert average == pytest.approx(np.mean(inside))


def test_mean_staleness_of_some_and_of_all_others():
    trace = empty()
    server = Server(trace, 0)
    for sender, stale in ((1, 9), (2, 1), (3, 3), (1, 5), (2, UNKNOWN)):
        server.apply(10, sender, 1, stale)
    server.report()
    assert mean_staleness(trace, (0, 50), [1]) == (7.0, 2.0)
    assert mean_staleness(trace, (10, 50), [1]) == (5.0, 2.0)
    assert mean_staleness(trace, (10, 30), [1]) is None
    assert mean_staleness(trace, None, [1]) is None


# messages -----------------------------------------------------------------------------------------------------------

SENT = st.lists(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20), WORKER, st.integers(0, 2), st.integers(1, 99)), max_size=9),
    max_size=6,
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(SENT, MOMENTS)
def test_bytes_messages_and_traffic_as_of_any_moment(batches, moments):
    trace = empty()
    followed, lookup, rows = Cumulative("bytes"), Lookup(), []
    with mock.patch("labkit.trace.index.SIZE", 4):
        for batch in batches:
            recorder = Recorder(0)
            for sent, took, worker, category, size in batch:
                recorder.messages.extend((1 + worker, 0, category, size, sent, sent + took))
                rows.append((1 + worker, category, size, sent, sent + took))
            trace.append(recorder.take(121))
            trained = [row for row in rows if row[1] == TRAINING]
            for t in (*moments, *moments[::-1]):
                assert last(followed.gross(trace, t)) == sum(size for _, _, size, sent, _ in trained if sent <= t)
                assert in_flight(trace, t, lookup) == sum(sent <= t < there for _, _, _, sent, there in trained)
                if rows and t < 121:
                    assert bytes_sent_until(trace, t) == sum(size for _, _, size, sent, _ in rows if sent <= t)
                moved = traffic(trace, t // 2, t, lookup)
                into = sum(size for _, _, size, _, there in trained if t // 2 < there <= t)
                assert moved.into.sum() == pytest.approx(into)


def test_messages_that_were_skipped_are_made_up_for_by_what_is_kept():
    trace = empty()
    lookup = Lookup()
    for k in range(4):
        recorder = Recorder(0)
        recorder.messages.extend((1, 0, TRAINING, 100, 10 * k, 10 * k + 5))
        trace.append(recorder.take(50))
        assert lookup.training_bytes(trace)[1] == 100 * (k + 1)
    assert lookup.training_bytes(empty()).sum() == 0


# spans --------------------------------------------------------------------------------------------------------------


def test_rates_of_a_steady_run_do_not_depend_on_what_was_asked_before():
    trace = empty()
    server, followed = Server(trace, 0), Cumulative()
    for k in range(300):
        server.apply(NANO // 100, 1 + k % 3, 1)
        if k % 20 == 19:
            server.report()
            for t in (trace.now, trace.now // 2):
                for sender in (None, 2):
                    one, other = rates(trace, t, sender, followed), rates(trace, t, sender)
                    assert np.array_equal(one[0], other[0])
                    assert one[1] == pytest.approx(other[1])
    assert rates(trace, trace.now)[1] == pytest.approx(np.full(100, 100.0), rel=1e-6)
    assert rates(trace, trace.now, 2)[1] == pytest.approx(np.full(100, 100 / 3), rel=0.05)


def test_an_index_finds_spans_in_a_table_that_spills():
    trace, lookup, ends = empty(), Lookup(), []
    trace.tables["spans"].keep = 40
    with mock.patch("labkit.trace.index.SIZE", 4):
        for k in range(30):
            recorder = Recorder(1 + k % 3)
            for i in range(5):
                ends.append(100 * k + 10 * i + 5)
                recorder.span(COMPUTE, ends[-1] - 5, ends[-1], k)
            trace.append(recorder.take(ends[-1]))
            kept = ends[trace.tables["spans"].spilled :]
            for first in (0, 100 * k - 120, 100 * k):
                found = lookup.spans.between(trace, first, first + 90)["end"].tolist()
                assert found == [end for end in kept if first <= end <= first + 90]
            assert lookup.spans.until(trace, [50 * k]) == [bisect_right(kept, 50 * k)]
    assert trace.tables["spans"].spilled
