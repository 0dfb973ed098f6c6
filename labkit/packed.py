"""Values with a user's code, as they are sent to other processes: with the code as it is in the client now.

A class in a module is usually pickled as its name, and the receiver imports the module: from a file that may have been edited
since, as it was when this process imported it first, or not at all, because only the client's machine has the file. So classes,
functions and modules of a user are pickled with their code, like those of a notebook, and those of labkit, of Python and of
installed packages as their names. The value is sent as bytes: Dask itself prefers names, and its scheduler unpickles the
arguments of a task, which would change the client's classes where it is in the client's process.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import io
import pickle
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec, resolve_name
from typing import Any, ClassVar, Self, TypeVar

import cloudpickle

from .content_digest import MAIN, PROCESS, globals_of, is_full, is_installed, is_users, nested_codes
from .errors import BadInput, ClusterError
from .formatting import bytes_text

LIMIT_BYTES = 64 << 20  # of what each role of a run receives
_NO_FILE = "<dynamic-code>"  # what cloudpickle writes instead of a file
_NOT_CONTENT = ("__builtins__", "__cached__", "__loader__", "__spec__")  # attributes of a module
_registry = threading.Lock()  # cloudpickle has one list of modules for all threads


@dataclass(frozen=True)
class Packed:
    """A pickled value. `name`: what a message calls it. `process`: the sender's `PROCESS`."""

    name: str
    pickled: bytes
    process: str = PROCESS

    @classmethod
    def of(cls, value: object, name: str, limit: int | None = None) -> Self:
        """Pickle a value. Raises `BadInput` if it cannot be pickled, or has more than `limit` bytes."""
        try:
            pickled = _pickled(value)
        except Exception as error:
            why = f"{type(error).__name__}: {error}{_where(value, lambda part: not _can_be_pickled(part))}"
            raise BadInput(
                f"{name} cannot be sent to other processes: {why}. No locks, files or sockets may be in it or in what its roles "
                "refer to."
            ) from None
        if limit is not None and len(pickled) > limit:
            where = _where(value, lambda part: _can_be_pickled(part) and len(_pickled(part)) > limit)
            raise BadInput(
                f"{name} cannot be sent to other processes: {bytes_text(len(pickled))} for each role{where}, and at most "
                f"{bytes_text(limit)} are sent. Load arrays where they are used: in `init` of a model, or in a role."
            )
        return cls(name, pickled)

    def value(self, address: str) -> Any:
        """Make the value in this process, which is the Dask worker at `address`. Raises `ClusterError` if it cannot be made.

        The modules that its functions import when they are called can be imported from now on.
        """
        file = io.BytesIO(self.pickled)
        unpickler = pickle.Unpickler(file)
        try:
            value = unpickler.load()
            while file.tell() < len(self.pickled):
                module = unpickler.load()
                if self.process != PROCESS:  # the client itself has it
                    sys.modules[module.__name__] = module
        except Exception as error:
            why = f"cannot load {self.name}: {type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError):
                why = f"has no module {error.name!r}, which {self.name} needs; install it there"
            raise ClusterError(f"The Dask worker at {address} {why}.") from None
        return value


def _pickled(value: object) -> bytes:
    """Pickle a value, and behind it the modules that its functions import when they are called."""
    file = io.BytesIO()
    with _registry, contextlib.ExitStack() as registered:
        pickler = _Pickler(file, registered)
        pickler.dump(value)
        for module in pickler.imported:  # becomes longer while these are pickled
            pickler.dump(module)
    return file.getvalue()


def _can_be_pickled(value: object) -> bool:
    try:
        _pickled(value)
    except Exception:
        return False
    return True


