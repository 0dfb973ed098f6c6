"""One run in virtual time: moved on request, by one thread at a time, and the commands that it executes.

A run is (plan, cluster, commands): given the command log of an earlier run, that run is repeated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ...errors import LabkitError
from ...roles.messages import Look, own_copy
from ...roles.shard import Shard
from ...trace.events import EngineWarning, OptionsSet, RoleSlowed
from ...trace.trace import Trace
from ...trace.vocabulary import EVALUATION, nanoseconds, seconds
from ..base import VirtualTimeEngine
from ..checkpoints import open_store
from ..commands import (
    Command,
    Cut,
    Delay,
    Drop,
    Executed,
    Freeze,
    Inject,
    Join,
    Kill,
    Leave,
    Pause,
    Reconnect,
    Restart,
    Resume,
    SetOptions,
    Slow,
    Stop,
    Thaw,
    check_supported,
    not_executed,
)
from ..log import Diary
from ..parts import Plan, find_role
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


class SimulatedRun(Troubles, VirtualTimeEngine):
    """One run in virtual time. It moves only when asked: `advance`, `wait`, `step`. Any thread may ask.

    `commands`: primitive commands, executed at their times, and entries of an earlier run's log, executed before the same
    turns of the loop: given the whole log, that run is repeated exactly. Its own log is in the attribute `commands`.
    `supported_commands`: the classes of commands that `execute` takes.
    """

    def __init__(
        self, plan: Plan, cluster: Any, commands: Iterable[Command | Executed] = (), checkpoint: Any = None
    ) -> None:
        super().__init__(plan, Network(len(plan.layout.nodes), cluster.latency, cluster.bandwidth))
        check_time_passes(plan, cluster)
        for name in cluster.slow:
            find_role(name, plan.role_ids)
        self.cluster, self.supported_commands = cluster, frozenset(_HANDLERS)
        self.trace = Trace(plan.header(cluster.spec))
        # only a place that was asked for: virtual machines do not crash
        self._diary = Diary(open_store(checkpoint), lambda what: self.trace.event(EngineWarning(self.now, what)))
        self.error: LabkitError | None = None
        self._threads, self._hand, self._stride = ThreadpoolController(), OneHand(), FIRST
        self.commands: list[Executed] = []
        self._last_word: Executed | None = None  # the entry of the command that ended the run
        self._checkpoints: dict[str, dict[int, Any]] = {}
        with QUIET(self._threads):
            self._make_roles()
            self._begin_whole()
        self._flush_every = max(FLUSH, 50 * len(self.roles))  # a flush asks every role
        self._flush_at = self._flush_every
        entries = list(commands)
        self._script = [e for e in reversed(entries) if isinstance(e, Executed) and e.turn is not None]
        timed = [e for e in entries if not isinstance(e, Executed) or e.turn is None]
        self._schedule = [e.command if isinstance(e, Executed) else e for e in timed]
        for command in self._schedule:
            self._event(nanoseconds(command.at), EARLY, COMMAND, None, command)
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
            log = [e for e in self.commands if nanoseconds(e.at) <= instant and e is not self._last_word]
            ahead = [command for command in self._schedule if nanoseconds(command.at) > instant]
        return SimulatedRun(self.plan, self.cluster, [*log, *ahead])

    # what the chief sees ----------------------------------------------------------------------------------------------

    def watch(self, shard: Shard) -> None:
        """A shard has come to a version that the chief wants to see."""
        self._show(self.by_name[self.plan.layout.roles[shard.recorder.role].name], False)

    def _show(self, role: SimulatedRole, final: bool) -> None:
        shard = role.shard
        if self.chief.down:  # its next incarnation asks again
            return
        shown = shard.evaluation(final, self.now)
        snapshot, size = own_copy(shown, role.name, role.recorder.incarnation)
        self.post(role, self.chief, snapshot, size, EVALUATION)

    def _looked(self, role: SimulatedRole, look: Look) -> None:
        """The chief asks to see a shard: now, or when it comes to a certain version."""
        if role.shard.requested(look.at, look.final):
            self._show(role, look.final)

    # commands ---------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> None:
        """Execute a primitive command now, whatever its `at`; any thread may ask. Nothing happens if the run is over.

        `BadInput` if the command is not supported, names roles that are not there, or makes no sense now.
        """
        check_supported(command, self.supported_commands)
        command.check(self.by_name)
        with self._hand:
            if self.stopped_by is None:
                _HANDLERS[type(command)](self, command)
        if isinstance(command, Stop):
            self.wait()

    def _log(self, command: Command) -> None:
        self.commands.append(Executed(command.changed(at=seconds(self.now)), self._turn))
        if not self._script:  # what is repeated is known there already
            self._diary.commands(self.commands, seconds(self.now))

    def _do_slow(self, command: Slow) -> None:
        self._slow(command.role, command.factor)
        self._log(command)

    def _slow(self, role: str, factor: float) -> None:
        target = find_role(role, self.by_name)
        target.factor = float(factor)
        self.trace.event(RoleSlowed(self.now, role, float(factor)))

    def _do_inject(self, command: Inject) -> None:
        """A run that repeats this one hears of them at the same turn; what it will repeat anyway is not done twice."""
        for one in command.scheduled:
            check_supported(one, self.supported_commands)
        now = seconds(self.now)
        due = tuple(one.changed(at=max(one.at, now)) for one in command.scheduled)
        self._log(command.changed(scheduled=due))
        for left in not_executed(due, self._script):
            self._event(max(nanoseconds(left.at), self.now), EARLY, COMMAND, None, left)

    def _do_set(self, command: SetOptions) -> None:
        changed = self.plan.strategy.changed(**command.options)
        values = {name: getattr(changed, name) for name in command.options}
        self._log(command.changed(options=values))
        for name, value in values.items():  # one object, which all roles share
            object.__setattr__(self.chief.strategy, name, value)
        self.trace.event(OptionsSet(self.now, values))

    def _do_stop(self, command: Stop) -> None:
        if self.judge.hurry is None:
            self._log(command)
            self._last_word = self.commands[-1]
            self._hurry(command.reason)

    def _do_nothing(self, command: Pause | Resume) -> None:
        """Virtual time stands still unless it is advanced."""

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


_HANDLERS: dict[type[Command], Callable[[SimulatedRun, Any], None]] = {
    Slow: SimulatedRun._do_slow,
    Kill: SimulatedRun._do_kill,
    Restart: SimulatedRun._do_restart,
    Freeze: SimulatedRun._do_freeze,
    Thaw: SimulatedRun._do_thaw,
    Delay: SimulatedRun._do_delay,
    Drop: SimulatedRun._do_drop,
    Cut: SimulatedRun._do_cut,
    Reconnect: SimulatedRun._do_reconnect,
    Join: SimulatedRun._do_join,
    Leave: SimulatedRun._do_leave,
    SetOptions: SimulatedRun._do_set,
    Pause: SimulatedRun._do_nothing,
    Resume: SimulatedRun._do_nothing,
    Stop: SimulatedRun._do_stop,
    Inject: SimulatedRun._do_inject,
}
