"""The stages of a start, of its processes and then of its roles, and how far a start is. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Stage", "StartProgress", "silence_text"]


class Stage(IntEnum):
    """A stage of a start. Each process passes the first four in this order, each role the last two.

    No stage has a time limit. A start fails in a stage only if a process ends, or gives no sign of life for `SILENT_S`
    seconds (`timeouts.py`).
    """

    REQUESTED = 0
    ALIVE = 1
    IMPORTED = 2
    CONNECTED = 3
    UP = 4
    BEGUN = 5

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class StartProgress:
    """The progress of a start. As text, for example "3 of 6 processes imported" or "2 of 6 roles up".

    Attributes
    ----------
    up : int
        The number of processes that are connected.
    wanted : int
        The number of processes that are needed.
    stage : Stage
        The last stage that a process, or a role of a run that starts, has reached.
    reached : int
        How many of `total` have reached this stage.
    total : int
        The number of processes or, in the stages of roles, of the roles of the run.
    """

    up: int
    wanted: int
    stage: Stage
    reached: int
    total: int

    @classmethod
    def of_processes(cls, stages: Iterable[Stage], wanted: int) -> StartProgress:
        """Return the progress of a start of `wanted` processes, which have reached `stages`."""
        ordered = sorted(stages, reverse=True)[:wanted]
        up = ordered.count(Stage.CONNECTED)
        stage = ordered[0] if ordered else Stage.REQUESTED
        return cls(up, wanted, stage, ordered.count(stage), wanted)

    def __str__(self) -> str:
        return f"{self.reached:,} of {self.total:,} {'processes' if self.stage < Stage.UP else 'roles'} {self.stage}"


def silence_text(what: str, stage: Stage, seconds: float) -> str:
    """Return the error text about a process or role that has given no sign of life after it had reached `stage`."""
    return f"{what}: {stage}, not {Stage(stage + 1)}, no sign of life for {seconds:g} s"
