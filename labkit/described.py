"""labkit's own values as plain JSON, and back: problems, strategies, clusters, laws, budgets, whatever is made of knobs.

    lk.Momentum(0.9)  <->  {"lk": "Momentum", "momentum": 0.9}

Law: `made(described(value)) == value`. Only classes that are listed here are ever made, so reading runs nobody else's code. What
was made by hand (arrays, a class of one's own, a law of one's own) has no description and is refused by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from types import ModuleType
from typing import Any

from . import problem, strategies
from .data import partition
from .engines import faults, laws, simulated
from .errors import BadInput, shown
from .nn import codecs, compensation, optimizers, schedules
from .roles import judge, placement

__all__ = ["NoDescription", "described", "made"]

MODULES: tuple[ModuleType, ...] = (
    problem, strategies, partition, optimizers, schedules, codecs, compensation, placement, judge, laws, faults, simulated,
)  # fmt: skip
KIND = "lk"


class NoDescription(BadInput):
    """A value that somebody made by hand. `name`: of its class."""

    def __init__(self, value: Any):
        self.name = type(value).__name__
        super().__init__(f"{shown(value)} was made by hand: there is no description from which it could be made again.")


def described(value: Any) -> Any:
    """`value` as plain JSON. `NoDescription` if it, or what it is made of, is not labkit's."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {KIND: "float", "is": repr(value)}
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if isinstance(value, dict) and all(isinstance(k, str) and k != KIND for k in value):
        return {k: described(v) for k, v in value.items()}
    if type(value).__name__ == "DaskCluster" and type(value).__module__.startswith("labkit."):
        return _dask(value)
    if type(value) not in _classes().values():
        raise NoDescription(value)
    fields = [f.name for f in dataclasses.fields(value) if f.init]
    return {KIND: type(value).__name__} | {name: described(getattr(value, name)) for name in fields}


def made(plain: Any) -> Any:
    """What `described` described. A list becomes a tuple. `BadInput` if this labkit has no such thing."""
    if isinstance(plain, list):
        return tuple(made(v) for v in plain)
    if not isinstance(plain, dict):
        return plain
    values = {name: made(value) for name, value in plain.items() if name != KIND}
    kind = plain.get(KIND)
    if kind is None:
        return values
    if kind == "float":
        return float(values["is"])
    if kind == "DaskCluster":
        from .engines.dask import DaskCluster

        known: Any = DaskCluster
    else:
        known = _classes().get(kind)
    if known is None:
        raise BadInput(f"There is no {kind} in this labkit: it was written by another version.")
    try:
        return known(**values)
    except TypeError as error:
        raise BadInput(f"{kind} is another one in this labkit: {error}.") from None


def _classes() -> dict[str, type]:
    """What may be made, by name."""
    found = ((name, getattr(module, name)) for module in MODULES for name in module.__all__)
    return {name: thing for name, thing in found if inspect.isclass(thing) and dataclasses.is_dataclass(thing)}


def _dask(cluster: Any) -> dict[str, Any]:
    """A cluster of processes: of labkit's own, or at an address. A client, or its keys, cannot be described."""
    names = [n for n in inspect.signature(type(cluster).__init__).parameters if n[0] != "_" and hasattr(cluster, n)]
    values = {name: described(getattr(cluster, name)) for name in names}
    target = None if cluster.ours else cluster._backend.describe()
    if target is not None and "://" not in target:
        raise NoDescription(cluster)
    return {KIND: "DaskCluster", "target": target} | values
