"""The settings of a lab: the specification of the next run, its playback speed, and user-defined objects.

`Settings` is a value: `settings.changed(strategy="ssp", s=3, workers=8, pace=0.1)` returns a changed copy. Controls,
scenarios and share texts use the same names. Raises `BadInput` if a value is not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..engines.base import Cluster
from ..engines.cluster_spec import ClusterSpec, default_workers
from ..engines.dask import DaskCluster
from ..engines.distributions import Deterministic
from ..errors import BadInput, shown
from ..options import Option, check_option, option, options_of, read_option
from ..problem import Problem
from ..roles.budget import Budget
from ..run import Run
from ..spec import NOT_SHARED, PACE, RunSpec, make_cluster, strategy_name
from ..strategies import STRATEGIES, Strategy

# options of processes and of the recording, and `compute`, which is set as "pace" and "distribution"
NOT_SETTINGS = ("compute", "record", "scheduler", "place", "dashboard", "may_kill")
# {setting: the fields of the specification that it sets}, if these are not the one field of the same name
FIELDS = {
    "data": (("problem", "data"), ("problem", "options"), ("problem", "dtype")),
    "pace": (("cluster", "compute"),), "distribution": (("cluster", "compute"),),
    "model": (("problem", "model"), ("problem", "hidden"), ("problem", "activation")),
}  # fmt: skip


def _default() -> RunSpec:
    cluster = ClusterSpec(compute=Deterministic(PACE))
    return RunSpec(Problem("digits", hidden=(64, 32), seed=7), cluster=cluster, budget=Budget(seconds=20))


@dataclass(frozen=True)
class Settings:
    """The settings of a lab. `spec`: the specification of the next run. `own`: user-defined strategies, data sets and
    models, which can be chosen again by their names.

    `replaced`: {(part, field): value} of the fields of the specification that the strategy, the data or the engine has
    replaced; they are restored when it is chosen no longer. `left`: the strategies that were chosen before, the last one of
    each name; when one is chosen again, it has its options again.
    """

    spec: RunSpec = field(default_factory=_default)
    speed: float = option(
        1.0, low=1e-6, high=1e6, help="seconds of virtual time per second at which a simulated run is played"
    )
    own: tuple[Any, ...] = ()
    replaced: Mapping[tuple[str, str], Any] = field(default_factory=dict, compare=False, repr=False)
    left: Mapping[str, Strategy] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        found: list[Any] = [self.strategy] if strategy_name(self.strategy) not in STRATEGIES else []
        found += [self.problem.data] if not isinstance(self.problem.data, str) else []
        found += [self.problem.model] if self.problem.model is not None else []
        known = [name_of(thing) for thing in found]
        object.__setattr__(self, "own", (*(o for o in self.own if name_of(o) not in known), *found))
        if not self.budget.given:
            object.__setattr__(self, "spec", replace(self.spec, budget=self.budget.settled(self.problem)))

    @property
    def problem(self) -> Problem:
        """The problem of the next run."""
        return self.spec.problem

    @property
    def strategy(self) -> Strategy:
        """The strategy of the next run."""
        return self.spec.strategy

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster specification of the next run."""
        return self.spec.cluster

    @property
    def budget(self) -> Budget:
        """The budget of the next run."""
        return self.spec.budget

    def cluster_on(self, processes: DaskCluster | None) -> Any:
        """Return the cluster for the next run: a simulated cluster, or `processes` with these values for the engine
        "dask".
        """
        if self.cluster.virtual_time:
            return make_cluster(self.cluster)
        if processes is None:
            raise BadInput("There is no cluster of processes: the engine dask needs one.")
        return processes.with_spec(self.cluster)

    # by name ----------------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Option]:
        """Return {name: declaration} of every setting except "strategy"."""
        known = self.spec.options() | {"speed": options_of(self)["speed"]}
        return {name: k for name, k in known.items() if name not in NOT_SETTINGS}

    @property
    def names(self) -> tuple[str, ...]:
        """All names that `changed` accepts with the present strategy and data."""
        return ("strategy", *self.options())

    def value(self, name: str) -> Any:
        """Return the value of the setting with this name (see `names`)."""
        return self.speed if name == "speed" else self.spec.value(name)

    def read(self, name: str, text: str) -> Any:
        """Convert `text` to a value of a setting: "4" for workers is 4, "none" for clip_norm is None.

        Raises `BadInput` if the text is not allowed.
        """
        if name == "model" and text in self.own_by_name(name):
            return text
        return read_option("lab", options_of(self)["speed"], text) if name == "speed" else self.spec.read(name, text)

    def changed(self, **settings: Any) -> Settings:
        """Return a changed copy. Raises `BadInput` if a value is not allowed, or if settings do not fit together.

        Settings that the strategy, the data or the engine cannot use are replaced, and restored when another one is chosen,
        unless they were changed in between (see `announcement`). A run without an end gets a time limit of 20 s.
        """
        speed = check_option("lab", options_of(self)["speed"], settings.pop("speed", self.speed))
        for kind in ("strategy", "data", "model"):
            if isinstance(settings.get(kind), str):
                settings[kind] = self.own_by_name(kind).get(settings[kind], settings[kind])
        given = {place for name in settings for place in FIELDS.get(name, ())}
        given |= {(part, name) for part in ("problem", "cluster", "budget") for name in settings}
        # fields of the problem are replaced when a strategy is chosen, the others as long as the reason holds
        due = {
            p: v for p, v in self.replaced.items() if p not in given and (p[0] != "problem" or "strategy" in settings)
        }
        kept = {p: v for p, v in self.replaced.items() if p not in given and p not in due}
        before = _with_fields(self.spec, due)
        chosen = before.changed(**settings)
        named = isinstance(settings.get("strategy"), str)
        spec = _usable(self._with_options_again(chosen, settings) if named else chosen)
        spec.check()
        after = _fields(spec)
        replaced = {p: value for p, value in _fields(before).items() if p not in given and value != after[p]}
        left = {**self.left, strategy_name(self.strategy): self.strategy}
        return replace(self, spec=spec, speed=speed, replaced={**kept, **replaced}, left=left)

    def own_by_name(self, setting: str) -> dict[str, Any]:
        """Return {name: object} of the user-defined values of the setting "strategy", "data" or "model"."""
        return {name_of(own): own for own in self.own if _setting_of(own) == setting}

    def _with_options_again(self, spec: RunSpec, given: Mapping[str, Any]) -> RunSpec:
        """Return a copy in which the strategy has the options that it had when it was chosen last, except those that are given
        and those that it has taken over from the present strategy.
        """
        last = self.left.get(strategy_name(spec.strategy))
        if last is None or last is self.strategy or type(last) is not type(spec.strategy):
            return spec
        shared = options_of(self.strategy).keys() - NOT_SHARED
        own = options_of(last).keys() - shared - given.keys()
        try:
            return replace(spec, strategy=replace(spec.strategy, **{name: getattr(last, name) for name in own}))
        except BadInput:  # they do not fit to an option that was taken over
            return spec


