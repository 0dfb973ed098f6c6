"""The run cut into periods by what was done to its roles: who is slowed, dead, lost, frozen or cut off, from when
to when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..trace.marks import marks_until
from ..trace.trace import Trace

__all__ = ["AWAY", "BACK", "Period", "periods"]

AWAY = {
    "kill": "is dead", "lost": "is lost", "left": "has left", "freeze": "stands still", "cut": "is cut off",
}  # kinds of marks, and how the role is then  # fmt: skip
BACK = {"thaw": "freeze", "reconnect": "cut"}  # what undoes them; a restart, and who joins, undoes all
GONE = ("kill", "lost", "left")  # who is gone is not lost once more, and thawing brings nobody back


@dataclass(frozen=True)
class Period:
    """[since, until) in ns: `slow` is {role: factor}, `away` {role: what was done to it}. `calm`: nobody is in either."""

    since: int
    until: int
    slow: dict[int, float]
    away: dict[int, str]

    @property
    def calm(self) -> bool:
        """Whether everybody is as the cluster made it."""
        return not self.slow and not self.away

    @property
    def who(self) -> list[int]:
        """The roles that are disturbed, in order."""
        return sorted({*self.slow, *self.away})


def periods(trace: Trace, t: int) -> list[Period]:
    """All periods up to `t` ns, at least one. What was done at one instant is one change; a change of nothing is none."""
    ids = {name: i for i, name in enumerate(trace.roles)}
    found = [Period(0, t, {}, {})]
    for mark in marks_until(trace, t):
        role, last = ids.get(mark.get("name", "")), found[-1]
        slow, away = dict(last.slow), dict(last.away)
        if role is None or not _change(mark, role, slow, away) or (slow, away) == (last.slow, last.away):
            continue
        if mark["time"] > last.since:
            found[-1] = Period(last.since, mark["time"], last.slow, last.away)
            found.append(Period(mark["time"], t, slow, away))
        else:
            found[-1] = Period(last.since, t, slow, away)
    return found


def _change(mark: dict[str, Any], role: int, slow: dict[int, float], away: dict[int, str]) -> bool:
    """Carry a mark out on the two; whether it is one that disturbs, or ends a disturbance."""
    kind = mark["kind"]
    if kind == "slow" and "factor" in mark:
        slow.pop(role, None)
        if mark["factor"] != 1:
            slow[role] = float(mark["factor"])
    elif kind in AWAY and mark.get("peer") is None:  # one link that is cut is no role that is
        if kind == "kill" or away.get(role) not in GONE:
            away[role] = kind
    elif kind in BACK and mark.get("peer") is None:
        if away.get(role) == BACK[kind]:
            del away[role]
    elif kind in ("restart", "joined"):
        away.pop(role, None)
    else:
        return False
    return True
