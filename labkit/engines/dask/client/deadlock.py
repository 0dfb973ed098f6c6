"""Deadlock detection: all roles block without timeout at one instant and no message is in flight.

Roles report about ten times per second whether they wait, and how many messages they have sent and received. Reports
are made at different times, so equal counts alone prove nothing: a role whose newest report is old may have continued
since, and so may the roles to which it has sent. However, a role whose reports are equal from one time to another was
idle in this interval. If the intervals of all roles overlap, the reported counts are those in the overlap. Then no
message was in flight in the overlap if the total of sent messages equals the total of received messages.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....trace.schema import NANO
from ..timeouts import STALLED_S

MARGIN_NS = 200_000_000  # minimum length of the overlap, because clocks of several machines differ slightly

State = tuple[
    tuple[str, ...] | None, str | None, int, int
]  # (awaited kinds, only sender, messages sent, messages received)


class DeadlockDetector:
    """Detects deadlocks from the reports of roles. Times are arguments, in ns."""

    def __init__(self, roles: Collection[str]):
        self.reset(roles)

    def reset(self, roles: Collection[str]) -> None:
        """Forget all reports, after a membership change. `roles`: the present roles, whose reports are needed."""
        self._missing = set(roles)
        self._unchanged: dict[str, tuple[State, int, int]] = {}  # {role: (state, since, until)}

    def report(
        self, role: str, waiting: Sequence[str] | None, only: str | None, sent: int, received: int, now: int
    ) -> None:  # fmt: skip
        """Add the report of `role` at time `now` (ns).

        `waiting`: names of the kinds of messages for which the role waited; None if it did not wait, empty if its
        coroutine has returned. `only`: the only sender from which it waited for a message, or None. `sent`, `received`:
        numbers of messages.
        """
        self._missing.discard(role)
        state = (None if waiting is None else tuple(waiting), only, sent, received)
        before = self._unchanged.get(role)
        self._unchanged[role] = (state, now if before is None or before[0] != state else before[1], now)

    def blocked(self, unreachable: bool = False) -> dict[str, tuple[tuple[str, ...], str | None]] | None:
        """Return {role: (kinds, only)} of all roles that wait, or None if there is no deadlock.

        `unreachable`: messages of some roles do not arrive, so counts are not compared; the overlap must be `STALLED_S`.
        """
        if self._missing:
            return None
        states, since, until = zip(*self._unchanged.values())
        margin = STALLED_S * NANO if unreachable else MARGIN_NS
        if any(waiting is None for waiting, _, _, _ in states) or min(until) - max(since) < margin:
            return None
        if not unreachable and sum(sent for _, _, sent, _ in states) != sum(received for _, _, _, received in states):
            return None
        return {role: (state[0], state[1]) for role, (state, _, _) in self._unchanged.items() if state[0]} or None
