"""Style of all figures: a fixed meaning of colours, few sizes, plain axes.

    blue = a worker, this run      green = the server      orange = faults and commands      violet = communication of tasks
    red = the theory, errors          dashed grey = the reference           short black dashes = the forecast

Nothing here uses pyplot or changes the global settings of matplotlib, so labkit does not affect a user's plots. Every
colour and size is passed to its artist, so a user's style sheet does not change labkit's figures. Text is never parsed as
mathematics.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator

BLUE, BLUE_LINE, BLUE_FILL, BLUE_MIST = "#3b6cf6", "#8fadf9", "#c3d2fc", "#e3eafe"
GREEN, GREEN_FILL = "#2a9158", "#bce0cb"
ORANGE, ORANGE_DEEP, ORANGE_FILL = "#ef7a17", "#fab877", "#fdd7b1"
VIOLET, VIOLET_FILL = "#8152d6", "#cdb9f5"
RED = "#cc1f1f"
GREY, FAINT, GRID = "#6b7485", "#9aa5b5", "#eceff4"
INK, PAPER = "#1f2733", "#ffffff"

SMALL, NORMAL, TITLE = 8.5, 9.0, 10.5  # points
FORECAST_LINE = (0, (2.2, 2.0))  # short dashes
DPI = 100  # one notebook pixel is one figure pixel
FAMILY = "DejaVu Sans"  # ships with matplotlib, so figures are the same everywhere

_NICE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)

# Advance widths of characters, in hundredths of the font size, rounded up so that text fits the space reserved for it.
_ADVANCE = (
    (34, "'ijlIJ ,.·/:;\\|"), (41, "f-()[]t!r"), (52, "\"*_`–sz?"), (60, "cLFkvxyPTYao"), (64, "eESbdghnpqu$0123456789{}"),
    (70, "KAVBRXZC"), (78, "UHNDG&OQ"), (85, "w#+<=>^~−×≥≤→"), (100, "%m½MW@…"),
)  # fmt: skip


def plain(value: float, _: Any = None) -> str:
    """Return the text of a tick without powers of ten: 0.25, 1,000, 20k, 3M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(unit, 1e4):
            return f"{value / unit:,.6g}{name}".replace("-", "−")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.6g}".replace("-", "−")


def plain_axes(axes: Axes, grid: str | None = "both", x_ticks: int = 6, y_ticks: int = 3) -> Axes:
    """Give `axes` the plain style, and return them: two thin spines, short ticks, and a faint grid (`"x"`, `"y"`,
    `"both"` or None).
    """
    axes.set_facecolor(PAPER)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
        spine.set_linewidth(1.0)
    axes.tick_params(length=3, width=0.8, color=FAINT, labelcolor=GREY, labelsize=SMALL, labelfontfamily=FAMILY, pad=3)
    axes.grid(False)
    if grid:
        axes.grid(True, axis=grid, color=GRID, linewidth=1.0, linestyle="-")  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(x_ticks, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(y_ticks, steps=[1, 2, 5, 10]))
    numbers(axes)
    return axes


def numbers(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))


def text(colour: str = GREY, size: float = SMALL, **more: Any) -> dict[str, Any]:
    return {"color": colour, "fontsize": size, "fontfamily": FAMILY, "parse_math": False, **more}


def write(axes: Axes, x: float, y: float, words: str, colour: str = GREY, size: float = SMALL, **more: Any) -> Text:
    """Write a text that never changes the limits of its axes."""
    made = axes.text(x, y, words, **text(colour, size, **more))
    made.set_in_layout(False)
    return made


def note(axes: Axes) -> Text:
    """Create an empty text in the middle of the axes, which is visible once its text is set."""
    return write(axes, 0.5, 0.5, "", ha="center", va="center", transform=axes.transAxes)


def halo(width: float = 3.0) -> list[Any]:
    """Return a white outline for a text that may lie on a line."""
    return [patheffects.withStroke(linewidth=width, foreground=PAPER)]


def tinted(colour: str, alpha: np.ndarray) -> np.ndarray:
    """Return the pixels of an image in one colour, float of shape (*alpha.shape, 4): `alpha` from 0, the paper, to 1.

    Pixels that are mixed with the paper only when they are drawn look right on a white page and on a dark one.
    """
    return np.concatenate([np.broadcast_to(to_rgb(colour), (*alpha.shape, 3)), alpha[..., None]], axis=-1)


def layer_colours(count: int, slow: bool = False) -> np.ndarray:
    """Return the colour of each layer's backward pass, RGB of shape (count, 3): the later the layer, the stronger. `slow`: in a
    worker that is slowed.
    """
    first, last = (ORANGE_DEEP, ORANGE) if slow else (BLUE_LINE, BLUE)
    share = np.linspace(0.0, 1.0, count)[:, None] if count > 1 else np.ones((1, 1))
    return (1 - share) * to_rgb(first) + share * to_rgb(last)


def nice_above(value: float) -> float:
    """Return the smallest round number not below `value`, so that axes grow in steps."""
    if not 0 < value < float("inf"):
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next((power * step for step in _NICE if power * step >= value * (1 - 1e-9)), power * 10)


def nice_below(value: float) -> float:
    """Return the largest of 1, 2, 5, 10, 20, 50 ... not above `value`; at least 1."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return max(power * step for step in (1, 2, 5) if power * step <= max(value, 1.0))


@functools.lru_cache(maxsize=4096)
def width(words: str, size: float = SMALL, bold: bool = False) -> float:
    """Return the width of a text in pixels at `DPI`, computed without drawing and the same on every machine."""
    hundredths = sum(next((wide for wide, kind in _ADVANCE if letter in kind), 65) for letter in words)
    return hundredths / 100 * size * DPI / 72 * (1.12 if bold else 1.0)


def wrapped(words: str, room: float, size: float = SMALL) -> list[str]:
    """Return a text as lines of at most `room` pixels, divided between words."""
    lines = [""]
    for word in words.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def spread(heights: list[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Move `heights` apart by at least `gap`. Their order is kept, and they stay within [low, high] as far as possible."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed: list[float] = []
    for i in order:
        placed.append(max(heights[i], placed[-1] + gap if placed else low))
    ceiling = high
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = min(placed[k], ceiling)
        ceiling = placed[k] - gap
    moved = [0.0] * len(heights)
    for k, i in enumerate(order):
        moved[i] = placed[k]
    return moved
