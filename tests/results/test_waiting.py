"""Waiting for some of the workers (K-sync, backup workers, SSP), in virtual time.

Step times with exponential compute are order statistics. These runs compute no gradients, so they can be long enough
for an accuracy of 2%.
"""

import heapq

import numpy as np
import pytest

import labkit as lk
from labkit.engines.distributions import Sampler
from labkit.random_streams import COMPUTE_TIME, role_stream
from labkit.trace import ledger, query

pytestmark = pytest.mark.sample(4, slow=4)

TIMING = lk.Problem("moons", hidden=(), timing_only=True)


def run(strategy, updates, **cluster):
    return lk.train(TIMING, strategy, lk.SimulatedCluster(**cluster), lk.Budget(updates=updates)).wait().trace


def harmonic(n):
    return sum(1 / k for k in range(1, n + 1))


def a_step(trace):
    """Mean seconds of a step: the last update's time over their number."""
    return trace.column("applies", "time").max() / 1e9 / query.updates(trace)


# K-sync and backup workers --------------------------------------------------------------------------------------------


@pytest.mark.sample(slow=1)
@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_k_sync_and_k_batch_sync_save_the_waiting_of_the_formula(servers):
    """P = 8, K = 4: H_8 - H_4 = .6345, and 4/8."""
    setup = {"workers": 8, "servers": servers, "compute": lk.distributions.Exponential(1.0)}
    one, many = run(lk.KSync(K=4), 2000, **setup), run(lk.KBatchSync(K=4), 2000, **setup)
    assert harmonic(8) - harmonic(4) == pytest.approx(0.6345, abs=5e-5)
    assert a_step(one) == pytest.approx(harmonic(8) - harmonic(4), rel=0.042)  # four standard errors
    assert a_step(many) == pytest.approx(0.5, rel=0.042)
    for trace in (one, many):
        assert query.staleness(trace)["max"] == 0
        entries = ledger(trace)
        assert entries["closes"]
        assert entries["applied"] == 4 * query.updates(trace)


def test_k_sync_learners_of_a_step_are_distinct_and_those_of_k_batch_sync_need_not_be():
    setup = {"workers": 6, "compute": lk.distributions.Exponential(1.0)}
    for strategy, distinct in ((lk.KSync(K=3), True), (lk.KBatchSync(K=3), False), (lk.BackupWorkers(b=3), True)):
        version, sender = run(strategy, 300, **setup).column("applies", "version", "sender")
        steps = [sender[version == v].tolist() for v in range(1, 301)]
        assert {len(s) for s in steps} == {3}
        assert all(s == sorted(s) for s in steps)  # added in the order of the workers
        assert all(len(set(s)) == 3 for s in steps) == distinct


def test_k_of_all_is_synchronous_and_one_backup_less_is_k_less():
    setup = {"workers": 4, "compute": lk.distributions.Exponential(1.0)}
    sync, k_sync = run(lk.SyncPS(), 100, **setup), run(lk.KSync(K=4), 100, **setup)
    assert np.array_equal(sync.column("applies", "time"), k_sync.column("applies", "time"))
    backup, k_sync = run(lk.BackupWorkers(b=1), 100, **setup), run(lk.KSync(K=3), 100, **setup)
    assert np.array_equal(backup.tables["applies"].rows(), k_sync.tables["applies"].rows())
    assert np.array_equal(backup.tables["drops"].rows(), k_sync.tables["drops"].rows())


@pytest.mark.slow
def test_waiting_for_96_of_100_workers_is_as_fast_as_the_formula():
    """H_100 - H_4 = 3.1040 against H_100 = 5.1874 for all: 1.671 times as fast."""
    setup = {"workers": 100, "compute": lk.distributions.Exponential(1.0)}
    some, all_ = a_step(run(lk.BackupWorkers(b=4), 250, **setup)), a_step(run(lk.BackupWorkers(b=0), 250, **setup))
    assert harmonic(100) - harmonic(4) == pytest.approx(3.1040, abs=5e-5)
    assert some == pytest.approx(harmonic(100) - harmonic(4), rel=0.028)  # three standard errors
    assert all_ == pytest.approx(harmonic(100), rel=0.048)
    assert all_ / some == pytest.approx(1.671, rel=0.033)


