"""Stories about a model in pieces, and about data in unequal ones.

Of P equal stages and M micro-batches the bubble is (P - 1)/(M + P - 1) of the time.
"""

from __future__ import annotations

from ..story import Act, Story

__all__ = ["BUBBLE", "SKEWED_DATA"]

# P = 4 stages of one layer each. Their widths make them equal: 64 x 54 = 54 x 64 = 64 x 54 = 54 x 54 + 54 x 10 multiply-adds.
# M = 1, 4, 16: a bubble of 75%, 43%, 16%. (2 s a gradient: the smallest piece is 10 ms, and real messages are not seen.)
BUBBLE = Story(
    name="bubble",
    title="The pipeline's bubble",
    shows="Stages of a pipeline stand idle while it fills and empties: the more micro-batches, the smaller the bubble.",
    settings={
        "strategy": "pipeline", "workers": 4, "law": "deterministic", "pace": 2.0, "seconds": 8, "data": "digits",
        "hidden": (54, 64, 54, 54), "eval_every": 2,
    },
    acts=(
        Act({"micro_batches": 1}, says="One layer a worker, and the whole batch at once: one works, three stand idle."),
        Act({"micro_batches": 4}, pin=False, says="The batch in 4 pieces: behind the first one the next are under way."),
        Act({"micro_batches": 16}, says="In 16 pieces: the bubble is what is left at both ends."),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# No law says how much. With H = 1 there is hardly a difference: the mean of the gradients is about that of the whole data.
SKEWED_DATA = Story(
    name="skewed-data",
    title="Workers that see different data",
    shows="Workers that train alone on a few labels each drift apart, and their mean is worse than that of equals.",
    settings={"strategy": "local-sgd", "H": 32, "workers": 4, "law": "deterministic", "pace": 0.05, "seconds": 9},
    acts=(
        Act({"partition": "even"}, says="Everybody has some of every digit; 32 steps alone do no harm."),
        Act(
            {"partition": "by-label:0.1"},
            says="Everybody has mostly two or three digits, and forgets the others in 32 steps.",
        ),
    ),
    panels=("who_has_what", "accuracy", "gradient_flow", "loss"),
)
