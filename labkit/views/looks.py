"""What the panels on the data share: the answers of the model at a time, names of classes, why there is nothing."""

from __future__ import annotations

import textwrap
from typing import Any

from matplotlib.axes import Axes

from ..trace.looks import NO_ANSWER
from ..trace.trace import Trace

__all__ = ["answers", "lines_of", "missing", "named", "without_axes"]

LETTER = 7  # pixels that a letter takes at most, on average


def missing(trace: Trace, wide: int, what: str = "samples") -> str:
    """Why the trace has no `what` ("samples", "shares") to show, in lines that fit into `wide` pixels; "" if it has."""
    return lines_of(str(trace.header.get(what, {"none": "this run was recorded without it"}).get("none", "")), wide)


def lines_of(words: str, wide: int) -> str:
    """`words` in lines that fit into `wide` pixels."""
    return textwrap.fill(words, max(20, (wide - 20) // LETTER))


def answers(trace: Trace, t: int) -> list[int | None] | None:
    """The class that the model last gave each held-out sample before `t` (ns): None for a sample where it had no answer,
    and instead of the list before the first evaluation.
    """
    look, samples = trace.look(t), trace.header.get("samples", {})
    if look is None or len(look.samples) != len(samples.get("labels", ())):
        return None
    return [None if said == NO_ANSWER else said for said in look.samples]


def named(about: dict[str, Any], number: int | None, letters: int = 9) -> Any:
    """The class as people call it: its name if the header knows one, else its number; no answer is None."""
    if number is None:
        return None
    names = about.get("names")
    name = str(names[number]) if names and number < len(names) else str(number)
    return name if len(name) <= letters else name[: letters - 1] + "…"


def without_axes(axes: Axes) -> None:
    """No ticks and no frame. (`set_axis_off` would hide them only from those who draw the axes as a whole.)"""
    for part in (axes.xaxis, axes.yaxis, *axes.spines.values()):
        part.set_visible(False)
