"""From what was asked to problem, strategy, cluster and budget. Nothing starts here; what does not fit is refused."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data import options_of
from ..engines.fault import Fault
from ..engines.faults import Kill, parse_fault, schedule_faults
from ..engines.laws import Deterministic, law_by_name
from ..engines.parts import find_role, make_plan
from ..errors import BadInput, lacks, nearest, shown
from ..knobs import knobs_of, parse_knob
from ..paths import as_path, reason
from ..problem import Problem
from ..roles.judge import Budget
from ..strategies import STRATEGIES, Strategy, strategy_by_name
from .options import Asked, Files

__all__ = [
    "check_files", "check_shape", "given_to", "goals", "make_budget", "make_cluster", "make_faults", "make_problem",
    "make_strategy", "seen_with", "strategy_names",
]  # fmt: skip

ENGINES = ("dask", "simulated")
ONLY = {"simulated": ("compute", "latency", "bandwidth", "evaluation_time"), "dask": ("pace", "scheduler")}
PICTURES = (".png", ".pdf", ".svg", ".jpg")


def make_problem(asked: Asked, strategies: Iterable[Strategy]) -> Problem:
    """The problem: what is to be learned. What was not said is as the strategies need it."""
    suits = {name: value for strategy in strategies for name, value in strategy.suits.items()}
    given: dict[str, Any] = {"data": asked.dataset, "hidden": asked.hidden or None}
    given |= {name: getattr(asked, name) for name in ("batch_size", "seed", "dtype", "partition")}
    wanted = suits | _known(given)
    if asked.options:
        dataset = wanted.get("data", "digits")
        known = options_of(dataset)
        if not known:
            raise BadInput(f"--option {asked.options[0]}: the data set {dataset} has no options.")
        wanted["options"] = dict(parse_knob(dataset, known, text) for text in asked.options)
    return Problem(timing_only=asked.timing_only, **wanted)


def make_strategy(name: str, asked: Asked) -> Strategy:
    """The strategy of this command-line name, its knobs set as asked."""
    made = strategy_by_name(name)
    known, knobs = knobs_of(made), {}
    for text in asked.knobs:
        knob, value = parse_knob(made.__name__, known, text)
        knobs[knob] = value
    for knob in ("learning_rate", "optimizer"):
        value = getattr(asked, knob)
        if value is not None:
            if knob in knobs:
                option = "--" + knob.replace("_", "-")
                raise BadInput(f"--set {knob}={knobs[knob]} and {option} {value} set one knob twice; give one of them.")
            knobs[knob] = value
    if asked.chief_works:
        knobs["chief_works"] = True
    return made(**knobs)


def given_to(name: str, names: tuple[str, ...], asked: Asked) -> Asked:
    """What is asked of strategy `name` when all of `names` are compared: knobs that it has, servers if it uses any.

    A knob that none of them has is refused.
    """
    mine, others = strategy_by_name(name), [strategy_by_name(n) for n in names]
    kept = []
    for text in asked.knobs:
        knob = text.partition("=")[0].strip().replace("-", "_")
        if not any(knob in knobs_of(other) for other in others):
            raise lacks("None of these strategies", "setting", knob, {k for other in others for k in knobs_of(other)})
        if knob in knobs_of(mine):
            kept.append(text)
    values = {**vars(asked), "knobs": tuple(kept), "servers": asked.servers if mine.uses_servers else None}
    return Asked(**values)


def make_cluster(engine: str, asked: Asked) -> Any:
    """A cluster of `engine`, not started. An option that belongs to the other engine is refused by name."""
    if engine not in ENGINES:
        raise nearest("engine", engine, ENGINES)
    for owner, names in ONLY.items():
        for name in names:
            if owner != engine and getattr(asked, name) is not None:
                allowed = ", ".join(f"--{n.replace('_', '-')}" for n in ONLY[engine])
                wrong = f"--{name.replace('_', '-')} belongs to --engine {owner} and this is --engine {engine}"
                raise BadInput(f"{wrong}, which takes {allowed}.")
    common = _known({"workers": asked.workers, "servers": asked.servers, "server_time": _law(asked.server_time)})
    common["slow"] = slow_roles(asked.slow)
    if engine == "simulated":
        from ..engines.simulated import SimulatedCluster

        more = {
            "compute": _law(asked.compute), "latency": asked.latency, "bandwidth": asked.bandwidth,
            "evaluation_time": asked.evaluation_time,
        }  # fmt: skip
        return SimulatedCluster(**common, **_known(more))
    from ..engines.dask import DaskCluster

    return DaskCluster(asked.scheduler, **common, **_known({"pace": _law(asked.pace)}))


def seen_with(cluster: Any, servers: int | None) -> Any:
    """The same cluster (on Dask: the same processes) with another number of servers."""
    return cluster.resized(servers=servers) if hasattr(cluster, "resized") else replace(cluster, servers=servers)


def check_shape(
    problem: Problem, strategy: Strategy, cluster: Any, budget: Budget | None = None, faults: tuple[Fault, ...] = ()
) -> None:
    """Refuse a shape that the strategy cannot have, and roles that it does not have, before anything starts."""
    roles = {role.name: role for role in strategy.layout(problem, cluster).roles}
    for role in cluster.slow:
        find_role(role, roles)
    if faults:
        schedule_faults(faults, make_plan(problem, strategy, cluster, budget, None, cluster.record))


def make_faults(asked: Asked) -> tuple[Fault, ...]:
    """What is to go wrong, and when. A process that is killed before anything has happened is hardly meant."""
    faults = tuple(parse_fault(text) for text in asked.faults)
    for text, fault in zip(asked.faults, faults):
        if isinstance(fault, Kill) and "@" not in text:
            raise BadInput(f"--fault {text}: say when, in seconds from the beginning, as {text}@2; {text}@0 is at once.")
    return faults


def make_budget(asked: Asked) -> Budget:
    """When the run ends."""
    return Budget(asked.updates, asked.samples, asked.epochs, asked.seconds, asked.accuracy)


def slow_roles(texts: tuple[str, ...]) -> dict[str, float]:
    """`("worker-2:5",)` -> `{"worker-2": 5.0}`."""
    slow = {}
    for text in texts:
        role, _, factor = text.rpartition(":")
        try:
            slow[role] = float(factor)
        except ValueError:
            role = ""
        if not role or not 0.001 <= slow[role] <= 1000:
            raise BadInput(f"--slow {text}: give ROLE:FACTOR with a factor from 0.001 to 1000, as worker-2:5.")
    return slow


def check_files(files: Files) -> None:
    """Refuse a file that cannot be written before the run instead of after it."""
    for option, name in vars(files).items():
        if name is None:
            continue
        path = Path(as_path(f"--{option}", name))
        folder = path.parent
        if os.path.isdir(path) or not os.path.isdir(folder):
            why = "it is a folder" if os.path.isdir(path) else f"there is no folder {str(folder)!r}"
            raise BadInput(f"--{option} {name}: {why}; give the name of a file in a folder that exists.")
        try:
            os.lstat(path)
        except FileNotFoundError:
            pass
        except OSError as why:  # a name that is too long
            raise BadInput(f"--{option} {shown(name)} cannot be written: {reason(why)}.") from None
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise BadInput(f"--{option} {name} cannot be written: no permission.")
        if option == "figure" and path.suffix.lower() not in PICTURES:
            raise BadInput(f"--figure {name}: a picture's name ends in {', '.join(PICTURES)}.")


def goals(budget: Budget, problem: Problem) -> dict[str, float]:
    """The settled budget as {"updates" | "samples" | "seconds" | "accuracy": limit}."""
    settled = budget.settled(problem)
    limits = settled.limits(problem)
    found = {
        "updates": limits.updates, "samples": limits.samples, "seconds": settled.seconds, "accuracy": settled.accuracy,
    }  # fmt: skip
    return {name: float(limit) for name, limit in found.items() if limit is not None and math.isfinite(limit)}


def strategy_names() -> tuple[str, ...]:
    """Every strategy's command-line name."""
    return tuple(STRATEGIES)


def _law(text: str | None) -> Any:
    """`exponential:0.1` as a law; a number alone is always so many seconds."""
    if text is None:
        return None
    try:
        return Deterministic(float(text))
    except ValueError as why:
        if isinstance(why, BadInput):
            raise
        return law_by_name(text)


def _known(values: dict[str, Any]) -> dict[str, Any]:
    """Only what was given."""
    return {name: value for name, value in values.items() if value is not None}
