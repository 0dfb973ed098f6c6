"""Stories about waiting: what a slow worker costs, and what chance alone costs, where everybody waits and where nobody does.

Of N workers one becomes F times slower; what is left of the throughput:

    synchronous   1/F               everybody waits for it
    asynchronous  (N - 1 + 1/F)/N   it costs its own share
    one backup    1                 nobody waits for the last one

The time of a gradient is paced, not computed: the same laws hold on two cores.
"""

from __future__ import annotations

from ...engines.commands import Slow
from ..story import Act, Question, Story

__all__ = ["BACKUP_WORKERS", "CHANCE", "FIRST_MINUTE", "SLOW_WORKER"]

FOUR = {"workers": 4, "servers": 1, "law": "deterministic", "pace": 0.1}

# N = 4, F = 5: 20% and 80%.
FIRST_MINUTE = Story(
    name="first-minute",
    title="The first minute",
    shows="Four workers train a network; one becomes slow: what does that cost the others?",
    settings={**FOUR, "strategy": "sync-ps", "data": "digits", "hidden": (64, 32), "accuracy": None},
    acts=(
        Act({"seconds": 60}, says="Four workers learn to read digits. Each step waits for all four."),
        Act(
            {"seconds": 10}, (Slow("worker-2", 5, at=3),),
            says="You said it; now look. At 3 s w2 becomes 5 times slower, and everybody waits for everybody.",
        ),
        Act(
            {"seconds": 12, "strategy": "async-ps"}, (Slow("worker-2", 5, at=3),),
            says="The same again, and nobody waits for anybody. Dashed: the run in which everybody waited.",
        ),
    ),
    question=Question(
        "w2 becomes 5x slower. Everybody waits for everybody here. Throughput falls to …",
        ("80%", "50%", "20%"), 2,
        "You said {said}; where everybody waits it fell to {right}: the slowest sets the pace. Where nobody waits w2 costs "
        "only its own share, and 80% is left.",
    ),
    asks_at=15.0,
)  # fmt: skip

# The same law, F = 5: 20% and 80%.
SLOW_WORKER = Story(
    name="slow-worker",
    title="One slow worker",
    shows="Where everybody waits, one slow worker makes all of them slow; where nobody waits, it costs its own share.",
    settings={**FOUR, "seconds": 10},
    acts=(
        Act(
            {"strategy": "sync-ps"}, (Slow("worker-2", 5, at=4),),
            says="Synchronous. From 4 s on w2 is 5 times slower: the others stand still until it is done.",
        ),
        Act(
            {"strategy": "async-ps"}, (Slow("worker-2", 5, at=4),),
            says="Asynchronous. The same worker is slow, and the others go on.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip

# Exponential times with mean c: a synchronous step takes c H_N on average, H_N = 1 + 1/2 + ... + 1/N. N = 8: H_N = 2.72, so
# 37% is left. Asynchronous: N/c, as if the times were all the same. (The seed is one whose draws come out about average.)
CHANCE = Story(
    name="chance",
    title="Nobody is slow, and still all wait",
    shows="All workers are equally fast on average; but of eight one is always late, and who waits for all waits for it.",
    settings={"workers": 8, "servers": 1, "law": "exponential", "pace": 0.1, "seconds": 10, "seed": 19},
    acts=(
        Act(
            {"strategy": "sync-ps"},
            says="Synchronous, times by chance: each step takes as long as the unluckiest of eight.",
        ),
        Act(
            {"strategy": "async-ps"},
            says="Asynchronous, the same chances: bad luck is nobody else's, and good luck counts.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)

# A step is the first N - b gradients: (N - b)/c gradients a second, before and after one of the workers becomes slow.
BACKUP_WORKERS = Story(
    name="backup-workers",
    title="Do not wait for the last one",
    shows="A synchronous step that takes the first three gradients of four does not notice that one worker is slow.",
    settings={**FOUR, "seconds": 10},
    acts=(
        Act({"strategy": "sync-ps"}, (Slow("worker-2", 5, at=4),), says="Everybody waits for w2, slow from 4 s on."),
        Act(
            {"strategy": "backup-workers", "b": 1}, (Slow("worker-2", 5, at=4),),
            says="The first three of four make the step: fewer gradients at first, and as many when w2 is slow.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip
