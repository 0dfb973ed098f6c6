"""The sentence above the panels: the roles with a fault, its effect on this run, and its effect on the reference run.

    w2 computes 5x slower than the others. Asynchronous: the others do not wait; throughput fell to 80%. Synchronous
    (reference): all wait for w2; it fell to 20%.

All statements are measured in the trace, so they are correct for every strategy, including user-defined strategies.
Unknown values are left out.
"""

from __future__ import annotations

import math

from .. import formatting
from ..trace.ledger import ledger
from ..trace.overlap import overlap
from ..trace.query import (
    Cumulative,
    FaultEffect,
    expected_staleness,
    fault_effect,
    last_evaluation,
    mean_rate,
    staleness_until,
    time_to_accuracy,
)
from ..trace.role_states import Period, periods, workers_of
from ..trace.trace import Trace
from .labels import role_names, states_text, strategy_label, strategy_text

UNCHANGED = 0.03  # a smaller relative difference of the throughput is not a change
NOT_WAITING = 0.95  # share of time computing above which a role does not wait
MAX_SETTINGS = 2  # settings that are named
ABNORMAL = ("diverged", "error", "deadlock")


def sentence(
    trace: Trace,
    t: int | None = None,
    reference: Trace | None = None,
    counted: tuple[Cumulative, Cumulative] | None = None,
) -> str:
    """Return the sentence for time `t` (ns; None is now), compared with the run `reference`.

    `counted`: a `Cumulative` for this run and one for the reference run, which the caller keeps between calls, so that
    each row is read only once.
    """
    mine, other = counted or (Cumulative(), Cumulative())
    known = trace.watermark()
    t = known if t is None else min(t, known)
    now = periods(trace, t)[-1]
    parts = [_abnormal_end(trace, t)]
    if now.fault_free:
        parts += [_recovered(trace, t, mine), *_fault_free_text(trace, t, mine)]
    else:
        seen = fault_effect(trace, now, t, mine)
        parts += [f"{states_text(trace, now)}.", _effect_text(trace, seen, strategy_label(trace), "throughput")]
    if reference is not None:
        told = not now.fault_free and seen.left is not None
        parts += [
            _reference(trace, now, t, reference, "it" if told else "throughput", other),
            _comparison(trace, t, reference),
        ]
    elif not now.fault_free:
        parts.append(_staleness_text(trace, seen, t))
    else:
        parts.append(_model_text(trace, t))
    return " ".join(part for part in parts if part)


def _abnormal_end(trace: Trace, t: int) -> str:
    """Why the run ended; "" if it ended as usual."""
    ending = trace.ending
    if ending is None or t < ending["time"] or ending["stopped_by"] not in ABNORMAL:
        return ""
    why = (ending.get("why") or "").split("\n", 1)[0].rstrip(".")
    if ending["stopped_by"] == "diverged":
        name = trace.header.strategy.name
        return f"{name} diverged: {why}."
    return f"{why[:1].upper()}{why[1:]}." if why else "The run ended with an error."


def _fault_free_text(trace: Trace, t: int, counted: Cumulative) -> list[str]:
    workers, found = len(workers_of(trace)), periods(trace, t)
    rate = mean_rate(trace, t, counted) if len(found) == 1 else fault_effect(trace, found[-1], t, counted).rate
    count = f"{workers:,} worker" + ("" if workers == 1 else "s")
    parts = [
        f"{count}, {formatting.rate(rate)} gradients per second." if rate is not None else f"{count}.",
        strategy_text(trace),
    ]
    if (overlapped := overlap(trace, t)) is not None:
        parts.append(f"{overlapped.text}.")
    stale, theory = staleness_until(trace, t)["mean"], expected_staleness(trace)
    if stale is None and not rate and not ledger(trace, None if t >= trace.watermark() else t)["applied"]:
        parts.append("No gradient has been applied yet.")
    elif stale == 0:
        replicas = trace.header.layout.replication == "local"  # then only this is counted
        parts.append("No gradient is stale on its own replica." if replicas else "No gradient is stale.")
    elif stale is not None:
        parts.append(f"Mean staleness {stale:,.2f}" + (f" (theory: {theory[1]})." if theory else "."))
    return parts


