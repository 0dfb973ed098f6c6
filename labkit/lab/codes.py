"""A lab as a short text, and back: what was chosen, in words that a person can read and change.

    strategy=ssp&s=5&workers=8&pace=0.2&seconds=30&slow=worker-2:5

Only what differs from the default lab is written. What was made by hand (arrays, a class of one's own) has no text and
is refused by name.
"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import parse_qsl, urlencode

from ..data import Partition, partition_as_text
from ..engines.laws import Law
from ..errors import BadInput
from ..knobs import knobs_of
from ..nn.codecs import CODECS
from ..nn.compensation import COMPENSATIONS
from ..nn.optimizers import OPTIMIZERS
from ..nn.schedules import SCHEDULES, Constant
from ..strategies import STRATEGIES
from .deeds import number
from .setup import Setup, strategy_name

__all__ = ["decode", "encode", "spelled"]

REGISTRIES: tuple[dict[str, Any], ...] = (OPTIMIZERS, SCHEDULES, CODECS, COMPENSATIONS)


def spelled(value: Any) -> str:
    """A value as the text that the command line, a menu or a code takes for it: `momentum:0.9`, `by-label:0.5`."""
    if value is None:
        return "none"
    if isinstance(value, Law):
        return value.describe()
    if isinstance(value, Partition):
        return _partition(value)
    if isinstance(value, tuple):
        return ",".join(spelled(v) for v in value)
    if isinstance(value, dict):
        return ",".join(f"{name}:{spelled(v)}" for name, v in value.items())
    if isinstance(value, (bool, int, str)):
        return str(value)
    if isinstance(value, float):
        return "inf" if math.isinf(value) else repr(value)
    return _named(value)


def _named(value: Any) -> str:
    """An optimizer, a schedule, a codec: its name and its knobs in order, those at the end left out if as by default."""
    for registry in REGISTRIES:
        for name, kind in registry.items():
            if type(value) is kind:
                after = getattr(value, "after", Constant())
                knobs = list(knobs_of(kind).values())
                while knobs and getattr(value, knobs[-1].name) == knobs[-1].default:
                    knobs.pop()
                numbers = [spelled(getattr(value, known.name)) for known in knobs]
                return ":".join([name, *numbers]) + (f"+{_named(after)}" if after != Constant() else "")
    raise BadInput(f"{value!r} was made by hand: it has no short text.")


def _partition(value: Partition) -> str:
    text = partition_as_text(value)
    if text is None:
        raise BadInput(f"{value!r} was made by hand: it has no short text.")
    return text


def encode(setup: Setup, **more: str) -> str:
    """The text of a setup; `more`: what else belongs to a lab (its story, its panels, what was done to the run)."""
    if strategy_name(setup.strategy) not in STRATEGIES:
        raise BadInput(f"{setup.strategy.name} is a strategy of your own: a code can only name labkit's strategies.")
    if not isinstance(setup.problem.data, str):
        raise BadInput(f"{setup.problem.name} is data of your own: a code can only name labkit's data sets.")
    name = strategy_name(setup.strategy)
    plain = Setup().changed(strategy=name)
    if setup.problem.name != plain.problem.name:
        plain = plain.changed(data=setup.problem.name)
    parts = {"strategy": name} | ({"data": setup.problem.name} if setup.problem.name != Setup().problem.name else {})
    skipped = {"strategy", "data", "pace", "law"}
    if setup.shape.compute != plain.shape.compute:
        parts["compute"] = spelled(setup.shape.compute)
    for setting in setup.names:
        if setting not in skipped and setup.value(setting) != plain.value(setting):
            parts[setting] = spelled(setup.value(setting))
    return urlencode(parts | more, safe=":,+-/@# ").replace(" ", "+")


def decode(code: str, also: tuple[str, ...] = ()) -> tuple[Setup, dict[str, str]]:
    """(setup, what else was in it: only the names in `also` are allowed). `BadInput` says what is wrong with a code."""
    try:
        pairs = dict(
            parse_qsl(str(code).strip().replace("+", "%2B"), keep_blank_values=True, strict_parsing=bool(code))
        )
    except ValueError:
        raise BadInput(f"{code!r} is not the code of a lab; one reads strategy=ssp&s=5&workers=8.") from None
    more = {name: pairs.pop(name) for name in also if name in pairs}
    setup = Setup()
    first = {name: pairs.pop(name) for name in ("strategy", "data") if name in pairs}
    if "data" in first and "strategy" in first:
        setup = setup.changed(strategy=first["strategy"], data=first["data"])
    elif first:
        setup = setup.changed(**first)
    return setup.changed(**{name: read(setup, name, text) for name, text in pairs.items()}), more


def read(setup: Setup, name: str, text: str) -> Any:
    """The value that a text means for a setting: `"4"` workers is 4, `"none"` clip_norm is None."""
    if name in ("slow", "options"):
        found: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            key, colon, raw = part.rpartition(":")
            if not colon:
                raise BadInput(f"{name}={text!r}: write {name}=worker-2:5, names and numbers.")
            found[key] = number(raw)
        return found
    if name == "hidden":
        widths = [w.strip() for w in text.replace("none", "").split(",")]
        return tuple(int(w) if w.isdigit() else w for w in widths if w)
    if name in ("law", "compute", "strategy", "data"):
        return None if name == "compute" and text == "none" else text
    for holder in (setup.strategy, setup.shape, setup.budget, setup.problem):
        known = knobs_of(holder).get(name)
        if known is not None and known.type is not object:
            if known.optional and text.lower() in ("", "none"):
                return None
            return text if known.type is str else number(text)
    return number(text) if name in ("pace", "speed") else text
