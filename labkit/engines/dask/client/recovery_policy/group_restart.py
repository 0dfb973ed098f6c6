"""Restart of a group: all roles except the chief, in strategies whose round ends when one member is lost.

A group restarts in two phases. First ("collect"), the present members end their incarnations and hand over their state.
Second ("start"), the next incarnations of all members start; when all of them are up, they begin together. If a member is
lost during the second phase, the first begins again, and keeps the states that were handed over so far.

With `on_loss="continue"` the other members restart at once; all restart again when a Dask worker has been found for the
lost member.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from .....roles.group_restart import restarts_as_group, whole_replicas
from ....lifecycle import State
from ....transitions import new_story, next_state
from ...timeouts import FETCH_S
from ..membership import Membership


class Phase(StrEnum):
    IDLE = ""  # no restart is in progress
    COLLECT = "collect"  # the members end their incarnations, and hand over their state
    START = "start"  # the next incarnations are starting


class GroupTrigger(StrEnum):
    """An event in the restart of a group."""

    COLLECT = "collect"  # the restart begins
    START = "start"  # all members have handed over, and have a Dask worker
    UP = "up"  # the next incarnation of a member is up
    BEGIN = "begin"  # all are up
    LOSE = "lose"  # a member is lost, or has left


PHASES: Mapping[Phase, Mapping[GroupTrigger, Phase]] = MappingProxyType(
    {
        Phase.IDLE: {GroupTrigger.COLLECT: Phase.COLLECT, GroupTrigger.LOSE: Phase.IDLE},
        Phase.COLLECT: {GroupTrigger.START: Phase.START, GroupTrigger.LOSE: Phase.COLLECT},
        Phase.START: {
            GroupTrigger.UP: Phase.START,
            GroupTrigger.BEGIN: Phase.IDLE,
            GroupTrigger.LOSE: Phase.COLLECT,
        },
    }
)


class GroupRestart:
    """The restart of the group of a run, if it has one. `on_loss`: option of the strategy. `roles`: its members."""

    def __init__(self, members: Membership, on_loss: str):
        self._members = members
        layout = members.layout
        self.roles = [s.name for s in layout.roles if s.kind != "chief"] if restarts_as_group(layout) else []
        self._continues_on_loss = whole_replicas(layout) and on_loss == "continue"
        self.phase, self._story = Phase.IDLE, new_story()
        self._wanted = False  # a restart is to begin, or to begin again
        self._pending: set[str] = set()  # members that have not handed over (collect), or are not up (start)
        self._fetching: dict[str, float] = {}  # {member whose final report is being fetched: time at which that began}
        self._reports: dict[str, Mapping[str, Any]] = {}  # {member that has handed over: final report}

    def _move(self, trigger: GroupTrigger) -> None:
        self.phase = next_state(PHASES, "The group restart", self.phase, trigger, self._story)

    # collect --------------------------------------------------------------------------------------------------------------

    def collect_if_due(self, found: Collection[str]) -> None:
        """Begin a restart if it is due. `found`: the members for which a Dask worker was found."""
        state = self._members.state
        lost = [role for role in self._participants if state[role] in (State.LOST, State.STOPPED)]
        due = self._wanted or bool(found) or (bool(lost) and not self._continues_on_loss)
        if due and (self._continues_on_loss or all(role in found for role in lost)):
            self._move(GroupTrigger.COLLECT)
            self._wanted = False
            self._fetching.clear()
            self._pending = {role for role in self.roles if state[role] is State.RUNNING}

    @property
    def unanswered(self) -> list[str]:
        """The members that have not yet ended their incarnation."""
        return sorted(self._pending - self._fetching.keys())

    def ended(self, role: str, now: float) -> bool:
        """Record that the task of a role has ended. Returns whether its final report is to be fetched."""
        if self.phase is not Phase.COLLECT or role not in self._pending or role in self._fetching:
            return False
        self._fetching[role] = now
        return True

    def late(self, now: float) -> list[str]:
        """Return the members whose final reports could not be fetched in time."""
        return sorted(role for role in self._pending if now - self._fetching.get(role, now) > FETCH_S)

    def awaits_report(self, role: str) -> bool:
        """Return whether a member has not handed over yet."""
        return self.phase is Phase.COLLECT and role in self._pending

    def handed_over(self, role: str, report: Mapping[str, Any]) -> None:
        """Record the final report of a member."""
        self._pending.discard(role)
        self._reports[role] = report

    # start ----------------------------------------------------------------------------------------------------------------

    def may_start(self, reserved: Collection[str], found: Collection[str]) -> bool:
        """Return whether all have handed over, and all awaited members have a Dask worker.

        `reserved`: the members that have one. `found`: those for which one was found meanwhile.
        """
        if self._pending or not (reserved or found):
            return False
        awaited = self._participants
        if self._continues_on_loss:
            awaited = [] if reserved else [r for r in awaited if self._members.state[r] is not State.STOPPED]
        return all(role in reserved or role in found for role in awaited)

    def start(self, roles: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """Start the next incarnations of `roles`. Returns the final reports that were handed over."""
        self._move(GroupTrigger.START)
        self._wanted = False
        self._pending = set(roles)
        reports, self._reports = self._reports, {}
        return reports

    @property
    def starting(self) -> list[str]:
        """The members whose next incarnations are not up yet."""
        return sorted(self._pending)

    def up(self, role: str) -> bool:
        """Record that the next incarnation of a member is up. Returns whether all are up, and begin together."""
        self._move(GroupTrigger.UP)
        self._pending.discard(role)
        if self._pending:
            return False
        self._move(GroupTrigger.BEGIN)
        return True

    # losses ---------------------------------------------------------------------------------------------------------------

    def lose(self, role: str, restart: bool = False) -> bool:
        """Handle a member that is lost or has left. `restart`: the other members restart at once.

        Returns whether instances that are starting must end before they begin.
        """
        was_starting = self.phase is Phase.START
        self._move(GroupTrigger.LOSE)
        self._pending.discard(role)
        if was_starting:
            self._pending.clear()
            self._fetching.clear()
        self._wanted = self._wanted or restart or self._continues_on_loss or self.phase is not Phase.IDLE
        return was_starting

    @property
    def _participants(self) -> list[str]:
        outside = self._members.outside
        return [role for role in self.roles if role not in outside]
