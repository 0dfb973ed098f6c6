"""Gradients with the version of the weights on which they were computed, and the model that computes them.

`Parameters`: the weights that a worker pulled. `Gradient`: a gradient computed on them. `Model`: computes gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..errors import RoleError, shown
from ..nn import NullObjective, clip_by_norm
from ..nn.buffer_pool import BufferPool
from ..trace.recorder import Recorder
from ..trace.schema import ALL, CANCELLED
from .compressor import Compressor
from .messages import Push, timing_only_message
from .part import Part, Work

Read = tuple[tuple[int, int], ...]  # (generation, version) of every shard, as read


class Parameters:
    """The whole flat parameter vector, with the version of each shard when it was read.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The parameters.
    read : tuple of tuple of int
        The (generation, version) of each shard.
    clocks : tuple of tuple of int, default: ()
        The gradients contained in the part of each shard, if the shards send them (`CentreWeights`).

    See Also
    --------
    pull, push_pull : Return the parameters.

    Examples
    --------
    >>> weights = lk.Parameters(np.zeros(3), read=((0, 4), (0, 5)))  # of two shards
    >>> weights.read[1]
    (0, 5)
    """

    __slots__ = ("clocks", "read", "values")

    def __init__(self, values: np.ndarray, read: Read, clocks: tuple[tuple[int, ...], ...] = ()):
        self.values, self.read, self.clocks = values, read, clocks


class Gradient:
    """A gradient, with the version of the weights on which it was computed.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The gradient of all parameters, flat.
    step : int
        The number of the gradient, of the newest if it is a sum of several, counted by the worker from 0.
    read : tuple of tuple of int
        The (generation, version) of each shard, of the weights on which it was computed.
    samples : int
        The number of examples.
    parts : tuple of slice
        The part of each shard in the vector.
    loss : float, default: nan
        The mean loss over the samples.
    count : int, default: 1
        The number of gradients of which it is the sum or the mean. A mean over accumulated mini-batches is one gradient.
    all_workers : bool, default: False
        Whether it combines one gradient of every worker, all of the same step.
    compressor : Compressor, optional
        Encodes the pushes. None: no compression.
    complete : bool, default: True
        Whether it has all its mini-batches. Others are still to be added if gradients are accumulated
        (`model.gradient(weights, batch, accumulate)`).

    See Also
    --------
    push, push_pull, post : Send a gradient to the servers.
    Push : The message with the part of one shard.

    Examples
    --------
    `model.gradient` returns gradients. The push for a shard contains the shard's part.

    >>> parts = (slice(0, 2), slice(2, 3))
    >>> gradient = lk.Gradient(np.array([1.0, 2.0, 3.0]), step=0, read=((0, 4), (0, 5)), samples=32, parts=parts)
    >>> push = gradient.push(1)
    >>> push.values, push.version
    (array([3.]), 5)
    """

    __slots__ = (
        "all_workers", "complete", "compressor", "count", "loss", "mean_square", "parts", "read", "samples", "square", "step",
        "values",
    )  # fmt: skip

    def __init__(
        self,
        values: np.ndarray,
        step: int,
        read: Read,
        samples: int,
        parts: tuple[slice, ...],
        loss: float = float("nan"),
        count: int = 1,
        all_workers: bool = False,
        compressor: Compressor | None = None,
        complete: bool = True,
    ):
        self.values, self.step, self.read, self.samples, self.parts = values, step, read, samples, parts
        self.loss, self.count, self.all_workers, self.compressor = loss, count, all_workers, compressor
        self.complete = complete
        # the squared norm of the worker's gradient, and that of the mean of all workers; None: not measured
        self.square: float | None = None
        self.mean_square: float | None = None

    def push(self, shard: int) -> Push:
        """Return the message for a shard: its part of this gradient, encoded if there is a compressor, and the version read.

        Parameters
        ----------
        shard : int
            The number of the shard.

        Returns
        -------
        Push
            The message.

        Raises
        ------
        RoleError
            If the gradient is not complete.
        """
        self.check_complete()
        generation, version = self.read[shard]
        values = self.values if len(self.parts) == 1 else self.values[self.parts[shard]]
        encoded: Any = values if self.compressor is None else self.compressor.encode(values, shard, version)
        if values.strides != (0,):
            return Push(encoded, self.step, generation, version, self.count, self.samples)
        nbytes = values.nbytes if encoded is values else sum(array.nbytes for array in encoded)
        return timing_only_message(Push, {
            "values": encoded, "step": self.step, "generation": generation, "version": version,
            "count": self.count, "samples": self.samples, "timing_only_bytes": nbytes,
        })  # fmt: skip

    def plus(self, other: Gradient) -> Gradient:
        """Add the next gradient of the same worker, in place.

        The sum is pushed once, with the read version of the older gradient.

        Parameters
        ----------
        other : Gradient
            The next gradient.

        Returns
        -------
        Gradient
            This gradient.
        """
        if self.values.strides != (0,):
            np.add(self.values, other.values, out=self.values)
        self.step, self.count, self.samples = other.step, self.count + other.count, self.samples + other.samples
        return self

    def of_all_workers(self, total: np.ndarray, workers: int, reduce: str = "mean") -> Gradient:
        """Make this gradient the combination of one gradient of every worker, in place.

        Parameters
        ----------
        total : ndarray, shape (n,)
            The sum of the gradients of all workers. It is used as memory of the result.
        workers : int
            The number of workers.
        reduce : {'mean', 'sum'}, default: 'mean'
            "mean": the sum is divided by the number of workers.

        Returns
        -------
        Gradient
            This gradient.
        """
        if reduce == "mean" and total.strides != (0,):
            np.divide(total, workers, out=total)
        if self.square is not None:
            self.mean_square = squared_norm(total) / (1 if reduce == "mean" else workers**2)
        self.values, self.count, self.samples, self.all_workers = total, workers, self.samples * workers, True
        return self

    def check_complete(self) -> None:
        """Raise `RoleError` if mini-batches of the gradient are still to be added."""
        if not self.complete:
            raise RoleError(
                f"Gradient {self.step} does not have all its mini-batches yet: use it when `gradient.complete` is True."
            )


Contribution = Push | Gradient  # a shard applies pushes of other roles, or gradients computed in its role


class AccumulatedGradient:
    """The gradient that a model accumulates over several mini-batches, and how many `batches` it has so far.

    For each mini-batch: `begin`, then `add` for all parts of its gradient, as soon as they are computed, then `end`.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], int]):
        self.recorder, self.clock = recorder, clock
        self.batches = 0
        self._total: Gradient | None = None
        self._samples: list[int] | None = None  # of each mini-batch; None: the gradient noise is not measured
        self._squares = self._mean_square = 0.0  # squared norms of the mini-batches, added up, and that of the mean

    def begin(self, gradient: Gradient, count: int, measured: bool) -> Gradient:
        """Begin the gradient of the next of `count` mini-batches. Returns the accumulated gradient, which is that of the first
        mini-batch and is overwritten. Its values are a sum until it is complete, and then the mean. `measured`: whether the
        gradient noise is recorded.
        """
        if count.__class__ is not int or count < 1:
            raise RoleError(f"accumulate={shown(count)}: give the number of mini-batches of a gradient, from 1 on.")
        if self._total is None:
            self._total, self._samples = gradient, [] if measured and count > 1 else None
            self._squares = self._mean_square = 0.0
        if self._samples is not None:
            self._samples.append(gradient.samples)
        total = self._total
        total.complete = self.batches + 1 >= count
        return total

    def add(self, gradient: Gradient, part: slice = slice(None)) -> None:
        """Add a part of the gradient of the mini-batch; with the last one, make it the mean."""
        total = self._total
        if total is None or total.values.strides == (0,):
            return
        own, measured = total.values[part], self._samples is not None
        if measured:
            self._squares += squared_norm(gradient.values[part])
        if gradient is not total:
            np.add(own, gradient.values[part], out=own)
        if total.complete and self.batches:
            np.divide(own, self.batches + 1, out=own)
            if measured:
                self._mean_square += squared_norm(own)

    def end(self, gradient: Gradient) -> None:
        """End a mini-batch, and the accumulated gradient if it is complete."""
        total = self._total
        assert total is not None
        if gradient is not total:
            total.samples, total.loss = total.samples + gradient.samples, total.loss + gradient.loss
        self.batches += 1
        if total.complete:
            total.loss /= self.batches
            if self._samples is not None:
                square = self._squares / self.batches
                record_noise(self.recorder, self.clock(), total.step, self._samples, square, self._mean_square)
            self._total, self.batches = None, 0


