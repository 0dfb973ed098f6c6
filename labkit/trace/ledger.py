"""The ledger: accounts for every gradient of a run.

Each gradient - one (sender, incarnation, step) - is exactly one of: applied, partly applied, dropped (with a reason), lost with
a node, rolled back by a restore, or in flight. The meaning of applied depends on the relation between the shards (`copies` in
`roles.layout.Layout`):

- parts of one model, or synchronized replicas: applied by every shard. Partly applied: by some.
- local replicas whose mean is the model: held by any replica, since the mean then holds it, with the weight that mixing gave
  it. There is no partly applied.

In flight is counted, not inferred: gradients found on the links and in the inboxes when the run ended, received by a server
that had not yet applied them, or not yet sent by the worker that computed them. If the counts do not add up to the number
computed, the ledger does not close, and states how many are missing.

Gradients are counted only by the roles that compute them: the first role of each share of the data (other roles with the same
share, in a split model, work on parts of the same gradients), and any other role that reports some. Every incarnation has
separate counts. A lost incarnation sends no last report: its number of computed gradients is the number it reported, or the
number that others received from it if that is larger (its pushes, or the rounds completed by members of the same incarnation,
since a round needs every member). Gradients that cannot be accounted for because of the loss - its own, and those in flight to
its shard - are lost with it. A gradient that it computed and that no other process received is not in the ledger. A restored
shard holds what its checkpoint held plus what was applied since; what its previous incarnation had applied beyond that is
rolled back, unless positions are pushed (`positions` in the layout), which bring gradients back: a shard then reports for each
role instance the step up to which it holds them, and a drop at an earlier step does not count.

The parameters that a run returns are those that the chief has evaluated, and each snapshot of a shard records which gradients
it holds. When the run is over, a shard may have applied more, or may be lost; on a cluster, its last applications may not have
been reported. The ending of the trace therefore repeats the records of the snapshots (`returned`; in virtual time only if the
shards have changed since, or if a synchronized replica that was not evaluated holds something else), and the ledger of the
ended run describes these parameters: gradients that the shards have applied beyond them are dropped after the end, or, if an
error or a loss ended the run, rolled back.

The ledger as of an earlier time is computed from the rows up to then; in flight is then the remainder, as in a live run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..options import as_number
from .events import RoleLost
from .query import last_reported
from .recorder import Counters
from .role_states import absent
from .trace import Trace, check_trace
from .vocabulary import COMPUTE, EVERYONE, REASONS, ROLLED_BACK, TABLES

__all__ = ["ledger"]

Drops = dict[tuple[int, int], dict[int, dict[int, int]]]  # (sender, incarnation) -> step -> shard -> why


def ledger(trace: Trace, t: int | None = None) -> dict[str, Any]:
    """{computed, applied, partly_applied, dropped {why: n}, lost, rolled_back, in_flight, missing, closes}.

    While the run is live, `in_flight` is what is not yet accounted for, and `closes` is None, because roles report at different
    times. `t` (ns): the ledger as of that time, also open. If rows are missing or a role was restarted, `in_flight` is None, and
    `computed` and `applied` are the last reported values, or None if unknown.
    """
    check_trace(trace)
    if t is not None:
        number = as_number(t)
        if number is None or not math.isfinite(number):
            raise BadInput(f"t={shown(t)} is not allowed; it is None or a number of nanoseconds.")
    with trace.lock:
        if t is not None and t < trace.watermark():
            return _earlier(trace, t)
        gone = absent(trace)
        lost = {(event.name, event.incarnation) for event in trace.events if isinstance(event, RoleLost)}
        lives = {trace.roles.index(name) + number * len(trace.roles) for name, number in lost}
        times = {shard: held["time"] for shard, held in _returned_by(trace)}
        return _Books(
            trace.header["layout"], trace.roles, dict(trace.lives), _drops(trace), trace.ending, gone, lives,
            _drops(trace, until=times) if times else None,
        ).made()  # fmt: skip


def _returned_by(trace: Trace) -> list[Any]:
    """[[shard, which gradients its part of the returned parameters holds], ...]"""
    returned = (trace.ending or {}).get("returned") or {"held": []}
    held: list[Any] = returned["held"]
    return held


def _empty() -> dict[str, Any]:
    """A ledger with zero counts."""
    places = ("partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing")
    book: dict[str, Any] = dict.fromkeys(("computed", "applied", *places), 0)
    return book | {"dropped": {}, "closes": False}


@dataclass
class _Shard:
    """Counters of one shard of the model: `now` of its newest incarnation, `past` of the previous ones, by number."""

    now: Counters
    past: dict[int, Counters] = field(default_factory=dict)
    incarnation: int = 0
    gone: bool = False  # its newest instance is lost

    def reached(self, life: int, incarnation: int, replicated: bool) -> int:
        """The last step of a sender's instance whose gradient the shard holds."""
        return _held(self.now, self.incarnation, life, incarnation, replicated)

    def reached_before(self, life: int, incarnation: int, replicated: bool) -> int:
        """The last step that any of its previous incarnations has held."""
        return max([_held(c, own, life, incarnation, replicated) for own, c in self.past.items()], default=-1)


