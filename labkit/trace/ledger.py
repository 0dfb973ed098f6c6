"""The ledger: accounts for every gradient of a run.

A gradient is identified by (sender, incarnation, step). Each gradient is in exactly one category: applied, partly
applied, dropped (with a reason), lost with a node, rolled back by a restore, or in flight. The meaning of "applied"
depends on the relation between the shards (`replication` in `roles.layout.Layout`):

- Parts of one model, or synchronized replicas: a gradient is applied if every shard has applied it, and partly applied if
  only some shards have.
- Local replicas whose mean is the model: a gradient is applied if any replica holds it, because the mean then holds it,
  too, with the weight that mixing gave it. No gradient is partly applied.

Evaluations of a model with an embedding table use only the rows of the held-out samples. If the run ends without a final
evaluation, because a role is lost, the returned parameters have no other trained rows, and their gradients are partly applied.

Gradients in flight are counted, not inferred: they were found on the links and in the inboxes when the run ended, or were
received by a server that had not yet applied them, or were not yet sent by the worker that computed them. If the counts
of all categories do not add up to the number of gradients computed, the ledger does not balance, and reports how many
gradients are missing.

Gradients are counted only by the roles that compute them: the first role of each share of the data (other roles with the
same share, in a split model, work on parts of the same gradients), and any other role that reports computed gradients.
Every incarnation has separate counts.

A lost incarnation sends no last report. Its number of computed gradients is the number that it reported, or the number
that other roles received from it (its pushes, or the rounds completed by members of the same incarnation, since a round
needs every member), whichever is larger. If gradients cannot be accounted for because an incarnation was lost (its own
gradients, and the gradients in flight to its shard), their category is lost. A gradient that the lost incarnation
computed, and that no other process received, is not in the ledger.

A restored shard holds the gradients of its checkpoint and those applied since the restore. All other gradients that its
previous incarnation had applied are rolled back. Strategies that push positions (`positions` in the layout) are an
exception, because a pushed position contains earlier gradients. With these strategies a shard reports, for each role
instance, the step up to which it holds the gradients, and a drop at an earlier step does not count.

The parameters that a run returns are those that the chief has evaluated. Each snapshot of a shard records which gradients
the shard held. When the run ends, a shard may have applied more gradients since the snapshot, or may be lost; on a
cluster, its last applications may not have been reported. The ending of the trace therefore repeats the records of the
snapshots (`returned`), and the ledger of the ended run describes the returned parameters. (In virtual time, `returned` is
recorded only if the shards have changed since the snapshot, or if a synchronized replica that was not evaluated holds
other gradients.) Gradients that a shard applied after its snapshot are dropped ("after the end"), or rolled back if an
error or a loss ended the run.

The ledger as of an earlier time is computed from the rows up to that time. The number in flight is then the remainder, as
in a live run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import BadInput, shown
from ..options import as_number
from .events import RoleLost
from .header import RecordedLayout
from .query import last_reported
from .recorder import Counters
from .role_states import absent
from .schema import ALL, COMPUTE, REASONS, ROLLED_BACK, TABLES
from .trace import Trace, check_trace

Drops = dict[tuple[int, int], dict[int, dict[int, int]]]  # (sender, incarnation) -> step -> shard -> why


def ledger(trace: Trace, t: int | None = None) -> dict[str, Any]:
    """Return what became of every gradient of a run.

    Parameters
    ----------
    trace : Trace
        The trace of the run.
    t : int, optional
        The time in ns as of which the ledger is made. By default the end of the trace.

    Returns
    -------
    dict
        The numbers of gradients: "computed", "applied", "partly_applied" (by some shards only), "dropped" ({reason: number}),
        "lost" (with a role or a message), "rolled_back" (applied, then undone by a loss), "in_flight" and "missing"; and
        "closes", whether the ledger balances, i.e. the numbers of all categories add up to "computed".

    Raises
    ------
    BadInput
        If an argument is not a trace or not a time.

    Notes
    -----
    While the run is live, "closes" is None, because roles report at different times, and "in_flight" is the number of gradients
    that are not in another category. "closes" is also None for an earlier time. If rows are missing or a role was restarted, the
    ledger of an earlier time has "in_flight" None, and its "computed" and "applied" are the last reported values, or None if
    unknown.

    Examples
    --------
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(updates=100)
    >>> run = lk.train("digits", lk.KSync(K=3), cluster, budget).wait()
    >>> book = lk.ledger(run.trace)
    >>> book["applied"], book["dropped"], book["in_flight"], book["closes"]
    (300, {'late': 100}, 0, True)
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
            trace.header.layout, trace.roles, dict(trace.instances), _drops(trace), trace.ending, gone, instances,
            _drops(trace, until=times) if times else None,
        ).build()  # fmt: skip


def _returned_by(trace: Trace) -> list[tuple[int, dict[str, Any]]]:
    """Return [(shard, record of the gradients that its part of the returned parameters holds), ...]."""
    returned = (trace.ending or {}).get("returned") or {"contained": []}
    held: list[tuple[int, dict[str, Any]]] = returned["contained"]
    return held


