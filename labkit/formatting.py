"""Numbers and role names as text: in tables, sentences and figures. Every format is defined once, here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

__all__ = [
    "bytes_text", "count_text", "decimals", "duration", "durations", "listed", "number_text", "ordinal", "percent", "rate",
    "short", "shortened", "speed",
]  # fmt: skip

TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3))


def count_text(number: int, noun: str) -> str:
    """`1 server`, `2 servers`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number_text(value: float | None) -> str:
    """Three or four significant digits, thousands separated; `none`."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def bytes_text(count: float) -> str:
    """`999 B`, `1.23 kB`, `9.84 MB`, `2,500 TB`: three significant digits in the unit that fits, units of 1000."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)):
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
    return f"{count:.3g} B"


def decimals(value: float) -> str:
    """`3.00`; exact zero is `0`."""
    return "0" if value == 0 else f"{value:,.2f}"


def percent(share: float) -> str:
    """`80%`; small positive shares are `<1%`."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def rate(value: float) -> str:
    """`31`, `2.1`, `12,000`: gradients per second."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def speed(factor: float, digits: int | None = None) -> str:
    """How much slower: `5x slower`, `2x faster`; `digits`: significant ones, as in `1,200x slower`."""
    value = factor if factor >= 1 else 1 / factor
    if digits is not None:
        value = float(f"{value:.{digits}g}")
    elif factor < 1:
        value = float(f"{value:.3g}")
    return f"{value:,g}x {'slower' if factor >= 1 else 'faster'}"


def duration(ns: float, digits: int = 3) -> str:
    """`1.8 ms`, `250 us`, `4 s`: `digits` significant digits, in the unit that fits."""
    for unit, size in TIMES:
        if ns >= size:
            value = ns / size
            return f"{value:.{digits}g} {unit}" if value < 10**digits else f"{value:.0f} {unit}"
    return f"{ns:.0f} ns"


def durations(ns: float, *more: float) -> tuple[str, ...]:
    """`0.50 s`, `12 s`, `5.0 ms`, `80 us`: in the unit that fits the first; all with as many digits as the smallest needs."""
    unit, size = next((u, s) for u, s in TIMES if ns >= 0.0995 * s or u == "us")
    smallest = min([value / size for value in (ns, *more) if value > 0], default=1.0)
    digits = max(0, min(4, 1 - math.floor(math.log10(smallest * 1.005))))
    return tuple(f"{value / size:.{digits}f} {unit}" for value in (ns, *more))


def listed(names: Sequence[str], last: str = "and") -> str:
    """`w1`, `w1 and w2`, `w0, w1 and w2`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


_SHORT = {"worker": "w", "server": "s", "stage": "st", "replica": "r", "backup": "b"}
_ROLE = re.compile(r"\b(worker|server|stage|replica|backup)-(\d+)\b")


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def short(name: str) -> str:
    """`w2` for worker-2, `s0` for server-0; other names as they are."""
    match = _ROLE.fullmatch(name)
    return _SHORT[match[1]] + match[2] if match else name


def shortened(text: str) -> str:
    """`text` with every role name in its short form."""
    return _ROLE.sub(lambda match: short(match[0]), text)
