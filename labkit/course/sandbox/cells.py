"""Runs the cells of a submission, statement by statement, in the student process."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from ...errors import BadInput, LabkitError
from ...models.numpy_model import NumpyModel, check_fields
from ...roles import messages
from ...roles.source_check import check_source
from . import restricted_api

MODEL_METHODS = ("shapes", "init", "scores", "gradient", "stages")  # of which the grader is told


class CellNamespace:
    """The names that cells define.

    A statement that raises is skipped and recorded in `failures`, so that a failed experiment in a helper cell does not
    affect the functions around it; `missing` has the reasons by the names that it would have defined. `cells`: each is
    {"id", "source"}, or {"id", "functions": names, "values": {name: value}} where the reference's answer replaces the
    student's. Then `function(name)` makes a function that calls the
    reference's function in another process.
    """

    def __init__(self, cells: list[dict[str, Any]], function: Callable[[str], Any]):
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        self.failures: list[tuple[str, str]] = []
        self.missing: dict[str, str] = {}
        self._flags = 0
        for cell in cells:
            if "source" in cell:
                self._run(cell["id"], cell["source"])
            else:
                vars(self.module).update({name: function(name) for name in cell["functions"]}, **cell["values"])

    def _run(self, name: str, source: str) -> None:
        place = f"<cell {name}>"
        linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
        try:
            tree = ast.parse(source, place)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.failures.append((name, error_text(error)))
            return
        for statement in tree.body:
            try:
                code = compile(ast.Module([statement], []), place, "exec", self._flags, dont_inherit=True)
                exec(code, self.module.__dict__)
            except BaseException as error:
                self.failures.append((name, self.error_text(error)))
                self.missing.update(dict.fromkeys(_bound(statement), self.failures[-1][1]))
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                for alias in statement.names:
                    self._flags |= getattr(__future__, alias.name).compiler_flag

    def get(self, name: str) -> Any:
        """Return the value of a name. Raises `BadInput`, with the reason or the first failure, if the name is not defined."""
        if name not in self.module.__dict__:
            why = self.missing.get(name) or (self.failures[0][1] if self.failures else "")
            raise BadInput(f"{name} is not defined{why and ': '}{why}")
        return self.module.__dict__[name]

    def error_text(self, error: BaseException) -> str:
        """Return an error as text; if a name is not defined because of an earlier failure, the text has that failure, too."""
        why = self.missing.get(getattr(error, "name", None) or "") if isinstance(error, NameError) else None
        return error_text(error) + (f"; before that: {why}" if why else "")

    def describe(self, name: str) -> dict[str, Any]:
        """Return a description of a class as plain values: options with defaults; message classes and roles of a strategy, or
        methods of a model.

        Raises `BadInput` if the class is neither a strategy nor a model.
        """
        cls = self.get(name)
        if isinstance(cls, type) and issubclass(cls, NumpyModel):
            return _described_model(cls)
        if not isinstance(cls, type) or not issubclass(cls, restricted_api.Strategy):
            raise BadInput(
                f"{name} is neither a strategy nor a model: write `class {name}(lk.Strategy)` or `class {name}(lk.NumpyModel)`."
            )
        if not is_dataclass(cls) or "__dataclass_fields__" not in cls.__dict__:
            raise BadInput(f"{name} needs `@dataclass(frozen=True)` above its class line.")
        made: Any = cls()
        check_source(made)
        kinds = tuple(cls.messages)
        own = {k.__name__: messages.field_names(k) for k in kinds if k not in restricted_api.MESSAGES.values()}
        return {
            "options": {field.name: getattr(made, field.name) for field in fields(cls)},
            "messages": [kind.__name__ for kind in kinds], "own": own, "uses_servers": bool(cls.uses_servers),
            "roles": [role for role in ("server", "worker") if inspect.iscoroutinefunction(getattr(cls, role, None))],
        }  # fmt: skip


def _described_model(cls: type[NumpyModel]) -> dict[str, Any]:
    model = cls()
    check_fields(model)
    return {
        "options": {field.name: getattr(model, field.name) for field in fields(cls)}, "stochastic": bool(cls.stochastic),
        "methods": [name for name in MODEL_METHODS if getattr(cls, name) is not getattr(NumpyModel, name)],
    }  # fmt: skip


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def error_text(error: BaseException) -> str:
    """Return an error as one line of text, with the line of the submitted cell where the error was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("<cell ")]
    where = (
        f" ({frames[-1].filename[1:-1]}, line {frames[-1].lineno}: {(frames[-1].line or '').strip()})" if frames else ""
    )
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno}: {(error.text or '').strip()})"
    text = str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        available = "NumPy, and the standard library without files or processes"
        text = f"the module {error.name} {restricted_api.UNAVAILABLE}; available: {available}"
    elif isinstance(error, PermissionError):
        text += " (graded code has no files, processes or network)"
    return f"{text[:500]}{where[:200]}"
