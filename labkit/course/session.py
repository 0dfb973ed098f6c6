"""The judge's end of one process of a student's: what the process has been lent, and what it may ask for.

What it says is data. It names things that it was lent by number, and may ask of them what `THINGS` lists and nothing else;
whatever it says of gradients and weights is held against what the judge knows (`claims`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ..errors import BadInput, LabkitError, RoleError
from ..roles.context import Posted
from ..roles.gradient import Gradient, Model, Parameters
from ..roles.messages import Message, Weights
from ..roles.shard import Shard
from .claims import Claims, size_of
from .sandbox.host import Line, Nursery, Stopped

__all__ = ["MISTAKES", "Code", "Session"]

HELD = 20_000  # things that one process may hold on to
SENT = 256 << 20  # bytes of arrays that one role may send and save: messages wait in the judge's memory

# What a role may see of the judge's things: (class, what it is called, attributes handed over, attributes on demand, methods)
THINGS: tuple[tuple[type, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (Model, "model", (), (), ("gradient",)),
    (Gradient, "gradient", ("step", "samples", "count", "loss"), ("values",), ("push", "of_everyone")),
    (Parameters, "weights", (), ("values",), ()),
    (Shard, "shard", ("index",), ("version", "generation", "values"), ("weights", "apply", "drop", "fresh")),
)
BATCH = ("batch", ("samples",), ("x", "y"), ())


@dataclasses.dataclass(frozen=True)
class Code:
    """A student's cells, where they run, and what of labkit they may use."""

    nursery: Nursery
    cells: tuple[dict[str, str], ...]
    tools: tuple[str, ...]

    def ask(self, *request: Any) -> Any:
        """The answer of a new process that has read the cells. `BadInput` says what was wrong with them."""
        session = Session(self, None, {})
        try:
            return session.answer(*request)
        finally:
            session.line.close()


