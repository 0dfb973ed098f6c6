"""The environment of a role in its student process: the connection to the grader, and proxies of the grader's objects.

Shards, models and gradients stay in the grader; a `Proxy` requests their attributes from the grader and runs their
methods there. A received message or mini-batch is a local object. When it is sent back, only a reference to the
grader's object is sent, with the changes made to its arrays.
"""

from __future__ import annotations

import builtins
import collections
import os
from typing import Any

import numpy as np

from ...encoding import Decoder, EncodingError, encode
from ...errors import BadInput, ClusterError, RoleError
from ...models.numpy_model import DataShape
from ...roles import messages
from ...roles.context import Context
from ...roles.effects import Posted
from . import restricted_api

ERRORS = {e.__name__: e for e in (RoleError, BadInput, ClusterError)}

WRITABLE = ("gradient", "weights")  # objects of the role itself, whose `values` it may change


class GraderConnection:
    """The connection to the grader, over two pipes. `context`: the role's context; `freed`: numbers of unused references."""

    def __init__(self, reading: int, writing: int):
        self._reading, self._writing = reading, writing
        self._decoder = Decoder(self._find)
        self._kinds: dict[str, type] = dict(restricted_api.MESSAGES)
        self.context: Any = None
        self.freed: list[int] = []

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Ends this process if the grader has closed the pipe."""
        parts = []
        while size:
            part = os.read(self._reading, min(size, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send(self, frame: Any) -> None:
        """Send a frame. Raises `RoleError` if a value in the frame cannot be encoded."""
        freed, self.freed = self.freed, []
        try:
            data = b"".join(encode([frame, freed], self._refer))
        except EncodingError as why:
            raise RoleError(f"{why}.") from None
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> Any:
        """Return the grader's next frame."""
        return self._decoder.decode(self.read)

    def request(self, *request: Any) -> Any:
        """Return the grader's answer to a request, which takes no engine time. If the answer is an error, raise it."""
        self.send(["request", *request])
        how, *answer = self.receive()
        if how == "error":
            raise error_of(*answer)
        return answer[0]

    def reference_function(self, name: str) -> Any:
        """Return a function that calls the reference's function `name`, which runs in another process."""

        def call(*args: Any, **keywords: Any) -> Any:
            return self.request("reference", name, list(args), keywords)

        call.__name__ = call.__qualname__ = name
        return call

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return ["object", value._number, *_changes(value)]
        if isinstance(value, (Batch, messages.Message)):
            reference = value.__dict__.get("_reference")
            if reference is not None:
                return ["object", reference.number, *_changes(value)]
        if isinstance(value, messages.Message):
            fields = {name: getattr(value, name) for name in messages.field_names(type(value))}
            return ["message", type(value).__name__, fields]
        if isinstance(value, Method):
            return ["method", value.proxy._number, value.name, *_changes(value.proxy)]
        if value is self.context:
            return ["context"]
        if isinstance(value, type) and issubclass(value, messages.Message):
            return ["kind", value.__name__]
        return None

    def _find(self, received: Any) -> Any:
        what, number, *more = received
        if what == "data shape":
            return DataShape(*number)
        if what == "generator":
            bits = np.random.PCG64()
            bits.state = number
            return np.random.Generator(bits)
        if what == "object":
            return Proxy(self, number, *more)
        if what == "batch":
            batch: Any = Batch._make(more[0])
            batch._reference, batch._received = Reference(self, number), {"x": batch.x.copy(), "y": batch.y.copy()}
            return batch
        kind, fields, sender, incarnation = more
        message: Any = object.__new__(self._kinds[kind])
        message.__dict__.update(
            fields,
            sender=sender,
            incarnation=incarnation,
            _reference=Reference(self, number),
            _received=_copies(fields),
        )
        return message

    def register(self, kinds: tuple[type, ...]) -> None:
        self._kinds.update({kind.__name__: kind for kind in kinds})


def _copies(fields: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in fields.items() if isinstance(value, np.ndarray)}


def _changes(local: Any) -> list[dict[str, Any]]:
    """Return [{name: array}] of the arrays that the role has changed since they were received; [] if it has changed none.

    An example of a change is `gradient.values *= 0.5`.
    """
    received = local.__dict__["_received"]
    arrays = {name: getattr(local, name) for name in received}
    for name, value in arrays.items():
        if not isinstance(value, np.ndarray):
            raise RoleError(f"{str(name)[:40]} is no array: it is a {type(value).__name__}.")
    changed = {name: value for name, value in arrays.items() if value.tobytes() != received[name].tobytes()}
    return [changed] if changed else []


def error_of(name: str, text: str) -> BaseException:
    """Return the error with which the grader answered: of labkit's or Python's class `name` if known, else `RoleError`."""
    known = ERRORS.get(name) or getattr(builtins, name, None)
    return known(text) if isinstance(known, type) and issubclass(known, Exception) else RoleError(text)


class Reference:
    """The number of an object that the grader holds. When it is deleted, the grader is notified, and drops the object."""

    def __init__(self, grader: GraderConnection, number: int):
        self.grader, self.number = grader, number

    def __del__(self) -> None:
        self.grader.freed.append(self.number)


