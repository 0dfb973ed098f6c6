"""Records the model's predictions for a few held-out samples and, for data in a plane, for every cell of a grid.

To limit the cost, predictions are recorded less and less often. After k evaluations, the next predictions are recorded k /
`DENSITY` evaluations later: predictions of all of the first hundred evaluations are recorded, then of 100 (1 + ln(n / 100)) of
n evaluations. The rule counts evaluations and reads no clock, so a run in virtual time repeats it exactly. The last evaluation
is always recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..trace.prediction_history import NO_ANSWER
from ..trace.recorder import Recorder

DENSITY = 100
ROWS = 405  # inputs per forward pass, a quarter of 18 samples + 40 x 40 cells: 0.2 ms on a network 2-128-2 (all inputs: 0.8 ms)


@dataclass(frozen=True)
class ProbeInputs:
    """The inputs of recorded predictions: the first `samples` held-out samples, and `side` x `side` cells from `low` to `high`
    (x, y), in the coordinates of the network's input. `side` 0: no grid.
    """

    samples: int
    side: int = 0
    low: tuple[float, float] = (0.0, 0.0)
    high: tuple[float, float] = (1.0, 1.0)

    def cells(self) -> np.ndarray:
        """Return the centres of the cells, float64, shape (side * side, 2): row by row from the lowest y, x from the left."""
        steps = (np.arange(self.side) + 0.5) / max(self.side, 1)
        x, y = (low + steps * (high - low) for low, high in zip(self.low, self.high))
        return np.stack([np.tile(x, self.side), np.repeat(y, self.side)], axis=1)


class Probe:
    """Records predictions of a model with `recorder`. `x`: the held-out samples, shape (n, features)."""

    def __init__(self, inputs: ProbeInputs, objective: Any, x: np.ndarray, recorder: Recorder):
        self.objective, self.recorder = objective, recorder
        samples = x[: inputs.samples]
        self._samples = len(samples)
        inputs_of_model = np.concatenate([samples, inputs.cells().astype(x.dtype)]) if inputs.side else samples
        self._parts = [inputs_of_model[i : i + ROWS] for i in range(0, len(inputs_of_model), ROWS)]
        self._evaluations = self._recorded = 0

    def record(self, time: int, update: int, values: Any, finite: bool, last: bool) -> None:
        """Called at every evaluation of the parameters `values`. `finite`: whether the loss is finite. `last`: always record."""
        self._evaluations += 1
        if not last and DENSITY * (self._evaluations - self._recorded) < self._evaluations:
            return
        self._recorded = self._evaluations
        predictions = self.predict(values) if finite else bytes([NO_ANSWER]) * sum(len(part) for part in self._parts)
        self.recorder.add_predictions(time, update, predictions[: self._samples], predictions[self._samples :])

    def predict(self, values: Any) -> bytes:
        """Return the predicted classes, one byte each, of the samples, then of the cells."""
        return b"".join(self.objective.predict(values, part).astype(np.uint8).tobytes() for part in self._parts)