def ignoring_the_late(workers, needed, draws, steps):
    """Times of the steps, shape (steps,), if a late worker finishes its gradient and then reads the newest weights: a
    plain
    heap of end times. `draws[w]`: durations of worker w, one after the other.
    """
    ends = [(next(draws[w]), w, 0) for w in range(workers)]  # (end time, worker, the version that it computes on)
    heapq.heapify(ends)
    version, came, idle, made = 0, 0, [], []
    while len(made) < steps:
        now, worker, on = heapq.heappop(ends)
        if on < version:  # late: dropped, and on to the newest weights
            heapq.heappush(ends, (now + next(draws[worker]), worker, version))
            continue
        came += 1
        idle.append(worker)
        if came == needed:
            version, came = version + 1, 0
            made.append(now)
            for one in idle:
                heapq.heappush(ends, (now + next(draws[one]), one, version))
            idle = []
    return made


def drawn(workers, seed=0):
    """Each worker's own stream of durations, as the cluster draws them."""

    def forever(w):
        sampler = Sampler(lk.distributions.Exponential(1.0), role_stream(seed, "worker", w, COMPUTE_TIME))
        while True:
            yield sampler.next()

    return [forever(w) for w in range(workers)]


def test_backup_workers_without_cancellation_equal_the_heap_model():
    """`give_up=False`, as on a cluster that cannot interrupt: equal to the heap model to the nanosecond; steps are
    longer than
    the paper's (a late worker is late for the next step, too), but shorter than waiting for all.
    """
    workers, b, steps = 8, 2, 400
    setup = {"workers": workers, "compute": lk.distributions.Exponential(1.0)}
    stubborn = run(lk.BackupWorkers(b=b, give_up=False), steps, **setup)
    times = np.unique(stubborn.column("applies", "time")).tolist()
    assert times == ignoring_the_late(workers, workers - b, drawn(workers), steps)
    prompt, patient = run(lk.BackupWorkers(b=b), steps, **setup), run(lk.BackupWorkers(b=0), steps, **setup)
    assert a_step(prompt) < a_step(stubborn) < a_step(patient)
    entries = ledger(stubborn)
    assert entries["closes"]
    assert set(entries["dropped"]) == {"late"}
    assert set(ledger(prompt)["dropped"]) == {"cancelled"}


# SSP without slack ----------------------------------------------------------------------------------------------------


def clocks_at_starts(trace):
    """[(worker, its clock, the slowest clock)] at every iteration start, by the workers' own spans: a worker completes
    an iteration when its compute span ends.
    """
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    workers = trace.role_ids("worker")
    ends = {w: np.sort(end[(role == w) & (phase == 0)]) for w in workers}
    starts = []
    for w in workers:
        for own, began in enumerate(np.sort(start[(role == w) & (phase == 0)])):
            starts.append((w, own, min(int((ends[v] <= began).sum()) for v in workers)))
    return starts


