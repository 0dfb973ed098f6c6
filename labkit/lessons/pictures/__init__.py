"""`lk.lessons.pictures`: five figures for teaching, each about one property of distributed training, and general-purpose figures.

    straggler         the slowest worker determines the throughput if all wait for it
    mean_staleness    mean staleness is N - 1, also with slow workers
    divergence        a high rate with stale gradients diverges
    link_saturation   the link of one server saturates, that of a ring does not
    bubble            the bubble of a pipeline is (P - 1)/(M + P - 1)

    scatter, side_by_side    any measurement with its formula; one panel of several runs
    scaling                  throughput against workers
    ranking, memory_traffic  the costs of architectures

Each of the five functions takes runs (or their traces) and returns a matplotlib `Figure`, which is displayed if it is the
last expression of a cell. Every measured number is computed from the traces. Theoretical values are drawn in red next to
the measurements.
"""

from __future__ import annotations

from .architectures import memory_traffic, ranking, scaling
from .bubble import bubble
from .divergence import divergence
from .link_saturation import link_saturation
from .mean_staleness import mean_staleness
from .measurements import scatter, side_by_side
from .straggler import straggler

__all__ = [
    "bubble", "divergence", "link_saturation", "mean_staleness", "memory_traffic", "ranking", "scaling", "scatter",
    "side_by_side", "straggler",
]  # fmt: skip