def _recovered(trace: Trace, t: int, counted: Cumulative) -> str:
    """Return a sentence on the faults that are over, and on the share of its previous value to which the throughput has
    recovered.
    """
    found = periods(trace, t)
    if len(found) < 2:
        return ""
    was, back = found[-2], fault_effect(trace, found[-1], t, counted).left
    one = len(was.roles) == 1
    said = f"{'is' if one else 'are'} back" if was.unavailable else f"{'is' if one else 'are'} back to normal speed"
    more = "" if back is None else f"; throughput is back to {formatting.percent(min(back, 1))}"
    if back is not None and back >= 1 + UNCHANGED:
        more = f"; throughput is {formatting.percent(back)} of what it was before"
    return f"{role_names(trace, was.roles)} {said}{more}."


def _effect_text(trace: Trace, seen: FaultEffect, name: str, subject: str) -> str:
    """Return the effect of the faults as a sentence, for example `Asynchronous: the others do not wait; throughput fell
    to 80%.`
    """
    said = [_waiting_text(trace, seen), _throughput_text(seen, subject)]
    told = "; ".join(part for part in said if part)
    return f"{name}: {told}." if told else strategy_text(trace) if name == strategy_label(trace) else ""


def _waiting_text(trace: Trace, seen: FaultEffect) -> str:
    """Return, as text, whether the other roles wait, and whether they wait for the roles with a fault.

    They wait for these roles if their share of computing time has decreased by about the slowdown factor.
    """
    if seen.busy is None:
        return ""
    if (
        seen.period.slow
        and max(seen.period.slow.values()) < 1
        and seen.own_busy is not None
        and seen.own_busy < NOT_WAITING
    ):
        one = len(seen.period.slow) == 1
        return f"{role_names(trace, list(seen.period.slow))} {'waits' if one else 'wait'} for the others"
    if seen.busy >= NOT_WAITING:
        return "the others do not wait"
    kept = seen.busy / (seen.busy_before or 1.0)
    if kept >= NOT_WAITING:
        return "the others wait no more than before"
    slowest = max(seen.period.slow.values(), default=math.inf) if not seen.period.unavailable else math.inf
    if slowest > 1 and kept <= (1 + 1 / slowest) / 2:
        one = len(seen.period.roles) == 1
        return f"all wait for {role_names(trace, seen.period.roles) if one else 'the slowed roles'}"
    return "the others wait more than before" if seen.busy_before else "the others wait sometimes"


def _throughput_text(seen: FaultEffect, subject: str) -> str:
    """Return, as text, the remaining share of the throughput. For a run without a fault-free period, return the
    throughput.
    """
    if seen.left is None:
        return f"{formatting.rate(seen.rate)} gradients per second" if seen.rate is not None else ""
    if seen.left == 0:
        return "no gradient is applied"
    if abs(seen.left - 1) < UNCHANGED:
        return f"{subject} did not change"
    return f"{subject} {'fell' if seen.left < 1 else 'rose'} to {formatting.percent(seen.left)}"


def _staleness_text(trace: Trace, seen: FaultEffect, t: int) -> str:
    mean, theory = staleness_until(trace, t)["mean"], expected_staleness(trace)
    if seen.stale is None or not mean:
        return ""
    workers = [role for role in seen.period.roles if trace.kinds[role] == "worker"]
    of_whom = role_names(trace, workers) if len(workers) == 1 else "the slowed roles"
    theirs, others = (f"{age:,.0f}" if age >= 99.95 else f"{age:.1f}" for age in seen.stale)
    said = f"Mean staleness is {theirs} for {of_whom}, {others} for the others and {mean:,.2f} for all"
    return said + (f" (theory: {theory[1]})." if theory else ".")


# comparison with the reference run ---------------------------------------------------------------------------------------


def _reference(trace: Trace, now: Period, t: int, reference: Trace, subject: str, counted: Cumulative) -> str:
    """Return a sentence on the effect of the last fault on the reference run.

    Before the first fault of this run, return the throughput of the reference run at the same time.

    `subject`: the quantity that changed, or "it" if the previous sentence names it.
    """
    name, end = _reference_label(trace, reference), reference.watermark()
    last = next((p for p in reversed(periods(reference, end)) if not p.fault_free), None)
    if last is None or (now.fault_free and t < last.since):
        rate = mean_rate(reference, end if last is None else t, counted)
        without = "" if now.fault_free else " without faults"
        return f"{name}: {formatting.rate(rate)} gradients per second{without}." if rate is not None else ""
    same = _by_name(reference, last) == _by_name(trace, now)
    told = _effect_text(reference, fault_effect(reference, last, end, counted), name, subject if same else "throughput")
    if same or not told:
        return told
    return f"{name}: {states_text(reference, last)}; {told.removeprefix(f'{name}: ')}"


