"""Objects by what people type: `name`, or `name:VALUE:VALUE` with the knobs in the order of their declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput, nearest, shown
from ..knobs import knobs_of, parse_knob

__all__ = ["make_by_name"]


def make_by_name(what: str, text: str, allowed: Mapping[str, type]) -> Any:
    """`"step:100:0.5"` -> `Step(100, 0.5)`. `BadInput` for an unknown name and for too few, too many or bad values."""
    name, *values = (part.strip() for part in text.split(":"))
    if name.lower() not in allowed:
        raise nearest(what, name, allowed)
    made = allowed[name.lower()]
    knobs = knobs_of(made)
    needed = [k for k in knobs.values() if k.default is dataclasses.MISSING]
    if not len(needed) <= len(values) <= len(knobs):
        form = ":".join(
            [name.lower(), *(k.name.upper() if k in needed else f"[{k.name.upper()}]" for k in knobs.values())]
        )
        raise BadInput(f"{shown(text)} is not a {what}; write {form}.")
    return made(**dict(parse_knob(made.__name__, knobs, f"{k}={value}") for k, value in zip(knobs, values)))
