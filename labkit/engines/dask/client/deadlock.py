"""Deadlock detection: all roles block without timeout at one instant and no message is in flight.

Roles report about ten times a second whether they wait, and how many messages they have sent and received. Reports
come at different times, and counts that agree prove nothing by themselves: a role whose newest report is old may have gone
on since, and so may those that it has written to. But a role whose reports have been the same from one time to another
has not moved in between. Where these stretches of all roles have an instant in common, the counts at that instant are
those reported, and they say whether a message was in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["MARGIN_NS", "DeadlockDetector"]

MARGIN_NS = 200_000_000  # how long the common stretch must be: clocks of several machines differ a little

State = tuple[
    tuple[str, ...] | None, str | None, int, int
]  # waits for kinds, from a sender only; messages sent, received


class DeadlockDetector:
    """For each role its last report, and since when its reports have been the same. Without a clock of its own."""

    def __init__(self, roles: Collection[str]):
        self.reset(roles)

    def reset(self, roles: Collection[str]) -> None:
        """Membership has changed: counts from before mean nothing any more. `roles`: those that are here, and report."""
        self._missing = set(roles)
        self._same: dict[str, tuple[State, int, int]] = {}  # role -> (state, since, until)

    def report(
        self, role: str, waiting: Sequence[str] | None, only: str | None, sent: int, received: int, now: int
    ) -> None:  # fmt: skip
        """At `now` (ns) `role` waited for the kinds named in `waiting`, from `only` if not None; None: it did not wait.

        An empty `waiting`: its coroutine has returned, and will never send again.
        """
        self._missing.discard(role)
        state = (None if waiting is None else tuple(waiting), only, sent, received)
        before = self._same.get(role)
        self._same[role] = (state, now if before is None or before[0] != state else before[1], now)

    def blocked(self) -> dict[str, tuple[tuple[str, ...], str | None]] | None:
        """{role: (kinds, only)} of all roles that wait in a deadlock; None if there is none."""
        if self._missing:
            return None
        states, since, until = zip(*self._same.values())
        if any(waiting is None for waiting, _, _, _ in states) or min(until) - max(since) < MARGIN_NS:
            return None
        if sum(sent for _, _, sent, _ in states) != sum(received for _, _, _, received in states):
            return None
        return {role: (state[0], state[1]) for role, (state, _, _) in self._same.items() if state[0]} or None
