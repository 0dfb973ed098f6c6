"""Encoding of labkit's values as plain JSON: problems, strategies, clusters, distributions, budgets and others.

    lk.Momentum(0.9)  <->  {"lk": "Momentum", "momentum": 0.9}

`from_dict(to_dict(value)) == value`. Only the classes in `CLASSES` are instantiated, and only with fields that they declare, so
no code from a file is executed. User-defined values (arrays, a user's class) cannot be encoded; they are identified by their
name and their fingerprint (`fingerprint`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from .content_digest import content_digest
from .data.partition import PARTITIONS
from .engines.cluster_spec import ClusterSpec
from .engines.commands import Command, Executed, read_entry
from .engines.costs import Costs, Linear, WorkCost
from .engines.distributions import DISTRIBUTIONS, Measured
from .engines.faults import KINDS
from .errors import BadInput, lacks, shown, without_addresses
from .nn.codecs import CODECS
from .nn.compensation import COMPENSATIONS
from .nn.optimizers import OPTIMIZERS
from .nn.schedules import SCHEDULES
from .problem import Problem
from .roles.budget import Budget
from .roles.sparse.placement import PLACEMENTS
from .strategies import STRATEGIES, Strategy

KIND = "lk"
COMMAND = "command"  # the kind of commands and faults, which have their own `to_dict`
MAX_DEPTH = 20  # maximum nesting
NOT_IDENTIFYING = ("description", "in_words", "usual")  # entries of a strategy's description that do not identify it
REGISTRIES: tuple[Mapping[str, type], ...] = (
    STRATEGIES, OPTIMIZERS, SCHEDULES, CODECS, COMPENSATIONS, PLACEMENTS, PARTITIONS, DISTRIBUTIONS,
)  # fmt: skip
OTHERS: tuple[type, ...] = (Problem, ClusterSpec, Budget, Costs, Linear, WorkCost, Measured)
CLASSES: dict[str, type] = {
    kind.__name__: kind for kind in (*OTHERS, *(kind for known in REGISTRIES for kind in known.values()))
}


class NotEncodable(BadInput):
    """A user-defined value cannot be encoded. `name`: the name of its class."""

    def __init__(self, value: Any):
        self.name = type(value).__name__
        super().__init__(f"{shown(value)} was made by hand: it cannot be written down so that it could be made again.")


def to_dict(value: Any) -> Any:
    """Encode `value` as plain JSON. Raises `NotEncodable` if it is or contains a user-defined value."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {KIND: "float", "is": repr(value)}
    if isinstance(value, (tuple, list)):
        return [to_dict(v) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) and k != KIND for k in value):
        return {k: to_dict(v) for k, v in value.items()}
    if isinstance(value, Executed) or (isinstance(value, Command) and type(value) in KINDS.values()):
        return {KIND: COMMAND} | value.to_dict()
    if CLASSES.get(type(value).__name__) is not type(value):
        raise NotEncodable(value)
    return {KIND: type(value).__name__} | {name: to_dict(getattr(value, name)) for name in _fields(type(value))}


def from_dict(plain: Any, depth: int = 0) -> Any:
    """Decode a value encoded by `to_dict`. Lists become tuples. Raises `BadInput` if this labkit has no such class, option or
    value.
    """
    if depth > MAX_DEPTH:
        raise BadInput(f"Values are nested more than {MAX_DEPTH} deep, which labkit does not write.")
    if isinstance(plain, list):
        return tuple(from_dict(v, depth + 1) for v in plain)
    if not isinstance(plain, dict):
        return plain
    kind = plain.get(KIND)
    if kind == COMMAND:
        return read_entry({name: value for name, value in plain.items() if name != KIND}, KINDS)
    values = {name: from_dict(value, depth + 1) for name, value in plain.items() if name != KIND}
    if kind is None:
        return values
    if kind == "float":
        if list(values) != ["is"] or values["is"] not in ("inf", "-inf", "nan"):
            raise BadInput(f"{shown(values)} is not a float; the values that are not finite are inf, -inf and nan.")
        return float(values["is"])
    if not isinstance(kind, str) or kind not in CLASSES:
        raise BadInput(f"There is no {kind} in this labkit: it was written by another version.")
    fields = _fields(CLASSES[kind])
    for name in values:
        if name not in fields:
            raise lacks(kind, "option", name, fields)
    try:
        return CLASSES[kind](**values)
    except TypeError as error:
        raise BadInput(f"{kind} has other options in this labkit: {error}.") from None


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]


# what cannot be encoded -----------------------------------------------------------------------------------------------


def fingerprint(part: Any) -> Any:
    """Return plain values that identify a problem, strategy or cluster: its description, the SHA-256 of a user's data, and a
    digest of all that is a user's code (`code`, with the version of Python, whose bytecode it is).
    """
    known_by = {name: value for name, value in part.describe().items() if name not in NOT_IDENTIFYING}
    if isinstance(part, Problem):
        known_by["sha256"] = _data_digest(part.data)
    if isinstance(part, Problem | Strategy | ClusterSpec):
        values = {name: getattr(part, name) for name in _fields(type(part)) if name != "data"}
        plain = bool | int | float | str | None  # these are in the description
        fields = {name: value for name, value in values.items() if not isinstance(value, plain)}
        python = ".".join(platform.python_version_tuple()[:2])
        known_by["code"] = {"python": python, "sha256": content_digest((type(part), fields))}
    return _as_json(known_by)


def _data_digest(data: Any) -> str | None:
    if data is None or isinstance(data, str):
        return None
    if not isinstance(getattr(data, "x_train", None), np.ndarray):
        return content_digest(data)
    found = hashlib.sha256()
    for values in (data.x_train, data.y_train, data.x_test, data.y_test):
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
