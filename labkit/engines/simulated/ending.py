"""How a run in virtual time ends, and what is booked then: all have returned, one has failed or was killed, or nobody
can go on.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from ...errors import ClusterError, Deadlock, LabkitError
from ...roles.messages import Joined, Left
from ...trace.events import RoleLost, RoleRestarted, RunWaits
from ...trace.trace import Trace
from ...trace.vocabulary import AFTER_END, REASONS, ROLLED_BACK, seconds
from ..checkpoints import fingerprint
from ..commands import Executed
from ..drive import deadlock_text, divergence_text, failure_report, loss_text, render_failure
from ..log import Diary
from .clockwork import Clockwork
from .roles import SimulatedRole
from .turns import DELIVER

__all__ = ["Ending"]


class Ending(Clockwork):
    """The last moments of a run. `error`: what ended it, if that was one."""

    trace: Trace
    judge: Any
    error: LabkitError | None
    commands: list[Executed]
    _players: list[SimulatedRole]  # when these have returned the run is finished
    _away: set[str]  # roles that have left, or have not joined
    _lost_lives: list[list[int]]  # [role, incarnation] of those that have ended without a word
    _diary: Diary  # what is needed to go on with the run

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
        role.resume, role.returned = None, True
        if role is self.chief:
            self._end(self.judge.verdict or "finished", "")
        elif all(r.returned or r.name in self._away for r in self._players):
            self._hurry("finished")

    def _failed(self, role: SimulatedRole, error: BaseException) -> None:
        report = failure_report(
            role.name, role.counters.computed if role.spec.computes else role.counters.version, error
        )
        self.error = render_failure(report)
        self._end("error", str(self.error))

    def _waits_for(self) -> str:
        raise NotImplementedError("a run knows who is lost")

    def _says_for_whom(self) -> bool:
        """Whether the run waits for somebody whom nobody brings back. If so, it is marked, once a wait."""
        awaited = self._waits_for()
        changes = [e for e in self.trace.events if isinstance(e, RunWaits | RoleLost | RoleRestarted)]
        known = changes[-1] if changes else None
        if awaited and not (isinstance(known, RunWaits) and known.awaited == awaited):
            self.trace.event(RunWaits(self.now, awaited))
        return bool(awaited)

    def _stuck(self) -> None:
        """Nobody can go on. Where somebody is away whom nobody brings back, the run waits, and says so."""
        if self._says_for_whom():
            return
        waiting = {
            r.name: (tuple(k.__name__ for k in r.waiting if k not in (Left, Joined)), r.wait_sender)
            for r in self.roles
            if r.waiting is not None and r is not self.chief
        }
        self.flush()
        self.error = Deadlock(deadlock_text(self.trace, self.now, waiting))
        self._end("deadlock", str(self.error))

    def _nobody_comes(self) -> None:
        """Nothing will happen any more: whoever is waited for does not come back by itself."""
        awaited = self._waits_for()
        if self.judge.hurry is not None:
            return self._end(self.judge.hurry, f"there is no last evaluation: it would wait for {awaited}")
        self.error = ClusterError(loss_text(self.now, f"it waits for {awaited}, and nobody brings it back"))
        self._end("error", str(self.error))

    def _end(self, stopped_by: str, why: str) -> None:
        if self.stopped_by is not None:
            return
        self.stopped_by = stopped_by
        self._take_a_rest()
        self.flush()
        if stopped_by == "diverged":
            why = divergence_text(self.judge.update, getattr(self.roles[0].strategy, "learning_rate", None))
        if self.chief.state is not None:
            self._diary.state(self.chief.name, self.chief.state, max(self.judge.update, 0))
        self._diary.reached(seconds(self.now), stopped_by)
        self.trace.end(
            stopped_by=stopped_by, why=why, time=self.now, wall_seconds=None, in_flight=self._in_flight(),
            update=self.judge.update, samples=self.judge.samples, loss=self.judge.loss, accuracy=self.judge.accuracy,
            parameters_sha256=fingerprint(self.judge.parameters), **self._returned_gradients(stopped_by),
            lost=sorted(r.name for r in self.roles if r.down and r.name not in self._away),
            lost_lives=self._lost_lives,
            commands=[entry.to_dict() for entry in self.commands],
        )  # fmt: skip
        for role in self.roles:
            # a role that goes on after it was told to end: nobody drives it any more
            with contextlib.suppress(Exception, SystemExit):
                role.coroutine.close()

    def _returned_gradients(self, stopped_by: str) -> dict[str, Any]:
        """{"returned": {"held": [[shard, which gradients its part of the returned parameters holds], ...], "over": why the
        parameters do not hold what was applied later}}; {} if the shards are as the chief has evaluated them, or none was.
        Replicas that it did not look at are so if they hold what the one that it looked at holds.
        """
        said = {shard: json.loads(text) for shard, text in self.judge.held or ()}
        shards = {r.shard.index: r for r in self.roles if r.shard is not None and r.name not in self._away}
        known = [_gradients(one) for one in said.values()]
        unchanged = all(
            not role.down and _gradients(role.shard.log.held()) in ([_gradients(said[shard])] if shard in said else known)
            for shard, role in shards.items()
        )
        if not said or (said.keys() <= shards.keys() and unchanged):
            return {}
        orderly = not self.chief.down and stopped_by not in ("error", "deadlock")
        over = REASONS[AFTER_END if orderly else ROLLED_BACK]
        return {"returned": {"held": [list(one) for one in said.items()], "over": over}}

    def _in_flight(self) -> list[list[int]]:
        """Every gradient on a wire, in an inbox or handed over in this instant, but those that are lost with their
        receiver: [shard, sender, incarnation, step, count].
        """
        pending = [(r, m) for _, _, _, what, r, m in sorted(self._heap, key=lambda e: e[:3]) if what == DELIVER]
        for role in self.roles:
            pending.extend((role, message) for message in role.inbox)
        if self._trouble is not None:
            pending.extend(self._trouble.held())
        return [
            [role.shard.index, self._ids[m.sender], m.incarnation, m.step, m.count]
            for role, m in pending
            if m.carries and role.shard is not None and not role.down
        ]


def _gradients(held: dict[str, Any]) -> Any:
    """What `AppliedLog.held` says, or a snapshot said, of the gradients that a shard holds, to be compared."""
    return [held["incarnation"], held["rounds"], *(sorted(map(list, held[name])) for name in ("eras", "applied"))]
