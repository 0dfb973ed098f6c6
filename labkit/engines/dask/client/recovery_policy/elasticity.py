"""Elasticity: the workers that are to join and to leave. A role that joins is placed like a lost role.

If a join is requested before the role has left, the role leaves first and then joins.
"""

from __future__ import annotations

from collections.abc import Collection

from ....elastic import moving_roles
from ....lifecycle import State
from ...timeouts import UNPLACED_S
from ..membership import Membership

RECORDED = float("inf")  # in the place of a time: the log records already that the role has no Dask worker


class Elasticity:
    """The pending joins and leaves of the workers of a run. `elastic`: whether there may be any."""

    def __init__(self, members: Membership, elastic: bool):
        self._members = members
        layout = members.layout
        self._node = {spec.name: spec.node for spec in layout.roles}
        workers = [spec.name for spec in layout.roles if spec.kind == "worker"] if elastic else []
        # {worker: the roles that join and leave with it}
        self._moving = {worker: moving_roles(layout, worker) for worker in workers}
        self.movable = {role for roles in self._moving.values() for role in roles}
        self._joining: dict[str, float] = {}  # {role that is to join: time of the request, or of the invitation}
        self._leaving: dict[str, bool] = {}  # {role that is to leave: whether the order to depart was sent}
        self._stay_outside: set[str] = set()  # roles that have left by request, and do not join automatically

    @property
    def present(self) -> tuple[str, ...]:
        """The workers that take part, or are about to take part."""
        gone = (self._members.outside | self._leaving.keys()) - self._joining.keys()
        return tuple(worker for worker in self._moving if worker not in gone)

    @property
    def changing(self) -> bool:
        """Whether a join or a leave is pending."""
        return bool(self._joining or self._leaving)

    @property
    def leaving(self) -> tuple[str, ...]:
        """The roles that are to leave."""
        return tuple(self._leaving)

    # requests -------------------------------------------------------------------------------------------------------------

    def join(self, worker: str, now: float) -> tuple[str, ...]:
        """Request that a worker joins. Returns the roles that are to join."""
        roles = () if worker in self.present else self._moving[worker]
        for role in roles:
            self._stay_outside.discard(role)
            if self._leaving.get(role) is False:  # it stays; if it has the order to depart, it leaves first
                del self._leaving[role]
            self._joining[role] = now
        return roles

    def leave(self, worker: str) -> None:
        """Request that a worker leaves."""
        for role in self._moving[worker] if worker in self.present else ():
            self._stay_outside.add(role)
            self._joining.pop(role, None)
            self._leaving.setdefault(role, False)

    def join_another(self, now: float) -> None:
        """Let the first worker join that is outside, and was not requested to leave."""
        outside = self._members.outside - self._stay_outside - self._joining.keys() - self._leaving.keys()
        for worker in [worker for worker in self._moving if worker in outside][:1]:
            self._joining |= dict.fromkeys(self._moving[worker], now)

    # progress -------------------------------------------------------------------------------------------------------------

    def joined(self, role: str) -> None:
        """Record that a role has joined."""
        self._joining.pop(role, None)

    def ordered(self, role: str) -> None:
        """Record that the order to depart was sent to a role."""
        self._leaving[role] = True

    def left(self, role: str) -> None:
        """Record that a role has left."""
        self._leaving.pop(role, None)

    def advance_joins(self, waiting: Collection[str], now: float) -> tuple[list[str], list[str]]:
        """Return the roles to invite now, and those that have been waiting for a Dask worker for `UNPLACED_S` seconds.

        A role is invited when no role of its node is about to leave. `waiting`: the roles without a Dask worker.
        """
        invited, unplaced = [], []
        leaving = {self._node[role] for role in self._leaving}
        for role, since in list(self._joining.items()):
            state = self._members.state[role]
            if self._node[role] in leaving:
                continue
            if state is State.OUTSIDE:
                self._joining[role] = now
                invited.append(role)
            elif state is State.INVITED and role in waiting and now - since > UNPLACED_S:
                self._joining[role] = RECORDED
                unplaced.append(role)
            elif state is State.RUNNING:
                del self._joining[role]
        return invited, unplaced

    @property
    def withdrawn(self) -> list[str]:
        """The roles that were invited, and are no longer to join."""
        return [role for role in self._members.in_state(State.INVITED) if role not in self._joining]
