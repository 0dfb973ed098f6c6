"""Starts a process that handles a submission: `launch.py MODULE ARGUMENT...` runs `MODULE.main(ARGUMENT...)`.

The script is run by its path in an isolated interpreter (`-I`, or `-s -P`, so that neither the folder of a submission
nor user packages are on the import path). Therefore the script imports nothing of labkit. `ALLOWED` lists every module
of labkit that each process may import; the import of any other module of labkit fails. The packages of these modules
are empty modules, because their `__init__` would import all strategies and collectives, which must not be in the memory
of these processes.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

__all__ = ["ALLOWED"]

ALLOWED = {
    "labkit.course.sandbox.fork_server": (
        "labkit.errors",
        "labkit.options",
        "labkit.random_streams",
        "labkit.roles.context",
        "labkit.roles.effects",
        "labkit.roles.messages",
        "labkit.roles.source_check",
        "labkit.course.sandbox.cells",
        "labkit.course.sandbox.confine",
        "labkit.course.sandbox.fork_server",
        "labkit.course.sandbox.frames",
        "labkit.course.sandbox.parent_death",
        "labkit.course.sandbox.proxies",
        "labkit.course.sandbox.restricted_api",
        "labkit.course.sandbox.student_process",
    ),
    "labkit.course.grading.reader_process": (
        "labkit.errors",
        "labkit.course.regions",
        "labkit.course.schema",
        "labkit.course.grading.answers",
        "labkit.course.grading.archive",
        "labkit.course.grading.magics",
        "labkit.course.grading.reader_process",
        "labkit.course.grading.submitted_notebook",
        "labkit.course.sandbox.confine",
        "labkit.course.sandbox.parent_death",
    ),
}
"""By the module that a process runs: the modules of labkit that it may import."""


class AllowList:
    """An import finder that rejects every module of labkit except `modules`. The next finder handles other packages."""

    def __init__(self, modules: tuple[str, ...]):
        self.modules = frozenset(modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise `ModuleNotFoundError` if `name` is a module of labkit that is not listed."""
        if name.partition(".")[0] == "labkit" and name not in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r} in this process", name=name)


def restrict(modules: tuple[str, ...]) -> None:
    """Allow the import of these modules of labkit only, each without the `__init__` of its packages."""
    root = Path(__file__).resolve().parents[3]
    for module in modules:
        parents = module.split(".")[:-1]
        for depth in range(1, len(parents) + 1):
            name = ".".join(parents[:depth])
            if name not in sys.modules:
                sys.modules[name] = package = types.ModuleType(name)
                package.__path__ = [str(root.joinpath(*parents[:depth]))]
    sys.meta_path.insert(0, AllowList(modules))  # type: ignore[arg-type]


def main() -> None:
    """Restrict the imports, then run the module."""
    module, *arguments = sys.argv[1:]
    restrict(ALLOWED[module])
    importlib.import_module(module).main(*arguments)


if __name__ == "__main__":
    main()
