"""What stands in the judge's notebook where a student's class or function is meant.

A stand-in of a strategy is a strategy of labkit's own, whose roles are played elsewhere: each of its coroutines hands
every effect of a student's process to the engine, and what comes of it back. So the engine, its clock, its seeds, the
gradients, the ledger and the trace are the judge's, and the student's code is seen through its effects only.
"""

from __future__ import annotations

import dataclasses
import keyword
import types
from collections.abc import Generator
from typing import Any

import numpy as np

from ..engines.drive import foreign_effect
from ..errors import BadInput, LabkitError, RoleError
from ..roles import collectives, servers
from ..roles.context import Posted
from ..roles.effects import COMPUTE, RECV, SLEEP
from ..roles.gradient import Gradient, Model, Parameters
from ..roles.messages import Message
from ..roles.shard import Shard
from ..strategies import Strategy
from .claims import Claims, kinds_of, seconds_of, size_of
from .sandbox.face import KINDS, TOOL, WAITING
from .sandbox.host import Line, Nursery, Stopped

__all__ = ["Code", "make_function", "make_strategy"]

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
ROLES = ("server", "worker")
TAKEN = ("self", "sender", "incarnation", "carries", "reads")  # what a field of a message cannot be called
TOOLS = {name: getattr(collectives, name, None) or getattr(servers, name) for name in sorted(WAITING)}


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
            for shard in self._shards:
                self.claims.sees(shard)
            return self.claims.check(self.kinds[name](**{str(key): value for key, value in fields.items()}))
        except (LabkitError, TypeError, ValueError, AttributeError) as why:
            raise self.line.stop(str(why).rstrip(".")) from None

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


# roles ----------------------------------------------------------------------------------------------------------------


class Role:
    """One role, played in a student's process."""

    def __init__(self, session: Session, allowed: tuple[str, ...]):
        self.session, self.allowed = session, allowed

    @types.coroutine
    def play(self, request: list[Any]) -> Generator[Any, Any, None]:
        """Every effect of the process, and what came of it back, until its coroutine ends."""
        said = self.session.talk(request)
        try:
            while said[0] == "effect":
                try:
                    value = yield from self._perform(*said[1:])
                except MISTAKES as error:
                    said = self.session.talk(["throw", type(error).__name__, str(error)])
                else:
                    said = self.session.talk(["go", value])
            if said[0] == "raise":
                raise RoleError(str(said[1]))
        finally:
            self.session.line.close()

    def _perform(self, mark: Any, *rest: Any) -> Generator[Any, Any, Any]:
        if mark == RECV:
            kinds, timeout, sender = rest
            if sender is not None and type(sender) is not str:
                raise BadInput("ctx.recv(..., sender=): a role's name")
            return (yield (RECV, kinds_of(kinds), seconds_of(timeout, "timeout"), sender))
        if mark == SLEEP:
            return (yield (SLEEP, 0.0 + seconds_of(rest[0], "ctx.sleep(seconds)")))
        if mark == COMPUTE:
            return (yield from self._compute(*rest))
        if mark == TOOL:
            name, args, more = rest
            if name not in self.allowed or name not in TOOLS or not args or args[0] is not self.session.ctx:
                raise BadInput(f"lk.{name}(ctx, ...) is not there in this assignment")
            self.session.weigh(args, list(more.values()))
            return (yield from TOOLS[name](*args, **more).__await__())
        raise foreign_effect(self.session.ctx.name, None if rest[0] == "NoneType" else _Named(rest[0]))

    def _compute(self, fn: Any, args: Any, cost: Any, unless: Any) -> Generator[Any, Any, Any]:
        cost = seconds_of(cost, "cost")
        if cost is None or cost < 0:
            raise BadInput(f"cost={cost}; allowed: from 0 on.")
        if unless is not None:
            (unless,) = kinds_of([unless])
        if fn is None:
            return (yield (COMPUTE, lambda: self._locally(cost >= 1.0), (), cost, unless))
        if not isinstance(fn, types.MethodType):
            raise BadInput(f"ctx.compute({type(fn).__name__}): give a function, and then its arguments.")
        self.session.claims.work(fn, args, cost)
        return (yield (COMPUTE, fn, tuple(args), cost, unless))

    def _locally(self, one_gradient: bool) -> None:
        """Work of the student's own: done over there, when the engine says that it is done; so its result stays there."""
        self.session.claims.one_gradient = one_gradient
        said = self.session.talk(["perform"])
        self.session.claims.one_gradient = False
        if said[0] == "raise":
            raise RoleError(str(said[1]))


class _Named:
    """Something that the judge knows by the name of its class only."""

    def __new__(cls, name: str) -> Any:
        return object.__new__(type(str(name)[:60], (), {"__module__": "yours"}))


def make_strategy(code: Code, name: str) -> type[Strategy]:
    """A strategy like the student's `name`, with its knobs and messages, whose roles are played in processes of theirs."""
    about = code.ask("about", name)
    try:
        kinds = {k: KINDS[k] for k in about["messages"] if k in KINDS} | {
            k: _kind(k, f) for k, f in about["own"].items()
        }
        knobs = {k: v for k, v in about["knobs"].items() if isinstance(v, (int, float, str, bool, type(None)))}
        roles = [role for role in ROLES if role in about["roles"]]
        uses_servers = bool(about["uses_servers"])
    except (TypeError, ValueError, KeyError, AttributeError) as why:
        raise BadInput(f"What {name} says of itself is not to be understood ({why}).") from None
    for knob in knobs:
        _check_knob(name, knob)

    def role(kind: str) -> Any:
        async def played(self: Any, ctx: Any, *parts: Any) -> None:
            session = Session(code, ctx, KINDS | kinds)
            said = {key: getattr(self, key) for key in knobs}
            await Role(session, code.tools).play(["role", name, said, kind, ctx.name, list(parts)])

        played.__name__ = kind
        return played

    body = {kind: role(kind) for kind in roles}
    body |= {"messages": tuple(kinds.values()), "uses_servers": uses_servers, "__module__": __name__}
    fields = [(knob, Any, dataclasses.field(default=value)) for knob, value in knobs.items()]
    return dataclasses.make_dataclass(name, fields, bases=(Strategy,), namespace=body, frozen=True, kw_only=True)


def _check_knob(strategy: str, knob: Any) -> None:
    """`BadInput` for a knob that would take the place of something of a strategy's: its layout, its chief."""
    ours = {field.name for field in dataclasses.fields(Strategy)}
    if not _is_name(knob) or (hasattr(Strategy, knob) and knob not in ours) or knob in (*ROLES, "self"):
        raise BadInput(f"{strategy}: a knob cannot be called {str(knob)[:40]!r}.")


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _kind(name: Any, fields: Any) -> type[Message]:
    """A kind of message of the student's own. `ValueError` for names that are none."""
    names = list(fields)
    if not all(_is_name(n) and n not in TAKEN for n in (name, *names)):
        raise ValueError(f"a kind of message, or a field of it, has no good name: {str([name, *names])[:80]}")
    return dataclasses.make_dataclass(name, [(n, Any) for n in names], bases=(Message,), frozen=True)


def make_function(code: Code, name: str) -> Any:
    """A function that is called over there; its arguments and its result are copies."""

    def function(*args: Any, **more: Any) -> Any:
        return _own(code.ask("call", name, list(args), more))

    function.__name__ = function.__qualname__ = name
    return function


def _own(value: Any) -> Any:
    """Arrays as they are, a number that was an array of no dimension as a number."""
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
