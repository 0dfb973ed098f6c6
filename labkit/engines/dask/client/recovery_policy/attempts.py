"""Attempts: roles whose incarnations end again and again soon after their start (a native crash, a memory limit)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...timeouts import ATTEMPTS, LASTED_S


class RestartAttempts:
    """Counts for each role the incarnations in a row that did not last. `roles`: those that are up now."""

    def __init__(self, roles: Collection[str], now: float):
        self._up_since = dict.fromkeys(roles, now)  # {role that is up: since when}
        self._failures: dict[str, list[str]] = {}  # {role: why its last incarnations did not last}

    def up(self, role: str, now: float) -> None:
        """Record that an incarnation is up."""
        self._up_since[role] = now

    def over(self, role: str, now: float) -> None:
        """Record that an incarnation is over. If it has lasted, earlier failures no longer count."""
        if now - self._up_since.pop(role, now) >= LASTED_S:
            self.forget(role)

    def forget(self, role: str) -> None:
        """Count from zero again."""
        self._failures.pop(role, None)

    def failed(self, role: str, why: str) -> int:
        """Record that an incarnation failed. Returns the number of failures in a row."""
        self._failures.setdefault(role, []).append(why)
        return len(self._failures[role])

    def ended(self, roles: Collection[str], why: str, now: float) -> list[str]:
        """Record that the process of `roles` has ended by itself. Returns those of which too many incarnations did not last."""
        brief = [role for role in roles if now - self._up_since.get(role, now) < LASTED_S]
        return [role for role in brief if self.failed(role, why) >= ATTEMPTS]

    def explanation(self, roles: Sequence[str]) -> str:
        """Return the sentence that explains why `roles` are given up."""
        why = "; ".join(dict.fromkeys(why for role in roles for why in self._failures[role]))
        return (
            f"{' and '.join(roles)} did not last: each of {len(self._failures[roles[0]])} attempts ended within "
            f"{LASTED_S:g} s, because the process {why}"
        )
