"""The gradient noise scale of a run, on losses whose gradients are known: |w - x|²/2, averaged over the samples x.

The gradient of all samples is w minus their mean, and that of a sample deviates from it as the sample from the mean. So the noise
is the variance of the samples. The rate is so small that the weights stay where they begin.
"""

import numpy as np
import pytest

import labkit as lk
from labkit.trace.gradient_noise import noise_scale_history, unmeasured

SAMPLES, BATCH = 240, 4
OPTIONS = {"samples": SAMPLES, "dimension": 6, "noise": 2.0}
STILL = {"learning_rate": 1e-6, "eval_every": 10**6}


def trace_of(strategy, updates=300, workers=4, batch_size=BATCH, partition="even", record=True, **cluster):
    problem = lk.Problem("quadratic", batch_size=batch_size, partition=partition, options=OPTIONS)
    cluster = lk.SimulatedCluster(workers, record=record, **cluster)
    return lk.train(problem, strategy, cluster, lk.Budget(updates=updates)).wait().trace


def known():
    """(|G|², tr S) of all samples."""
    problem = lk.Problem("quadratic", options=OPTIONS)
    x, w = problem.dataset.x_train, problem.objective().start(problem.seed)
    return np.sum((w - x.mean(axis=0)) ** 2), x.var(axis=0, ddof=1).sum()


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        (lk.SyncPS(**STILL), {}),
        (lk.SyncPS(**STILL, reduce="sum"), {"servers": 3}),
        (lk.SyncPS(**STILL), {"partition": "shared"}),
        (lk.SyncPS(**STILL), {"partition": "global-batch", "batch_size": 4 * BATCH}),
        (lk.SyncPS(**STILL, accumulate=3), {"servers": 2}),
        (lk.BackupWorkers(**STILL, b=1), {}),
        (lk.RingAllReduce(**STILL, reduce="sum"), {}),
        (lk.HalvingDoubling(**STILL, accumulate=2), {}),
        (lk.BucketedAllReduce(**STILL, accumulate=2, clip_norm=0.1), {}),
        (lk.AsyncPS(**STILL, accumulate=4), {}),
        (lk.AsyncPS(**STILL, accumulate=4, codec="top-k:0.2", clip_norm=0.1), {}),
        (lk.SSP(**STILL, accumulate=8), {"workers": 1, "servers": 2}),
    ],
    ids=repr,
)
def test_the_estimate_is_that_of_all_samples(strategy, more):
    signal, noise = known()
    found = lk.gradient_noise(trace_of(strategy, **more))
    assert found.noise == pytest.approx(noise, rel=0.06)
    assert found.scale == pytest.approx(noise / signal, rel=0.12)


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [(lk.SyncPS(), 4), (lk.RingAllReduce(), 3), (lk.AsyncPS(accumulate=6), 1), (lk.BucketedAllReduce(accumulate=5), 1)],
    ids=repr,
)
def test_the_gradient_of_batches_with_all_samples_is_exact(strategy, workers):
    """The first epoch is one step, so |G|² is not an estimate."""
    batch = SAMPLES // (workers * getattr(strategy, "accumulate", 1))
    found = lk.gradient_noise(trace_of(strategy, 1, workers, batch))
    assert found.signal == pytest.approx(known()[0], rel=1e-9)


def test_a_quotient_of_averages_and_no_average_of_quotients():
    """Each estimate of |G|² alone may be negative; a point of the curve has the newest half of the run."""
    trace = trace_of(lk.SyncPS(**STILL), 400, batch_size=1)
    time, n, b, square, mean_square = trace.column(
        "gradient_noise", "time", "batches", "samples", "square", "mean_square"
    )
    signal = (n * mean_square - square) / (n - 1)
    assert (signal < 0).any()
    half = time > trace.watermark() / 2
    noise = np.mean((n * b * (square - mean_square) / (n - 1))[half])
    expected = noise / (np.mean(signal[half]) + noise / SAMPLES)
    seconds, scale = noise_scale_history(trace, trace.watermark())
    assert lk.gradient_noise(trace).scale == pytest.approx(expected)
    assert lk.gradient_noise(trace).measurements == half.sum()
    assert (scale[-1], seconds[-1]) == (pytest.approx(expected, rel=0.05), time[-1] / 1e9)


@pytest.mark.parametrize(
    ("strategy", "more", "why"),
    [
        (lk.AsyncPS(), {}, "no norms of two gradients\non the same weights:\nset accumulate to 2 or more"),
        (lk.SyncPS(), {"workers": 1}, "no norms of two gradients\non the same weights:\nset accumulate to 2 or more"),
        (lk.LocalSGD(), {}, "no norms of two gradients\non the same weights"),
        (lk.Downpour(), {}, "no norms of two gradients\non the same weights"),
        (lk.SyncPS(codec="float16"), {}, "compressed gradients are averaged:\nset accumulate to 2 or more"),
        (lk.RingAllReduce(clip_norm=1.0), {}, "clipped gradients are averaged:\nset accumulate to 2 or more"),
        (lk.SyncPS(), {"record": False}, "norms were not recorded"),
    ],
    ids=repr,
)
def test_why_nothing_was_measured(strategy, more, why):
    trace = trace_of(strategy, 20, **more)
    found = lk.gradient_noise(trace)
    assert (found.measurements, np.isnan([found.signal, found.noise, found.scale]).all()) == (0, True)
    assert unmeasured(trace) == why


def test_without_noise_the_scale_is_zero_and_a_noise_that_hides_the_gradient_has_none():
    problem = lk.Problem("quadratic", batch_size=2)
    cluster, budget = lk.SimulatedCluster(4), lk.Budget(updates=5)
    assert lk.gradient_noise(lk.train(problem, lk.SyncPS(), cluster, budget).wait().trace).scale == pytest.approx(
        0, abs=1e-9
    )
    found = [lk.gradient_noise(trace_of(lk.SyncPS(), n, workers=2, batch_size=1)) for n in range(1, 30)]
    hidden = [each for each in found if each.signal <= 0]
    assert hidden
    assert np.isnan([each.scale for each in hidden]).all()
