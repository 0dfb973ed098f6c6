"""Final accounting of a run: adds the roles' final reports to the trace, and completes the trace.

Roles without a final report are recorded as lost.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from ....errors import ClusterError, LabkitError
from ....trace.schema import AFTER_END, REASONS, ROLLED_BACK
from ...base import Evaluated
from ...error_texts import divergence_text
from ...lifecycle import State
from ...plan import Plan
from ...storage.journal import save_reached
from ...storage.store import fingerprint
from .checkpoints import RunCheckpoints
from .clock import EngineClock
from .membership import Membership
from .run_record import RunRecord

Reports = dict[str, dict[str, Any]]  # {role: final report}


class FinalAccounting:
    def __init__(
        self, plan: Plan, members: Membership, record: RunRecord, clock: EngineClock, checkpoints: RunCheckpoints
    ):  # fmt: skip
        self._plan, self._members, self._record, self._clock = plan, members, record, clock
        self._checkpoints = checkpoints
        self._in_flight: list[Any] = []  # gradients in flight, of instances that ended before the end of the run
        self._evaluated: dict[str, Any] = {}

    def add(self, report: dict[str, Any]) -> None:
        """Add the final report of an instance that ends before the end of the run."""
        self._record.trace.append(report["batch"])
        self._in_flight.extend(report["in_flight"])

    @property
    def evaluated(self) -> Evaluated | None:
        """The model of the final evaluation; during the run, or without a chief, that of the last checkpoint."""
        found = self._evaluated or self._checkpoints.newest_evaluation()
        if found.get("parameters") is None:
            return None
        return Evaluated(found["parameters"], found["update"], found.get("evaluated_at"), found["accuracy"])

    def close(
        self, stopped_by: str, why: str, error: LabkitError | None, reports: Reports, never_began: set[str],
        learning_rate: float | None, wall_seconds: float,
    ) -> None:  # fmt: skip
        """Complete the trace. `never_began`: roles that were ordered to end before they began."""
        trace, chief = self._record.trace, reports.get("chief")
        for report in reports.values():
            trace.append(report["batch"])
        evaluated = chief or self._checkpoints.newest_evaluation()
        self._evaluated = evaluated if evaluated.get("parameters") is not None else {}
        if stopped_by == "diverged" and chief:
            why = divergence_text(chief["update"], learning_rate)
        times = [report["time"] for report in reports.values()] or [self._clock.now]
        trace.end(
            stopped_by=stopped_by, why=why, time=max(*times, *(event.time for event in trace.events), 0),
            wall_seconds=wall_seconds,
            in_flight=[*self._in_flight, *(f for report in reports.values() for f in report["in_flight"])],
            **{name: evaluated.get(name) for name in ("update", "samples", "loss", "accuracy")},
            parameters_sha256=fingerprint(evaluated.get("parameters")), returned=_returned_gradients(evaluated, stopped_by),
            lost=sorted(set(self._plan.role_ids) - set(reports) - self._members.outside - never_began),
            lost_instances=self._lost_instances(reports, never_began),
            commands=[entry.to_dict() for entry in self._record.commands],
        )  # fmt: skip
        named = self._checkpoints.named
        if named is not None and not isinstance(error, ClusterError):  # after a `ClusterError` the run may be resumed
            with contextlib.suppress(OSError):
                save_reached(named, self._clock.seconds, stopped_by)

    def _lost_instances(self, reports: Reports, never_began: set[str]) -> list[list[int]]:
        """Return [role's number, incarnation] of every instance without a final report."""
        silent = set(self._members.in_state(State.RUNNING)) - set(reports) - never_began
        ids = self._plan.role_ids
        return [
            *self._members.lost_instances,
            *([ids[role], self._members.incarnation[role]] for role in sorted(silent)),
        ]


def _returned_gradients(evaluated: dict[str, Any], stopped_by: str) -> dict[str, Any] | None:
    """Return the gradients that the returned parameters contain, or None if the last evaluation does not list them.

    The result is {"contained": [[shard, gradients in its part of the parameters], ...], "over": why later gradients are not
    contained}. If it is None, the last reports of the shards count.
    """
    if evaluated and evaluated.get("contained") is None:
        return None
    held = [[shard, json.loads(text)] for shard, text in evaluated.get("contained", ())]
    orderly = "role" in evaluated and stopped_by not in ("error", "deadlock")
    return {"contained": held, "over": REASONS[AFTER_END if orderly else ROLLED_BACK]}
