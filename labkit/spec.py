"""The specification of a run: problem, strategy, cluster, budget and fault schedule. It is a value and starts nothing.

JSON (`to_dict`), `run.json` (`labkit.manifest`), the command line (`labkit.cli.options`) and the lab's share text
(`labkit.lab.share_text`) are notations for a `RunSpec`. The strategy, the cluster, the budget and the problem declare its
options, with their names, types, ranges, units and help texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .data import dataset_options
from .engines.cluster_spec import ClusterSpec, check_slow
from .engines.commands import Command, Executed
from .engines.distributions import (
    DISTRIBUTIONS,
    Distribution,
    as_distribution,
    distribution_name,
    distribution_with_mean,
    mean_seconds,
)
from .engines.faults import schedule_faults
from .engines.plan import find_role, make_plan
from .engines.simulated import SimulatedCluster
from .errors import BadInput, nearest, shown
from .options import Option, as_number, check_option, options_of, read_option, write_option
from .plain_values import NotEncodable
from .problem import Problem
from .roles.budget import Budget
from .serialization import fingerprint, from_dict, to_dict
from .strategies import STRATEGIES, AsyncPS, Strategy, strategy_by_name

PARTS = ("strategy", "cluster", "budget", "problem")  # the order in which an option is looked up
KINDS: dict[str, Any] = {  # of the fields of a specification
    "problem": Problem, "strategy": Strategy, "cluster": ClusterSpec, "budget": Budget, "faults": tuple,
}  # fmt: skip
NOT_SHARED = frozenset({"codec", "compensation"})  # options that a strategy does not take over from the one before
FULL_SPEED = "full speed"  # instead of a distribution
PACE = 0.1  # mean seconds of a gradient if it is not known
# two options that no part declares: the mean and the distribution of the time of a gradient
SHORTHANDS = {
    "pace": Option("pace", float, PACE, 0.0, 1e6, unit="s", help="mean time of one gradient"),
    "distribution": Option(
        "distribution",
        str,
        "deterministic",
        choices=(*DISTRIBUTIONS, FULL_SPEED),
        help="distribution of the time of a gradient",
    ),
}


@dataclass(frozen=True)
class RunSpec:
    """The parts of a run. `faults`: the fault schedule, made of faults or of commands with times.

    User-defined parts (strategy, data, cluster) are allowed; `to_dict` encodes them as a name and a fingerprint.
    """

    problem: Problem = field(default_factory=Problem)
    strategy: Strategy = field(default_factory=AsyncPS)
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    budget: Budget = field(default_factory=Budget)
    faults: tuple[Any, ...] = ()

    # reading ----------------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Option]:
        """Return the declarations of all options that `changed` accepts for this specification, except "strategy"."""
        found: dict[str, Option] = {}
        for part in PARTS:
            found |= {name: k for name, k in options_of(getattr(self, part)).items() if name not in found}
        return found | SHORTHANDS

    def value(self, name: str) -> Any:
        """Return the value of the option that `changed` accepts under this name."""
        distribution = self.cluster.compute
        if name == "strategy":
            return strategy_name(self.strategy)
        if name == "data":
            return self.problem.name
        if name == "pace":
            mean = mean_seconds(distribution)
            return PACE if mean is None else mean
        if name == "distribution":
            return FULL_SPEED if distribution is None else distribution_name(distribution) or distribution.describe()
        part, option = self._place(name)
        return getattr(getattr(self, part), option)

    def _place(self, name: str) -> tuple[str, str]:
        """Return the name of the part that declares this option, and the option's name there."""
        for part in PARTS:
            if name in options_of(getattr(self, part)):
                return part, name
        raise nearest("setting", name, ["strategy", *self.options()])

    def _owner(self, part: str) -> str:
        """Return the name of a part for error messages."""
        return str(getattr(self, part).name) if part in ("strategy", "problem") else part

    # changing ---------------------------------------------------------------------------------------------------------

    def changed(self, **options: Any) -> RunSpec:
        """Return a copy with these options, each checked: `spec.changed(strategy="ssp", s=3, workers=8, pace=0.1)`.

        - `strategy`: a name, or a strategy. A strategy given by name takes over the options that it shares with the present
          strategy. The problem is changed if the new strategy needs another one.
        - `data`: another data set; the dtype and the data options are reset.
        - `model`: a model of the user, or None; hidden layers and activation, which it replaces, are reset.
        - `pace`: the mean time of a gradient; the kind of its distribution does not change.
        - `distribution`: the kind of this distribution; its mean does not change.

        Raises `BadInput` if an option is not allowed. `check` tests whether the parts fit together.
        """
        made = self
        if "strategy" in options:
            made = made._with_strategy(options.pop("strategy"))
        data = {name: options.pop(name) for name in ("data", "options") if name in options}
        if data:
            made = replace(made, problem=_with_data(made.problem, **data))
        if "model" in options:
            made = replace(made, problem=_with_model(made.problem, options.pop("model")))
        for name, value in options.items():
            if name in ("pace", "distribution"):
                made = replace(made, cluster=replace(made.cluster, compute=made._distribution(name, value)))
                continue
            part, option = made._place(name)
            whole = getattr(made, part)
            known = options_of(whole)[option]
            if known.type is not object and known.names is None:
                value = check_option(self._owner(part), known, value)
            if name == "slow":
                value = {role: factor for role, factor in check_slow(value).items() if factor != 1}
            made = replace(made, **{part: replace(whole, **{option: value})})
        return made

    def _distribution(self, name: str, value: Any) -> Distribution | None:
        now = self.cluster.compute
        if name == "distribution":
            if value in DISTRIBUTIONS or value == FULL_SPEED:
                return None if value == FULL_SPEED else distribution_with_mean(value, self.value("pace"))
            return as_distribution("distribution", value)
        mean = as_number(value)
        if mean is None:
            return as_distribution("pace", value)
        mean = check_option("cluster", SHORTHANDS["pace"], mean)
        kind = None if now is None else distribution_name(now)
        return distribution_with_mean(kind or "deterministic", mean)

    def _with_strategy(self, wanted: Any) -> RunSpec:
        if isinstance(wanted, Strategy):
            made = wanted
        else:
            kind = strategy_by_name(str(wanted))
            now, its = options_of(self.strategy), options_of(kind)
            shared = {
                name: getattr(self.strategy, name)
                for name in its
                if name in now
                and its[name].type is now[name].type
                and getattr(self.strategy, name) != now[name].default
            }
            made = kind(**{name: value for name, value in shared.items() if name not in NOT_SHARED})
        problem = self.problem
        suits = {name: value for name, value in made.suggested_problem.items() if not _has(problem, name, value)}
        if suits.get("data"):
            problem = _with_data(problem, suits.pop("data"))
        return replace(self, strategy=made, problem=replace(problem, **suits))

    # text -------------------------------------------------------------------------------------------------------------

    def read(self, name: str, text: str) -> Any:
        """Return the value that `text` means for an option: "4" for workers is 4, "none" for clip_norm is None. Raises `BadInput`
        if the text is not allowed.
        """
        if name == "options":
            return self._data_options(text)
        known = self.options().get(name)
        if name in ("strategy", "data", "distribution") or known is None:
            return text
        return read_option("cluster" if name == "pace" else self._owner(self._place(name)[0]), known, text)

    def write(self, name: str) -> str:
        """Return the text that `read` reads as the value of this option. Raises `BadInput` if it is a user-defined object."""
        value = self.value(name)
        if name in ("strategy", "data", "distribution"):
            return str(value)
        if name == "options":
            known = dataset_options(self.problem.name)
            return ",".join(f"{option}:{write_option(known[option], v)}" for option, v in value.items())
        return write_option(self.options()[name], value)

    def _data_options(self, text: str) -> dict[str, Any]:
        """Convert `noise:0.1,arms:3` to `{"noise": 0.1, "arms": 3}`. A part without a colon belongs to the value before it."""
        known = dataset_options(self.problem.data) if isinstance(self.problem.data, str) else {}
        words: dict[str, str] = {}
        last = ""
        for part in filter(None, text.split(",")):
            name, colon, value = part.partition(":")
            if colon:
                last, words[name.strip()] = name.strip(), value
            elif last:
                words[last] += f",{part}"
            else:
                raise BadInput(f"options={shown(text)}: write names and values, as options=noise:0.1,samples:500.")
        return {
            name: read_option(self.problem.name, known[name], value) if name in known else value
            for name, value in words.items()
        }

    # the whole --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `BadInput` if the parts do not fit together, or if they name a role that the run does not have."""
        roles = {role.name: role for role in self.strategy.layout(self.problem, self.cluster).roles}
        for role in self.cluster.slow:
            find_role(role, roles)
        if self.faults:
            plan = make_plan(self.problem, self.strategy, self.cluster, self.budget)
            schedule_faults(self.faults, plan)

    # plain values -----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as values for JSON. A user-defined part becomes `{"custom": name, "fingerprint": ...}`."""
        plain: dict[str, Any] = {}
        for name in ("problem", "strategy", "cluster"):
            part = getattr(self, name)
            try:
                plain[name] = to_dict(part)
            except NotEncodable as own:
                plain[name] = {"custom": own.name, "fingerprint": fingerprint(part)}
        return plain | {"budget": to_dict(self.budget), "faults": [to_dict(fault) for fault in self.faults]}

    @classmethod
    def from_dict(cls, plain: Any) -> RunSpec:
        """Return the specification that `to_dict` has encoded. Raises `BadInput` if this version does not know a name, or if a
        part is user-defined.
        """
        if not isinstance(plain, Mapping) or set(plain) != set(KINDS):
            raise BadInput(f"{shown(plain)} is no specification of a run; one has {', '.join(KINDS)}.")
        for name, said in plain.items():
            if isinstance(said, Mapping) and "custom" in said:
                raise BadInput(
                    f"The {name} is not labkit's own ({said['custom']}): only its name and a fingerprint are known."
                )
        return cls(**{name: decoded_part(name, plain[name]) for name in KINDS})


