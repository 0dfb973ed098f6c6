"""Clicks: samples of categorical ids, a few of which are very frequent and most of which are rare.

    id of rank k (0, 1, ...)   drawn with p_k proportional to 1 / (k + 1)^zipf
    label                      1 with probability sigmoid(bias + strength * t),
                               t = sum of the hidden weights of its ids, less the mean of all samples' t

Zipf's law is typical of recommenders: 1,000 draws from 100,000 ids with zipf=1 have 622 different ids on average, and
the most frequent id has 8.3% of all draws. Every id has a hidden weight from N(0, 1), so the labels can be learned,
quickly for frequent ids and never completely for rare ids. Memory is proportional to the number of samples, not of ids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput
from ..options import option
from ..random_streams import NOISY_LABELS, SAMPLES, TRUE_WEIGHTS, data_stream
from .dataset import Dataset, hold_out
from .synthetic import Recipe


def draw_zipf(rng: np.random.Generator, exponent: float, ids: int, size: int) -> np.ndarray:
    """Draw `size` numbers from 0 .. ids - 1, (size,) int64, with P(k) proportional to (k + 1)^-exponent.

    The method is exact and needs no table. It is rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to
    generate variates from monotone discrete distributions", 1996): invert the integral of x^-s, round to k, and reject
    the part by which the integral over k's interval exceeds k^-s. An exponent of 0 gives the uniform distribution.
    """
    s = float(exponent)

    def integral(x: Any) -> Any:  # of x^-s, and 0 at x = 1
        return np.log(x) if s == 1 else (np.power(x, 1 - s) - 1) / (1 - s)

    def inverse(u: np.ndarray) -> np.ndarray:
        return np.exp(u) if s == 1 else np.power(np.maximum(1 + (1 - s) * u, 0), 1 / (1 - s))

    low, high = integral(1.5) - 1.0, integral(ids + 0.5)
    found = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        u = high + rng.random(size - filled) * (low - high)
        k = np.clip(np.rint(inverse(u)), 1, ids)
        taken = k[u >= integral(k + 0.5) - np.power(k, -s)]
        found[filled : filled + len(taken)] = taken - 1
        filled += len(taken)
    return found


@dataclass(frozen=True)
class Clicks(Recipe):
    """Clicks (label 1 or 0) on categorical ids that follow Zipf's law. Never standardised, because ids have no scale.

    `extra` has these keys. `embedding`: {rows, columns, fields} of the table that a model of these data needs.
    `baseline_loss`, `baseline_accuracy`: held-out loss and accuracy of the best constant prediction (the share of
    clicks in the training part). `best_loss`, `best_accuracy`: held-out loss and accuracy of the hidden formula itself.
    `goal_accuracy`: the mean of the two accuracies; a run without a budget ends when it reaches this accuracy.
    """

    name: ClassVar[str] = "clicks"
    rows: int = option(20_000, low=2, high=1_000_000_000, help="different ids, and rows of the embedding table")
    samples: int = option(20_000, low=4, high=10_000_000, help="samples in all")
    fields: int = option(8, low=1, high=1000, help="ids a sample")
    columns: int = option(8, low=1, high=4096, help="numbers in a row of the embedding table")
    zipf: float = option(1.0, low=0.0, high=4.0, help="exponent of the ids' law; 0: all equally often")
    strength: float = option(2.0, low=0.0, high=100.0, help="how much the ids decide; 0: nothing but chance")
    bias: float = option(-1.5, low=-20.0, high=20.0, help="below 0: clicks are rarer than their opposite")

    def draw(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        """Draw the ids of `samples` samples, shape (samples, fields), int64."""
        return draw_zipf(rng, self.zipf, self.rows, samples * self.fields).reshape(samples, self.fields)

    def build(self, seed: int, test_fraction: float, standardize: bool, dtype: np.dtype[Any]) -> Dataset:
        """Make the data set. x: (samples, fields) int64 ids. y: (samples,) labels 0 or 1."""
        x = self.draw(data_stream(seed, SAMPLES.format(name=self.name)), self.samples)
        ids, place = np.unique(x, return_inverse=True)
        weights = data_stream(seed, TRUE_WEIGHTS.format(name=self.name)).standard_normal(len(ids))
        taste = weights[place.reshape(x.shape)].sum(axis=1)
        logit = self.bias + self.strength * (taste - taste.mean())
        chance = 1 / (1 + np.exp(-logit))
        y = (data_stream(seed, NOISY_LABELS.format(name=self.name)).random(self.samples) < chance).astype(np.int64)
        parts = hold_out(x, y, test_fraction, seed)
        (x_train, train), (x_test, test) = ((x[part.rows], part.targets) for part in parts)
        truth = chance[parts[1].rows]
        for array in (x_train, train, x_test, test):
            array.flags.writeable = False
        share = min(max(float(train.mean()), 1e-6), 1 - 1e-6)
        extra: dict[str, Any] = {"embedding": {"rows": self.rows, "columns": self.columns, "fields": self.fields}}
        extra |= _measures("baseline", np.full(len(test), share), test) | _measures("best", truth, test)
        extra["goal_accuracy"] = (extra["baseline_accuracy"] + extra["best_accuracy"]) / 2
        about = "Made-up clicks on categorical ids that follow Zipf's law. Made by a formula (labkit); free to use."
        zeros, ones = np.zeros(self.fields), np.ones(self.fields)
        return Dataset(self.name, x_train, train, x_test, test, 2, zeros, ones, (), about, extra)


def _measures(name: str, chance: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Compute cross-entropy and accuracy of the predicted probabilities `chance` (n,) for the labels y (n,)."""
    right = np.where(y == 1, chance, 1 - chance)
    loss = float(-np.log(np.maximum(right, 1e-12)).mean())
    if not math.isfinite(loss):
        raise BadInput("clicks: these options make labels that no probability describes; use a smaller strength.")
    return {f"{name}_loss": loss, f"{name}_accuracy": float(((chance > 0.5) == y).mean())}
