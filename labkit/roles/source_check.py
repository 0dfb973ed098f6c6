"""Checks the source of a strategy before it runs: a missing or superfluous `await`, and state that roles share.

A coroutine that is not awaited does nothing. A global variable that roles share works only if all roles are in one process, as
in virtual time. The error contains the line number. Some mistakes cannot be found (no source, a function under another name);
they raise an error when the role runs.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections import deque
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from typing import Any

import numpy as np

from ..errors import BadInput

TRAPS = ("compute", "recv", "sleep")
POSTS = ("send", "note", "save")
MUTATORS = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "fill",
    "insert",
    "pop",
    "popitem",
    "popleft",
    "put",
    "remove",
    "reverse",
    "setdefault",
    "sort",
    "update",
}
CONTAINERS = (MutableSequence, MutableMapping, MutableSet, deque, np.ndarray)


def check_source(strategy: Any) -> None:
    """Raise `BadInput` for the first mistake in the methods of a strategy's classes. Classes of labkit are not checked."""
    for cls in type(strategy).__mro__:
        if cls is object or cls.__module__.partition(".")[0] == "labkit":
            continue
        for name, function in vars(cls).items():
            if inspect.isfunction(function) and not name.startswith("__"):
                _check(f"{cls.__name__}.{name}", type(strategy), function)


def _check(where: str, owner: type, function: types.FunctionType) -> None:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return  # no source to read
    if not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # a lambda, or the result of a decorator
    method = _Method(owner, function, tree)
    complaints = [*_awaits(method), *_shared(method)]
    if complaints:
        node, what = min(complaints, key=lambda c: c[0].lineno)
        raise BadInput(f"{where}, line {first + node.lineno - 1}: {what}")


class _Method:
    """The syntax tree of a method, and the values of its names."""

    def __init__(self, owner: type, function: types.FunctionType, tree: ast.FunctionDef | ast.AsyncFunctionDef):
        self.owner, self.tree = owner, tree
        names = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)]
        self.self_name = names[0] if names else ""
        self.ctx_name = "ctx" if "ctx" in names else (names[1] if len(names) > 1 else "")
        self.locals = set(function.__code__.co_varnames) | set(function.__code__.co_cellvars)
        outside = inspect.getclosurevars(function)
        self.outside = {**outside.globals, **outside.nonlocals}
        self.globals = function.__globals__
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def value(self, node: ast.expr) -> Any:
        """Return the value of a name or dotted name; None if it is not known."""
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return self.owner if node.id == self.self_name else None
            return self.outside.get(node.id, self.globals.get(node.id))
        if isinstance(node, ast.Attribute):
            base = self.value(node.value)
            if isinstance(base, types.ModuleType) or (base is self.owner and isinstance(node.value, ast.Name)):
                return getattr(base, node.attr, None)
        return None

    def ctx_call(self, node: ast.AST) -> str:
        """Return `name` if the node is the call `ctx.name(...)`, else ""."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.attr if node.func.value.id == self.ctx_name else ""
        return ""


# awaits ---------------------------------------------------------------------------------------------------------------


def _awaits(method: _Method) -> Iterator[tuple[Any, str]]:
    awaited = {
        n.value.id
        for n in ast.walk(method.tree)
        if isinstance(n, ast.Await | ast.Return) and isinstance(n.value, ast.Name)
    }
    for node in ast.walk(method.tree):
        called = method.ctx_call(node)
        if called in TRAPS or (isinstance(node, ast.Call) and inspect.iscoroutinefunction(method.value(node.func))):
            if not _is_awaited(method, node, awaited):
                text = ast.unparse(node.func)  # type: ignore[attr-defined]
                yield node, f"`{text}(...)` is never awaited, so it does nothing: write `await {text}(...)`."
        elif isinstance(node, ast.Await) and method.ctx_call(node.value) in POSTS:
            text = ast.unparse(node.value.func)  # type: ignore[attr-defined]
            yield node, f"`await {text}(...)`: it never waits, so it is not awaited; write `{text}(...)`."
        elif isinstance(node, ast.For) and method.ctx_call(node.iter) == "inbox":
            yield node, "`for ... in ctx.inbox(...)`: an inbox is waited for; write `async for`."
        elif isinstance(node, ast.AsyncFor) and method.ctx_call(node.iter) == "batches":
            yield node, "`async for ... in ctx.batches()`: batches are not waited for; write `for`."


def _is_awaited(method: _Method, node: ast.AST, awaited: set[str]) -> bool:
    """Return whether a call is awaited, returned or started as a task, directly or through a variable."""
    parent = method.parents.get(node)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "start":
        return node in parent.args
    if isinstance(parent, ast.Await | ast.Return | ast.Lambda):
        return True
    targets = parent.targets if isinstance(parent, ast.Assign) else [getattr(parent, "target", None)]
    return any(isinstance(target, ast.Name) and target.id in awaited for target in targets)


# shared state ---------------------------------------------------------------------------------------------------------


def _shared(method: _Method) -> Iterator[tuple[Any, str]]:
    declared = {name for n in ast.walk(method.tree) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
    for node in ast.walk(method.tree):
        what = ""
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and node.id in declared:
            what = f"`{node.id}`, a global of its module"
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            what = _changed(method, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            what = _changed(method, node.func, CONTAINERS)
        if what:
            yield (
                node,
                (
                    f"changes {what}; roles share nothing but messages, and on a cluster each has its own copy: keep it in a "
                    "variable of the role, or send it."
                ),
            )


def _changed(method: _Method, node: ast.Attribute | ast.Subscript, kinds: tuple[type, ...] = ()) -> str:
    """Return a text for the shared object that is changed by a store to `node`, or, with `kinds`, by a call of the method
    `node` of an object of these classes; "" if there is none."""
    root: ast.expr = node
    inner: ast.expr = node
    while isinstance(root, ast.Attribute | ast.Subscript):
        inner, root = root, root.value
    if not isinstance(root, ast.Name):
        return ""
    if root.id == method.self_name:
        calls_own = kinds and inner is node  # self.update(...): a method of the strategy
        return "" if calls_own or not isinstance(inner, ast.Attribute) else f"`self.{inner.attr}`"
    if root.id in method.locals:
        return ""
    held = method.value(root)
    if held is None or (kinds and not isinstance(held, kinds)):
        return ""
    return f"`{root.id}`, a global of its module"
