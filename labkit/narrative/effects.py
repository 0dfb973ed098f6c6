"""What a disturbance did, in numbers: the throughput that is left, and how much the others wait.

Rates are counted from one application of the slowed worker to another, so that its whole turns are in them: of N workers
of which one is f times slower exactly (N - 1 + 1/f)/N of the throughput is left if nobody waits, and 1/f if everybody
does. Of the time after a change the first third is left out: there the system goes over into its new state.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..trace.query import SILENT, TURNS, Cumulative, busy_share, mean_staleness, rate_between, steady_window
from ..trace.role_states import Period, periods
from ..trace.trace import Trace
from ..trace.vocabulary import NANO

__all__ = ["Effect", "effect"]


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


def effect(trace: Trace, period: Period, t: int, counted: Cumulative | None = None) -> Effect:
    """The effect of `period`, as far as it went by `t` ns."""
    applied = (counted or Cumulative()).gross(trace, min(t, period.until) - 1).instants()  # of this very moment more may come
    calm = next((p for p in reversed(periods(trace, period.since)) if p.calm and p.until > p.since), None)
    usual = None if calm is None else steady_window(trace, applied, calm.since, calm.until)
    now = steady_window(trace, applied, period.since, period.until, period.slow)
    rate, was = rate_between(applied, now), rate_between(applied, usual)
    if rate is None and usual is not None and was:
        last = int(applied.time[-1]) if len(applied.time) else 0
        if min(t, period.until) - last > SILENT * TURNS * len(trace.role_ids("worker")) / was * NANO:
            rate = 0.0  # everything stands still
    left = rate / was if was and rate is not None else None
    who = set(period.roles)
    others = [worker for worker in trace.role_ids("worker") if worker not in who]
    return Effect(
        period, rate, left, busy_share(trace, now, others), busy_share(trace, usual, others),
        busy_share(trace, now, [role for role in period.slow if trace.kinds[role] == "worker"]),
        mean_staleness(trace, now, period.roles),
    )  # fmt: skip
