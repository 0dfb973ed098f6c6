"""Results that need no assumption about timing hold on both engines: conservation of staleness, the response time equation,
equality with one process and between architectures, and the bytes of rings and servers.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.trace import query, updates
from labkit.trace.query import bytes_sent

pytestmark = pytest.mark.sample(2)

DIGITS = lk.Problem("digits", hidden=(16,), batch_size=8, dtype="float64", seed=3)
SIZE = DIGITS.objective().size


def trained(engine, strategy, steps, workers, servers=None, problem=DIGITS, **more):
    run = engine.wait(problem, strategy, lk.Budget(updates=steps), workers, servers, **more)
    assert run.summary()["updates"] == steps
    return run.result().parameters


def shares(problem, workers):
    """Each worker's batches, made without an engine."""
    data = problem.dataset
    parts = problem.partition.split(data.y_train, workers, problem.seed)
    return [
        Batches(
            data.x_train[rows], data.y_train[rows], problem.batch_size, role_stream(problem.seed, "worker", i, BATCHES)
        )
        for i, rows in enumerate(parts)
    ]


def alone(problem, workers, rate, steps):
    """One process: (sub-batch gradients added in the order of the workers, one gradient of the whole batch)."""
    net, batches = problem.objective(), shares(problem, workers)
    added, whole = net.start(problem.seed), net.start(problem.seed)
    out, total = np.empty(net.size), np.empty(net.size)
    for _ in range(steps):
        round_ = [next(b) for b in batches]
        for i, batch in enumerate(round_):
            net.gradient(added, batch.x, batch.y, out)
            total = out.copy() if i == 0 else total + out
        added -= rate * (total / workers)
        net.gradient(whole, np.concatenate([b.x for b in round_]), np.concatenate([b.y for b in round_]), out)
        whole -= rate * out
    return added, whole


@pytest.mark.parametrize(("workers", "servers"), [(4, 1), (3, 2)])
def test_synchronous_training_equals_one_process_with_a_bigger_batch(simulated, workers, servers):
    parameters = trained(simulated, lk.SyncPS(learning_rate=0.2), 100, workers, servers)
    added, whole = alone(DIGITS, workers, 0.2, 100)
    assert parameters.tobytes() == added.tobytes()
    np.testing.assert_allclose(parameters, whole, rtol=0, atol=1e-10)
    assert np.abs(parameters - DIGITS.objective().start(3)).max() > 0.1


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_ring_all_reduce_equals_the_synchronous_server(simulated, workers):
    ring = trained(simulated, lk.RingAllReduce(learning_rate=0.2), 50, workers)
    np.testing.assert_allclose(ring, alone(DIGITS, workers, 0.2, 50)[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("optimizer", [lk.SGD(), lk.Momentum(0.9), lk.Adam()], ids=["sgd", "momentum", "adam"])
def test_several_shards_equal_one_server(simulated, optimizer):
    strategy = lk.SyncPS(learning_rate=0.01, optimizer=optimizer, weight_decay=0.01)
    one, three = (trained(simulated, strategy, 30, 2, servers) for servers in (1, 3))
    assert one.tobytes() == three.tobytes()


@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(learning_rate=0.01), lk.Downpour(learning_rate=0.01)], ids=lambda s: s.name
)
@pytest.mark.parametrize("servers", [1, 2])
def test_the_sum_of_staleness_is_conserved(simulated, servers, strategy):
    """Counted from the log of reads and updates; no assumption about time."""
    problem = lk.Problem("quadratic", batch_size=4, options={"samples": 64, "dimension": 5})
    run = simulated.wait(
        problem,
        strategy,
        lk.Budget(updates=160),
        4,
        servers,
        slow={"worker-1": 4.0},
        time=lk.distributions.LogNormal(0.01, 0.8),
    )
    assert run.trace.tables["applies"].skipped == 0  # at this pace every row is kept
    for shard in range(servers):
        left, right = query.staleness_identity(run.trace, shard)
        assert left == right
        role, stale, sender, version = run.trace.column("applies", "role", "staleness", "sender", "version")
        mine = role == shard
        assert left == stale[mine].sum()
        if isinstance(strategy, lk.AsyncPS):  # a worker reads right after its own update: stale by the updates between
            last = dict.fromkeys(run.trace.role_ids("worker"), 0)
            for s, who, v in zip(stale[mine].tolist(), sender[mine].tolist(), version[mine].tolist()):
                assert s == v - 1 - last[who] or last[who] == 0  # the first read may come after others' updates
                last[who] = v
            assert stale[mine].mean() == pytest.approx(3, abs=0.2)
        else:
            assert stale[mine].mean() < 3