def seen_at_reads(trace, shard_role):
    """[(worker, iteration, {worker: updates of it in what was read})], from the shard's own log: the version that a
    gradient was computed on, and whose gradients the versions up to that one are.
    """
    role, sender, step, stale, version = trace.column("applies", "role", "sender", "step", "staleness", "version")
    mine = role == shard_role
    order = np.argsort(version[mine])
    sender, step, stale, version = (c[mine][order] for c in (sender, step, stale, version))
    rows = []
    for who, iteration, behind, v in zip(sender.tolist(), step.tolist(), stale.tolist(), version.tolist()):
        read = v - 1 - behind
        before = sender[:read]
        rows.append((who, iteration, {w: int((before == w).sum()) for w in trace.role_ids("worker")}))
    return rows


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("s", [0, 1, 3])
@pytest.mark.parametrize("network", [{}, {"latency": 0.003, "bandwidth": 5e4}], ids=["free", "slow network"])
def test_no_worker_of_ssp_is_more_than_s_ahead_and_reads_contain_all_up_to_clock_i_minus_s_minus_1(s, servers, network):
    trace = run(
        lk.SSP(s=s),
        300,
        workers=5,
        servers=servers,
        compute=lk.distributions.LogNormal(0.01, 0.8),
        slow={"worker-1": 4.0},
        **network,
    )
    starts = clocks_at_starts(trace)
    assert max(own - slowest for _, own, slowest in starts) == s  # never more; and the bound is used
    for shard in range(servers):
        for who, i, seen in seen_at_reads(trace, shard):
            assert all(updates >= i - s for updates in seen.values())  # iterations 0 .. i - s - 1 of all workers
            assert seen[who] == i  # and all of the reader
    left, right = query.staleness_identity(trace, 0)
    assert left == right
    assert query.staleness(trace)["max"] <= 4 * (2 * s + 1)  # (N-1)(2s+1) updates


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("latency", [0.0, 0.004])
def test_ssp_without_slack_is_the_synchronous_sum(seed, servers, latency):
    """The same iteration starts, the same updates in every read, and with plain SGD the same parameters."""
    problem = lk.Problem("moons", hidden=(6,), batch_size=8, dtype="float64", options={"samples": 200})
    setup = {
        "workers": 4, "servers": servers, "compute": lk.distributions.LogNormal(0.01, 0.7), "slow": {"worker-2": 3.0},
        "latency": latency,
    }  # fmt: skip

    def trained(strategy, updates):
        return lk.train(problem, strategy, lk.SimulatedCluster(**setup), lk.Budget(updates=updates), seed=seed).wait()

    ssp, sync = trained(lk.SSP(s=0, learning_rate=0.05), 160), trained(lk.SyncPS(learning_rate=0.05, reduce="sum"), 40)
    starts = [clocks_at_starts(r.trace) for r in (ssp, sync)]
    spans = []
    for one in (ssp, sync):
        role, phase, start, end = one.trace.column("spans", "role", "phase", "start", "end")
        worker = np.isin(role, one.trace.role_ids("worker")) & (phase == 0)
        spans.append(sorted(zip(start[worker].tolist(), end[worker].tolist(), role[worker].tolist())))
    common = min(map(len, spans))
    assert common >= 4 * 39
    assert spans[0][:common] == spans[1][:common]
    assert all(own == slowest for of_run in starts for _, own, slowest in of_run)
    for shard in range(servers):
        for _, i, seen in seen_at_reads(ssp.trace, shard):
            assert set(seen.values()) == {i}  # exactly i updates of each worker: what a synchronous read at i has
    np.testing.assert_allclose(ssp.result().parameters, sync.result().parameters, rtol=0, atol=1e-12)


def same_events(a, b):
    """Assert that two traces are equal in every table and counter, event for event."""
    for name in ("spans", "applies", "drops"):
        assert np.array_equal(a.tables[name].rows(), b.tables[name].rows()), name
    text = []
    for trace in (a, b):  # each strategy numbers its kinds of messages
        *columns, kind = trace.column("messages", "role", "sender", "category", "bytes", "sent", "received", "kind")
        text.append([*map(np.ndarray.tolist, columns), [trace.header.messages[k] for k in kind.tolist()]])
    assert text[0] == text[1]
    assert {i: c.to_dict() for i, c in a.counters.items()} == {i: c.to_dict() for i, c in b.counters.items()}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    "strategy", [lk.SSP(s=1_000_000), lk.KAsync(K=1), lk.KBatchAsync(K=1)], ids=["SSP", "KAsync", "KBatchAsync"]
)
@pytest.mark.parametrize(
    "compute", [lk.distributions.Deterministic(0.01), lk.distributions.Exponential(0.01)], ids=["equal", "random"]
)
def test_ssp_without_bound_and_k_of_one_are_the_asynchronous_server(strategy, servers, compute):
    setup = {
        "workers": 5, "servers": servers, "compute": compute, "server_time": 0.001, "latency": 0.002, "bandwidth": 1e5,
    }  # fmt: skip
    same_events(run(strategy, 200, **setup), run(lk.AsyncPS(), 200, **setup))


def test_the_bound_of_ssp_may_change_during_a_run():
    """s = 3, then 0, then 2: a worker that is ahead is blocked until the others have caught up; then the new bound
    holds.
    """
    cluster = lk.SimulatedCluster(workers=4, compute=lk.distributions.LogNormal(0.01, 0.8), slow={"worker-1": 5.0})
    run = lk.train(TIMING, lk.SSP(s=3), cluster, lk.Budget(seconds=6.0))
    run.advance(2.0).set(s=0).advance(2.0).set(s=2).wait()
    role, phase, start = run.trace.column("spans", "role", "phase", "start")
    mine = np.isin(role, run.trace.role_ids("worker")) & (phase == 0)
    ahead = {}
    for who, own, slowest in clocks_at_starts(run.trace):
        began = np.sort(start[mine & (role == who)])[own]
        ahead.setdefault(0 if began <= 2e9 else 1 if 2.5e9 < began <= 4e9 else 2 if began > 4e9 else None, []).append(
            own - slowest
        )
    assert [max(ahead[part]) for part in (0, 1, 2)] == [3, 0, 2]
    with pytest.raises(lk.BadInput, match="over"):
        run.set(s=1)


