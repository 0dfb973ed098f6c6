"""Every way labkit says no.

A user's mistake ends in one sentence that says what was wrong and what is allowed; a bug crashes. All
errors that labkit raises on purpose derive from `LabkitError`, so a caller can tell the two apart.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BadInput", "ClusterError", "Deadlock", "LabkitError", "RoleError", "close_name", "lacks", "nearest", "shown"]


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


def shown(value: object, most: int = 200) -> str:
    """`repr(value)` for a message: shortened to about `most` characters, and never an error itself."""
    try:
        text = repr(value)
    except Exception:  # a number with more digits than Python writes out, or an object that cannot describe itself
        digits = int(value.bit_length() * 0.30103) + 1 if isinstance(value, int) else 0
        text = f"<a whole number of about {digits:,} digits>" if digits else f"<{type(value).__name__}>"
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}...{text[-most // 4 :]} ({len(text):,} characters)"


def nearest(what: str, given: object, allowed: Iterable[str], also: str = "") -> BadInput:
    """The error for an unknown name: names the nearest allowed one if there is a near one, and lists them all.

    `also`: a sentence to end with.
    """
    names = sorted(allowed)
    more = f" {also}" if also else ""
    return BadInput(f"There is no {what} {shown(given)}.{_hint(given, names)} Allowed: {', '.join(names)}.{more}")


def lacks(owner: str, what: str, given: object, allowed: Iterable[str]) -> BadInput:
    """The error for an unknown `what` ("setting", "option") of `owner`, as `nearest`."""
    names = sorted(allowed)
    known = f"{what.capitalize()}s: {', '.join(names)}." if names else f"It has no {what}s."
    return BadInput(f"{owner} has no {what} {shown(given)}.{_hint(given, names)} {known}")


def close_name(given: object, names: Iterable[str]) -> str | None:
    """The name that `given` is nearest to; None if none is near."""
    if not isinstance(given, str) or len(given) > 100:
        return None
    known = sorted(names)
    # one letter in the wrong case is half of a short name, and too far for what follows
    same = [name for name in known if name.lower() == given.lower()]
    longer = [name for name in known if len(given) >= 3 and name.startswith(given)]
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.65)  # 'mnist' is no misspelt 'moons' (0.6)
    return next(iter(same or longer or near), None)


def _hint(given: object, names: list[str]) -> str:
    close = close_name(given, names)
    return f" Did you mean {close!r}?" if close else ""
