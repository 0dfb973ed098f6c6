"""When is a run in real time stuck? When all roles waited without a limit at one instant, and nothing was under way.

Roles report about ten times a second whether they wait, and how many messages they have sent and received. Reports
come at different times, and counts that agree prove nothing by themselves: a role whose last word is old may have gone
on since, and so may those that it has written to. But a role whose reports have been the same from one time to another
has not moved in between. Where the stretches of all roles have an instant in common, the counts at that instant are
those reported, and they say whether anything was under way.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["MARGIN_NS", "Stillness"]

MARGIN_NS = 200_000_000  # how long the common stretch must be: clocks of several machines differ a little


class Stillness:
    """For each role its last report, and since when it has been the same."""

    def __init__(self, roles: Collection[str]):
        self._roles = tuple(roles)
        self.forget()

    def forget(self) -> None:
        """Who takes part has changed: counts from before mean nothing any more."""
        self._missing = set(self._roles)
        self._still: dict[str, tuple[Any, int, int]] = {}  # role -> (state, since, until)

    def hear(self, role: str, waiting: Any, only: str | None, sent: int, received: int, now: int) -> None:
        """At `now` (ns) `role` waited for the kinds named in `waiting`, from `only` if not None; None: it did not wait.

        An empty `waiting`: it has returned, and will never move again.
        """
        self._missing.discard(role)
        state = (None if waiting is None else tuple(waiting), only, sent, received)
        before = self._still.get(role)
        self._still[role] = (state, now if before is None or before[0] != state else before[1], now)

    def stuck(self) -> dict[str, tuple[tuple[str, ...], str | None]] | None:
        """{role: (kinds, only)} of all that wait for ever; None while something may still happen."""
        if self._missing:
            return None
        states, since, until = zip(*self._still.values())
        if any(waiting is None for waiting, _, _, _ in states) or min(until) - max(since) < MARGIN_NS:
            return None
        if sum(sent for _, _, sent, _ in states) != sum(received for _, _, _, received in states):
            return None
        return {role: state[:2] for role, (state, _, _) in self._still.items() if state[0]} or None
