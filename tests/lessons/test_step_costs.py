"""The costs of a step, against the formulas of each strategy."""

import math

import numpy as np
import pytest

import labkit as lk
from labkit.lessons import message_bytes, step_costs

D, N, C, A, BANDWIDTH = 1200, 4, 0.1, 1e-3, 1e6
M = 4 * D  # bytes
FLAT = lk.Problem("quadratic", dtype="float32", timing_only=True, options={"dimension": D, "samples": 1})
EQUAL = lk.Problem(  # four layers of 8 x 8 with biases
    lk.from_arrays(np.zeros((64, 8)), np.zeros((64, 8))), hidden=(8, 8, 8), batch_size=32, timing_only=True
)


def run(strategy, problem=FLAT, updates=3, **shape):
    cluster = {"workers": N, "compute": C, "latency": A, "bandwidth": BANDWIDTH, **shape}
    return lk.train(problem, strategy, lk.SimulatedCluster(**cluster), lk.Budget(updates=updates)).wait()


def test_a_ring_sends_2_n_minus_1_pieces():
    costs = step_costs(run(lk.RingAllReduce()))
    assert (costs.messages, costs.sent, costs.stored) == (2 * (N - 1), 2 * (N - 1) * M // N, M)
    assert (costs.gradients, costs.server_sent) == (N, 0)
    assert costs.seconds == pytest.approx(C + 2 * (N - 1) * (A + M / N / BANDWIDTH))


@pytest.mark.parametrize("servers", [1, 3])
def test_a_server_sends_its_shard_to_all_workers(servers):
    costs = step_costs(run(lk.SyncPS(), servers=servers))
    assert (costs.messages, costs.sent) == (servers, M)
    assert (costs.server_sent, costs.stored, costs.gradients) == (N * M // servers, 0, N)


def test_fully_sharded_workers_store_a_part_and_send_one_and_a_half_times_as_much():
    ring, sharded = (step_costs(run(strategy, EQUAL)) for strategy in (lk.RingAllReduce(), lk.FSDP()))
    assert sharded.stored * N == ring.stored
    assert 2 * sharded.sent == 3 * ring.sent


def test_tensor_parallel_workers_make_two_all_reduces_for_each_pair_of_layers():
    costs = step_costs(run(lk.TensorParallel(), EQUAL))
    assert costs.messages == 2 * 2 * 2 * (N - 1)
    assert costs.gradients == 1


def test_sizes_of_one_kind_of_message():
    pushes = message_bytes(run(lk.AsyncPS(), updates=10), "Push")
    assert len(pushes) >= 10
    assert set(pushes.tolist()) == {M}
    top = message_bytes(run(lk.AsyncPS(codec=lk.codecs.TopK(0.01)), lk.Problem("digits", hidden=()), updates=4), "Push")
    assert set(top.tolist()) == {8 * math.floor(0.01 * 650)}


def test_runs_without_the_needed_rows_are_refused():
    with pytest.raises(lk.BadInput, match="fewer than two updates"):
        step_costs(run(lk.RingAllReduce(), updates=1))
    with pytest.raises(lk.BadInput, match="fewer than two updates"):
        step_costs(run(lk.RingAllReduce(), record=False))
    sampled = run(lk.RingAllReduce())
    sampled.trace.tables["messages"].skipped = 1
    with pytest.raises(lk.BadInput, match="does not keep all messages"):
        step_costs(sampled)
    with pytest.raises(lk.BadInput, match=r"no message 'Pushh'\. Its messages are .*Push"):
        message_bytes(run(lk.AsyncPS()), "Pushh")
    with pytest.raises(lk.BadInput, match="run="):
        step_costs("run")
