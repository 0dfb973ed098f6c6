"""Times of pipeline schedules on the simulator's clock, PipeDream against an independent recurrence, and FSDP's bytes."""

import numpy as np
import pytest

import labkit as lk
from labkit.data import Batches
from labkit.random_streams import BATCHES, role_stream
from labkit.strategies.fsdp import FSDP
from labkit.strategies.hybrid import Hybrid
from labkit.strategies.pipedream import PipeDream
from labkit.strategies.pipeline import Pipeline
from labkit.strategies.tensor_parallel import TensorParallel

S = 1_000_000_000
ROWS = np.zeros((40, 6))
DIGITS = lk.Problem("digits", hidden=(16, 12, 10), batch_size=8, dtype="float64", seed=3)


def even(layers, batch_size=32, **more):
    """An autoencoder of equal layers: stages of equal work."""
    data = lk.from_arrays(ROWS, ROWS, name="copies")
    return lk.Problem(data, hidden=(6,) * (layers - 1), batch_size=batch_size, timing_only=True, **more)


def paced(strategy, stages, micro, layers=None, steps=3, **cluster):
    """A run in which a stage's forward of a micro-batch takes 1 s, and its backward 2 s."""
    cluster = lk.SimulatedCluster(workers=stages, compute=3.0 * stages * micro, **cluster)
    return lk.train(even(layers or stages, 4 * micro), strategy, cluster, lk.Budget(updates=steps)).wait().trace


def ends(trace, worker=0):
    role, time = trace.column("applies", "role", "time")
    return time[role == trace.roles.index(f"worker-{worker}")]


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
def test_bubble_and_memory_of_an_example_pipeline(order):
    """P=4, M=8, tf=1, tb=2: 33 s a mini-batch, of which each stage works 24; activations held as in the schedule."""
    trace = paced(Pipeline(micro_batches=8, order=order), 4, 8)
    assert ends(trace).tolist() == [33 * S, 66 * S, 99 * S]
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    for k, worker in enumerate(trace.role_ids("worker")):
        mine = (role == worker) & (phase == 0) & (end <= 33 * S)
        assert (end[mine] - start[mine]).sum() == 24 * S
        assert trace.counters[worker].activations == (8 if order == "gpipe" else 4 - k)


@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro"), [(1, 3), (2, 1), (2, 5), (3, 4), (5, 4), (6, 16)])
def test_bubble_and_memory_of_other_pipelines(order, stages, micro):
    trace = paced(Pipeline(micro_batches=micro, order=order), stages, micro, steps=2)
    time = (micro + stages - 1) * 3 * S
    assert ends(trace).tolist() == [time, 2 * time]
    for k, worker in enumerate(trace.role_ids("worker")):
        assert trace.counters[worker].activations == (micro if order == "gpipe" else min(micro, stages - k))


def test_interleaving_of_an_example_pipeline():
    """Two chunks a stage: half the bubble, 28.5 s."""
    trace = paced(Pipeline(micro_batches=8, order="interleaved", chunks=2), 4, 8, layers=8)
    assert ends(trace).tolist() == [int(28.5 * S), 57 * S, int(85.5 * S)]


def test_zero_bubble_of_an_example_pipeline():
    """ZB-H1 with tF = tB = tW = 1: 27 s."""
    assert ends(paced(Pipeline(micro_batches=8, order="zb-h1"), 4, 8)).tolist() == [27 * S, 54 * S, 81 * S]


def test_activations_that_travel():
    """Between stages: rows x width, forward and back, for any number of micro-batches, and no other bytes."""
    trace = paced(Pipeline(micro_batches=8), 4, 8, steps=5)
    sender, size, category = trace.column("messages", "sender", "bytes", "category")
    for k, worker in enumerate(trace.role_ids("worker")):
        links = (k < 3) + (k > 0)
        mine = size[(sender == worker) & (category == 0)]
        assert set(mine.tolist()) == {4 * 6 * 4}  # 4 rows of 6 values
        assert 5 * 8 * links <= len(mine) <= 5 * 8 * links + 8  # the sixth mini-batch has begun when the run ends


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_pipe_dream_has_no_bubble_and_stale_first_stages(stages):
    trace = paced(PipeDream(), stages, 1, steps=30)
    assert np.diff(ends(trace)[stages:]).tolist() == [3 * S] * (29 - stages)
    role, stale = trace.column("applies", "role", "staleness")
    for k, worker in enumerate(trace.role_ids("worker")):
        late = stages - 1 - k
        assert stale[role == worker].tolist() == [min(t, late) for t in range(30)]
        assert trace.counters[worker].stashed == trace.counters[worker].activations == stages - k


def test_pipe_dream_is_its_recurrence():
    """w_k(t+1) = w_k(t) - r grad_k(w_0(t-(P-1)), ..., w_(P-1)(t)), computed by one process."""
    steps, rate, net = 25, 0.1, DIGITS.objective()
    run = lk.train(
        DIGITS, PipeDream(learning_rate=rate), lk.SimulatedCluster(workers=4), lk.Budget(updates=steps)
    ).wait()
    data = DIGITS.dataset
    batches = Batches(data.x_train, data.y_train, 8, role_stream(3, "worker", 0, BATCHES))
    stages = list(net.layout.groups().values())  # four layers, a stage each
    versions, out = [net.start(3)], np.empty(net.size)
    for t in range(steps):
        mixed = versions[-1].copy()
        for k, own in enumerate(stages):
            mixed[own] = versions[max(0, t - (3 - k))][own]
        batch = next(batches)
        net.gradient(mixed, batch.x, batch.y, out)
        versions.append(versions[-1] - rate * out)
    np.testing.assert_allclose(run.result().parameters, versions[-1], rtol=0, atol=1e-12)
    assert np.abs(versions[-1] - versions[0]).max() > 0.01