def _by_name(trace: Trace, period: Period) -> dict[str, object]:
    """Return {role name: fault}. Names are used because role numbers differ between layouts."""
    return {trace.roles[role]: what for role, what in (period.slow | period.unavailable).items()}


def _reference_label(trace: Trace, reference: Trace) -> str:
    """Return the label of the reference run, for example `Synchronous (reference)`.

    If both runs have the same strategy, the label has the different settings: `The reference run (workers = 8)`.
    """
    if strategy_label(trace) != strategy_label(reference):
        return f"{strategy_label(reference)} (reference)"
    mine, other = _settings(trace), _settings(reference)
    differs = [f"{name} = {value}" for name, value in other.items() if mine.get(name) != value][:MAX_SETTINGS]
    return "The reference run" + (f" ({', '.join(differs)})" if differs else "")


def _settings(trace: Trace) -> dict[str, object]:
    """Return {name: value} of the settings in which two runs of the same strategy can differ."""
    header, cluster, problem = trace.header, trace.header.cluster, trace.header.problem
    shape = {f"{kind}s": trace.kinds.count(kind) for kind in ("worker", "server")}
    of_cluster = {name: getattr(cluster, name) for name in ("latency", "bandwidth", "engine")}
    of_problem = {name: getattr(problem, name) for name in ("data", "batch_size", "partition")}
    return {**shape, **header.strategy.options, **of_cluster, **of_problem, **dict([problem.architecture])}


def _comparison(trace: Trace, t: int, reference: Trace) -> str:
    """Compare both runs in a sentence: `95% accuracy took 5.92 s, reference 11.20 s; mean staleness 3.00, reference 0.`"""
    end = reference.watermark()
    said = [_time_to_target(trace, t, reference, end)]
    mine, other = (staleness_until(run, when)["mean"] for run, when in ((trace, t), (reference, end)))
    if mine is not None and other is not None and (mine or other):
        said.append(f"mean staleness {formatting.decimals(mine)}, reference {formatting.decimals(other)}")
    told = "; ".join(part for part in said if part)
    return f"{told[:1].upper()}{told[1:]}." if told else ""


def _time_to_target(trace: Trace, t: int, reference: Trace, end: int) -> str:
    goal = trace.header.budget.target_accuracy
    here, there = time_to_accuracy(trace, goal, t), time_to_accuracy(reference, goal, end)
    if here is not None and there is not None:
        return f"{100 * goal:g}% accuracy took {here:.2f} s, reference {there:.2f} s"
    same = min(t, end) if here is None else end
    seen, known = last_evaluation(trace, t), last_evaluation(reference, same)
    if seen is None or known is None:
        return ""
    if math.isnan(seen[2]) or math.isnan(known[2]):
        losses = [formatting.number_text(loss) if math.isfinite(loss) else "not finite" for loss in (seen[1], known[1])]
        return f"the loss is {losses[0]}; that of the reference run was {losses[1]} by then"
    if here is not None:
        return f"{100 * goal:g}% accuracy took {here:.2f} s; the reference run came to {known[2]:.0%}"
    later = f" and {100 * goal:g}% after {there:.2f} s" if there is not None else ""
    return f"accuracy is {seen[2]:.0%}; the reference run had {known[2]:.0%} by then{later}"


def _model_text(trace: Trace, t: int) -> str:
    seen, reached = last_evaluation(trace, t), time_to_accuracy(trace, trace.header.budget.target_accuracy, t)
    if seen is None or not math.isfinite(seen[1]):
        return ""
    if reached is not None:
        goal, baseline = trace.header.budget.target_accuracy, trace.header.baseline_accuracy
        constant = f" A constant answer has {baseline:.1%}." if baseline is not None and baseline >= goal else ""
        validation = "validation " if trace.header.problem.validation else ""
        return f"{100 * goal:g}% {validation}accuracy took {reached:.2f} s.{constant}"
    return f"Accuracy {seen[2]:.0%}." if math.isfinite(seen[2]) else f"Loss {formatting.number_text(seen[1])}."
