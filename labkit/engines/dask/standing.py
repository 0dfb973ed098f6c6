"""Where a run on processes stands: what is planned for it, who takes part in it, and what a life that begins in its
middle is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ...errors import BadInput
from ...trace.events import EngineWarning
from ..commands import Command, Inject, Join, Leave, check_supported
from ..elastic import check_elastic
from .detector import FailureDetector
from .ending import Ending
from .recovery import Recovery
from .stillness import Stillness

__all__ = ["LISTEN_S", "Standing", "at"]

LISTEN_S = 0.25
at = attrgetter("at")  # when a command is due


class Standing(Ending):
    """The part of a run that its recovery asks, and that carries out commands at their times."""

    execute: Callable[[Command], None]
    supported_commands: frozenset[type[Command]]
    recovery: Recovery
    _due: list[Command]  # commands that are to come, the next one first
    _heard: FailureDetector
    _returned: set[str]
    _still: Stillness

    # what recovery needs -------------------------------------------------------------------------------------

    def forget(self, role: str) -> None:
        """A life of `role` is over."""
        self.mend(role)
        self._heard.forget(role)
        self._returned.discard(role)
        self._still.forget()
        self._stepping.lost(role)

    def expect_silence(self, role: str) -> None:
        """Nothing will be heard of a life that has ended in order, until its last report is here."""
        self._heard.forget(role)

    def welcome(self, role: str) -> None:
        """The next one is there."""
        self._heard.sign(role, time.monotonic())
        self._still.forget()

    def time_for_roles(self, role: str) -> dict[str, Any]:
        """What a life that begins in the middle of a run has to know: when engine time began, and where it stands, if it
        does; knobs as they are now; how its links behave, and whether it is in a hurry."""
        paused_at = self._paused_at
        frozen = None if paused_at is None else paused_at - self.supervisor.zero
        hurry = [{"do": "hurry", "reason": self._hurried}] if role == "chief" and self._hurried else []
        orders = [self.links_of(role), *hurry]
        return {"zero": self.supervisor.zero, "frozen": frozen, "knobs": dict(self._changed), "orders": orders}

    # who comes and goes, and what was planned -------------------------------------------------------------------------

    @property
    def present(self) -> tuple[str, ...]:
        """The workers that take part, or are about to."""
        return self.recovery.comings.present

    def _do_join(self, command: Join) -> None:
        """A worker that is not there takes part as soon as there is a Dask worker for it."""
        check_elastic(command, self.plan)
        if self.recovery.comings.join(command.role):
            self._log(command)

    def _do_leave(self, command: Leave) -> None:
        """A worker takes its leave: what it has in hand is dropped, what it has sent arrives."""
        check_elastic(command, self.plan)
        if self.recovery.comings.leave(command.role):
            self._log(command)

    def _do_inject(self, command: Inject) -> None:
        """Execute commands at their times, which are those of the run."""
        for one in command.scheduled:
            check_supported(one, self.supported_commands)
        self._log(command)
        self.supervisor.queue.put({"what": "inject", "commands": command.scheduled})

    def _carry_out(self) -> float:
        """Execute the commands that are due by engine time. Returns the seconds until the next may be."""
        while self._due and self._paused_at is None:
            left = self._due[0].at - self.seconds
            if left > 0:
                return min(LISTEN_S, left)
            try:
                self.execute(self._due.pop(0))
            except BadInput as error:  # nobody is there to be told, and the run is none the worse
                self.event(EngineWarning, str(error))
        return LISTEN_S
