"""Remote strategies and functions: in the grader's notebook they replace a submission's class or function.

The roles of a remote strategy run in student processes. In the grader, a coroutine for each role passes each effect
that its student process sends to the engine, and sends the result back. So the engine, its clock and seeds, the
gradients, the ledger and the trace belong to the grader, and the submitted code acts through its effects only.
"""

from __future__ import annotations

import dataclasses
import keyword
import linecache
import sys
import types
from collections.abc import Sequence
from typing import Any

from ...engines.error_texts import foreign_effect
from ...errors import BadInput, RoleError
from ...models import NumpyModel
from ...roles import collectives, effects, servers
from ...roles.effects import CALL, COMPUTE, RECV, SLEEP
from ...roles.messages import Message
from ...strategies import Strategy
from ..regions import HIDDEN, in_region
from .request_validation import checked_kinds, checked_seconds
from .restricted_api import AWAITED_TOOLS, MESSAGES
from .session import ERRORS, StudentSession, SubmittedCode

ROLES = ("server", "worker")
MAX_ITEMS = 100  # the limit of the options of a strategy, of its message classes, and of the fields of a message class
RESERVED = ("self", "sender", "incarnation", "carries", "reads")  # names that a field of a message cannot have
TOOLS = {name: getattr(collectives, name, None) or getattr(servers, name) for name in sorted(AWAITED_TOOLS)}


class RemoteRole:
    """One role that runs in a student process. `allowed`: the tools of labkit that the role may call."""

    def __init__(self, session: StudentSession, allowed: tuple[str, ...]):
        self.session, self.allowed = session, allowed

    async def run(self, request: list[Any]) -> None:
        """Pass effects to the engine and results to the process, until the role's coroutine ends."""
        frame = self.session.exchange(request)
        try:
            while frame[0] == "effect":
                try:
                    value = await self._perform(*frame[1:])
                except ERRORS as error:
                    frame = self.session.exchange(["throw", type(error).__name__, str(error)])
                else:
                    frame = self.session.exchange(["resume", value])
            if frame[0] == "raise":
                raise self.session.raised(frame, RoleError)
        finally:
            self.session.close()

    async def _perform(self, mark: Any, *rest: Any) -> Any:
        if mark == RECV:
            kinds, timeout, sender = rest
            if sender is not None and type(sender) is not str:
                raise BadInput("ctx.recv(..., sender=): allowed: a role's name")
            return await effects.recv(
                None, *checked_kinds(kinds), timeout=checked_seconds(timeout, "timeout"), sender=sender
            )
        if mark == SLEEP:
            seconds: Any = checked_seconds(rest[0], "ctx.sleep(seconds)")
            return await effects.sleep(None, 0.0 + seconds)  # None: the role gets the TypeError
        if mark == COMPUTE:
            return await self._compute(*rest)
        if mark == CALL:
            name, args, keywords = rest
            if name not in self.allowed or name not in TOOLS or not args or args[0] is not self.session.ctx:
                raise BadInput(f"lk.{name}(ctx, ...) is not available in this assignment")
            self.session.count(args, list(keywords.values()))
            return await TOOLS[name](*args, **keywords)
        raise foreign_effect(self.session.ctx.name, None if rest[0] == "NoneType" else _InstanceOf(rest[0]))

    async def _compute(self, fn: Any, args: Any, cost: Any, unless: Any) -> Any:
        cost = checked_seconds(cost, "cost")
        if cost is None or cost < 0:
            raise BadInput(f"cost={cost}; allowed: from 0 on.")
        if unless is not None:
            (unless,) = checked_kinds([unless])
        if fn is None:
            return await effects.compute(
                None, lambda: self._perform_in_student_process(cost >= 1.0), cost=cost, unless=unless
            )
        if not isinstance(fn, types.MethodType):
            raise BadInput(f"ctx.compute({type(fn).__name__}): give a function, and then its arguments.")
        self.session.validator.check_work(fn, args, cost)
        return await effects.compute(None, fn, *args, cost=cost, unless=unless)

    def _perform_in_student_process(self, one_gradient: bool) -> None:
        """Request the student process to call its function; the result stays in that process.

        The engine calls this method at the time at which it performs the work.
        """
        self.session.validator.one_gradient = one_gradient
        frame = self.session.exchange(["perform"])
        self.session.validator.one_gradient = False
        if frame[0] == "raise":
            raise self.session.raised(frame, RoleError)


