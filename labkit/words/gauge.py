"""Is one of several alike clearly slower than the others? A test that noise does not pass.

Durations are compared as logarithms, so that "five times" is one distance whatever the law of time is. Somebody is slow
if each of its last three durations is more than twice what is usual, and if the mean logarithm of its last n (for some
n from 3 on) is beyond that by more than luck explains:

    mean(log own) - log(usual) - log 2  >  LUCK * sigma * sqrt(1/n + 1/m)

with sigma the typical deviation, measured from one duration to the next so that a change of speed does not count as
noise, and m the number of durations behind the usual one. It has recovered when the same holds the other way round.
What makes no difference is not said: the surplus must be at least a fifth of the time that passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["FEWEST", "Gauge"]

FEWEST = 3  # durations, before anything is said
WINDOWS = (3, 6, 12, 24, 48)
TYPICAL = 12  # of the first durations say what is usual for a role with work of its own
SLOW, WELL = math.log(2.0), math.log(1.5)
LUCK = 4.0
MATTERS = 0.2  # share of the time
MANY = 16  # roles, of which one more or less does not move the median


class Gauge:
    """The last durations of `roles`, which do the same kind of work. `own`: each is compared with its own beginnings,
    because their shares of the work differ.
    """

    def __init__(self, roles: Sequence[int], own: bool = False):
        self.roles, self.own = sorted(roles), own
        self._sorted = np.array(self.roles)
        self._place = {role: i for i, role in enumerate(self.roles)}
        self._logs = np.full((len(self.roles), WINDOWS[-1]), np.nan)  # newest at the right
        self._ends = np.zeros((len(self.roles), WINDOWS[-1] + 1))
        self._totals = np.zeros((len(self.roles), WINDOWS[-1]))
        self._first = np.full((len(self.roles), TYPICAL), np.nan)
        self._seen = np.zeros(len(self.roles), np.int64)

    def take(self, roles: np.ndarray, ends: np.ndarray, durations: np.ndarray, totals: np.ndarray) -> None:
        """Durations (ns) of `roles` that were over at `ends` (ns), all of shape (n,), in order of time. `totals`: of all
        that each of them stands for.
        """
        order = np.argsort(roles, kind="stable")
        rows = np.searchsorted(self._sorted, roles[order])
        counts = np.bincount(rows, minlength=len(self.roles))
        logs, number = np.log(np.maximum(durations[order], 1.0)), np.arange(len(rows))
        if self.own:
            place = self._seen[rows] + number - np.searchsorted(rows, rows, side="left")
            early = place < TYPICAL
            self._first[rows[early], place[early]] = logs[early]
        newer = np.searchsorted(rows, rows, side="right") - 1 - number  # how many of its role come after it
        self._seen += counts
        self._logs = _pushed(self._logs, rows, newer, counts, logs)
        self._ends = _pushed(self._ends, rows, newer, counts, ends[order])
        self._totals = _pushed(self._totals, rows, newer, counts, totals[order])

    def look(self, suspects: Iterable[int] = ()) -> tuple[dict[int, tuple[float, float]], set[int]]:
        """({role: (its duration, the usual one) in ns} of those that are clearly slow, those of `suspects` that are
        clearly not).
        """
        slow: dict[int, tuple[float, float]] = {}
        fine: set[int] = set()
        asked = {self._place[role] for role in suspects if role in self._place}
        doubtful = (self._logs[:, -FEWEST:] > self._level() + SLOW / 2).all(axis=1)
        if not asked and not doubtful.any():
            return slow, fine
        sigma, luck = self._noise()
        for i in sorted({*np.flatnonzero(doubtful).tolist(), *asked}):
            for n in WINDOWS[: np.searchsorted(WINDOWS, min(self._seen[i], WINDOWS[-1]), side="right")]:
                usual, behind = self._usual(i, n)
                ratios = self._logs[i, -n:] - usual
                margin = luck * sigma * math.sqrt(1 / n + 1 / behind)
                if i in asked and (ratios[-FEWEST:] < WELL).all() and SLOW - ratios.mean() > margin:
                    fine.add(self.roles[i])
                elif (ratios[-FEWEST:] > SLOW).all() and ratios.mean() - SLOW > margin and self._matters(i, n, usual):
                    slow[self.roles[i]] = math.exp(np.median(self._logs[i, -n:])), math.exp(usual)
                else:
                    continue
                break
        return slow, fine

    def _level(self) -> float:
        """What is usual for most: a first look at who may be slow, or well. Of roles with work of their own, nothing."""
        known = self._seen >= FEWEST
        if self.own or not known.any():
            return -math.inf
        middle = np.sort(self._logs[known, -FEWEST:], axis=1)[:, FEWEST // 2]
        return float(np.sort(middle)[len(middle) // 2 - (len(middle) % 2 == 0)])

    def _usual(self, i: int, n: int) -> tuple[float, int]:
        """(log of the duration that is usual, how many are behind it) while the last n of role number `i` went on."""
        if self.own:
            known = min(int(self._seen[i]), TYPICAL)
            return (float(np.median(self._first[i])), known) if known == TYPICAL else (math.nan, 1)
        if len(self.roles) > MANY:
            return self._level(), FEWEST * len(self.roles)
        others = (self._seen > 0) & (np.arange(len(self._seen)) != i)
        if not others.any():
            return math.nan, 1
        fresh = self._ends[others, 1:] > self._ends[i, -n - 1]
        fresh[:, -1] = True  # of who is slower still, the newest
        fresh &= ~np.isnan(self._logs[others])
        return float(np.median(np.nanmedian(np.where(fresh, self._logs[others], np.nan), axis=1))), int(fresh.sum())

    def _noise(self) -> tuple[float, float]:
        """(sigma, how many of them luck can make): more while sigma itself is known from few differences."""
        steps = np.diff(self._logs, axis=1)
        counts = (~np.isnan(steps)).sum(axis=1)
        known = counts >= FEWEST - 1
        if not known.any():
            return math.inf, LUCK
        squares = np.nansum(steps[known] ** 2, axis=1) / counts[known] / 2
        return math.sqrt(float(np.median(squares))), LUCK * (1 + 8 / float(counts[known].sum()))

    def _matters(self, i: int, n: int, usual: float) -> bool:
        surplus = float((self._totals[i, -n:] * (1 - np.exp(usual - self._logs[i, -n:]))).sum())
        return surplus >= MATTERS * (self._ends[i, -1] - self._ends[i, -n - 1])


def _pushed(
    rows: np.ndarray, which: np.ndarray, newer: np.ndarray, counts: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """`rows`, each moved to the left by `counts` to make room for its new values: `newer` follow behind each of them."""
    width = rows.shape[1]
    moved = np.take_along_axis(rows, np.minimum(np.arange(width) + counts[:, None], width - 1), axis=1)
    fits = newer < width
    moved[which[fits], width - 1 - newer[fits]] = values[fits]
    return moved
