"""Absences: roles that are missing, which of them are not restarted, and whether the run waits for them."""

from __future__ import annotations

from collections.abc import Iterable

from .....trace.events import RoleLeft, RunWaits
from ....lifecycle import PARTICIPATING, State
from ...timeouts import GIVE_UP_S
from ..membership import Membership
from .actions import CheckReturned, Record, RecoveryAction


class Absences:
    """The missing roles of a run."""

    def __init__(self, members: Membership):
        self._members = members
        self._computing = [spec.name for spec in members.layout.roles if spec.computes]
        self.stay_away: set[str] = set()  # roles that are not restarted when they are lost
        self._lost_since: dict[str, float] = {}  # {role that has not restarted: time of the loss}
        self._recorded: set[str] = set()  # roles in `_lost_since` whose absence has been recorded after `GIVE_UP_S`

    def keep_away(self, roles: Iterable[str]) -> None:
        """Do not restart these roles when they are lost."""
        self.stay_away.update(roles)

    def restart(self, roles: Iterable[str]) -> None:
        """Restart these roles again when they are lost."""
        self.stay_away.difference_update(roles)

    def lost(self, role: str, now: float) -> None:
        """Record the loss of a role."""
        self._lost_since.setdefault(role, now)
        self._recorded.discard(role)  # an absence recorded for an earlier incarnation does not cover this loss

    def forget(self, role: str) -> bool:
        """Forget the loss of a role that has restarted, or no longer takes part. Returns whether it was lost."""
        self._recorded.discard(role)
        return self._lost_since.pop(role, None) is not None

    def others_compute(self, than: Iterable[str] = ()) -> bool:
        """Return whether a computing role takes part, and is restarted if it is lost, besides the roles `than`."""
        gone = self.stay_away | self._members.outside | set(than)
        return any(role not in gone for role in self._computing)

    def overdue(self, now: float) -> list[RecoveryAction]:
        """Return the records of roles that have been missing for `GIVE_UP_S` seconds while they are being restarted."""
        wanted = PARTICIPATING - {State.STOPPED}  # the absence of a role that stays away is recorded at once
        found = [
            role for role, since in self._lost_since.items()
            if now - since > GIVE_UP_S and role not in self._recorded and self._members.state[role] in wanted
        ]  # fmt: skip
        self._recorded.update(found)
        return self.records(found)

    def records(self, roles: Iterable[str]) -> list[RecoveryAction]:
        """Return a record for each of these missing roles: whether the run waits for it, or continues without it."""
        found: list[RecoveryAction] = []
        others, members = self.others_compute(), self._members
        for role in roles:
            why = members.why[role]
            leaves = role in members.leaves and others
            found.append(Record(RoleLeft, (role, why)) if leaves else Record(RunWaits, (f"{role}, which {why}", role)))
        if any(members.state[role] is State.STOPPED for role in roles):
            found.append(CheckReturned())
        return found
