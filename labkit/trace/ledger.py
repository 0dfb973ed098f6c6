"""The ledger: where every gradient went.

Each gradient - one (sender, incarnation, step) - is exactly one of: applied (on all shards), partly applied (on some),
dropped (and why), lost with a node, rolled back by a restore, or in flight. In flight is counted: gradients found on
the links and in the inboxes when the run ended, taken by a server that had not yet applied them, or still in the hands
of the worker that computed them. If the counts do not add up to what was computed, the ledger does not close, and says
how many are missing.

A role that was lost has left no last report. What it had computed is what it said, or what others saw of it if that is
more; and what cannot be accounted for because of it - its own gradients, and those on their way to its shard - is lost
with it.

The books of an earlier time are made from the rows up to then: what is in flight is then the rest, as in a run that
goes on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .recorder import Counters
from .trace import Trace
from .vocabulary import COMPUTE, EVERYONE, REASONS

__all__ = ["ledger"]


def ledger(trace: Trace, t: int | None = None) -> dict[str, Any]:
    """{computed, applied, partly_applied, dropped {why: n}, lost, rolled_back, in_flight, missing, closes}.

    While the run goes on, `in_flight` is what is not yet accounted for, and `closes` is None: roles report at different times.
    `t` (ns): the books as they were then, also open. Where rows are missing, or the model is a mixture of replicas,
    `in_flight` is None, `computed` and `applied` are None if they are not known, else what had been reported by then.
    """
    with trace.lock:
        if t is not None and t < trace.watermark():
            return _earlier(trace, t)
        counters = dict(trace.counters)
        drops = _drops(trace)
        ending = trace.ending
    return _book(trace.header["layout"], trace.roles, counters, drops, ending)


def _empty() -> dict[str, Any]:
    """A book with nothing in it."""
    places = ("partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing")
    book: dict[str, Any] = dict.fromkeys(("computed", "applied", *places), 0)
    return book | {"dropped": {}, "closes": False}


def _book(
    layout: dict[str, Any], roles: tuple[str, ...], counters: dict[int, Counters],
    drops: dict[int, dict[int, dict[int, int]]], ending: dict[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """The books that follow from these counts."""
    lost = {roles.index(name) for name in (ending or {}).get("lost", ())}
    specs, book = layout["roles"], _empty()
    shards, gone = _shards(specs, counters, lost)
    wires = {(sender, step, shard) for shard, sender, step in _on_wires(ending)}
    for sender in sorted(counters.keys() | {i for i in lost if specs[i]["data"] is not None}):
        counter = counters.get(sender) or Counters()
        reached = [
            max(c.rounds - 1 if layout["replicated"] else -1, c.applied.get(sender, (0, -1))[1])
            for c in shards.values()
        ]  # the last step of this sender that each shard has applied
        computed = counter.computed
        if sender in lost or (ending is None and computed):  # others may have reported later than it has
            computed = max(computed, 1 + max(reached, default=-1), 1 + _last_seen(sender, shards, drops, wires))
        if not computed:
            continue
        book["computed"] += computed
        mine = {**drops.get(EVERYONE, {}), **drops.get(sender, {})}
        settled = min(reached, default=-1) + 1
        book["applied"] += settled - sum(step < settled for step in mine)
        open_steps = [step for step in mine if step < settled] + list(range(settled, computed))
        handed = computed if sender in lost else counter.handed
        for step in open_steps:
            what = _settle(book, step, sender, shards, reached, mine.get(step, {}), wires, handed, gone)
            if what == "missing" and (sender in lost or gone):
                what = "lost"
            if what:
                book[what] += 1
    if ending is None:
        book["in_flight"], book["missing"] = book["in_flight"] + book["missing"], 0
    book["closes"] = None if ending is None else _total(book) == book["computed"]
    return book


def _earlier(trace: Trace, t: int) -> dict[str, Any]:
    """The books as they were at `t`, from the rows up to then."""
    layout, drops = trace.header["layout"], _drops(trace, t)
    mixed = layout.get("copies") == "own"  # mixing brings gradients along, which is no row
    applies, spans = (
        len(table) > 0 and not table.skipped and not table.spilled
        for table in (trace.tables["applies"], trace.tables["spans"])
    )
    counters = _counters_at(trace, t)
    if applies and spans and not mixed:
        return _book(layout, trace.roles, counters, drops, None)
    book = _empty() | {"in_flight": None, "closes": None}
    book["computed"] = sum(c.computed for c in counters.values()) if spans else None
    book["applied"] = None if mixed else _reported(trace, t)
    for steps in drops.values():
        for shards in steps.values():
            why = REASONS[next(iter(shards.values()))]
            book["dropped"][why] = book["dropped"].get(why, 0) + 1
    return book


def _counters_at(trace: Trace, t: int) -> dict[int, Counters]:
    """What roles had counted at `t`, as far as the books need it: gradients computed, and the last step applied of each
    sender.
    """
    found = {role: Counters() for role in range(len(trace.roles))}
    computed = np.array([trace.counters[role].computed if role in trace.counters else 0 for role in found])
    role, phase, end, step = trace.column("spans", "role", "phase", "end", "step")
    later = (phase == COMPUTE) & (end > t)
    np.minimum.at(computed, role[later], step[later])  # a span's step: what its role had computed before it
    for number, count in enumerate(computed.tolist()):
        found[number].computed = count
    role, time, sender, step = trace.column("applies", "role", "time", "sender", "step")
    pairs, which = np.unique(np.stack([role, sender], axis=1)[time <= t], axis=0, return_inverse=True)
    last = np.full(len(pairs), -1)
    np.maximum.at(last, which.reshape(-1), step[time <= t])
    for (owner, who), final in zip(pairs.tolist(), last.tolist()):
        if who == EVERYONE:
            found[owner].rounds = final + 1
        else:
            found[owner].applied[who] = [0, final]
    return found


def _reported(trace: Trace, t: int) -> int | None:
    """Gradients applied to the whole model, as it was last reported before `t`; None if it was not."""
    role, time, sender, count = trace.column("progress", "role", "time", "sender", "gradients")
    seen = (sender == EVERYONE) & (time <= t)
    owners = [trace.roles.index(name) for name in trace.header["layout"]["observed"]]
    last = [int(count[seen & (role == owner)].max(initial=-1)) for owner in owners]
    return min(last) if min(last, default=-1) >= 0 else None


def _shards(specs: list[Any], counters: dict[int, Counters], lost: set[int]) -> tuple[dict[int, Counters], set[int]]:
    """({shard: its counters}, the shards whose role is lost); a lost role that never reported has counted nothing."""
    owners = [i for i, spec in enumerate(specs) if spec["shard"] is not None and (i in counters or i in lost)]
    shards = {specs[i]["shard"]: counters.get(i) or Counters() for i in owners}
    return shards, {specs[i]["shard"] for i in owners if i in lost}


def _total(book: dict[str, Any]) -> int:
    """The gradients that have a place in the book."""
    places = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    return sum(book[place] for place in places) + sum(book["dropped"].values())


def _settle(
    book: dict[str, Any], step: int, sender: int, shards: dict[int, Any], reached: list[int], dropped: dict[int, int],
    wires: set[tuple[int, int, int]], handed: int, gone: set[int],
) -> str:  # fmt: skip
    """Where one gradient that is not simply applied everywhere went; "" if it was dropped, which is booked here."""
    everywhere = dropped.get(EVERYONE)
    applied = [step <= last and shard not in dropped and everywhere is None for shard, last in zip(shards, reached)]
    if applied and all(applied):
        return "applied"
    if any(applied):
        return "partly_applied"
    if dropped:
        why = REASONS[everywhere if everywhere is not None else dropped[min(dropped)]]
        book["dropped"][why] = book["dropped"].get(why, 0) + 1
        return ""
    there = [(shard, c, last) for (shard, c), last in zip(shards.items(), reached) if shard not in gone]
    if (
        step >= handed  # its worker still has it
        or any((sender, step, shard) in wires for shard, _, _ in there)
        or any(c.taken.get(sender, -1) >= step > last for _, c, last in there)
    ):
        return "in_flight"
    return "missing"


def _last_seen(sender: int, shards: dict[int, Any], drops: dict[int, Any], wires: set[tuple[int, int, int]]) -> int:
    """The last step of `sender` that others, or its own reports, have mentioned; -1 if none."""
    seen = [c.taken.get(sender, -1) for c in shards.values()] + [step for who, step, _ in wires if who == sender]
    return max([*seen, *drops.get(sender, {}), -1])


def _drops(trace: Trace, t: int | None = None) -> dict[int, dict[int, dict[int, int]]]:
    """{sender: {step: {shard: why}}} of every gradient that some shard will never apply; `t`: of what was said by then."""
    found: dict[int, dict[int, dict[int, int]]] = {}
    columns = trace.column("drops", "sender", "step", "count", "shard", "why")
    if t is not None:
        said = trace.column("drops", "time") <= t
        columns = [column[said] for column in columns]
    for sender, last, count, shard, why in zip(*(c.tolist() for c in columns)):
        first = last if sender == EVERYONE else last - count + 1  # everyone's gradients of one round have one step
        for step in range(first, last + 1):
            found.setdefault(sender, {}).setdefault(step, {}).setdefault(shard, why)
    return found


def _on_wires(ending: dict[str, Any] | None) -> list[tuple[int, int, int]]:
    if ending is None:
        return []
    return [
        (shard, sender, step)
        for shard, sender, _, last, count in ending["in_flight"]
        for step in range(last - count + 1, last + 1)
    ]
