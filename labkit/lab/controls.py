"""The controls of the page: one `Control` for each setting, derived from its declaration. This module has no widgets.

A control has the name of a setting (`Settings.names`). The page creates a widget for it according to its `kind`, and
changes the setting when the user chooses a value. A setting without a control can be changed in Python (`Lab.set`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..data import NAMES, DaskDataset
from ..errors import nearest
from ..formatting import bytes_text
from ..models.numpy_model import short_names
from ..options import Option, describe, options_of
from ..spec import FULL_SPEED
from ..strategies import FAMILIES, ServerStrategy
from ..strategies.base import StaleGradients
from .settings import Settings, name_of

GROUPS = ("algorithm", "cluster", "problem", "budget", "more")
ALWAYS = (
    "strategy", "learning_rate", "engine", "workers", "servers", "pace", "data", "model", "batch_size", "seconds", "accuracy",
)  # fmt: skip
COUNTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 100, 250, 500, 1000)
MOST_PROCESSES = 16  # maximum number of workers in a menu, for one machine; more can be set in Python
# presentation: the values that a slider or a menu offers; ranges, units and help come from the declarations
STEPS: dict[str, tuple[Any, ...]] = {
    "servers": (1, 2, 3, 4, 6, 8, 16, 32),
    "batch_size": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "pace": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0),
    "latency": (0.0, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5),
    "bandwidth": (1e5, 1e6, 2e6, 5e6, 1e7, 1e8, 1e9, math.inf),
    "bucket_size": (1, 20_000, 40_000, 60_000, 80_000, 100_000, 1_000_000, None),
    "seconds": (5, 10, 20, 30, 60, 120, 300, 600),
    "accuracy": (None, 0.9, 0.95, 0.97, 0.98),
    "loss": (None, 1.0, 0.5, 0.3, 0.2, 0.1, 0.05),
    "patience": (None, 3, 5, 10, 20, 50),
    "validation": (0.0, 0.05, 0.1, 0.2, 0.3),
    "weight_decay": (0.0, 1e-5, 1e-4, 1e-3, 1e-2),
    "clip_norm": (None, 0.1, 0.5, 1.0, 5.0, 10.0),
    "checkpoint_every": (None, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
}
TEXTS = {
    "data": NAMES, "partition": ("even", "by-label:0.1", "by-label:1", "by-size:1", "by-size:2", "shared", "global-batch"),
    "hidden": ("none", "32", "128", "64,32", "64,64,64", "256,256"),
}  # fmt: skip
LABELS = {
    "batch_size": "batch size", "seconds": "time limit", "accuracy": "target accuracy", "pace": "gradient time",
    "loss": "target loss", "patience": "early stopping", "validation": "validation part",
    "distribution": "distribution of times", "hidden": "hidden layers", "eval_every": "evaluate every", "on_loss": "on failure",
    "replicas": "backups", "checkpoint_every": "checkpoint every",
    "n_push": "push every n steps", "n_fetch": "fetch every n steps", "give_up": "abandon late gradients",
    "post_local": "local steps from step", "accumulate": "accumulate batches",
}  # fmt: skip
RARE = (
    "n_push",
    "n_fetch",
    "give_up",
    "post_local",
    "accumulate",
    "outer",
    "outer_rate",
    "stages",
)  # options of strategies that are rarely changed
HIDDEN = {
    "server_time", "slow", "cores", "options", "timing_only", "test_fraction", "standardize", "class_weights", "updates",
    "samples", "epochs", "placement", "max_workers", "heartbeat_timeout", "min_delta", "restart_after", "checkpoint_time",
    "evaluation_time",
}  # fmt: skip


@dataclass(frozen=True)
class Control:
    """One setting that can be changed on the page.

    `kind`: "menu" or "steps" (one of `choices`), "slider" (a number, with a field for typing it), "check", or "text".
    `choices`: pairs (displayed text, value). `live`: whether a change affects the present run; all other settings affect the
    next run.

    `low` and `high` are the ends of the slider, which has a logarithmic scale if `log`; the limits of the value are those of the
    setting's declaration. A typed value beyond the slider but within the limits is accepted: the field shows it exactly, and the
    slider shows its own end. The ends never move, so that a position always means the same value. A value outside of the limits
    is refused with a message, and the setting does not change.
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


def label_of(name: str) -> str:
    """Return the label of a setting, for example "batch size"."""
    return LABELS.get(name, name.replace("_", " "))


def controls(settings: Settings, names: tuple[str, ...] | None = None) -> tuple[Control, ...]:
    """Return the controls for these settings, in order.

    `names`: return only the controls of these settings. Raises `BadInput` if a name is unknown.
    """
    order = (
        "strategy", "learning_rate", *options_of(settings.strategy), "engine", "workers", "servers", "pace", "distribution",
        "latency", "bandwidth", "replicas", "checkpoint_every", "data", "model", "batch_size", "hidden", "partition",
        "validation", "activation", "seed", "seconds", "accuracy", "loss", "patience",
    )  # fmt: skip
    found = {
        name: _control(settings, name)
        for name in dict.fromkeys(order)
        if name not in HIDDEN and _applies(settings, name)
    }
    if names is None:
        return tuple(found.values())
    known = {*order, *settings.names}
    for name in names:
        if name not in known:
            raise nearest("control", name, known)
    return tuple(found[name] for name in names if name in found)


def _applies(settings: Settings, name: str) -> bool:
    """Return whether the setting `name` has an effect if the other settings are `settings`."""
    simulated = settings.cluster.virtual_time
    if name in ("latency", "bandwidth"):
        return simulated
    if name in ("servers", "replicas", "checkpoint_every"):
        return settings.strategy.uses_servers
    if name == "model":
        return bool(settings.own_by_name("model"))
    if name in ("hidden", "activation"):
        return settings.problem.model is None
    if name in ("loss", "patience"):
        return not settings.problem.timing_only
    if name == "validation":
        return settings.problem.name != "quadratic" and not isinstance(settings.problem.data, DaskDataset)
    if name == "accuracy":
        return not settings.problem.timing_only and settings.problem.name not in ("quadratic", "linear-regression")
    return True


