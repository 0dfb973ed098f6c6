"""Losses: the mean loss of a batch, and its derivative with respect to the scores.

A loss takes scores of shape (batch, outputs), the output of the last layer. `gradient` writes the derivative of the
*mean* loss, so that later steps need no division. The gradient of a batch of M equal micro-batches is the mean of the M
gradients. If y has weights of samples (`separated`), `gradient` multiplies the losses of the samples by them; the mean stays that
over the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import BadInput
from .objective import Array


def separated(y: Array) -> tuple[Array, Array | None]:
    """Return targets and weights of samples: the fields "y" and "weight" of a structured array; of another array (y, None)."""
    return (y, None) if y.dtype.names is None else (y["y"], y["weight"])


class Loss(Protocol):
    def check(self, y: Array, rows: int, outputs: int) -> Array:
        """Return y in the form that the other methods take. Raises `BadInput` if it does not fit scores (rows, outputs)."""

    def gradient(self, scores: Array, y: Array, out: Array) -> float:
        """Return the mean loss; write its derivative with respect to the scores to `out`, which may be `scores` itself."""

    def evaluate(self, scores: Array, y: Array) -> tuple[float, float | None]:
        """Return the mean loss (summed in float64), and the fraction of correct predictions (None for a regression)."""

    def predict(self, scores: Array) -> Array:
        """Return the predictions: labels or values."""

    def probabilities(self, scores: Array) -> Array:
        """Return the probabilities of the classes, in the shape of the scores."""


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """Classification: y holds labels 0..outputs-1, shape (batch,), any integer dtype.

    For scores z: p = exp(z) / sum exp(z), loss = -log p[y], derivative p - onehot(y) (Bishop 2006, section 4.3.4). The
    greatest score is subtracted first, so that no exponential overflows. log p is computed without p, which may
    underflow to 0.

    `class_weights`: a factor for each class, by which `gradient` multiplies the losses of its samples; empty: all are 1. The mean
    stays that over the number of samples: after a division by the sum of the weights in the batch, the gradient of a batch would
    not be the mean of the gradients of its micro-batches, nor on average that of all samples. `evaluate` does not use them.
    """

    class_weights: tuple[float, ...] = ()

    def check(self, y: Array, rows: int, outputs: int) -> Array:
        y = np.asarray(y)
        if y.dtype.names is not None:
            self.check(y["y"], rows, outputs)
            return y
        if y.shape != (rows,) or y.dtype.kind not in "iu":
            raise BadInput(
                f"y: {rows} whole-number labels, one a row of x, are needed, not {y.dtype} of shape {y.shape}."
            )
        y = y.astype(np.int64, copy=False)
        # As unsigned, a negative label is very large: one comparison checks both bounds.
        if np.maximum.reduce(y.view(np.uint64)) >= outputs:
            raise BadInput(f"y: labels go from 0 to {outputs - 1}; found {y.min()} to {y.max()}.")
        return y

    def gradient(self, scores: Array, y: Array, out: Array) -> float:
        y, weights = separated(y)
        rows, outputs = scores.shape
        np.subtract(scores, np.maximum.reduce(scores, axis=1, keepdims=True), out=out)
        chosen = np.arange(0, rows * outputs, outputs)
        chosen += y
        flat = out.reshape(-1)
        right = flat[chosen]
        np.exp(out, out=out)
        total = np.add.reduce(out, axis=1, keepdims=True)
        if self.class_weights:
            factors = np.asarray(self.class_weights, scores.dtype)[y]
            weights = factors if weights is None else factors * weights
        if weights is None:
            loss = float(np.add.reduce(np.log(total), axis=None) - np.add.reduce(right)) / rows
        else:
            loss = float(np.dot(weights, np.log(total[:, 0]) - right)) / rows
        total *= rows
        out /= total
        flat[chosen] -= 1 / rows
        if weights is not None:
            out *= weights[:, None]
        return loss

    def evaluate(self, scores: Array, y: Array) -> tuple[float, float | None]:
        shifted = scores - scores.max(axis=1, keepdims=True)
        right = np.take_along_axis(shifted, y[:, None], axis=1)[:, 0]
        loss = np.log(np.exp(shifted).sum(axis=1)) - right
        return float(loss.mean(dtype=np.float64)), float((scores.argmax(axis=1) == y).mean())

    def predict(self, scores: Array) -> Array:
        """Return labels, shape (n,), int64; of equal scores the lowest label."""
        return scores.argmax(axis=1)

    def probabilities(self, scores: Array) -> Array:
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p


@dataclass(frozen=True)
class SquaredError:
    """Regression: y holds values, shape (batch, outputs), or (batch,) for a single output.

    loss = 1/2 sum over outputs of (score - y)^2, derivative score - y. Predictions have the shape of the scores, (n, outputs);
    `Predictor.predict` gives them that of the targets of its data set, because the difference of arrays of shapes (n, 1) and (n,)
    would silently have shape (n, n).
    """

    def check(self, y: Array, rows: int, outputs: int) -> Array:
        y = np.asarray(y)
        if y.dtype.names is not None:
            self.check(y["y"], rows, outputs)
            return y
        if y.shape == (rows,) and outputs == 1:
            y = y[:, None]
        if y.shape != (rows, outputs) or y.dtype.kind not in "fiu":
            raise BadInput(f"y: numbers of shape {(rows, outputs)} are needed, not {y.dtype} of shape {y.shape}.")
        return y

    def gradient(self, scores: Array, y: Array, out: Array) -> float:
        y, weights = separated(y)
        np.subtract(scores, y[:, None] if y.ndim == 1 else y, out=out, casting="same_kind")
        flat = out.reshape(-1)
        if weights is None:
            loss = float(np.dot(flat, flat)) / (2 * len(scores))
        else:
            loss = float(np.dot(weights, np.square(out).sum(axis=1))) / (2 * len(scores))
            out *= weights[:, None]
        out /= len(scores)
        return loss

    def evaluate(self, scores: Array, y: Array) -> tuple[float, float | None]:
        wrong = scores.astype(np.float64) - y
        return float(np.square(wrong).sum()) / (2 * len(scores)), None

    def predict(self, scores: Array) -> Array:
        """Return values, shape (n, outputs)."""
        return scores

    def probabilities(self, scores: Array) -> Array:
        """Raise `BadInput`: a regression has no classes."""
        raise BadInput("A regression has no classes and therefore no probabilities; ask for predict.")
