"""Scenarios about model parallelism and about data that differ between workers.

With P equal stages and M micro-batches, the stages are idle for (P - 1)/(M + P - 1) of the time (the bubble).
"""

from __future__ import annotations

from .scenario import Scenario, ScenarioStep

# P = 4 stages. The widths of the layers are chosen so that all stages have the same work: 64 x 54 = 54 x 64 = 64 x 54 =
# 54 x 54 + 54 x 10 multiply-adds. For M = 1, 4 and 16 the bubble is 75%, 43% and 16%. (A gradient takes 2 s, so that the
# shortest task, a forward pass, takes 10 ms, which is longer than a message.)
BUBBLE = Scenario(
    name="bubble",
    title="The pipeline bubble",
    summary="The stages of a pipeline idle while it fills and drains: the more micro-batches, the smaller the bubble.",
    settings={
        "strategy": "pipeline", "workers": 4, "distribution": "deterministic", "pace": 2.0, "seconds": 8, "data": "digits",
        "hidden": (54, 64, 54, 54), "eval_every": 2,
    },
    steps=(
        ScenarioStep({"micro_batches": 1}, text="One layer per worker, the whole batch at once: one stage computes, three idle."),
        ScenarioStep(
            {"micro_batches": 4}, pin=False,
            text="4 micro-batches: while one stage works on the first, others work on the next ones.",
        ),
        ScenarioStep({"micro_batches": 16}, text="16 micro-batches: the bubble is the filling and draining of the pipeline."),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# There is no formula for the size of the effect. With H = 1 the effect is small, because the mean gradient is about that
# of all data.
SKEWED_DATA = Scenario(
    name="skewed-data",
    title="Workers with different data",
    summary="Workers that train locally on a few labels each drift apart, and the mean of their models is worse.",
    settings={
        "strategy": "local-sgd",
        "H": 32,
        "workers": 4,
        "distribution": "deterministic",
        "pace": 0.05,
        "seconds": 9,
    },
    steps=(
        ScenarioStep({"partition": "even"}, text="Every worker has samples of all digits: 32 local steps do no harm."),
        ScenarioStep(
            {"partition": "by-label:0.1"},
            text="Every worker has mostly two or three digits, and its model forgets the others in 32 steps.",
        ),
    ),
    panels=("data_distribution", "accuracy", "gradient_flow", "loss"),
)
