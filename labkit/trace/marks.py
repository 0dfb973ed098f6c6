"""Who was disturbed, and when: what the marks of a trace say, as values.

Law: everything here is a function of (trace, moment), so who looks back sees what was. Where several marks have one
time they count in the order in which they were made.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .trace import Trace

__all__ = [
    "CONDITIONS", "Spell", "away", "conditions", "factors", "marks_until", "short", "shortened", "slowed", "spells",
    "undoable",
]  # fmt: skip

CONDITIONS = ("killed", "lost", "left", "frozen", "cut off")  # how a role can be, beside well
_GONE = {"kill": "killed", "lost": "lost", "left": "left"}
_HELD = {"freeze": "frozen", "cut": "cut off"}
_UNDO = {"freeze": "thaw", "cut": "reconnect"}
_FREED = {"thaw": "frozen", "reconnect": "cut off"}
_WORDS = {"worker": "w", "server": "s", "stage": "st", "replica": "r", "backup": "b"}
_NAME = re.compile(r"\b(worker|server|stage|replica|backup)-(\d+)\b")


def short(name: str) -> str:
    """`w2` for worker-2, `s0` for server-0; other names as they are."""
    match = _NAME.fullmatch(name)
    return _WORDS[match[1]] + match[2] if match else name


def shortened(text: str) -> str:
    """`text` with every name of a role in its short form."""
    return _NAME.sub(lambda match: short(match[0]), text)


def marks_until(trace: Trace, t: int) -> list[dict[str, Any]]:
    """The marks with a time of at most `t` ns, in order; those of one time in the order in which they were made."""
    with trace.lock:
        marks = list(trace.marks)
    return sorted((m for m in marks if m["time"] <= t), key=lambda m: m["time"])


def away(trace: Trace, t: int | None = None) -> set[int]:
    """The roles that take no part now (or at `t`, ns): they have left, or were lost and the others go on without them."""
    last = {}
    with trace.lock:
        marks = [m for m in trace.marks if m["kind"] in ("left", "joined", "restart")]
    for mark in marks:
        if t is None or mark["time"] <= t:
            last[mark["name"]] = mark["kind"]
    return {i for i, name in enumerate(trace.roles) if last.get(name) == "left"}


def factors(trace: Trace, t: int) -> dict[int, list[tuple[int, float]]]:
    """{role: [(time, how many times slower from then on), ...]} of every role that was ever slowed, in order."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    found: dict[int, list[tuple[int, float]]] = {}
    for mark in marks_until(trace, t):
        if mark["kind"] == "slow" and mark.get("name") in ids:
            found.setdefault(ids[mark["name"]], []).append((mark["time"], float(mark["factor"])))
    return found


def slowed(trace: Trace, t: int) -> dict[int, float]:
    """{role: factor} of the roles that are slowed at time `t`."""
    return {role: steps[-1][1] for role, steps in factors(trace, t).items() if steps[-1][1] != 1.0}


class Spell(NamedTuple):
    """From `begin` to `end` (ns; None: it lasts) a role was `condition`, one of `CONDITIONS`."""

    begin: int
    end: int | None
    condition: str


def spells(trace: Trace, t: int) -> dict[int, list[Spell]]:
    """{role: the spells in which it was not itself, in order} of all that was known at `t` ns.

    Who is gone is killed, lost or left, whichever came first, until it restarts or joins; a role that is still there can
    be frozen, or cut off from everybody. A single link that is cut is no condition of a role.
    """
    ids = {name: i for i, name in enumerate(trace.roles)}
    gone: dict[int, str] = {}
    held: dict[int, tuple[str, ...]] = {}
    found: dict[int, list[Spell]] = {}
    for mark in marks_until(trace, t):
        role = ids.get(mark.get("name", ""))
        if role is None or mark.get("peer") is not None:
            continue
        kind = mark["kind"]
        if kind in _GONE:
            gone.setdefault(role, _GONE[kind])
        elif kind in ("restart", "joined"):  # another process, on which nothing has been done yet
            gone.pop(role, None)
            held.pop(role, None)
        elif kind in _HELD and role not in gone:
            held[role] = (*(h for h in held.get(role, ()) if h != _HELD[kind]), _HELD[kind])
        elif kind in _FREED:
            held[role] = tuple(h for h in held.get(role, ()) if h != _FREED[kind])
        now = gone.get(role) or (held.get(role) or ("",))[0]
        _turn(found.setdefault(role, []), mark["time"], now)
    return {role: mine for role, mine in found.items() if mine}


def _turn(mine: list[Spell], time: int, now: str) -> None:
    """From `time` on a role is `now`; "" is well."""
    if mine and mine[-1].end is None:
        if mine[-1].condition == now:
            return
        last = mine.pop()
        if last.begin < time:
            mine.append(last._replace(end=time))
    if now:
        mine.append(Spell(time, None, now))


def conditions(trace: Trace, t: int) -> dict[int, str]:
    """{role: "killed", "lost", "left", "frozen" or "cut off"} of those that are not themselves at `t` ns."""
    return {role: mine[-1].condition for role, mine in sorted(spells(trace, t).items()) if mine[-1].end is None}


def undoable(trace: Trace) -> dict[str, frozenset[str]]:
    """{role name: which of "restart", "thaw" and "reconnect" would undo something now}. A process that was given up while
    it was frozen, or cut off, can still be thawed, or connected again, when its next incarnation has its place.
    """
    with trace.lock:
        marks = sorted(trace.marks, key=lambda mark: mark["time"])
    found: dict[str, set[str]] = {}
    for mark in marks:
        kind, due = mark["kind"], found.setdefault(mark.get("name", ""), set())
        if mark.get("peer") is not None:
            continue
        if kind == "kill":
            due.clear()  # the process and all that was done to it
        if kind in _GONE:
            due.add("restart")
        elif kind in ("restart", "joined"):
            due.discard("restart")
        elif kind in _HELD:
            due.add(_UNDO[kind])
        else:
            due.discard(kind)
    return {name: frozenset(due) for name, due in found.items() if due}
