"""Random runs with random commands: one generator, which draws every option of clusters and strategies and every command.

`schedule(seed)` is a run of one strategy (in turn) on a drawn cluster, and the commands of its fault schedule. What can be drawn
is read from the declarations: the fields of the command classes, and the options of clusters and strategies. An option that is
declared later is drawn without a change here. The range of a number is its declared one, up to `CAPS`, which keep the tests
short; `FIXED` lists what is not drawn, with the reason. The same seed gives the same schedule on every machine.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import labkit as lk
from labkit.engines.commands import EVERY, Command
from labkit.engines.costs import Costs
from labkit.engines.faults import KINDS, schedule_faults
from labkit.engines.plan import Plan, make_plan
from labkit.options import Option, options_of
from labkit.strategies import STRATEGIES

DENSE = {"hidden": (8,) * 5, "batch_size": 8}
GRADIENT_S, WORK_S = 0.02, 0.001  # mean times of a gradient and of a server's work

FIXED: dict[str, str] = {  # of options and commands: why they are not drawn
    "record": "without a record there is nothing to compare",
    "learning_rate": "a run that diverges ends before its faults",
    "hidden": "a property of the problem",
    "stop": "the tests stop the runs",
    "pause": "virtual time does not pass by itself",
    "resume": "virtual time does not pass by itself",
    "set": "learning rates are fixed",
    "inject": "the drawn commands are injected",
    "end": "part of a temporary fault",
}
# The highest drawn values of numbers. Times (s) are of the order of a run's length.
CAPS: dict[str, float] = {
    "workers": 6, "servers": 3, "max_workers": 8, "cores": 3, "latency": 0.05, "heartbeat_timeout": 2.0, "restart_after": 0.8,
    "checkpoint_every": 5.0, "checkpoint_time": 0.05, "evaluation_time": 0.05, "eval_every": 100, "clip_norm": 1.0,
    "weight_decay": 0.01, "seconds": 0.3, "factor": 20.0, "rate": 3.0,
}  # fmt: skip
FLOORS = {
    "heartbeat_timeout": 0.05,
    "checkpoint_every": 0.02,
    "factor": 0.1,
    "rate": 0.1,
    "bandwidth": 1e6,
    "clip_norm": 0.01,
}
OTHER_INTEGERS = 6  # the cap of other integers

# Options that change the form of a gradient, so that it is no mark in the parameters (`indicator`).
FORM = (
    "optimizer", "schedule", "weight_decay", "clip_norm", "codec", "compensation", "staleness_aware", "reduce", "beta", "rho",
)  # fmt: skip


FIRST_SEEDS = (
    400  # schedules that do not change when there are more strategies or commands; from this seed on all are drawn
)
NEWER = {"bucketed-all-reduce", "limit"}


@dataclasses.dataclass(frozen=True)
class Schedule:
    """One run and its commands. `shape`: the options of the cluster; `real`: whether it is for processes."""

    seed: int
    problem: lk.Problem
    strategy: Any
    shape: dict[str, Any]
    budget: lk.Budget
    faults: tuple[Command, ...]

    def __str__(self) -> str:
        declared = options_of(self.strategy).items()
        options = {
            name: getattr(self.strategy, name) for name, one in declared if getattr(self.strategy, name) != one.default
        }
        budget = {"updates": self.budget.updates, "seconds": self.budget.seconds}
        faults = " ".join(fault.text() for fault in self.faults)
        return f"{self.seed}: {self.strategy.name} {options} {self.shape} {budget} {faults}"


def schedule(seed: int, marks: bool = False) -> Schedule:
    """The schedule with this number. `marks`: with the default values of the options in `FORM`."""
    rng = random.Random(f"schedule {seed}")
    names = sorted(STRATEGIES.keys() - NEWER if seed < FIRST_SEEDS else STRATEGIES)
    kind = STRATEGIES[names[seed % len(names)]]  # strategies in turn
    suggested = kind.suggested_problem
    problem = lk.Problem(suggested["data"], batch_size=8) if "data" in suggested else lk.Problem("moons", **DENSE)
    updates = rng.choice([20, 40] if "data" in suggested else [30, 80, 150])
    budget = lk.Budget(updates=updates, seconds=rng.uniform(0.5, 5.0) if rng.random() < 0.2 else None)
    for strategy, shape in candidates(rng, kind, marks):
        try:
            plan = make_plan(problem, strategy, lk.SimulatedCluster(**shape).spec, budget, seed)
        except lk.BadInput:  # options that do not fit each other
            continue
        return Schedule(seed, problem, strategy, shape, budget, random_commands(rng, plan, shape))
    raise AssertionError(kind)


def candidates(rng: random.Random, kind: Any, marks: bool) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Strategies and clusters, which may not fit each other; the later ones have fewer options that are not the default."""
    for attempt in range(400):
        rare = 0.5 * 0.99**attempt
        shape = drawn_options(rng, lk.SimulatedCluster, rare)
        if shape.get("max_workers") is not None:
            shape["max_workers"] = max(shape["max_workers"], shape["workers"])
        if "worker-1" in shape.get("slow", ()) and shape["workers"] == 1:
            del shape["slow"]
        options = {
            name: value for name, value in drawn_options(rng, kind, rare).items() if not (marks and name in FORM)
        }
        try:
            yield kind(**options), shape
        except lk.BadInput:
            continue


