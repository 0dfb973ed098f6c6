"""Events of a run for figures: short labels, steps of options, slowed spans."""

from __future__ import annotations

import numpy as np

from ..formatting import bytes_text, short, shortened, speed
from ..trace.events import (
    EngineWarning,
    Event,
    GradientRefused,
    GroupRestarted,
    LinkCut,
    LinkDelayed,
    LinkEvent,
    LinkLossy,
    LinkReconnected,
    Note,
    OptionsSet,
    RoleEvent,
    RoleFenced,
    RoleJoined,
    RoleKilled,
    RoleLeft,
    RoleLimited,
    RoleLost,
    RoleRestarted,
    RoleSlowed,
    RoleUnplaced,
    RunWaits,
)  # fmt: skip
from ..trace.role_states import events_until, slowdowns
from ..trace.trace import Trace

MOST_LETTERS = 30
LOG_ONLY = (EngineWarning, Note, GroupRestarted, RoleFenced, GradientRefused, RunWaits)  # not shown on axes


def slow_spans(trace: Trace, t: int, role: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return whether the role of each span was slowed when the span began, bool, shape (spans,).

    `role`, `start`: the role and the begin (ns) of each span.
    """
    slow = np.zeros(len(role), dtype=bool)
    for who, steps in slowdowns(trace, t).items():
        mine = np.flatnonzero(role == who)
        times = np.array([time for time, _ in steps])
        values = np.array([1.0, *(factor for _, factor in steps)])
        slow[mine] = values[np.searchsorted(times, start[mine], side="right")] != 1.0
    return slow


def event_labels(trace: Trace, t: int) -> list[tuple[int, str]]:
    """Return (ns, label) of commands and faults up to `t` ns, and of restarted roles.

    Conditions present from the start have no label, and neither has what an earlier event causes: a loss, the wait for a role.
    Notes and warnings appear in the log only.
    """
    found: list[tuple[int, str]] = []
    gone: set[str] = set()
    for event in events_until(trace, t):
        follows = isinstance(event, RoleLost | RoleLeft) and event.name in gone
        if isinstance(event, RoleKilled | RoleLost | RoleLeft):
            gone.add(event.name)
        elif isinstance(event, RoleRestarted | RoleJoined):
            gone.discard(event.name)
        if event.recorder >= 0 or event.time <= 0 or isinstance(event, LOG_ONLY) or follows:
            continue
        label = _label(event)
        found.append((event.time, label if len(label) <= MOST_LETTERS else label[: MOST_LETTERS - 1].rstrip() + "…"))
    return found


def _label(event: Event) -> str:
    match event:
        case RoleSlowed(name=name, factor=factor):
            return f"{short(name)} " + ("normal speed" if factor == 1 else speed(factor))
        case RoleLimited(name=name, bandwidth=bandwidth):
            return f"{short(name)} " + ("no limit" if bandwidth is None else f"{bytes_text(bandwidth)}/s")
        case LinkEvent():
            return _link_label(event)
        case RoleRestarted(name=name, rolled_back=rolled_back):
            return f"{short(name)} restarted" + (f", −{rolled_back} updates" if rolled_back else "")
        case RoleEvent(name=name) if not isinstance(event, RoleUnplaced):
            return f"{short(name)} {event.kind}"
    return shortened(str(event))


def _link_label(event: LinkEvent) -> str:
    ends = short(event.name) + (f"–{short(event.peer)}" if event.peer is not None else "")
    match event:
        case LinkDelayed(seconds=seconds):
            return f"{ends} delayed {seconds:g} s" if seconds else f"{ends} not delayed"
        case LinkLossy(chance=chance):
            return f"{ends} {100 * chance:g}% lost" if chance else f"{ends} no losses"
        case LinkCut():
            return f"{ends} cut" + (" off" if event.peer is None else "")
        case LinkReconnected():
            return f"{ends} reconnected"
    return shortened(str(event))


def option_steps(trace: Trace, name: str, t: int) -> list[tuple[int, float]]:
    """Return [(ns, value), ...] of a numeric option: its initial value, and later changes up to `t` ns.

    [] if the strategy has no such option.
    """
    begun = trace.header.strategy.options.get(name)
    if isinstance(begun, bool) or not isinstance(begun, (int, float)):
        return []
    set_since = [e for e in events_until(trace, t) if isinstance(e, OptionsSet) and name in e.options]
    return [(0, float(begun)), *((event.time, float(event.options[name])) for event in set_since)]
