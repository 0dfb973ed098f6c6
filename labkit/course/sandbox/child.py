"""The process in which a student's code runs. It begins before the code is there, confines itself, and then does what the
judge asks for: be a role, or call a function.

`nursery` is the process that `begin` becomes: it has loaded what a role needs, and makes a copy of itself (fork) for
every role: two roles share no memory, as on a cluster. Nothing here is trusted by the judge; nothing here knows what the
judge compares with.

Frames to the judge: ["ask", ...] (answered at once), ["effect", ...] (answered when the engine goes on), ["done", value],
["raise", text]. From the judge: ["load", ...], ["about", name], ["role", ...], ["call", name, args], ["value", name], and
while a role waits ["go", value], ["throw", name, text], ["perform"] (the function that `ctx.compute` was given).
"""

from __future__ import annotations

import inspect
import os
import random
import socket
import time
from typing import Any

import numpy as np

from ...errors import BadInput, RoleError
from ...roles.effects import CALL, COMPUTE, RECV, SLEEP
from . import confine, face
from .code import Code, told
from .lent import ChildContext, Line, Method, error_of
from .parent import end_with_parent

__all__ = ["BROKEN", "UNCONFINED", "nursery"]

BROKEN = 70  # with this a process ends that could not even say what went wrong
UNCONFINED = 71  # with this a process ends that could not be confined: the host's inability, nothing has been run


class Child:
    """Answers the judge until it hangs up."""

    def __init__(self, line: Line):
        self.line = line
        self.code: Any = None

    def serve(self) -> None:
        """One request after the other."""
        while True:
            what, *arguments = self.line.hear()
            try:
                self.line.say(["done", getattr(self, "_" + what)(*arguments)])
            except BaseException as error:
                self.line.say(["raise", told(error), type(error).__name__])

    def _load(self, cells: list[dict[str, Any]], tools: list[str]) -> list[tuple[str, str]]:
        face.put_on(tools)
        self.code = Code(cells, self.line.function)
        return self.code.failures

    def _about(self, name: str) -> dict[str, Any]:
        return self.code.about(name)

    def _value(self, name: str) -> Any:
        return self.code.get(name)

    def _call(self, name: str, args: list[Any], more: dict[str, Any]) -> Any:
        result = self.code.get(name)(*args, **more)
        if inspect.iscoroutine(result):
            raise BadInput(f"{name} is an `async def` and was called without `await`: write `def`.")
        return result

    def _role(self, name: str, knobs: dict[str, Any], kind: str, role: str, parts: list[Any]) -> None:
        cls = self.code.get(name)
        self.line.learn(tuple(cls.messages))
        self.line.context = context = ChildContext(self.line, role)
        self._drive(getattr(cls(**knobs), kind)(context, *parts))

    def _drive(self, coroutine: Any) -> None:
        """Hand the coroutine's effects to the judge, and what comes of them to the coroutine."""
        result: Any = None
        resume = coroutine.send
        while True:
            try:
                effect = resume(result)
            except StopIteration:
                return
            local = self._say(effect)
            what, *answer = self.line.hear()
            done: Any = None
            if what == "perform":
                done = self._perform(*local)
                what, *answer = self.line.hear()
            if what == "throw":
                error = done[1] if done else error_of(*answer)
                resume, result = coroutine.throw, error
            else:
                resume, result = coroutine.send, done[0] if done else answer[0]

    def _perform(self, fn: Any, args: Any) -> tuple[Any, BaseException | None]:
        """Work that was given to `ctx.compute` and is done here, when the engine says so: its result stays here."""
        try:
            result = fn(*args)
        except BaseException as error:
            self.line.say(["raise", told(error), type(error).__name__])
            return None, error
        self.line.say(["done", None])
        return result, None

    def _say(self, effect: Any) -> Any:
        """The effect to the judge. The function and arguments of work that is done here, if it is such."""
        mark = effect[0] if type(effect) is tuple and effect else None
        if mark == COMPUTE:
            _, fn, args, cost, unless = effect
            if isinstance(fn, Method):
                self.line.say(["effect", COMPUTE, fn, list(args), cost, unless])
                return None
            self.line.say(["effect", COMPUTE, None, [], cost, unless])
            return fn, args
        if mark in (RECV, SLEEP, CALL):
            self.line.say(["effect", *effect])
        else:
            self.line.say(["effect", "foreign", type(effect).__name__])
        return None


def no_sleep(seconds: float) -> None:
    """In place of `time.sleep`, which would stop a role and not its clock."""
    raise RoleError("time.sleep stops a process and not the run: write `await ctx.sleep(seconds)`.")


def be_child(reading: int, writing: int, processor_s: int, parent: int) -> None:
    """Everything that a copy of the process `parent` does, to its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.closerange(3, min(reading, writing))
    os.closerange(min(reading, writing) + 1, max(reading, writing))
    os.closerange(max(reading, writing) + 1, 1024)
    end_with_parent(parent)
    if processor_s:
        confine.confine(processor_s)
    setattr(time, "sleep", no_sleep)  # noqa: B010
    random.seed(0)  # what is drawn without a generator of its own is drawn again the same
    np.random.seed(0)
    Child(Line(reading, writing)).serve()


def nursery(control: socket.socket, processor_s: int) -> None:
    """Make a copy for every pair of descriptors that comes; say how one ended when asked. Ends with the judge."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 64, 2)
        if not message:
            return
        if message.startswith(b"end"):
            _, status, used = os.wait4(int(message[3:]), 0)
            control.send(f"{status} {used.ru_utime + used.ru_stime}".encode())
            continue
        here = os.getpid()
        pid = os.fork()
        if pid == 0:
            control.close()
            try:
                be_child(descriptors[0], descriptors[1], processor_s, here)
            except confine.Unconfined:
                os._exit(UNCONFINED)
            finally:
                os._exit(BROKEN)
        for descriptor in descriptors:
            os.close(descriptor)
        control.send(str(pid).encode())