def _held(c: Counters, own: int, life: int, incarnation: int, replicated: bool) -> int:
    rounds = 0
    if replicated:
        rounds = c.rounds if incarnation == own else c.eras.get(incarnation, 0)
    return max(rounds - 1, c.applied.get(life, (0, -1))[1])


class _Books:
    """Computes the ledger from counters, drops and the ending."""

    def __init__(
        self, layout: dict[str, Any], roles: tuple[str, ...], lives: dict[int, Counters], drops: Drops,
        ending: dict[str, Any] | None, away: set[int], lost: set[int],
        holes: Drops | None = None,
    ):  # fmt: skip
        self.away = away
        self.specs, self.replicated, self.roles = layout["roles"], layout["replicated"], len(roles)
        self.mixed = layout.get("copies") == "own"
        self.lives, self.drops, self.ending, self.book = lives, drops, ending, _empty()
        said = ending or {}
        self.lost = lost | {role + incarnation * self.roles for role, incarnation in said.get("lost_lives", ())}
        self.counting = self._counting()
        self.shards = self._shards()
        returned = said.get("returned")
        self.over = None if returned is None else returned["over"]  # reason why later applications are not in the model
        self.model = self.shards if returned is None else self._returned(returned["held"])
        self.holes = {} if layout.get("positions") else drops if holes is None else holes
        self.gone = {number for number, shard in self.shards.items() if shard.gone}
        self.wires = {
            (shard, sender + incarnation * self.roles, step)
            for shard, sender, incarnation, last, count in said.get("in_flight", ())
            for step in range(last - count + 1, last + 1)
        }

    def _counting(self) -> set[int]:
        """The roles that count gradients."""
        leaders: dict[int, int] = {}
        for role, spec in enumerate(self.specs):
            if spec["data"] is not None:
                leaders.setdefault(spec["data"], role)
        return {*leaders.values(), *(life % self.roles for life, c in self.lives.items() if c.computed)}

    def _shards(self) -> dict[int, _Shard]:
        """The shards by number; a lost role that never reported has counted nothing."""
        made: dict[int, _Shard] = {}
        numbers: dict[int, list[int]] = {}
        for n in sorted({*self.lives, *self.lost}):
            numbers.setdefault(n % self.roles, []).append(n)
        for role, spec in enumerate(self.specs):
            if spec["shard"] is None or (self.replicated and role in self.away):  # a replica that left is not counted
                continue
            known = numbers.get(role, [])
            if known:
                counters = {n // self.roles: self.lives.get(n) or Counters() for n in known}
                newest = known[-1] // self.roles
                made[spec["shard"]] = _Shard(counters.pop(newest), counters, newest, known[-1] in self.lost)
        return made

    def _returned(self, held: list[list[Any]]) -> dict[int, _Shard]:
        """The shards as the returned parameters hold them; parameters of another run hold no gradients of this one."""
        if not held:
            return {number: _Shard(Counters()) for number in self.shards}
        made: dict[int, _Shard] = {}
        for number, said in held:
            counters = Counters()
            counters.rounds, counters.eras = said["rounds"], dict(said["eras"])
            counters.applied = {life: [count, last] for life, count, last in said["applied"]}
            made[number] = _Shard(counters, incarnation=said["incarnation"])
        return made

    def made(self) -> dict[str, Any]:
        """The ledger: classifies every gradient of every role instance."""
        for life in sorted(self.lives.keys() | self.lost):
            if life % self.roles in self.counting:
                self._settle_all(life, self.lives.get(life) or Counters())
        book = self.book
        if self.ending is None:
            book["in_flight"], book["missing"] = book["in_flight"] + book["missing"], 0
        book["closes"] = None if self.ending is None else _total(book) == book["computed"]
        return book

    def _settle_all(self, life: int, counter: Counters) -> None:
        incarnation, sender = divmod(life, self.roles)
        now = [shard.reached(life, incarnation, self.replicated) for shard in self.shards.values()]
        reached = [shard.reached(life, incarnation, self.replicated) for shard in self.model.values()]
        drops = self.drops.get((sender, incarnation), {})
        computed = counter.computed
        if life in self.lost or (self.ending is None and computed):  # others may have reported later than this role
            computed = max(computed, 1 + max([*reached, *now], default=-1), 1 + self._last_seen(life, drops))
        if not computed:
            return
        self.book["computed"] += computed
        mine = {**self.drops.get((EVERYONE, incarnation), {}), **drops}
        settled = (max if self.mixed else min)(reached, default=-1) + 1
        self.book["applied"] += settled - sum(step < settled for step in mine)
        released = computed if life in self.lost else counter.released
        for step in [*(step for step in mine if step < settled), *range(settled, computed)]:
            what = self._settle(step, life, reached, now, mine.get(step, {}), released)
            if what:
                self.book[what] += 1

    def _settle(
        self, step: int, life: int, reached: list[int], now: list[int], dropped: dict[int, int], released: int
    ) -> str:  # fmt: skip
        """Category of one gradient that is not simply applied everywhere; "" if it was dropped, which is counted here."""
        incarnation, sender = divmod(life, self.roles)
        everywhere = dropped.get(EVERYONE)
        keys = ((sender, incarnation), (EVERYONE, incarnation))
        holes = next((found for key in keys if (found := self.holes.get(key, {}).get(step))), {})
        applied = [
            step <= last and number not in holes and everywhere is None for number, last in zip(self.model, reached)
        ]
        if self.mixed:  # a gradient that its local replica refused is in no replica, whatever the clocks of the others
            applied = [any(applied) and not dropped]
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
        if self.over is not None and max(now, default=-1) >= step:
            if self.over == REASONS[ROLLED_BACK]:
                return "rolled_back"
            self.book["dropped"][self.over] = self.book["dropped"].get(self.over, 0) + 1
            return ""
        if any(s.reached_before(life, incarnation, self.replicated) >= step for s in self.shards.values()):
            return "rolled_back"
        there = [(number, s, last) for (number, s), last in zip(self.shards.items(), now) if number not in self.gone]
        if (
            step >= released  # not released by its worker
            or any((number, life, step) in self.wires for number, _, _ in there)
            or any(s.now.last_received.get(life, -1) >= step > last for _, s, last in there)
        ):
            return "in_flight"
        restored = any(shard.past for shard in self.shards.values())
        return "lost" if life in self.lost or self.gone or restored else "missing"

    def _last_seen(self, life: int, drops: dict[int, Any]) -> int:
        """The last step of a role instance that others, or its own reports, mention; -1 if none."""
        seen = [c.last_received.get(life, -1) for shard in self.shards.values() for c in (shard.now, *shard.past.values())]
        before = [shard.reached_before(life, life // self.roles, self.replicated) for shard in self.shards.values()]
        return max([*seen, *before, *(step for _, who, step in self.wires if who == life), *drops, -1])


def _earlier(trace: Trace, t: int) -> dict[str, Any]:
    """The ledger as of `t`, from the rows up to then."""
    layout, drops = trace.header["layout"], _drops(trace, t)
    restarted = len(trace.lives) > len(trace.counters)  # rows do not contain the incarnation
    applies, spans = (
        len(table) > 0 and not table.skipped and not table.spilled
        for table in (trace.tables["applies"], trace.tables["spans"])
    )
    counters = _counters_at(trace, t)
    if (
        applies and spans and not restarted
    ):  # of replicas that are mixed: a gradient is one row of the first that holds it
        return _Books(layout, trace.roles, counters, drops, None, absent(trace, t), set()).made()
    book = _empty() | {"in_flight": None, "closes": None}
    book["computed"] = sum(c.computed for c in counters.values()) if spans and not restarted else None
    book["applied"] = last_reported(trace, t)
    for steps in drops.values():
        for shards in steps.values():
            why = next(iter(shards.values()))
            if why == ROLLED_BACK:
                book["rolled_back"] += 1
            else:
                book["dropped"][REASONS[why]] = book["dropped"].get(REASONS[why], 0) + 1
    return book


def _counters_at(trace: Trace, t: int) -> dict[int, Counters]:
    """Counters as of `t`, as far as the ledger needs them: gradients computed, and the last step applied of each sender."""
    found = {role: Counters() for role in range(len(trace.roles))}
    computed = np.array([trace.counters[role].computed if role in trace.counters else 0 for role in found])
    role, phase, end, step = trace.column("spans", "role", "phase", "end", "step")
    later = (phase == COMPUTE) & (end > t)
    np.minimum.at(computed, role[later], step[later])  # the step of a span is the number of gradients computed before it
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


def _total(book: dict[str, Any]) -> int:
    """Number of gradients in all categories of the ledger."""
    places = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    return sum(book[place] for place in places) + sum(book["dropped"].values())


def _drops(trace: Trace, t: int | None = None, until: dict[int, int] | None = None) -> Drops:
    """The reason for every gradient that some shard will never apply, or no longer holds.

    `t`: only rows recorded by then. `until`: {shard: ns}, only rows of each shard recorded by then.
    """
    found: Drops = {}
    rows = np.stack(trace.column("drops", *TABLES["drops"].names), axis=1)
    if t is not None:
        rows = rows[rows[:, 1] <= t]
    for number, time in (until or {}).items():
        rows = rows[(rows[:, 0] != number) | (rows[:, 1] <= time)]
    unheard = [row for _, held in _returned_by(trace) for row in held.get("unheard", ())] if t is None else []
    for shard, _, sender, incarnation, last, count, why in [*rows.tolist(), *unheard]:
        first = last if sender == EVERYONE else last - count + 1  # gradients of all workers in one round have the same step
        for step in range(first, last + 1):
            found.setdefault((sender, incarnation), {}).setdefault(step, {}).setdefault(shard, why)
    return found
