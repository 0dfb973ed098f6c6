"""Stories about staleness: how much there is, when it is too much, and what bounds it.

    mean staleness             N - 1, whoever is slow: each of the others moves the weights on once
    constant staleness k       on curvature w^2 / 2 converges iff rate x curvature < 2 sin(pi / (2 (2 k + 1)))
    bounded staleness          nobody begins an iteration more than s ahead of the slowest

(Mitliagkas et al. on the mean, Ho et al. on the bound: `AsyncPS`, `SSP`.)
"""

from __future__ import annotations

from ...engines.commands import Slow
from ..story import Act, Story

__all__ = ["RUNAWAY", "STALENESS", "STALE_AND_FAST"]

# N = 4: 3, and 3 with a slow worker; N = 8: 7.
STALENESS = Story(
    name="staleness",
    title="Staleness is N − 1, whoever is slow",
    shows="A gradient is as old as the others are many: N − 1 updates on average, whatever the workers' speeds.",
    settings={"strategy": "async-ps", "servers": 1, "law": "lognormal", "pace": 0.1, "seconds": 7},
    acts=(
        Act({"workers": 4}, says="Four workers, equally fast on average: a gradient is 3 updates old, more or less."),
        Act(
            {"workers": 4}, (Slow("worker-2", 5, at=2),),
            says="At 2 s w2 becomes 5 times slower: its gradients are older, the others' fresher, and the mean stays 3.",
        ),
        Act({"workers": 8}, says="Eight workers: now it is 7."),
    ),
    panels=("timeline", "staleness", "staleness_over_time"),
)  # fmt: skip

# tau = N - 1 = 7: the edge is at .209; tau = 3: .445. (Curvature 1, so the rate is the product.)
STALE_AND_FAST = Story(
    name="stale-and-fast",
    title="Stale and fast explodes",
    shows="The staler the gradients, the shorter the steps must be: beyond the edge the loss grows without end.",
    settings={
        "strategy": "async-ps", "data": "quadratic", "servers": 1, "law": "deterministic", "pace": 0.1, "seconds": 7,
        "eval_every": 4,
    },
    acts=(
        Act(
            {"workers": 8, "learning_rate": 0.15},
            says="Eight workers, rate 0.15: inside the edge. The loss swings, and calms down.",
        ),
        Act(
            {"workers": 8, "learning_rate": 0.25},
            says="Eight workers, rate 0.25: beyond the edge. Every swing is larger than the last.",
        ),
        Act(
            {"workers": 4, "learning_rate": 0.25},
            says="The same rate and four workers: fresher gradients, and inside again.",
        ),
    ),
    panels=("stability", "loss", "staleness"),
)  # fmt: skip

# Lead of a worker that is F times faster after T seconds: (F - 1) T/c without a bound, s with one.
RUNAWAY = Story(
    name="runaway",
    title="A bound catches a runaway",
    shows="Where nobody waits a fast worker runs away from the others; a bound on its lead holds it at once.",
    settings={"workers": 4, "servers": 1, "law": "deterministic", "pace": 0.1, "seconds": 8},
    acts=(
        Act(
            {"strategy": "async-ps"}, (Slow("worker-2", 0.2, at=2),),
            says="Asynchronous. At 2 s w2 becomes 5 times faster, and nothing holds it.",
        ),
        Act(
            {"strategy": "ssp", "s": 3}, (Slow("worker-2", 0.2, at=2),),
            says="Bounded staleness, s = 3. The same w2 may be 3 iterations ahead, and then it waits.",
        ),
    ),
    panels=("timeline", "progress", "throughput"),
)  # fmt: skip
