"""The ledger: where every gradient went.

Each gradient - one (sender, incarnation, step) - is exactly one of: applied (on all shards), partly applied (on some),
dropped (and why), lost with a node, rolled back by a restore, or in flight. In flight is counted: gradients found on
the links and in the inboxes when the run ended, taken by a server that had not yet applied them, or still in the hands
of the worker that computed them. If the counts do not add up to what was computed, the ledger does not close, and says
how many are missing.

Every life of a role has books of its own. A life that was lost has left no last report: what it had computed is what
it said, or what others saw of it if that is more; and what cannot be accounted for because of it - its own gradients,
and those on their way to its shard - is lost with it. A shard that was restored holds what its checkpoint held, and
what was applied since: what its life before had applied beyond that is rolled back.

The books of an earlier time are made from the rows up to then: what is in flight is then the rest, as in a run that
goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .marks import away
from .recorder import Counters
from .trace import Trace
from .vocabulary import COMPUTE, EVERYONE, REASONS, ROLLED_BACK

__all__ = ["ledger"]

Drops = dict[tuple[int, int], dict[int, dict[int, int]]]  # (sender, incarnation) -> step -> shard -> why


def ledger(trace: Trace, t: int | None = None) -> dict[str, Any]:
    """{computed, applied, partly_applied, dropped {why: n}, lost, rolled_back, in_flight, missing, closes}.

    While the run goes on, `in_flight` is what is not yet accounted for, and `closes` is None: roles report at different times.
    `t` (ns): the books as they were then, also open. Where rows are missing, a role was restarted, or the model is a
    mixture of replicas, `in_flight` is None, `computed` and `applied` are None if they are not known, else what had been
    reported by then.
    """
    with trace.lock:
        if t is not None and t < trace.watermark():
            return _earlier(trace, t)
        gone = away(trace)
        return _Books(trace.header["layout"], trace.roles, dict(trace.lives), _drops(trace), trace.ending, gone).made()


def _empty() -> dict[str, Any]:
    """A book with nothing in it."""
    places = ("partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing")
    book: dict[str, Any] = dict.fromkeys(("computed", "applied", *places), 0)
    return book | {"dropped": {}, "closes": False}


@dataclass
class _Shard:
    """What one shard of the model says: `now` is its newest life, `past` those before."""

    now: Counters
    past: list[Counters] = field(default_factory=list)
    incarnation: int = 0
    gone: bool = False  # its newest life is lost

    def reached(self, life: int, incarnation: int, replicated: bool) -> int:
        """The last step of a sender's life whose gradient it holds."""
        return _held(self.now, self.incarnation, life, incarnation, replicated)

    def reached_before(self, life: int, incarnation: int, replicated: bool) -> int:
        """The last step that it, or one of its earlier lives, has ever held."""
        lives = [(len(self.past) - i - 1, c) for i, c in enumerate(reversed(self.past))]
        return max([_held(c, i, life, incarnation, replicated) for i, c in lives], default=-1)


def _held(c: Counters, own: int, life: int, incarnation: int, replicated: bool) -> int:
    rounds = 0
    if replicated:
        rounds = c.rounds if incarnation == own else c.eras.get(incarnation, 0)
    return max(rounds - 1, c.applied.get(life, (0, -1))[1])


