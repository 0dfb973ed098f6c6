"""Schema of the trace: tables, columns, and the codes of phases, categories and reasons.

Times are integer nanoseconds of engine time, sizes are bytes, and roles are their indices in the layout. The rows of a table
are all integers or all floats and contain no objects, so a table can be sent between processes as raw bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Activity of a role during a span (column `phase` of `spans`).
PHASES = ("compute", "wait", "apply", "send", "evaluate", "sleep")
COMPUTE, WAIT, APPLY, SEND, EVALUATE, SLEEP = range(len(PHASES))

# Purpose of a message (column `category` of `messages`).
CATEGORIES = ("training", "startup", "evaluation")
TRAINING, STARTUP, EVALUATION = range(len(CATEGORIES))

# Reason why a gradient was not applied (column `why` of `drops`).
REASONS = ("late", "cancelled", "after the end", "unused", "ignored", "refused", "rolled back")
LATE, CANCELLED, AFTER_END, UNUSED, IGNORED, REFUSED, ROLLED_BACK = range(len(REASONS))

ALL = -1  # as a sender: all workers of the run (a row counts one gradient of each); as a shard: every shard
RESTORED = -2  # as a sender in `progress`: this report is the initial state of a restored shard
UNKNOWN = -1  # as a staleness: the weights were of another generation


class Column(NamedTuple):
    """One column of a table.

    `unit`: "ns" of engine time, "bytes", "1" for a count or a ratio, or the kind of a code. The kinds are "role",
    "phase", "category", "reason", "message" and "layer" (each value is an index into a list of names), and "sender" (a
    role, or `ALL`).
    """

    name: str
    unit: str
    help: str


class TableSchema(NamedTuple):
    """The schema of a table of packed rows. All columns have the same `dtype`.

    The first column, `role`, is the role that recorded the row. The recorder does not write this column; the trace adds
    it.
    """

    dtype: type[np.generic]
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a recorder writes, in order: all but `role`."""
        return tuple(column.name for column in self.columns[1:])


def _table(dtype: type[np.generic], *columns: tuple[str, str, str]) -> TableSchema:
    return TableSchema(
        dtype, (Column("role", "role", "the role that recorded the row"), *(Column(*c) for c in columns))
    )


def _evaluations(samples: str) -> TableSchema:
    return _table(
        np.float64,
        ("time", "ns", "when"),
        ("update", "1", "the update that was evaluated"),
        ("loss", "1", f"mean loss over {samples}"),
        ("accuracy", "1", "share of right answers, 0 to 1; NaN for a regression"),
    )


# Every table of a trace, its columns and their units.
TABLES: dict[str, TableSchema] = {
    "spans": _table(
        np.int64,
        ("phase", "phase", "what the role did"),
        ("start", "ns", "when it began"),
        ("end", "ns", "when it was over"),
        ("step", "1", "gradients that the role had computed before; -1 where that says nothing"),
    ),
    "applies": _table(
        np.int64,
        ("shard", "1", "the shard that applied a gradient"),
        ("time", "ns", "when"),
        ("sender", "sender", "the role that computed it"),
        ("step", "1", "its number among the sender's"),
        ("count", "1", "gradients in it"),
        ("samples", "1", "training samples in it"),
        ("staleness", "1", "updates applied since its weights were read; UNKNOWN if they were of another generation"),
        ("version", "1", "updates applied to the shard, this one included"),
    ),
    "messages": _table(
        np.int64,
        ("sender", "sender", "the role that sent it"),
        ("kind", "message", "its class"),
        ("category", "category", "what it was sent for"),
        ("bytes", "bytes", "its payload"),
        ("sent", "ns", "when it was sent"),
        ("received", "ns", "when it was taken"),
    ),
    "progress": _table(
        np.int64,
        ("time", "ns", "when the role reported"),
        ("sender", "sender", "of whose gradients"),
        ("gradients", "1", "gradients applied so far that its shard holds, those included that it was restored with"),
    ),
    "drops": _table(
        np.int64,
        ("shard", "1", "the shard that does not apply it, or ALL"),
        ("time", "ns", "when that was decided"),
        ("sender", "sender", "the role that computed it"),
        ("incarnation", "1", "of the sender"),
        ("step", "1", "the last one's number among the sender's"),
        ("count", "1", "gradients"),
        ("why", "reason", "why it will not be applied"),
    ),
    "norms": _table(
        np.float64,
        ("time", "ns", "when"),
        ("step", "1", "gradients that the role had computed before"),
        ("layer", "layer", "the group of parameters"),
        ("gradient", "1", "Euclidean norm of its gradient"),
        ("weight", "1", "Euclidean norm of its weights"),
    ),
    "gradient_noise": _table(
        np.float64,
        ("time", "ns", "when"),
        ("step", "1", "gradients that the role had computed before; of a server, updates of its shard"),
        ("batches", "1", "gradients of different mini-batches on the same weights"),
        ("samples", "1", "harmonic mean of their numbers of training samples"),
        ("square", "1", "mean of their squared Euclidean norms"),
        ("mean_square", "1", "squared Euclidean norm of their mean"),
    ),
    "evaluations": _evaluations("the held-out samples"),
    "validations": _evaluations("the validation part"),
    "pieces": _table(
        np.int64,
        ("time", "ns", "when a piece of a backward pass was computed: within its span, at the end in virtual time"),
        ("step", "1", "gradients that the role had computed before"),
        ("layer", "layer", "the first of its layers in the order of the forward pass"),
    ),
    "communications": _table(
        np.int64,
        ("number", "1", "which one of its step, as the number of a bucket"),
        ("start", "ns", "when it began"),
        ("end", "ns", "when it was over"),
        ("hidden", "ns", "how long of it the role computed; it was exposed for the rest"),
    ),
}
INTEGER_TABLES = tuple(name for name, table in TABLES.items() if table.dtype is np.int64)

NANO = 1_000_000_000


def seconds(nanoseconds: float) -> float:
    return nanoseconds / NANO


def nanoseconds(seconds: float) -> int:
    """Convert seconds to integer nanoseconds. Times are rounded once, before use, so that schedules are the same on every
    CPU.
    """
    return round(seconds * NANO)
