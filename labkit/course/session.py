"""The judge's end of one process of a student's: what the process has been lent, and what it may ask for.

What it says is data. It names things that it was lent by number, and may ask of them what `THINGS` lists and nothing else;
whatever it says of gradients and weights is held against what the judge knows (`claims`).
"""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data.batches import Batch
from ..errors import BadInput, LabkitError, RoleError
from ..roles.effects import Posted
from ..roles.gradient import Gradient, Model, Parameters
from ..roles.messages import Message, Weights
from ..roles.shard import Shard
from .claims import Claims, plain_number, size_of
from .sandbox.host import Line, Nursery, Stopped

__all__ = ["MISTAKES", "Code", "Memory", "Session"]

HELD = 20_000  # things that one process may hold on to
HOLDS = 256 << 20  # bytes that the judge's memory holds for all processes of a submission at a time: see `Memory`
FEEDS = 100  # iterators over mini-batches that one process may hold on to: each holds an order of all samples
OVERHEAD = 512  # bytes that anything that is lent, sent or noted takes besides what is in it
TEXT = 800  # characters of an error that a process may say
RENEWED = 0.4  # part of its processor time after which a process that only answers calls is replaced by a new one


class Feed:
    """The mini-batches of one call of `ctx.batches()`."""

    def __init__(self, batches: Iterator[Batch]):
        self._batches = batches

    def next(self) -> Batch:
        """The next one."""
        return next(self._batches)


