"""The error classes of labkit.

A user's mistake raises an error whose message is one sentence: what was wrong and what is allowed. All errors that labkit
raises on purpose derive from `LabkitError`; any other exception is a bug.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterable

__all__ = [
    "BadInput", "ClusterError", "Deadlock", "LabkitError", "RoleError", "RunOver", "close_name", "lacks", "nearest", "shown",
    "without_addresses",
]  # fmt: skip


class LabkitError(Exception):
    """The base class of all errors that labkit raises on purpose.

    Examples
    --------
    >>> issubclass(lk.ClusterError, lk.LabkitError)
    True
    """


class BadInput(LabkitError, ValueError):
    """An argument is not allowed.

    The message contains the given value and the allowed values.

    Examples
    --------
    >>> lk.Budget(updates=-1)
    Traceback (most recent call last):
        ...
    labkit.errors.BadInput: Budget: updates=-1 is not allowed; updates is a whole number from 1 to 10**12 or None.
    """


class ClusterError(LabkitError, RuntimeError):
    """The cluster cannot carry out a request, or a process that the run needs was lost.

    Examples
    --------
    >>> cluster = lk.DaskCluster(workers=2)
    >>> cluster.close()
    >>> cluster.open()
    Traceback (most recent call last):
        ...
    labkit.errors.ClusterError: This DaskCluster has been closed; make a new one.
    """


class RoleError(LabkitError, RuntimeError):
    """A role failed: it raised an exception, or yielded an effect that is not allowed.

    The message names the role, its step, the error, and the line of the strategy.

    Examples
    --------
    >>> class Wrong(lk.AsyncPS):
    ...     async def worker(self, ctx, model):
    ...         raise ValueError("not written yet")
    >>> lk.train("digits", Wrong(), lk.SimulatedCluster(workers=2)).wait()
    Traceback (most recent call last):
        ...
    labkit.errors.RoleError: worker-0 failed at step 0: ValueError: not written yet
    ...
    """


class Deadlock(LabkitError, RuntimeError):
    """All roles wait and no message is in flight.

    The message names the messages for which each role waits.

    Examples
    --------
    >>> class Silent(lk.AsyncPS):
    ...     async def worker(self, ctx, model):
    ...         await ctx.recv(lk.Weights)  # without a request before
    >>> lk.train("digits", Silent(), lk.SimulatedCluster(workers=1)).wait()
    Traceback (most recent call last):
        ...
    labkit.errors.Deadlock: deadlock after 0.000 s: server-0 waits for ...; worker-0 waits for Weights. No message ...
    """


class RunOver(LabkitError, RuntimeError):
    """The run ended, without an error, before what `Run.wait_for` waits for.

    Examples
    --------
    >>> run = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=9))
    >>> run.wait_for("restarted", "worker-1")
    Traceback (most recent call last):
        ...
    labkit.errors.RunOver: The run ended (9 updates done) before the event 'restarted' of worker-1. The last events:
    ...
    """


def check_installed(what: str, *packages: str) -> None:
    """Raise `BadInput` if a package is missing that labkit itself does not require. `what`: as "Data frames need"."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(f"{what} {' and '.join(missing)}; install with: pip install {' '.join(missing)}.")


def without_addresses(text: str) -> str:
    """Return a text of `repr` without addresses in memory, which differ each time: `<function f>`."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def shown(value: object, most: int = 200) -> str:
    """Return `repr(value)` for a message, without addresses, shortened to about `most` characters. Never raises, as
    `reprlib.repr`: the message is about another error.
    """
    try:
        text = without_addresses(repr(value))
    except Exception:
        text = f"<{type(value).__name__}>"
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}...{text[-most // 4 :]} ({len(text):,} characters)"


def nearest(what: str, given: object, allowed: Iterable[str], also: str = "") -> BadInput:
    """Return the error for the unknown name `given` of a `what`. It suggests the closest allowed name, if there is a similar one,
    and lists all allowed names. `also`: a final sentence.
    """
    names = sorted(allowed)
    more = f" {also}" if also else ""
    return BadInput(f"There is no {what} {shown(given)}.{_hint(given, names)} Allowed: {', '.join(names)}.{more}")


def lacks(owner: str, what: str, given: object, allowed: Iterable[str]) -> BadInput:
    """Return the error for an unknown `what` ("setting", "option") of `owner`, with a suggestion as in `nearest`."""
    names = sorted(allowed)
    known = f"{what.capitalize()}s: {', '.join(names)}." if names else f"It has no {what}s."
    return BadInput(f"{owner} has no {what} {shown(given)}.{_hint(given, names)} {known}")


def close_name(given: object, names: Iterable[str]) -> str | None:
    """Return the name that is most similar to `given`; None if no name is similar."""
    if not isinstance(given, str) or len(given) > 100:
        return None
    known = sorted(names)
    # case is compared first: in a short name one letter in the wrong case exceeds the cutoff below
    same = [name for name in known if name.lower() == given.lower()]
    longer = [name for name in known if len(given) >= 3 and name.startswith(given)]
    near = difflib.get_close_matches(given, known, n=1, cutoff=0.65)  # 'mnist' is no misspelt 'moons' (0.6)
    return next(iter(same or longer or near), None)


def _hint(given: object, names: list[str]) -> str:
    close = close_name(given, names)
    return f" Did you mean {close!r}?" if close else ""
