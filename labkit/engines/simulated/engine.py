"""One run in virtual time: its roles made from the plan, moved on request, ended, and booked.

A run is (plan, cluster, commands): given the command log of an earlier run, that run is repeated exactly.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ...errors import BadInput, Deadlock, LabkitError
from ...roles.messages import Look, own_copy
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ...trace.trace import Trace
from ...trace.vocabulary import EVALUATION, nanoseconds, seconds
from ..checkpoints import check_folder, fingerprint, write_state
from ..drive import deadlock_text, failure_report, render_failure
from ..laws import Deterministic
from ..parts import Plan, batch_maker, build_parts, check_factor, find_role, local_data, split
from .clockwork import Clockwork
from .ctrl_c import CtrlC
from .garbage import seldom_collected
from .network import Network
from .roles import SimulatedContext, SimulatedRole
from .turns import COMMAND, DELIVER, EARLY

__all__ = ["SimulatedRun"]

FOREVER = 1 << 62
SLICE = 1000  # turns between two looks at what is outside: Ctrl-C, a time-out, buffers that fill
FLUSH = 200_000  # turns after which the roles' buffers go into the trace


class SimulatedRun(Clockwork):
    """One run in virtual time. It moves only when asked: `advance`, `wait`, `step`.

    `commands`: [(seconds, name, arguments), ...] carried out at their times. The log that a run keeps of its own, in
    `commands`, also has the turn of the loop before which each came: given the log of an earlier run, that run is
    repeated exactly.
    """

    def __init__(self, plan: Plan, cluster: Any, commands: Any = (), checkpoint: Any = None):
        super().__init__(plan, Network(len(plan.layout.nodes), cluster.latency, cluster.bandwidth))
        check_time_passes(plan, cluster)
        for name in cluster.slow:
            find_role(name, plan.role_ids)
        self.cluster = cluster
        self.trace = Trace(plan.header(cluster))
        self._folder = check_folder(checkpoint)  # only a folder that was asked for: virtual machines do not crash
        self.error: LabkitError | None = None
        self._threads = ThreadpoolController()
        self.commands: list[tuple[float, str, dict[str, Any], int]] = []
        with seldom_collected():
            self._make_roles()
        self._flush_every = max(FLUSH, 50 * len(self.roles))  # a flush asks every role
        self._flush_at = self._flush_every
        self._script = [command for command in reversed(list(commands)) if len(command) == 4]
        for at, name, arguments in (command for command in commands if len(command) == 3):
            self._event(nanoseconds(at), EARLY, COMMAND, name, arguments)
        for name, factor in cluster.slow.items():
            self._slow(name, factor)
        for role in self.roles:
            self._go_on(role, None)

    # making -----------------------------------------------------------------------------------------------------------

    def _make_roles(self) -> None:
        plan, cluster, problem = self.plan, self.cluster, self.plan.problem
        nodes = {name: i for i, name in enumerate(plan.layout.nodes)}
        homes = [role.node for role in plan.layout.roles]
        self._cores = (
            {nodes[n]: [0] * cluster.cores for n in nodes if homes.count(n) > 1} if len(nodes) < len(homes) else {}
        )
        objective, peers = problem.objective(), plan.layout.peers()
        dataset = None if problem.timing_only else local_data(problem)
        shares = split(dataset, problem, plan.layout.shares) if dataset is not None else None
        test = (dataset.x_test, dataset.y_test) if dataset is not None else None
        strategy = copy.copy(plan.strategy)  # the engine's own: its live knobs may change
        self.roles: list[SimulatedRole] = []
        for i, spec in enumerate(plan.layout.roles):
            role = SimulatedRole(i, spec, nodes[spec.node], Recorder(i, record=plan.record), strategy)
            role.laws(plan.seed, cluster.compute, cluster.server_time)
            self.roles.append(role)
        self.by_name = {role.name: role for role in self.roles}
        # when these have returned the run is finished: whoever computes, or, where nobody does, everybody but the chief
        self._players = [r for r in self.roles if r.spec.computes] or [r for r in self.roles if r.spec.kind != "chief"]
        for role in self.roles:
            spec = role.spec
            parts = build_parts(plan, spec, role.recorder, self._clock, self._watch, objective, strategy, test)
            share = shares[spec.data] if shares is not None and spec.data is not None else None
            context = SimulatedContext(self, role, peers, plan.seed, batch_maker(plan, spec, share))
            role.shard = next((p for p in parts if isinstance(p, Shard)), None)
            if spec.kind == "chief":
                self.judge, self.chief = parts[0], role
            role.begin = functools.partial(getattr(role.strategy, spec.kind), context, *parts)

    def _begin(self) -> None:
        """Make the coroutines, when the run is moved for the first time."""
        for role in self.roles:
            role.coroutine = role.begin()
            role.resume = role.coroutine.send

    def _clock(self) -> int:
        return self.now

    # moving -----------------------------------------------------------------------------------------------------------

    def advance(self, until: float) -> bool:
        """Let virtual time pass up to `until` seconds; False once the run is over."""
        self._move(nanoseconds(until), False)
        if self.stopped_by is None:
            self.now = max(self.now, nanoseconds(until))
            self.flush()
        return self.stopped_by is None

    def _move(self, until: int, one_update: bool, timeout: float | None = None) -> bool:
        """Move in slices; what comes from outside gets its turn in between. False after `timeout` seconds of wall time."""
        if self.roles[0].coroutine is None:
            self._begin()
        deadline = None if timeout is None else time.monotonic() + timeout
        # linear algebra on one thread, as on a cluster: the same bytes everywhere
        with self._threads.limit(limits=1), seldom_collected(), CtrlC(self._take_a_rest) as ctrl_c:
            going = True
            while going:
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._rest = self._turn + SLICE
                ctrl_c.answer()
                try:
                    going = self._loop(until, one_update)
                except KeyboardInterrupt:
                    self._end("interrupted", "in the middle of an event, so there is no last evaluation")
                    raise
                if self._turn >= self._flush_at:
                    self._flush_at = self._turn + self._flush_every
                    self.flush()
        return True

    @property
    def seconds(self) -> float:
        """Where virtual time stands."""
        return seconds(self.now)

    def wait(self, timeout: float | None = None) -> None:
        """Go on to the end, or `TimeoutError` after `timeout` seconds of wall time."""
        if self.stopped_by is None and not self._move(FOREVER, False, timeout):
            raise TimeoutError(f"The run is not over after {timeout:g} s; it goes on.")

    def pause(self) -> None:
        """Nothing to do: virtual time stands still unless it is advanced."""

    resume = pause

    def step(self) -> bool:
        """Go on to the next applied update; False once the run is over."""
        self._move(FOREVER, True)
        self.flush()
        return self.stopped_by is None

    # what the chief sees ----------------------------------------------------------------------------------------------

    def _watch(self, shard: Shard) -> None:
        self._show(self.by_name[self.plan.layout.roles[shard.recorder.role].name], False)

    def _show(self, role: SimulatedRole, final: bool) -> None:
        shard = role.shard
        shown = shard.snapshot(final, role.name in self.plan.layout.observed)
        snapshot, size = own_copy(shown, role.name)
        self.post(role, self.chief, snapshot, size, EVALUATION)

    def _looked(self, role: SimulatedRole, look: Look) -> None:
        """The chief asks to see a shard: now, or when it comes to a certain version."""
        if look.final or role.shard.look(look.at):
            self._show(role, look.final)

    # commands ---------------------------------------------------------------------------------------------------------

    def _log(self, command: str, arguments: dict[str, Any]) -> None:
        self.commands.append((seconds(self.now), command, arguments, self._turn))

    def slow(self, role: str, factor: float) -> None:
        """From now on `role` computes `factor` times slower than its law."""
        self._slow(role, factor)
        self._log("slow", {"role": role, "factor": factor})

    def _slow(self, role: str, factor: float) -> None:
        target = find_role(role, self.by_name)
        check_factor(factor)
        target.factor = float(factor)
        self.trace.mark(self.now, "slow", f"{role} computes {factor:g}x slower", name=role, factor=float(factor))

    def set(self, **knobs: Any) -> None:
        """Change live knobs of the strategy, for every role at once."""
        changed = self.plan.strategy.changed(**knobs)
        self._log("set", knobs)
        for name in knobs:  # one object, which all roles share
            object.__setattr__(self.chief.strategy, name, getattr(changed, name))
        self.trace.mark(self.now, "set", ", ".join(f"{k} = {v}" for k, v in knobs.items()))

    def stop(self, reason: str = "user") -> None:
        """End the run at this instant, with a last evaluation."""
        if self.stopped_by is None and self.judge.hurry is None:
            self._log("stop", {"reason": reason})
            self._hurry(reason)
        self.wait()

    def _hurry(self, reason: str) -> None:
        self.judge.hurry = reason
        if self.chief.waiting is not None:
            self.chief.waiting = None
            self.chief.token += 1
            self._go_on(self.chief, None)

    # the end ----------------------------------------------------------------------------------------------------------

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
            parameters_sha256=fingerprint(self.judge.parameters),
            commands=[list(command) for command in self.commands],
        )  # fmt: skip
        if self._folder is not None and self.chief.state is not None:
            write_state(self._folder, self.chief.name, self.chief.state)
        for role in self.roles:
            # a role that goes on after it was told to end: nobody drives it any more
            with contextlib.suppress(Exception, SystemExit):
                role.coroutine.close()

    def _in_flight(self) -> list[list[int]]:
        """Every gradient on a wire, in an inbox or handed over in this instant: [shard, sender, incarnation, step,
        count].
        """
        pending = [(r, m) for _, _, _, what, r, m in sorted(self._heap, key=lambda e: e[:3]) if what == DELIVER]
        for role in self.roles:
            pending.extend((role, message) for message in role.inbox)
        return [
            [role.shard.index, self.by_name[m.sender].id, m.incarnation, m.step, m.count]
            for role, m in pending
            if m.carries and role.shard is not None
        ]

    def flush(self) -> None:
        """Bring the trace up to this instant."""
        for role in self.roles:
            role.counters.open = [] if role.working is None else [role.working[2], role.since]
            self.trace.append(role.recorder.take(self.now, plain=False))

    @property
    def parameters(self) -> np.ndarray | None:
        """The evaluated parameters that met the budget, or the newest evaluated ones."""
        return self.judge.parameters


def check_time_passes(plan: Plan, cluster: Any) -> None:
    """`BadInput` if nothing takes time and nothing but time, or luck, would end the run."""
    lengthless = [
        law is None or (isinstance(law, Deterministic) and law.seconds == 0)
        for law in (cluster.compute, cluster.server_time)
    ]
    if (
        all(lengthless)
        and not cluster.latency
        and np.isinf(cluster.bandwidth)
        and plan.limits.updates is None
        and plan.limits.samples is None
    ):
        raise BadInput(
            "Nothing takes time on this cluster, so virtual time would stand still: give a Budget(updates=...), or a law."
        )