def _empty() -> dict[str, Any]:
    categories = ("partly_applied", "dropped", "lost", "rolled_back", "in_flight", "missing")
    totals: dict[str, Any] = dict.fromkeys(("computed", "applied", *categories), 0)
    return totals | {"dropped": {}, "closes": False}


@dataclass
class _Shard:
    """Counters of one shard of the model. `now`: those of its newest incarnation. `past`: {number: those of a previous
    incarnation}.
    """

    now: Counters
    past: dict[int, Counters] = field(default_factory=dict)
    incarnation: int = 0
    gone: bool = False  # its newest instance is lost

    def reached(self, instance: int, incarnation: int, replicated: bool) -> int:
        """Return the step of the last gradient of this instance of a sender that the shard holds; -1 if it holds none."""
        return _held(self.now, self.incarnation, instance, incarnation, replicated)

    def reached_before(self, instance: int, incarnation: int, replicated: bool) -> int:
        """Return the same step, the largest over all previous incarnations of the shard; -1 if there is none."""
        return max([_held(c, own, instance, incarnation, replicated) for own, c in self.past.items()], default=-1)


def _held(c: Counters, own: int, instance: int, incarnation: int, replicated: bool) -> int:
    rounds = 0
    if replicated:
        rounds = c.rounds if incarnation == own else c.rounds_by_incarnation.get(incarnation, 0)
    return max(rounds - 1, c.applied.get(instance, (0, -1))[1])


