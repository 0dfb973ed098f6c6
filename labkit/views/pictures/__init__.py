"""`lk.pictures`: five pictures, each of which says one thing that distributed training teaches; and one for the rest.

    slowest          the slowest sets the pace, where all wait for it
    staleness_law    staleness is N - 1, whoever is slow
    explosion        stale and fast explodes
    wires            one wire fills, the ring does not
    bubble           a pipeline's bubble is (P - 1)/(M + P - 1)

    dots, beside     any measurement beside its formula; one panel of several runs
    scaling          throughput against workers; ranking and trade: what architectures cost

Each of the five takes runs (or their traces) and returns a matplotlib `Figure`, which the last expression of a cell
shows. Every number on it is computed from the traces; the laws are drawn in red beside what was measured.
"""

from __future__ import annotations

from .bubble import bubble
from .costs import ranking, scaling, trade
from .explosion import explosion
from .slowest import slowest
from .staleness_law import staleness_law
from .teaching import beside, dots
from .wires import wires

__all__ = ["beside", "bubble", "dots", "explosion", "ranking", "scaling", "slowest", "staleness_law", "trade", "wires"]
