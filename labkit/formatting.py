"""Numbers and role names as text: in tables, sentences and figures. Every format is defined once, here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral

TIMES = (("s", 1e9), ("ms", 1e6), ("us", 1e3))
UNITS_OF_BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}
BYTES = re.compile(rf"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*({'|'.join(UNITS_OF_BYTES)})?(?:/s)?")


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: `1 server`, `2 servers`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def number_text(value: float | None) -> str:
    """Return a number with four significant digits, or, from 1000 on, as a whole number with separators; `none` for None."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def number_texts(values: Sequence[float]) -> list[str]:
    """Return the numbers of a column of a table. Whole numbers have separators.

    If a number is not whole, all have the same number of decimals, with four significant digits in the largest one; if that
    changes a number by more than 1%, each is as in `number_text`. From 1e15 on, each has four significant digits.
    """
    finite = [value for value in values if math.isfinite(value)]
    whole = all(isinstance(value, Integral) or value == int(value) for value in finite)
    largest = max(map(abs, finite), default=0)
    texts = [f"{value:,.4g}" if abs(value) < 1000 else "" for value in finite]
    needed = max((len(text.partition(".")[2]) for text in texts), default=0)
    digits = 0 if whole or not largest else max(0, min(needed, 3 - math.floor(math.log10(largest))))
    if largest >= 1e15:
        return [f"{value:.4g}" for value in values]
    if not whole and any(abs(round(value, digits) - value) > 0.01 * abs(value) for value in finite):
        return [number_text(value) for value in values]
    return [f"{value:,.{digits}f}" if math.isfinite(value) else f"{value:g}" for value in values]


def bytes_text(count: float) -> str:
    """Return a number of bytes with three significant digits: `999 B`, `1.23 kB`, `9.84 MB`, `2,500 TB`. 1 kB is 1000 B."""
    for unit, size in UNITS_OF_BYTES.items():
        if count >= 0.9995 * size:
            value = count / size
            return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
    return f"{count:.3g} B"


def bandwidth_text(bandwidth: float | None) -> str:
    """Return the limit of the bandwidth of a role as the end of a sentence: `is limited to 10 MB/s`."""
    return "has no limited bandwidth" if bandwidth is None else f"is limited to {bytes_text(bandwidth)}/s"


def bytes_from_text(text: str) -> float | None:
    """Return the number of bytes, or of bytes/s, that a text means: `10MB/s`, `1.5 kB`, `1e6`; None if it means none."""
    found = BYTES.fullmatch(text.strip())
    return None if found is None else float(found[1]) * UNITS_OF_BYTES[found[2] or "B"]


def decimals(value: float) -> str:
    """Return a number with two decimals, `3.00`; exact zero is `0`."""
    return "0" if value == 0 else f"{value:,.2f}"


def percent(share: float) -> str:
    """Return a share as a percentage, `80%`; positive shares below 0.5% are `<1%`."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def rate(value: float) -> str:
    """Return a number of gradients per second, with one decimal if it is below 10: `31`, `2.1`, `12,000`."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def speed(factor: float, digits: int | None = None) -> str:
    """Return a slowdown factor as text: `5x slower`, or `2x faster` if it is below 1. `digits`: the number of significant digits
    (2 in `1,200x slower`).
    """
    value = factor if factor >= 1 else 1 / factor
    if digits is not None:
        value = float(f"{value:.{digits}g}")
    elif factor < 1:
        value = float(f"{value:.3g}")
    return f"{value:,g}x {'slower' if factor >= 1 else 'faster'}"


def duration(ns: float, digits: int = 3) -> str:
    """Return a time (ns) with `digits` significant digits, in the largest fitting unit: `1.8 ms`, `250 us`, `4 s`."""
    for unit, size in TIMES:
        if ns >= size:
            value = ns / size
            return f"{value:.{digits}g} {unit}" if value < 10**digits else f"{value:.0f} {unit}"
    return f"{ns:.0f} ns"


def time_text(seconds: float) -> str:
    """Return a time in seconds with three significant digits, as `duration`; exact zero is `0 s`."""
    return duration(1e9 * seconds) if seconds else "0 s"


def durations(ns: float, *more: float) -> tuple[str, ...]:
    """Return times (ns) in one unit, that of the first, with as many decimals as the smallest needs: `0.50 s`, `12.00 s`."""
    unit, size = next((u, s) for u, s in TIMES if ns >= 0.0995 * s or u == "us")
    smallest = min([value / size for value in (ns, *more) if value > 0], default=1.0)
    digits = max(0, min(4, 1 - math.floor(math.log10(smallest * 1.005))))
    return tuple(f"{value / size:.{digits}f} {unit}" for value in (ns, *more))


def listed(names: Sequence[str], last: str = "and") -> str:
    """Join names in a sentence: `w1`, `w1 and w2`, `w0, w1 and w2`. `last`: the last conjunction."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


_SHORT = {"worker": "w", "server": "s", "stage": "st", "replica": "r", "backup": "b"}
# not in the name of a file of a checkpoint
_ROLE = re.compile(r"\b(worker|server|stage|replica|backup)-(\d+)\b(?!\.\d)")


def call_text(name: str, options: Mapping[str, object]) -> str:
    """Return how an object is made: `CNN(channels=8)`."""
    return f"{name}({', '.join(f'{option}={value}' for option, value in options.items())})"


def ordinal(number: int) -> str:
    """Return an ordinal number: `1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def short(name: str) -> str:
    """Return the short form of a role name: `w2` for worker-2, `s0` for server-0. Other names are returned unchanged."""
    match = _ROLE.fullmatch(name)
    return _SHORT[match[1]] + match[2] if match else name


def shortened(text: str) -> str:
    """Replace every role name in `text` by its short form."""
    return _ROLE.sub(lambda match: short(match[0]), text)
