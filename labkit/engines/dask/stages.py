"""The stages of a start, of its processes and then of its roles, and the supervision of one start. No I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from .failure_detector import FailureDetector
from .timeouts import ABSENT_S, SILENT_S


class StartStage(IntEnum):
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
    stage: StartStage
    reached: int
    total: int

    @classmethod
    def of_processes(cls, stages: Iterable[StartStage], wanted: int) -> StartProgress:
        """Return the progress of a start of `wanted` processes, which have reached `stages`."""
        ordered = sorted(stages, reverse=True)[:wanted]
        up = ordered.count(StartStage.CONNECTED)
        stage = ordered[0] if ordered else StartStage.REQUESTED
        return cls(up, wanted, stage, ordered.count(stage), wanted)

    def __str__(self) -> str:
        return (
            f"{self.reached:,} of {self.total:,} {'processes' if self.stage < StartStage.UP else 'roles'} {self.stage}"
        )


def silence_text(what: str, stage: StartStage, seconds: float) -> str:
    """Return the error text about a process or role that has given no sign of life after it had reached `stage`."""
    return f"{what}: {stage}, not {StartStage(stage + 1)}, no sign of life for {seconds:g} s"


class ProcessStart:
    """One start of a process. It takes any time, and fails only if the process gives no sign of life for `silent_s` seconds."""

    def __init__(self, silent_s: float = SILENT_S) -> None:
        self.stage, self.pid = StartStage.REQUESTED, 0
        self._silent_s = silent_s
        self._detector = FailureDetector(ABSENT_S)

    def observe(self, pid: int | None, imported: bool, sign: Hashable, now: float) -> None:
        """Record an observation at `now` (seconds), which must be made regularly.

        `pid`: None before the process is alive. `imported`: whether it has imported its modules. `sign`: a value that
        changes while it lives.
        """
        self._detector.consult(now)
        if pid is not None:
            self.stage, self.pid = (
                StartStage.IMPORTED if imported or self.stage is StartStage.IMPORTED else StartStage.ALIVE,
                pid,
            )
            self._detector.watch(["process"], now)
            self._detector.progress("process", sign, now)

    def problem(self, now: float) -> str:
        """Return why the start has failed, or ""."""
        silent = self._detector.silent(self._silent_s, now)
        return silence_text(f"process {self.pid}", self.stage, self._silent_s) if silent else ""
