"""Halving and doubling at 8 ranks, 4,000,000 bytes, 50 us and 125 MB/s; other sizes; equality with a ring and a server."""

import numpy as np
import pytest

import labkit as lk
from labkit.nn.codecs import Float16
from labkit.strategies.halving_doubling import HalvingDoubling

pytestmark = pytest.mark.sample(4)

M = 4_000_000
BYTE = 8  # ns
LATENCY = 50_000  # ns
NETWORK = {"latency": 50e-6, "bandwidth": 125e6}


def model(size=M // 4):
    return lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": size, "samples": 1})


def run(strategy, steps, workers, compute=0.0):
    cluster = lk.SimulatedCluster(workers=workers, compute=compute, **NETWORK)
    return lk.train(model(), strategy, cluster, lk.Budget(updates=steps)).wait().trace


def sent_in_a_step(trace, end):
    """{worker: bytes of each of its messages sent before `end`, in order}."""
    sender, count, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    order = np.argsort(sent, kind="stable")
    first = (category == 0) & (sent < end)
    return [count[order][(first & (sender == worker))[order]].tolist() for worker in trace.role_ids("worker")]


def test_halving_doubling_has_the_time_and_bytes_of_the_formula():
    """2 log2 N steps: 6 latencies + 2(N-1)/N M / bandwidth = 56.3 ms; M/2, M/4, M/8 and back: 7,000,000 bytes."""
    trace = run(HalvingDoubling(), 3, 8)
    role, time = trace.column("applies", "role", "time")
    for worker in trace.role_ids("worker"):
        assert time[role == worker].tolist() == [56_300_000, 2 * 56_300_000, 3 * 56_300_000]
    for messages in sent_in_a_step(trace, 56_300_000):
        assert messages == [M // 2, M // 4, M // 8, M // 8, M // 4, M // 2]
        assert sum(messages) == 7_000_000


@pytest.mark.parametrize("k", range(5))
def test_powers_of_two_have_the_time_and_bytes_of_the_formula(k):
    workers = 2**k
    trace = run(HalvingDoubling(), 1, workers)
    time = 2 * k * LATENCY + 2 * (workers - 1) * M // workers * BYTE
    assert set(trace.column("applies", "time").tolist()) == {time}
    ring = run(lk.RingAllReduce(), 1, workers)
    for mine, theirs in zip(sent_in_a_step(trace, time), sent_in_a_step(ring, ring.column("applies", "time")[0])):
        assert len(mine) == 2 * k
        assert sum(mine) == sum(theirs) == 2 * (workers - 1) * M // workers  # the same bytes


@pytest.mark.parametrize("workers", [3, 5, 6, 7, 9, 11, 13, 15, 19, 21, 23, 31, 37])
def test_other_numbers_of_workers_have_the_time_and_bytes_of_the_formula(workers):
    """p = P + m, P = 2^k: (2k + 2) latency + (2(P-1)/P + 2) M / bandwidth, when the m that were folded have it."""
    k = workers.bit_length() - 1
    power, folded = 2**k, workers - 2**k
    trace = run(HalvingDoubling(), 1, workers, compute=1.0)  # so that no worker is a step ahead and uses a link
    role, time = trace.column("applies", "role", "time")
    ends = dict(zip(role.tolist(), (time - 1_000_000_000).tolist()))
    whole = (2 * k + 2) * LATENCY + (2 * (power - 1) * M // power + 2 * M) * BYTE
    assert max(ends.values()) == whole
    for rank, (worker, messages) in enumerate(zip(trace.role_ids("worker"), sent_in_a_step(trace, 2_000_000_000))):
        if rank < 2 * folded and rank % 2 == 0:  # folded: sent its whole vector, and received the whole sum
            assert ends[worker] == whole
            assert messages == [M]
        else:
            twice = rank < 2 * folded
            assert ends[worker] <= whole - twice * (LATENCY + M * BYTE)
            assert len(messages) == 2 * k + twice
            assert sum(messages) == 2 * (power - 1) * M // power + twice * M


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 6, 7, 8, 13])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_halving_doubling_equals_the_ring_and_the_server(workers, reduce):
    """The same parameters to 1e-10 in float64, and the same bits on all workers."""
    problem = lk.Problem("digits", hidden=(5,), batch_size=4, dtype="float64")
    ends = []
    for strategy in (HalvingDoubling, lk.RingAllReduce, lk.SyncPS):
        made = strategy(learning_rate=0.5 / workers, reduce=reduce)
        done = lk.train(problem, made, lk.SimulatedCluster(workers=workers), lk.Budget(updates=20)).wait()
        ends.append(done.result().parameters)
    assert np.abs(ends[0] - ends[1]).max() <= 1e-10
    assert np.abs(ends[0] - ends[2]).max() <= 1e-10
    assert np.abs(ends[0] - problem.objective().start(0)).max() > 1e-3


def test_a_vector_shorter_than_the_group():
    """Some chunks are empty, and are sent nevertheless."""
    data = {"dimension": 3, "samples": 16, "noise": 1.0}
    problem = lk.Problem("quadratic", batch_size=2, options=data)
    ends = [
        lk.train(problem, strategy(), lk.SimulatedCluster(workers=7), lk.Budget(updates=5)).wait().result().parameters
        for strategy in (HalvingDoubling, lk.SyncPS)
    ]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-12)


def test_float16_halves_the_bytes_of_halving_doubling():
    trace = run(HalvingDoubling(codec=Float16()), 1, 8)
    assert set(trace.column("applies", "time").tolist()) == {6 * LATENCY + 3_500_000 * BYTE}


def test_servers_are_refused():
    with pytest.raises(lk.BadInput, match="HalvingDoubling has no servers and was given servers=2"):
        lk.train(lk.Problem("moons"), HalvingDoubling(), lk.SimulatedCluster(workers=2, servers=2))
