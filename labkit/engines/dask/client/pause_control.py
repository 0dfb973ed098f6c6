"""Pause, resume and single steps of a run.

A pause stops every role between two effects. Engine time stops when all roles have received the order. A step is one
more update of every shard, then a pause.

Roles pause at different instants, so shards may be paused at different versions. In most strategies a shard with an
older version cannot proceed without the shard with the newest version. So all shards step to one version, the newest
version plus one: the shard that reaches it first has already sent what the other shards need. Local replicas, which
compute independently, have no common version; each of them makes one update.

One numbered order (`flow`) contains the whole state: whether roles are paused, the origin of engine time, and the
goals, i.e. the versions to which shards step. A role ignores orders with lower numbers, and reports the newest number
that it has received. Missed orders are retransmitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ....roles.layout import Layout
from ....trace.events import RunPaused
from ...commands import Pause, Resume
from ..timeouts import REPEAT_S
from .clock import EngineClock
from .orders import Orders
from .run_record import RunRecord

# timeout for all shards to report their versions, seconds; long, as a role answers after its current effect
ANSWER_S = 10.0
STEP_S = 30.0  # timeout of a step, seconds; then the run is paused at the current versions
# a step that was late to pause, or to learn the versions, continues for up to this time after its timeout
GRACE_S = 1.0

VERSION = {"do": "version"}  # the order to report the version of a shard
PAUSING, QUERYING, RUNNING, STOPPING = "pausing", "querying", "running", "stopping"

Then = Callable[[], None]


def no_action() -> None:
    """Do nothing. The callback of orders whose answers are not awaited."""


@dataclass
class StepRequest:
    """A requested step. It has four phases: pause, request the versions, run to the goals, pause again.

    `limit`: timeout of all phases together, seconds. `done`: called when the step has ended.
    """

    limit: float
    done: Then
    phase: str = PAUSING
    deadline: float = 0.0  # of the step
    until: float = 0.0  # deadline of the phase
    versions: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)  # roles that have not reached their goals
    disturbed: bool = False  # a role was lost during the step


class PauseControl:
    """Pauses and steps of one run. Used by the run's thread only; never blocks.

    `send(order, then)` sends an order to all roles; `then` is called when all have answered or a timeout has passed.
    `send_to(order, role, incarnation)` sends an order to one instance. `clock`: engine time. `monotonic`: a clock for
    timeouts, seconds.
    """

    def __init__(
        self, layout: Layout, clock: EngineClock, record: RunRecord, send: Callable[[dict[str, Any], Then], None],
        send_to: Callable[[dict[str, Any], str, int], None], monotonic: Callable[[], float],
    ):  # fmt: skip
        roles = layout.roles
        self._clock, self._record, self._send, self._monotonic = clock, record, send, monotonic
        self._send_to = send_to
        self._flow: dict[str, Any] = {"do": "flow", "number": 0}  # the newest order
        self._sent_at = 0.0
        self._orders = Orders()  # retransmissions
        self._shard_roles = {role.name for role in roles if role.shard is not None}
        self._restored: set[str] = set()  # or to be restored: their versions are not those of the other shards
        self._synchronized = layout.replication != "local" or all(
            role.computes for role in roles if role.shard is not None
        )
        self._allowed = True
        self._pausing: list[Then] | None = None  # callbacks of a pause that not all roles have acknowledged yet
        self._steps: deque[StepRequest] = deque()  # steps after the current one
        self._step: StepRequest | None = None

    @property
    def paused(self) -> bool:
        """Whether engine time is paused."""
        return self._clock.paused_at is not None

    @property
    def stepping(self) -> bool:
        """Whether roles run to their goals, or are being paused there."""
        return self._step is not None and self._step.phase in (RUNNING, STOPPING)

    def orders(self) -> list[dict[str, Any]]:
        """Return the orders for a role that begins now."""
        return [self._flow] if self._flow["number"] else []

    def reported(self, role: str, incarnation: int, number: int) -> None:
        """Handle a report of a role: retransmit orders that the role has missed.

        `number`: the number of the newest order that the role has received.
        """
        step, now = self._step, self._monotonic()
        missed = number < self._flow["number"]
        asked = step is not None and step.phase == QUERYING and role in self._shard_roles - step.versions.keys()
        order = self._flow if missed else VERSION
        late = now - self._sent_at > REPEAT_S and self._orders.is_due(order["do"], role, incarnation, now)
        if late and (missed or asked):
            self._orders.sent(order["do"], role, incarnation, now)
            self._send_to(order, role, incarnation)

    def _order(self, paused: bool, goals: dict[str, int], then: Then) -> None:
        self._flow = {
            "do": "flow", "number": self._flow["number"] + 1, "paused": paused, "zero": self._clock.zero, "goals": goals,
        }  # fmt: skip
        self._sent_at = self._monotonic()
        self._send(self._flow, then)

    # pause and resume -------------------------------------------------------------------------------------------------

    def pause(self, command: Pause | None, done: Then) -> None:
        """Pause every role. This ends a step. `command`: for the log. `done`: called when the run is paused."""
        if self.paused or not self._allowed:
            done()
        elif self._pausing is not None:
            self._pausing.append(done)
        else:
            if command is not None:
                self._record.executed(command)
            waiting = self._pausing = [done]
            self._order(True, {}, lambda: self._pause_acknowledged(waiting))

    def _pause_acknowledged(self, waiting: list[Then]) -> None:
        if waiting is not self._pausing:  # the run was resumed before this pause was acknowledged
            return
        self._pausing = None
        self._clock.pause()
        self._record.event(RunPaused)
        if self.stepping:
            self._finish_step()
        for done in waiting:
            done()

    def resume(self, command: Resume, done: Then) -> None:
        """Resume the run. `done`: called when all roles have received the order. The pause does not count as engine time."""
        if self.paused or self._pausing is not None or self.stepping:
            self._record.executed(command)
            self._release(done)
        else:
            done()

    def _release(self, done: Then) -> None:
        waiting, self._pausing = self._pausing or [], None
        self._resume_roles({}, done)
        self._finish_step()
        for then in waiting:
            then()

    def _resume_roles(self, goals: dict[str, int], done: Then) -> None:
        self._clock.resume()
        self._order(False, goals, done)

    def stop(self) -> None:
        """Resume the roles, and ignore further pauses, because the run is about to end."""
        self._allowed = False
        if self.paused or self._pausing is not None or self.stepping:
            self._release(no_action)

    def close(self) -> None:
        """Release all callers that wait for a pause or a step. Called when the run has ended."""
        self._allowed = False
        waiting, self._pausing = self._pausing or [], None
        steps = [*([self._step] if self._step else []), *self._steps]
        self._step = None
        self._steps.clear()
        for done in (*waiting, *(step.done for step in steps)):
            done()

    # steps ------------------------------------------------------------------------------------------------------------

    def step(self, limit: float | None, done: Then) -> None:
        """Make one more update of every shard, then pause. Further steps are queued.

        `limit`: seconds after which the run is paused in any case, at most `STEP_S`. `done`: called when the run is paused
        again, or the step was cancelled (the run was resumed or stopped, or has ended).
        """
        self._steps.append(StepRequest(STEP_S if limit is None else min(limit, STEP_S), done))
        if self._step is None:
            self._begin_step()

    def _begin_step(self) -> None:
        if self._steps:
            step = self._step = self._steps.popleft()
            step.deadline = self._monotonic() + step.limit
            self.pause(None, lambda: self._query_versions(step))

    def _finish_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.done()
            self._begin_step()

    def _query_versions(self, step: StepRequest) -> None:
        if step is not self._step:
            return
        if not self.paused:
            return self._finish_step()
        now = self._sent_at = self._monotonic()
        step.phase, step.until = QUERYING, min(now + ANSWER_S, max(step.deadline, now + GRACE_S))
        self._send(VERSION, no_action)

    def version(self, role: str, version: int) -> None:
        step = self._step
        if step is not None and step.phase == QUERYING:
            step.versions[role] = version
            if step.versions.keys() >= self._shard_roles:
                self._run_to_goals(step)

    def _run_to_goals(self, step: StepRequest) -> None:
        own = self._restored if self._synchronized else self._shard_roles
        newest = max((version for role, version in step.versions.items() if role not in own), default=0)
        goals = {role: (version if role in own else newest) + 1 for role, version in step.versions.items()}
        at_least = self._monotonic() + min(step.limit, GRACE_S)  # a step with a short timeout makes progress, too
        step.phase, step.until, step.missing = RUNNING, max(step.deadline, at_least), set(goals)
        self._resume_roles(goals, no_action)

    def reached(self, role: str) -> None:
        step = self._step
        if step is not None and step.phase == RUNNING:
            step.missing.discard(role)
            if step.disturbed or not step.missing:
                self._stop_at_goal(step)

    def lost(self, role: str) -> None:
        self._restored.add(role)
        if self._step is not None:
            self._step.disturbed = True
            self._step.versions.pop(role, None)  # that of its next instance is another one
            if role in self._step.missing:
                self.reached(role)

    def _stop_at_goal(self, step: StepRequest) -> None:
        step.phase = STOPPING
        self.pause(None, lambda: self._finish_step() if step is self._step else None)

    # limits -----------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The time (by `monotonic`) at which `check_deadline` must be called; infinity if the current phase has no deadline."""
        step = self._step
        return step.until if step is not None and step.phase in (QUERYING, RUNNING) else float("inf")

    def check_deadline(self, now: float) -> None:
        """End the current phase if its deadline has passed."""
        step = self._step
        if step is not None and now >= self.due:
            if step.phase == QUERYING and step.versions:
                self._run_to_goals(step)
            elif step.phase == QUERYING:  # without goals the roles would not stop
                self._finish_step()
            else:
                self._stop_at_goal(step)
