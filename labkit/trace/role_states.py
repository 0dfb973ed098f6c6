"""States of roles, decoded from the events of a trace: slowed, killed, lost, frozen, cut off, left, or not joined yet.

A role that is absent at the start of an elastic run has no event before it joins. The header lists it (`absent`).

Every result is a function of (trace, time), so earlier states are available, too. Events of equal time apply in the order
in which they were recorded. All decoding is in `RoleStates`: the functions apply events to an object of this class, and
read its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .events import (
    Event,
    LinkCut,
    LinkEvent,
    LinkReconnected,
    RoleEvent,
    RoleFrozen,
    RoleJoined,
    RoleKilled,
    RoleLeft,
    RoleLimited,
    RoleLost,
    RoleRestarted,
    RoleSlowed,
    RoleThawed,
)  # fmt: skip
from .trace import Trace

FAR_FUTURE = 1 << 62  # ns: later than any event
NOT_JOINED = "not joined"  # condition of a role that has been absent since the start
GONE = ("killed", "lost", "left", NOT_JOINED)  # conditions of a role without a process in the run
CONDITIONS = (*GONE, "frozen", "cut off")  # states of a role that does not run
_UNDONE_BY = {"frozen": "thaw", "cut off": "reconnect"}


class RoleStates:
    """The states of all roles after the events applied so far. Events must be applied in order of time.

    `slow`: {role: slowdown factor} of slowed roles. `absent`: roles without which the other roles continue. `undoable`:
    {role: the commands "restart", "thaw" and "reconnect" that would have an effect now}. A process that was frozen or cut
    off when it was declared lost can still be thawed or reconnected while its next incarnation runs.
    """

    def __init__(self, trace: Trace):
        self._ids = {name: i for i, name in enumerate(trace.roles)}
        self.slow: dict[int, float] = {}
        self.absent: set[int] = absent_at_start(trace)
        self.undoable: dict[int, set[str]] = {}
        self._gone: dict[int, str] = dict.fromkeys(absent_at_start(trace), NOT_JOINED)
        self._held: dict[int, tuple[str, ...]] = {}

    def condition(self, role: int) -> str:
        """Return one of `CONDITIONS`, or "" if the role runs. If several hold, a condition in `GONE` is returned,
        otherwise the earliest one.
        """
        return self._gone.get(role) or (self._held.get(role) or ("",))[0]

    @property
    def conditions(self) -> dict[int, str]:
        """{role: condition} of the roles that do not run, in order of role number."""
        return {role: self.condition(role) for role in sorted({*self._gone, *self._held}) if self.condition(role)}

    def apply(self, event: Event) -> int | None:
        """Apply the next event, and return the role whose state it affects, or None.

        Cutting a single link does not change the state of a role.
        """
        if not isinstance(event, RoleEvent | LinkEvent) or (isinstance(event, LinkEvent) and event.peer is not None):
            return None
        role = self._ids.get(event.name)
        if role is None:
            return None
        due = self.undoable.setdefault(role, set())
        match event:
            case RoleKilled() if self._gone.get(role) == NOT_JOINED:
                return None  # there was no process
            case RoleKilled() | RoleLost() | RoleLeft():
                self._gone.setdefault(role, event.kind)
                if isinstance(event, RoleKilled):
                    due.clear()  # effects on a process end with the process
                due.add("restart")
                if isinstance(event, RoleLeft):
                    self.absent.add(role)
            case RoleRestarted() | RoleJoined():  # a new process without any faults
                self._gone.pop(role, None)
                self._held.pop(role, None)
                self.absent.discard(role)
                due.discard("restart")
            case RoleFrozen():
                self._hold(role, "frozen")
            case LinkCut():
                self._hold(role, "cut off")
            case RoleThawed():
                self._release(role, "frozen")
            case LinkReconnected():
                self._release(role, "cut off")
            case RoleSlowed(factor=factor):
                self.slow.pop(role, None)
                if factor != 1:
                    self.slow[role] = factor
            case _:
                return None
        return role

    def _hold(self, role: int, condition: str) -> None:
        self.undoable[role].add(_UNDONE_BY[condition])
        if role not in self._gone:
            self._held[role] = (*(c for c in self._held.get(role, ()) if c != condition), condition)

    def _release(self, role: int, condition: str) -> None:
        self.undoable[role].discard(_UNDONE_BY[condition])
        self._held[role] = tuple(c for c in self._held.get(role, ()) if c != condition)


def events_until(trace: Trace, t: int) -> list[Event]:
    """Return the events up to `t` ns, in order of time. Events of equal time are in the order in which they were
    recorded.
    """
    with trace.lock:
        events = list(trace.events)
    return sorted((event for event in events if event.time <= t), key=lambda event: event.time)


def _changes(trace: Trace, t: int) -> Iterator[tuple[Event, int, RoleStates]]:
    """Yield (event, its role, the states after the event) of every event up to `t` ns that affects the state of a role."""
    states = RoleStates(trace)
    for event in events_until(trace, t):
        role = states.apply(event)
        if role is not None:
            yield event, role, states


def _states(trace: Trace, t: int) -> RoleStates:
    states = RoleStates(trace)
    for event in events_until(trace, t):
        states.apply(event)
    return states


def absent_at_start(trace: Trace) -> set[int]:
    """Return the roles that are absent when the run starts, and may join later."""
    return {trace.roles.index(name) for name in trace.header.absent}


def joined_later(trace: Trace) -> set[int]:
    """Return the roles that were absent when the run started, and have joined since."""
    outside = absent_at_start(trace)
    if not outside:
        return set()
    with trace.lock:
        joined = {event.name for event in trace.events if isinstance(event, RoleJoined)}
    return {role for role in outside if trace.roles[role] in joined}


def workers_of(trace: Trace) -> list[int]:
    """Return the workers that take part in the run, or have taken part, in order."""
    never = absent_at_start(trace) - joined_later(trace)
    return [role for role in trace.role_ids("worker") if role not in never]


def absent(trace: Trace, t: int | None = None) -> set[int]:
    """Return the roles without which the other roles continue now (or at `t` ns), because they have left, are lost, or have
    not joined yet.
    """
    return _states(trace, FAR_FUTURE if t is None else t).absent


def conditions(trace: Trace, t: int) -> dict[int, str]:
    """Return {role: its condition, one of `CONDITIONS`} of the roles that do not run at `t` ns."""
    return _states(trace, t).conditions


def slowed(trace: Trace, t: int) -> dict[int, float]:
    """Return {role: factor} of the roles that are slowed at `t` ns."""
    return _states(trace, t).slow


def slowdowns(trace: Trace, t: int) -> dict[int, list[tuple[int, float]]]:
    """Return {role: [(ns, slowdown factor from then on), ...]} of every role that was ever slowed up to `t` ns."""
    found: dict[int, list[tuple[int, float]]] = {}
    for event, role, _ in _changes(trace, t):
        if isinstance(event, RoleSlowed):
            found.setdefault(role, []).append((event.time, event.factor))
    return found


def bandwidths(trace: Trace, t: int) -> dict[int, float]:
    """Return {role: bytes/s} of the roles whose bandwidth is limited at `t` ns."""
    found = {e.name: e.bandwidth for e in events_until(trace, t) if isinstance(e, RoleLimited)}
    return {i: limit for i, name in enumerate(trace.roles) if (limit := found.get(name)) is not None}


def undoable(trace: Trace) -> dict[str, frozenset[str]]:
    """Return {role name: the commands "restart", "thaw" and "reconnect" that would have an effect now}."""
    found = _states(trace, FAR_FUTURE).undoable
    return {trace.roles[role]: frozenset(due) for role, due in found.items() if due}


class StateInterval(NamedTuple):
    """The interval from `begin` to `end` (ns) in which a role was in `condition`, one of `CONDITIONS`. `end` is None if
    the condition still holds.
    """

    begin: int
    end: int | None
    condition: str

    def contains(self, time: int) -> bool:
        return self.begin <= time and (self.end is None or time < self.end)


def intervals(trace: Trace, t: int) -> dict[int, list[StateInterval]]:
    """Return {role: its state intervals, in order of time}, as known at `t` ns. A role that always ran is left out."""
    found = {role: [StateInterval(0, None, NOT_JOINED)] for role in sorted(absent_at_start(trace))}
    for event, role, states in _changes(trace, t):
        mine, now = found.setdefault(role, []), states.condition(role)
        if mine and mine[-1].end is None:
            if mine[-1].condition == now:
                continue
            last = mine.pop()
            if last.begin < event.time:
                mine.append(last._replace(end=event.time))
        if now:
            mine.append(StateInterval(event.time, None, now))
    return {role: mine for role, mine in found.items() if mine}


def absences(trace: Trace, t: int) -> dict[int, list[StateInterval]]:
    """Return {role: the state intervals in which the other roles continued without it}, up to `t` ns."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    left = [(ids.get(event.name), event.time) for event in events_until(trace, t) if isinstance(event, RoleLeft)]

    def without(role: int, gap: StateInterval) -> bool:
        times = [time for who, time in left if who == role]
        return gap.condition in GONE and any(
            gap.begin <= time and (gap.end is None or time <= gap.end) for time in times
        )

    return {
        role: [gap for gap in gaps if gap.condition == NOT_JOINED or without(role, gap)]
        for role, gaps in intervals(trace, t).items()
    }


@dataclass(frozen=True)
class Period:
    """The interval [since, until) in ns without a change of the state of any role.

    `slow`: {role: slowdown factor}. `unavailable`: {role: condition}, without roles that have not joined yet, because that is
    no fault.
    """

    since: int
    until: int
    slow: dict[int, float]
    unavailable: dict[int, str]

    @property
    def fault_free(self) -> bool:
        return not self.slow and not self.unavailable

    @property
    def roles(self) -> list[int]:
        """In order."""
        return sorted({*self.slow, *self.unavailable})


def periods(trace: Trace, t: int) -> list[Period]:
    """Return all periods up to `t` ns, at least one. Events of equal time are one change of state."""
    found = [Period(0, t, {}, {})]
    for event, _, states in _changes(trace, t):
        last, slow = found[-1], dict(states.slow)
        away = {role: condition for role, condition in states.conditions.items() if condition != NOT_JOINED}
        if (slow, away) == (last.slow, last.unavailable):
            continue
        if event.time > last.since:
            found[-1] = Period(last.since, event.time, last.slow, last.unavailable)
            found.append(Period(event.time, t, slow, away))
        else:
            found[-1] = Period(last.since, t, slow, away)
    return found
