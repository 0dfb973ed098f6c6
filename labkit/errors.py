"""Every way labkit says no.

A user's mistake ends in one sentence that says what was wrong and what is allowed; a bug crashes. All
errors that labkit raises on purpose derive from `LabkitError`, so a caller can tell the two apart.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadInput", "ClusterError", "Deadlock", "LabkitError", "RoleError", "nearest"]


class LabkitError(Exception):
    """The base of every error that labkit raises on purpose."""


class BadInput(LabkitError, ValueError):
    """An argument is not allowed. The message says what was given and what is allowed."""


class ClusterError(LabkitError, RuntimeError):
    """The cluster cannot do what was asked, or lost a process that the run needed."""


class RoleError(LabkitError, RuntimeError):
    """A role broke: an exception inside it, or something that it may not ask for."""


class Deadlock(LabkitError, RuntimeError):
    """Every role waits and nothing is under way."""


def nearest(what: str, given: object, allowed: Iterable[str]) -> BadInput:
    """The error for an unknown name: names the nearest allowed one and lists them all."""
    names = sorted(allowed)
    # one letter in the wrong case is half of a short name, and too far for what follows
    same = [name for name in names if name.lower() == str(given).lower()]
    close = same or difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return BadInput(f"There is no {what} {given!r}.{hint} Allowed: {', '.join(names)}.")
