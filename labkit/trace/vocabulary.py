"""The words of the trace: what a row can say, and in which column it stands.

Times are integer nanoseconds of engine time, sizes are bytes, roles are numbers: their place in the layout. Every row
is integers, or every row is floats; nothing in a table is an object, so a table can cross a process border as raw
bytes.
"""

from __future__ import annotations

import re

# What a role does between two instants (column `phase` of `spans`).
PHASES = ("compute", "wait", "apply", "send", "evaluate", "sleep")
COMPUTE, WAIT, APPLY, SEND, EVALUATE, SLEEP = range(len(PHASES))

# Why a message was sent (column `category` of `messages`).
CATEGORIES = ("training", "startup", "evaluation")
TRAINING, STARTUP, EVALUATION = range(len(CATEGORIES))

# Why a gradient was not applied (column `why` of `drops`).
REASONS = ("late", "cancelled", "after the end", "unused", "ignored", "refused", "rolled back")
LATE, CANCELLED, AFTER_END, UNUSED, IGNORED, REFUSED, ROLLED_BACK = range(len(REASONS))

EVERYONE = -1  # as a sender: one gradient of every worker of the run; as a shard: every shard
UNKNOWN = -1  # as a staleness: the weights were of another generation

# The tables and their columns. `role` is who recorded the row.
INTEGER_TABLES: dict[str, tuple[str, ...]] = {
    "spans": ("phase", "start", "end", "step"),
    "applies": ("shard", "time", "sender", "step", "count", "samples", "staleness", "version"),
    "messages": ("sender", "kind", "category", "bytes", "sent", "received"),
    "progress": ("time", "sender", "gradients"),  # gradients of a sender (EVERYONE: of all) applied so far
    "drops": ("shard", "time", "sender", "incarnation", "step", "count", "why"),
}
FLOAT_TABLES: dict[str, tuple[str, ...]] = {
    "norms": ("time", "step", "layer", "gradient", "weight"),
    "evaluations": ("time", "update", "loss", "accuracy"),
}
TABLES = INTEGER_TABLES | FLOAT_TABLES

NANO = 1_000_000_000


def seconds(nanoseconds: float) -> float:
    """Nanoseconds as seconds."""
    return nanoseconds / NANO


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds: rounded once, before use, so that schedules are the same on every CPU."""
    return round(seconds * NANO)


_SHORT = {"worker": "w", "server": "s", "stage": "st", "replica": "r", "backup": "b"}
_ROLE = re.compile(r"\b(worker|server|stage|replica|backup)-(\d+)\b")


def short(name: str) -> str:
    """`w2` for worker-2, `s0` for server-0; other names as they are."""
    match = _ROLE.fullmatch(name)
    return _SHORT[match[1]] + match[2] if match else name


def shortened(text: str) -> str:
    """`text` with every role name in its short form."""
    return _ROLE.sub(lambda match: short(match[0]), text)