@pytest.mark.sample(7, slow=6)
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 12), (16, 12, 10)], ids=str)
def test_tensor_parallel_training_equals_the_dense_network(hidden, activation, workers):
    problem = lk.Problem("digits", hidden=hidden, batch_size=8, dtype="float64", seed=3, activation=activation)
    made = [
        lk.train(problem, strategy(learning_rate=0.2), lk.SimulatedCluster(workers=n), lk.Budget(updates=50)).wait()
        for strategy, n in ((TensorParallel, workers), (lk.SyncPS, 1))
    ]
    split, dense = (run.result().parameters for run in made)
    np.testing.assert_allclose(split, dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize(("hidden", "pairs"), [((30,), 1), ((30, 15), 2), ((30, 15, 30), 2)])
def test_each_pair_of_layers_needs_one_all_reduce_forward_and_one_backward(workers, hidden, pairs):
    """Counted from the messages: 2(N-1) an all-reduce, of 2(N-1)/N of its bytes."""
    problem = lk.Problem("digits", hidden=hidden, batch_size=30, timing_only=True)
    cluster = lk.SimulatedCluster(workers=workers, latency=1e-6)
    trace = lk.train(problem, TensorParallel(), cluster, lk.Budget(updates=2)).wait().trace
    sender, size, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    widths = [64, *hidden, 10]
    inputs, outputs = widths[:-1][::2], [widths[min(i + 2, len(widths) - 1)] for i in range(0, len(widths) - 1, 2)]
    assert len(inputs) == pairs
    for k, worker in enumerate(trace.role_ids("worker")):
        mine = (sender == worker) & (category == 0) & (sent <= ends(trace, k)[0])
        assert mine.sum() == 2 * pairs * 2 * (workers - 1)
        assert size[mine].sum() == 2 * (workers - 1) / workers * 30 * 4 * (sum(inputs) + sum(outputs))


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_fsdp_sends_three_halves_of_an_all_reduce(workers):
    """3(N-1)/N M a step and worker, to the byte: two all-gathers of the weights, one reduce-scatter of the gradient."""
    problem = lk.Problem(lk.from_arrays(np.zeros((40, 8)), np.zeros((40, 8))), hidden=(16, 8), timing_only=True)
    size = problem.objective().size * 4
    cluster = lk.SimulatedCluster(workers=workers, latency=1e-6, bandwidth=1e9)
    trace = lk.train(problem, FSDP(), cluster, lk.Budget(updates=3)).wait().trace
    sender, count, category, sent = trace.column("messages", "sender", "bytes", "category", "sent")
    for worker in trace.role_ids("worker"):
        mine = (sender == worker) & (sent < ends(trace)[0])
        assert set(category[mine].tolist()) <= {0}
        assert count[mine].sum() * workers == 3 * (workers - 1) * size
        assert trace.header.layout.roles[worker].parameters * 4 * workers == size


@pytest.mark.parametrize("split", ["pipeline", "tensor"])
def test_hybrid_sends_a_part_between_replicas(split):
    """2(R-1)/R of a part a step and worker, besides messages within its replica."""
    problem = even(4, batch_size=8)
    inside = lk.train(
        problem, Hybrid(shape="1x2", split=split), lk.SimulatedCluster(workers=2, latency=1e-6), lk.Budget(updates=1)
    ).wait()
    both = lk.train(
        problem, Hybrid(shape="2x2", split=split), lk.SimulatedCluster(workers=4, latency=1e-6), lk.Budget(updates=1)
    ).wait()

    def sent(run):
        sender, count, category, at = run.trace.column("messages", "sender", "bytes", "category", "sent")
        return [
            count[(sender == w) & (category == 0) & (at <= ends(run.trace, i)[0])].sum()
            for i, w in enumerate(run.trace.role_ids("worker"))
        ]

    alone, four = sent(inside), sent(both)
    part = problem.objective().size * 4 / 2
    assert [more - alone[i % 2] for i, more in enumerate(four)] == [part] * 4  # 2(R-1)/R = 1


@pytest.mark.parametrize(
    ("strategy", "workers", "share"),
    [
        (Pipeline(micro_batches=4), 4, 7 / 16),
        (PipeDream(), 4, 1.0),
        (TensorParallel(), 3, 1 / 3),
        (FSDP(), 4, 1.0),
        (Hybrid(split="tensor"), 4, 1 / 2),
    ],
    ids=lambda s: getattr(s, "name", ""),
)
def test_time_of_a_step_is_a_share_of_one_gradient(strategy, workers, share):
    """For every split, the work is that of one gradient of the whole model on one batch."""
    problem = even(4)
    cluster = lk.SimulatedCluster(workers=workers, compute=1.0)
    trace = lk.train(problem, strategy, cluster, lk.Budget(updates=2)).wait().trace
    assert ends(trace)[0] / S == pytest.approx(share, rel=1e-6)
