"""One run in virtual time: moved on request, by one hand at a time, and told what to do.

A run is (plan, cluster, commands): given the command log of an earlier run, that run is repeated exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ...errors import LabkitError
from ...roles.durable import snapshot_of
from ...roles.messages import Look, own_copy
from ...roles.shard import Shard
from ...trace.events import EngineWarning, OptionsSet, RoleSlowed
from ...trace.trace import Trace
from ...trace.vocabulary import EVALUATION, nanoseconds, seconds
from ..checkpoints import open_store
from ..log import Diary
from ..parts import Plan, check_factor, find_role
from .ctrl_c import CtrlC
from .making import Kit, bare_roles, begin_role, check_time_passes, shared_cores
from .network import Network
from .one_hand import OneHand
from .quiet import QUIET
from .roles import SimulatedRole
from .slices import FIRST, Slices
from .trouble import Troubles
from .turns import COMMAND, EARLY

__all__ = ["SimulatedRun"]

FOREVER = 1 << 62
FLUSH = 200_000  # turns after which the roles' buffers go into the trace


class SimulatedRun(Troubles):
    """One run in virtual time. It moves only when asked: `advance`, `wait`, `step`. Any thread may ask.

    `commands`: [(seconds, name, arguments), ...] carried out at their times. The log that a run keeps of its own, in
    `commands`, also has the turn of the loop before which each came: given the log of an earlier run, that run is
    repeated exactly. `verbs`: what can be done to a role.
    """

    verbs: tuple[str, ...] = ("slow", "kill", "restart", "freeze", "thaw", "delay", "drop", "cut", "reconnect")

    def __init__(self, plan: Plan, cluster: Any, commands: Any = (), checkpoint: Any = None):
        super().__init__(plan, Network(len(plan.layout.nodes), cluster.latency, cluster.bandwidth))
        check_time_passes(plan, cluster)
        for name in cluster.slow:
            find_role(name, plan.role_ids)
        self.cluster = cluster
        self.trace = Trace(plan.header(cluster))
        # only a place that was asked for: virtual machines do not crash
        self._diary = Diary(open_store(checkpoint), lambda what: self.trace.event(EngineWarning(self.now, what)))
        self.error: LabkitError | None = None
        self._threads, self._hand, self._stride = ThreadpoolController(), OneHand(), FIRST
        self.commands: list[tuple[float, str, dict[str, Any], int]] = []
        self._last_word: Any = None  # the command that ended the run
        self._checkpoints: dict[str, dict[int, Any]] = {}
        with QUIET(self._threads):
            self._make_roles()
            self._begin_whole()
        self._flush_every = max(FLUSH, 50 * len(self.roles))  # a flush asks every role
        self._flush_at = self._flush_every
        self._script = [command for command in reversed(list(commands)) if len(command) == 4]
        self._schedule = [command for command in commands if len(command) == 3]
        for at, name, arguments in self._schedule:
            self._event(nanoseconds(at), EARLY, COMMAND, name, arguments)
        for name, factor in cluster.slow.items():
            self._slow(name, factor)
        for role in self.roles:
            if not role.down:
                self._go_on(role, None)

    def _make_roles(self) -> None:
        self.roles = bare_roles(self.plan, self.cluster)
        self.by_name = {role.name: role for role in self.roles}
        self.chief = next(role for role in self.roles if role.spec.kind == "chief")
        # whoever computes, or, where nobody does, everybody but the chief
        self._players = [r for r in self.roles if r.spec.computes] or [r for r in self.roles if r is not self.chief]
        self._cores = shared_cores(self.plan, self.cluster.cores)
        self.kit, self.peers, self.judge = Kit.of(self.plan), self.plan.layout.peers(), None
        for role in self.roles:
            begin_role(self, role, 0)

    def clock(self) -> int:
        """Virtual time, ns."""
        return self.now

    # moving -----------------------------------------------------------------------------------------------------------

    def advance(self, until: float, timeout: float | None = None) -> bool:
        """Let virtual time pass up to `until` seconds; False once the run is over.

        `timeout` (seconds of wall time): after about so long it stops on the way, wherever it is. The trace says
        everything up to there, and the next move goes on as if there had been no stop.
        """
        goal = min(nanoseconds(min(until, seconds(FOREVER))), FOREVER)
        there = self._move(goal, False, timeout)
        with self._hand:
            if self.stopped_by is None:
                if there:
                    self.now = max(self.now, goal)
                self.flush()
                self._remember()
        return self.stopped_by is None

    def _move(self, until: int, one_update: bool, timeout: float | None = None) -> bool:
        """Move in slices; what comes from outside gets its turn in between. False after `timeout` seconds of wall time."""
        slices = Slices(timeout, self._stride)
        # linear algebra on one thread, as on a cluster: the same bytes everywhere
        with CtrlC(self._take_a_rest) as ctrl_c, QUIET(self._threads):
            going = True
            while going:
                if slices.over:
                    return False
                with self._hand:
                    self._rest = min(self._turn + slices.turns, self._flush_at)
                    ctrl_c.answer()
                    going = self._slice(until, one_update)
                slices.next()
                self._stride = slices.turns
                self._hand.offer()
        return True

    def _slice(self, until: int, one_update: bool) -> bool:
        """Turns up to the next rest. True if there is more to do."""
        if not self._turn:  # when the run is moved for the first time; some may have been killed, or replaced, before
            for role in self.roles:
                if role.coroutine is None and not role.down:
                    role.coroutine = role.begin()
                    role.resume = role.coroutine.send
        if until == FOREVER and not one_update and self._endless():
            self._stuck()
            return False
        try:
            going = self._loop(until, one_update)
        except KeyboardInterrupt:
            self._end("interrupted", "in the middle of an event, so there is no last evaluation")
            raise
        if self._turn >= self._flush_at:
            self._flush_at = self._turn + self._flush_every
            self.flush()
        return going

    @property
    def seconds(self) -> float:
        """Where virtual time stands."""
        return seconds(self.now)

    def wait(self, timeout: float | None = None) -> None:
        """Go on to the end, or `TimeoutError` after `timeout` seconds of wall time."""
        if self.stopped_by is None and not self._move(FOREVER, False, timeout):
            self._remember()
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")
        with self._hand:
            if self.stopped_by is None:
                self._nobody_comes()

    def pause(self) -> None:
        """Nothing to do: virtual time stands still unless it is advanced."""

    resume = pause

    def step(self, timeout: float | None = None) -> bool:
        """Go on to the next applied update; False once the run is over. `timeout` as in `advance`."""
        self._move(FOREVER, True, timeout)
        self.flush()
        self._remember()
        return self.stopped_by is None

    def _remember(self) -> None:
        """Say where this run stands to whoever goes on with it when this program is gone."""
        if self.stopped_by is None and not self._script:
            self._diary.reached(self.seconds)

    def fork(self, at: float | None = None) -> SimulatedRun:
        """A run at time zero that will repeat this one up to `at` seconds, to the last bit, if it is advanced so far.

        It does what was done to this run up to then, has the same faults before it, and is free after that. The command
        that ended this run (a stop, a kill) is not repeated. `at=None`: where this run stands.
        """
        with self._hand:
            instant = self.now if at is None else nanoseconds(at)
            log = [c for c in self.commands if nanoseconds(c[0]) <= instant and c is not self._last_word]
            ahead = [command for command in self._schedule if nanoseconds(command[0]) > instant]
        return SimulatedRun(self.plan, self.cluster, [*log, *ahead])

    # what the chief sees ----------------------------------------------------------------------------------------------

    def watch(self, shard: Shard) -> None:
        """A shard has come to a version that the chief wants to see."""
        self._show(self.by_name[self.plan.layout.roles[shard.recorder.role].name], False)

    def _show(self, role: SimulatedRole, final: bool) -> None:
        shard = role.shard
        if self.chief.down:  # its next incarnation asks again
            return
        shown = snapshot_of(shard, final, self.now)
        snapshot, size = own_copy(shown, role.name, role.recorder.incarnation)
        self.post(role, self.chief, snapshot, size, EVALUATION)

    def _looked(self, role: SimulatedRole, look: Look) -> None:
        """The chief asks to see a shard: now, or when it comes to a certain version."""
        role.shard.looked = True
        if look.final or role.shard.look(look.at):
            self._show(role, look.final)

    # commands ---------------------------------------------------------------------------------------------------------

    def _log(self, command: str, arguments: dict[str, Any]) -> Any:
        self.commands.append((seconds(self.now), command, arguments, self._turn))
        if not self._script:  # what is repeated is known there already
            self._diary.commands(self.commands, seconds(self.now))
        return self.commands[-1]

    def slow(self, role: str, factor: float) -> None:
        """From now on `role` computes `factor` times slower than its law."""
        with self._hand:
            if self.stopped_by is None:
                self._slow(role, factor)
                self._log("slow", {"role": role, "factor": factor})

    def _slow(self, role: str, factor: float) -> None:
        target = find_role(role, self.by_name)
        check_factor(factor)
        target.factor = float(factor)
        self.trace.event(RoleSlowed(self.now, role, float(factor)))

    def inject(self, commands: Any) -> None:
        """Carry out [(seconds, name, arguments), ...] at their times, which are those of the run.

        A run that repeats this one hears of them at the same turn; what it is going to repeat anyway is not done twice.
        """
        with self._hand:
            if self.stopped_by is None:
                self._log("inject", {"commands": [list(command) for command in commands]})
                repeated = [(nanoseconds(at), name, arguments) for at, name, arguments, _ in self._script]
                for at, name, arguments in commands:
                    command = (nanoseconds(at), name, arguments)
                    if command in repeated:
                        repeated.remove(command)
                    else:
                        self._event(max(command[0], self.now), EARLY, COMMAND, name, arguments)

    def set(self, **knobs: Any) -> None:
        """Change live knobs of the strategy, for every role at once."""
        changed = self.plan.strategy.changed(**knobs)
        with self._hand:
            if self.stopped_by is None:
                self._log("set", knobs)
                for name in knobs:  # one object, which all roles share
                    object.__setattr__(self.chief.strategy, name, getattr(changed, name))
                self.trace.event(OptionsSet(self.now, dict(knobs)))

    def stop(self, reason: str = "user") -> None:
        """End the run at this instant, with a last evaluation."""
        with self._hand:
            if self.stopped_by is None and self.judge.hurry is None:
                self._last_word = self._log("stop", {"reason": reason})
                self._hurry(reason)
        self.wait()

    # the record -------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Bring the trace up to this instant."""
        with QUIET(self._threads), self._hand:
            still = []
            for role in self.roles:
                if role.touched:
                    self.trace.append(role.report(self.now))
                else:
                    still.append(role.id)
            self.trace.nothing_new(still, self.now)

    @property
    def parameters(self) -> np.ndarray | None:
        """The evaluated parameters that met the budget, or the newest evaluated ones."""
        return self.judge.parameters
