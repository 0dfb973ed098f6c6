"""Scenarios about staleness: its mean, the edge of stability, and bounded staleness.

    mean staleness             N - 1, also with a slow worker: on average, every other worker updates the weights once in between
    constant staleness k       on the loss w^2 / 2 converges iff rate x curvature < 2 sin(pi / (2 (2 k + 1)))
    bounded staleness          no worker begins an iteration more than s iterations ahead of the slowest worker

The mean is from Mitliagkas et al. (see `AsyncPS`), the bound from Ho et al. (see `SSP`).
"""

from __future__ import annotations

from ...engines.commands import Slow
from .scenario import Scenario, ScenarioStep

# The mean staleness is 3 for N = 4, with and without a slow worker, and 7 for N = 8.
STALENESS = Scenario(
    name="staleness",
    title="Mean staleness is N − 1",
    summary="With N asynchronous workers the mean staleness is N − 1 updates, whatever the workers' speeds.",
    settings={"strategy": "async-ps", "servers": 1, "distribution": "lognormal", "pace": 0.1, "seconds": 7},
    steps=(
        ScenarioStep({"workers": 4}, text="Four workers, equally fast on average: mean staleness is about 3."),
        ScenarioStep(
            {"workers": 4}, (Slow("worker-2", 5, at=2),),
            text="At 2 s w2 becomes 5 times slower: its gradients are staler, those of the others less stale; the mean stays 3.",
        ),
        ScenarioStep({"workers": 8}, text="Eight workers: mean staleness is 7."),
    ),
    panels=("timeline", "staleness", "staleness_over_time"),
)  # fmt: skip

# For tau = N - 1 = 7 the edge of stability is at 0.209, for tau = 3 at 0.445. The curvature is 1, so rate x curvature is
# the rate.
STALE_AND_FAST = Scenario(
    name="stale-and-fast",
    title="Stale gradients and a high rate diverge",
    summary="The staler the gradients, the smaller the rate must be: beyond the edge of stability training diverges.",
    settings={
        "strategy": "async-ps", "data": "quadratic", "servers": 1, "distribution": "deterministic", "pace": 0.1, "seconds": 7,
        "eval_every": 4,
    },
    steps=(
        ScenarioStep(
            {"workers": 8, "learning_rate": 0.15},
            text="Eight workers, rate 0.15: stable. The loss oscillates, and the oscillation decays.",
        ),
        ScenarioStep(
            {"workers": 8, "learning_rate": 0.25},
            text="Eight workers, rate 0.25: unstable. Each oscillation is larger than the last.",
        ),
        ScenarioStep(
            {"workers": 4, "learning_rate": 0.25},
            text="The same rate with four workers: lower staleness, and stable again.",
        ),
    ),
    panels=("stability", "loss", "staleness"),
)  # fmt: skip

# After T seconds, a worker that is F times faster has a lead of (F - 1) T/c without a bound, and of s with a bound.
RUNAWAY = Scenario(
    name="runaway",
    title="A bound limits a fast worker",
    summary="Without a bound the lead of a fast worker grows; bounded staleness limits it.",
    settings={"workers": 4, "servers": 1, "distribution": "deterministic", "pace": 0.1, "seconds": 8},
    steps=(
        ScenarioStep(
            {"strategy": "async-ps"}, (Slow("worker-2", 0.2, at=2),),
            text="Asynchronous. At 2 s w2 becomes 5 times faster, and its lead grows without a bound.",
        ),
        ScenarioStep(
            {"strategy": "ssp", "s": 3}, (Slow("worker-2", 0.2, at=2),),
            text="Bounded staleness, s = 3. The same w2 may be 3 iterations ahead, and then waits.",
        ),
    ),
    panels=("timeline", "progress", "throughput"),
)  # fmt: skip
