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


def schedule(seed: int, real: bool = False) -> Schedule:
    """The schedule with this number. `real`: for processes: fewer roles, and longer times."""
    luck = random.Random(f"chaos {seed} {real}")
    names = sorted(STRATEGIES)
    name = names[seed % len(names)]  # strategies in turn
    kind = STRATEGIES[name]
    suggested = kind.suggested_problem
    problem = lk.Problem(suggested["data"], batch_size=8) if "data" in suggested else lk.Problem("moons", **DENSE)
    strategy = kind(on_loss=luck.choice(["wait", "continue"]), chief_works=not real and luck.random() < 0.1)
    servers = luck.choice([1, 2, 3] if not real else [1, 2]) if kind.uses_servers else None
    workers = list((2, 3) if real else WORKERS)
    luck.shuffle(workers)
    shape = {"workers": workers[0], "servers": servers} | (_real_shape(luck) if real else _shape(luck))
    budget = lk.Budget(updates=luck.choice([40, 60, 90]) if real else luck.choice([30, 80, 150, 400]))
    if "data" in kind.suggested_problem:  # updates that take long
        budget = lk.Budget(updates=40)
    for count in (*workers, 4):
        shape["workers"] = count
        plan = _fits(problem, strategy, shape, budget)
        if plan is not None:
            break
    roles = [role.name for role in plan.layout.roles]
    span = luck.choice([0.01, 0.5, 2.0]) if not real else luck.choice([0.3, 1.0])
    faults, away = _faults(luck, roles, span, shape, real)
    back = span + luck.uniform(0.2, 3.0) if away and luck.random() < 0.7 else None
    words = tuple(fault.text() for fault in faults)
    return Schedule(seed, problem, strategy, shape, budget, faults, away, back, span, words)


def _fits(problem: Any, strategy: Any, shape: dict[str, Any], budget: Any) -> Any:
    small = {key: shape[key] for key in ("workers", "servers")}
    try:
        return make_plan(problem, strategy, lk.SimulatedCluster(**small).spec, budget, 0)
    except lk.BadInput:  # a number of workers that this strategy does not support
        return None


def _shape(luck: random.Random) -> dict[str, Any]:
    return {
        "compute": luck.choice(DISTRIBUTIONS),
        "server_time": luck.choice([None, None, 0.001]),
        "latency": luck.choice([0.0, 0.001, 0.02]),
        "bandwidth": luck.choice([float("inf"), 1e6]),
        "patience": luck.choice([0.2, 0.5, 2.0]),
        "restart_after": luck.choice([0.0, 0.05, 0.3, 0.8]),
        "checkpoint_every": luck.choice([None, 0.05, 0.3, 5.0]),
        "checkpoint_time": luck.choice([0.0, 0.0, 0.002, 0.05]),
    }


def _real_shape(luck: random.Random) -> dict[str, Any]:
    return {
        "pace": luck.choice([0.02, 0.05]),
        "patience": 1.0,
        "checkpoint_every": luck.choice([None, 0.2]),
    }


def _faults(luck: random.Random, roles: list[str], span: float, shape: dict[str, Any], real: bool) -> Any:
    made: list[Any] = []
    away: list[str] = []
    for _ in range(luck.choice([1, 2, 3, 4, 6]) if not real else luck.choice([1, 1, 2, 3])):
        at = luck.choice([0.0, luck.uniform(0, 0.003), luck.uniform(0, span), luck.uniform(0, span)])
        if real:
            at += 0.1
        if made and luck.random() < 0.25:  # at the same instant
            at = made[-1].at
        pick: Callable[..., list[Any]] = luck.choices(KINDS, WEIGHTS)[0]
        made += pick(luck, roles, round(at, 4), shape)
    if luck.random() < 0.2:
        gone = [luck.choice(roles)] if luck.random() < 0.6 else [r for r in roles if r.startswith("worker")]
        at = round(luck.uniform(0, span) + (0.1 if real else 0.0), 4)
        made += [lk.Kill(role, at=at, restart=False) for role in gone]
        away += gone
    return tuple(made), tuple(away)


