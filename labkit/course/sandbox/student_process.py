"""The main loop of a student process: executes a role or calls a function at the grader's request.

The process is confined before it receives the submitted code. The grader trusts nothing that this process sends, and
the process holds nothing with which the grader compares answers.

Frames to the grader: ["request", ...], which is answered at once; ["effect", ...], which is answered when the engine
has performed the effect; ["done", value]; ["raise", text, class]. Frames from the grader: ["load", cells, tools],
["describe", name], ["role", ...], ["call", name, args, keywords], ["value", name],
["compute", model, options, method, args]. While a role waits for an effect,
the grader sends ["resume", value], ["throw", class, text], or ["perform"], the request to call the function given to
`ctx.compute`.
"""

from __future__ import annotations

import inspect
from typing import Any

from ...errors import BadInput, RoleError
from ...roles.effects import CALL, COMPUTE, RECV, SLEEP
from . import restricted_api
from .cells import CellNamespace, error_text
from .proxies import GraderConnection, Method, StudentContext, error_of

WRITTEN = {"init": 0, "gradient": 3}  # which argument of a model's method has the arrays that it writes


class StudentProcess:
    """The main loop, which answers the grader's frames until the connection is closed."""

    def __init__(self, grader: GraderConnection):
        self.grader = grader
        self.cells: Any = None

    def serve(self) -> None:
        while True:
            what, *arguments = self.grader.receive()
            try:
                self._answer(what, getattr(self, "_" + what)(*arguments), arguments)
            except BaseException as error:
                self.grader.send(["raise", self._text(error), type(error).__name__])

    def _answer(self, what: str, result: Any, arguments: list[Any]) -> None:
        """Send a result. If it is a value that cannot be sent, raise `RoleError`, which says where it comes from."""
        try:
            self.grader.send(["done", result])
        except RoleError as why:
            if what == "compute":
                raise RoleError(f"{arguments[0]}.{arguments[2]} returned {why}") from None
            if what not in ("call", "value"):
                raise
            code = getattr(self.cells.get(arguments[0]), "__code__", None) if what == "call" else None
            where = f" ({code.co_filename[1:-1]}, line {code.co_firstlineno})" if code else ""
            raise RoleError(f"{arguments[0]} {'returned' if what == 'call' else 'is'} {why}{where}") from None

    def _text(self, error: BaseException) -> str:
        return error_text(error) if self.cells is None else self.cells.error_text(error)

    def _load(self, cells: list[dict[str, Any]], tools: list[str]) -> list[tuple[str, str]]:
        restricted_api.install(tools)
        self.cells = CellNamespace(cells, self.grader.reference_function)
        return self.cells.failures

    def _describe(self, name: str) -> dict[str, Any]:
        return self.cells.describe(name)

    def _value(self, name: str) -> Any:
        return self.cells.get(name)

    def _call(self, name: str, args: list[Any], keywords: dict[str, Any]) -> Any:
        result = self.cells.get(name)(*args, **keywords)
        if inspect.iscoroutine(result):
            raise BadInput(f"{name} is an `async def` and was called without `await`: write `def`.")
        return result

    def _compute(self, name: str, options: dict[str, Any], method: str, args: list[Any]) -> tuple[Any, dict[str, Any]]:
        """Call a method of a model. Returns (its result, the arrays that it has written)."""
        place = WRITTEN.get(method)
        arrays: dict[str, Any] = {}
        if place is not None:  # the model gets views, whose shapes it may change, in a dict, whose items it may replace
            arrays = args[place]
            args[place] = {key: array[...] for key, array in arrays.items()}
        result = getattr(self.cells.get(name)(**options), method)(*args)
        return None if method == "init" else result, arrays

    def _role(self, name: str, options: dict[str, Any], kind: str, role: str, parts: list[Any]) -> None:
        cls = self.cells.get(name)
        self.grader.register(tuple(cls.messages))
        self.grader.context = context = StudentContext(self.grader, role)
        self._drive(getattr(cls(**options), kind)(context, *parts))

    def _drive(self, coroutine: Any) -> None:
        """Send the coroutine's effects to the grader, and the results back into the coroutine."""
        result: Any = None
        resume = coroutine.send
        while True:
            try:
                effect = resume(result)
            except StopIteration:
                return
            local = self._send_effect(effect)
            what, *answer = self.grader.receive()
            done: Any = None
            if what == "perform":
                done = self._perform(*local)
                what, *answer = self.grader.receive()
            if what == "throw":
                error = done[1] if done else error_of(*answer)
                resume, result = coroutine.throw, error
            else:
                resume, result = coroutine.send, done[0] if done else answer[0]

    def _perform(self, fn: Any, args: Any) -> tuple[Any, BaseException | None]:
        """Call a function given to `ctx.compute` in this process. Returns (result, which is not sent, or None; error or None)."""
        try:
            result = fn(*args)
        except BaseException as error:
            self.grader.send(["raise", self._text(error), type(error).__name__])
            return None, error
        self.grader.send(["done", None])
        return result, None

    def _send_effect(self, effect: Any) -> Any:
        """Send an effect. Returns (function, arguments) if this process performs the work of the effect, else None."""
        mark = effect[0] if type(effect) is tuple and effect else None
        if mark == COMPUTE:
            _, fn, args, cost, unless = effect
            if isinstance(fn, Method):
                self.grader.send(["effect", COMPUTE, fn, list(args), cost, unless])
                return None
            self.grader.send(["effect", COMPUTE, None, [], cost, unless])
            return fn, args
        if mark in (RECV, SLEEP, CALL):
            self.grader.send(["effect", *effect])
        else:
            self.grader.send(["effect", "foreign", type(effect).__name__])
        return None