class Batch(collections.namedtuple("Batch", ("x", "y", "samples", "epoch"))):
    """A mini-batch, as in `labkit.data`. A received mini-batch is sent back as a reference, with the changes to its arrays."""

    def __repr__(self) -> str:
        return f"Batch(samples={self.samples}, epoch={self.epoch})"


class Proxy:
    """A proxy of an object that the grader holds (a shard, a model, a gradient). Methods run in the grader.

    `attributes`: the values that were sent with the reference. Other attributes are requested when they are read.
    """

    def __init__(
        self, grader: GraderConnection, number: int, kind: str, attributes: dict[str, Any], methods: list[str]
    ):
        self.__dict__.update(
            attributes, _reference=Reference(grader, number), _number=number, _grader=grader, _kind=kind
        )
        self.__dict__.update(_received={}, _methods=methods, _sent=tuple(n for n in attributes if n != "_parts"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a {self.__dict__.get('_kind')} has no {name!r}")
        if name in self._methods:
            return Method(self, name)
        value = self._grader.request("get", self, name)
        if isinstance(value, np.ndarray):
            if self._kind in WRITABLE:
                self.__dict__[name], self._received[name] = value, value.copy()
            else:
                value.flags.writeable = False  # a change would have no effect
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if self._kind not in WRITABLE or name != "values":
            raise AttributeError(f"{name} of a {self._kind} is not the role's to set")
        self.values  # noqa: B018  # receives the current values, with which changes are compared
        self.__dict__[name] = np.asarray(value)  # an array of the role, which may change it later

    def __repr__(self) -> str:
        return f"<{self._kind}>"


class Method:
    """A method of a proxied object, which is called or given to `ctx.compute`."""

    def __init__(self, proxy: Proxy, name: str):
        self.proxy, self.name = proxy, name

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        result = self.proxy._grader.request("call", self.proxy, self.name, list(args), keywords)
        after = CALL_EFFECTS.get(self.name) if self.proxy._kind == "gradient" else None
        return result if after is None else after(self.proxy, result, *args, **keywords)


# In a notebook, methods of a gradient change arrays in place. These functions repeat the changes in this process.


def _after_push(gradient: Proxy, push: Any, shard: int) -> Any:
    """Let the message share memory with the gradient."""
    parts = gradient.__dict__["_parts"]
    if -len(parts) <= shard < len(parts):
        own = gradient.values[slice(*parts[shard])]
        if own.shape == push.values.shape:
            push.__dict__["values"] = own
    return push


def _after_of_all_workers(gradient: Proxy, result: Proxy, total: Any, workers: Any, reduce: str = "mean") -> Proxy:
    """Divide `total` in place, as the grader has divided its copy, and make it the values of the gradient."""
    if reduce == "mean" and total.flags.writeable:
        np.divide(total, workers, out=total)
    gradient.__dict__["values"] = total
    return _updated(gradient, result)


def _after_plus(gradient: Proxy, result: Proxy, other: Any) -> Proxy:
    """Copy the sum into the local values of the gradient."""
    if "values" in gradient.__dict__:
        np.copyto(gradient.values, result.values)
    return _updated(gradient, result)


def _updated(gradient: Proxy, result: Proxy) -> Proxy:
    """Copy the attributes of `result`, the gradient as the grader has changed it, to `gradient`, and return `gradient`."""
    gradient.__dict__.update({name: result.__dict__[name] for name in result._sent})
    if "values" in gradient.__dict__:
        gradient._received["values"] = gradient.values.copy()
    return gradient


CALL_EFFECTS: dict[str, Any] = {"push": _after_push, "of_all_workers": _after_of_all_workers, "plus": _after_plus}


class StudentContext(Context):
    """The context of a role in a student process. Attributes and the methods that are not awaited (`send`, `note`, `save`) are
    requests to the grader; awaited methods are effects.
    """

    def __init__(self, grader: GraderConnection, name: str):
        super().__init__(name, "", 0, 0, {}, None)
        self._grader = grader

    def send(self, to: Any, message: Any) -> Posted:
        self._grader.request("send", to, message)
        return Posted("send")

    def note(self, text: str, **numbers: float) -> Posted:
        self._grader.request("note", str(text), numbers)
        return Posted("note")

    def save(self, state: Any) -> Posted:
        self._grader.request("save", dict(state))
        return Posted("save")

    def tasks(self) -> Any:
        """Raise `RoleError`: a role of graded code has no tasks."""
        raise RoleError("ctx.tasks() is not available in graded code: a role computes and communicates in turn.")

    def recv(self, *kinds: Any, tag: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Receive a message, as `Context.recv` does, without tags."""
        if tag is not None:
            raise RoleError("ctx.recv(tag=...) is not available in graded code: receive by kind and sender.")
        return super().recv(*kinds, **options)

    @property
    def now(self) -> float:
        """Seconds of engine time."""
        return self._grader.request("now")

    @property
    def rng(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = self._grader.request("rng")
        return self._rng

    def batches(self) -> Any:
        """Return an endless iterator over this role's mini-batches. Every call begins with the first mini-batch."""
        batches = self._grader.request("batches")
        return iter(batches.next, None)

    def peers(self, role: str) -> tuple[str, ...]:
        return self._grader.request("peers", role)