# What a role may see of the judge's things: (class, what it is called, attributes handed over, attributes on demand, methods)
THINGS: tuple[tuple[type, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (Model, "model", (), (), ("gradient",)),
    (Gradient, "gradient", ("step", "samples", "count", "loss"), ("values",), ("push", "of_everyone", "plus")),
    (Parameters, "weights", (), ("values",), ()),
    (Feed, "batches", (), (), ("next",)),
    (Shard, "shard", ("index",), ("version", "generation", "samples", "values"), ("weights", "apply", "drop", "fresh")),
)


class Memory:
    """The bytes that the judge's memory holds on behalf of one submission: what is lent to its processes, as long as they
    refer to it, and what they have sent, saved and noted, until their role has ended.
    """

    def __init__(self, most: int = 0):
        self.most, self.used = most or HOLDS, 0


class Code:
    """Cells of a student, where they run, and what of labkit they may use. `call` keeps one process for all calls, so
    what a function leaves in a global or in a default argument is there at its next call, as it is in a notebook.

    `cells`: {"id", "source"}, or, for an answer of the reference's in place of the student's, {"id", "lent": {name: what}}:
    their functions run in processes of `reference`, and only arguments and results pass. `secret`: nothing that goes wrong in
    these cells is told but the class of the error.
    """

    def __init__(
        self, nursery: Nursery, cells: tuple[dict[str, Any], ...], tools: tuple[str, ...], *, reference: Code | None = None,
        secret: bool = False, memory: Memory | None = None,
    ):  # fmt: skip
        self.nursery, self.tools, self.reference, self.secret = nursery, tools, reference, secret
        self.memory = memory or Memory()
        self._cells, self._prepared = cells, False
        self._session: Session | None = None
        self.lent: frozenset[str] = frozenset()

    @property
    def cells(self) -> list[dict[str, Any]]:
        """What a process of the student's reads: of an answer that is lent the names of its functions, and its values."""
        if not self._prepared:
            self._cells = tuple(self._without_source(cell) for cell in self._cells)
            self._prepared = True
        return list(self._cells)

    def _without_source(self, cell: dict[str, Any]) -> dict[str, Any]:
        if "lent" not in cell:
            return cell
        assert self.reference is not None
        functions = [name for name, what in cell["lent"].items() if what == "function"]
        values = {name: self.reference.ask("value", name) for name, what in cell["lent"].items() if what == "value"}
        self.lent |= set(functions)
        return {"id": cell["id"], "functions": functions, "values": values}

    def ask(self, *request: Any) -> Any:
        """The answer of a new process that has read the cells. `BadInput` says what was wrong with them."""
        session = Session(self, None, {})
        try:
            return session.answer(*request)
        finally:
            session.close()

    def call(self, name: str, args: list[Any], more: dict[str, Any]) -> Any:
        """The result of a function, called in the process of all calls. What the function raises, as `Session.answer`."""
        if self._session is not None and self._session.line.processor_share() > RENEWED:
            self.close()
        if self._session is None:
            self._session = Session(self, None, {})
        try:
            return self._session.answer("call", name, args, more)
        except Stopped:
            self.close()
            raise

    def close(self) -> None:
        """End the process of the calls, and those of the reference."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if self.reference is not None:
            self.reference.close()


class Session:
    """One process of a student's: what it has been lent, and what it may ask for."""

    def __init__(self, code: Code, ctx: Any, kinds: dict[str, type[Message]]):
        self.code, self.ctx, self.kinds = code, ctx, kinds
        self.lent: dict[int, Any] = {}
        self.claims = Claims()
        self._shards: list[Shard] = []
        self._number = self._taken = 0
        self._sizes: dict[int, int] = {}
        self._calls: Session | None = None  # a process of the reference's that this one calls
        cells = code.cells
        self.line: Line = code.nursery.line(self._find, self._refer)
        try:
            self.answer("load", cells, list(code.tools))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, and forget what was held for it."""
        self.line.close()
        self.code.memory.used -= self._taken
        self._taken = 0
        self.lent.clear()
        self._sizes.clear()
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()

    # words ------------------------------------------------------------------------------------------------------------

    def _lend(self, thing: Any) -> int:
        if len(self.lent) >= HELD:
            raise self.line.stop(f"it holds on to more than {HELD:,} things")
        self._number += 1
        size = self._sizes[self._number] = OVERHEAD + size_of(thing)
        self.take(size)
        self.lent[self._number] = thing
        self.claims.learn(thing)
        if isinstance(thing, Shard):
            self._shards.append(thing)
        return self._number

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Message):
            said = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            return ["message", self._lend(value), type(value).__name__, said, value.sender, value.incarnation]
        if isinstance(value, Batch):
            return ["batch", self._lend(value), list(value)]
        about = _about(value)
        if about is None:
            return None
        name, have, _, methods = about
        said = {key: getattr(value, key) for key in have}
        if isinstance(value, Gradient):
            said["_parts"] = [[part.start, part.stop] for part in value.parts if isinstance(part, slice)]
        return ["thing", self._lend(value), name, said, list(methods)]

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
        own = isinstance(thing, (Gradient, Parameters))  # the role's own, whose values it may make anew
        for name, value in changes.items():
            old = getattr(thing, name, None)
            if not isinstance(old, np.ndarray) or not isinstance(value, np.ndarray) or value.shape != old.shape:
                raise self.line.stop(f"it wrote into {str(name)[:40]!r} what does not fit")
            if value.itemsize > old.itemsize or (not own and value.dtype != old.dtype):
                raise self.line.stop(f"it wrote into {str(name)[:40]!r} what does not fit")
        if isinstance(thing, Weights):
            self._look()
            self.claims.check(thing)
        if isinstance(thing, Message):
            made: Any = object.__new__(type(thing))
            made.__dict__.update(thing.__dict__, **changes)
            return made
        if isinstance(thing, Batch):
            return thing._replace(**changes)
        if not own or set(changes) != {"values"}:
            raise self.line.stop(f"it wrote into a {type(thing).__name__}")
        thing.values = changes["values"]
        return thing

    def _made(self, name: Any, fields: Any) -> Message:
        """A message that the process has made. What is wrong with it is found when it is used."""
        try:
            if name not in self.kinds:
                raise RoleError(f"It said {str(name)[:60]}, a kind of message that its `messages` do not list.")
            self._look()
            return self.claims.check(self.kinds[name](**{str(k): plain_number(v) for k, v in fields.items()}))
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
            raise self.raised(said, BadInput)
        if said[0] != "done":
            raise self.line.stop("it answered out of turn")
        return said[1]

    def raised(self, said: list[Any], kind: type[LabkitError]) -> LabkitError:
        """What the process has raised, as a `kind` that is also of the same built-in class, if it is of one."""
        text, name = str(said[1])[:TEXT], said[2] if len(said) > 2 else ""
        if self.code.secret:
            text = f"a correct answer that was used in place of this student's raised {name if name in RAISED else 'an error'}"
        of = RAISED.get(name) if type(name) is str else None
        if of is None or issubclass(kind, of):
            return kind(text)
        return type(kind.__name__, (kind, of), {"__str__": LabkitError.__str__, "raised": name})(text)

    def talk(self, frame: Any) -> list[Any]:
        """Say something; what the process asks meanwhile is answered; its next frame that is no question."""
        self.line.say(frame)
        while True:
            said, freed = self.line.hear()
            for number in freed:
                self.lent.pop(number, None)
                self.take(-self._sizes.pop(number, 0))
            if said[0] != "ask":
                if said[0] not in ANSWERS or len(said) < ANSWERS[said[0]]:
                    raise self.line.stop("it answered out of turn")
                return said
            self.line.say(self._reply(said[1:]))

    def _reply(self, question: Any) -> list[Any]:
        try:
            what, *arguments = question
            if what not in QUESTIONS or (self.ctx is None and what != "reference"):
                raise BadInput(f"{what!r} is nothing that a function may ask")
            answer = getattr(self, "_" + what)(*arguments)
            return ["answer", None if isinstance(answer, Posted) else answer]
        except Stopped:
            raise
        except MISTAKES as error:
            return ["error", getattr(error, "raised", type(error).__name__), str(error)]

    def take(self, size: int) -> None:
        """Count bytes of the judge's memory; `Stopped` if they are too many."""
        memory = self.code.memory
        self._taken += size
        memory.used += size
        if memory.used > memory.most:
            raise self.line.stop(f"what was sent, saved and kept in all processes is more than {memory.most >> 20} MB")

    def weigh(self, *said: Any) -> None:
        """Count what is sent or kept: it waits in the judge's memory."""
        self.take(OVERHEAD + size_of(said))

    # what a role may ask ----------------------------------------------------------------------------------------------

    def _send(self, to: Any, message: Any) -> Any:
        self.weigh(message)
        return self.ctx.send(to, message)

    def _note(self, text: str, numbers: dict[str, float]) -> Any:
        text, numbers = str(text)[:200], {str(k)[:40]: float(v) for k, v in list(numbers.items())[:10]}
        self.weigh(text, numbers)
        return self.ctx.note(text, **numbers)

    def _save(self, state: dict[str, Any]) -> Any:
        self.weigh(state)
        return self.ctx.save(state)

    def _now(self) -> float:
        return float(self.ctx.now)

    def _rng(self) -> Any:
        return self.ctx.rng.bit_generator.state

    def _batches(self) -> Any:
        if sum(isinstance(thing, Feed) for thing in self.lent.values()) >= FEEDS:
            raise BadInput(f"ctx.batches() begins anew at every call; a role may keep {FEEDS} of them at a time")
        return Feed(self.ctx.batches())

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

    def _reference(self, name: str, args: list[Any], more: dict[str, Any]) -> Any:
        """Call a function of the reference's, which runs in another process: text of what goes wrong there stays there."""
        if name not in self.code.lent or self.code.reference is None:
            raise BadInput("there is no such function")
        if self._calls is None:
            self._calls = Session(self.code.reference, None, {})
        try:
            said = self._calls.talk(["call", name, args, more])
        except Stopped:
            calls, self._calls = self._calls, None
            calls.close()
            raise RoleError(f"{name}, a correct answer, did not end, or was called with what it cannot take.") from None
        if said[0] == "raise":
            raise self._calls.raised(said, RoleError)
        return said[1]


ANSWERS = {"done": 2, "raise": 2, "effect": 2}  # what is no question, and how long it is at least
RAISED = {
    of.__name__: of
    for of in vars(builtins).values()
    if isinstance(of, type) and issubclass(of, (ArithmeticError, AssertionError, AttributeError, LookupError, NameError,
                                                NotImplementedError, RecursionError, TypeError, ValueError))
    and not issubclass(of, UnicodeError)
}  # fmt: skip
MISTAKES = (LabkitError, TypeError, ValueError, AttributeError, IndexError, KeyError, ArithmeticError, MemoryError)
QUESTIONS = ("send", "note", "save", "now", "rng", "batches", "peers", "get", "call", "reference")


def _about(thing: Any) -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
    for kind, *rest in THINGS:
        if isinstance(thing, kind):
            return tuple(rest)  # type: ignore[return-value]
    return None


def _method(thing: Any, name: str) -> Any:
    about = _about(thing)
    if about is None or name not in about[3]:
        raise AttributeError(f"a {about[0] if about else type(thing).__name__} has no method {name!r} for a role")
    return getattr(thing, name)
