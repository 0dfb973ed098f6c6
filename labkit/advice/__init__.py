"""Which architecture for this problem on this cluster? Predictions by formula, ranked, with the formulas shown.

A *step* is one gradient of every worker: N gradients, as many samples whatever the strategy. It is what a synchronous
server does in one update, an asynchronous one in N, a pipeline (whose workers make one gradient together) in N. Ranked
is the predicted time of a step, strategies that do not fit into memory last. How much a gradient is worth is another
question: stale or rare averages may need more of them; staleness stands beside.

`served`, `peers`, `split`, `rows` have a formula for every strategy, after labkit's own network model; `errors` says how far
each was found to be from the simulator.
"""

from __future__ import annotations

from .advise import Advice, Prediction, advise

__all__ = ["Advice", "Prediction", "advise"]
