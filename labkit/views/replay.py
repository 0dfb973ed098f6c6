"""The loupe: one update of a run in slow motion, as a function of the trace and the time alone.

Messages last microseconds and frames are a tenth of a second apart, so what travels cannot be seen as it happens. Time
is cut into loops of a few seconds. Each loop shows the last update that was complete when the loop began: for a worker's
gradient everything from its reply to its previous one on, that is its read, its computation, its own gradient on the
way, and whatever the others sent meanwhile. Where in the loop `t` is says where in that update the picture is.

Messages that fill their time are slowed evenly. Where they take only a small part of it there are two speeds: slow
while something travels, and fast while nothing does. On a network that takes no time at all, messages get the same
moment each, one after the other as they followed from each other. Which of the three it is, is always said.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..trace.trace import Trace
from ..trace.vocabulary import COMPUTE, EVALUATION, EVERYONE, NANO
from .marks import short
from .traffic import bytes_text, simulated, typical_ns

__all__ = ["Replay", "Update", "last_update", "loop_ns", "phase_of", "replay"]

LOOP, SHIFT = 4.0, 0.8  # seconds of real time; where in a loop the full seconds are: gradients are on their way then
BUSY, SLOW = 0.3, 0.7  # slowed evenly if messages travel for this part of the time; else the part of the loop they get
LEAST, REST = 0.05, 0.06  # of the loop: a message is seen for so long at least; and the end, when it has been applied
MOST = 240  # dots
CANDIDATES = 40


def loop_ns(trace: Trace) -> int:
    """How long a loop takes, in engine time: four seconds of real time, or about forty gradients of virtual time."""
    if not simulated(trace):
        return round(LOOP * NANO)
    return round(NANO * 2.0 ** round(np.log2(40 * max(typical_ns(trace), 1.0) / NANO)))


def phase_of(trace: Trace, t: int) -> tuple[float, int]:
    """(where in its loop `t` is, from 0 to 1; when that loop began, ns)."""
    loop = loop_ns(trace)
    phase = (t / loop + SHIFT) % 1.0
    return phase, max(0, round(t - phase * loop))


@dataclass(frozen=True)
class Update:
    """What is replayed: from `first` to `last` ns; `sender` (role) whose gradient it is, or EVERYONE; how stale."""

    first: int
    last: int
    sender: int
    staleness: int


def last_update(trace: Trace, t: int) -> Update | None:
    """The last update that was complete at `t` ns: from the one before by the same sender on."""
    owner = trace.roles.index(trace.header["layout"]["observed"][0])
    role, time, sender, step, count, stale = trace.column(
        "applies", "role", "time", "sender", "step", "count", "staleness"
    )
    mine = np.flatnonzero((role == owner) & (time <= t))
    cut = trace.tables["applies"].skipped > 0
    for i in mine[::-1][:CANDIDATES]:
        before = mine[(sender[mine] == sender[i]) & (time[mine] < time[i])]
        if len(before) and (not cut or step[before[-1]] == step[i] - count[i]):
            return Update(int(time[before[-1]]), int(time[i]), int(sender[i]), int(stale[i]))
        if not len(before) and not cut:
            return Update(0, int(time[i]), int(sender[i]), int(stale[i]))
    return None


@dataclass(frozen=True)
class Replay:
    """An update as a film of length 1. Of message i: `source[i]`, `target[i]` (roles), `kind[i]`, `size[i]` bytes, and
    when it leaves and arrives, `leaves[i]`, `arrives[i]`. `works`: rows (role, begin, end) of computing; `applied`: rows
    (role, when). `words`: what the loupe says.
    """

    update: Update
    source: np.ndarray
    target: np.ndarray
    kind: np.ndarray
    size: np.ndarray
    leaves: np.ndarray
    arrives: np.ndarray
    works: np.ndarray
    applied: np.ndarray
    words: str


def replay(trace: Trace, t: int) -> tuple[Replay | None, float]:
    """(the film that runs at `t` ns, where in it the picture is, from 0 to 1); None before the first update."""
    phase, began = phase_of(trace, t)
    update = last_update(trace, began) or _first_update(trace, t)
    return (None if update is None else _film(trace, update)), phase


def _first_update(trace: Trace, t: int) -> Update | None:
    """In the first loop there is none that is complete: the run's first, as soon as there is one."""
    owner = trace.roles.index(trace.header["layout"]["observed"][0])
    role, time = trace.column("applies", "role", "time")
    seen = time[(role == owner) & (time <= t)]
    return last_update(trace, int(seen.min())) if len(seen) else None


def _film(trace: Trace, update: Update) -> Replay:
    first, last = update.first, update.last
    target, source, kind, category, size, sent, received = trace.column(
        "messages", "role", "sender", "kind", "category", "bytes", "sent", "received"
    )
    there = np.flatnonzero((sent <= last) & (received >= first) & (category != EVALUATION))
    there = there[np.argsort(sent[there], kind="stable")]
    if len(there) > MOST:
        there = there[np.linspace(0, len(there) - 1, MOST).astype(int)]
    target, source, kind, size, sent, received = (c[there] for c in (target, source, kind, size, sent, received))
    spoken = np.maximum(received, sent) > first  # what arrived as the update before it was applied is not part of it
    if (received > sent).any():
        film = _Moving(first, last, sent, received)
    else:
        spoken = np.ones(len(sent), bool)
        film = _Instant(trace, first, last, source, target, sent)
        spoken = film.kept
    leaves, arrives = film.leaves[spoken], film.arrives[spoken]
    arrives = np.maximum(arrives, leaves + LEAST)
    role, phase, start, end = trace.column("spans", "role", "phase", "start", "end")
    seen = (phase == COMPUTE) & (start < last) & (end > first)
    works = np.stack([role[seen], film.after(start[seen]), film.before(end[seen])], axis=-1)
    role, time = trace.column("applies", "role", "time")
    seen = (time > first) & (time <= last)
    applied = np.stack([role[seen], film.applied(time[seen])], axis=-1)
    words = f"{_whose(trace, update)}, {_time_text(last - first)}: {film.words(loop_ns(trace))}"
    return Replay(
        update, source[spoken], target[spoken], kind[spoken], size[spoken], leaves, arrives, works, applied, words
    )
