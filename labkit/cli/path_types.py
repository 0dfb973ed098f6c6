"""Parameter types for files and folders. Errors contain the name of the argument."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import click

from ..errors import BadInput, shown
from ..paths import as_path, reason


class PathType(click.ParamType):
    """A valid path, as a `pathlib.Path`; it need not exist."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Convert to a path. Raises `BadInput` if it is empty, has characters that a path cannot have, or a name is too long."""
        named = _parameter_name(param)
        path = Path(as_path(named, value))
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            pass  # the command reports what it needs
        except OSError as why:  # a name that is too long, a loop of symbolic links
            raise BadInput(f"{named} {shown(str(path))} cannot be opened: {reason(why)}.") from None
        return path


class ExistingFile(PathType):
    """The path of a readable regular file. `what`: the description of the file in errors."""

    name = "file"

    def __init__(self, what: str) -> None:
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Convert to a path. Raises `BadInput` if it is not a readable regular file."""
        path = super().convert(value, param, ctx)
        wrong = f"{_parameter_name(param)} {shown(str(path))} cannot be read: "
        try:
            about = os.stat(path)
            if not stat.S_ISREG(about.st_mode):
                kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a device or a pipe"
                raise BadInput(f"{wrong}it is {kind}; allowed: {self.what}.")
            with open(path, "rb"):
                pass
        except OSError as why:
            raise BadInput(f"{wrong}{reason(why)}; allowed: {self.what}.") from None
        return path


def _parameter_name(param: click.Parameter | None) -> str:
    if isinstance(param, click.Option):
        return param.opts[0]
    return (param.name or "path").upper() if param is not None else "path"
