"""The critical path adds up to the time of the run, and consists of what its strategy waits for."""

import pytest

import labkit as lk
from labkit.trace.critical_path import critical_path

PROBLEM = lk.Problem("digits", hidden=(16, 16, 16), timing_only=True)
NETWORK = {"latency": 1e-3, "bandwidth": 1e7}


def path_of(strategy, seconds=0.5, **cluster):
    """The parts of the path of a run, and the time (s) of its last application."""
    trace = lk.train(PROBLEM, strategy, lk.SimulatedCluster(**cluster), lk.Budget(seconds=100)).advance(seconds).trace
    last = int(trace.column("applies", "time").max())
    return critical_path(trace, 0, last), last / 1e9


@pytest.mark.sample(15, slow=15)
@pytest.mark.parametrize("compute", [0.01, lk.distributions.Exponential(0.01)], ids=["constant", "random"])
@pytest.mark.parametrize("network", [{}, NETWORK], ids=["free", "wired"])
@pytest.mark.parametrize(
    "strategy",
    [
        lk.SyncPS(), lk.AsyncPS(), lk.SSP(s=1), lk.KBatchSync(K=2), lk.Downpour(), lk.EASGD(), lk.RingAllReduce(), lk.LocalSGD(),
        lk.DPSGD(), lk.ADPSGD(), lk.FSDP(), lk.TensorParallel(), lk.Pipeline(), lk.PipeDream(), lk.Hybrid(shape="2x2"),
    ],
    ids=lambda strategy: strategy.name,
)  # fmt: skip
def test_the_parts_add_up_to_the_time_of_the_run(strategy, network, compute):
    parts, last = path_of(strategy, workers=4, compute=compute, **network)
    assert sum(parts) == pytest.approx(last, abs=1e-9)
    assert parts.wait == 0
    if not strategy.name.endswith("DPSGD"):  # in gossip, messages are shorter than gradients
        assert (parts.latency + parts.transfer > 0) == bool(network)


def test_waiting_for_a_straggler_is_its_computing():
    parts, last = path_of(lk.SyncPS(), workers=4, compute=0.01, slow={"worker-2": 5}, server_time=0.002)
    steps = round(last / 0.052)
    assert parts == pytest.approx((steps * 0.05, steps * 0.002, 0, 0, 0))


def test_work_that_a_message_cancels_is_not_on_the_path():
    """Two of four gradients make an update; the others are cancelled when its weights arrive."""
    parts, last = path_of(lk.KSync(K=2), workers=4, compute=0.01, slow={"worker-0": 9, "worker-1": 9}, latency=0.001)
    steps = round(last / 0.012)
    assert parts.compute == pytest.approx(steps * 0.01)
    assert parts.latency == pytest.approx(last - steps * 0.01)


def test_processor_time_of_messages_is_transfer():
    """A cycle of one worker and one server, 1 ms of computing, and 4 ends of messages of 0.1 ms each."""
    costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(1e-4), receive=lk.Linear(1e-4), cores=8)
    parts, last = path_of(lk.AsyncPS(), seconds=0.2, workers=1, servers=1, compute=None, costs=costs)
    assert sum(parts) == pytest.approx(last, rel=1e-6)
    assert parts.compute / last == pytest.approx(1 / 1.4, rel=0.02)
    assert parts.transfer / last == pytest.approx(0.4 / 1.4, rel=0.05)
