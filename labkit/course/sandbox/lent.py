"""A role's view of the world, in its own process: the line to the judge, and what the judge lends.

A shard, a model, a gradient stay with the judge; here is a `Thing` that stands for each, and asks. A message that came is
a message; said again, or handed back, it is the judge's own one that is meant, with what was written into its arrays.
"""

from __future__ import annotations

import builtins
import os
from typing import Any, NamedTuple

import numpy as np

from ...errors import BadInput, ClusterError, RoleError
from ...roles import messages
from ...roles.context import Context
from ...roles.effects import Posted
from . import face, plain

__all__ = ["ChildContext", "Line", "Method", "error_of"]

ERRORS = {e.__name__: e for e in (RoleError, BadInput, ClusterError)}

WRITTEN = ("gradient", "weights")  # things that are a role's own, so that it may write into their `values`


class Line:
    """The line to the judge: one frame there, one frame back."""

    def __init__(self, reading: int, writing: int):
        self._reading, self._writing = reading, writing
        self._kinds: dict[str, type] = dict(face.KINDS)
        self.context: Any = None
        self.freed: list[int] = []

    def read(self, size: int) -> bytes:
        """Exactly so many bytes; the judge is gone if they do not come, and so is this process."""
        parts = []
        while size:
            part = os.read(self._reading, min(size, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def say(self, frame: Any) -> None:
        """A frame to the judge; `RoleError` if something in it cannot be said."""
        freed, self.freed = self.freed, []
        try:
            data = plain.encode([frame, freed], self._refer)
        except plain.Malformed as why:
            raise RoleError(f"{why}.") from None
        while data:
            data = data[os.write(self._writing, data) :]

    def hear(self) -> Any:
        """The judge's next frame."""
        return plain.decode(self.read, self._find)

    def ask(self, *question: Any) -> Any:
        """What the judge answers at once."""
        self.say(["ask", *question])
        how, *answer = self.hear()
        if how == "error":
            raise error_of(*answer)
        return answer[0]

    def function(self, name: str) -> Any:
        """A function of the reference's: called here, run in another process."""

        def lent(*args: Any, **more: Any) -> Any:
            return self.ask("reference", name, list(args), more)

        lent.__name__ = lent.__qualname__ = name
        return lent

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Thing):
            return ["thing", value._number, *_written(value)]
        if isinstance(value, LentBatch):
            return ["thing", value._lent.number, *_written(value)]
        if isinstance(value, messages.Message):
            lent = value.__dict__.get("_lent")
            if lent is not None:
                return ["thing", lent.number, *_written(value)]
            said = {name: getattr(value, name) for name in messages.field_names(type(value))}
            return ["message", type(value).__name__, said]
        if isinstance(value, Method):
            return ["method", value.thing._number, value.name, *_written(value.thing)]
        if value is self.context:
            return ["context"]
        if isinstance(value, type) and issubclass(value, messages.Message):
            return ["kind", value.__name__]
        return None

    def _find(self, said: Any) -> Any:
        what, number, *more = said
        if what == "thing":
            return Thing(self, number, *more)
        if what == "batch":
            batch: Any = LentBatch._make(more[0])
            batch._lent, batch._said = Lent(self, number), {"x": batch.x.copy(), "y": batch.y.copy()}
            return batch
        kind, have, sender, incarnation = more
        made: Any = object.__new__(self._kinds[kind])
        made.__dict__.update(
            have, sender=sender, incarnation=incarnation, _lent=Lent(self, number), _said=_copies(have)
        )
        return made

    def learn(self, kinds: tuple[type, ...]) -> None:
        """Kinds of message that the student has made."""
        self._kinds.update({kind.__name__: kind for kind in kinds})


def _copies(have: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in have.items() if isinstance(value, np.ndarray)}


def _written(lent: Any) -> list[dict[str, Any]]:
    """Arrays of something that the judge has which this role has written into since, as `gradient.values *= 0.5` does."""
    said = lent.__dict__["_said"]
    have = {name: getattr(lent, name) for name in said}
    for name, value in have.items():
        if not isinstance(value, np.ndarray):
            raise RoleError(f"{str(name)[:40]} is no array: it is a {type(value).__name__}.")
    changed = {name: value for name, value in have.items() if value.tobytes() != said[name].tobytes()}
    return [changed] if changed else []


def error_of(name: str, text: str) -> BaseException:
    """An error that the judge tells of: of labkit's class or the built-in one of that name."""
    known = ERRORS.get(name) or getattr(builtins, name, None)
    return known(text) if isinstance(known, type) and issubclass(known, Exception) else RoleError(text)


class Lent:
    """The number of something that the judge has; when nobody here refers to it, the judge need not keep it."""

    def __init__(self, line: Line, number: int):
        self.line, self.number = line, number

    def __del__(self) -> None:
        self.line.freed.append(self.number)


class Batch(NamedTuple):
    """A mini-batch, as in `labkit.data`."""

    x: np.ndarray
    y: np.ndarray
    samples: int
    epoch: int


class LentBatch(Batch):
    """A mini-batch that the judge has, too: handed back, it is that one, with what was written into its arrays."""

    _lent: Any
    _said: Any

    def __repr__(self) -> str:
        return f"Batch(samples={self.samples}, epoch={self.epoch})"


class Thing:
    """Something that the judge has (a shard, a model, a gradient): what it knows is asked for, its methods are done there."""

    def __init__(self, line: Line, number: int, kind: str, have: dict[str, Any], methods: list[str]):
        self.__dict__.update(have, _lent=Lent(line, number), _number=number, _line=line, _kind=kind, _said={})
        self.__dict__.update(_methods=methods, _have=tuple(name for name in have if name != "_parts"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a {self.__dict__.get('_kind')} has no {name!r}")
        if name in self._methods:
            return Method(self, name)
        value = self._line.ask("get", self, name)
        if isinstance(value, np.ndarray):
            if self._kind in WRITTEN:
                self.__dict__[name], self._said[name] = value, value.copy()
            else:
                value.flags.writeable = False  # nobody else would see it
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if self._kind not in WRITTEN or name != "values":
            raise AttributeError(f"{name} of a {self._kind} is not the role's to set")
        self.values  # noqa: B018  # what it is without that
        self.__dict__[name] = np.asarray(value)  # an array of the student's own, which may be written into later

    def __repr__(self) -> str:
        return f"<{self._kind}>"


class Method:
    """A method of a thing: called, or handed to `ctx.compute`."""

    def __init__(self, thing: Thing, name: str):
        self.thing, self.name = thing, name

    def __call__(self, *args: Any, **more: Any) -> Any:
        result = self.thing._line.ask("call", self.thing, self.name, list(args), more)
        after = AFTER.get(self.name) if self.thing._kind == "gradient" else None
        return result if after is None else after(self.thing, result, *args, **more)


def _pushed(gradient: Thing, push: Any, shard: int) -> Any:
    """The message shares memory with the gradient, as it does where both are in one process."""
    parts = gradient.__dict__["_parts"]
    if -len(parts) <= shard < len(parts):
        own = gradient.values[slice(*parts[shard])]
        if own.shape == push.values.shape:
            push.__dict__["values"] = own
    return push


def _combined(gradient: Thing, result: Thing, total: Any, workers: Any, reduce: str = "mean") -> Thing:
    """The judge has divided a copy of `total`: here `total` itself is divided, and it is the gradient from now on."""
    if reduce == "mean" and total.flags.writeable:
        np.divide(total, workers, out=total)
    gradient.__dict__["values"] = total
    return _renewed(gradient, result)


def _added(gradient: Thing, result: Thing, other: Any) -> Thing:
    """The judge has added: what was read of the gradient before is what it is now."""
    if "values" in gradient.__dict__:
        np.copyto(gradient.values, result.values)
    return _renewed(gradient, result)


def _renewed(gradient: Thing, result: Thing) -> Thing:
    """`gradient`, which the judge has changed, and has said to be `result`."""
    gradient.__dict__.update({name: result.__dict__[name] for name in result._have})
    if "values" in gradient.__dict__:
        gradient._said["values"] = gradient.values.copy()
    return gradient


AFTER: dict[str, Any] = {"push": _pushed, "of_everyone": _combined, "plus": _added}


class ChildContext(Context):
    """`ctx`: its posts are asked of the judge, its traps are effects."""

    def __init__(self, line: Line, name: str):
        super().__init__(name, "", 0, 0, {}, None)
        self._line = line

    def send(self, to: Any, message: Any) -> Posted:
        """See `Context.send`."""
        self._line.ask("send", to, message)
        return Posted("send")

    def note(self, text: str, **numbers: float) -> Posted:
        """See `Context.note`."""
        self._line.ask("note", str(text), numbers)
        return Posted("note")

    def save(self, state: Any) -> Posted:
        """See `Context.save`."""
        self._line.ask("save", dict(state))
        return Posted("save")

    @property
    def now(self) -> float:
        """Seconds of the run."""
        return self._line.ask("now")

    @property
    def rng(self) -> np.random.Generator:
        """This role's random stream."""
        if self._rng is None:
            bits = np.random.PCG64()
            bits.state = self._line.ask("rng")
            self._rng = np.random.Generator(bits)
        return self._rng

    def batches(self) -> Any:
        """This role's mini-batches, for ever, from the first one at every call."""
        feed = self._line.ask("batches")
        return iter(feed.next, None)

    def peers(self, role: str) -> tuple[str, ...]:
        """Who takes part."""
        return self._line.ask("peers", role)