class _LedgerBuilder:
    def __init__(
        self, layout: RecordedLayout, roles: tuple[str, ...], instances: dict[int, Counters], drops: Drops,
        ending: dict[str, Any] | None, absent: set[int], lost: set[int],
        excluded: Drops | None = None,
    ):  # fmt: skip
        self.absent = absent
        self.specs, self.replicated, self.roles = layout.roles, layout.replicated, len(roles)
        self.averaged = layout.replication == "local"
        self.instances, self.drops, self.ending, self.totals = instances, drops, ending, _empty()
        record = ending or {}
        self.lost = lost | {role + incarnation * self.roles for role, incarnation in record.get("lost_instances", ())}
        self.counting = self._counting()
        self.shards = self._shards()
        returned = record.get("returned")
        partial = any(record.get("partial") for _, record in (returned or {"contained": []})["contained"])
        # category of gradients that all shards have applied
        self.held_by_all = "partly_applied" if partial else "applied"
        # reason why later applications are not in the model
        self.overshoot = None if returned is None else returned["over"]
        self.model = self.shards if returned is None else self._returned(returned["contained"])
        self.excluded = {} if layout.positions else drops if excluded is None else excluded
        self.gone = {number for number, shard in self.shards.items() if shard.gone}
        self.in_flight = {
            (shard, sender + incarnation * self.roles, step)
            for shard, sender, incarnation, last, count in record.get("in_flight", ())
            for step in range(last - count + 1, last + 1)
        }

    def _counting(self) -> set[int]:
        leaders: dict[int, int] = {}
        for role, spec in enumerate(self.specs):
            if spec.data is not None:
                leaders.setdefault(spec.data, role)
        return {*leaders.values(), *(instance % self.roles for instance, c in self.instances.items() if c.computed)}

    def _shards(self) -> dict[int, _Shard]:
        """Return {number: shard}. The counters of a lost role that never reported are 0."""
        made: dict[int, _Shard] = {}
        numbers: dict[int, list[int]] = {}
        for n in sorted({*self.instances, *self.lost}):
            numbers.setdefault(n % self.roles, []).append(n)
        for role, spec in enumerate(self.specs):
            if spec.shard is None or (self.replicated and role in self.absent):  # a replica that left is not counted
                continue
            known = numbers.get(role, [])
            if known:
                counters = {n // self.roles: self.instances.get(n) or Counters() for n in known}
                newest = known[-1] // self.roles
                made[spec.shard] = _Shard(counters.pop(newest), counters, newest, known[-1] in self.lost)
        return made

    def _returned(self, held: list[list[Any]]) -> dict[int, _Shard]:
        """Return {number: shard} with the gradients that the returned parameters hold. Parameters of another run hold
        none.
        """
        if not held:
            return {number: _Shard(Counters()) for number in self.shards}
        made: dict[int, _Shard] = {}
        for number, record in held:
            counters = Counters()
            counters.rounds, counters.rounds_by_incarnation = record["rounds"], dict(record["rounds_by_incarnation"])
            counters.applied = {instance: [count, last] for instance, count, last in record["applied"]}
            made[number] = _Shard(counters, incarnation=record["incarnation"])
        return made

    def build(self) -> dict[str, Any]:
        for instance in sorted(self.instances.keys() | self.lost):
            if instance % self.roles in self.counting:
                self._classify_all(instance, self.instances.get(instance) or Counters())
        totals = self.totals
        # a gradient that nobody has reported may still be on its way
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
        dropped_steps = {**self.drops.get((ALL, incarnation), {}), **drops}
        # The model is the mean of local replicas, so one that contains a gradient is enough; of the shards of a model all are
        # needed. Gradients below this step are only counted. The others are few, and are classified one by one.
        applied_below = (max if self.averaged else min)(reached, default=-1) + 1
        self.totals[self.held_by_all] += applied_below - sum(step < applied_below for step in dropped_steps)
        released = computed if instance in self.lost else counter.released
        for step in [*(step for step in dropped_steps if step < applied_below), *range(applied_below, computed)]:
            what = self._classify(step, instance, reached, now, dropped_steps.get(step, {}), released)
            if what:
                self.totals[what] += 1

    def _classify(
        self, step: int, instance: int, reached: list[int], now: list[int], dropped: dict[int, int], released: int
    ) -> str:  # fmt: skip
        """Return the category of one gradient that some shard has not applied. A dropped gradient is counted here, and ""
        is returned.
        """
        incarnation, sender = divmod(instance, self.roles)
        # From what was recorded to what is concluded: applications and drops come first, then applications after the returned
        # parameters and those that a restore has undone, then what may still be on its way. What remains is lost, or missing.
        everywhere = dropped.get(ALL)
        keys = ((sender, incarnation), (ALL, incarnation))
        excluded = next((found for key in keys if (found := self.excluded.get(key, {}).get(step))), {})
        applied = [
            step <= last and number not in excluded and everywhere is None for number, last in zip(self.model, reached)
        ]
        if self.averaged:  # a gradient rejected by its local replica is in no replica, whatever steps the others report
            applied = [any(applied) and not dropped]
        if applied and all(applied):
            return self.held_by_all
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
        """Return the last step of a role instance that occurs in a report of any role or in a drop, or -1 if there is
        none.
        """
        seen = [
            c.last_received.get(instance, -1)
            for shard in self.shards.values()
            for c in (shard.now, *shard.past.values())
        ]
        before = [
            shard.reached_before(instance, instance // self.roles, self.replicated) for shard in self.shards.values()
        ]
        return max([*seen, *before, *(step for _, who, step in self.in_flight if who == instance), *drops, -1])


def _ledger_at(trace: Trace, t: int) -> dict[str, Any]:
    layout, drops = trace.header.layout, _drops(trace, t)
    restarted = len(trace.instances) > len(trace.counters)  # rows do not contain the incarnation
    applies, spans = (
        len(table) > 0 and not table.skipped and not table.spilled
        for table in (trace.tables["applies"], trace.tables["spans"])
    )
    counters = _counters_at(trace, t)
    if (
        applies and spans and not restarted
    ):  # if replicas are mixed, only the first replica that holds a gradient has a row for it
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
    """Return the counters as of `t` that the ledger needs: gradients computed, and the last applied step of each sender."""
    found = {role: Counters() for role in range(len(trace.roles))}
    computed = np.array([trace.counters[role].computed if role in trace.counters else 0 for role in found])
    role, phase, end, step = trace.column("spans", "role", "phase", "end", "step")
    later = (phase == COMPUTE) & (end > t)
    # the step of a span is the number of gradients computed before it
    np.minimum.at(computed, role[later], step[later])
    for number, count in enumerate(computed.tolist()):
        found[number].computed = count
    role, time, sender, step = trace.column("applies", "role", "time", "sender", "step")
    pairs, which = np.unique(np.stack([role, sender], axis=1)[time <= t], axis=0, return_inverse=True)
    last = np.full(len(pairs), -1)
    np.maximum.at(last, which.reshape(-1), step[time <= t])
    for (owner, who), final in zip(pairs.tolist(), last.tolist()):
        if who == ALL:
            found[owner].rounds = final + 1
        else:
            found[owner].applied[who] = [0, final]
    return found


def _total(totals: dict[str, Any]) -> int:
    categories = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    return sum(totals[category] for category in categories) + sum(totals["dropped"].values())


def _drops(trace: Trace, t: int | None = None, until: dict[int, int] | None = None) -> Drops:
    """Return the reason of every drop: of a gradient that some shard will never apply, or no longer holds.

    `t` (ns): use only rows recorded by `t`. `until`: {shard: ns}, use only rows of a shard recorded by that time.
    """
    found: Drops = {}
    rows = np.stack(trace.column("drops", *TABLES["drops"].names), axis=1)
    if t is not None:
        rows = rows[rows[:, 1] <= t]
    for number, time in (until or {}).items():
        rows = rows[(rows[:, 0] != number) | (rows[:, 1] <= time)]
    unheard = [row for _, held in _returned_by(trace) for row in held.get("unreported_drops", ())] if t is None else []
    for shard, _, sender, incarnation, last, count, why in [*rows.tolist(), *unheard]:
        first = last if sender == ALL else last - count + 1  # gradients of all workers in one round have the same step
        for step in range(first, last + 1):
            found.setdefault((sender, incarnation), {}).setdefault(step, {}).setdefault(shard, why)
    return found
