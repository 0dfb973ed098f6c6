"""What a role says of gradients and weights, held against what the judge knows.

A student's process may make a `Push` or `Weights` of its own and write any number into it; the engine's books believe
them, and a step of 2**62 would keep them busy for ever. So a role may only name gradients that it has computed, on
weights that they were computed on, and versions that it has seen. Numbers of effects must be numbers that time can take.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..data.batches import Batch
from ..errors import BadInput, RoleError
from ..roles.gradient import Gradient, Model, Parameters
from ..roles.messages import Message, Push, Weights, field_names

__all__ = ["Claims", "kinds_of", "plain_number", "seconds_of", "size_of"]

LONGEST = 1e6  # seconds of virtual time, or times the cost of a gradient
LARGEST = 1 << 53  # of whole numbers in labkit's own messages
WHOLE = ("step", "generation", "version", "count", "samples", "shard", "tag", "part", "at")


class Claims:
    """What one role has computed and seen."""

    def __init__(self) -> None:
        self._read: dict[int, Any] = {}  # step of a gradient -> (generation, version) of what it was computed on
        self._newest = (-1, -1)  # (generation, version) of weights that it has seen
        self.one_gradient = False  # whether work is under way in which a gradient may be computed

    def learn(self, thing: Any) -> None:
        """The role has been handed `thing`."""
        if isinstance(thing, Gradient):
            self._read.setdefault(thing.step, thing.read)
        elif isinstance(thing, Weights):
            self._newest = max(self._newest, (thing.generation, thing.version))

    def sees(self, shard: Any) -> None:
        """The role has a shard: it knows its version."""
        self._newest = max(self._newest, (shard.generation, shard.version))

    def check(self, message: Message) -> Message:
        """`message`, which the role has made. `RoleError` if it says what is not so."""
        kind = type(message)
        if kind.__module__ == Message.__module__:
            for name in field_names(kind):
                value = getattr(message, name)
                if name in WHOLE and (type(value) is not int or not -1 <= value <= LARGEST):
                    raise RoleError(f"{kind.__name__}.{name} is {str(value)[:40]}; it is a whole number from 0 on.")
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

    def call(self, method: Any, args: Any) -> None:
        """The role calls a method of the judge's at once. `RoleError` for a gradient outside of timed work."""
        if isinstance(method.__self__, Model):
            if not self.one_gradient:
                raise RoleError(
                    "A gradient takes time, each of its own: write `await ctx.compute(model.gradient, weights, batch)`."
                )
            self.one_gradient = False
            self.work(method, args, 1.0)
        elif isinstance(method.__self__, Gradient):
            _check_total(method, args)

    def work(self, method: Any, args: Any, cost: float) -> None:
        """The role hands `method` to `ctx.compute`. `RoleError` for a gradient that is no gradient of the run's."""
        if isinstance(method.__self__, Model):
            if cost != 1.0:
                raise RoleError(f"cost={cost:g} for a gradient: how long it takes is not the strategy's to say.")
            if len(args) == 2 and not isinstance(args[1], Batch):
                raise RoleError("model.gradient(weights, batch): the batch is one of `ctx.batches()`.")
        elif isinstance(method.__self__, Gradient):
            _check_total(method, args)


def _check_total(method: Any, args: Any) -> None:
    if method.__name__ != "of_everyone" or len(args) < 2:
        return
    total, workers, own = args[0], plain_number(args[1]), method.__self__.values
    if type(workers) is not int or not 0 < workers < 1 << 20:
        raise RoleError(
            f"gradient.of_everyone(total, workers): workers is {str(workers)[:40]}; it is how many they are."
        )
    if isinstance(total, np.ndarray) and (total.shape != own.shape or total.itemsize > own.itemsize):
        raise RoleError(
            f"gradient.of_everyone(total, workers): total does not fit: it is {total.dtype} of shape {total.shape}, and the "
            f"gradient is {own.dtype} of shape {own.shape}."
        )


def plain_number(value: Any) -> Any:
    """A number of NumPy's as Python's; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def seconds_of(value: Any, what: str) -> Any:
    """A number of seconds, or a cost, that came from a role. Negative ones mean at once, as in `ctx.sleep`."""
    value = plain_number(value)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise TypeError(f"{what} is a {type(value).__name__}; it is a number")
    if not (isinstance(value, int) or math.isfinite(value)) or abs(value) > LONGEST:
        raise BadInput(f"{what} is {str(value)[:40]}; allowed: up to {LONGEST:g}.")
    return value


def kinds_of(values: Any) -> tuple[type[Message], ...]:
    """The kinds of message that a role waits for."""
    kinds = tuple(values) if isinstance(values, (list, tuple)) else ()
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, Message) for kind in kinds):
        raise BadInput("a role waits for kinds of message, at least one, as in ctx.recv(lk.Weights)")
    return kinds


def size_of(value: Any) -> int:
    """About how many bytes of memory something takes that a role said, or was lent."""
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
