"""What the next run will be: problem, strategy, the shape of the cluster, and when it stops. A value; changing it makes
another.

A `Setup` is changed by the names that controls, stories and codes use: `setup.changed(strategy="ssp", s=3, workers=8,
pace=0.1)`. What is not allowed is refused there, in words, and the setup stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..engines.cluster_spec import check_slow
from ..engines.dask import DaskCluster
from ..engines.laws import (
    Deterministic,
    Exponential,
    Law,
    LogNormal,
    Pareto,
    ShiftedExponential,
    Uniform,
    as_law,
    law_by_name,
)  # fmt: skip
from ..engines.parts import find_role
from ..errors import BadInput, nearest
from ..knobs import check_knob, knobs_of
from ..problem import Problem
from ..roles.judge import Budget
from ..strategies import STRATEGIES, AsyncPS, Strategy, strategy_by_name
from .shape import ENGINES, Shape

__all__ = ["ENGINES", "LAWS", "Setup", "Shape", "law_of", "mean_of", "name_of"]

FULL_SPEED = "full speed"
LAWS: dict[str, Any] = {
    "deterministic": Deterministic,
    "lognormal": lambda mean: LogNormal(mean, 0.5),
    "uniform": lambda mean: Uniform(0.5 * mean, 1.5 * mean),
    "exponential": Exponential,
    "shifted-exponential": lambda mean: ShiftedExponential(mean / 2, mean / 2),
    "pareto": lambda mean: Pareto(mean * 1.5 / 2.5, 2.5),
    FULL_SPEED: lambda mean: None,
}
_KINDS = {
    Deterministic: "deterministic", LogNormal: "lognormal", Uniform: "uniform", Exponential: "exponential",
    ShiftedExponential: "shifted-exponential", Pareto: "pareto", type(None): FULL_SPEED,
}  # fmt: skip


def mean_of(law: Law | None) -> float:
    """Mean seconds of one draw; 0.1 of no law, and of one whose mean is infinite or not known by a formula."""
    match law:
        case Deterministic():
            return law.seconds
        case Exponential() | LogNormal():
            return law.mean
        case Uniform():
            return (law.low + law.high) / 2
        case ShiftedExponential():
            return law.shift + law.mean
        case Pareto() if law.alpha > 1:
            return law.minimum * law.alpha / (law.alpha - 1)
    return 0.1


def law_of(kind: str, mean: float) -> Law | None:
    """The law of this kind with this mean (seconds); None for "full speed"."""
    if kind not in LAWS:
        raise nearest("law of time", kind, LAWS)
    made: Law | None = LAWS[kind](mean)
    return made


def kind_of(law: Law | None) -> str:
    """The name of a law in `LAWS`; of a law that has none there, its own description."""
    return _KINDS.get(type(law)) or (law.describe() if law is not None else FULL_SPEED)


@dataclass(frozen=True)
class Setup:
    """See the module. `speed`: seconds of virtual time a second at which a simulated run is played. `own`: a strategy and
    data that somebody made by hand, which can be chosen again by their names.
    """

    problem: Problem = field(default_factory=lambda: Problem("digits", hidden=(64, 32), seed=7))
    strategy: Strategy = field(default_factory=AsyncPS)
    shape: Shape = field(default_factory=Shape)
    budget: Budget = field(default_factory=lambda: Budget(seconds=20))
    speed: float = 1.0
    own: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        found = [self.strategy] if strategy_name(self.strategy) not in STRATEGIES else []
        found += [self.problem.data] if not isinstance(self.problem.data, str) else []
        known = [name_of(thing) for thing in found]
        object.__setattr__(self, "own", (*(o for o in self.own if name_of(o) not in known), *found))
        if not self.budget.given:
            object.__setattr__(self, "budget", self.budget.settled(self.problem))

    # reading ----------------------------------------------------------------------------------------------------------

    def value(self, name: str) -> Any:
        """The value of a setting, under the name by which `changed` takes it."""
        own = {
            "strategy": strategy_name(self.strategy), "data": self.problem.name, "pace": mean_of(self.shape.compute),
            "law": kind_of(self.shape.compute), "speed": self.speed,
        }  # fmt: skip
        if name in own:
            return own[name]
        for part in (self.strategy, self.shape, self.budget, self.problem):
            if hasattr(part, name) and name in _names_of(part):
                return getattr(part, name)
        raise nearest("setting", name, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that `changed` takes now."""
        parts = (self.strategy, self.shape, self.budget, self.problem)
        return ("pace", "law", "speed", "strategy", *(name for part in parts for name in _names_of(part)))

    def cluster(self, dask: DaskCluster | None) -> Any:
        """The cluster to run on. A strategy without servers is not given any."""
        return self.shape.cluster(dask)

    def check(self) -> None:
        """Raise `BadInput` if these do not fit together, as the start of a run would."""
        paper = replace(self.shape, engine="simulated").cluster(None)
        layout = self.strategy.layout(self.problem, paper)
        names = {role.name: role for role in layout.roles}
        for role in self.shape.slow:
            find_role(role, names)

    # changing ---------------------------------------------------------------------------------------------------------

    def changed(self, **settings: Any) -> Setup:
        """The setup with these settings, checked as a whole: `BadInput` if they cannot be, or do not fit together."""
        made = self
        if "strategy" in settings:
            made = made._with_strategy(settings.pop("strategy"))
        data = {name: settings.pop(name) for name in ("data", "options") if name in settings}
        if data:
            hand_made = {name_of(o): o for o in self.own if not isinstance(o, Strategy)}
            if isinstance(data.get("data"), str):
                data["data"] = hand_made.get(data["data"], data["data"])
            made = replace(made, problem=_with_data(made.problem, **data))
        for name, value in settings.items():
            made = made._with(name, value)
        made = made._tidy()
        made.check()
        return made

    def _with(self, name: str, value: Any) -> Setup:
        if name == "speed":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e6:
                raise BadInput(f"speed={value!r}: seconds of virtual time a second, more than 0.")
            return replace(self, speed=float(value))
        if name in ("pace", "law", "compute"):
            return replace(self, shape=replace(self.shape, compute=self._law(name, value)))
        for part in ("strategy", "shape", "budget", "problem"):
            whole = getattr(self, part)
            if name in _names_of(whole):
                return replace(self, **{part: replace(whole, **{name: _fitting(part, whole, name, value)})})
        raise nearest("setting", name, self.names)

    def _law(self, name: str, value: Any) -> Law | None:
        if name == "law" and value in LAWS:
            return law_of(value, mean_of(self.shape.compute))
        if name == "pace" and isinstance(value, (int, float)) and not isinstance(value, bool):
            kind = kind_of(self.shape.compute)
            return law_of("deterministic" if kind in (FULL_SPEED, "measured") else kind, float(value))
        return law_by_name(value) if isinstance(value, str) else as_law(name, value)

    def _with_strategy(self, wanted: Any) -> Setup:
        """Another strategy: it takes over what it can (rate, optimizer, ...), and the problem gets what it needs."""
        wanted = next((o for o in self.own if isinstance(o, Strategy) and name_of(o) == wanted), wanted)
        if isinstance(wanted, Strategy):
            made = wanted
        else:
            kind = strategy_by_name(str(wanted))
            now, its = knobs_of(self.strategy), knobs_of(kind)
            shared = {
                name: getattr(self.strategy, name)
                for name in its
                if name in now
                and its[name].type is now[name].type
                and getattr(self.strategy, name) != now[name].default
            }
            shared = {name: value for name, value in shared.items() if name not in ("codec", "compensation")}
            made = kind(**shared)
        problem = self.problem
        suits = {name: value for name, value in made.suits.items() if not _has(problem, name, value)}
        if suits.get("data"):
            problem = _with_data(problem, suits.pop("data"))
        return replace(self, strategy=made, problem=replace(problem, **suits))

    def _tidy(self) -> Setup:
        """Without what the strategy cannot use, and without what nobody could see the end of."""
        made = self
        shape = made.shape
        if not made.strategy.uses_servers and (shape.servers or shape.replicas):
            shape = replace(shape, servers=None, replicas=0)
        if shape.engine == "simulated" and shape.compute is None:
            shape = replace(shape, compute=Deterministic(0.1))
        limit = made.budget
        if limit.seconds is None and limit.updates is None and limit.samples is None and limit.epochs is None:
            limit = replace(limit, seconds=20.0)
        accuracy_is_none = made.problem.timing_only or not isinstance(made.problem.data, str)
        if limit.accuracy is not None and not accuracy_is_none and made.problem.dataset.classes is None:
            limit = replace(limit, accuracy=None)
        return replace(made, shape=shape, budget=limit)


