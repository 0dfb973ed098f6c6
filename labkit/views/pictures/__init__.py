"""`lk.pictures`: five teaching figures, each about one property of distributed training, and general-purpose figures.

    slowest          the slowest worker sets the pace if all wait for it
    staleness_law    mean staleness is N - 1, also with slow workers
    explosion        a high rate with stale gradients diverges
    wires            the link of one server saturates, that of a ring does not
    bubble           the bubble of a pipeline is (P - 1)/(M + P - 1)

    dots, beside     any measurement with its formula; one panel of several runs
    scaling          throughput against workers; ranking and trade: the costs of architectures

Each of the five takes runs (or their traces) and returns a matplotlib `Figure`, displayed by the last expression of a cell.
Every number in it is computed from the traces; the laws are drawn in red next to the measurements.
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
