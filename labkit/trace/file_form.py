"""The form of the contents of a trace file, see `labkit.formats`: what the queries, the ledger and the panels rely on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import shown
from ..formats import ArrayForm, Either, Form, Mismatch, Number, check
from .events import Event
from .recorder import Counters
from .schema import CATEGORIES, PHASES, REASONS, RESTORED, TABLES, Column

KIND, FORMAT = "labkit trace", 6
OLDEST = 5  # format that is read, too
ADDED = {"gradient_noise": 6}  # tables that older formats lack
COUNT = Number(0, math.inf, int)
MAYBE = Either(None, int)
SCORE = Either(None, float)
NAMED: Form = {str: object}

SAMPLES: Form = {
    "labels": [float], "classes": MAYBE, "shape": Either(None, (COUNT, COUNT)), "names": Either(None, [str]),
    "features": Either(None, [[float]]),
    "plane": Either(None, {
        "low": (float, float), "high": (float, float), "side": COUNT, "points": [(float, float)], "labels": [float],
    }),
}  # fmt: skip
SHARES: Form = {
    "shares": COUNT, "shared": bool, "first": [COUNT], "classes": COUNT, "names": Either(None, [str]), "counts": [[COUNT]],
}  # fmt: skip
PART = Either(None, (COUNT, COUNT), [(COUNT,) * 5])
HEADER: Form = {
    "problem": {
        "data": str, "batch_size": COUNT, "dtype": Either("float32", "float64"), "timing_only?": bool, "hidden?": [COUNT],
        "partition?": str, "curvature?": (float, float), "options?": NAMED,
        "class_weights?": str, "validation?": Number(0, 1),
        "model?": {"name": str, "options": NAMED, "shapes": {str: [COUNT]}},
    },
    "strategy": {"name": str, "description?": str, "options": NAMED, "usual?": NAMED, "mean_staleness?": SCORE},
    "cluster": {
        "engine": str, "workers": COUNT, "bandwidth?": Either(None, Number(1, math.inf)), "latency?": Number(0, math.inf),
        "compute?": Either(None, str), "pace?": Either(None, str), "server_time?": Either(None, str), "max_workers?": MAYBE,
        "slow?": {str: float},
    },
    "budget": {"updates?": COUNT, "samples?": COUNT, "epochs?": float, "seconds?": float, "accuracy?": SCORE,
               "loss?": float, "patience?": COUNT, "min_delta?": float},
    "seed": int,
    "layout": {
        "roles": [{"name": str, "kind": str, "node": str, "shard": MAYBE, "part": PART, "data": MAYBE}],
        "observed": [str], "replicated": bool, "replication": str, "positions": bool, "groups": {str: [str]},
    },
    "absent?": [str], "layers": [str], "messages": [str],
    "samples?": Either({"none": str}, SAMPLES), "shares?": Either({"none": str}, SHARES), "baseline_accuracy?": SCORE,
}  # fmt: skip
CONTAINED: Form = (
    int,
    {
        "incarnation": COUNT,
        "rounds": COUNT,
        "rounds_by_incarnation": [(COUNT, COUNT)],
        "applied": [(COUNT, COUNT, int)],
        "time": COUNT,
        "partial?": bool,
    },
)
ENDING: Form = Either(
    None,
    {
        "stopped_by": str,
        "why": Either(None, str),
        "time": COUNT,
        "wall_seconds": SCORE,
        "in_flight": [(int, COUNT, COUNT, int, COUNT)],
        "update": MAYBE,
        "samples": MAYBE,
        "loss": SCORE,
        "accuracy": SCORE,
        "parameters_sha256": Either(None, str),
        "lost": [str],
        "lost_instances": [(COUNT, COUNT)],
        "commands": [dict],
        "returned?": Either(None, {"contained": [CONTAINED], "over": Either(*REASONS)}),
    },
)


def _event(plain: object) -> None:
    check(plain, {str: Either(None, bool, int, str, dict, float), "kind": str, "time": int, "recorder": int})
    Event.from_dict(plain)  # type: ignore[arg-type]


EVENTS: Form = [_event]


def _of_counter(value: object) -> Form:
    """Return the form of a counter that is `value` at the start."""
    if isinstance(value, list) and value:
        return (int,) * len(value)
    return {int: int} if isinstance(value, dict) else [int] if isinstance(value, list) else int


COUNTERS: Form = {int: {name: _of_counter(value) for name, value in Counters().to_dict().items()} | {
    "applied": {int: (COUNT, int)}, "hot": [(int, int, int)], "open": Either((Number(0, len(PHASES) - 1, int), int), ()),
}}  # fmt: skip


def tables_of(number: int) -> list[str]:
    """Return the tables of a file of this format."""
    return [name for name in TABLES if ADDED.get(name, OLDEST) <= number]


def about_form(number: int) -> Form:
    tables = tables_of(number)
    return {
        "now": COUNT, "until": [(COUNT, COUNT)], "thinned": COUNT, "spilled": dict.fromkeys(tables, COUNT),
        "skipped": dict.fromkeys(tables, COUNT),
        "columns": {name: tuple(column.name for column in TABLES[name].columns) for name in tables},
    }  # fmt: skip


def table_form(name: str) -> ArrayForm:
    return ArrayForm(TABLES[name].dtype, (None, len(TABLES[name].columns)))


def check_codes(name: str, rows: np.ndarray, roles: int, messages: int, layers: int) -> None:
    """Raise `Mismatch` if rows of a table are not sorted by role, or have codes of no role, message, layer, ... of the run."""
    lengths = {
        "role": roles, "sender": roles, "message": messages, "layer": layers, "phase": len(PHASES), "category": len(CATEGORIES),
        "reason": len(REASONS),
    }  # fmt: skip
    if np.any(np.diff(rows[:, 0]) < 0):
        raise Mismatch(f"table.{name}: its rows are not sorted by role")
    for column, values in zip(TABLES[name].columns, rows.T):
        length = lengths.get(column.unit)
        if length is not None and not np.all(
            (values >= _lowest(column)) & (values < length) & (values == np.floor(values))
        ):
            raise Mismatch(f"table.{name}: its column {column.name} has numbers of no {column.unit} of the run")


def check_names(events: Sequence[Event], roles: Sequence[str]) -> None:
    """Raise `Mismatch` if an event is about, or was recorded by, a role that the run does not have."""
    for i, event in enumerate(events):
        for field in ("name", "peer"):
            if (name := getattr(event, field, None)) and name not in roles:
                raise Mismatch(f"events[{i}].{field} is {shown(name, 60)}, which is no role")
        if not -1 <= event.recorder < len(roles):
            raise Mismatch(f"events[{i}].recorder is {event.recorder}, which is no role")


def _lowest(column: Column) -> int:
    return RESTORED if column.unit == "sender" else 0
