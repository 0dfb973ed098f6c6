"""The `labkit` that graded code sees: what a strategy is written with, and nothing that is one.

`lk.Strategy`, `lk.knob`, messages, and the tools that the assignment names. A tool (`lk.pull`, `lk.push_pull`) is
performed by the judge, as are `model.gradient` and `shard.apply`: here are only their names.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import BadInput, Deadlock, LabkitError, RoleError
from ...knobs import knob
from ...roles import effects, messages
from ...roles.messages import Message

__all__ = ["Face", "ServerStrategy", "Strategy"]

ALWAYS = {"knob": knob, "Message": Message, "BadInput": BadInput, "RoleError": RoleError, "LabkitError": LabkitError,
          "Deadlock": Deadlock}  # fmt: skip
KINDS = {name: getattr(messages, name) for name in ("Ack", "Chunk", "Joined", "Left", "Mix", "Pull", "Push", "Weights")}
WAITING = {"pull", "push", "push_pull", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """What a strategy is written on. Its knobs are its fields; its `async` methods are its roles."""

    messages: ClassVar[tuple[type, ...]] = ()
    uses_servers: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ServerStrategy(Strategy):
    """The same, with the messages between workers and servers."""

    messages: ClassVar[tuple[type, ...]] = (
        messages.Push,
        messages.Pull,
        messages.Weights,
        messages.Left,
        messages.Joined,
    )


def waiting_tool(name: str) -> Any:
    """`await lk.name(ctx, ...)`: the judge performs it."""

    def tool(ctx: Any, *args: Any, **more: Any) -> Any:
        return effects.call(name, (ctx, *args), more)

    tool.__name__ = name
    return tool


def post(ctx: Any, gradient: Any) -> None:
    """`lk.post(ctx, gradient)`: send it to every shard, and wait for nothing."""
    for shard, server in enumerate(ctx.peers("server")):
        ctx.send(server, gradient.push(shard))


class Face(types.ModuleType):
    """The module itself: the names that this assignment allows; any other name is refused with the reason."""

    def __init__(self, tools: list[str]):
        super().__init__("labkit")
        self.__path__: list[str] = []
        self.Strategy, self.ServerStrategy = Strategy, ServerStrategy
        self.__dict__.update(ALWAYS)
        for name in tools:
            if name in KINDS:
                setattr(self, name, KINDS[name])
            elif name in WAITING:
                setattr(self, name, waiting_tool(name))
            elif name == "post":
                self.post = post

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        there = ", ".join(sorted(k for k in self.__dict__ if not k.startswith("_")))
        raise AttributeError(f"lk.{name} is not there in graded work; what is: {there}")


class Absent(types.ModuleType):
    """A module that graded code may import, for its pictures and trials, and that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class Nothing:
    """Whatever is done with it, nothing happens."""

    def __call__(self, *args: Any, **more: Any) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Any:
        return iter((self, self))  # fig, axes = plt.subplots()


ABSENT = ("matplotlib", "matplotlib.pyplot", "IPython", "IPython.display", "ipywidgets")


def put_on(tools: list[str]) -> None:
    """From here on `import labkit` gives the face, and the rest of labkit that is loaded has no name."""
    for name in [name for name in sys.modules if name == "labkit" or name.startswith("labkit.")]:
        del sys.modules[name]
    sys.modules["labkit"] = Face(tools)
    sys.modules["labkit.course"] = sys.modules["labkit"].course = Absent("labkit.course")  # type: ignore[attr-defined]
    for name in ABSENT:
        sys.modules[name] = Absent(name)
