"""Ranking of strategies for a problem on a cluster, by formulas that are shown with the results.

A *step* is one gradient of every worker: N gradients, and the same number of samples for all strategies. A synchronous
server makes one update per step, an asynchronous one N, a pipeline (whose workers compute one gradient together) N.
Strategies are ranked by the predicted time of a step; those that do not fit into memory come last. The number of steps to
a given accuracy is not predicted: stale gradients or infrequent averaging may need more. The staleness is listed.

`parameter_server`, `peers`, `model_parallel` and `sparse` have a formula for every strategy, for labkit's network model;
`errors` has the measured errors relative to the simulator.
"""

from __future__ import annotations

from .advise import Advice, Prediction, advise

__all__ = ["Advice", "Prediction", "advise"]
