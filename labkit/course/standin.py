"""What stands in the judge's notebook where a student's class or function is meant.

A stand-in of a strategy is a strategy of labkit's own, whose roles are played elsewhere: each of its coroutines hands
every effect of a student's process to the engine, and what comes of it back. So the engine, its clock, its seeds, the
gradients, the ledger and the trace are the judge's, and the student's code is seen through its effects only.
"""

from __future__ import annotations

import dataclasses
import keyword
import types
from typing import Any

from ..engines.drive import foreign_effect
from ..errors import BadInput, RoleError
from ..roles import collectives, effects, servers
from ..roles.effects import CALL, COMPUTE, RECV, SLEEP
from ..roles.messages import Message
from ..strategies import Strategy
from .claims import kinds_of, plain_number, seconds_of
from .sandbox.face import KINDS, WAITING
from .session import MISTAKES, Code, Session

__all__ = ["Code", "make_function", "make_strategy"]

ROLES = ("server", "worker")
MOST = 100  # knobs of a strategy, kinds of message of its own, fields of one
TAKEN = ("self", "sender", "incarnation", "carries", "reads")  # what a field of a message cannot be called
TOOLS = {name: getattr(collectives, name, None) or getattr(servers, name) for name in sorted(WAITING)}


class Role:
    """One role, played in a student's process."""

    def __init__(self, session: Session, allowed: tuple[str, ...]):
        self.session, self.allowed = session, allowed

    async def play(self, request: list[Any]) -> None:
        """Every effect of the process, and what came of it back, until its coroutine ends."""
        said = self.session.talk(request)
        try:
            while said[0] == "effect":
                try:
                    value = await self._perform(*said[1:])
                except MISTAKES as error:
                    said = self.session.talk(["throw", type(error).__name__, str(error)])
                else:
                    said = self.session.talk(["go", value])
            if said[0] == "raise":
                raise self.session.raised(said, RoleError)
        finally:
            self.session.close()

    async def _perform(self, mark: Any, *rest: Any) -> Any:
        if mark == RECV:
            kinds, timeout, sender = rest
            if sender is not None and type(sender) is not str:
                raise BadInput("ctx.recv(..., sender=): a role's name")
            return await effects.recv(None, *kinds_of(kinds), timeout=seconds_of(timeout, "timeout"), sender=sender)
        if mark == SLEEP:
            return await effects.sleep(None, 0.0 + seconds_of(rest[0], "ctx.sleep(seconds)"))
        if mark == COMPUTE:
            return await self._compute(*rest)
        if mark == CALL:
            name, args, more = rest
            if name not in self.allowed or name not in TOOLS or not args or args[0] is not self.session.ctx:
                raise BadInput(f"lk.{name}(ctx, ...) is not there in this assignment")
            self.session.weigh(args, list(more.values()))
            return await TOOLS[name](*args, **more)
        raise foreign_effect(self.session.ctx.name, None if rest[0] == "NoneType" else _Named(rest[0]))

    async def _compute(self, fn: Any, args: Any, cost: Any, unless: Any) -> Any:
        cost = seconds_of(cost, "cost")
        if cost is None or cost < 0:
            raise BadInput(f"cost={cost}; allowed: from 0 on.")
        if unless is not None:
            (unless,) = kinds_of([unless])
        if fn is None:
            return await effects.compute(None, lambda: self._locally(cost >= 1.0), cost=cost, unless=unless)
        if not isinstance(fn, types.MethodType):
            raise BadInput(f"ctx.compute({type(fn).__name__}): give a function, and then its arguments.")
        self.session.claims.work(fn, args, cost)
        return await effects.compute(None, fn, *args, cost=cost, unless=unless)

    def _locally(self, one_gradient: bool) -> None:
        """Work of the student's own: done over there, when the engine says that it is done; so its result stays there."""
        self.session.claims.one_gradient = one_gradient
        said = self.session.talk(["perform"])
        self.session.claims.one_gradient = False
        if said[0] == "raise":
            raise self.session.raised(said, RoleError)


class _Named:
    """Something that the judge knows by the name of its class only."""

    def __new__(cls, name: str) -> Any:
        return object.__new__(type(str(name)[:60], (), {"__module__": "yours"}))


def make_strategy(code: Code, name: str) -> type[Strategy]:
    """A strategy like the student's `name`, with its knobs and messages, whose roles are played in processes of theirs."""
    about = code.ask("about", name)
    try:
        if len(about["own"]) > MOST or len(about["knobs"]) > MOST or any(len(f) > MOST for f in about["own"].values()):
            raise ValueError(f"more than {MOST} knobs, kinds of message, or fields of one")
        knobs = {k: plain_number(v) for k, v in about["knobs"].items()}
        knobs = {k: v for k, v in knobs.items() if isinstance(v, (int, float, str, bool, type(None)))}
        kinds = {k: KINDS[k] for k in about["messages"] if k in KINDS} | {
            k: _kind(k, f) for k, f in about["own"].items()
        }
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
    if not isinstance(name, str) or len(name) > MOST or name.startswith("_"):
        return False
    return name.isidentifier() and not keyword.iskeyword(name)


def _kind(name: Any, fields: Any) -> type[Message]:
    """A kind of message of the student's own. `ValueError` for names that are none."""
    names = list(fields)
    if not all(_is_name(n) and n not in TAKEN for n in (name, *names)):
        raise ValueError(f"a kind of message, or a field of it, has no good name: {str([name, *names])[:80]}")
    return dataclasses.make_dataclass(name, [(n, Any) for n in names], bases=(Message,), frozen=True)


def make_function(code: Code, name: str) -> Any:
    """A function that is called over there; its arguments and its result are copies."""

    def function(*args: Any, **more: Any) -> Any:
        return code.call(name, list(args), more)

    function.__name__ = function.__qualname__ = name
    return function