def test_throughput_and_cycles_fulfil_the_response_time_equation(simulated):
    """N / throughput = mean cycle of a worker: updates by the server's clock, cycles by the workers' clocks."""
    problem = lk.Problem("quadratic", batch_size=4, options={"samples": 64, "dimension": 5})
    run = simulated.wait(
        problem, lk.AsyncPS(learning_rate=0.01), lk.Budget(updates=480), 4, time=lk.distributions.Uniform(0.001, 0.007)
    )
    role, phase, start, step = run.trace.column("spans", "role", "phase", "start", "step")
    spent = steps = 0
    for worker in run.trace.role_ids("worker"):
        mine = (role == worker) & (phase == 0)
        spent += np.ptp(start[mine])
        steps += np.ptp(step[mine])
    time, version = run.trace.column("applies", "time", "version")
    throughput = np.ptp(version) / np.ptp(time)
    assert 4 / throughput == pytest.approx(spent / steps, rel=0.01)


@pytest.mark.parametrize("workers", [2, 3, 5])
def test_a_ring_sends_the_bytes_of_the_formula(simulated, workers):
    """Each worker sends 2(N-1) chunks of M/N a step (chunks differ by one value where N does not divide M)."""
    run = simulated.wait(DIGITS, lk.RingAllReduce(), lk.Budget(updates=10), workers)
    sent = training_bytes_a_step(run, 10)
    chunks = np.diff([SIZE * i // workers for i in range(workers + 1)]) * 8
    for rank, count in enumerate(sent["worker"]):
        # reduce-scatter: all chunks but the worker's; all-gather: all but the right neighbour's
        assert count == chunks.sum() - chunks[rank] + chunks.sum() - chunks[(rank + 1) % workers]
    assert sum(sent["worker"]) == 2 * (workers - 1) * SIZE * 8
    assert bytes_sent(run.trace)["worker"]["startup"] == 0


@pytest.mark.parametrize(("workers", "servers"), [(4, 1), (3, 2)])
def test_dense_servers_send_the_bytes_of_the_formula(simulated, workers, servers):
    """Worker: M out a step. Each shard: N M / S out a step, and N M / S at the start."""
    run = simulated.wait(DIGITS, lk.SyncPS(), lk.Budget(updates=10), workers, servers)
    sent = training_bytes_a_step(run, 10)
    assert sent["worker"] == [SIZE * 8] * workers
    parts = np.diff([SIZE * i // servers for i in range(servers + 1)]) * 8
    assert sent["server"] == [workers * part for part in parts]
    assert bytes_sent(run.trace)["server"]["startup"] == workers * SIZE * 8
    assert bytes_sent(run.trace)["worker"]["startup"] == 0


def training_bytes_a_step(run, steps):
    """{kind: [bytes sent in the first `steps` steps / steps]}, from the rows of messages, role by role."""
    trace = run.trace
    sender, category, count, sent = trace.column("messages", "sender", "category", "bytes", "sent")
    made = {}
    for i, kind in enumerate(trace.kinds):
        mine = (sender == i) & (category == 0) & (count > 0)
        of_size = count[mine][np.argsort(sent[mine], kind="stable")]
        a_step = {"worker": trace.kinds.count("server"), "server": trace.kinds.count("worker"), "chief": 0}[kind]
        if kind == "worker" and "server" not in trace.kinds:
            a_step = 2 * (trace.kinds.count("worker") - 1)
        made.setdefault(kind, []).append(int(of_size[: a_step * (steps - 1)].sum()) // (steps - 1))
    assert updates(trace) == steps
    return made
