"""Compression of one worker's gradients with error feedback: the compression error is stored and added to the next gradient.

    p <- g + m / rate,   send C(p),   m <- rate (p - decoded C(p))

The memory m is stored as a *step*, i.e. rate x gradient, so a change of the rate between two messages does not change its
effect on the parameters. With plain SGD, the parameters x therefore satisfy, at any time and for any schedule of the rate,

    x - (the memories of the workers, averaged or summed in the same way as their gradients) = x0 - sum of rate x gradient

The rate of a gradient in this sum is that of the version on which the gradient was computed. It equals the rate of the step if
the gradient is applied at that version, as in synchronous training. The rates differ if the gradient is stale and there is a
schedule, or if `learning_rate` is changed while the gradient is in flight. If a server drops a push, the memory that was added
to it is lost. The memory of a lost worker is lost, too.

Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018, algorithm 1. The codecs are in `labkit.nn.codecs`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from ..errors import BadInput
from ..nn.codecs import Codec, PowerSGD
from ..nn.codecs.base import Messages, Shapes

StreamFactory = Callable[[], np.random.Generator]


def check_codec(strategy: Any, servers: int) -> None:
    """Raise `BadInput` if the strategy's codec does not support this number of servers."""
    if servers > 1 and isinstance(getattr(strategy, "codec", None), PowerSGD):
        raise BadInput(
            f"{strategy.name}: PowerSGD makes factors of whole matrices, and servers={servers} cut them; it takes "
            "servers=1. TopK, SignSGD, QSGD and Float16 take any number."
        )


def compressor_of(strategy: Any, objective: Any, parts: Sequence[Any], rng: StreamFactory) -> Compressor | None:
    """Return the compressor of one worker for the strategy's option `codec`; None if there is no codec.

    `strategy`: the engine's copy, whose rate may change. `parts`: the parts of the parameters owned by the shards (slices or
    boxes); parts are encoded separately. `rng`: creates the random stream of this role's codec.
    """
    codec = getattr(strategy, "codec", None)
    if codec is None:
        return None
    whole = tuple(objective.layout.shapes.values())
    shapes = [whole] if len(parts) == 1 else [((_length(part),),) for part in parts]

    def rate(version: int) -> float:
        return float(getattr(strategy, "learning_rate", 1.0) * strategy.schedule(version))

    return Compressor(codec, shapes, objective.dtype, rate, rng)


def _length(part: Any) -> int:
    return part.stop - part.start if isinstance(part, slice) else len(part)


class Compressor:
    """Encodes the gradients of one worker, part by part.

    `rate(version)` returns the learning rate at a version. `shapes[i]`: the shapes of the parameters in part i, in order.
    `memory[i]`: the compression error of part i as a step, flat. Vectors of a timing-only run (zero strides) are encoded as
    arrays of the right size that use no memory.
    """

    def __init__(
        self, codec: Codec, shapes: Sequence[Shapes], dtype: Any, rate: Callable[[int], float],
        rng: StreamFactory = np.random.default_rng,
    ):  # fmt: skip
        self.codec, self.shapes, self.dtype, self.rate = codec, tuple(shapes), np.dtype(dtype), rate
        self.version = 0  # of the newest gradient; set by the model that computes it
        self.memory: dict[int, np.ndarray] = {}
        self._make_stream, self._states = rng, dict[int, Any]()

    def encode(self, values: np.ndarray, part: int = 0, version: int | None = None) -> tuple[np.ndarray, ...]:
        """Encode one `part` of a gradient (flat), computed on this `version` of the part. Call it once for each gradient and
        part.
        """
        codec, shapes = self.codec, self.shapes[part]
        if values.strides == (0,):
            return tuple(_arrays_without_memory(codec.message(shapes, self.dtype)))
        rate = self.rate(self.version if version is None else version)
        target = self._with_memory(values, part, rate)
        arrays = codec.encode(target, self._state(part))
        if codec.feedback:
            self._store_error(part, target, codec.decode(arrays, len(target), target.dtype), rate)
        return arrays

    def sum_over_workers(self, values: np.ndarray, workers: int) -> Generator[np.ndarray, None, None]:
        """Yield the vectors that an all-reduce of `values` sums over all workers, one after the other.

        Each vector must be summed, in place, before the next vector is requested. At the end, `values` contains the sum of the
        compressed gradients.
        """
        codec, shapes = self.codec, self.shapes[0]
        if values.strides == (0,):
            yield from _arrays_without_memory(codec.sums(shapes, self.dtype))
            return
        rate = self.rate(self.version)
        target = self._with_memory(values, 0, rate)
        if codec.feedback and target is values:
            target = values.copy()  # it is needed after the sum was written to `values`
        sent = yield from codec.sum_over_workers(target, values, self._state(0), workers)
        if codec.feedback:
            self._store_error(0, target, sent, rate)

    def _state(self, part: int) -> Any:
        if not self._states:  # for all parts at once, because they share the stream
            rng = self._make_stream()
            self._states = {i: self.codec.state(shapes, self.dtype, rng) for i, shapes in enumerate(self.shapes)}
        return self._states[part]

    def _with_memory(self, values: np.ndarray, part: int, rate: float) -> np.ndarray:
        """Return the gradient plus the memory; only the gradient if the rate is 0."""
        memory = self.memory.get(part)
        if memory is None or not rate:
            return values
        with np.errstate(over="ignore", invalid="ignore"):
            return values + memory / np.asarray(rate, values.dtype)

    def _store_error(self, part: int, target: np.ndarray, sent: np.ndarray, rate: float) -> None:
        """Store the compression error if it is finite. Otherwise the memory does not change, so that later gradients stay
        finite. (The loss shows that the model has diverged.)
        """
        if not rate:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.subtract(target, sent, out=sent)
            error *= rate
        if np.isfinite(error).all():
            self.memory[part] = error


def _arrays_without_memory(arrays: Messages) -> list[np.ndarray]:
    """Arrays of the given shapes without memory (zero strides)."""
    return [np.broadcast_to(dtype.type(0), shape) for shape, dtype in arrays]
