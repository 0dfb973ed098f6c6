"""How a run on processes ends: every role is brought home, their last reports go into the trace, and the books are closed.

Law: nobody waits for ever, whatever has become of the roles; who has left no last report is named as lost.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

from ...errors import ClusterError, LabkitError
from ...trace.vocabulary import AFTER_END, REASONS, ROLLED_BACK
from ..checkpoints import Store, fingerprint
from ..drive import divergence_text
from ..log import save_reached
from .controls import Controls
from .membership import HERE
from .stepping import Stepping

__all__ = ["Ending"]


class Ending(Controls):
    """The last moments of a run. `error`: what ended it, if that was one."""

    error: LabkitError | None
    in_flight: list[Any]  # of lives that have handed their role on
    named: Store | None  # the place that was asked for, to go on from
    _began: float
    _given_up: set[str]  # who is not waited for when the run ends
    _over: threading.Event
    _stepping: Stepping

    def _finish(self, stopped_by: str, why: str) -> None:
        """End all roles, put their last reports into the trace, close the books. Nobody waits for ever."""
        self._closing = True
        try:
            reports = self.supervisor.bring_home(
                why or stopped_by, {*self._given_up, *self.members.missing}, self._hear_the_last
            )
            self._close_books(stopped_by, why, reports)
        except Exception as error:
            self.error = ClusterError(f"The books of the run could not be closed: {type(error).__name__}: {error}")
            stopped_by = "error"
        finally:
            self.thaw_all()
            self.supervisor.close()
            self.cluster.runs.discard(self)
            self.stopped_by = stopped_by
            self._over.set()
            self._stepping.over()

    def _hear_the_last(self, event: dict[str, Any]) -> None:
        if event["what"] == "batch" and self.members.is_present(event["role"], event["incarnation"]):
            self.trace.append(event["batch"])

    def _close_books(self, stopped_by: str, why: str, reports: dict[str, dict[str, Any]]) -> None:
        chief = next((r for r in reports.values() if r["role"] == "chief"), None)
        for report in reports.values():
            self.trace.append(report["batch"])
        evaluated = chief or self._kept_by_chief()
        self._evaluated = evaluated.get("parameters")
        if stopped_by == "diverged" and chief:
            why = divergence_text(chief["update"], getattr(self.knobs, "learning_rate", None))
        times = [r["time"] for r in reports.values()] or [self.now]
        self.trace.end(
            stopped_by=stopped_by, why=why, time=max(*times, *(event.time for event in self.trace.events), 0),
            wall_seconds=time.monotonic() - self._began,
            in_flight=[*self.in_flight, *(f for r in reports.values() for f in r["in_flight"])],
            **_measured(evaluated), parameters_sha256=fingerprint(self._evaluated),
            returned=self._returned_gradients(evaluated, stopped_by),
            lost=sorted(set(self.plan.role_ids) - set(reports) - self.members.outside - self.supervisor.never_began),
            lost_lives=self._lost_lives(reports), commands=[entry.to_dict() for entry in self.commands],
        )  # fmt: skip
        if self.named is not None and not isinstance(self.error, ClusterError):  # else it may be gone on with
            with contextlib.suppress(OSError):
                save_reached(self.named, self.seconds, stopped_by)

    def _lost_lives(self, reports: dict[str, dict[str, Any]]) -> list[list[int]]:
        """[role's number, incarnation] of every life that has left no last report."""
        silent = set(self.members.in_state(HERE)) - set(reports) - self.supervisor.never_began
        ids = self.plan.role_ids
        return [*self.members.lost_lives, *([ids[role], self.members.life[role]] for role in sorted(silent))]

    def _returned_gradients(self, evaluated: dict[str, Any], stopped_by: str) -> dict[str, Any] | None:
        """{"held": [[shard, which gradients its part of the returned parameters holds], ...], "over": why the parameters do
        not hold what was applied later}. None: nothing was evaluated, and the shards are as they were reported last.
        """
        if evaluated and evaluated.get("held") is None:
            return None
        held = [[shard, json.loads(said)] for shard, said in evaluated.get("held", ())]
        orderly = "role" in evaluated and stopped_by not in ("error", "deadlock")
        return {"held": held, "over": REASONS[AFTER_END if orderly else ROLLED_BACK]}


def _measured(by: dict[str, Any]) -> dict[str, Any]:
    return {name: by.get(name) for name in ("update", "samples", "loss", "accuracy")}
