"""Communication that overlaps with the backward pass: the times of the buckets, what is hidden and what is exposed, the best
size of a bucket, and the parameters.

The oracle of the times is a recurrence without an engine: piece k of the backward pass ends when all pieces before it have
ended, and bucket k is summed from the end of its last piece or of bucket k - 1 on, whichever is later.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.narrative.sentence import sentence
from labkit.nn import Network
from labkit.summary import Summary
from labkit.trace import ledger
from labkit.trace.overlap import BackwardPieces, overlap
from labkit.trace.schema import COMPUTE, WAIT
from labkit.views import PANELS
from tests.results.test_replicas import gradients

MOONS = lk.Problem("moons", hidden=(7, 5, 6), batch_size=8, dtype="float64", seed=1, options={"samples": 200})
C = 0.012  # seconds of a gradient
ITEM = 4  # bytes of a parameter


def network(hidden):
    return lk.Problem("moons", hidden=tuple(hidden), timing_only=True)


def run(hidden, bucket_size, workers, steps=2, compute=C, **cluster):
    """The trace of a timing-only run."""
    strategy = lk.BucketedAllReduce(bucket_size=bucket_size, eval_every=10**6)
    cluster = lk.SimulatedCluster(workers=workers, compute=compute, **cluster)
    return lk.train(network(hidden), strategy, cluster, lk.Budget(updates=steps)).wait().trace


def steps_of(trace):
    """The end of every step of worker 0, ns."""
    role, time = trace.column("applies", "role", "time")
    return time[role == trace.roles.index("worker-0")].tolist()


def backward(hidden, bucket_size, compute=C, inputs=2, outputs=2):
    """[(end of the backward pass of a bucket, ns after the start of the step; parameters of the bucket)], by hand."""
    widths = [inputs, *hidden, outputs]
    layers = [(a * b, (a + 1) * b) for a, b in itertools.pairwise(widths)]  # (multiplications, parameters)
    total, end, found, size = sum(work for work, _ in layers), round(1e9 * compute / 3), [], 0
    for work, parameters in reversed(layers):
        end += round(1e9 * compute * 2 / 3 * work / total)
        size += parameters
        if size * ITEM >= bucket_size:
            found.append((end, size))
            size = 0
    return [*found, (end, size)] if size else found


def all_reduce(starts, size, latency, byte, egress, ingress):
    """When every member has the sum, ns: 2(N-1) steps of a ring, from `starts` on. A link carries one message at a time."""
    n, now = len(starts), list(starts)
    edges = [size * i // n for i in range(n + 1)]
    chunks = [(b - a) * ITEM for a, b in itertools.pairwise(edges)]
    for step in range(2 * (n - 1)):
        arrived = list(now)
        for rank in range(n):
            right = (rank + 1) % n
            held = round(chunks[(rank - 1 - step) % n] * byte)
            begins = max(now[rank], egress[rank], ingress[right] - latency)
            egress[rank] = begins + held
            ingress[right] = arrived[right] = begins + latency + held
        now = [max(a, b) for a, b in zip(now, arrived)]
    return now


def first_step(hidden, bucket_size, workers, latency=0.0, bandwidth=np.inf, **network):
    """[(beginning, end) of each bucket on worker 0], ns: the recurrence, for the first step."""
    byte, latency = 1e9 / bandwidth, round(1e9 * latency)
    ends, found = [0] * workers, []
    egress, ingress = [0] * workers, [0] * workers
    for piece, size in backward(hidden, bucket_size, **network):
        starts = [max(end, piece) for end in ends]
        ends = all_reduce(starts, size, latency, byte, egress, ingress)
        found.append((starts[0], ends[0]))
    return found


def buckets_of(trace, count, workers):
    """The end of each bucket on worker 0 in the first step: the arrival of its last message."""
    role, category, received = trace.column("messages", "role", "category", "received")
    arrived = np.sort(received[(role == trace.roles.index("worker-0")) & (category == 0)])
    return arrived[2 * (workers - 1) - 1 :: 2 * (workers - 1)][:count].tolist()


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(4, 300), min_size=1, max_size=7),
    workers=st.integers(2, 8),
    bucket_size=st.sampled_from([1, 1_000, 20_000, 100_000, 10**9]),
    latency=st.sampled_from([0.0, 1e-5, 3e-4]),
    bandwidth=st.sampled_from([1e6, 3e7, 1e9]),
)
def test_a_bucket_ends_after_the_bucket_before_and_after_its_pieces(hidden, workers, bucket_size, latency, bandwidth):
    wires = {"latency": latency, "bandwidth": bandwidth}
    expected = first_step(hidden, bucket_size, workers, **wires)
    trace = run(hidden, bucket_size, workers, **wires)
    found = buckets_of(trace, len(expected), workers)
    np.testing.assert_allclose(found, [end for _, end in expected], rtol=0, atol=50)  # ns; each piece is rounded
    assert steps_of(trace)[0] == found[-1]  # all buckets, and an update that takes no time


def shared(intervals, others):
    return sum(max(0, min(b, d) - max(a, c)) for a, b in intervals for c, d in others)


@pytest.mark.parametrize("workers", [2, 4, 5])
@pytest.mark.parametrize("bucket_size", [1, 20_000, 10**9])
@pytest.mark.parametrize("bandwidth", [1e6, 2e7, 1e9])
def test_hidden_and_exposed_communication_are_all_communication(workers, bucket_size, bandwidth):
    hidden, wires = (100, 100, 100), {"latency": 1e-4, "bandwidth": bandwidth}
    trace = run(hidden, bucket_size, workers, steps=1, **wires)
    buckets = first_step(hidden, bucket_size, workers, **wires)
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    mine = role == trace.roles.index("worker-0")
    computing = list(zip(start[mine & (phase == COMPUTE)].tolist(), end[mine & (phase == COMPUTE)].tolist()))
    exposed = int((end - start)[mine & (phase == WAIT)].sum())
    communicating = sum(b - a for a, b in buckets)
    assert shared(computing, buckets) + exposed == pytest.approx(communicating, abs=200)
    assert sum(b - a for a, b in computing) + exposed == steps_of(trace)[0]  # computing and waiting are the whole step
    if bucket_size == 10**9:
        assert shared(computing, buckets) == 0
    else:
        assert shared(computing, buckets) > 0
    seen, mine = overlap(trace), overlap(trace, role=trace.roles.index("worker-0"))
    assert mine.hidden == pytest.approx(shared(computing, buckets), abs=200)
    assert mine.exposed == pytest.approx(exposed, abs=200)
    each = [overlap(trace, role=trace.roles.index(f"worker-{k}")) for k in range(workers)]
    assert (seen.hidden, seen.exposed) == (sum(one.hidden for one in each), sum(one.exposed for one in each))
    who, number, start, end, hidden = trace.column("communications", "role", "number", "start", "end", "hidden")
    own = who == trace.roles.index("worker-0")
    np.testing.assert_allclose(np.stack([start, end], axis=1)[own], buckets, rtol=0, atol=50)
    assert number[own].tolist() == list(range(len(buckets)))
    assert hidden[own].tolist() == pytest.approx([shared(computing, [bucket]) for bucket in buckets], abs=100)


@pytest.mark.parametrize(("bucket_size", "bandwidth"), [(20_000, 2e7), (1, 1e9), (10**9, 2e7)])
def test_the_share_that_is_hidden_is_said_at_every_time(bucket_size, bandwidth):
    """In the summary, in the sentence and in the caption, of all buckets that are over: the recurrence, in whole percent."""
    hidden, wires = (100, 100, 100), {"bandwidth": bandwidth}
    trace = run(hidden, bucket_size, 4, steps=1, **wires)
    buckets, backward_ends = first_step(hidden, bucket_size, 4, **wires), round(1e9 * C)
    for t in [end for _, end in buckets]:
        done = [(a, b) for a, b in buckets if b <= t]
        share = shared([(0, backward_ends)], done) / sum(b - a for a, b in done)
        text = f"{share:.0%} of the communication is hidden behind the backward pass"
        assert f"{text}." in sentence(trace, t + 50)
        assert PANELS["timeline"]().caption(trace, t + 50).startswith(f"{text} · ")
    assert dict(Summary.of(trace).rows())["overlap"] == text
    said = Summary.of(trace)["communication"]
    assert said["hidden"] / (said["hidden"] + said["exposed"]) == pytest.approx(share, rel=1e-4)


def test_without_tasks_nothing_is_said_of_hidden_communication():
    trace = (
        lk.train(network((20,)), lk.RingAllReduce(), lk.SimulatedCluster(workers=3), lk.Budget(updates=3)).wait().trace
    )
    assert overlap(trace) is None
    assert "hidden" not in sentence(trace) + str(Summary.of(trace)) + PANELS["timeline"]().caption(trace)


def test_pieces_of_the_backward_pass_are_found_among_the_spans():
    """A step is a forward pass, then the layers from the last to the first."""
    trace = run((20, 30, 40), 1, 3, steps=4, bandwidth=1e7)
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    work = phase == COMPUTE
    layers = BackwardPieces().layers(trace, role[work], start[work], end[work])
    for worker in (0, 1, 2):
        mine = layers[role[work] == trace.roles.index(f"worker-{worker}")]
        assert mine[:20].tolist() == [-1, 3, 2, 1, 0] * 4


@pytest.mark.parametrize(("bucket_size", "buckets"), [(1, 5), (10**9, 1)])
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_every_bucket_costs_its_latencies(workers, bucket_size, buckets):
    """Without computing and with an infinite bandwidth, B buckets take B x 2(N-1) latencies, one after the other."""
    trace = run((20, 20, 20, 20), bucket_size, workers, compute=0.0, latency=0.001)
    assert steps_of(trace)[0] == buckets * 2 * (workers - 1) * 1_000_000


def test_a_fast_link_exposes_the_last_bucket_only():
    """All layers have 100 x 100 weights but the first and the last; the last bucket is that of the first layer, 300 numbers."""
    hidden, wires = (100,) * 6, {"bandwidth": 1e10}
    trace = run(hidden, 1, 4, **wires)
    last = 2 * 3 / 4 * 300 * ITEM / 10  # ns: 2(N-1)/N of its bytes, 0.1 ns each
    assert steps_of(trace)[0] == pytest.approx(1e9 * C + last, abs=50)
    whole = sum(size for _, size in backward(hidden, 1))
    ring = run(hidden, 10**9, 4, **wires)
    assert steps_of(ring)[0] == pytest.approx(1e9 * C + 2 * 3 / 4 * whole * ITEM / 10, abs=50)


def test_the_time_against_the_size_of_a_bucket_has_a_minimum():
    """Li et al., figure 7: small buckets pay latencies, large ones begin late."""
    hidden, sizes = (100,) * 12, [1, 80_000, 160_000, 320_000, 10**9]
    times = [steps_of(run(hidden, size, 4, latency=2e-4, bandwidth=1e8))[0] for size in sizes]
    best = times.index(min(times))
    assert 0 < best < len(sizes) - 1
    assert times[:best] == sorted(times[:best], reverse=True)
    assert times[best:] == sorted(times[best:])


# parameters -------------------------------------------------------------------------------------------------------


def parameters(strategy, workers, steps=15, problem=MOONS):
    cluster = lk.SimulatedCluster(
        workers=workers, compute=lk.distributions.LogNormal(0.01, 0.6), latency=0.001, bandwidth=1e6
    )
    trained = lk.train(problem, strategy, cluster, lk.Budget(updates=steps)).wait()
    assert ledger(trained.trace)["closes"]
    return np.asarray(trained.result().parameters)


@pytest.mark.parametrize("clip_norm", [None, 0.05])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize("bucket_size", [1, None, 10**9])
def test_the_parameters_are_those_of_a_loop_in_numpy(bucket_size, reduce, clip_norm):
    """Gradients of the whole model; with a limit, their mean or sum is clipped, as DDP's users do."""
    workers, x, gradient = 3, MOONS.objective().start(MOONS.seed), gradients(MOONS, 3)
    for _ in range(15):
        total = sum(gradient(worker, x) for worker in range(workers)) / (workers if reduce == "mean" else 1)
        norm = np.linalg.norm(total)
        x = x - 0.2 * total * (1 if clip_norm is None else min(1, clip_norm / norm))
    strategy = lk.BucketedAllReduce(bucket_size=bucket_size, reduce=reduce, learning_rate=0.2, clip_norm=clip_norm)
    np.testing.assert_allclose(parameters(strategy, workers), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", [MOONS, lk.Problem("quadratic", batch_size=4)], ids=["network", "quadratic"])
@pytest.mark.parametrize(("workers", "bucket_size"), [(2, 1), (2, None), (3, 10**9), (8, 10**9), (5, 1)])
def test_the_parameters_are_those_of_a_ring(workers, bucket_size, problem):
    """To the last bit with one bucket, and with two workers, whose sums have one order. A quadratic has one piece."""
    ring = parameters(lk.RingAllReduce(), workers, problem=problem)
    bucketed = parameters(lk.BucketedAllReduce(bucket_size=bucket_size), workers, problem=problem)
    if workers == 2 or bucket_size == 10**9 or problem is not MOONS:
        assert bucketed.tobytes() == ring.tobytes()
    else:
        np.testing.assert_allclose(bucketed, ring, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 40), max_size=5),
    activation=st.sampled_from(["relu", "tanh"]),
    dtype=st.sampled_from(["float32", "float64"]),
    rows=st.integers(1, 40),
)
def test_gradients_in_pieces_are_the_whole_gradient_to_the_last_bit(hidden, activation, dtype, rows):
    model = Network.mlp(6, tuple(hidden), 3, activation, dtype=dtype)
    rng = np.random.default_rng(rows)
    params, x, y = model.start(1), rng.normal(size=(rows, 6)).astype(dtype), rng.integers(0, 3, rows)
    whole, pieces = np.empty_like(params), np.full_like(params, np.nan)
    model.gradient(params, x, y, whole)
    saved, stages = [], model.stages
    for stage in stages:
        x, kept = stage.forward(params[stage.slice], x)
        saved.append(kept)
    dy = np.empty_like(x)
    model.loss.gradient(x, y, dy)
    for stage, kept in zip(reversed(stages), reversed(saved)):
        dy = stage.backward(params[stage.slice], kept, dy, pieces[stage.slice], stage.slice.start > 0)
    assert pieces.tobytes() == whole.tobytes()
