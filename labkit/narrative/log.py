"""Log of a run as text: faults, commands, milestones, stragglers and the end, one line per event.

    5.00 s you slowed w2 x5
    5.40 s w1 was killed
    5.92 s accuracy passed 95%
    7.40 s straggler: w2, computing 0.50 s against a median of 0.10 s
    12.00 s end: time limit of 12 s

The lines are a function of the trace only, so notebook, terminal, files and the lab show the same lines.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from .. import formatting
from ..formatting import count_text, number_text, ordinal, short, shortened
from ..trace.events import (
    Event,
    LinkCut,
    LinkDelayed,
    LinkEvent,
    LinkLossy,
    LinkReconnected,
    Note,
    OptionsSet,
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
    RunPaused,
    RunWaits,
)
from ..trace.query import evaluations
from ..trace.role_states import events_until
from ..trace.schema import NANO, seconds
from ..trace.stragglers import SlowRole, Stragglers, stragglers
from ..trace.summary import stopped_on
from ..trace.trace import Trace

MILESTONES = (0.5, 0.75, 0.9, 0.95, 0.99)  # accuracies with a line in the log, in addition to the target of the budget
PAUSES = 3  # further consecutive pauses are merged into one line, because single-stepping produces many
MAX_NAMED = 6  # roles that are named individually
ROLE_TEXTS: dict[type[RoleEvent], str] = {
    RoleFrozen: "{} was frozen", RoleThawed: "{} was thawed", RoleJoined: "{} joined",
    RoleLeft: "{} left; the others continue",
}  # fmt: skip


class Log(list[str]):
    """A list of lines whose repr is the text."""

    def __repr__(self) -> str:
        return "\n".join(self) if self else "no events yet"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return "".join(f"<div>{html.escape(line)}</div>" for line in (self or [repr(self)]))


def log_lines(trace: Trace, t: int | None = None, memory: Stragglers | None = None) -> list[str]:
    """Return the events up to `t` (ns; None is now) as lines, for example `5.00 s you slowed w2 x5`.

    `memory`: a `Stragglers` object that the caller keeps between calls with the same trace, so that each row is read only
    once.
    """
    return [f"{seconds(time):.2f} s {words}" for time, words in events(trace, t, memory)]


def events(trace: Trace, t: int | None = None, memory: Stragglers | None = None) -> list[tuple[int, str]]:
    """Return (ns, text) of the events up to `t` (ns; None is now), in order of time.

    `memory`: a `Stragglers` object that the caller keeps between calls with the same trace, so that each row is read only
    once.
    """
    known = trace.watermark()
    t = known if t is None else min(t, known)
    found = [*_event_lines(trace, t), *_milestones(trace, t)]
    slow = memory.until(trace, t) if memory else stragglers(trace, t)
    found += [(finding.time, straggler_text(trace, finding)) for finding in slow]
    found.sort(key=lambda event: event[0])
    ending = trace.ending
    if ending is not None and t >= ending["time"]:
        found.append((ending["time"], f"end: {stop_reason(trace, ending)}"))
    return found


# events ---------------------------------------------------------------------------------------------------------------


def _event_lines(trace: Trace, t: int) -> list[tuple[int, str]]:
    """Return (ns, sentence) of events. Equal events of several links at one time are one line, and consecutive pauses are
    merged.
    """
    found: list[tuple[int, str]] = []
    killed: set[str] = set()  # a loss that immediately follows a kill is not repeated
    pauses = 0
    for group in _grouped(events_until(trace, t)):
        event = group[0]
        match event:
            case RoleKilled(name=name, absent=False):
                killed.add(name)
            case RoleLost(name=name) if name in killed:
                killed.remove(name)
                continue
            case RoleRestarted(name=name):
                killed.discard(name)
        pauses = pauses + 1 if isinstance(event, RunPaused) else 0
        if pauses > PAUSES:
            found[-1] = event.time, f"you paused, {pauses - PAUSES + 1} more times"
        else:
            found.append((event.time, links_text(group) if isinstance(event, LinkEvent) else event_text(trace, event)))
    return found


def _grouped(events: list[Event]) -> list[list[Any]]:
    """Return groups of events. Equal events of several links at one time are one group. Every other event is a group by
    itself.
    """

    def same(event: Event) -> tuple[Any, ...]:
        return type(event), event.time, getattr(event, "seconds", None), getattr(event, "chance", None)

    found: list[list[Any]] = []
    for event in events:
        if found and isinstance(event, LinkEvent) and same(event) == same(found[-1][0]):
            found[-1].append(event)
        else:
            found.append([event])
    return found


def event_text(trace: Trace, event: Event) -> str:
    """Return one event as a sentence of the log, with short role names. For events of links, use `links_text`."""
    match event:
        case RoleLimited(name=name, bandwidth=bandwidth):
            return f"{short(name)} {formatting.bandwidth_text(bandwidth)}"
        case RoleSlowed(name=name, factor=1):
            return f"you reset the speed of {short(name)}"
        case RoleSlowed(name=name, factor=factor):
            return (
                f"you slowed {short(name)} x{factor:g}"
                if factor > 1
                else f"you sped up {short(name)} x{1 / factor:.3g}"
            )
        case OptionsSet():
            return f"you set {event}"
        case RunPaused():
            return "you paused"
        case RoleKilled(name=name, absent=True):
            return f"{role_name(name)} was not killed: it is not running"
        case RoleKilled(name=name, restart=restart):
            return f"{role_name(name)} was killed" + ("" if restart else ", without restart")
        case RoleLost(name=name, incarnation=number, reason=reason):
            return f"{role_name(name)}{f' (incarnation {number})' if number else ''} is lost: it {shortened(reason)}"
        case RoleRestarted(name=name, incarnation=number):
            return f"{role_name(name)} restarted ({ordinal(number)} time){shortened(event.with_what)}"
        case RoleEvent(name=name) if type(event) in ROLE_TEXTS:
            return ROLE_TEXTS[type(event)].format(role_name(name))
        case RunWaits():
            return f"the run {shortened(str(event))}"
        case Note(text=words, numbers=numbers):
            figures = ", ".join(f"{key} = {value:g}" for key, value in numbers.items())
            author = "you" if event.recorder < 0 else role_name(trace.roles[event.recorder])
            return f"note by {author}: {words}" + (f" ({figures})" if figures else "")
    return shortened(str(event))


def role_name(name: str) -> str:
    """In the log: `w2`, `the chief`."""
    return "the chief" if name == "chief" else short(name)


def links_text(events: Sequence[LinkEvent]) -> str:
    """Return events of several links as one sentence. The events have the same kind, amount and time."""
    first, ends = events[0], _by_peer(events)
    if isinstance(first, LinkCut | LinkReconnected):
        verb = "cut off" if isinstance(first, LinkCut) else "reconnected"
        at = f"{verb} {'from' if isinstance(first, LinkCut) else 'with'}"
        return "; ".join(
            f"{_listed(names)} {'was' if len(names) == 1 else 'were'} {verb if peer is None else f'{at} {peer}'}"
            for names, peer in ends
        )
    between = "; ".join(f"between {_listed(names)} and {peer or 'all others'}" for names, peer in ends)
    match first:
        case LinkDelayed(seconds=0):
            return f"messages {between} are no longer delayed"
        case LinkDelayed(seconds=seconds_):
            return f"messages {between} are delayed by {formatting.durations(seconds_ * NANO)[0]}"
        case LinkLossy(chance=0):
            return f"messages {between} are no longer lost"
        case LinkLossy(chance=chance):
            return f"{formatting.percent(chance)} of messages {between} are lost and retransmitted"
    return shortened(str(first))


def _by_peer(events: Sequence[LinkEvent]) -> list[tuple[list[str], str | None]]:
    """Return [(short role names, their common peers as text), ...]. The peers are None for all other roles."""
    by_peer: dict[str | None, list[str]] = {}
    for event in events:
        by_peer.setdefault(event.peer, []).append(role_name(event.name))
    peers: dict[tuple[str, ...], list[str]] = {}
    for peer, names in by_peer.items():
        if peer is not None:
            peers.setdefault(tuple(names), []).append(role_name(peer))
    alone: list[tuple[list[str], str | None]] = [(by_peer[None], None)] if None in by_peer else []
    return alone + [(list(names), _listed(common)) for names, common in peers.items()]


def _listed(names: Sequence[str]) -> str:
    return formatting.listed(names) if len(names) <= MAX_NAMED else f"{len(names)} roles"


def straggler_text(trace: Trace, finding: SlowRole) -> str:
    """Return the sentence of the log about a role that became slow or has recovered.

    For example `straggler: w3, computing 0.50 s against a median of 0.10 s`, or `w3 is no longer a straggler`.
    """
    name, what = short(trace.roles[finding.role]), finding.what
    if what is None:
        return f"{name} is no longer a straggler"
    took, usual = formatting.durations(finding.own, finding.usual)
    if finding.against_start:
        return f"straggler: {name}, {what} {took} for an update against {usual} at the start"
    start = {"waiting": "waiting for others, a gradient every", "messages": "its messages take"}.get(what, what)
    return f"straggler: {name}, {start} {took} against a median of {usual}"


# milestones and the end -----------------------------------------------------------------------------------------------


def _milestones(trace: Trace, t: int) -> list[tuple[int, str]]:
    """Return (ns, text) of each evaluation at which accuracy first passed a milestone, and at which the loss became
    non-finite.

    If one evaluation passes several milestones, only the highest is named. Milestones that the untrained model reaches
    are left out.
    """
    goals = sorted({*MILESTONES, trace.header.budget.target_accuracy})
    found: list[tuple[int, str]] = []
    validation = "validation " if trace.header.problem.validation else ""
    for time, update, loss, accuracy in evaluations(trace, t):
        passed = [goal for goal in goals if accuracy >= goal]
        goals = goals[len(passed) :]
        if not math.isfinite(loss):
            return [*found, (round(time), "the loss is no longer a finite number")]
        if passed and update > 0:
            found.append((round(time), f"{validation}accuracy passed {100 * passed[-1]:g}%"))
    return found


def stop_reason(trace: Trace, ending: dict[str, Any]) -> str:
    reason, budget, part = ending["stopped_by"], trace.header.budget, stopped_on(trace)
    why = (ending.get("why") or "").split("\n", 1)[0]
    said = {
        "accuracy": f"accuracy reached {100 * budget.target_accuracy:g}%", "loss": f"loss reached {number_text(budget.loss)}",
        "patience": f"no lower loss in {count_text(budget.patience or 0, 'evaluation')}", "user": "you stopped it",
        "interrupted": "interrupted",
        "finished": "every worker has finished", "error": "an error", "diverged": "diverged", "deadlock": "deadlock",
        "closed": "the cluster was closed",
    }.get(reason)  # fmt: skip
    limit = vars(budget).get(reason)
    if said is None and limit is not None:
        said = f"time limit of {limit:,g} s" if reason == "seconds" else f"{limit:,g} {reason} done"
    said = said or f"stopped by {reason}"
    if part is not None:
        said += f" on the {part}"
    if why.startswith(said):
        return shortened(why)
    baseline = trace.header.baseline_accuracy
    if reason == "accuracy" and baseline is not None and baseline >= budget.target_accuracy:
        said += f", and a constant answer has {baseline:.1%}"
    return said + (f": {why}" if why else "")
