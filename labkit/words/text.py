"""Numbers as a person reads them in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..trace.vocabulary import NANO

__all__ = ["decimals", "duration", "listed", "percent", "rate", "times"]


def duration(ns: float, *more: float) -> tuple[str, ...]:
    """`0.50 s`, `12 s`, `5.0 ms`, `80 us`: in the unit that fits the first; all with as many digits as the smallest needs."""
    unit, size = next(
        (u, s) for u, s in (("s", NANO), ("ms", NANO / 1e3), ("us", 1e3)) if ns >= 0.0995 * s or u == "us"
    )
    smallest = min([value / size for value in (ns, *more) if value > 0], default=1.0)
    digits = max(0, min(4, 1 - math.floor(math.log10(smallest * 1.005))))
    return tuple(f"{value / size:.{digits}f} {unit}" for value in (ns, *more))


def percent(share: float) -> str:
    """`80%`; `<1%` of what is more than nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def times(factor: float) -> str:
    """How much slower: `5x slower`, `2x faster`."""
    return f"{factor:g}x slower" if factor >= 1 else f"{1 / factor:.3g}x faster"


def rate(value: float) -> str:
    """`31`, `2.1`, `12,000`: gradients a second."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}"


def decimals(value: float) -> str:
    """`3.00`, and `0` of exactly nothing."""
    return "0" if value == 0 else f"{value:,.2f}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`w1`, `w1 and w2`, `w0, w1 and w2`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