def test_a_bound_that_is_none_is_refused_live_too():
    started = lk.train(TIMING, lk.SSP(), lk.SimulatedCluster(), lk.Budget(updates=5))
    with pytest.raises(lk.BadInput, match=r"s=-1 is not allowed; s is a whole number from 0"):
        started.set(s=-1)
    started.stop()


# throughput of SSP ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_throughput_grows_with_s_from_synchronous_to_asynchronous():
    """Common random numbers, N = 8, exponential compute: from N/H_N to N gradients a second, never less with more s."""
    seconds, workers = 400, 8
    rates = []
    for s in (0, 1, 2, 3, 5, 8, 15, 30, 100, 1_000_000):
        cluster = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Exponential(1.0))
        trace = lk.train(TIMING, lk.SSP(s=s), cluster, lk.Budget(seconds=seconds)).wait().trace
        rates.append(query.updates(trace) / seconds)
    assert rates == sorted(rates)
    assert len(set(rates)) >= 8  # and they do grow
    assert rates[0] == pytest.approx(workers / harmonic(workers), rel=0.05)
    assert rates[-1] == pytest.approx(workers, rel=0.05)
    free = lk.SimulatedCluster(workers=workers, compute=lk.distributions.Exponential(1.0))
    bare = lk.train(TIMING, lk.AsyncPS(), free, lk.Budget(seconds=seconds)).wait().trace
    assert rates[-1] == query.updates(bare) / seconds


@pytest.mark.parametrize("s", [0, 1, 4])
def test_a_worker_that_is_always_slow_sets_the_pace_whatever_s_is(s):
    """Slack compensates short delays, not a slow machine: in the long run all workers run at the pace of the slowest."""
    trace = run(lk.SSP(s=s), 600, workers=4, compute=0.01, slow={"worker-2": 10.0})
    assert a_step(trace) == pytest.approx(0.1 / 4, rel=0.05)


# K-async --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 3, 5])
def test_k_async_learners_of_a_step_are_distinct(k):
    version, sender = run(lk.KAsync(K=k), 300, workers=5, compute=lk.distributions.Exponential(1.0)).column(
        "applies", "version", "sender"
    )
    for v in range(1, 301):
        assert len(set(sender[version == v].tolist())) == k == (version == v).sum()


@pytest.mark.sample(2, slow=6)
@pytest.mark.parametrize(
    "compute",
    [lk.distributions.Exponential(0.01), lk.distributions.LogNormal(0.01, 1.0)],
    ids=["exponential", "lognormal"],
)
@pytest.mark.parametrize(
    "server_time", [None, lk.distributions.Exponential(0.0005)], ids=["free server", "slow server"]
)
@pytest.mark.parametrize(("workers", "k"), [(4, 2), (8, 3), (8, 8), (3, 5)])
def test_staleness_of_k_async_and_k_batch_async_is_a_conservation_law(workers, k, compute, server_time):
    """Every step adds one to the staleness of each gradient in flight and applies K of them. K-batch-async: all P but
    the one whose
    push makes the step are in flight: (P-1)/K on average. K-async: P - K are, so (P-K)/K. No statistics: the only
    difference is what is still outstanding at the end.
    """
    updates, setup = (
        1500,
        {"workers": workers, "compute": compute, "server_time": server_time, "slow": {"worker-0": 3.0}},
    )
    for strategy, under_way in ((lk.KBatchAsync(K=k), workers - 1), (lk.KAsync(K=min(k, workers)), None)):
        trace = run(strategy, updates, **setup)
        if under_way is None:
            under_way = workers - strategy.K
        stale, sender, version = trace.column("applies", "staleness", "sender", "version")
        assert np.array_equal(np.bincount(version)[1:], np.full(updates, strategy.K))
        total = int(stale.sum())
        if server_time is None:
            # a worker's last read was at the step of its last push, or one before it if it was answered at once
            last = {who: int(version[sender == who].max()) for who in set(sender.tolist())}
            most = sum(updates - v + 1 for v in last.values()) + (workers - len(last)) * updates
            assert under_way * updates - most <= total <= under_way * updates
        assert total / (strategy.K * updates) == pytest.approx(under_way / strategy.K, rel=0.03, abs=0.01)
    if k <= workers:
        left, right = query.staleness_identity(trace, 0)  # of KAsync: each read is followed by one gradient
        assert left == right == total


