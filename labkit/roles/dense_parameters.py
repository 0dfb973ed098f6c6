"""The parameters of a dense shard (a flat vector): values and optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import RoleError
from ..formats import ArrayForm, check
from ..nn.codecs import Codec
from ..nn.index_sets import Boxes
from ..nn.optimizers import Optimizer
from .gradient import Contribution, Gradient
from .optimizer_state import OptimizerState
from .staleness_correction import StalenessCorrection


class DenseParameters:
    """The parameters of shard `index`: the slice (or boxes) `part` of the whole model.

    `values`: flat, shape (size,), a read-only view; only the methods here change the values. In a timing-only run they have
    zero strides and no memory, and nothing is computed. `codec`: decodes pushes. `correction`: corrects stale gradients.
    """

    def __init__(
        self, index: int, part: slice | Boxes, values: np.ndarray, optimizer: Optimizer, *, weight_decay: float = 0.0,
        codec: Codec | None = None, correction: StalenessCorrection | None = None,
    ):  # fmt: skip
        self.index, self.correction = index, correction
        self.timing_only = values.strides == (0,)
        self.steps = not self.timing_only  # False: `step` has nothing to do
        self.nbytes = values.nbytes
        self._part, self._values, self._codec = part, values, codec
        self.values = values.view()
        self.values.flags.writeable = False
        if not self.timing_only:
            self._optimizer = OptimizerState(optimizer, len(values), values.dtype, weight_decay)
            self._sum = np.empty_like(values)

    @property
    def dtype(self) -> np.dtype:
        return self._values.dtype

    def part_of(self, gradient: Contribution) -> np.ndarray:
        """Return the decoded part of a gradient for these parameters, shape (size,). Raises `RoleError` if it does not fit."""
        values, own = gradient.values, self._values
        if values.__class__ is tuple:
            assert self._codec is not None
            values = self._codec.decode(values, len(own), own.dtype)
        elif gradient.__class__ is Gradient and len(values) != len(own):
            values = Boxes.of(self._part).take(values) if isinstance(self._part, Boxes) else values[self._part]
        if values.shape != own.shape:
            raise RoleError(f"shard {self.index} has {len(own)} parameters, and it has {values.shape}")
        return values

    def step(self, gradients: Sequence[Contribution], rate: float, reduce: str, version: int, generation: int) -> None:
        """Take one optimizer step, from `version` to the next version, with the "mean" or "sum" (`reduce`) of the gradients,
        which are added in the given order.
        """
        step = self._effective(gradients[0], version, generation)
        if len(gradients) > 1:
            total = self._sum
            np.copyto(total, step)
            for gradient in gradients[1:]:
                np.add(total, self._effective(gradient, version, generation), out=total)
            if reduce == "mean":
                np.divide(total, len(gradients), out=total)
            step = total
        self._optimizer.step(self._values, step, rate, version + 1)

    def _effective(self, gradient: Contribution, version: int, generation: int) -> np.ndarray:
        """Return the part of a gradient for this shard, with the staleness correction applied if there is one."""
        values = self.part_of(gradient)
        if self.correction is None or isinstance(gradient, Gradient) or gradient.generation != generation:
            return values
        return self.correction.correct(values, gradient.version, version, self._values)

    def assign(self, values: np.ndarray) -> None:
        if not self.timing_only:
            np.copyto(self._values, values)

    def move_towards(self, goal: np.ndarray, share: float) -> None:
        """Move the values w towards `goal`, shape (size,): w += share (goal - w)."""
        if not self.timing_only:
            pull = goal - self._values
            pull *= pull.dtype.type(share)
            self._values += pull

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of values and optimizer state, as entries of a checkpoint; {} in a timing-only run."""
        if self.timing_only:
            return {}
        learned = {} if self.correction is None else self.correction.arrays()
        return {"values": self._values.copy()} | self._optimizer.arrays() | learned

    def check(self, arrays: Mapping[str, object]) -> None:
        """Raise `Mismatch` if these are not the result of `arrays()` of such parameters."""
        if not self.timing_only:
            form = ArrayForm(self.dtype, self._values.shape, finite=True)
            learned = {} if self.correction is None else self.correction.form()
            check(arrays, {"values": form} | self._optimizer.form() | learned)

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        if not self.timing_only:
            np.copyto(self._values, arrays["values"])
            self._optimizer.load(arrays)
            if self.correction is not None:
                self.correction.load(arrays)
