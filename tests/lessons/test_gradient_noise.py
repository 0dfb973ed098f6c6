"""Gradients of mini-batches and the noise scale, on losses whose gradients and whose noise scale are known."""

import numpy as np

from labkit.lessons import batch_gradients, noise_scale


class Centres:
    """The loss |w - x|²/2, averaged over the samples x: its gradient is w minus the mean of the samples."""

    def gradient(self, w, x, y, out):
        out[:] = w - x.mean(axis=0)


def test_gradients_are_those_of_the_drawn_samples():
    x, rng, again = np.arange(12.0).reshape(6, 2), np.random.default_rng(3), np.random.default_rng(3)
    found = batch_gradients(Centres(), np.zeros(2), x, np.zeros(6), 4, 5, rng)
    assert found.shape == (5, 2)
    for gradient in found:
        rows = again.integers(6, size=4)
        np.testing.assert_allclose(gradient, -x[rows].mean(axis=0))


def test_the_noise_scale_of_exact_squares():
    """|G|² = 7 and tr(S) = 18: gradients of one sample have the mean square 25, of two samples 16, of six samples 10."""
    vectors = {1: [[3.0, 4.0], [4.0, -3.0]], 2: [[4.0, 0.0]], 6: [[1.0, 3.0], [3.0, 1.0], [0.0, 10**0.5]]}
    of = {b: np.array(rows) for b, rows in vectors.items()}
    for b, B in ((1, 2), (1, 6), (2, 6)):
        np.testing.assert_allclose(noise_scale(of[b], of[B], b, B), 18 / 7)


def test_the_noise_scale_of_samples_of_unit_variance():
    """In d dimensions, with samples of variance 1 around 0, tr(S) = d and |G|² = |w|²."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(100_000, 10)), np.eye(10)[0]
    small, large = (batch_gradients(Centres(), w, x, x, b, 4000, rng) for b in (1, 64))
    assert abs(noise_scale(small, large, 1, 64) - 10) < 1
