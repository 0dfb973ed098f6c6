"""Labels for roles, role states and strategies in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .. import formatting
from ..formatting import short
from ..trace.role_states import Period
from ..trace.trace import Trace

MAX_NAMED = 3  # up to this many roles are named individually
CONDITION_TEXTS = {
    "killed": "is down", "lost": "is lost", "left": "has left", "frozen": "is frozen", "cut off": "is cut off",
}  # the verb phrase of each condition of a role  # fmt: skip


def role_names(trace: Trace, roles: Sequence[int]) -> str:
    """Return the names of roles as text, for example `w1 and w2`. More than three roles are counted: `5 workers`, or `all
    4 workers`.
    """
    if len(roles) <= MAX_NAMED:
        return formatting.listed([_name(trace, role) for role in roles])
    kinds = {trace.kinds[role] for role in roles}
    kind = kinds.pop() if len(kinds) == 1 else "role"
    return f"{'all ' if len(roles) == trace.kinds.count(kind) else ''}{len(roles):,} {kind}s"


def _name(trace: Trace, role: int) -> str:
    return "the chief" if trace.roles[role] == "chief" else short(trace.roles[role])


def states_text(trace: Trace, period: Period) -> str:
    """Describe the roles that are slowed or do not run in a period: `w2 computes 5x slower than the others and w1 is
    down`.
    """
    said = []
    slow = {role: factor for role, factor in sorted(period.slow.items()) if role not in period.unavailable}
    for works in (True, False):  # workers first
        alike = {role: factor for role, factor in slow.items() if (trace.kinds[role] == "worker") == works}
        if alike:
            said.append(_slow(trace, alike, period.since))
    for condition, words in CONDITION_TEXTS.items():
        roles = sorted(role for role, what in period.unavailable.items() if what == condition)
        if roles:
            plural = words.replace("is ", "are ").replace("has ", "have ")
            said.append(f"{role_names(trace, roles)} {words if len(roles) == 1 else plural}")
    return _capitalized(formatting.listed(said, "and"))


def _slow(trace: Trace, slow: dict[int, float], since: int) -> str:
    kinds = {trace.kinds[role] for role in slow}
    verb = "compute" if kinds == {"worker"} else "work"
    one = f"{verb}s"
    factors, than = list(slow.values()), _compared_with(trace, slow, since)
    if len(set(factors)) == 1:
        return (
            f"{role_names(trace, list(slow))} {one if len(slow) == 1 else verb} {formatting.speed(factors[0])} {than}"
        )
    if len(slow) > MAX_NAMED:
        return f"{role_names(trace, list(slow))} {verb} {_range(min(factors), max(factors))} {than}"
    first, *others = [(_name(trace, role), formatting.speed(factor)) for role, factor in slow.items()]
    return (
        formatting.listed([f"{first[0]} {one} {first[1]}", *(f"{name} {times}" for name, times in others)]) + f" {than}"
    )


def _range(least: float, most: float) -> str:
    """Return a range of slowdown factors as text, for example `2x to 5x slower`."""
    if least >= 1:
        return f"{least:g}x to {formatting.speed(most)}"
    return f"{formatting.speed(most)} to {formatting.speed(least)}"


def _compared_with(trace: Trace, slow: dict[int, float], since: int) -> str:
    """Return the end of a comparison of speeds: with other roles of the same work, or with the previous speed of the
    role.
    """
    alike = {i for i, kind in enumerate(trace.kinds) if kind in {trace.kinds[role] for role in slow}}
    shares = [role.data for role in trace.header.layout.roles if role.kind == "worker"]
    if alike > set(slow) and len(set(shares)) == len(shares):
        return "than the others"
    if since:
        return "than before"
    return "than it would" if len(slow) == 1 else "than they would"


def strategy_label(trace: Trace) -> str:
    """Return the label of a strategy before a colon, for example `Asynchronous`. Strategies without a label use their
    name, as `KSync`.
    """
    strategy = trace.header.strategy
    head, colon, _ = strategy.description.partition(":")
    return _capitalized(head) if colon and len(head.split()) <= 2 else strategy.name


def strategy_text(trace: Trace) -> str:
    """Return the description of the strategy (`description` in the header) with its options filled in, or its name if it
    has none.
    """
    strategy = trace.header.strategy
    words = strategy.description or f"{strategy.name}."
    options = strategy.options
    return _capitalized(re.sub(r"\b[A-Z]\b", lambda found: f"{options.get(found[0], found[0])}", words))


def _capitalized(words: str) -> str:
    """Capitalize the first letter, unless the text begins with the short name of a role."""
    return words if re.match(r"[a-z]{1,2}\d+\b", words) else words[:1].upper() + words[1:]