def strategy_name(strategy: Strategy) -> str:
    """The strategy's name in the registry; of one's own, its class's name."""
    return next((name for name, kind in STRATEGIES.items() if kind is type(strategy)), strategy.name)


def name_of(own: Any) -> str:
    """Under which name a strategy or data of one's own can be chosen."""
    return strategy_name(own) if isinstance(own, Strategy) else str(own.name)


def _names_of(part: Any) -> tuple[str, ...]:
    """The settings of one part of a setup."""
    if isinstance(part, Strategy):
        return tuple(knobs_of(part))
    hidden = {"compute", "record", "timing_only"} if isinstance(part, Shape) else {"dtype"}
    return tuple(f.name for f in fields(part) if f.name not in hidden)


def _fitting(part: str, whole: Any, name: str, value: Any) -> Any:
    """A value as the part keeps it: a number that came as 4.0 for a whole number is 4; text is read by the part itself."""
    if name == "slow":
        return {role: factor for role, factor in check_slow(value).items() if factor != 1}
    if name == "server_time":
        return as_law(name, value)
    known = knobs_of(whole).get(name)
    if known is not None and known.type is not object:
        owner = whole.name if part in ("strategy", "problem") else {"shape": "cluster", "budget": "stop rule"}[part]
        return check_knob(owner, known, value)
    return value


def _has(problem: Problem, name: str, value: Any) -> bool:
    """Whether a problem has already got what a strategy needs to be tried."""
    if name == "hidden":
        return len(problem.hidden) >= len(value)
    return bool(problem.name == value if name == "data" else getattr(problem, name) == value)


def _with_data(problem: Problem, data: Any = None, options: Mapping[str, Any] | None = None) -> Problem:
    """The problem with other data; the dtype is that of the data again, options of other data are dropped."""
    other = data is not None and data != problem.data
    kept = {} if other else problem.options
    return replace(
        problem, data=problem.data if data is None else data, options=kept if options is None else dict(options),
        dtype="" if other else problem.dtype,
    )  # fmt: skip
