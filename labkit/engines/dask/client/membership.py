"""Who takes part in a run now: which life of each role, where, and who is lost or away.

Every change has a number, and one description says everything (`order`), so that a role which hears of it late, twice,
or not of one in between, ends up knowing the same. Law: the number of a role's life only grows, and grows when the life
is lost; whatever an older life says afterwards is fenced off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from ....roles.layout import Layout

__all__ = ["AWAY", "HERE", "LOST", "STARTING", "Membership"]

HERE, STARTING, LOST, AWAY = "here", "starting", "lost", "away"  # AWAY: and nobody is to take its place


class Membership:
    """Of the roles of one `layout`. `leaves`: those whose loss takes them out of `ctx.peers`.

    `where[role]`: the Dask worker that plays it, of roles that are here or starting; the mapping is replaced, never
    changed, so any thread may read it. `usage`: how many roles, of all runs, play on each Dask worker.
    """

    def __init__(
        self, layout: Layout, where: dict[str, str], usage: Counter[str], leaves: Collection[str] = (),
        outside: Collection[str] = (),
    ):  # fmt: skip
        self.layout, self.where, self.usage, self.leaves = layout, where, usage, frozenset(leaves)
        names = [role.name for role in layout.roles]
        self.life = dict.fromkeys(names, 0)
        self.state = {name: AWAY if name in outside else STARTING for name in names}
        self.outside = set(outside)  # who takes no part: has not joined, or has left; nobody waits for them
        self.why: dict[str, str] = {}  # of those that are lost: "was killed", as a sentence about a role goes on
        self.address: dict[str, tuple[str, int, str]] = {}  # host, port and public key of each that is here
        self.change = 0
        self.lost_lives: list[list[int]] = []
        self.former: dict[tuple[str, int], str] = {}  # lives that were declared lost: the Dask worker they played on
        self._over = False
        self._unused: set[str] = set()  # roles whose newest life has not begun to start
        self._numbers = {name: number for number, name in enumerate(names)}
        usage.update(where.values())

    def in_state(self, *states: str) -> list[str]:
        """The roles that are so, in the order of the layout."""
        return [name for name, state in self.state.items() if state in states]

    @property
    def missing(self) -> list[str]:
        """Who takes part, and is not here."""
        return [name for name, state in self.state.items() if state != HERE and name not in self.outside]

    @property
    def whole(self) -> bool:
        """Whether everybody is here who takes part."""
        return not self.missing

    def on(self, worker: str) -> list[str]:
        """The roles that a Dask worker plays."""
        return [name for name, home in self.where.items() if home == worker]

    def lose(self, role: str, why: str, away: bool = False, reported: bool = False) -> int:
        """A life is over, without a last report unless it was `reported`. Its number."""
        life = self.life[role]
        self.state[role], self.why[role] = AWAY if away else LOST, why
        if not reported:
            self.lost_lives.append([self._numbers[role], life])
        self.former[role, life] = self.where[role]
        self.life[role] = life + 1
        self._unused.add(role)
        self.address.pop(role, None)
        self._move(role, None)
        self.change += 1
        return life

    def depart(self, role: str) -> None:
        """A life ends in order, and the role takes part no more. Not fenced off: what it has sent still counts."""
        self.state[role] = AWAY
        self.outside.add(role)
        self.address.pop(role, None)
        self._move(role, None)
        self.change += 1

    def invite(self, role: str) -> None:
        """Who is outside shall take part: a place is looked for, and it is in when it has arrived."""
        if role not in self._unused:
            self.life[role] += 1
            self._unused.add(role)
        self.state[role] = LOST

    def place(self, role: str, worker: str) -> None:
        """The next life of `role` is starting on that Dask worker."""
        self.state[role] = STARTING
        self._unused.discard(role)
        self._move(role, worker)

    def arrive(self, role: str, address: tuple[str, int, str]) -> None:
        """It is there, and `address` is its contact: see `Wire`."""
        self.state[role], self.address[role] = HERE, address
        self.why.pop(role, None)
        self.outside.discard(role)
        self.change += 1

    def leave_for_good(self) -> None:
        """The run is over: nobody plays any more where they did."""
        if not self._over:
            self._over = True
            self.usage.subtract(self.where.values())

    def _move(self, role: str, worker: str | None) -> None:
        where = dict(self.where)
        before = where.pop(role, None)
        if before is not None:
            self.usage[before] -= 1
        if worker is not None:
            where[role] = worker
            self.usage[worker] += 1
        self.where = where

    def is_present(self, role: str, life: int) -> bool:
        """Whether this life of `role` takes part, or is about to."""
        return self.life[role] == life and self.state[role] in (HERE, STARTING)

    def peers(self) -> dict[str, tuple[str, ...]]:
        """What `ctx.peers` says: the names of those who take part, by kind and group."""
        gone = {name for name in self.leaves if self.state[name] != HERE} | self.outside
        return {kind: tuple(n for n in names if n not in gone) for kind, names in self.layout.peers().items()}

    def order(self) -> dict[str, Any]:
        """All of it, for the roles."""
        here = {name: (*address, self.life[name]) for name, address in self.address.items()}
        return {"do": "members", "change": self.change, "lives": dict(self.life), "here": here, "peers": self.peers()}