def decoded_part(name: str, plain: Any) -> Any:
    """Return the part `name` of a specification that `RunSpec.to_dict` has encoded. Raises `BadInput`, which names the part."""
    try:
        made = from_dict(plain)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None
    if not isinstance(made, KINDS[name]) or (
        name == "faults" and not all(isinstance(one, Command | Executed) for one in made)
    ):
        raise BadInput(f"{name}: {shown(made)} is no {name} of a run.")
    return made


# clusters -------------------------------------------------------------------------------------------------------------


def make_cluster(spec: ClusterSpec) -> Any:
    """Return the cluster of this specification. No process is started yet."""
    if spec.virtual_time:
        return SimulatedCluster.of(spec)
    from .engines.dask import DaskCluster

    return DaskCluster.of(spec)


def spec_of(cluster: Any) -> Any:
    """Return the `ClusterSpec` of a cluster. A user's class and a cluster given as a client have none: they are returned."""
    kind = type(cluster)
    if kind is SimulatedCluster:
        return cluster.spec
    if kind.__name__ == "DaskCluster" and kind.__module__.startswith("labkit.engines."):  # does not import Dask
        return cluster.spec if cluster.starts_processes or cluster.spec.scheduler is not None else cluster
    return cluster


def strategy_name(strategy: Strategy) -> str:
    """Return the name of a strategy in the registry; for a user's strategy, its `name`."""
    return next((name for name, kind in STRATEGIES.items() if kind is type(strategy)), strategy.name)


def _has(problem: Problem, name: str, value: Any) -> bool:
    """Return whether the problem already has the `value` of option `name` that a strategy needs."""
    if name == "hidden":
        return problem.model is not None or len(problem.hidden) >= len(value)
    return bool(problem.name == value if name == "data" else getattr(problem, name) == value)


def _with_model(problem: Problem, model: Any) -> Problem:
    known = options_of(problem)
    model = check_option(problem.name, known["model"], model)
    network = {name: known[name].default for name in ("hidden", "activation")}
    return problem if model == problem.model else replace(problem, model=model, **network)


def _with_data(problem: Problem, data: Any = None, options: Mapping[str, Any] | None = None) -> Problem:
    other = data is not None and data != problem.data
    kept = {} if other else problem.options
    return replace(
        problem, data=problem.data if data is None else data, options=kept if options is None else dict(options),
        dtype="" if other else problem.dtype,
    )  # fmt: skip
