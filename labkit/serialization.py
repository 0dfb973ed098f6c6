"""labkit's values as plain JSON (`plain_values`): problems, strategies, clusters, distributions, budgets and others.

User-defined values (arrays, a user's class) cannot be encoded; they are identified by their name and their fingerprint
(`fingerprint`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .content_digest import code_digest, content_digest
from .data.partition import PARTITIONS
from .engines.cluster_spec import ClusterSpec
from .engines.commands import Command, Executed, read_entry
from .engines.costs import CLASSES as COSTS
from .engines.faults import KINDS
from .errors import shown, without_addresses
from .nn.codecs import CODECS
from .nn.compensation import COMPENSATIONS
from .nn.optimizers import OPTIMIZERS
from .nn.schedules import SCHEDULES
from .plain_values import KIND, field_names, from_plain, to_plain
from .problem import Problem
from .roles.budget import Budget
from .roles.sparse.placement import PLACEMENTS
from .strategies import STRATEGIES, Strategy

COMMAND = "command"  # the kind of commands and faults, which have their own `to_dict`
NOT_IDENTIFYING = ("description", "in_words", "usual")  # entries of a strategy's description that do not identify it
REGISTRIES: tuple[Mapping[str, type], ...] = (
    STRATEGIES, OPTIMIZERS, SCHEDULES, CODECS, COMPENSATIONS, PLACEMENTS, PARTITIONS,
)  # fmt: skip
OTHERS: tuple[type, ...] = (Problem, ClusterSpec, Budget)
CLASSES: dict[str, type] = COSTS | {
    kind.__name__: kind for kind in (*OTHERS, *(kind for known in REGISTRIES for kind in known.values()))
}


def to_dict(value: Any) -> Any:
    """Encode `value` as plain JSON. Raises `NotEncodable` if it is or contains a user-defined value."""
    return to_plain(value, CLASSES, _command_to_plain)


def from_dict(plain: Any) -> Any:
    """Decode a value encoded by `to_dict`. Lists become tuples. Raises `BadInput` if this labkit has no such class, option or
    value.
    """
    return from_plain(plain, CLASSES, {COMMAND: lambda rest: read_entry(rest, KINDS)})


def _command_to_plain(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Executed) or (isinstance(value, Command) and type(value) in KINDS.values()):
        return {KIND: COMMAND} | value.to_dict()
    return None


# what cannot be encoded -----------------------------------------------------------------------------------------------


def fingerprint(part: Any) -> Any:
    """Return plain values that identify a problem, strategy or cluster: its description, the SHA-256 of a user's data, and a
    digest of all that is a user's code (`code`, with the version of Python, whose bytecode it is).
    """
    known_by = {name: value for name, value in part.describe().items() if name not in NOT_IDENTIFYING}
    if isinstance(part, Problem):
        known_by["sha256"] = _data_digest(part.data)
    if isinstance(part, Problem | Strategy | ClusterSpec):
        values = {name: getattr(part, name) for name in field_names(type(part)) if name != "data"}
        plain = bool | int | float | str | None  # these are in the description
        fields = {name: value for name, value in values.items() if not isinstance(value, plain)}
        known_by["code"] = code_digest((type(part), fields))
    return _as_json(known_by)


def _data_digest(data: Any) -> str | None:
    if data is None or isinstance(data, str):
        return None
    if not isinstance(getattr(data, "x_train", None), np.ndarray):
        return content_digest(data)
    found = hashlib.sha256()
    for values in (*data.training, data.x_test, data.y_test):
        found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()


def _as_json(value: Any) -> Any:
    """Return `value` encoded as JSON and decoded again. Memory addresses are removed from the text of objects."""
    return json.loads(without_addresses(json.dumps(value, default=str)))


def difference(one: Any, other: Any, path: str = "") -> str:
    """Return the first difference between two plain values as text: "seed 0 instead of 1"."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(k for k in other if k not in one)]:
            if one.get(key) != other.get(key):
                return difference(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    return f"{path} {shown(one)} instead of {shown(other)}"
