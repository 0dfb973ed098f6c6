"""Membership of a run: which incarnation of each role is present, on which Dask worker, and who is lost, away or outside.

Every change has a number, and one order (`order`) says everything, so that a role which hears of a change late, twice, or
not at all, ends up knowing the same. The incarnation number of a role only grows, and grows when an incarnation ends; what
an older one still says is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from ....roles.layout import Layout
from ...lifecycle import PARTICIPATING, PRESENT, State, Trigger, next_state

__all__ = ["Contact", "Membership"]

Contact = tuple[str, int, str]  # host, port and public key of a role's endpoint


class Membership:
    """Of the roles of one `layout`. Changed by the recovery policy alone, and by the supervisor while the run starts.

    `leaves`: roles whose loss takes them out of `ctx.peers`. `outside`: roles that take no part yet.

    `where[role]`: the Dask worker of each role that is present; the mapping is replaced, never changed, so any thread may
    read it. `usage`: how many roles, of all runs, are on each Dask worker.
    """

    def __init__(
        self, layout: Layout, where: dict[str, str], usage: Counter[str], leaves: Collection[str] = (),
        outside: Collection[str] = (),
    ):  # fmt: skip
        self.layout, self.where, self.usage, self.leaves = layout, where, usage, frozenset(leaves)
        names = [role.name for role in layout.roles]
        self.incarnation = dict.fromkeys(names, 0)  # of the one that is present, or else of the next one
        self.state = {name: State.OUTSIDE if name in outside else State.STARTING for name in names}
        self.why: dict[str, str] = {}  # of roles that are lost or away: "was killed", as a sentence about a role goes on
        self.contact: dict[str, Contact] = {}  # of each role that is here
        self.change = 0
        self.lost_instances: list[list[int]] = []  # [role's number, incarnation] of those without a last report
        self.fenced: dict[tuple[str, int], str] = {}  # (role, incarnation) declared lost -> the Dask worker it was on
        self._over = False
        self._unused: set[str] = set()  # roles whose newest incarnation number has not been given to a task
        self._numbers = {name: number for number, name in enumerate(names)}
        computing = [role.name for role in layout.roles if role.computes]
        self._players = computing or [role.name for role in layout.roles if role.kind != "chief"]
        usage.update(where.values())

    # what is -----------------------------------------------------------------------------------------------------------

    def in_state(self, *states: State) -> list[str]:
        """The roles in these states, in the order of the layout."""
        return [name for name, state in self.state.items() if state in states]

    @property
    def outside(self) -> set[str]:
        """The roles that take no part: they have not joined (yet), or have left."""
        return {name for name, state in self.state.items() if state not in PARTICIPATING}

    @property
    def missing(self) -> list[str]:
        """The roles that take part, and are not here."""
        return [name for name, state in self.state.items() if state in PARTICIPATING and state is not State.HERE]

    @property
    def whole(self) -> bool:
        """Whether every role is here that takes part."""
        return all(state is State.HERE or state not in PARTICIPATING for state in self.state.values())

    @property
    def settled(self) -> bool:
        """Whether every role is here that takes part, one that computes among them, and none is about to join."""
        joining = State.INVITED in self.state.values() or State.JOINING in self.state.values()
        return self.whole and not joining and any(self.state[name] is State.HERE for name in self._players)

    @property
    def must_return(self) -> list[str]:
        """The roles whose coroutines have returned when the run is finished: those that compute, or if there are none all
        but the chief. One that takes no part is not among them, nor one that stays away while the others go on.
        """
        gone = self.outside | {name for name in self.leaves if self.state[name] is State.AWAY}
        return [name for name in self._players if name not in gone]

    def on(self, worker: str) -> list[str]:
        """The roles on a Dask worker."""
        return [name for name, home in self.where.items() if home == worker]

    def is_present(self, role: str, incarnation: int) -> bool:
        """Whether this incarnation of `role` runs, or is about to."""
        return self.incarnation[role] == incarnation and self.state[role] in PRESENT

    def peers(self) -> dict[str, tuple[str, ...]]:
        """What `ctx.peers` says: the names of the roles that take part, by kind and group."""
        gone = {name for name in self.leaves if self.state[name] is not State.HERE} | self.outside
        return {kind: tuple(n for n in names if n not in gone) for kind, names in self.layout.peers().items()}

    def order(self) -> dict[str, Any]:
        """All of it, for the roles."""
        here = {name: (*contact, self.incarnation[name]) for name, contact in self.contact.items()}
        return {"do": "members", "change": self.change, "lives": dict(self.incarnation), "here": here, "peers": self.peers()}

    # what changes ------------------------------------------------------------------------------------------------------

    def lose(self, role: str, why: str, stays_away: bool = False) -> int:
        """Its incarnation is lost, and fenced; its number. `stays_away`: no other one is to follow."""
        self.lost_instances.append([self._numbers[role], self.incarnation[role]])
        self._fence(role)
        return self._end(role, Trigger.LOSE_AND_KEEP_AWAY if stays_away else Trigger.LOSE, why)

    def recall(self, role: str) -> int:
        """Its incarnation ends before it has begun, and is fenced: a group restart begins anew. Its number."""
        self._fence(role)
        return self._end(role, Trigger.RECALL, "began again")

    def end(self, role: str) -> int:
        """Its incarnation has ended in order for a group restart, with a last report. Its number."""
        return self._end(role, Trigger.END, "ended its life with the others")

    def keep_away(self, role: str) -> None:
        """No other incarnation is to follow the one that was lost."""
        self._move(role, Trigger.KEEP_AWAY)

    def want(self, role: str) -> None:
        """A next incarnation is to follow after all."""
        self._move(role, Trigger.WANT)

    def unplace(self, role: str, why: str) -> None:
        """The Dask worker that was kept for its next incarnation is gone."""
        self._move(role, Trigger.UNPLACE)
        self.why[role] = why

    def leave(self, role: str) -> None:
        """It takes part no more. An incarnation that was present has ended in order: what it has sent still counts."""
        self._move(role, Trigger.LEAVE)
        self.contact.pop(role, None)
        self._place(role, None)
        self.change += 1

    def invite(self, role: str) -> None:
        """It shall take part: it does when its incarnation is up."""
        self._move(role, Trigger.INVITE)
        if role not in self._unused:
            self.incarnation[role] += 1
            self._unused.add(role)

    def withdraw(self, role: str) -> None:
        """It shall not join after all."""
        self._move(role, Trigger.WITHDRAW)

    def place(self, role: str, worker: str, incarnation: int | None = None) -> int:
        """Its next incarnation is starting on that Dask worker; its number. `incarnation`: a higher one than is due."""
        self._move(role, Trigger.PLACE)
        if incarnation is not None:
            assert incarnation >= self.incarnation[role]
            self.incarnation[role] = incarnation
        self._unused.discard(role)
        self._place(role, worker)
        return self.incarnation[role]

    def arrive(self, role: str, contact: Contact) -> None:
        """Its incarnation is up, and takes part."""
        self._move(role, Trigger.UP)
        self.contact[role] = contact
        self.why.pop(role, None)
        self.change += 1

    def leave_for_good(self) -> None:
        """The run is over: its roles are on no Dask worker any more."""
        if not self._over:
            self._over = True
            self.usage.subtract(self.where.values())

    def _move(self, role: str, trigger: Trigger) -> None:
        self.state[role] = next_state(role, self.state[role], trigger)

    def _fence(self, role: str) -> None:
        self.fenced[role, self.incarnation[role]] = self.where[role]

    def _end(self, role: str, trigger: Trigger, why: str) -> int:
        self._move(role, trigger)
        number = self.incarnation[role]
        self.why[role], self.incarnation[role] = why, number + 1
        self._unused.add(role)
        self.contact.pop(role, None)
        self._place(role, None)
        self.change += 1
        return number

    def _place(self, role: str, worker: str | None) -> None:
        where = dict(self.where)
        before = where.pop(role, None)
        if before is not None:
            self.usage[before] -= 1
        if worker is not None:
            where[role] = worker
            self.usage[worker] += 1
        self.where = where
