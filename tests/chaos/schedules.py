"""Seeded schedules of faults: a run, its cluster, and timed faults. The same seed gives the same schedule on every machine.

Faults occur alone and together: at one instant, in the first milliseconds, twice in one role, in a role that is
restarting, in all workers, in all servers, in the chief.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import labkit as lk
from labkit.engines.plan import make_plan
from labkit.strategies import STRATEGIES

WORKERS = (2, 3, 4, 5, 6)
DISTRIBUTIONS = (lk.Deterministic(0.02), lk.Exponential(0.02), lk.LogNormal(0.02, 0.8))
DENSE = {"hidden": (8,) * 5, "batch_size": 8}


@dataclass(frozen=True)
class Schedule:
    """One run and its faults. `away`: roles that are killed and stay away; `back`: when they are restarted (None:
    never). `span`: seconds in which faults begin.
    """

    seed: int
    problem: Any
    strategy: Any
    shape: dict[str, Any]  # arguments of the cluster
    budget: Any
    faults: tuple[Any, ...]
    away: tuple[str, ...] = ()
    back: float | None = None
    span: float = 1.0
    words: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        faults = " ".join(self.words)
        on_loss = self.strategy.on_loss
        return f"{self.seed}: {self.strategy.name} on_loss={on_loss} {self.shape} {faults} away={self.away} back={self.back}"


def schedule(seed: int) -> Schedule:
    """The schedule with this number."""
    rng = random.Random(f"chaos {seed} False")
    names = sorted(STRATEGIES)
    name = names[seed % len(names)]  # strategies in turn
    kind = STRATEGIES[name]
    suggested = kind.suggested_problem
    problem = lk.Problem(suggested["data"], batch_size=8) if "data" in suggested else lk.Problem("moons", **DENSE)
    strategy = kind(on_loss=rng.choice(["wait", "continue"]), chief_works=rng.random() < 0.1)
    servers = rng.choice([1, 2, 3]) if kind.uses_servers else None
    workers = list(WORKERS)
    rng.shuffle(workers)
    shape = {"workers": workers[0], "servers": servers} | _shape(rng)
    budget = lk.Budget(updates=rng.choice([30, 80, 150, 400]))
    if "data" in kind.suggested_problem:  # updates that take long
        budget = lk.Budget(updates=40)
    for count in (*workers, 4):
        shape["workers"] = count
        plan = _fits(problem, strategy, shape, budget)
        if plan is not None:
            break
    roles = [role.name for role in plan.layout.roles]
    span = rng.choice([0.01, 0.5, 2.0])
    faults, away = _faults(rng, roles, span, shape, False)
    back = span + rng.uniform(0.2, 3.0) if away and rng.random() < 0.7 else None
    words = tuple(fault.text() for fault in faults)
    return Schedule(seed, problem, strategy, shape, budget, faults, away, back, span, words)


def _fits(problem: Any, strategy: Any, shape: dict[str, Any], budget: Any) -> Any:
    small = {key: shape[key] for key in ("workers", "servers")}
    try:
        return make_plan(problem, strategy, lk.SimulatedCluster(**small).spec, budget, 0)
    except lk.BadInput:  # a number of workers that this strategy does not support
        return None


def _shape(rng: random.Random) -> dict[str, Any]:
    return {
        "compute": rng.choice(DISTRIBUTIONS),
        "server_time": rng.choice([None, None, 0.001]),
        "latency": rng.choice([0.0, 0.001, 0.02]),
        "bandwidth": rng.choice([float("inf"), 1e6]),
        "patience": rng.choice([0.2, 0.5, 2.0]),
        "restart_after": rng.choice([0.0, 0.05, 0.3, 0.8]),
        "checkpoint_every": rng.choice([None, 0.05, 0.3, 5.0]),
        "checkpoint_time": rng.choice([0.0, 0.0, 0.002, 0.05]),
    }


def _faults(rng: random.Random, roles: list[str], span: float, shape: dict[str, Any], real: bool) -> Any:
    made: list[Any] = []
    away: list[str] = []
    for _ in range(rng.choice([1, 2, 3, 4, 6]) if not real else rng.choice([1, 1, 2, 3])):
        at = rng.choice([0.0, rng.uniform(0, 0.003), rng.uniform(0, span), rng.uniform(0, span)])
        if real:
            at += 0.1
        if made and rng.random() < 0.25:  # at the same instant
            at = made[-1].at
        pick: Callable[..., list[Any]] = rng.choices(KINDS, WEIGHTS)[0]
        made += pick(rng, roles, round(at, 4), shape)
    if rng.random() < 0.2:
        gone = [rng.choice(roles)] if rng.random() < 0.6 else [r for r in roles if r.startswith("worker")]
        at = round(rng.uniform(0, span) + (0.1 if real else 0.0), 4)
        made += [lk.Kill(role, at=at, restart=False) for role in gone]
        away += gone
    return tuple(made), tuple(away)


def random_faults(rng: random.Random, roles: list[str], span: float, shape: dict[str, Any]) -> tuple[Any, ...]:
    """Faults for processes that begin within `span` seconds. Killed roles are restarted."""
    made, _ = _faults(rng, roles, span, shape, True)
    return tuple(fault for fault in made if getattr(fault, "restart", True))


# kinds of faults: each gives a list of them ---------------------------------------------------------------------------


def _one(rng: random.Random, roles: list[str]) -> str:
    return rng.choice(roles)


def _kill(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    return [lk.Kill(_one(rng, roles), at=at)]


def _kill_twice(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    """The second time while it is absent, at the instant of its restart, or just after that."""
    again = shape.get("restart_after", 0.8)
    gap = rng.choice([0.0, again / 2, again, again + 0.001, again + 0.03])
    role = _one(rng, roles)
    return [lk.Kill(role, at=at), lk.Kill(role, at=at + gap)]


def _kill_in_recovery(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    first, second = rng.choices(roles, k=2)
    return [
        lk.Kill(first, at=at),
        lk.Kill(second, at=at + shape.get("restart_after", 0.8) + rng.choice([0, 1e-4, 0.01])),
    ]


def _kill_all(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    kind = rng.choice(["worker", "server", "chief", ""])
    gap = rng.choice([0.0, 0.01])
    return [lk.Kill(r, at=at + i * gap) for i, r in enumerate(r for r in roles if r.startswith(kind))]


def _freeze(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    patience = shape["patience"]
    long = rng.choice([0.1, 0.9, 0.999, 1.0, 1.001, 1.5, 4.0])
    until = None if rng.random() < 0.15 else at + patience * long
    return [lk.Freeze(_one(rng, roles), at=at, until=until)]


def _freeze_and_kill(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    role, patience = _one(rng, roles), shape["patience"]
    return [
        lk.Freeze(role, at=at, until=at + patience * 1.2),
        lk.Kill(role, at=at + patience * rng.choice([0.5, 1.1, 1.3])),
    ]


def _slow(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    return [lk.Slow(_one(rng, roles), rng.choice([0.5, 3, 20]), at=at, until=at + rng.uniform(0.1, 1.0))]


def _delay(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    a, b = rng.sample(roles, 2)
    return [lk.Delay(a, rng.choice(["*", b]), rng.choice([0.001, 0.05, 0.3]), at=at, until=at + rng.uniform(0.1, 1.5))]


def _drop(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    a, b = rng.sample(roles, 2)
    until = rng.choice([None, at + 0.7])
    return [lk.Drop(a, rng.choice(["*", b]), rng.choice([0.05, 0.3, 0.7]), at=at, until=until)]


def _partition(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    group = tuple(rng.sample(roles, rng.choice([1, 1, 2]) if len(roles) > 2 else 1))
    rest = [role for role in roles if role not in group]
    other: Any = rng.choice(["*", rng.choice(rest)])
    until = at + shape["patience"] * rng.choice([0.3, 0.99, 1.0, 1.2, 3.0])
    return [lk.Partition(group if len(group) > 1 else group[0], other, at=at, until=until)]


def _preempt(rng: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    kinds = sorted({role.partition("-")[0] for role in roles} - {"chief"})
    return [lk.Preempt(rng.choice([0.3, 1.0, 3.0]), rng.choice(["*", *kinds]), at=at, until=at + 2.0)]


KINDS = (
    _kill, _kill_twice, _kill_in_recovery, _kill_all, _freeze, _freeze_and_kill, _slow, _delay, _drop, _partition, _preempt,
)  # fmt: skip
WEIGHTS = (5, 3, 3, 2, 5, 2, 1, 2, 2, 3, 1)
