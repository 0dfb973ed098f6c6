"""Functions shared by the panels about data: predictions of the model at a time, class names, and the reason why data are
missing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from ..trace.prediction_history import NO_ANSWER
from ..trace.trace import Trace

LETTER = 7  # maximum average width of a letter in pixels


def missing_text(recorded: object, wide: int) -> str:
    """Return the reason why the header has no `recorded` (samples or shares), wrapped to `wide` pixels, or "" if it has
    them.
    """
    return wrapped(recorded, wide) if isinstance(recorded, str) else ""


def wrapped(words: str, wide: int) -> str:
    """Wrap `words` to lines of at most `wide` pixels."""
    return textwrap.fill(words, max(20, (wide - 20) // LETTER))


def predicted_classes(trace: Trace, t: int) -> list[int | None] | None:
    """Return the last prediction before `t` (ns) for each held-out sample, or None before the first evaluation.

    The entry of a sample is None if the output of the model for it is not finite.
    """
    look, samples = trace.predictions_at(t), trace.header.samples
    if look is None or isinstance(samples, str) or len(look.samples) != len(samples.labels):
        return None
    return [None if said == NO_ANSWER else said for said in look.samples]


def class_name(names: Sequence[str] | None, number: int | None, letters: int = 9) -> Any:
    """Return the name of a class, or its number as text if it has no name. None for a missing prediction."""
    if number is None:
        return None
    name = str(names[number]) if names and number < len(names) else str(number)
    return name if len(name) <= letters else name[: letters - 1] + "…"


def without_axes(axes: Axes) -> None:
    """Remove ticks and frame. (`set_axis_off` would hide them only when the axes are drawn as a whole.)"""
    for part in (axes.xaxis, axes.yaxis, *axes.spines.values()):
        part.set_visible(False)