class Model(Part):
    """The network of a worker: computes gradients and numbers them. `parts`: for each shard, the slice of the vector that it
    owns. `compressor`: encodes the gradients that are sent; None: no compression. `stream`: returns the random stream of gradient
    number (i,), of its mini-batch j > 0 (i, j), for an objective that draws from it. `accumulated`: the gradient that is not
    complete.
    """

    work: ClassVar[Work] = "gradient"

    def __init__(
        self, objective: Any, recorder: Recorder, clock: Any, parts: Sequence[slice], *, clip_norm: float | None = None,
        norms_every: int = 0, compressor: Compressor | None = None,
        stream: Callable[[tuple[int, ...]], np.random.Generator] | None = None,
    ):  # fmt: skip
        self.compressor, self.stream = compressor, stream
        self.objective, self.recorder, self.clock, self.parts = objective, recorder, clock, tuple(parts)
        self.clip_norm = clip_norm
        self.layers = list(enumerate(objective.layout.groups().values()))
        self.pool = BufferPool()
        self.null = isinstance(objective, NullObjective)  # a timing-only run: gradients have a size but no memory
        self.null_values = objective.start(0) if self.null else np.empty(0)
        self.norms_every = 0 if self.null else norms_every
        self.accumulated = AccumulatedGradient(recorder, clock)

    def gradient(self, parameters: Any, batch: Any, accumulate: int = 1) -> Gradient:
        """Return the gradient of the mean loss over `batch`. The caller owns it.

        `accumulate`: the gradient is the mean over the mini-batches of so many calls. Before the last of these calls it is not
        complete. Its weights and its number are those of the first call.
        """
        counters = self.recorder.counters
        step, compressor = counters.computed, self.compressor
        if compressor is not None:
            compressor.version = parameters.read[0][1]
        if self.null:
            values, loss = self.null_values, float("nan")
        else:
            like = parameters.values
            values = self.pool.take(like.nbytes)[: like.nbytes].view(like.dtype)  # reused when unreferenced
            loss = self.compute(parameters.values, batch, step, values)
        made = Gradient(values, step, parameters.read, batch.samples, self.parts, loss, compressor=compressor)
        total = self.accumulated.begin(made, accumulate, self.measures(step))
        self.accumulated.add(made)
        self.accumulated.end(made)
        if not total.complete:
            return total
        counters.computed = step + 1
        if self.null:
            return total
        # The whole vector, in the worker, so that the result does not depend on the number of shards.
        if self.clip_norm is not None:
            clip_by_norm(total.values, self.clip_norm)
        if self.measures(step):
            self.record_norms(total, self.layers, parameters.values)
        return total

    def record_norms(self, gradient: Gradient, layers: Iterable[tuple[int, slice]], weights: np.ndarray) -> None:
        """Record the norms of layers of a complete gradient. Its squared norm is needed for the gradient noise, unless others are
        sent in its place.
        """
        square = record_norms(self.recorder, self.clock(), gradient.step, layers, gradient.values, weights)
        if self.clip_norm is None and self.compressor is None:
            gradient.square = square + (gradient.square or 0.0)

    def compute(self, params: np.ndarray, batch: Any, step: int, out: np.ndarray) -> float:
        """Compute gradient number `step` of the objective in `out`. Returns the mean loss."""
        arguments = (params, batch.x, batch.y, out)
        if self.objective.stochastic:
            assert self.stream is not None
            number = self.accumulated.batches  # of the mini-batch
            arguments = (*arguments, self.stream((step, number) if number else (step,)))  # type: ignore[assignment]
        loss: float = self.objective.gradient(*arguments)
        return loss

    def cancelled(self) -> None:
        """Record a gradient whose computation was cancelled. It counts as computed and as dropped ("cancelled"), with the
        mini-batches that were accumulated for it.
        """
        self.accumulated = AccumulatedGradient(self.recorder, self.clock)
        counters = self.recorder.counters
        step = counters.computed
        counters.computed = counters.released = step + 1
        self.recorder.drop(ALL, self.clock(), self.recorder.role, self.recorder.incarnation, step, 1, CANCELLED)

    def discard(self, gradient: Gradient) -> None:
        """Record a gradient that was computed but is not used: it is dropped as cancelled."""
        if not gradient.complete:
            self.cancelled()
            return
        counters = self.recorder.counters
        counters.released = max(counters.released, gradient.step + 1)
        me = self.recorder
        me.drop(ALL, self.clock(), me.role, me.incarnation, gradient.step, 1, CANCELLED)

    def measures(self, step: int) -> bool:
        """Return whether the norms of this gradient's layers are recorded."""
        return bool(self.norms_every) and step % self.norms_every == 0


def record_norms(
    recorder: Recorder, now: int, step: int, layers: Iterable[tuple[int, slice]], values: np.ndarray, weights: np.ndarray
) -> float:  # fmt: skip
    """Record the norms of the gradient `values` and of the weights, of each of `layers`: (number, slice in both vectors). Returns
    the squared norm of the gradient of these layers.
    """
    total = 0.0
    for number, own in layers:
        square = squared_norm(values[own])
        recorder.norms.extend((now, step, number, square**0.5, squared_norm(weights[own]) ** 0.5))
        total += square
    return total


def record_noise(
    recorder: Recorder, now: int, step: int, samples: Sequence[float], square: float, mean_square: float
) -> None:  # fmt: skip
    """Record a measurement of the gradient noise: of gradients on the same weights the numbers of `samples`, the mean of their
    squared norms, and the squared norm of their mean.
    """
    count = len(samples)
    if count > 1 and min(samples) > 0:
        # of different numbers the harmonic mean, because it determines the variance of the mean gradient
        each = count / sum(1 / number for number in samples)
        recorder.gradient_noise.extend((now, step, count, each, square, mean_square))


def squared_norm(values: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected by the loss
        return float(np.dot(values, values))
