"""The content of values as a digest: a user's code and data in them included.

A stored result belongs to the code and the data that made it. A name identifies neither: a strategy is edited, a schedule is
another lambda, a Dask array has other numbers. So these are part of the digest:

- a user's functions and classes, by their bytecode, constants, defaults and closures, and by the functions, classes and values
  of modules to which they refer, however far away. (The source would be that of the file, which may have been edited since it
  was imported. Another version of Python has other bytecode, and so another digest.)
- NumPy arrays by their bytes; Dask collections by their tokens, which contain their graphs;
- other objects by their state, as it is pickled.

Code of labkit, of Python and of installed packages is identified by its name. What cannot be identified, as a lock, is different
in each process: it never equals anything that was stored.
"""

from __future__ import annotations

import dataclasses
import dis
import enum
import functools
import hashlib
import platform
import secrets
import sys
import types
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

PROCESS = secrets.token_hex(8)
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range)
# attributes of a class that are not its content
NOT_CONTENT = frozenset({
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__firstlineno__",
    "__static_attributes__", "__parameters__", "__orig_bases__", "__abstractmethods__", "__slotnames__", "_abc_impl",
})  # fmt: skip
INSTALLED = frozenset({"site-packages", "dist-packages"})


def content_digest(value: object) -> str:
    """Return the digest of a value as hexadecimal digits. Equal in all processes of one version of Python."""
    walk = _Walk()
    walk.visit(value)
    return walk.digest()


def code_digest(value: object) -> dict[str, str]:
    """Return the digest of a value with a user's code, and the version of Python, whose bytecode it is."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "sha256": content_digest(value)}


def user_modules(value: object) -> set[str]:
    """Return the names of the modules with a user's code to which a value refers, except `__main__`."""
    walk = _WalkOfModules()
    walk.visit(value)
    return walk.modules - {"__main__", "__mp_main__"}


def is_users(name: object) -> bool:
    """Return whether the module of this name is neither of labkit nor of Python nor of an installed package."""
    if not isinstance(name, str) or name in ("__main__", "__mp_main__"):
        return True
    if name.partition(".")[0] in ("labkit", *sys.stdlib_module_names):
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or INSTALLED.isdisjoint(PurePath(file).parts)