# options --------------------------------------------------------------------------------------------------------------


def drawn_options(rng: random.Random, kind: Any, rare: float) -> dict[str, Any]:
    """Values of the options of a class. `rare`: the probability that an option is drawn; the others have their defaults. The
    times of a gradient, the numbers of roles and the reaction to losses are always drawn."""
    always = ("compute", "workers", "servers", "heartbeat_timeout", "restart_after", "on_loss")
    return {
        name: drawn_value(rng, name, declared)
        for name, declared in options_of(kind).items()
        if name not in FIXED and (rng.random() < rare or name in always)
    }


def drawn_value(rng: random.Random, name: str, declared: Option) -> Any:
    """A value of one option: None if it is optional, an end of its range, or anything in between."""
    if name in ("compute", "server_time"):
        return drawn_distribution(rng, GRADIENT_S if name == "compute" else WORK_S)
    if name == "slow":
        return {f"worker-{rng.choice([0, 0, 1])}": math.exp(rng.uniform(math.log(0.2), math.log(20)))}
    if name == "costs":
        return Costs(cores=rng.randint(1, 4), hosts=1, background=rng.choice([0.0, 0.1]))
    if name == "shape":  # of a hybrid: stages or pieces, and copies
        return rng.choice(["1x2", "2x1", "2x2", "2x3", "3x2"])
    if declared.optional and rng.random() < 0.2:
        return None
    if declared.choices:
        return rng.choice(declared.choices)
    if declared.names:
        return drawn_object(rng, declared)
    if declared.type is bool:
        return rng.random() < 0.5
    if declared.type in (int, float):
        return drawn_number(rng, name, declared)
    return declared.default


def drawn_number(rng: random.Random, name: str, declared: Option) -> float:
    """A number of the declared range, up to `CAPS`: an end of it, or a number whose logarithm is uniform."""
    low = max(declared.low or 0.0, FLOORS.get(name, 0.0))
    high = min(math.inf if declared.high is None else declared.high, CAPS.get(name, math.inf))
    if declared.type is int:
        return rng.randint(int(low), int(min(high, CAPS.get(name, OTHER_INTEGERS))))
    if rng.random() < 0.2:
        return low if rng.random() < 0.5 or (math.isinf(high) and name != "bandwidth") else high
    ends = max(low, 1e-4), high if high < 1e6 else max(low, 1e-4) * 100
    return math.exp(rng.uniform(*map(math.log, ends)))


def drawn_distribution(rng: random.Random, mean: float) -> lk.Distribution:
    """A distribution of times with about this mean. Every class is drawn."""
    made = [
        lk.distributions.Deterministic(mean),
        lk.distributions.Exponential(mean),
        lk.distributions.LogNormal(mean, 0.8),
        lk.distributions.ShiftedExponential(mean / 2, mean / 2),
        lk.distributions.Uniform(mean / 2, 1.5 * mean),
        lk.distributions.Pareto(mean / 2, 2.0),
    ]
    return rng.choice(made)


