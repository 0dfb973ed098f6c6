"""The lab in a notebook: widgets around the pictures of `labkit.views`. Nothing of it is loaded before it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["watch"]


def watch(
    run: Any, panels: Iterable[str] | str | None = None, controls: Iterable[str] | None = (), speed: float | None = None
) -> Any:
    """A lab that shows `run`; the last expression of a cell shows it. See `labkit.lab.lab.Lab`."""
    from .lab import Lab

    return Lab(run=run, panels=panels, controls=controls, speed=speed)
