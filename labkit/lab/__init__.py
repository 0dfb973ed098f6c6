"""The lab in a notebook: widgets around the pictures of `labkit.views`. Nothing of it is loaded before it is used."""

from __future__ import annotations

from typing import Any

__all__ = ["watch"]


def watch(run: Any, panels: Any = None, seconds: float | None = None, speed: float | None = None) -> Any:
    """A live figure of `run`; the last expression of a cell shows it. See `labkit.lab.live.Watch`."""
    from .live import Watch

    return Watch(run, panels, seconds, speed)
