"""What a person can turn: one `Control` for each setting, derived from the knobs that declare it. No widgets here.

A control names a setting of `Setup`; the page makes a widget of it by its `kind`, and hands what was chosen to
`Lab.set`. A setting that no control is made of can still be set in Python.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..data import NAMES
from ..errors import nearest
from ..knobs import Knob, describe, knobs_of
from ..nn.codecs import CODECS
from ..nn.compensation import COMPENSATIONS
from ..nn.optimizers import OPTIMIZERS
from ..nn.schedules import SCHEDULES
from ..strategies import FAMILIES, ServerStrategy, Strategy
from ..strategies.base import StaleGradients
from .codes import spelled
from .setup import FULL_SPEED, LAWS, Setup, name_of

__all__ = ["ALWAYS", "GROUPS", "Control", "controls"]

GROUPS = ("algorithm", "cluster", "problem", "stop", "more")
ALWAYS = (
    "strategy", "learning_rate", "engine", "workers", "servers", "pace", "data", "batch_size", "seconds", "accuracy",
)  # fmt: skip
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 100, 250, 500, 1000)
MOST_PROCESSES = 16  # of one machine, in a menu; more can be set in Python
STEPS: dict[str, tuple[Any, ...]] = {
    "servers": (1, 2, 3, 4, 6, 8, 16, 32),
    "batch_size": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "pace": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "latency": (0.0, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5),
    "bandwidth": (1e5, 1e6, 2e6, 5e6, 1e7, 1e8, 1e9, math.inf),
    "seconds": (5, 10, 20, 30, 60, 120, 300, 600),
    "accuracy": (None, 0.9, 0.95, 0.97, 0.98),
    "weight_decay": (0.0, 1e-5, 1e-4, 1e-3, 1e-2),
    "clip_norm": (None, 0.1, 0.5, 1.0, 5.0, 10.0),
    "replicas": (0, 1),
    "checkpoint_every": (None, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
}
TEXTS = {
    "data": NAMES, "partition": ("even", "by-label:0.1", "by-label:1", "by-size:1", "by-size:2", "shared"),
    "law": tuple(LAWS), "optimizer": tuple(OPTIMIZERS), "schedule": tuple(SCHEDULES), "codec": ("none", *CODECS),
    "compensation": ("none", *COMPENSATIONS), "hidden": ("none", "32", "128", "64, 32", "64, 64, 64", "256, 256"),
}  # fmt: skip
LABELS = {
    "learning_rate": "rate", "servers": "shards", "batch_size": "batch", "seconds": "stop after", "accuracy": "stop at",
    "pace": "gradient", "law": "time law", "hidden": "hidden layers", "eval_every": "look every",
    "on_loss": "if one is lost", "replicas": "backups", "checkpoint_every": "save every",
}  # fmt: skip
UNITS = {"pace": "s", "latency": "s", "bandwidth": "B/s", "seconds": "s", "checkpoint_every": "s"}
RARE = ("fused", "n_push", "n_fetch", "give_up", "post_local", "stages")  # knobs of one strategy that few turn
HIDDEN = {
    "server_time", "slow", "cores", "options", "timing_only", "test_fraction", "standardize", "updates", "samples",
    "epochs", "placement", "max_workers", "patience", "restart_after", "checkpoint_time",
    "evaluation_time",
}  # fmt: skip


@dataclass(frozen=True)
class Control:
    """One setting as something to turn.

    `kind`: "menu" (one of `choices`; pairs of what is shown and the value), "steps" (a slider over `choices`), "slider"
    (a number from `low` to `high`, logarithmic if `log`), "check", or "text". `live`: it acts on the run that goes on;
    the others act on the next run.
    """

    name: str
    label: str
    group: str
    kind: str
    value: Any
    choices: tuple[tuple[str, Any], ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    live: bool = False
    help: str = ""


def controls(setup: Setup, names: tuple[str, ...] | None = None) -> tuple[Control, ...]:
    """The controls of this setup, in order. `names`: only these (an unknown one is refused by name)."""
    order = (
        "strategy", "learning_rate", *knobs_of(setup.strategy), "engine", "workers", "servers", "pace", "law", "latency",
        "bandwidth", "replicas", "checkpoint_every", "data", "batch_size", "hidden", "partition", "activation", "seed",
        "seconds", "accuracy",
    )  # fmt: skip
    found = {
        name: _control(setup, name) for name in dict.fromkeys(order) if name not in HIDDEN and _applies(setup, name)
    }
    if names is None:
        return tuple(found.values())
    known = {*order, *setup.names}
    for name in names:
        if name not in known:
            raise nearest("control", name, known)
    return tuple(found[name] for name in names if name in found)


def _applies(setup: Setup, name: str) -> bool:
    """Whether a setting can make a difference here."""
    simulated = setup.shape.engine == "simulated"
    if name in ("latency", "bandwidth"):
        return simulated
    if name in ("servers", "replicas", "checkpoint_every"):
        return setup.strategy.uses_servers
    if name == "accuracy":
        return not setup.problem.timing_only and setup.problem.name not in ("quadratic", "linear-regression")
    return True


def _control(setup: Setup, name: str) -> Control:
    value, known = setup.value(name), _knob(setup, name)
    more: dict[str, Any] = {"label": LABELS.get(name, name.replace("_", " ")), "group": _group(setup, name)}
    if known is not None:
        more |= {"live": known.live, "help": known.help or describe(known)}
    if name == "strategy":
        return Control(name, kind="menu", value=value, choices=_strategies(setup), **more)
    if name in TEXTS:
        text = _text(name, value)
        mine = [name_of(o) for o in setup.own if not isinstance(o, Strategy)] if name == "data" else []
        offered = [t for t in (*mine, *TEXTS[name]) if not (t == FULL_SPEED and setup.shape.engine == "simulated")]
        return Control(
            name, kind="menu", value=text, choices=_menu([*offered, *([text] if text not in offered else [])]), **more
        )
    if name == "workers":
        most = max(COUNTS) if setup.shape.engine == "simulated" else MOST_PROCESSES
        return Control(
            name, kind="steps", value=value, choices=_steps(name, [n for n in COUNTS if n <= most], value), **more
        )
    if name in STEPS:
        value = 1 if name == "servers" and value is None else value
        return Control(name, kind="steps", value=value, choices=_steps(name, STEPS[name], value), **more)
    assert known is not None
    return _of_knob(name, known, value, more)


def _of_knob(name: str, known: Knob, value: Any, more: dict[str, Any]) -> Control:
    """A control for a knob that nobody has described further."""
    if known.choices:
        return Control(name, kind="menu", value=value, choices=_menu([str(c) for c in known.choices]), **more)
    if known.type is bool:
        return Control(name, kind="check", value=value, **more)
    if known.type is int and not known.optional and known.high is not None and name != "seed":
        scale = [n for n in (0, 1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128, 256) if (known.low or 0) <= n <= known.high]
        return Control(name, kind="steps", value=value, choices=_steps(name, scale, value), **more)
    if known.type is float and not known.optional and known.low is not None and known.high is not None:
        low, high = (max(known.low, 1e-3), min(known.high, 1e3)) if known.log else (known.low, known.high)
        return Control(name, kind="slider", value=value, low=low, high=high, log=known.log, **more)
    return Control(name, kind="text", value="" if value is None else str(value), **more)


def _knob(setup: Setup, name: str) -> Knob | None:
    for part in (setup.strategy, setup.shape, setup.budget, setup.problem):
        if name in knobs_of(part):
            return knobs_of(part)[name]
    return None


def _group(setup: Setup, name: str) -> str:
    if name in ("seconds", "accuracy"):
        return "stop"
    if name not in ALWAYS:
        shared = {*knobs_of(ServerStrategy), *knobs_of(StaleGradients), *RARE}
        return "algorithm" if name in knobs_of(setup.strategy) and name not in shared else "more"
    if name in ("strategy", "learning_rate"):
        return "algorithm"
    return "problem" if name in ("data", "batch_size") else "cluster"


def _strategies(setup: Setup) -> tuple[tuple[str, Any], ...]:
    """Nine first, then the rest by family; one's own strategy on top."""
    own = [name_of(thing) for thing in setup.own if isinstance(thing, Strategy)]
    listed = [(kind.__name__, name) for family in FAMILIES.values() for name, kind in family.items()]
    return (*((name, name) for name in own), *listed)


def _menu(texts: list[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((text, text) for text in texts)


def _steps(name: str, values: Any, now: Any) -> tuple[tuple[str, Any], ...]:
    """The values of a slider with names, the present one among them in its place."""
    places = list(values)
    if now not in places:
        places = sorted([*places, now], key=lambda v: -math.inf if v is None else v)
    return tuple((_named(name, value), value) for value in places)


def _named(name: str, value: Any) -> str:
    if value is None:
        return {"accuracy": "never", "checkpoint_every": "auto"}.get(name, "none")
    if name == "accuracy":
        return f"{100 * value:g}%"
    if name == "bandwidth":
        return "free" if math.isinf(value) else f"{value / 1e6:g} MB/s"
    if name == "latency":
        return "none" if value == 0 else f"{1000 * value:g} ms"
    unit = UNITS.get(name)
    return f"{value:g} {unit}" if unit else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _text(name: str, value: Any) -> str:
    """A value of a menu as the text that would set it."""
    if name == "hidden":
        return ", ".join(str(width) for width in value) or "none"
    return value if isinstance(value, str) else spelled(value)
