"""Checks of a strategy class before a run starts."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable
from typing import Any

from ..errors import BadInput, shown
from ..roles.messages import Message


def check_strategy(strategy: Any, kinds: Iterable[str]) -> None:
    """Raise `BadInput` if options are not dataclass fields, `messages` lists other classes, or a role of the layout has no
    method.
    """
    cls, kinds = type(strategy), sorted(set(kinds))
    attributes = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    for name in sorted(attributes):
        if isinstance(attributes[name], dataclasses.Field):
            raise BadInput(f"{cls.__name__}.{name} is not a field yet: write @dataclass(frozen=True) above the class.")
    listed = cls.messages
    if not isinstance(listed, tuple) or not all(isinstance(k, type) and issubclass(k, Message) for k in listed):
        raise BadInput(
            f"{cls.__name__}.messages = {shown(listed)}: list the classes in a tuple, as (lk.Push, lk.Pull, lk.Weights)."
        )
    methods = [name for name, value in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]
    coroutines = [name for name in methods if inspect.iscoroutinefunction(getattr(cls, name))]
    for kind in kinds:
        if kind in coroutines:
            continue
        if kind in methods:
            raise BadInput(f"{cls.__name__}.{kind} is not `async def`: a role is a coroutine.")
        close = difflib.get_close_matches(kind, coroutines, n=1)
        hint = f" It has `{close[0]}`: is that it?" if close else ""
        raise BadInput(f"{cls.__name__} has no role `{kind}` (an `async def {kind}(self, ctx, ...)`).{hint}")
    for name in coroutines:
        close = difflib.get_close_matches(name, kinds, n=1, cutoff=0.8)
        if name not in kinds and close:
            raise BadInput(f"{cls.__name__}.{name} is not a role of this run, and is never called: is it `{close[0]}`?")
