"""The ledger: where every gradient went.

Each gradient - one (sender, incarnation, step) - is exactly one of: applied (on all shards), partly applied (on some), dropped (and why),
lost with a node, rolled back by a restore, or in flight. In flight is counted: gradients found on the links and in the inboxes
when the run ended, taken by a server that had not yet applied them, or still in the hands of the worker that computed them. If the
counts do not add up to what was computed, the ledger does not close, and says how many are missing.
"""

from __future__ import annotations

from typing import Any

from .trace import Trace
from .vocabulary import EVERYONE, REASONS

__all__ = ["ledger"]


def ledger(trace: Trace) -> dict[str, Any]:
    """{computed, applied, partly_applied, dropped {why: n}, lost, rolled_back, in_flight, missing, closes}.

    While the run goes on, `in_flight` is what is not yet accounted for.
    """
    with trace.lock:
        counters = dict(trace.counters)
        drops = _drops(trace)
        ending = trace.ending
    shards = {c.shard: c for _, c in sorted(counters.items()) if c.shard >= 0}
    wires = {(sender, step, shard) for shard, sender, step in _on_wires(ending)}
    book: dict[str, Any] = {
        "computed": 0, "applied": 0, "partly_applied": 0, "dropped": {}, "lost": 0, "rolled_back": 0, "in_flight": 0,
        "missing": 0, "closes": False,
    }  # fmt: skip
    replicated = trace.header["layout"]["replicated"]
    for sender, counter in sorted(counters.items()):
        if not counter.computed:
            continue
        book["computed"] += counter.computed
        reached = [
            c.rounds - 1 if replicated else c.applied.get(sender, (0, -1))[1] for c in shards.values()
        ]  # the last step of this sender that each shard has applied
        mine = {**drops.get(EVERYONE, {}), **drops.get(sender, {})}
        settled = min(reached, default=-1) + 1
        book["applied"] += settled - sum(step < settled for step in mine)
        open_steps = [step for step in mine if step < settled] + list(range(settled, counter.computed))
        for step in open_steps:
            _settle(book, step, sender, shards, reached, mine.get(step, {}), wires, counter, ending)
    total = book["applied"] + book["partly_applied"] + sum(book["dropped"].values())
    total += book["lost"] + book["rolled_back"] + book["in_flight"]
    if ending is None:
        book["in_flight"] += book.pop("missing")
        book["missing"] = 0
        total = book["computed"]
    book["closes"] = total == book["computed"]
    return book


def _settle(
    book: dict[str, Any], step: int, sender: int, shards: dict[int, Any], reached: list[int], dropped: dict[int, int],
    wires: set[tuple[int, int, int]], counter: Any, ending: Any,
) -> None:  # fmt: skip
    """Where one gradient that is not simply applied everywhere went."""
    everywhere = dropped.get(EVERYONE)
    applied = [step <= last and shard not in dropped and everywhere is None for shard, last in zip(shards, reached)]
    if applied and all(applied):
        book["applied"] += 1
    elif any(applied):
        book["partly_applied"] += 1
    elif dropped:
        why = REASONS[everywhere if everywhere is not None else dropped[min(dropped)]]
        book["dropped"][why] = book["dropped"].get(why, 0) + 1
    elif (
        step >= counter.handed  # its worker still has it
        or any((sender, step, shard) in wires for shard in shards)
        or any(c.taken.get(sender, -1) >= step > last for c, last in zip(shards.values(), reached))
    ):
        book["in_flight"] += 1
    else:
        book["missing"] += 1


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
