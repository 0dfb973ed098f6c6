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
from .schema import COMPUTE, EVERYONE, REASONS, ROLLED_BACK, TABLES
from .trace import Trace, check_trace

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
            return _ledger_at(trace, t)
        gone = absent(trace)
        lost = {(event.name, event.incarnation) for event in trace.events if isinstance(event, RoleLost)}
        instances = {trace.roles.index(name) + number * len(trace.roles) for name, number in lost}
        times = {shard: held["time"] for shard, held in _returned_by(trace)}
        return _LedgerBuilder(
            trace.header["layout"], trace.roles, dict(trace.instances), _drops(trace), trace.ending, gone, instances,
            _drops(trace, until=times) if times else None,
        ).build()  # fmt: skip


def _returned_by(trace: Trace) -> list[tuple[int, dict[str, Any]]]:
    """[(shard, which gradients its part of the returned parameters holds), ...]"""
    returned = (trace.ending or {}).get("returned") or {"held": []}
    held: list[tuple[int, dict[str, Any]]] = returned["held"]
    return held


def _empty() -> dict[str, Any]:
    """A ledger with zero counts."""
    categories = ("partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing")
    totals: dict[str, Any] = dict.fromkeys(("computed", "applied", *categories), 0)
    return totals | {"dropped": {}, "closes": False}


@dataclass
class _Shard:
    """Counters of one shard of the model: `now` of its newest incarnation, `past` of the previous ones, by number."""

    now: Counters
    past: dict[int, Counters] = field(default_factory=dict)
    incarnation: int = 0
    gone: bool = False  # its newest instance is lost

    def reached(self, instance: int, incarnation: int, replicated: bool) -> int:
        """The last step of a sender's instance whose gradient the shard holds."""
        return _held(self.now, self.incarnation, instance, incarnation, replicated)

    def reached_before(self, instance: int, incarnation: int, replicated: bool) -> int:
        """The last step that any of its previous incarnations has held."""
        return max([_held(c, own, instance, incarnation, replicated) for own, c in self.past.items()], default=-1)


def _held(c: Counters, own: int, instance: int, incarnation: int, replicated: bool) -> int:
    rounds = 0
    if replicated:
        rounds = c.rounds if incarnation == own else c.rounds_by_incarnation.get(incarnation, 0)
    return max(rounds - 1, c.applied.get(instance, (0, -1))[1])


