"""Compares what a student process sends about gradients, weights, and times with the grader's records.

A student process may construct a `Push` or `Weights` with any numbers, and the engine's accounting uses these numbers;
for example, a step of 2**62 would keep the accounting busy without end. Therefore a role may only send gradients that
it has computed, with the version of the weights on which they were computed, and weights of the newest version that it
has received. Times and costs must be finite numbers within limits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import MethodType
from typing import Any

import numpy as np

from ...data.batches import Batch
from ...errors import BadInput, RoleError
from ...roles.gradient import Gradient, Model, Parameters, Read
from ...roles.messages import Message, Push, Weights, field_names
from ...roles.shard import Shard

MAX_SECONDS = 1e6  # seconds of virtual time, or multiples of the cost of a gradient
MAX_INTEGER = 1 << 53  # limit of whole numbers in labkit's own messages
INTEGER_FIELDS = ("step", "generation", "version", "count", "samples", "shard", "tag", "part", "at")


class RequestValidator:
    """The record of what one role has computed and received, with which its messages and calls are compared."""

    def __init__(self) -> None:
        # step of a gradient -> (generation, version) of the weights on which it was computed
        self._read: dict[int, Read] = {}
        self._newest = (-1, -1)  # (generation, version) of the newest weights that the role has received
        self.one_gradient = False  # whether a piece of work is in progress that may compute one gradient

    def record(self, value: object) -> None:
        if isinstance(value, Gradient):
            self._read.setdefault(value.step, value.read)
        elif isinstance(value, Weights):
            self._newest = max(self._newest, (value.generation, value.version))

    def record_shard(self, shard: Shard) -> None:
        """Record the current version of a shard that the role holds."""
        self._newest = max(self._newest, (shard.generation, shard.version))

    def check(self, message: Message) -> Message:
        """Check a `message` that the role has constructed. Raises `RoleError` if its numbers are wrong."""
        kind = type(message)
        if kind.__module__ == Message.__module__:
            for name in field_names(kind):
                value = getattr(message, name)
                if name in INTEGER_FIELDS and (type(value) is not int or not -1 <= value <= MAX_INTEGER):
                    raise RoleError(f"{kind.__name__}.{name} is {str(value)[:40]}; allowed: a whole number from 0 on.")
        if isinstance(message, Push):
            self._check_push(message)
        elif isinstance(message, Weights) and (message.generation, message.version) != self._newest:
            raise RoleError(
                f"Weights of version {message.version}: made by a role whose newest are of {self._newest[1]}."
            )
        return message

    def _check_push(self, push: Push) -> None:
        if not 1 <= push.count <= len(self._read):
            raise RoleError(f"Push.count is {push.count}; this role has computed {len(self._read)} gradients.")
        steps = range(push.step - push.count + 1, push.step + 1)
        if any(step not in self._read for step in steps):
            raise RoleError(f"Push.step is {push.step}, with {push.count} gradients: not all were computed here.")
        if not any((push.generation, push.version) in self._read[step] for step in steps):
            raise RoleError(f"Push.version is {push.version}: that gradient was computed on another version.")

    def check_call(self, method: MethodType, args: Sequence[Any]) -> None:
        """Check a call of a method of a grader's object. Raises `RoleError` if a gradient is computed outside of timed work."""
        if isinstance(method.__self__, Model):
            if not self.one_gradient:
                raise RoleError(
                    "A gradient takes time, each of its own: write `await ctx.compute(model.gradient, weights, batch)`."
                )
            self.one_gradient = False
            self.check_work(method, args, 1.0)
        elif isinstance(method.__self__, Gradient):
            _check_total(method, args)

    def check_work(self, method: MethodType, args: Sequence[Any], cost: float) -> None:
        """Check a method that is given to `ctx.compute`. Raises `RoleError` for a gradient with a cost other than 1, or a batch
        that is not a mini-batch of `ctx.batches()`.
        """
        if isinstance(method.__self__, Model):
            if cost != 1.0:
                raise RoleError(
                    f"cost={cost:g} for a gradient: the strategy does not decide how long a gradient takes."
                )
            if len(args) > 1 and not isinstance(args[1], Batch):
                raise RoleError("model.gradient(weights, batch): the batch is one of `ctx.batches()`.")
        elif isinstance(method.__self__, Gradient):
            _check_total(method, args)


def _check_total(method: MethodType, args: Sequence[Any]) -> None:
    if method.__name__ != "of_all_workers" or len(args) < 2:
        return
    gradient: Any = method.__self__  # a `Gradient`: the callers have checked it
    total, workers, own = args[0], python_number(args[1]), gradient.values
    if type(workers) is not int or not 0 < workers < 1 << 20:
        raise RoleError(
            f"gradient.of_all_workers(total, workers): workers is {str(workers)[:40]}; allowed: the number of workers."
        )
    if isinstance(total, np.ndarray) and (total.shape != own.shape or total.itemsize > own.itemsize):
        raise RoleError(
            f"gradient.of_all_workers(total, workers): total does not fit: it is {total.dtype} of shape {total.shape}, and the "
            f"gradient is {own.dtype} of shape {own.shape}."
        )


def python_number(value: Any) -> Any:
    """Convert a NumPy scalar to a Python number; return any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def checked_seconds(value: object, what: str) -> int | float | None:
    """Return a number of seconds, or a cost, that a role has sent; None stays None. A negative time means 0 s.

    Raises `TypeError` if it is not a number, and `BadInput` if it is not finite or too large.
    """
    number = python_number(value)
    if number is None:
        return None
    if type(number) not in (int, float):
        raise TypeError(f"{what} is a {type(number).__name__}; it is a number")
    if not (isinstance(number, int) or math.isfinite(number)) or abs(number) > MAX_SECONDS:
        raise BadInput(f"{what} is {str(number)[:40]}; allowed: up to {MAX_SECONDS:g}.")
    return number


def checked_kinds(values: object) -> tuple[type[Message], ...]:
    """Return the message classes that a role waits for. Raises `BadInput` if a value is not a message class."""
    kinds = tuple(values) if isinstance(values, (list, tuple)) else ()
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, Message) for kind in kinds):
        raise BadInput("a role waits for kinds of message, at least one, as in ctx.recv(lk.Weights)")
    return kinds


def size_of(value: object) -> int:
    """Return the approximate number of bytes that a value takes in memory."""
    if isinstance(value, np.ndarray):
        return value.nbytes + (sum(map(size_of, value.ravel())) if value.dtype == object else 0)
    if isinstance(value, Message):
        return sum(size_of(getattr(value, name)) for name in field_names(type(value)))
    if isinstance(value, (Gradient, Parameters)):
        return int(value.values.nbytes)
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(size_of(key) + size_of(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sys.getsizeof(value) + sum(map(size_of, value))
    return sys.getsizeof(value)