def _code_with_file(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object, with the name of its file: errors show the line."""
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if isinstance(each, str) and each == _NO_FILE else each for each in arguments)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a user's code by value. `registered`: restores cloudpickle's list of modules.

    `imported`: the user's modules that functions import when they are called.
    """

    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: _code_with_file}, cloudpickle.Pickler.dispatch_table
    )

    def __init__(self, file: io.BytesIO, registered: contextlib.ExitStack):
        super().__init__(file)
        self.imported: list[types.ModuleType] = []
        self._registered = registered

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            if not _by_value(value.__name__):
                return NotImplemented
            content = {name: each for name, each in vars(value).items() if name not in _NOT_CONTENT}
            return types.ModuleType, (value.__name__,), content  # the content may refer to the module
        if isinstance(value, types.FunctionType | type | TypeVar):
            module = sys.modules.get(str(value.__module__))
            if module is not None and _by_value(module.__name__):
                self._register(module)
            if isinstance(value, types.FunctionType) and is_users(value.__module__):
                self.imported += (each for each in _imported_by(value) if each not in self.imported)
        return super().reducer_override(value)

    def _register(self, module: types.ModuleType) -> None:
        if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.register_pickle_by_value(module)
            self._registered.callback(cloudpickle.unregister_pickle_by_value, module)


def _by_value(name: str) -> bool:
    """Return whether the functions and classes of a module are sent with their code. cloudpickle itself does so for `__main__`.

    The code of a package with compiled modules cannot be sent.
    """
    if name in MAIN or not is_users(name):
        return False
    root = name.partition(".")[0]
    files = [
        getattr(sys.modules[each], "__file__", None) for each in [*sys.modules] if f"{each}.".startswith(f"{root}.")
    ]
    return not any(str(file).endswith(tuple(EXTENSION_SUFFIXES)) for file in files)


def _imported_by(function: types.FunctionType) -> Iterator[types.ModuleType]:
    """Yield the user's modules that a function imports when it is called: `from . import a` in its code."""
    for code in nested_codes(function.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for level, names, step in zip(steps, steps[1:], steps[2:]):
            if step.opname == "IMPORT_NAME":
                package = function.__globals__.get("__package__") or ""
                try:
                    base = resolve_name("." * level.argval + step.argval, package)
                except ImportError:  # fails in the function, too
                    continue
                for name in (base, *(f"{base}.{each}" for each in names.argval or ())):
                    yield from _users_modules(name)


def _users_modules(name: str) -> Iterator[types.ModuleType]:
    """Yield the module of this name, and the packages around it, if it is a user's. Imports them, as the function would."""
    root, *parts = name.split(".")
    if root not in sys.modules:
        spec = None if not is_users(root) else find_spec(root)
        if spec is None or is_installed(spec.origin, spec.submodule_search_locations):
            return
    if _by_value(root):
        with contextlib.suppress(
            Exception, SystemExit
        ):  # a name in a module, or what the function cannot import either
            for i in range(len(parts) + 1):
                yield importlib.import_module(".".join([root, *parts[:i]]))


def _where(value: object, at_fault: Callable[[object], bool]) -> str:
    """Return the attributes that lead to the part of a value that is at fault, as " (in plan.strategy.worker.LOCK)"."""
    names: list[str] = []
    visited = [value]
    found: tuple[str, object] | None = ("", value)
    while found is not None:
        new = (each for each in _parts(visited[-1]) if not any(each[1] is known for known in visited))
        found = next((each for each in new if at_fault(each[1])), None)
        if found is not None:
            names.append(found[0])
            visited.append(found[1])
    return f" (in {'.'.join(names)})" if names else ""


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield (name, part) of what is pickled with a value."""
    if isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((str(i), part) for i, part in enumerate(value))
    elif isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or ())
        yield from ((name, cell.cell_contents) for name, cell in cells if is_full(cell))
        used = dict.fromkeys(globals_of(value.__code__))
        yield from ((name, value.__globals__[name]) for name in used if name in value.__globals__)
        yield from ((module.__name__, module) for module in _imported_by(value))
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__.__name__, value.__func__
    elif isinstance(value, type | types.ModuleType):
        if is_users(value.__module__ if isinstance(value, type) else value.__name__):
            yield from ((name, part) for name, part in vars(value).items() if name not in _NOT_CONTENT)
            yield from ((base.__name__, base) for base in getattr(value, "__bases__", ()))
    else:
        yield from getattr(value, "__dict__", {}).items()
        yield from _parts(type(value))