def _control(settings: Settings, name: str) -> Control:
    if name == "strategy":
        return Control(name, "strategy", "algorithm", "menu", settings.value(name), _strategies(settings))
    known, value = settings.options()[name], settings.value(name)
    more: dict[str, Any] = {
        "label": label_of(name), "group": _group(settings, name), "live": known.live,
        "help": _help(known),
    }  # fmt: skip
    if name == "model":
        own = settings.own_by_name("model")
        models = (("dense layers", None), *zip(short_names(own.values()), own))
        chosen = None if value is None else name_of(value)
        more["help"] = (
            f"{chosen}: {known.help}" if chosen else known.help
        )  # the menu has room for the beginning of a name
        return Control(name, kind="menu", value=chosen, choices=models, **more)
    if name in TEXTS or known.names is not None or name == "distribution":
        offered = [
            text
            for text in _texts(settings, known)
            if not (text == FULL_SPEED and settings.cluster.virtual_time and settings.cluster.costs is None)
        ]
        text = settings.spec.write(name) if settings.spec.value(name) is not None else "none"
        return Control(name, kind="menu", value=text, choices=_menu(offered + [text] * (text not in offered)), **more)
    if name == "workers":
        most = max(COUNTS) if settings.cluster.virtual_time else MOST_PROCESSES
        return Control(
            name, kind="steps", value=value, choices=_steps(known, [n for n in COUNTS if n <= most], value), **more
        )
    if name in STEPS:
        value = 1 if name == "servers" and value is None else value
        return Control(name, kind="steps", value=value, choices=_steps(known, STEPS[name], value), **more)
    return _of_option(known, value, more)


def _texts(settings: Settings, known: Option) -> list[str]:
    """Return the values of a menu as texts.

    For data: user-defined data sets, then labkit's. For other settings: the list in this module, or else the choices or
    names of the declaration.
    """
    if known.name == "data":
        return [*settings.own_by_name("data"), *TEXTS["data"]]
    if known.name in TEXTS:
        return list(TEXTS[known.name])
    if known.choices is not None:
        return list(known.choices)
    return [*(["none"] if known.default is None else []), *(known.names or ())]


def _of_option(known: Option, value: Any, more: dict[str, Any]) -> Control:
    """Return a control that is derived from the declaration alone."""
    name = known.name
    if known.choices:
        return Control(name, kind="menu", value=value, choices=_menu([str(c) for c in known.choices]), **more)
    if known.type is bool:
        return Control(name, kind="check", value=value, **more)
    if known.type is int and not known.optional and known.high is not None and name != "seed":
        scale = [n for n in (0, 1, 2, 3, 4, 5, 6, 8, 10, 16, 32, 64, 128, 256) if (known.low or 0) <= n <= known.high]
        return Control(name, kind="steps", value=value, choices=_steps(known, scale, value), **more)
    if known.type is float and not known.optional and known.low is not None and known.high is not None:
        low, high = (max(known.low, 1e-3), min(known.high, 1e3)) if known.log else (known.low, known.high)
        return Control(name, kind="slider", value=value, low=low, high=high, log=known.log, **more)
    more["help"] = f"{known.help}: {describe(known)}" if known.help else describe(known)
    return Control(name, kind="text", value="" if value is None else str(value), **more)


def _help(known: Option) -> str:
    """Return the help text of a setting, with its unit."""
    return f"{known.help} ({known.unit})" if known.unit and known.help else known.help or describe(known)


def _group(settings: Settings, name: str) -> str:
    if name in ("seconds", "accuracy"):
        return "budget"
    if name in ("latency", "bandwidth") and (math.isfinite(settings.cluster.bandwidth) or settings.cluster.latency):
        return "cluster"
    if name not in ALWAYS:
        shared = {*options_of(ServerStrategy), *options_of(StaleGradients), *RARE}
        return "algorithm" if name in options_of(settings.strategy) and name not in shared else "more"
    if name in ("strategy", "learning_rate"):
        return "algorithm"
    return "problem" if name in ("data", "model", "batch_size") else "cluster"


def _strategies(settings: Settings) -> tuple[tuple[str, Any], ...]:
    """Return the choices of the strategy menu: user-defined strategies, then all strategies of labkit by family."""
    listed = [(kind.__name__, name) for family in FAMILIES.values() for name, kind in family.items()]
    return (*_menu(list(settings.own_by_name("strategy"))), *listed)


def _menu(texts: list[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((text, text) for text in texts)


def _steps(known: Option, values: Any, now: Any) -> tuple[tuple[str, Any], ...]:
    """Return (text, value) pairs for a slider. The present value `now` is always included."""
    places = list(values)
    if now not in places:
        places = sorted([*places, now], key=lambda v: -math.inf if v is None else v)
    return tuple((_named(known, value), value) for value in places)


def _named(known: Option, value: Any) -> str:
    if known.name == "bucket_size":
        return "1/4 model" if value is None else bytes_text(value)
    if value is None:
        return "auto" if known.name == "checkpoint_every" else "none"
    if known.name in ("accuracy", "validation"):
        return f"{100 * value:g}%"
    if known.name == "bandwidth":
        return "unlimited" if math.isinf(value) else f"{value / 1e6:g} MB/s"
    if known.name == "latency":
        return "none" if value == 0 else f"{1000 * value:g} ms"
    if known.unit:
        return f"{value:g} {known.unit}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
