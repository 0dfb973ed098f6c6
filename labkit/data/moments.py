"""Mean and deviation of samples that are read a block at a time, once: moments of blocks are added."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Moments(NamedTuple):
    """The number of samples, their mean, and m2, the sum of their squared deviations from it; float64, of a sample's shape."""

    samples: int
    mean: Any
    m2: Any

    @classmethod
    def of(cls, x: np.ndarray) -> Moments:
        """Compute the moments of a block x (n, ...). Without samples they are 0."""
        if not len(x):
            return cls(0, np.zeros(x.shape[1:]), np.zeros(x.shape[1:]))
        mean = x.mean(axis=0, dtype=np.float64)
        deviations = x - mean
        deviations *= deviations
        return cls(len(x), mean, deviations.sum(axis=0))

    def join(self, other: Moments) -> Moments:
        """Return the moments of both samples together: Chan, Golub, LeVeque, "Updating Formulae", 1979."""
        samples = self.samples + other.samples
        step, of_both = other.mean - self.mean, max(samples, 1)
        mean = self.mean + step * (other.samples / of_both)
        return Moments(samples, mean, self.m2 + other.m2 + step**2 * (self.samples * other.samples / of_both))

    def standard(self) -> tuple[Any, np.ndarray]:
        """Return mean and standard deviation; 1 where it is only rounding error, so that a constant feature is not amplified."""
        deviation = np.sqrt(self.m2 / self.samples)
        constant = deviation <= 64 * np.finfo(np.float64).eps * np.abs(self.mean)
        return self.mean, np.where(constant, 1.0, deviation)
