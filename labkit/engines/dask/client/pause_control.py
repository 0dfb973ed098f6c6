"""Pause, resume and single steps of a run.

A pause holds every role between two effects; engine time stands still once all roles have been told. A step is one more
update of every shard, then a pause. Roles pause one after the other, so a pause can catch shards at different versions, and in
most strategies the one behind cannot move without the one ahead. So all step to one version, that of the foremost shard plus
one: the shard that gets there first has already sent what the others need to follow. Replicas that compute by themselves and
only answer each other are never in step; each of them makes one update.

One order says all of it (`flow`): whether roles are paused, when engine time was zero, and the goals. It has a number: a role
ignores one that is older than what it knows, and reports which one it knows. One that it has missed is repeated.
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
from .record import RunRecord

__all__ = ["PauseControl"]

ANSWER_S = 10.0  # seconds for all shards to report their versions: a role that computes answers when it has done
STEP_S = 30.0  # seconds for a step; then the run is paused wherever the shards are

VERSION = {"do": "version"}  # the order to report the version of a shard
PAUSING, ASKING, GOING, STOPPING = "pausing", "asking", "going", "stopping"

Then = Callable[[], None]


def nothing() -> None:
    """Nothing waits for this order."""


@dataclass
class OneStep:
    """A step that was asked for. `phase`: pause, ask for versions, go to the goals, pause again."""

    limit: float
    done: Then
    phase: str = PAUSING
    until: float = 0.0  # when the phase is given up
    versions: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)  # roles that have not reached their goals


class PauseControl:
    """Of one run; used by the run's thread only, and never waits.

    `send(order, then)`: sends an order to all roles; `then` is called when all have answered or a limit has passed.
    `send_to(order, role, incarnation)`: sends it to one. `clock`: engine time. `monotonic`: a clock for limits, in seconds.
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
        self._repeated_at: dict[tuple[str, int], float] = {}  # to each role instance that had not taken it in
        self._owners = {role.name for role in roles if role.shard is not None}
        self._together = layout.replication != "local" or all(role.computes for role in roles if role.shard is not None)
        self._allowed = True
        self._pausing: list[Then] | None = None  # a pause is under way: what is called when all roles have been told
        self._steps: deque[OneStep] = deque()  # those to come
        self._step: OneStep | None = None

    @property
    def paused(self) -> bool:
        """Whether engine time stands still."""
        return self._clock.paused_at is not None

    @property
    def stepping(self) -> bool:
        """Whether roles go to a goal, and pause there."""
        return self._step is not None and self._step.phase in (GOING, STOPPING)

    def orders(self) -> list[dict[str, Any]]:
        """What a role has to be told that begins now."""
        return [self._flow] if self._flow["number"] else []

    def reported(self, role: str, incarnation: int, number: int) -> None:
        """A role has reported. `number`: of the newest order that it knows. Repeats what it should have got by now."""
        step, now = self._step, self._monotonic()
        missed = number < self._flow["number"]
        asked = step is not None and step.phase == ASKING and role in self._owners - step.versions.keys()
        since = max(self._sent_at, self._repeated_at.get((role, incarnation), 0.0))
        if (missed or asked) and now - since > REPEAT_S:
            self._repeated_at[role, incarnation] = now
            self._send_to(self._flow if missed else VERSION, role, incarnation)

    def _order(self, paused: bool, goals: dict[str, int], then: Then) -> None:
        self._flow = {
            "do": "flow", "number": self._flow["number"] + 1, "paused": paused, "zero": self._clock.zero, "goals": goals,
        }  # fmt: skip
        self._sent_at = self._monotonic()
        self._send(self._flow, then)

    # pause and resume -------------------------------------------------------------------------------------------------

    def pause(self, command: Pause | None, done: Then) -> None:
        """Hold every role; a pause ends a step. `command`: for the log. `done`: called when the run is paused."""
        if self.paused or not self._allowed:
            done()
        elif self._pausing is not None:
            self._pausing.append(done)
        else:
            if command is not None:
                self._record.executed(command)
            waiting = self._pausing = [done]
            self._order(True, {}, lambda: self._all_told(waiting))

    def _all_told(self, waiting: list[Then]) -> None:
        if waiting is not self._pausing:  # resumed meanwhile
            return
        self._pausing = None
        self._clock.pause()
        self._record.event(RunPaused)
        if self.stepping:
            self._end_step()
        for done in waiting:
            done()

    def resume(self, command: Resume, done: Then) -> None:
        """Go on; the pause is taken out of engine time. `done`: called when all roles have been told."""
        if self.paused or self._pausing is not None or self.stepping:
            self._record.executed(command)
            self._release(done)
        else:
            done()

    def _release(self, done: Then) -> None:
        waiting, self._pausing = self._pausing or [], None
        self._let_run({}, done)
        self._end_step()
        for then in waiting:
            then()

    def _let_run(self, goals: dict[str, int], done: Then) -> None:
        self._clock.resume()
        self._order(False, goals, done)

    def stop(self) -> None:
        """The run is to end: roles go on, and are not paused again."""
        self._allowed = False
        if self.paused or self._pausing is not None or self.stepping:
            self._release(nothing)

    def close(self) -> None:
        """The run is over: nothing is waited for."""
        self._allowed = False
        waiting, self._pausing = self._pausing or [], None
        steps = [*([self._step] if self._step else []), *self._steps]
        self._step = None
        self._steps.clear()
        for done in (*waiting, *(step.done for step in steps)):
            done()

    # steps ------------------------------------------------------------------------------------------------------------

    def step(self, limit: float | None, done: Then) -> None:
        """One more update of every shard, then a pause; steps that are asked for meanwhile come after it.

        `limit`: seconds after which the run is paused wherever the shards are, at most `STEP_S`. `done`: called when the run is
        paused again, or the step has become pointless (the run was resumed, stopped, or is over).
        """
        self._steps.append(OneStep(STEP_S if limit is None else min(limit, STEP_S), done))
        if self._step is None:
            self._begin_step()

    def _begin_step(self) -> None:
        if self._steps:
            step = self._step = self._steps.popleft()
            self.pause(None, lambda: self._ask(step))

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.done()
            self._begin_step()

    def _ask(self, step: OneStep) -> None:
        """Have every shard report its version."""
        if step is not self._step:
            return
        if not self.paused:
            return self._end_step()
        step.phase, step.until = ASKING, self._monotonic() + ANSWER_S
        self._sent_at = self._monotonic()
        self._send(VERSION, nothing)

    def version(self, role: str, version: int) -> None:
        """The shard of `role` has reported its version."""
        step = self._step
        if step is not None and step.phase == ASKING:
            step.versions[role] = version
            if step.versions.keys() >= self._owners:
                self._go(step)

    def _go(self, step: OneStep) -> None:
        foremost = max(step.versions.values(), default=0)
        goals = {role: (foremost if self._together else version) + 1 for role, version in step.versions.items()}
        step.phase, step.until, step.missing = GOING, self._monotonic() + step.limit, set(goals)
        self._let_run(goals, nothing)

    def reached(self, role: str) -> None:
        """A role has come to its goal, and is paused."""
        step = self._step
        if step is not None and step.phase == GOING:
            step.missing.discard(role)
            if not step.missing:
                self._stop_at_goal(step)

    def lost(self, role: str) -> None:
        """A role is lost, and not waited for."""
        if self._step is not None and role in self._step.missing:
            self.reached(role)

    def _stop_at_goal(self, step: OneStep) -> None:
        step.phase = STOPPING
        self.pause(None, lambda: self._end_step() if step is self._step else None)

    # limits -----------------------------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """When (by `monotonic`) `look` has something to do."""
        step = self._step
        return step.until if step is not None and step.phase in (ASKING, GOING) else float("inf")

    def look(self, now: float) -> None:
        """Give up what has waited for too long."""
        step = self._step
        if step is not None and now >= self.due:
            if step.phase == ASKING:
                self._go(step)
            else:
                self._stop_at_goal(step)
