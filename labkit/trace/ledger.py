"""The ledger: where every gradient went.

Each gradient - one (sender, incarnation, step) - is exactly one of: applied (on all shards), partly applied (on some),
dropped (and why), lost with a node, rolled back by a restore, or in flight. In flight is counted: gradients found on
the links and in the inboxes when the run ended, taken by a server that had not yet applied them, or still in the hands
of the worker that computed them. If the counts do not add up to what was computed, the ledger does not close, and says
how many are missing.

A role that was lost has left no last report. What it had computed is what it said, or what others saw of it if that is
more; and what cannot be accounted for because of it - its own gradients, and those on their way to its shard - is lost
with it.
"""

from __future__ import annotations

from typing import Any

from .recorder import Counters
from .trace import Trace
from .vocabulary import EVERYONE, REASONS

__all__ = ["ledger"]


def ledger(trace: Trace) -> dict[str, Any]:
    """{computed, applied, partly_applied, dropped {why: n}, lost, rolled_back, in_flight, missing, closes}.

    While the run goes on, `in_flight` is what is not yet accounted for, and `closes` is None: roles report at different times.
    """
    with trace.lock:
        counters = dict(trace.counters)
        drops = _drops(trace)
        ending = trace.ending
    lost = {trace.roles.index(name) for name in (ending or {}).get("lost", ())}
    specs = trace.header["layout"]["roles"]
    shards, gone = _shards(specs, counters, lost)
    wires = {(sender, step, shard) for shard, sender, step in _on_wires(ending)}
    book: dict[str, Any] = {
        "computed": 0, "applied": 0, "partly_applied": 0, "dropped": {}, "lost": 0, "rolled_back": 0, "in_flight": 0,
        "missing": 0, "closes": False,
    }  # fmt: skip
    replicated = trace.header["layout"]["replicated"]
    for sender in sorted(counters.keys() | {i for i in lost if specs[i]["data"] is not None}):
        counter = counters.get(sender) or Counters()
        reached = [
            max(c.rounds - 1 if replicated else -1, c.applied.get(sender, (0, -1))[1]) for c in shards.values()
        ]  # the last step of this sender that each shard has applied
        computed = counter.computed
        if sender in lost or ending is None:  # others may have reported later than it has
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


def _drops(trace: Trace) -> dict[int, dict[int, dict[int, int]]]:
    """{sender: {step: {shard: why}}} of every gradient that some shard will never apply."""
    found: dict[int, dict[int, dict[int, int]]] = {}
    columns = trace.column("drops", "sender", "step", "count", "shard", "why")
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
