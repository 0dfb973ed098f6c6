"""The module `labkit` of a student process: the API for writing a strategy, without labkit's strategies.

It has `lk.Strategy`, `lk.option`, messages, and the tools that the assignment lists. Tools (`lk.pull`, `lk.push_pull`),
`model.gradient` and `shard.apply` run in the grader; the student process does not have their code.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import BadInput, Deadlock, LabkitError, RoleError
from ...options import option
from ...roles import effects, messages
from ...roles.messages import Message

__all__ = ["AWAITED_TOOLS", "MESSAGES", "ServerStrategy", "Strategy", "install"]

BASE_NAMES = {"option": option, "Message": Message, "BadInput": BadInput, "RoleError": RoleError, "LabkitError": LabkitError,
          "Deadlock": Deadlock}  # fmt: skip
MESSAGES = {
    name: getattr(messages, name) for name in ("Ack", "Chunk", "Joined", "Left", "Mix", "Pull", "Push", "Weights")
}
AWAITED_TOOLS = {"pull", "push", "push_pull", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The base class of submitted strategies. The fields of a strategy are its options; its `async` methods are its roles."""

    messages: ClassVar[tuple[type, ...]] = ()
    uses_servers: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ServerStrategy(Strategy):
    """A strategy with the messages between workers and servers."""

    messages: ClassVar[tuple[type, ...]] = (
        messages.Push,
        messages.Pull,
        messages.Weights,
        messages.Left,
        messages.Joined,
    )


def awaited_tool(name: str) -> Any:
    """Return the function `lk.name`, such that `await lk.name(ctx, ...)` is an effect that the grader performs."""

    def tool(ctx: Any, *args: Any, **more: Any) -> Any:
        return effects.call(name, (ctx, *args), more)

    tool.__name__ = name
    return tool


def post(ctx: Any, gradient: Any) -> None:
    """Send the gradient to every shard without waiting for a reply: `lk.post(ctx, gradient)`."""
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


class RestrictedLabkit(types.ModuleType):
    """The module with the names that an assignment allows. Any other name raises `AttributeError`, with the allowed names."""

    def __init__(self, tools: list[str]):
        super().__init__("labkit")
        self.__path__: list[str] = []
        self.Strategy, self.ServerStrategy = Strategy, ServerStrategy
        self.__dict__.update(BASE_NAMES)
        for name in tools:
            if name in MESSAGES:
                setattr(self, name, MESSAGES[name])
            elif name in AWAITED_TOOLS:
                setattr(self, name, awaited_tool(name))
            elif name == "post":
                self.post = post

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        available = ", ".join(sorted(k for k in self.__dict__ if not k.startswith("_")))
        raise AttributeError(f"lk.{name} is not available in graded code; available: {available}")


class InertModule(types.ModuleType):
    """A module without effect, in place of a module that graded code may import (for plots or trial runs)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()


class Inert:
    """An object whose attributes and calls have no effect."""

    def __call__(self, *args: Any, **more: Any) -> Inert:
        return self

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Any:
        return iter((self, self))  # fig, axes = plt.subplots()


INERT = ("matplotlib", "matplotlib.pyplot", "IPython", "IPython.display", "ipywidgets")


def install(tools: list[str]) -> None:
    """Make `import labkit` return the restricted module, and remove the names of all other modules of labkit."""
    for name in [name for name in sys.modules if name == "labkit" or name.startswith("labkit.")]:
        del sys.modules[name]
    sys.modules["labkit"] = RestrictedLabkit(tools)
    sys.modules["labkit.course"] = sys.modules["labkit"].course = InertModule("labkit.course")  # type: ignore[attr-defined]
    for name in INERT:
        sys.modules[name] = InertModule(name)
