"""The script that starts the processes of grading: `isolated.py MODULE ARGUMENT...` runs `main(ARGUMENT...)` of a
module of labkit.

It is started by its path in an isolated interpreter (`-I`, or `-s -P`: no folder of a submission, no user's packages), so
it imports nothing of labkit before `load`. labkit is loaded in part then: its packages are there by name only, because their
`__init__` would bring in every strategy and every collective, which have no business in these processes.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

PACKAGES = ("", "roles", "engines", "course", "course.sandbox")


def load() -> None:
    """Put labkit's packages there by name; each module of them that is imported then is loaded alone."""
    root = Path(__file__).resolve().parents[2]
    for part in PACKAGES:
        name = f"labkit.{part}".rstrip(".")
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*part.split(".")))]


def main() -> None:
    """Load, then run the module."""
    module, *arguments = sys.argv[1:]
    load()
    importlib.import_module(module).main(*arguments)


if __name__ == "__main__":
    main()
