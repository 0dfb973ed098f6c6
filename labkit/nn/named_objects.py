"""Objects written as text: `name`, or `name:VALUE:VALUE` with values of the options in the order of declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import BadInput, nearest, shown
from ..options import options_of, parse_option, write_option


def make_by_name(what: str, text: str, allowed: Mapping[str, type]) -> Any:
    """Make an object from text: `Step(100, 0.5)` from `"step:100:0.5"`. `what`: the kind of object, for error messages.

    Raises `BadInput` if the name is not in `allowed`, or there are too few, too many or bad values.
    """
    name, *values = (part.strip() for part in text.split(":"))
    if name.lower() not in allowed:
        raise nearest(what, name, allowed)
    made = allowed[name.lower()]
    options = options_of(made)
    needed = [k for k in options.values() if k.default is dataclasses.MISSING]
    if not len(needed) <= len(values) <= len(options):
        form = ":".join(
            [name.lower(), *(k.name.upper() if k in needed else f"[{k.name.upper()}]" for k in options.values())]
        )
        raise BadInput(f"{shown(text)} is not a {what}; write {form}.")
    return made(**dict(parse_option(made.__name__, options, f"{k}={value}") for k, value in zip(options, values)))


def name_as_text(value: Any, allowed: Mapping[str, type]) -> str | None:
    """Return the text that `make_by_name` reads as this value: name and options in order, without trailing defaults.

    Returns None if the class of the value is not in `allowed`.
    """
    for name, kind in allowed.items():
        if type(value) is kind:
            options = list(options_of(kind).values())
            while options and getattr(value, options[-1].name) == options[-1].default:
                options.pop()
            return ":".join([name, *(write_option(k, getattr(value, k.name)) for k in options)])
    return None