def random_faults(luck: random.Random, roles: list[str], span: float, shape: dict[str, Any]) -> tuple[Any, ...]:
    """Faults for processes that begin within `span` seconds. Killed roles are restarted."""
    made, _ = _faults(luck, roles, span, shape, True)
    return tuple(fault for fault in made if getattr(fault, "restart", True))


# kinds of faults: each gives a list of them ---------------------------------------------------------------------------


def _one(luck: random.Random, roles: list[str]) -> str:
    return luck.choice(roles)


def _kill(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    return [lk.Kill(_one(luck, roles), at=at)]


def _kill_twice(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    """The second time while it is absent, at the instant of its restart, or just after that."""
    again = shape.get("restart_after", 0.8)
    gap = luck.choice([0.0, again / 2, again, again + 0.001, again + 0.03])
    role = _one(luck, roles)
    return [lk.Kill(role, at=at), lk.Kill(role, at=at + gap)]


def _kill_in_recovery(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    first, second = luck.choices(roles, k=2)
    return [
        lk.Kill(first, at=at),
        lk.Kill(second, at=at + shape.get("restart_after", 0.8) + luck.choice([0, 1e-4, 0.01])),
    ]


def _kill_all(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    kind = luck.choice(["worker", "server", "chief", ""])
    gap = luck.choice([0.0, 0.01])
    return [lk.Kill(r, at=at + i * gap) for i, r in enumerate(r for r in roles if r.startswith(kind))]


def _freeze(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    patience = shape["patience"]
    long = luck.choice([0.1, 0.9, 0.999, 1.0, 1.001, 1.5, 4.0])
    until = None if luck.random() < 0.15 else at + patience * long
    return [lk.Freeze(_one(luck, roles), at=at, until=until)]


def _freeze_and_kill(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    role, patience = _one(luck, roles), shape["patience"]
    return [
        lk.Freeze(role, at=at, until=at + patience * 1.2),
        lk.Kill(role, at=at + patience * luck.choice([0.5, 1.1, 1.3])),
    ]


def _slow(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    return [lk.Slow(_one(luck, roles), luck.choice([0.5, 3, 20]), at=at, until=at + luck.uniform(0.1, 1.0))]


def _delay(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    a, b = luck.sample(roles, 2)
    return [
        lk.Delay(a, luck.choice(["*", b]), luck.choice([0.001, 0.05, 0.3]), at=at, until=at + luck.uniform(0.1, 1.5))
    ]


def _drop(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    a, b = luck.sample(roles, 2)
    until = luck.choice([None, at + 0.7])
    return [lk.Drop(a, luck.choice(["*", b]), luck.choice([0.05, 0.3, 0.7]), at=at, until=until)]


def _partition(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    group = tuple(luck.sample(roles, luck.choice([1, 1, 2]) if len(roles) > 2 else 1))
    rest = [role for role in roles if role not in group]
    other: Any = luck.choice(["*", luck.choice(rest)])
    until = at + shape["patience"] * luck.choice([0.3, 0.99, 1.0, 1.2, 3.0])
    return [lk.Partition(group if len(group) > 1 else group[0], other, at=at, until=until)]


def _preempt(luck: random.Random, roles: list[str], at: float, shape: dict[str, Any]) -> list[Any]:
    kinds = sorted({role.partition("-")[0] for role in roles} - {"chief"})
    return [lk.Preempt(luck.choice([0.3, 1.0, 3.0]), luck.choice(["*", *kinds]), at=at, until=at + 2.0)]


KINDS = (
    _kill, _kill_twice, _kill_in_recovery, _kill_all, _freeze, _freeze_and_kill, _slow, _delay, _drop, _partition, _preempt,
)  # fmt: skip
WEIGHTS = (5, 3, 3, 2, 5, 2, 1, 2, 2, 3, 1)
