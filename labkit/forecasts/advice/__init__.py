"""Ranking of strategies for a problem on a cluster, by simulated step times.

A *step* is N gradients, where N is the number of workers, so a step has the same number of samples for all strategies.
A synchronous server makes one update per step, an asynchronous server N updates, and a pipeline (whose workers compute
one gradient together) N updates. Strategies are ranked by the time of a step; strategies that do not fit into memory come
last. The number of steps to a given accuracy is not forecast, although stale gradients or infrequent averaging may need
more steps. The staleness is listed.

`steady_state` simulates the step, `explanation` says why it takes so long, `collectives` has closed forms for steps that are too
expensive to simulate, `memory` adds up what the layout places on each node, and `theory` lists textbook formulas.
"""

from __future__ import annotations

from .advise import Advice, AdviceRow, advise

__all__ = ["Advice", "AdviceRow", "advise"]