class Session:
    """One process of a student's: what it has been lent, and what it may ask for."""

    def __init__(self, code: Code, ctx: Any, kinds: dict[str, type[Message]]):
        self.code, self.ctx, self.kinds = code, ctx, kinds
        self.lent: dict[int, Any] = {}
        self.claims = Claims()
        self._shards: list[Shard] = []
        self._number = self._sent = 0
        self._batches: Any = None
        self.line: Line = code.nursery.line(self._find, self._refer)
        try:
            self.answer("load", list(code.cells), list(code.tools))
        except BaseException:
            self.line.close()
            raise

    # words ------------------------------------------------------------------------------------------------------------

    def _lend(self, thing: Any) -> int:
        if len(self.lent) >= HELD:
            raise self.line.stop(f"it holds on to more than {HELD:,} things")
        self._number += 1
        self.lent[self._number] = thing
        self.claims.learn(thing)
        if isinstance(thing, Shard):
            self._shards.append(thing)
        return self._number

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Weights) and not value.values.flags.writeable:  # a view of a shard, which will be newer
            value = dataclasses.replace(value, values=value.values.copy())
        if isinstance(value, Message):
            said = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return ["message", self._lend(value), type(value).__name__, said, value.sender, value.incarnation]
        about = _about(value)
        if about is None:
            return None
        name, have, _, methods = about
        return ["thing", self._lend(value), name, {key: getattr(value, key) for key in have}, list(methods)]

    def _find(self, said: Any) -> Any:
        what, *more = said
        if what == "context":
            return self.ctx
        if what == "kind":
            return self.kinds[more[0]]
        if what == "message":
            return self._made(*more)
        thing = self.lent[more[0]]
        if what == "thing":
            return self._written(thing, *more[1:])
        return _method(self._written(thing, *more[2:]), more[1])

    def _written(self, thing: Any, changes: Any = None) -> Any:
        """`thing` with what the role has written into its arrays, if it has. A message is said anew; it may have been sent."""
        if changes is None:
            return thing
        for name, value in changes.items():
            old = getattr(thing, name, None)
            if not isinstance(old, np.ndarray) or (value.shape, value.dtype) != (old.shape, old.dtype):
                raise self.line.stop(f"it wrote into {str(name)[:40]!r} what does not fit")
        if isinstance(thing, Weights):
            self._look()
            self.claims.check(thing)
        if isinstance(thing, Message):
            made: Any = object.__new__(type(thing))
            made.__dict__.update(thing.__dict__, **changes)
            return made
        if not isinstance(thing, (Gradient, Parameters)) or set(changes) != {"values"}:
            raise self.line.stop(f"it wrote into a {type(thing).__name__}")
        thing.values = changes["values"]
        return thing

    def _made(self, name: Any, fields: Any) -> Message:
        """A message that the process has made. What is wrong with it is found when it is used."""
        try:
            if name not in self.kinds:
                raise RoleError(f"It said {str(name)[:60]}, a kind of message that its `messages` do not list.")
            self._look()
            return self.claims.check(self.kinds[name](**{str(key): value for key, value in fields.items()}))
        except (LabkitError, TypeError, ValueError, AttributeError) as why:
            raise self.line.stop(str(why).rstrip(".")) from None

    def _look(self) -> None:
        for shard in self._shards:
            self.claims.sees(shard)

    # talk -------------------------------------------------------------------------------------------------------------

    def answer(self, *request: Any) -> Any:
        """What the process makes of a request."""
        said = self.talk(list(request))
        if said[0] == "raise":
            raise BadInput(str(said[1]))
        if said[0] != "done":
            raise self.line.stop("it answered out of turn")
        return said[1]

    def talk(self, frame: Any) -> list[Any]:
        """Say something; what the process asks meanwhile is answered; its next frame that is no question."""
        self.line.say(frame)
        while True:
            said, freed = self.line.hear()
            for number in freed:
                self.lent.pop(number, None)
            if said[0] != "ask":
                if said[0] not in ANSWERS or len(said) < ANSWERS[said[0]]:
                    raise self.line.stop("it answered out of turn")
                return said
            self.line.say(self._reply(said[1:]))

    def _reply(self, question: Any) -> list[Any]:
        try:
            what, *arguments = question
            if self.ctx is None or what not in QUESTIONS:
                raise BadInput(f"{what!r} is nothing that a function may ask")
            answer = getattr(self, "_" + what)(*arguments)
            return ["answer", None if isinstance(answer, Posted) else answer]
        except Stopped:
            raise
        except MISTAKES as error:
            return ["error", type(error).__name__, str(error)]

    def weigh(self, *said: Any) -> None:
        """Count what is sent or kept: it waits in the judge's memory."""
        self._sent += size_of(said)
        if self._sent > SENT:
            raise self.line.stop(f"it sent more than {SENT >> 20} MB")

    # what a role may ask ----------------------------------------------------------------------------------------------

    def _send(self, to: Any, message: Any) -> Any:
        self.weigh(message)
        return self.ctx.send(to, message)

    def _note(self, text: str, numbers: dict[str, float]) -> Any:
        return self.ctx.note(str(text)[:200], **{str(k)[:40]: float(v) for k, v in list(numbers.items())[:10]})

    def _save(self, state: dict[str, Any]) -> Any:
        self.weigh(state)
        return self.ctx.save(state)

    def _now(self) -> float:
        return float(self.ctx.now)

    def _seed(self) -> int:
        return int(self.ctx.rng.integers(2**62))

    def _batch(self) -> Any:
        self._batches = self._batches or self.ctx.batches()
        return next(self._batches)

    def _peers(self, kind: str) -> Any:
        return self.ctx.peers(str(kind))

    def _get(self, thing: Any, name: str) -> Any:
        about = _about(thing)
        if about is None or name not in (*about[1], *about[2]):
            raise AttributeError(f"a {about[0] if about else type(thing).__name__} has no {name!r} for a role")
        return getattr(thing, name)

    def _call(self, thing: Any, name: str, args: list[Any], more: dict[str, Any]) -> Any:
        method = _method(thing, name)
        self.claims.call(method, (*args, *more.values()))
        return method(*args, **more)


ANSWERS = {"done": 2, "raise": 2, "effect": 2}  # what is no question, and how long it is at least
MISTAKES = (LabkitError, TypeError, ValueError, AttributeError, IndexError, KeyError, ArithmeticError, MemoryError)
QUESTIONS = ("send", "note", "save", "now", "seed", "batch", "peers", "get", "call")


def _about(thing: Any) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
    for kind, *rest in THINGS:
        if isinstance(thing, kind):
            return tuple(rest)  # type: ignore[return-value]
    return BATCH if hasattr(thing, "samples") and hasattr(thing, "x") else None


def _method(thing: Any, name: str) -> Any:
    about = _about(thing)
    if about is None or name not in about[3]:
        raise AttributeError(f"a {about[0] if about else type(thing).__name__} has no method {name!r} for a role")
    return getattr(thing, name)
