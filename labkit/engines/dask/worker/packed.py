"""Values with a user's code, as they are sent to other processes: with the code as it is in the client now.

A class in a module is usually pickled as its name, and the receiver imports the module: from a file that may have been edited
since, as it was when this process imported it first, or not at all, because only the client's machine has the file. So classes
and functions of a user's modules are pickled with their code, like those of a notebook. The value is sent as bytes: Dask's
scheduler unpickles the arguments of a task, and where it is in the client's process, this would change the client's classes.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import cloudpickle

from ....content_digest import user_modules
from ....errors import BadInput

_NO_FILE = "<dynamic-code>"  # what cloudpickle writes instead of a file


def _code_with_file(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object, with the name of its file: errors show the line."""
    make, arguments = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return make, tuple(code.co_filename if isinstance(each, str) and each == _NO_FILE else each for each in arguments)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[ChainMap[type, Any]] = ChainMap(
        {types.CodeType: _code_with_file}, cloudpickle.Pickler.dispatch_table
    )


_registry = threading.Lock()  # cloudpickle has one list of modules for all threads


@dataclass(frozen=True)
class Packed:
    """A pickled value. `value()` makes the value again."""

    pickled: bytes

    @classmethod
    def of(cls, value: object, name: str) -> Self:
        """Pickle a value. `name`: what a message calls it. Raises `BadInput` if it cannot be pickled."""
        try:
            with _by_value(user_modules(value)):
                file = io.BytesIO()
                _Pickler(file).dump(value)
                return cls(file.getvalue())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise BadInput(
                f"{name} cannot be sent to other processes: {why}. No locks, files or sockets may be in it or in what its roles "
                "refer to."
            ) from None

    def value(self) -> Any:
        return cloudpickle.loads(self.pickled)


def call_packed(packed: Packed) -> Any:
    """Call a packed (function, arguments), and return the result. Runs on the Dask worker."""
    function, arguments = packed.value()
    return function(*arguments)


@contextlib.contextmanager
def _by_value(names: set[str]) -> Iterator[None]:
    """Context manager in which cloudpickle sends these modules with their code."""
    with _registry:
        modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
        new = [module for module in modules if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
        for module in new:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in new:
                cloudpickle.unregister_pickle_by_value(module)