def _fields(spec: RunSpec) -> dict[tuple[str, str], Any]:
    """Return {(part, field): value} of the problem, the cluster and the budget."""
    parts: dict[str, Problem | ClusterSpec | Budget] = {
        "problem": spec.problem,
        "cluster": spec.cluster,
        "budget": spec.budget,
    }
    return {(part, f.name): getattr(whole, f.name) for part, whole in parts.items() for f in fields(whole) if f.init}


def _with_fields(spec: RunSpec, values: Mapping[tuple[str, str], Any]) -> RunSpec:
    """Return a copy with other values of fields, or `spec` if they are not possible any more."""
    try:
        for part in ("problem", "cluster", "budget"):
            mine = {name: value for (owner, name), value in values.items() if owner == part}
            spec = replace(spec, **{part: replace(getattr(spec, part), **mine)}) if mine else spec
    except BadInput:
        return spec
    return spec


def _usable(spec: RunSpec) -> RunSpec:
    """Return a copy without options that the strategy or the data cannot use.

    If the budget is unlimited, it gets a time limit. If simulated gradients take no time, they get the default time.
    """
    cluster, budget = spec.cluster, spec.budget
    if not spec.strategy.uses_servers and (cluster.servers or cluster.replicas):
        cluster = replace(cluster, servers=None, replicas=0)
    if cluster.virtual_time and cluster.compute is None and cluster.costs is None:
        cluster = replace(cluster, compute=Deterministic(PACE))
    if budget.seconds is None and budget.updates is None and budget.samples is None and budget.epochs is None:
        budget = replace(budget, seconds=20.0)
    measured = spec.problem.timing_only or not isinstance(spec.problem.data, str)
    if budget.accuracy is not None and not measured and spec.problem.dataset.classes is None:
        budget = replace(budget, accuracy=None)
    return replace(spec, cluster=cluster, budget=budget)


def name_of(own: Any) -> str:
    """Return the name under which a user-defined strategy, data set or model can be chosen."""
    setting = _setting_of(own)
    return strategy_name(own) if setting == "strategy" else str(own.name) if setting == "data" else shown(own)


def _setting_of(own: Any) -> str:
    return "strategy" if isinstance(own, Strategy) else "data" if hasattr(own, "n_train") else "model"


def initial_settings(
    problem: Problem | str | None,
    strategy: Strategy | str | None,
    cluster: Cluster | None,
    budget: Budget | None,
    run: Run | None,
) -> Settings:
    """Return the initial settings of a lab: those of `run` if it is given, otherwise those of the other arguments, with
    defaults for missing arguments.

    Raises `BadInput` if an argument is not allowed.
    """
    if run is not None and not isinstance(run, Run):
        raise BadInput(f"run={run!r}: give the result of lk.train.")
    if not isinstance(budget, Budget | None):
        raise BadInput(f"budget={budget!r}: give a lk.Budget, as lk.Budget(seconds=20).")
    if run is not None:
        plan = run.plan
        return Settings(RunSpec(plan.problem, plan.strategy, _recorded(run.engine.cluster), plan.budget))
    default = Settings().changed(engine="dask", workers=default_workers("dask"))
    if cluster is not None and not isinstance(cluster, Cluster):
        raise BadInput(f"cluster={cluster!r}: give lk.DaskCluster(workers=4) or lk.SimulatedCluster(workers=4).")
    if problem is not None and not isinstance(problem, Problem):
        problem = Problem(problem)
    spec = default.cluster if cluster is None else _recorded(cluster)
    made = Settings(RunSpec(problem or default.problem, default.strategy, spec, budget or default.budget))
    return made.changed(strategy=strategy) if strategy is not None else made


def _recorded(cluster: Cluster) -> ClusterSpec:
    """Return the specification of a cluster with complete recording, because a lab can show only recorded data."""
    return replace(cluster.spec, record=True)
