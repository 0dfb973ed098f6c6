"""Stories about machines that die: what the others do meanwhile, and what is lost.

Of N workers one is away; what is left of the throughput until it is back:

    synchronous, waiting     0              a step is the mean of all
    synchronous, going on    (N - 1)/N      a step is the mean of those that are there
    asynchronous             (N - 1)/N      nobody waits for anybody

A server that is restored from its checkpoint has lost what was applied since then; one whose backup takes over, nothing.
"""

from __future__ import annotations

from typing import Any

from ...engines.commands import Kill, Restart
from ..story import Act, Question, Story

__all__ = ["SERVER_DIES", "WORKER_DIES"]

FOUR = {"workers": 4, "servers": 1, "law": "deterministic", "pace": 0.1}


def away(role: str, since: float, until: float) -> tuple[Any, ...]:
    """A role is killed, and is back when it is told to be: on processes the next one would be there too soon to be seen."""
    return Kill(role, at=since, restart=False), Restart(role, at=until)


# N = 4: 0%, 75%, 75%.
WORKER_DIES = Story(
    name="worker-dies",
    title="A worker dies",
    shows="One of four workers is gone for 3 s: who waits for everybody stands still, who does not loses its share.",
    settings=FOUR,
    acts=(
        Act({"strategy": "sync-ps", "seconds": 60}, says="Four workers, and every step is the mean of all four."),
        Act(
            {"strategy": "sync-ps", "seconds": 7.5}, away("worker-2", 2.55, 5.55),
            says="At 2.5 s w2 is killed. A step needs all four, so the others wait until its next incarnation is there.",
        ),
        Act(
            {"strategy": "sync-ps", "on_loss": "continue", "seconds": 7.5}, away("worker-2", 2.55, 5.55), pin=False,
            says="The same loss, and on_loss = continue: a step is the mean of those that are there.",
        ),
        Act(
            {"strategy": "async-ps", "seconds": 7.5}, away("worker-2", 2.55, 5.55),
            says="Asynchronous: nobody waits for anybody anyhow.",
        ),
    ),
    panels=("timeline", "throughput", "accuracy"),
    question=Question(
        "w2 is killed, and everybody waits for everybody here. Until it is back, throughput falls to …",
        ("75%", "50%", "0%"), 2,
        "You said {said}; where everybody waits it fell to {right}. Who goes on without w2, or never waits, keeps 75%.",
    ),
    asks_at=4.0,
)  # fmt: skip

# 40 updates a second. The last checkpoint is 1.5 s old, 0.5 s old; or each update is at the backup before it is answered.
SERVER_DIES = Story(
    name="server-dies",
    title="A server dies",
    shows="A server that dies costs what was applied since its last checkpoint; one with a backup costs nothing.",
    settings={**FOUR, "strategy": "async-ps", "seconds": 7},
    acts=(
        Act(
            {"checkpoint_every": 2.0}, away("server-0", 3.55, 4.55),
            says="The server is saved every 2 s. It is killed 1.5 s after that: 1.5 s of updates are rolled back.",
        ),
        Act(
            {"checkpoint_every": 0.5}, away("server-0", 3.45, 4.45),
            says="Saved every half second: the same death costs less than half a second of updates.",
        ),
        Act(
            {"checkpoint_every": 2.0, "replicas": 1}, away("server-0", 3.55, 4.55),
            says="With a backup (b0), which has every update before it is answered: nothing is rolled back.",
        ),
    ),
    panels=("timeline", "ledger", "accuracy"),
)  # fmt: skip
