"""How a run in virtual time ends, and what is booked then: all have returned, one has failed or was killed, or nobody
can go on.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ...errors import ClusterError, Deadlock, LabkitError
from ...trace.trace import Trace
from ..checkpoints import fingerprint, write_state
from ..drive import deadlock_text, failure_report, loss_text, render_failure
from .clockwork import Clockwork
from .roles import SimulatedRole
from .turns import DELIVER

__all__ = ["Ending"]


class Ending(Clockwork):
    """The last moments of a run. `error`: what ended it, if that was one."""

    trace: Trace
    judge: Any
    error: LabkitError | None
    commands: list[tuple[float, str, dict[str, Any], int]]
    _players: list[SimulatedRole]  # when these have returned the run is finished
    _lost: list[str]  # roles whose process is gone
    _folder: Path | None

    def flush(self) -> None:
        """Bring the trace up to this instant."""
        raise NotImplementedError("a run keeps a trace")

    def _hurry(self, reason: str) -> None:
        """A last evaluation, now; with it the chief ends the run."""
        self.judge.hurry = reason
        if self.chief.waiting is not None:
            self.chief.waiting = None
            self.chief.token += 1
            self._go_on(self.chief, None)

    def _returned(self, role: SimulatedRole) -> None:
        role.resume = None
        if role is self.chief:
            self._end(self.judge.verdict or "finished", "")
        elif all(r.resume is None for r in self._players):
            self._hurry("finished")

    def _failed(self, role: SimulatedRole, error: BaseException) -> None:
        report = failure_report(
            role.name, role.counters.computed if role.spec.computes else role.counters.version, error
        )
        self.error = render_failure(report)
        self._end("error", str(self.error))

    def _stuck(self) -> None:
        waiting = {
            r.name: (tuple(k.__name__ for k in r.waiting), r.wait_sender)
            for r in self.roles
            if r.waiting is not None and r is not self.chief
        }
        self.flush()
        self.error = Deadlock(deadlock_text(self.trace, self.now, waiting))
        self._end("deadlock", str(self.error))

    def _lose(self, roles: list[str]) -> None:
        """The process of these roles is gone: what they had in hand, and what is on its way to them, is lost.

        Nobody takes their place, so the run is over.
        """
        self._lost = sorted(roles)
        self.error = ClusterError(loss_text(self.now, f"the process of {', '.join(roles)} was killed"))
        self._end("error", str(self.error))

    def _end(self, stopped_by: str, why: str) -> None:
        if self.stopped_by is not None:
            return
        self.stopped_by = stopped_by
        self._take_a_rest()
        self.flush()
        if stopped_by == "diverged":
            rate = getattr(self.roles[0].strategy, "learning_rate", None)
            why = f"the loss is {self.judge.loss} at update {self.judge.update}" + (
                f", learning_rate {rate:g}" if rate else ""
            )
        self.trace.end(
            stopped_by=stopped_by, why=why, time=self.now, wall_seconds=None, in_flight=self._in_flight(),
            update=self.judge.update, loss=self.judge.loss, accuracy=self.judge.accuracy,
            parameters_sha256=fingerprint(self.judge.parameters), lost=self._lost,
            commands=[list(command) for command in self.commands],
        )  # fmt: skip
        if self._folder is not None and self.chief.state is not None:
            write_state(self._folder, self.chief.name, self.chief.state)
        for role in self.roles:
            # a role that goes on after it was told to end: nobody drives it any more
            with contextlib.suppress(Exception, SystemExit):
                role.coroutine.close()

    def _in_flight(self) -> list[list[int]]:
        """Every gradient on a wire, in an inbox or handed over in this instant, but those that are lost with their
        receiver: [shard, sender, incarnation, step, count].
        """
        pending = [(r, m) for _, _, _, what, r, m in sorted(self._heap, key=lambda e: e[:3]) if what == DELIVER]
        for role in self.roles:
            pending.extend((role, message) for message in role.inbox)
        return [
            [role.shard.index, self._ids[m.sender], m.incarnation, m.step, m.count]
            for role, m in pending
            if m.carries and role.shard is not None and role.name not in self._lost
        ]