class _Walk:
    """A walk through a value and all to which it refers. `modules`: those of a user's code."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._hash = hashlib.sha256()
        self._code: dict[int, int] = {}  # {id of a visited function, class or module: its number}
        self._path: list[int] = []  # ids of the containers and objects that are being visited
        self._kept: list[object] = []  # an id is unique only as long as its object exists

    def digest(self) -> str:
        return self._hash.hexdigest()

    def visit(self, value: object) -> None:
        """Add a value. Each kind of value begins with its name, and says how many parts follow, so that nothing is ambiguous."""
        kind = type(value)
        if kind in PLAIN:
            self._add(kind.__name__, repr(value))
        elif isinstance(value, types.FunctionType | type | types.ModuleType):
            if id(value) in self._code:
                return self._add("again", str(self._code[id(value)]))
            self._code[id(value)] = len(self._code)
            self._kept.append(value)
            if isinstance(value, types.FunctionType):
                self._function(value)
            elif isinstance(value, type):
                self._class(value)
            else:
                self._add("module", value.__name__)
        elif id(value) in self._path:
            self._add("above", str(len(self._path) - self._path.index(id(value))))
        else:
            self._path.append(id(value))
            try:
                self._object(value)
            finally:
                self._path.pop()

    def _add(self, *words: str) -> None:
        for word in words:
            encoded = word.encode("utf-8", "surrogatepass")
            self._hash.update(b"%d:" % len(encoded) + encoded)

    def _all(self, name: str, *values: object) -> None:
        self._add(name, str(len(values)))
        for value in values:
            self.visit(value)

    # code -------------------------------------------------------------------------------------------------------------

    def _named(self, kind: str, value: types.FunctionType | type) -> bool:
        """Add the name of a function or class. Returns whether it is a user's, so that its content is added, too."""
        users = is_users(value.__module__)
        if users and isinstance(value.__module__, str):
            self.modules.add(value.__module__)
        self._add(kind, value.__qualname__ if users else f"{value.__module__}.{value.__qualname__}")
        return users

    def _function(self, function: types.FunctionType) -> None:
        cells = [cell.cell_contents if _is_full(cell) else None for cell in function.__closure__ or ()]
        if not self._named("function", function):
            return self._all("closure", *cells)
        self._code_object(function.__code__)
        self._all("defaults", function.__defaults__, function.__kwdefaults__, *cells)
        for name in sorted(set(_globals_of(function.__code__))):
            self._add("global", name)
            if name in function.__globals__:
                found = function.__globals__[name]
                self.visit(found)
                if isinstance(found, types.ModuleType) and is_users(found.__name__):
                    self._attributes(found, function.__code__)

    def _attributes(self, module: types.ModuleType, code: types.CodeType) -> None:
        """Add those attributes of a user's module whose names occur in this code."""
        self.modules.add(module.__name__)
        for name in sorted({name for each in _codes(code) for name in each.co_names} & vars(module).keys()):
            self._add("attribute", name)
            self.visit(vars(module)[name])

    def _code_object(self, code: types.CodeType) -> None:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._add("code", repr(counts), code.co_code.hex(), code.co_exceptiontable.hex())
        self._add(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)))
        self._all("constants", *code.co_consts)

    def _class(self, kind: type) -> None:
        if not self._named("class", kind):
            return
        self._all("bases", type(kind), *kind.__bases__)
        for name in sorted(vars(kind).keys() - NOT_CONTENT):
            self._add("attribute", name)
            self.visit(vars(kind)[name])

    # objects ----------------------------------------------------------------------------------------------------------

    def _object(self, value: object) -> None:
        if isinstance(value, types.CodeType):
            self._code_object(value)
        elif isinstance(value, types.MethodType):
            self._all("method", value.__func__, value.__self__)
        elif isinstance(value, staticmethod | classmethod):
            self._all(type(value).__name__, value.__func__)
        elif isinstance(value, property):
            self._all("property", value.fget, value.fset, value.fdel)
        elif isinstance(value, functools.cached_property):
            self._all("cached", value.func)
        elif isinstance(value, functools.partial):
            self._all("partial", value.func, value.args, value.keywords)
        elif isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, np.generic):
            self._add("scalar", str(value.dtype), value.tobytes().hex())
        elif isinstance(value, enum.Enum):
            self._all("enum", type(value), value.name)
        elif type(value) in (tuple, list):
            self._all(type(value).__name__, *value)  # type: ignore[misc]
        elif type(value) in (dict, types.MappingProxyType):
            pairs = sorted(value.items(), key=lambda pair: repr(pair[0]))  # type: ignore[attr-defined]
            self._all("dict", *(each for pair in pairs for each in pair))
        elif type(value) in (set, frozenset):
            self._all("set", *sorted(map(repr, value)))  # type: ignore[call-overload]
        elif callable(tokenized := getattr(value, "__dask_tokenize__", None)):
            self._all("dask", type(value), tokenized())
        elif dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            self._all(
                "dataclass", type(value), *(each for name in names for each in (name, getattr(value, name, None)))
            )
        else:
            self._state(value)

    def _array(self, array: np.ndarray) -> None:
        self._add("array", str(array.dtype), repr(array.shape))
        if array.dtype.hasobject:
            self._all("items", *array.ravel().tolist())
        else:
            self._hash.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")

    def _state(self, value: object) -> None:
        """Add an object as it is pickled. If it cannot be pickled, it is different in each process."""
        try:
            state = value.__reduce_ex__(4)
        except Exception:
            self._add("unknown", f"{type(value).__module__}.{type(value).__qualname__}", PROCESS, str(id(value)))
            self._kept.append(value)
            return
        if isinstance(state, str):
            self._all("object", type(value), state)
        else:
            parts = [list(part) if isinstance(part, Iterator) else part for part in state]
            self._kept.append(parts)
            self._all("object", *parts)


class _WalkOfModules(_Walk):
    """A walk that makes no digest."""

    def _add(self, *words: str) -> None:
        pass

    def _array(self, array: np.ndarray) -> None:
        if array.dtype.hasobject:
            super()._array(array)


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # a variable that has no value yet
        return False
    return True


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield this code, and that of all functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Yield the names that this code, or code in it, reads as globals. (`co_names` contains attributes, too.)"""
    for each in _codes(code):
        for step in dis.get_instructions(each):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                yield str(step.argval)