def drawn_object(rng: random.Random, declared: Option) -> Any:
    """The text of an object, with its default arguments or with a number, where it needs one."""
    name = rng.choice(list(declared.names))
    for text in (name, f"{name}:0.1", f"{name}:4", f"{name}:10:0.5"):
        try:
            return declared.read(text) if declared.read is not None else text
        except lk.BadInput:
            continue
    return declared.default


# commands -------------------------------------------------------------------------------------------------------------


def random_commands(
    rng: random.Random, plan: Plan, shape: Mapping[str, Any], real: bool = False
) -> tuple[Command, ...]:
    """Commands that fit a plan. `real`: for processes, whose runs have begun at 0.1 s, and whose roles come back."""
    span = rng.choice([0.01, 0.5, 2.0])
    drawn = [kind for word, kind in KINDS.items() if real or plan.seed >= FIRST_SEEDS or word not in NEWER]
    made: list[Command] = []
    for _ in range(rng.choice([1, 1, 2, 3] if real else [1, 2, 3, 4, 6, 9])):
        at = rng.choice([0.0, rng.uniform(0, 0.003), rng.uniform(0, span), rng.uniform(0, span)]) + 0.1 * real
        if made and rng.random() < 0.5:  # when the last command has an effect, or just after that
            at = made[-1].at + rng.choice([0.0, 1e-4, 0.5, 0.999, 1.0, 1.001, 1.5]) * related_time(rng, shape)
        names = list(plan.role_ids)
        roles = rng.sample(names, len(names))
        if made and rng.random() < 0.4:  # of the same role
            same = getattr(made[-1], "role", getattr(made[-1], "a", None))
            roles.sort(key=lambda role: role != same)
        command = drawn_command(rng, rng.choice(drawn), roles, round(at, 4), shape)
        many = [command]
        if (
            rng.random() < 0.15
            and hasattr(command, "role")
            and dataclasses.is_dataclass(command)
            and hasattr(command, "at")
        ):
            kinds = rng.choice(["worker", "server", ""])
            many = [_of_role(command, role) for role in names if role.startswith(kinds)]
        made += [one for one in many if one is not None and _fits(one, plan, real)]
    return tuple(made)


def related_time(rng: random.Random, shape: Mapping[str, Any]) -> float:
    """A time after which something happens: a restart, or the loss of a silent role."""
    return rng.choice([shape.get("restart_after") or 0.0, shape.get("heartbeat_timeout", 5.0)])


def drawn_command(
    rng: random.Random, kind: type[Command], roles: list[str], at: float, shape: Mapping[str, Any]
) -> Command | None:  # fmt: skip
    """A command of a class, whose fields are drawn. None if the class is not drawn, or the values are not allowed."""
    if kind.word in FIXED:
        return None
    values: dict[str, Any] = {"at": at}
    declared = options_of(kind)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in ("role", "a"):
            values[field.name] = roles[0]
        elif field.name == "roles":
            values[field.name] = rng.choice([roles[0], roles[0].partition("-")[0]])
        elif field.name in ("b", "peer"):
            values[field.name] = rng.choice(
                [None, roles[-1]] if field.name == "peer" else [EVERY, roles[-1], tuple(roles[1:3])]
            )
        elif field.name == "until":
            lasts = rng.choice([0.3, 0.999, 1.0, 3.0]) * related_time(rng, shape)
            values["until"] = None if rng.random() < 0.2 else at + 1e-3 + lasts
        elif field.name not in ("at", "during"):
            values[field.name] = drawn_value(rng, field.name, declared[field.name])
    if kind is lk.Preempt:
        values["until"] = at + 2.0
    try:
        return kind(**values)
    except lk.BadInput:
        return None


def _of_role(command: Command, role: str) -> Command | None:
    try:
        return dataclasses.replace(command, role=role)  # type: ignore[type-var]
    except (lk.BadInput, TypeError):  # a fault of links
        return None


def _fits(command: Command, plan: Plan, real: bool) -> bool:
    """Whether a command is possible in a run of this plan."""
    if command.word in ("join", "leave") and plan.elastic is None:
        return False
    lasts = command.word in ("cut", "partition") and getattr(command, "until", None) is None
    if real and (lasts or not getattr(command, "restart", True) or getattr(command, "chance", 0.0) > 0.7):
        return False  # real time would pass without an end
    try:
        schedule_faults([command], plan)
    except lk.BadInput:  # nothing lies between a role and itself, for example
        return False
    return True