# refused before anything starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda: lk.KSync(K=5), {}, r"KSync\(K=5\) with workers=4: K is at most 4 here"),
        (lambda: lk.KAsync(K=5), {}, r"KAsync\(K=5\) with workers=4: K is at most 4 here"),
        (lambda: lk.BackupWorkers(b=4), {}, r"BackupWorkers\(b=4\) with workers=4: b is at most 3 here"),
        (lambda: lk.KAsync(K=2), {"servers": 3}, r"KAsync\(K=2\) with servers=3: at most 2 servers"),
        (lambda: lk.SSP(s=-1), {}, r"SSP: s=-1 is not allowed; s is a whole number from 0 to"),
        (lambda: lk.SSP(s=1.5), {}, r"SSP: s=1\.5 is not allowed"),
        (lambda: lk.KSync(K=0), {}, r"KSync: K=0 is not allowed; K is a whole number from 1"),
        (lambda: lk.KBatchAsync(K=0), {}, r"KBatchAsync: K=0 is not allowed"),
        (lambda: lk.BackupWorkers(b=-1), {}, r"BackupWorkers: b=-1 is not allowed; b is a whole number from 0"),
        (lambda: lk.BackupWorkers(give_up=1), {}, r"give_up=1 is not allowed; give_up is True or False"),
        (lambda: lk.SSP(), {"servers": 0}, "SSP keeps its parameters on servers and was given servers=0"),
        (lambda: lk.Downpour(n_push=0), {}, r"Downpour: n_push=0 is not allowed; n_push is a whole number from 1"),
    ],
)
def test_impossible_options_are_refused_with_the_possible_ones(make, shape, message):
    with pytest.raises(lk.BadInput, match=message):
        lk.train(TIMING, make(), lk.SimulatedCluster(workers=4, **shape), lk.Budget(updates=5))


def test_k_greater_than_the_number_of_workers_is_accepted_where_it_can_be_reached():
    """More mini-batches than workers are allowed where one worker may send several; waiting for K of all always ends."""
    for strategy, shape in (
        (lk.KBatchSync(K=9), {}), (lk.KBatchAsync(K=9), {}), (lk.KAsync(K=3), {"servers": 3}), (lk.KAsync(K=1), {"servers": 3}),
    ):  # fmt: skip
        setup = {
            "workers": 3,
            "compute": lk.distributions.Exponential(1.0),
            "server_time": lk.distributions.Exponential(0.3),
            **shape,
        }
        assert query.updates(run(strategy, 60, **setup)) == 60


def can_lock(workers, k, shards):
    """Whether all workers of K-async can wait at once, by enumerating all orders in which pushes can arrive."""
    start = ((" " * shards),) * workers  # of each worker at each shard: " " answered, "f" push in flight, "p" pending
    found, todo = {start}, [start]
    while todo:
        state, moves = todo.pop(), []
        for w, row in enumerate(state):
            if not row.strip():
                moves.append((*state[:w], "f" * shards, *state[w + 1 :]))
            for s in (s for s in range(shards) if row[s] == "f"):
                column = [(row if v == w else other)[s] for v, other in enumerate(state)]
                column[w] = "p"
                column = [" " if c == "p" and column.count("p") == k else c for c in column]
                moves.append(tuple(r[:s] + c + r[s + 1 :] for r, c in zip(state, column)))
        if not moves:
            return True
        fresh = set(moves) - found
        found |= fresh
        todo += sorted(fresh)
    return False


@pytest.mark.parametrize(
    ("workers", "k", "shards"), [(3, 2, 2), (4, 2, 2), (4, 3, 2), (3, 2, 3), (4, 3, 3), (3, 3, 3), (2, 2, 3), (3, 1, 3)]
)
def test_exactly_the_shapes_in_which_all_could_wait_for_each_other_are_refused(workers, k, shards):
    cluster = lk.SimulatedCluster(workers=workers, servers=shards)
    if can_lock(workers, k, shards):
        with pytest.raises(lk.BadInput, match="they can all wait for each other"):
            lk.KAsync(K=k).layout(TIMING, cluster)
    else:
        assert lk.KAsync(K=k).layout(TIMING, cluster).roles
