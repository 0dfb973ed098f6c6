"""The arguments of sweeps, calibrations, forecasts and advice: problems, strategies, clusters and budgets, or their names.

`more`: what else the caller allows, for the error message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..engines.base import Cluster
from ..errors import BadInput, shown
from ..problem import Problem
from ..roles.budget import Budget
from ..strategies import Strategy, strategy_by_name


def as_several(name: str, given: Any, check: Callable[[str, Any, str], Any]) -> list[Any]:
    """Return `given`, one value or several, as a list of checked values."""
    several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    if not several:
        raise BadInput(f"{name}={shown(given)}: give at least one.")
    return [check(name, each, ", or a list of them") for each in several]


def as_problem(name: str, given: Any, more: str = "") -> Problem:
    made = Problem(given) if isinstance(given, str) else given
    if not isinstance(made, Problem):
        raise BadInput(f"{name}={shown(given)}: give a lk.Problem or the name of a data set{more}.")
    return made


def as_strategy(name: str, given: Any, more: str = "") -> Strategy:
    made = strategy_by_name(given)() if isinstance(given, str) else given
    if not isinstance(made, Strategy):
        raise BadInput(f"{name}={shown(given)}: give a lk.Strategy, as lk.SSP(s=1), or its name{more}.")
    return made


def as_cluster(name: str, given: Any, more: str = "") -> Cluster:
    if not isinstance(given, Cluster):
        raise BadInput(f"{name}={shown(given)}: give a lk.SimulatedCluster or a lk.DaskCluster{more}.")
    return given


def as_budget(name: str, given: Any, more: str = "") -> Budget:
    if not isinstance(given, Budget):
        raise BadInput(f"{name}={shown(given)}: give a lk.Budget, as lk.Budget(seconds=60, accuracy=0.95){more}.")
    return given
