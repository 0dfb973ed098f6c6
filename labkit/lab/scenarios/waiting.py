"""Scenarios about waiting: the cost of a straggler and of random compute times, for synchronous and asynchronous training.

One of N workers becomes F times slower. Throughput, relative to before:

    synchronous     1/F               each step waits for the straggler
    asynchronous    (N - 1 + 1/F)/N   only a part of the straggler's share is lost
    backup worker   1                 a step does not wait for the straggler

Gradients are paced, i.e. their duration is not limited by the processor, so the formulas also hold on two cores.
"""

from __future__ import annotations

from ...engines.commands import Slow
from .scenario import Question, Scenario, ScenarioStep

FOUR = {"workers": 4, "servers": 1, "distribution": "deterministic", "pace": 0.1}

# N = 4, F = 5: the throughput falls to 20% and to 80%.
FIRST_MINUTE = Scenario(
    name="first-minute",
    title="The first minute",
    summary="Four workers train a network; one becomes slow. What is the effect?",
    settings={**FOUR, "strategy": "sync-ps", "data": "digits", "hidden": (64, 32), "accuracy": None},
    steps=(
        ScenarioStep({"seconds": 60}, text="Four workers train on handwritten digits. Each step waits for all four."),
        ScenarioStep(
            {"seconds": 10}, (Slow("worker-2", 5, at=3),),
            text="Here is the result. At 3 s w2 becomes 5 times slower, and each step waits for it.",
        ),
        ScenarioStep(
            {"seconds": 12, "strategy": "async-ps"}, (Slow("worker-2", 5, at=3),),
            text="The same fault with asynchronous training: workers do not wait. Dashed: the synchronous run.",
        ),
    ),
    question=Question(
        "w2 becomes 5x slower. Training is synchronous: each step waits for all workers. Throughput falls to …",
        ("80%", "50%", "20%"), 2,
        "You answered {answer}. Expected: {right} of the synchronous throughput is left, because all wait for the straggler; "
        "asynchronously only the share of w2 is lost, and 80% is left. A busy machine measures something else.",
    ),
    asks_at=15.0,
)  # fmt: skip

# The same formulas. F = 5: the throughput falls to 20% and to 80%.
SLOW_WORKER = Scenario(
    name="slow-worker",
    title="One straggler",
    summary="One slow worker slows synchronous training by its factor; asynchronous training loses only its share.",
    settings={**FOUR, "seconds": 10},
    steps=(
        ScenarioStep(
            {"strategy": "sync-ps"}, (Slow("worker-2", 5, at=4),),
            text="Synchronous. From 4 s on w2 is 5 times slower: the others wait for it in every step.",
        ),
        ScenarioStep(
            {"strategy": "async-ps"}, (Slow("worker-2", 5, at=4),),
            text="Asynchronous. The same worker is slow, and the others do not wait.",
        ),
    ),
    panels=("timeline", "staleness", "throughput", "accuracy"),
)  # fmt: skip

# Exponential times with mean c: a synchronous step takes c H_N on average, with H_N = 1 + 1/2 + ... + 1/N. For N = 8, H_N
# = 2.72, so 37% of the throughput is left. Asynchronous throughput is N/c, as with constant times. (With this seed, the
# drawn times are about average.)
RANDOM_TIMES = Scenario(
    name="random-times",
    title="Random compute times",
    summary="All workers are equally fast on average, but in each step one of eight is late, and the step waits for it.",
    settings={"workers": 8, "servers": 1, "distribution": "exponential", "pace": 0.1, "seconds": 10, "seed": 19},
    steps=(
        ScenarioStep(
            {"strategy": "sync-ps"},
            text="Synchronous, random compute times: each step takes as long as the slowest of eight.",
        ),
        ScenarioStep(
            {"strategy": "async-ps"},
            text="Asynchronous, the same distribution: a late worker delays only itself.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)

# A step is the mean of the first N - b gradients. The throughput is (N - b)/c gradients per second, with and without a
# slow worker.
BACKUP_WORKERS = Scenario(
    name="backup-workers",
    title="Backup workers",
    summary="A synchronous step that takes the first three gradients of four is not delayed by one slow worker.",
    settings={**FOUR, "seconds": 10},
    steps=(
        ScenarioStep(
            {"strategy": "sync-ps"}, (Slow("worker-2", 5, at=4),),
            text="Synchronous. Each step waits for w2, which is slow from 4 s on.",
        ),
        ScenarioStep(
            {"strategy": "backup-workers", "b": 1}, (Slow("worker-2", 5, at=4),),
            text="A step takes the first three of four gradients: fewer at first, and as many when w2 is slow.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
)  # fmt: skip
