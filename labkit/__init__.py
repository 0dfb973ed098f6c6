"""labkit: a visual laboratory for distributed training. `import labkit as lk`.

This module only exports names. `__init__.pyi` lists them, for this module, type checkers and editors. Each is imported when it
is first used, so that `import labkit` stays fast.
"""

from __future__ import annotations

import copyreg
import importlib
import os
import sys
import types

import lazy_loader

from .interrupts import DeferredInterrupt


def _attach() -> tuple:
    stub = f"{os.path.splitext(__file__)[0]}.pyi"
    if os.path.exists(stub):
        return lazy_loader.attach_stub(__name__, stub)
    from importlib import resources  # the package is imported from a zip file

    with resources.as_file(resources.files(__name__) / "__init__.pyi") as copy:
        return lazy_loader.attach_stub(__name__, str(copy))


_import, __dir__, __all__ = _attach()
MODULES = ("codecs", "distributions", "lessons", "partitions", "placements", "schedules")

# lazy_loader may change the class; pickle does not know the new one
if type(sys.modules[__name__]) is not types.ModuleType:
    copyreg.pickle(type(sys.modules[__name__]), lambda module: (importlib.import_module, (module.__name__,)))


def __getattr__(name: str) -> object:
    if name in __all__:
        with DeferredInterrupt():
            return _import(name)
    if name.startswith("_"):  # asked for by tools that inspect modules, and no mistake of a user
        raise AttributeError(f"labkit has no {name!r}.")
    import difflib

    for module in MODULES if name[:1].isupper() else ():  # not of submodules, which `from . import data` asks for first
        if hasattr(importlib.import_module(f"{__name__}.{module}"), name):
            raise AttributeError(f"labkit has no {name!r}. It is lk.{module}.{name}.")
    close = difflib.get_close_matches(name, __all__, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else f" It has {', '.join(__all__)}."
    raise AttributeError(f"labkit has no {name!r}.{hint}")
