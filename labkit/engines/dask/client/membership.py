"""Membership of a run: the present incarnation of each role, its Dask worker, and the roles that are lost, stopped or outside.

Changes are numbered, and one order (`order`) contains the complete membership. So roles converge even if broadcasts are
delayed, duplicated or lost. The incarnation number of a role increases when an incarnation ends. Messages of earlier
incarnations are rejected.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from typing import Any

from ....roles.layout import Layout
from ...lifecycle import PARTICIPATING, PRESENT, TRANSITIONS, State, Trigger
from ...transitions import new_story, next_state

Contact = tuple[str, int, str]  # host, port and public key of a role's endpoint


class Membership:
    """The membership of the roles of one `layout`.

    Changed only by the recovery policy, and by the supervisor during the start. `leaves`: roles that are removed from
    `ctx.peers` when they are lost. `outside`: roles that do not take part yet.

    `where[role]`: the Dask worker of each present role; the mapping is replaced, never modified, so any thread may read
    it. `usage`: number of roles, of all runs, on each Dask worker.
    """

    def __init__(
        self, layout: Layout, where: dict[str, str], usage: Counter[str], leaves: Collection[str] = (),
        outside: Collection[str] = (),
    ):  # fmt: skip
        self.layout, self.where, self.usage, self.leaves = layout, where, usage, frozenset(leaves)
        names = [role.name for role in layout.roles]
        # {role: number of the present incarnation, or of the next if none is present}
        self.incarnation = dict.fromkeys(names, 0)
        self.state = {name: State.OUTSIDE if name in outside else State.STARTING for name in names}
        self._stories: dict[str, deque[str]] = {name: new_story() for name in names}
        self.why: dict[str, str] = {}  # {role that is not running: predicate of a sentence, such as "was killed"}
        self.contact: dict[str, Contact] = {}  # {running role: address and public key of its endpoint}
        self.change = 0  # number of the last change
        self.lost_instances: list[list[int]] = []  # [role's number, incarnation] of instances without a final report
        self.fenced: dict[tuple[str, int], str] = {}  # {(role, incarnation) declared lost: its Dask worker}
        self._released = False
        self._unused: set[str] = set()  # roles whose newest incarnation number has not been given to a task
        self._numbers = {name: number for number, name in enumerate(names)}
        computing = [role.name for role in layout.roles if role.computes]
        self._computing = computing or [role.name for role in layout.roles if role.kind != "chief"]
        usage.update(where.values())

    # queries -----------------------------------------------------------------------------------------------------------

    def in_state(self, *states: State) -> list[str]:
        """Return the roles in these states, in the order of the layout."""
        return [name for name, state in self.state.items() if state in states]

    @property
    def outside(self) -> set[str]:
        """The roles that do not take part: they have not joined, or have left."""
        return {name for name, state in self.state.items() if state not in PARTICIPATING}

    @property
    def missing(self) -> list[str]:
        """The roles that take part and are not running."""
        return [name for name, state in self.state.items() if state in PARTICIPATING and state is not State.RUNNING]

    @property
    def whole(self) -> bool:
        """Whether every role that takes part is running."""
        return all(state is State.RUNNING or state not in PARTICIPATING for state in self.state.values())

    @property
    def settled(self) -> bool:
        """Whether `whole` holds, a computing role is running, and no role is about to join."""
        joining = State.INVITED in self.state.values() or State.JOINING in self.state.values()
        return self.whole and not joining and any(self.state[name] is State.RUNNING for name in self._computing)

    @property
    def must_return(self) -> list[str]:
        """The roles whose coroutines must return before the run finishes.

        These are the computing roles, or all roles but the chief if no role computes. Roles that do not take part, and
        stopped roles in `leaves`, are not among them.
        """
        gone = self.outside | {name for name in self.leaves if self.state[name] is State.STOPPED}
        return [name for name in self._computing if name not in gone]

    def on(self, worker: str) -> list[str]:
        """Return the roles on a Dask worker."""
        return [name for name, address in self.where.items() if address == worker]

    def is_present(self, role: str, incarnation: int) -> bool:
        """Return whether this incarnation of `role` is running or starting."""
        return self.incarnation[role] == incarnation and self.state[role] in PRESENT

    def peers(self) -> dict[str, tuple[str, ...]]:
        """Return the content of `ctx.peers`: the names of the roles that take part, by kind and group."""
        gone = {name for name in self.leaves if self.state[name] is not State.RUNNING} | self.outside
        return {kind: tuple(n for n in names if n not in gone) for kind, names in self.layout.peers().items()}

    def order(self) -> dict[str, Any]:
        """Return the complete membership, as an order to the roles."""
        here = {name: (*contact, self.incarnation[name]) for name, contact in self.contact.items()}
        return {
            "do": "members", "change": self.change, "incarnations": dict(self.incarnation), "here": here, "peers": self.peers(),
        }  # fmt: skip

    # changes -----------------------------------------------------------------------------------------------------------

    def note(self, role: str, event: str) -> None:
        """Record an event of a role for the text of an `InvalidTransition`."""
        self._stories[role].append(event)

    def move(self, role: str, trigger: Trigger, why: str = "") -> None:
        """Change the state of a role that is not present. `why`: a predicate such as "was killed", if there is a new reason."""
        self.state[role] = next_state(TRANSITIONS, role, self.state[role], trigger, self._stories[role], why)
        if why:
            self.why[role] = why

    def lose(self, role: str, why: str, stays_away: bool = False) -> int:
        """Declare the present incarnation lost, and fence it. Returns its number. `stays_away`: the role is not restarted."""
        self.lost_instances.append([self._numbers[role], self.incarnation[role]])
        self._fence(role)
        return self._end(role, Trigger.LOSE_WITHOUT_RESTART if stays_away else Trigger.LOSE, why)

    def recall(self, role: str) -> int:
        """End and fence the present incarnation before it begins, because a group restart starts over. Returns its number."""
        self._fence(role)
        return self._end(role, Trigger.REPEAT_GROUP_RESTART, "was restarted with its group")

    def end(self, role: str) -> int:
        """Record that the present incarnation has ended for a group restart, with a final report. Returns its number."""
        return self._end(role, Trigger.END, "ended for a group restart")

    def leave(self, role: str) -> None:
        """Remove a role from the run.

        Its present incarnation, if there is one, has ended as ordered, so its messages still count.
        """
        self.move(role, Trigger.LEAVE)
        self.contact.pop(role, None)
        self._place(role, None)
        self.change += 1

    def invite(self, role: str) -> None:
        """Record that a role is about to join. It takes part when its incarnation is up."""
        self.move(role, Trigger.INVITE)
        if role not in self._unused:
            self.incarnation[role] += 1
            self._unused.add(role)

    def place(self, role: str, worker: str, incarnation: int | None = None) -> int:
        """Record that the next incarnation starts on a Dask worker. Returns its number.

        `incarnation`: a higher number to use instead.
        """
        self.move(role, Trigger.PLACE)
        if incarnation is not None:
            assert incarnation >= self.incarnation[role]
            self.incarnation[role] = incarnation
        self._unused.discard(role)
        self._place(role, worker)
        return self.incarnation[role]

    def arrive(self, role: str, contact: Contact) -> None:
        """Record that the present incarnation is up, and takes part."""
        self.move(role, Trigger.UP)
        self.contact[role] = contact
        self.why.pop(role, None)
        self.change += 1

    def release(self) -> None:
        """Subtract the roles from `usage`. Called when the run has ended. Idempotent."""
        if not self._released:
            self._released = True
            self.usage.subtract(self.where.values())

    def _fence(self, role: str) -> None:
        self.fenced[role, self.incarnation[role]] = self.where[role]

    def _end(self, role: str, trigger: Trigger, why: str) -> int:
        self.move(role, trigger, why)
        number = self.incarnation[role]
        self.incarnation[role] = number + 1
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
