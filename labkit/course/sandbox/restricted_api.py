"""The module `labkit` of a student process: the API for writing a strategy or a model, without labkit's strategies.

It has `lk.Strategy`, `lk.NumpyModel`, `lk.option`, messages, and the tools that the assignment lists. Tools (`lk.pull`,
`lk.push_pull`), `model.gradient` and `shard.apply` run in the grader; the student process does not have their code.

Packages for plots and progress, and what a notebook's kernel adds to Python (`display`), are there without an effect.
Other packages, and modules that are not loaded, cannot be imported, on every Python alike.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
import types
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import BadInput, Deadlock, LabkitError, RoleError
from ...models.numpy_model import DataShape, NumpyModel
from ...options import option
from ...roles import effects, messages
from ...roles.messages import Message

UNAVAILABLE = "is not available in graded code"

BASE_NAMES = {"option": option, "Message": Message, "BadInput": BadInput, "RoleError": RoleError, "LabkitError": LabkitError,
          "Deadlock": Deadlock, "NumpyModel": NumpyModel, "DataShape": DataShape}  # fmt: skip
MESSAGES = {
    name: getattr(messages, name) for name in ("Ack", "Chunk", "Joined", "Left", "Mix", "Pull", "Push", "Weights")
}
# Classes of labkit of what a role gets from its engine. An answer may name them in annotations.
HINTS = ("Context", "Gradient", "Parameters", "Run", "Trace")
AWAITED_TOOLS = {"pull", "push", "push_pull", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier"}


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """The base class of submitted strategies. The fields of a strategy are its options; its `async` methods are its roles."""

    messages: ClassVar[tuple[type, ...]] = ()
    uses_servers: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ServerStrategy(Strategy):
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


def type_hint(name: str) -> type:
    """Return a class that can be used in annotations only: a call, an attribute, a subclass or `isinstance` raises
    `AttributeError`.
    """

    def refuse(cls: type, *args: Any, **more: Any) -> Any:
        raise AttributeError(f"lk.{name} {UNAVAILABLE}, except as a type hint")

    uses = ("__call__", "__getattr__", "__instancecheck__", "__subclasscheck__")
    kind = type("TypeHint", (type,), dict.fromkeys(uses, refuse))
    return kind(name, (), {"__init_subclass__": classmethod(refuse), "__module__": "labkit"})


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
        if name in HINTS:
            return self.__dict__.setdefault(name, type_hint(name))
        available = ", ".join(sorted(k for k in self.__dict__ if not k.startswith("_") and k not in HINTS))
        raise AttributeError(f"lk.{name} {UNAVAILABLE}; available: {available}")


class Inert:
    """An object whose attributes, items and calls have no effect."""

    def __call__(self, *args: Any, **more: Any) -> Inert:
        return self

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, place: Any) -> Inert:
        return self

    def __setitem__(self, place: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Any:
        return iter((self, self))  # fig, axes = plt.subplots()

    def __enter__(self) -> Inert:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class InertBar(Inert):
    """`tqdm.tqdm` that shows nothing: iterates over its argument."""

    def __init__(self, iterable: Any = (), *args: Any, **more: Any):
        self.iterable = iterable

    def __iter__(self) -> Any:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)


def progress_range(*args: int, **more: Any) -> InertBar:
    """`tqdm.trange` without a bar."""
    return InertBar(range(*args))


class InertModule(types.ModuleType):
    """A module without effect, in place of a module that graded code may import (for plots or trial runs)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()


# Packages that have no effect in graded code, with the names that need one.
INERT: dict[str, dict[str, Any]] = {
    "IPython": {}, "ipywidgets": {}, "matplotlib": {}, "seaborn": {}, "tqdm": {"tqdm": InertBar, "trange": progress_range},
}  # fmt: skip


class Importer:
    """The only import finder of a student process: it finds the modules of the packages in `INERT`, and nothing else."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Return the specification of an inert module; None for any other module."""
        inert = name.partition(".")[0] in INERT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if inert else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        return InertModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(INERT[module.__name__.partition(".")[0]])


def install(tools: list[str]) -> None:
    """Make `import labkit` return the restricted module, and remove the names of all other modules of labkit, of what it uses
    itself, and the means to import them.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] in ("labkit", "msgpack")]:
        del sys.modules[name]
    sys.modules["labkit"] = RestrictedLabkit(tools)
    sys.modules["labkit.course"] = sys.modules["labkit"].course = InertModule("labkit.course")  # type: ignore[attr-defined]
    sys.meta_path[:] = [Importer()]
    vars(builtins).update(display=Inert(), get_ipython=Inert())
