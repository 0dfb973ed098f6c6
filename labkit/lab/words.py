"""A run in words and exact numbers, beside the pictures: the computed sentence, the numbers, the log. All told from the
trace.

They are what a screen reader reads, and what a person quotes.
"""

from __future__ import annotations

from typing import Any

from ..summary import bytes_text
from ..trace import Trace, ledger, staleness
from ..trace.measures import bytes_sent, staleness_law, time_to_accuracy
from ..trace.vocabulary import NANO
from ..views.marks import factors, short, slowed
from ..views.throughput import STRETCH, rates

__all__ = ["log_lines", "numbers", "sentence", "state"]


def sentence(trace: Trace, t: int | None = None) -> str:
    """What the picture shows: who, how, and what follows from it. `t` in ns."""
    t = trace.watermark() if t is None else t
    strategy, workers = trace.header["strategy"], trace.kinds.count("worker")
    how = strategy.get("in_words") or f"{strategy['name']}."  # a strategy of one's own need not say it
    parts = [f"{workers:,} worker{'s' if workers != 1 else ''}, {how}"]
    parts += _disturbed(trace, t)
    stale, law = staleness(trace)["mean"], staleness_law(trace)
    if stale is None:
        parts.append("No gradient has been applied yet.")
    elif law is None:
        parts.append(f"Mean staleness {stale:.2f}.")
    elif law[0] == 0 and stale == 0:
        parts.append("No gradient is stale.")
    else:
        parts.append(f"Mean staleness {stale:.2f}; the law says {law[1].removeprefix('mean = ')}.")
    return " ".join(parts)


def _disturbed(trace: Trace, t: int) -> list[str]:
    """Who is slow, and what it did to the throughput if it was not so from the start."""
    slow = slowed(trace, t)
    if not slow:
        return []
    if len(slow) > 3:
        return [f"{len(slow)} roles are slowed."]
    who = " and ".join(f"{short(trace.roles[role])} computes {factor:g}x slower" for role, factor in slow.items())
    since = min(factors(trace, t)[role][-1][0] for role in slow)
    lost = _throughput_left(trace, since, t)
    return [f"{who}; throughput is {lost:.0%} of what it was." if lost is not None else f"{who}."]


def _throughput_left(trace: Trace, since: int, t: int) -> float | None:
    """Gradients a second after `since`, over those before; None where one of the two lasted too short to tell."""
    x, before = rates(trace, since - 1)
    settled = since + t // STRETCH  # each rate is counted over the stretch before it
    if since <= NANO // 2 or t - settled < NANO // 2 or not len(x):
        return None
    x, after = rates(trace, t)
    after = after[x >= settled / NANO]
    return float(after.mean() / before[len(before) // 2 :].mean()) if len(after) else None


def numbers(trace: Trace) -> list[tuple[str, str]]:
    """(name, value) of the exact numbers under the pictures, as they are now."""
    book, stale = ledger(trace), staleness(trace)
    found = [("applied", f"{book['applied']:,}"), ("in flight", f"{book['in_flight']:,}")]
    found.append(("dropped", f"{sum(book['dropped'].values()):,}"))
    found += [
        (name.replace("_", " "), f"{book[name]:,}") for name in ("partly_applied", "lost", "rolled_back") if book[name]
    ]
    if trace.ending is not None:
        found.append(
            (
                "ledger",
                {True: "closes ✓", None: "open"}.get(book["closes"], f"DOES NOT CLOSE, {book['missing']:,} missing"),
            )
        )
    if stale["mean"] is not None:
        found.append(("staleness mean", f"{stale['mean']:.2f}, p95 {stale['p95']}, max {stale['max']}"))
    found.append(("sent", bytes_text(sum(n for kinds in bytes_sent(trace).values() for n in kinds.values()))))
    found.append(_time(trace.header["cluster"]))
    return found


def _time(cluster: dict[str, Any]) -> tuple[str, str]:
    """Where a gradient's duration comes from: always said."""
    if cluster["engine"] == "simulated":
        return "simulated", str(cluster.get("compute"))
    pace = cluster.get("pace")
    return ("paced", str(pace)) if pace else ("pace", "none, full speed")


def log_lines(trace: Trace) -> list[str]:
    """What happened, in order: what was done to the run, what it reached, how it ended."""
    with trace.lock:
        marks, ending = list(trace.marks), trace.ending
    found = [(m["time"], m["text"]) for m in marks]
    goal = trace.header["budget"].get("accuracy", 0.95)
    reached = time_to_accuracy(trace, goal)
    if reached is not None:
        found.append((round(reached * NANO), f"accuracy passed {goal:.0%}"))
    if ending is not None:
        found.append(
            (ending["time"], f"the end: {ending['stopped_by']}" + (f", {ending['why']}" if ending.get("why") else ""))
        )
    return [f"{time / NANO:.2f} s {text}" for time, text in sorted(found, key=lambda line: line[0])]


def state(trace: Trace) -> str:
    """`9.6 s` of a run that goes on; `12.0 s, ended: seconds` of one that is over."""
    at = f"{trace.watermark() / NANO:.1f} s"
    return at if trace.ending is None else f"{at}, ended: {trace.ending['stopped_by']}"