class _Books:
    """The books that follow from these counts."""

    def __init__(
        self, layout: dict[str, Any], roles: tuple[str, ...], lives: dict[int, Counters], drops: Drops,
        ending: dict[str, Any] | None, away: set[int],
    ):  # fmt: skip
        self.away = away
        self.specs, self.replicated, self.roles = layout["roles"], layout["replicated"], len(roles)
        self.lives, self.drops, self.ending, self.book = lives, drops, ending, _empty()
        self.newest = {n % self.roles: n for n in sorted(lives)}  # the last one of a role stays
        said = ending or {}
        self.lost = {role + incarnation * self.roles for role, incarnation in said.get("lost_lives", ())}
        if "lost_lives" not in said:  # older files, and runs that go on: who was lost, and whoever has been followed
            names = {roles.index(name) for name in said.get("lost", ())}
            self.lost = {self.newest.get(role, role) for role in names}
            if ending is None:
                self.lost |= {n for n in lives if n != self.newest[n % self.roles]}
        self.shards = self._shards()
        self.gone = {number for number, shard in self.shards.items() if shard.gone}
        self.wires = {
            (shard, sender + incarnation * self.roles, step)
            for shard, sender, incarnation, last, count in said.get("in_flight", ())
            for step in range(last - count + 1, last + 1)
        }

    def _shards(self) -> dict[int, _Shard]:
        """By number; a lost role that never reported has counted nothing."""
        made: dict[int, _Shard] = {}
        numbers: dict[int, list[int]] = {}
        for n in sorted({*self.lives, *self.lost}):
            numbers.setdefault(n % self.roles, []).append(n)
        for role, spec in enumerate(self.specs):
            if spec["shard"] is None or (self.replicated and role in self.away):  # a replica that left is none
                continue
            known = numbers.get(role, [])
            if known:
                counters = [self.lives.get(n) or Counters() for n in known]
                gone = known[-1] in self.lost
                made[spec["shard"]] = _Shard(counters[-1], counters[:-1], known[-1] // self.roles, gone)
        return made

    def made(self) -> dict[str, Any]:
        """Every gradient of every life gets its place."""
        silent = {n for n in self.lost if self.specs[n % self.roles]["data"] is not None}
        for life in sorted(self.lives.keys() | silent):
            self._settle_all(life, self.lives.get(life) or Counters())
        book = self.book
        if self.ending is None:
            book["in_flight"], book["missing"] = book["in_flight"] + book["missing"], 0
        book["closes"] = None if self.ending is None else _total(book) == book["computed"]
        return book

    def _settle_all(self, life: int, counter: Counters) -> None:
        incarnation, sender = divmod(life, self.roles)
        reached = [shard.reached(life, incarnation, self.replicated) for shard in self.shards.values()]
        drops = self.drops.get((sender, incarnation), {})
        computed = counter.computed
        if life in self.lost or (self.ending is None and computed):  # others may have reported later than it has
            computed = max(computed, 1 + max(reached, default=-1), 1 + self._last_seen(life, drops))
        if not computed:
            return
        self.book["computed"] += computed
        mine = {**self.drops.get((EVERYONE, incarnation), {}), **drops}
        settled = min(reached, default=-1) + 1
        self.book["applied"] += settled - sum(step < settled for step in mine)
        handed = computed if life in self.lost else counter.handed
        for step in [*(step for step in mine if step < settled), *range(settled, computed)]:
            what = self._settle(step, life, reached, mine.get(step, {}), handed)
            if what:
                self.book[what] += 1

    def _settle(self, step: int, life: int, reached: list[int], dropped: dict[int, int], handed: int) -> str:
        """Where one gradient that is not simply applied everywhere went; "" if it was dropped, which is booked here."""
        everywhere = dropped.get(EVERYONE)
        applied = [
            step <= last and number not in dropped and everywhere is None for number, last in zip(self.shards, reached)
        ]
        if applied and all(applied):
            return "applied"
        if any(applied):
            return "partly_applied"
        if dropped:
            why = everywhere if everywhere is not None else dropped[min(dropped)]
            if why == ROLLED_BACK:
                return "rolled_back"
            self.book["dropped"][REASONS[why]] = self.book["dropped"].get(REASONS[why], 0) + 1
            return ""
        incarnation = life // self.roles
        if any(s.reached_before(life, incarnation, self.replicated) >= step for s in self.shards.values()):
            return "rolled_back"
        there = [
            (number, s, last) for (number, s), last in zip(self.shards.items(), reached) if number not in self.gone
        ]
        if (
            step >= handed  # its worker still has it
            or any((number, life, step) in self.wires for number, _, _ in there)
            or any(s.now.taken.get(life, -1) >= step > last for _, s, last in there)
        ):
            return "in_flight"
        restored = any(shard.past for shard in self.shards.values())
        return "lost" if life in self.lost or self.gone or restored else "missing"

    def _last_seen(self, life: int, drops: dict[int, Any]) -> int:
        """The last step of a life that others, or its own reports, have mentioned; -1 if none."""
        seen = [c.taken.get(life, -1) for shard in self.shards.values() for c in (shard.now, *shard.past)]
        before = [shard.reached_before(life, life // self.roles, self.replicated) for shard in self.shards.values()]
        return max([*seen, *before, *(step for _, who, step in self.wires if who == life), *drops, -1])


def _earlier(trace: Trace, t: int) -> dict[str, Any]:
    """The books as they were at `t`, from the rows up to then."""
    layout, drops = trace.header["layout"], _drops(trace, t)
    mixed = layout.get("copies") == "own"  # mixing brings gradients along, which is no row
    restarted = len(trace.lives) > len(trace.counters)  # rows do not say of which life they are
    applies, spans = (
        len(table) > 0 and not table.skipped and not table.spilled
        for table in (trace.tables["applies"], trace.tables["spans"])
    )
    counters = _counters_at(trace, t)
    if applies and spans and not mixed and not restarted:
        return _Books(layout, trace.roles, counters, drops, None, away(trace, t)).made()
    book = _empty() | {"in_flight": None, "closes": None}
    book["computed"] = sum(c.computed for c in counters.values()) if spans and not restarted else None
    book["applied"] = None if mixed else _reported(trace, t)
    for steps in drops.values():
        for shards in steps.values():
            why = next(iter(shards.values()))
            if why == ROLLED_BACK:
                book["rolled_back"] += 1
            else:
                book["dropped"][REASONS[why]] = book["dropped"].get(REASONS[why], 0) + 1
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


def _total(book: dict[str, Any]) -> int:
    """The gradients that have a place in the book."""
    places = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    return sum(book[place] for place in places) + sum(book["dropped"].values())


def _drops(trace: Trace, t: int | None = None) -> Drops:
    """Of every gradient that some shard will never apply, or holds no more: why. `t`: of what was said by then."""
    found: Drops = {}
    columns = trace.column("drops", "sender", "incarnation", "step", "count", "shard", "why")
    if t is not None:
        said = trace.column("drops", "time") <= t
        columns = [column[said] for column in columns]
    for sender, incarnation, last, count, shard, why in zip(*(c.tolist() for c in columns)):
        first = last if sender == EVERYONE else last - count + 1  # everyone's gradients of one round have one step
        for step in range(first, last + 1):
            found.setdefault((sender, incarnation), {}).setdefault(step, {}).setdefault(shard, why)
    return found
