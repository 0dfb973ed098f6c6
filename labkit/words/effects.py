"""What a disturbance did, in numbers: the throughput that is left, and how much the others wait.

Rates are counted from one application of the slowed worker to another, so that its whole turns are in them: of N workers
of which one is f times slower exactly (N - 1 + 1/f)/N of the throughput is left if nobody waits, and 1/f if everybody
does. Of the time after a change the first third is left out: there the system goes over into its new state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.role_states import Period, periods
from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, NANO, UNKNOWN, WAIT
from .applied import applied
from .then import sampled

__all__ = ["Effect", "effect", "rate_in"]

TURNS = 3  # of the slowed worker, or of everybody, before a rate is told
SILENT = 20  # turns of all others without one of the slowed worker's: it will hardly come any more

Window = tuple[int, int]  # ns


@dataclass(frozen=True)
class Effect:
    """What `period` did. `rate`: gradients a second; `left`: that over the rate of the calm period before; `busy`: the
    undisturbed workers' share of time computing, `busy_before` the same before, `own_busy` that of the slowed ones;
    `stale`: mean staleness of the disturbed workers' gradients, and of the others'. None of what cannot be told, or not
    yet.
    """

    period: Period
    rate: float | None
    left: float | None
    busy: float | None
    busy_before: float | None
    own_busy: float | None
    stale: tuple[float, float] | None


def effect(trace: Trace, period: Period, t: int) -> Effect:
    """The effect of `period`, as far as it went by `t` ns."""
    when, total = applied(trace, min(t, period.until) - 1)  # of this very moment more may come
    calm = next((p for p in reversed(periods(trace, period.since)) if p.calm and p.until > p.since), None)
    usual = None if calm is None else _whole(trace, when, total, calm.since, calm.until)
    now = _steady(trace, when, total, period)
    rate, was = _rate(when, total, now), _rate(when, total, usual)
    if rate is None and usual is not None and was:
        last = int(when[-1]) if len(when) else 0
        if min(t, period.until) - last > SILENT * TURNS * len(trace.role_ids("worker")) / was * NANO:
            rate = 0.0  # everything stands still
    left = rate / was if was and rate is not None else None
    who = set(period.roles)
    others = [worker for worker in trace.role_ids("worker") if worker not in who]
    return Effect(
        period, rate, left, _busy(trace, now, others), _busy(trace, usual, others),
        _busy(trace, now, [role for role in period.slow if trace.kinds[role] == "worker"]), _stale(trace, now, period),
    )  # fmt: skip


def rate_in(trace: Trace, t: int) -> float | None:
    """Gradients applied a second up to `t` ns, over the whole run; None if there was none."""
    when, total = applied(trace, t)
    return float(total[-1]) / (t / NANO) if len(when) and t > 0 else None


def _steady(trace: Trace, when: np.ndarray, total: np.ndarray, period: Period) -> Window | None:
    """From which application to which to count in `period`; None while there are too few."""
    pace = {worker: period.slow.get(worker, 1.0) for worker in trace.role_ids("worker")}
    slowed = any(role in pace for role in period.slow)
    slowest = max(pace, key=lambda role: pace[role], default=None) if slowed else None  # the others, if one is sped up
    if slowest is not None and len(when) and not sampled(trace, "applies"):
        time, count = _own(trace, slowest)
        mine = (time > period.since) & (time <= when[-1])
        turns = _turns(trace, time[mine], count[mine])
        since = np.searchsorted(when, period.since, side="right")
        others = total[-1] - (total[since - 1] if since else 0.0)
        if turns or (len(time) and others < SILENT * len(trace.role_ids("worker"))):
            return turns
    return _whole(trace, when, total, period.since, period.until)


def _own(trace: Trace, worker: int) -> tuple[np.ndarray, np.ndarray]:
    """(ns, gradients) of each time that something of this worker alone was applied, at the first shard that has any."""
    role, time, sender, count = trace.column("applies", "role", "time", "sender", "count")
    mine = sender == worker
    mine &= role == role[mine][0] if mine.any() else mine
    return time[mine], count[mine]


def _turns(trace: Trace, own: np.ndarray, count: np.ndarray) -> Window | None:
    """Whole turns of the slowed worker; of replicas that meet every H steps, H turns or a multiple of them."""
    every = trace.header["strategy"].get("knobs", {}).get("H") or 1
    first = len(own) // 3
    last = first + (len(own) - 1 - first) // every * every
    return (int(own[first]), int(own[last])) if count[first + 1 : last + 1].sum() >= TURNS else None


def _whole(trace: Trace, when: np.ndarray, total: np.ndarray, since: int, until: int) -> Window | None:
    """From a third of the period to its last application, if every worker had a few turns in that time."""
    low, high = np.searchsorted(when, [since, until], side="right")
    low += (high - low) // 3
    enough = high - low > TURNS and total[high - 1] - total[low] >= TURNS * len(trace.role_ids("worker"))
    return (int(when[low]), int(when[high - 1])) if enough else None


def _rate(when: np.ndarray, total: np.ndarray, window: Window | None) -> float | None:
    if window is None:
        return None
    low, high = np.searchsorted(when, window, side="right") - 1
    return float(total[high] - total[low]) / (window[1] - window[0]) * NANO


def _busy(trace: Trace, window: Window | None, workers: list[int]) -> float | None:
    """Of what these workers reported of this time, the share that was computing and not waiting."""
    if window is None or not workers:
        return None
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    near = np.flatnonzero((end > window[0]) & (start < window[1]))
    near = near[np.isin(role[near], workers)]
    took = np.minimum(end[near], window[1]) - np.maximum(start[near], window[0])
    work, wait = (int(took[phase[near] == kind].sum()) for kind in (COMPUTE, WAIT))
    return work / (work + wait) if work + wait else None


def _stale(trace: Trace, window: Window | None, period: Period) -> tuple[float, float] | None:
    if window is None:
        return None
    time, sender, stale, count = trace.column("applies", "time", "sender", "staleness", "count")
    seen = (time > window[0]) & (time <= window[1]) & (stale != UNKNOWN) & (sender >= 0)
    theirs = seen & np.isin(sender, period.roles)
    others = seen & ~theirs
    if not count[theirs].sum() or not count[others].sum():
        return None
    return float(np.average(stale[theirs], weights=count[theirs])), float(
        np.average(stale[others], weights=count[others])
    )
