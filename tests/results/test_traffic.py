"""Bytes and time on the network: rings and servers at 8 ranks, 4,000,000 bytes, 50 us and 125 MB/s; and gradients of problems."""

import numpy as np
import pytest

import labkit as lk
from labkit.trace.query import bytes_sent

M = 4_000_000
MODEL = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": M // 4, "samples": 1})
NETWORK = {"latency": 50e-6, "bandwidth": 125e6}


def run(strategy, steps, workers=8, **cluster):
    cluster = lk.SimulatedCluster(workers=workers, compute=0.0, **NETWORK, **cluster)
    return lk.train(MODEL, strategy, cluster, lk.Budget(updates=steps)).wait().trace


def test_the_model_has_the_size_of_the_example():
    assert MODEL.objective().start(0).nbytes == M


def test_timing_only_has_the_bytes_of_the_real_thing():
    for problem in (lk.Problem("moons"), lk.Problem("moons", dtype="float64")):
        null = lk.Problem("moons", dtype=problem.dtype, timing_only=True).objective().start(0)
        assert (null.nbytes, null.dtype) == (problem.objective().start(0).nbytes, problem.dtype)


def test_a_ring_has_the_time_and_bytes_of_the_formula():
    """2(N-1)/N M bytes a worker and step; 2(N-1) latency + 2(N-1)/N M / bandwidth = 56.7 ms."""
    trace = run(lk.RingAllReduce(), 3)
    role, time = trace.column("applies", "role", "time")
    for worker in trace.role_ids("worker"):
        assert time[role == worker].tolist() == [56_700_000, 2 * 56_700_000, 3 * 56_700_000]
    sender, count, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    for worker in trace.role_ids("worker"):
        first = (sender == worker) & (sent < 56_700_000)
        assert count[first].tolist() == [M // 8] * 14
        assert set(category[first].tolist()) == {0}
        assert count[first].sum() == 7_000_000


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 16])
def test_other_rings_have_the_time_and_bytes_of_the_formula(workers):
    trace = run(lk.RingAllReduce(), 1, workers)
    chunks = np.diff([M // 4 * i // workers for i in range(workers + 1)]) * 4
    time = trace.column("applies", "time")
    if not M % (4 * workers):  # equal chunks: all in lockstep
        assert set(time.tolist()) == {2 * (workers - 1) * 50_000 + 2 * (workers - 1) * (M // workers) * 8}
    else:
        assert time.max() == pytest.approx(2 * (workers - 1) * (50_000 + M / workers * 8), rel=1e-5)
    sender, count, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    a_step = (sender == 0) & (category == 0) & (sent < time.max())
    assert count[a_step][: 2 * (workers - 1)].sum() == 2 * chunks.sum() - chunks[0] - chunks[1 % workers]


def a_step(trace, steps, who, where, per_step, more=True):
    """Bytes of training messages with `who` as `where` ("sender" or "role"), a step, over the first `steps` steps."""
    column, count, category, sent = trace.column("messages", where, "bytes", "category", "sent")
    mine = (column == who) & (category == 0) & (count > 0) & more
    in_order = count[mine][np.argsort(sent[mine], kind="stable")][: per_step * steps]
    assert len(in_order) == per_step * steps
    return in_order.sum() / steps


def test_dense_servers_have_the_time_and_bytes_of_the_formula():
    """N = 8, S = 4: a worker sends M and gets M a step; each shard gets and sends N M / S = 8,000,000."""
    trace = run(lk.SyncPS(), 5, servers=4)
    assert bytes_sent(trace)["server"]["startup"] == 8 * M
    for worker in trace.role_ids("worker"):
        assert a_step(trace, 4, worker, "sender", 4) == M
        assert a_step(trace, 4, worker, "role", 4) == M
    for server in trace.role_ids("server"):
        assert a_step(trace, 4, server, "sender", 8) == 8_000_000
        assert a_step(trace, 4, server, "role", 8) == 8_000_000


def test_one_server_receives_and_sends_for_all_workers():
    """S = 1, full duplex: N M out, one worker after the other; each pushes as soon as it has its weights, so only the
    last worker's M in is not hidden behind them; and a latency each way: 288.1 ms a step.
    """
    ends = np.unique(run(lk.SyncPS(), 5, servers=1).column("applies", "time"))
    assert np.diff(ends).tolist() == [2 * 50_000 + (8 + 1) * M * 8] * 4


def test_colocated_servers_send_as_much_as_a_ring():
    """A shard on every worker's node: 2(N-1)/N M leave a node each step; messages within a node are free."""

    class Colocated(lk.SyncPS):
        def layout(self, problem, cluster):
            plan = super().layout(problem, cluster)
            nodes = {f"server-{i}": f"worker-{i}" for i in range(cluster.workers)}
            roles = tuple(lk.RoleSpec(**{**vars(r), "node": nodes.get(r.name, r.node)}) for r in plan.roles)
            return lk.Layout(roles, plan.observed, plan.parts)

    trace = run(Colocated(), 4, servers=8)
    node = np.array([trace.nodes.index(n) for n in trace.nodes])
    sender, role, sent, got = trace.column("messages", "sender", "role", "sent", "received")
    away = node[sender] != node[role]
    assert np.array_equal(got[~away], sent[~away])
    for i in range(8):
        worker, server = trace.roles.index(f"worker-{i}"), trace.roles.index(f"server-{i}")
        leaves = a_step(trace, 3, worker, "sender", 7, away) + a_step(trace, 3, server, "sender", 7, away)
        assert leaves == 2 * 7 * M / 8


@pytest.mark.parametrize(
    "problem",
    [
        lk.Problem("digits", hidden=(12,), batch_size=8, dtype="float64", activation="tanh"),
        lk.Problem("linear-regression", hidden=(), batch_size=8, dtype="float64"),
        lk.Problem("spirals", hidden=(6, 5), batch_size=16, dtype="float64", activation="tanh", options={"arms": 3}),
        lk.Problem("quadratic", batch_size=4, options={"dimension": 6, "noise": 1.0, "curvature": (1, 2, 3, 4, 5, 6)}),
    ],
    ids=lambda p: p.name,
)
def test_gradients_equal_central_differences(problem):
    objective, data = problem.objective(), problem.dataset
    x, y = data.x_train[: problem.batch_size], data.y_train[: problem.batch_size]
    w, out, scratch = objective.start(1) + 0.01, np.empty(objective.size), np.empty(objective.size)
    objective.gradient(w, x, y, out)
    for i in np.random.default_rng(0).integers(0, objective.size, 40):
        step = np.zeros(objective.size)
        step[i] = 1e-5
        up, down = objective.gradient(w + step, x, y, scratch), objective.gradient(w - step, x, y, scratch)
        assert out[i] == pytest.approx((up - down) / 2e-5, abs=1e-6)