class _LedgerBuilder:
    """Computes the ledger from counters, drops and the ending."""

    def __init__(
        self, layout: dict[str, Any], roles: tuple[str, ...], instances: dict[int, Counters], drops: Drops,
        ending: dict[str, Any] | None, absent: set[int], lost: set[int],
        excluded: Drops | None = None,
    ):  # fmt: skip
        self.absent = absent
        self.specs, self.replicated, self.roles = layout["roles"], layout["replicated"], len(roles)
        self.averaged = layout.get("copies") == "own"
        self.instances, self.drops, self.ending, self.totals = instances, drops, ending, _empty()
        record = ending or {}
        self.lost = lost | {role + incarnation * self.roles for role, incarnation in record.get("lost_lives", ())}
        self.counting = self._counting()
        self.shards = self._shards()
        returned = record.get("returned")
        self.overshoot = None if returned is None else returned["over"]  # reason why later applications are not in the model
        self.model = self.shards if returned is None else self._returned(returned["held"])
        self.excluded = {} if layout.get("positions") else drops if excluded is None else excluded
        self.gone = {number for number, shard in self.shards.items() if shard.gone}
        self.in_flight = {
            (shard, sender + incarnation * self.roles, step)
            for shard, sender, incarnation, last, count in record.get("in_flight", ())
            for step in range(last - count + 1, last + 1)
        }

    def _counting(self) -> set[int]:
        """The roles that count gradients."""
        leaders: dict[int, int] = {}
        for role, spec in enumerate(self.specs):
            if spec["data"] is not None:
                leaders.setdefault(spec["data"], role)
        return {*leaders.values(), *(instance % self.roles for instance, c in self.instances.items() if c.computed)}

    def _shards(self) -> dict[int, _Shard]:
        """The shards by number; a lost role that never reported has counted nothing."""
        made: dict[int, _Shard] = {}
        numbers: dict[int, list[int]] = {}
        for n in sorted({*self.instances, *self.lost}):
            numbers.setdefault(n % self.roles, []).append(n)
        for role, spec in enumerate(self.specs):
            if spec["shard"] is None or (self.replicated and role in self.absent):  # a replica that left is not counted
                continue
            known = numbers.get(role, [])
            if known:
                counters = {n // self.roles: self.instances.get(n) or Counters() for n in known}
                newest = known[-1] // self.roles
                made[spec["shard"]] = _Shard(counters.pop(newest), counters, newest, known[-1] in self.lost)
        return made

    def _returned(self, held: list[list[Any]]) -> dict[int, _Shard]:
        """The shards as the returned parameters hold them; parameters of another run hold no gradients of this one."""
        if not held:
            return {number: _Shard(Counters()) for number in self.shards}
        made: dict[int, _Shard] = {}
        for number, record in held:
            counters = Counters()
            counters.rounds, counters.rounds_by_incarnation = record["rounds"], dict(record["eras"])
            counters.applied = {instance: [count, last] for instance, count, last in record["applied"]}
            made[number] = _Shard(counters, incarnation=record["incarnation"])
        return made

    def build(self) -> dict[str, Any]:
        """The ledger: classifies every gradient of every role instance."""
        for instance in sorted(self.instances.keys() | self.lost):
            if instance % self.roles in self.counting:
                self._classify_all(instance, self.instances.get(instance) or Counters())
        totals = self.totals
        if self.ending is None:
            totals["in_flight"], totals["missing"] = totals["in_flight"] + totals["missing"], 0
        totals["closes"] = None if self.ending is None else _total(totals) == totals["computed"]
        return totals

    def _classify_all(self, instance: int, counter: Counters) -> None:
        incarnation, sender = divmod(instance, self.roles)
        now = [shard.reached(instance, incarnation, self.replicated) for shard in self.shards.values()]
        reached = [shard.reached(instance, incarnation, self.replicated) for shard in self.model.values()]
        drops = self.drops.get((sender, incarnation), {})
        computed = counter.computed
        if instance in self.lost or (self.ending is None and computed):  # others may have reported later than this role
            computed = max(computed, 1 + max([*reached, *now], default=-1), 1 + self._last_seen(instance, drops))
        if not computed:
            return
        self.totals["computed"] += computed
        dropped_steps = {**self.drops.get((EVERYONE, incarnation), {}), **drops}
        applied_below = (max if self.averaged else min)(reached, default=-1) + 1
        self.totals["applied"] += applied_below - sum(step < applied_below for step in dropped_steps)
        released = computed if instance in self.lost else counter.released
        for step in [*(step for step in dropped_steps if step < applied_below), *range(applied_below, computed)]:
            what = self._classify(step, instance, reached, now, dropped_steps.get(step, {}), released)
            if what:
                self.totals[what] += 1

    def _classify(
        self, step: int, instance: int, reached: list[int], now: list[int], dropped: dict[int, int], released: int
    ) -> str:  # fmt: skip
        """Category of one gradient that is not simply applied everywhere; "" if it was dropped, which is counted here."""
        incarnation, sender = divmod(instance, self.roles)
        everywhere = dropped.get(EVERYONE)
        keys = ((sender, incarnation), (EVERYONE, incarnation))
        excluded = next((found for key in keys if (found := self.excluded.get(key, {}).get(step))), {})
        applied = [
            step <= last and number not in excluded and everywhere is None for number, last in zip(self.model, reached)
        ]
        if self.averaged:  # a gradient that its local replica refused is in no replica, whatever the clocks of the others
            applied = [any(applied) and not dropped]
        if applied and all(applied):
            return "applied"
        if any(applied):
            return "partly_applied"
        if dropped:
            why = everywhere if everywhere is not None else dropped[min(dropped)]
            if why == ROLLED_BACK:
                return "rolled_back"
            self.totals["dropped"][REASONS[why]] = self.totals["dropped"].get(REASONS[why], 0) + 1
            return ""
        if self.overshoot is not None and max(now, default=-1) >= step:
            if self.overshoot == REASONS[ROLLED_BACK]:
                return "rolled_back"
            self.totals["dropped"][self.overshoot] = self.totals["dropped"].get(self.overshoot, 0) + 1
            return ""
        if any(s.reached_before(instance, incarnation, self.replicated) >= step for s in self.shards.values()):
            return "rolled_back"
        there = [(number, s, last) for (number, s), last in zip(self.shards.items(), now) if number not in self.gone]
        if (
            step >= released  # not released by its worker
            or any((number, instance, step) in self.in_flight for number, _, _ in there)
            or any(s.now.last_received.get(instance, -1) >= step > last for _, s, last in there)
        ):
            return "in_flight"
        restored = any(shard.past for shard in self.shards.values())
        return "lost" if instance in self.lost or self.gone or restored else "missing"

    def _last_seen(self, instance: int, drops: dict[int, dict[int, int]]) -> int:
        """The last step of a role instance that others, or its own reports, mention; -1 if none."""
        seen = [c.last_received.get(instance, -1) for shard in self.shards.values() for c in (shard.now, *shard.past.values())]
        before = [shard.reached_before(instance, instance // self.roles, self.replicated) for shard in self.shards.values()]
        return max([*seen, *before, *(step for _, who, step in self.in_flight if who == instance), *drops, -1])


def _ledger_at(trace: Trace, t: int) -> dict[str, Any]:
    """The ledger as of `t`, from the rows up to then."""
    layout, drops = trace.header["layout"], _drops(trace, t)
    restarted = len(trace.instances) > len(trace.counters)  # rows do not contain the incarnation
    applies, spans = (
        len(table) > 0 and not table.skipped and not table.spilled
        for table in (trace.tables["applies"], trace.tables["spans"])
    )
    counters = _counters_at(trace, t)
    if (
        applies and spans and not restarted
    ):  # of replicas that are mixed: a gradient is one row of the first that holds it
        return _LedgerBuilder(layout, trace.roles, counters, drops, None, absent(trace, t), set()).build()
    totals = _empty() | {"in_flight": None, "closes": None}
    totals["computed"] = sum(c.computed for c in counters.values()) if spans and not restarted else None
    totals["applied"] = last_reported(trace, t)
    for steps in drops.values():
        for shards in steps.values():
            why = next(iter(shards.values()))
            if why == ROLLED_BACK:
                totals["rolled_back"] += 1
            else:
                totals["dropped"][REASONS[why]] = totals["dropped"].get(REASONS[why], 0) + 1
    return totals


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


def _total(totals: dict[str, Any]) -> int:
    """Number of gradients in all categories of the ledger."""
    categories = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    return sum(totals[category] for category in categories) + sum(totals["dropped"].values())


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
