"""Ranking of strategies for a problem on a cluster, by formulas that are shown with the results.

A *step* is N gradients, where N is the number of workers, so a step has the same number of samples for all strategies.
A synchronous server makes one update per step, an asynchronous server N updates, and a pipeline (whose workers compute
one gradient together) N updates. Strategies are ranked by the forecast time of a step; strategies that do not fit into
memory come last. The number of steps to a given accuracy is not forecast, although stale gradients or infrequent
averaging may need more steps. The staleness is listed.

`parameter_server`, `peers`, `model_parallel` and `sparse` have a formula for every strategy, for labkit's network
model. `accuracy` has the measured errors of the formulas relative to the simulator.
"""

from __future__ import annotations

from .advise import Advice, AdviceRow, advise

__all__ = ["Advice", "AdviceRow", "advise"]