class _InstanceOf:
    """Calling it returns an instance of an empty class with the given name, for the text of an error."""

    def __new__(cls, name: str) -> Any:
        return object.__new__(type(str(name)[:60], (), {"__module__": "yours"}))


def malformed(name: str, why: Exception) -> BadInput:
    """Return the error for a description that no honest process sends."""
    return BadInput(f"The description of {name} is malformed ({why}).")


def remote_strategy(code: SubmittedCode, name: str, options: dict[str, Any], about: dict[str, Any]) -> type[Strategy]:
    """Return a strategy class whose roles run in student processes."""
    try:
        if len(about["own"]) > MAX_ITEMS or any(len(f) > MAX_ITEMS for f in about["own"].values()):
            raise ValueError(f"more than {MAX_ITEMS} kinds of message, or fields of one")
        kinds = {k: MESSAGES[k] for k in about["messages"] if k in MESSAGES}
        kinds |= {k: _message_class(k, f) for k, f in about["own"].items()}
        roles = [role for role in ROLES if role in about["roles"]]
        uses_servers = bool(about["uses_servers"])
    except (TypeError, ValueError, KeyError, AttributeError) as why:
        raise malformed(name, why) from None
    for option in options:
        check_option(name, option, Strategy, ROLES)

    def role(kind: str) -> Any:
        async def run(self: Any, ctx: Any, *parts: Any) -> None:
            session = StudentSession(code, ctx, MESSAGES | kinds)
            values = {key: getattr(self, key) for key in options}
            await RemoteRole(session, code.tools).run(["role", name, values, kind, ctx.name, list(parts)])

        run.__name__ = kind
        return run

    body = {kind: role(kind) for kind in roles}
    body |= {"messages": tuple(kinds.values()), "uses_servers": uses_servers, "__module__": __name__}
    fields = [(option, Any, dataclasses.field(default=value)) for option, value in options.items()]
    return dataclasses.make_dataclass(name, fields, bases=(Strategy,), namespace=body, frozen=True, kw_only=True)


def check_option(name: str, option: Any, base: type[Strategy | NumpyModel], methods: Sequence[str] = ()) -> None:
    """Raise `BadInput` if an option would replace another attribute of the base class, such as `layout` or `chief`."""
    inherited = {field.name for field in dataclasses.fields(base)}
    if not _is_name(option) or (hasattr(base, option) and option not in inherited) or option in (*methods, "self"):
        raise BadInput(f"{name}: an option cannot be called {str(option)[:40]!r}.")


def _is_name(name: Any) -> bool:
    if not isinstance(name, str) or len(name) > MAX_ITEMS or name.startswith("_"):
        return False
    return name.isidentifier() and not keyword.iskeyword(name)


def _message_class(name: Any, fields: Any) -> type[Message]:
    """Return a message class of the submission. Raises `ValueError` if a name is not allowed."""
    names = list(fields)
    if not all(_is_name(n) and n not in RESERVED for n in (name, *names)):
        raise ValueError(
            f"a kind of message, or a field of it, has a name that is not allowed: {str([name, *names])[:80]}"
        )
    return dataclasses.make_dataclass(name, [(n, Any) for n in names], bases=(Message,), frozen=True)


def remote_function(code: SubmittedCode, name: str) -> Any:
    """Return a function that calls the submission's function `name` in a student process. Arguments and result are copied.

    The calls of hidden tests are made in another process than those of visible ones.
    """

    def function(*args: Any, **keywords: Any) -> Any:
        return code.ask(("functions", called_by_hidden_test()), "call", name, list(args), keywords)

    function.__name__ = function.__qualname__ = name
    return function


def called_by_hidden_test() -> bool:
    """Whether one of the lines of the notebook that are being executed is in a region of hidden tests."""
    frame = sys._getframe(2)
    while frame is not None:
        entry = linecache.cache.get(frame.f_code.co_filename)
        # no file: a cell
        if entry and len(entry) == 4 and entry[1] is None and in_region(entry[2], HIDDEN, frame.f_lineno):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
