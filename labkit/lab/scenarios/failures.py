"""Scenarios about failures: the throughput of the remaining workers, and the updates that are lost.

One of N workers is down. Throughput until it is restarted, relative to before:

    synchronous, waiting      0              a step needs the gradients of all workers
    synchronous, continuing   (N - 1)/N      a step is the mean of the workers that are left
    asynchronous              (N - 1)/N      workers do not wait for each other

A server that is restored from a checkpoint has lost the updates since the checkpoint. A server that is restored from a
backup has lost no updates.
"""

from __future__ import annotations

from typing import Any

from ...engines.commands import Kill, Restart
from .scenario import Question, Scenario, ScenarioStep

FOUR = {"workers": 4, "servers": 1, "distribution": "deterministic", "pace": 0.1}


def down(role: str, since: float, until: float) -> tuple[Any, ...]:
    """Return commands that kill a role and restart it later. On a cluster an automatic restart would be too fast to be
    visible.
    """
    return Kill(role, at=since, restart=False), Restart(role, at=until)


# N = 4: the throughput falls to 0%, 75% and 75%.
WORKER_FAILS = Scenario(
    name="worker-fails",
    title="A worker fails",
    summary="One of four workers is down for 3 s: synchronous training stops, asynchronous training loses its share.",
    settings=FOUR,
    steps=(
        ScenarioStep({"strategy": "sync-ps", "seconds": 60}, text="Four workers, and every step is the mean of all four."),
        ScenarioStep(
            {"strategy": "sync-ps", "seconds": 7.5}, down("worker-2", 2.55, 5.55),
            text="At 2.5 s w2 is killed. A step needs all four gradients, so the others wait until w2 is restarted.",
        ),
        ScenarioStep(
            {"strategy": "sync-ps", "on_loss": "continue", "seconds": 7.5}, down("worker-2", 2.55, 5.55), pin=False,
            text="The same failure with on_loss = continue: a step is the mean of the workers that are left.",
        ),
        ScenarioStep(
            {"strategy": "async-ps", "seconds": 7.5}, down("worker-2", 2.55, 5.55),
            text="Asynchronous: workers never wait for each other.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
    question=Question(
        "w2 is killed, and each step needs all four workers. Until w2 is restarted, throughput falls to …",
        ("75%", "50%", "0%"), 2,
        "You answered {answer}; where a step needs all workers it fell to {right}. Without w2, or asynchronously, 75% is left.",
    ),
    asks_at=4.0,
)  # fmt: skip

# 40 updates per second. In the first step the last checkpoint is 1.5 s old, in the second at most 0.5 s. In the third
# step the backup has each update before it is acknowledged.
SERVER_FAILS = Scenario(
    name="server-fails",
    title="A server fails",
    summary="A server that fails loses the updates since its last checkpoint; with a backup it loses none.",
    settings={**FOUR, "strategy": "async-ps", "seconds": 7},
    steps=(
        ScenarioStep(
            {"checkpoint_every": 2.0}, down("server-0", 3.55, 4.55),
            text="A checkpoint every 2 s. The server is killed 1.5 s after one: 1.5 s of updates are rolled back.",
        ),
        ScenarioStep(
            {"checkpoint_every": 0.5}, down("server-0", 3.45, 4.45),
            text="A checkpoint every 0.5 s: the same failure costs less than half a second of updates.",
        ),
        ScenarioStep(
            {"checkpoint_every": 2.0, "replicas": 1}, down("server-0", 3.55, 4.55),
            text="With a backup (b0) that has every update before it is acknowledged: nothing is rolled back.",
        ),
    ),
    panels=("timeline", "ledger", "accuracy"),
)  # fmt: skip
