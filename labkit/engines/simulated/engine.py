"""The engine of virtual time: a heap, a ready queue, and `coroutine.send`.

Events, and roles that may go on at once, are ordered by (integer nanoseconds, priority, sequence): what happens in an instant
happens in the order in which it was caused, so all workers that finish together push before the first of them pulls again. Nothing
reads the machine's clock and nothing iterates over a set: the same plan and commands give the same bytes.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ...errors import Deadlock, LabkitError, RoleError
from ...roles.effects import COMPUTE, RECV, SLEEP
from ...roles.messages import Look, Message, Snapshot
from ...roles.shard import Shard
from ...trace.recorder import Recorder
from ...trace.trace import Trace
from ...trace.vocabulary import APPLY, EVALUATE, EVALUATION, nanoseconds, seconds
from ...trace.vocabulary import COMPUTE as COMPUTING
from ...trace.vocabulary import SLEEP as SLEEPING
from ...trace.vocabulary import WAIT as WAITING
from ..checkpoints import check_folder, fingerprint, write_state
from ..drive import deadlock_text, failure_report, foreign_effect, render_failure
from ..parts import Plan, batch_maker, build_parts, check_factor, find_role, local_data, split
from .network import Network
from .roles import SimulatedContext, SimulatedRole

__all__ = ["SimulatedRun"]

DONE, DELIVER, WAKE, COMMAND = range(4)  # what an event is
EARLY, LATE = 0, 1  # timeouts come after everything else of their instant
POLLS = 100_000  # looks in a row, in one instant, until a role is told that virtual time stands still for it
PHASE = {"gradient": COMPUTING, "server": APPLY, "measure": EVALUATE}


class SimulatedRun:
    """One run in virtual time. It moves only when asked: `advance`, `wait`, `step`.

    `commands`: [(seconds, name, arguments), ...] carried out at their times. The log that a run keeps of its own, in `commands`, also
    has the turn of the loop before which each came: given the log of an earlier run, that run is repeated exactly.
    """

    def __init__(self, plan: Plan, cluster: Any, commands: Any = (), checkpoint: Any = None):
        self.plan, self.cluster = plan, cluster
        self.trace = Trace(plan.header(cluster))
        self._folder = check_folder(checkpoint)  # only a folder that was asked for: virtual machines do not crash
        self.now = 0
        self.stopped_by: str | None = None
        self.error: LabkitError | None = None
        self.commands: list[tuple[float, str, dict[str, Any], int]] = []
        self._heap: list[tuple[int, int, int, int, Any, Any]] = []
        self._ready: deque[tuple[int, int, int, SimulatedRole, Any]] = deque()
        self._sequence = self._turn = 0
        self._kind_ids = {kind: i for i, kind in enumerate(plan.message_kinds)}
        self._network = Network(len(plan.layout.nodes), cluster.latency, cluster.bandwidth)
        self._make_roles()
        self._script = [command for command in reversed(list(commands)) if len(command) == 4]
        for at, name, arguments in (command for command in commands if len(command) == 3):
            self._event(nanoseconds(at), EARLY, COMMAND, name, arguments)
        for name, factor in cluster.slow.items():
            self._slow(name, factor)
        for role in self.roles:
            self._go_on(role, None)

    # making ------------------------------------------------------------------------------------------------------------

    def _make_roles(self) -> None:
        plan, cluster, problem = self.plan, self.cluster, self.plan.problem
        nodes = {name: i for i, name in enumerate(plan.layout.nodes)}
        homes = [role.node for role in plan.layout.roles]
        self._cores = {nodes[n]: [0] * cluster.cores for n in nodes if homes.count(n) > 1} if len(nodes) < len(homes) else {}
        objective, peers = problem.objective(), plan.layout.peers()
        start = objective.start(plan.seed)
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
            parts = build_parts(plan, spec, role.recorder, self._clock, self._watch, objective, start, test)
            share = shares[spec.data] if shares is not None and spec.data is not None else None
            batches = batch_maker(plan, share) if spec.data is not None else None
            context = SimulatedContext(self, role, peers, plan.seed, batches)
            role.shard = next((p for p in parts if isinstance(p, Shard)), None)
            if spec.kind == "chief":
                self.judge, self.chief = parts[0], role
            role.coroutine = getattr(role.strategy, spec.kind)(context, *parts)
            if not hasattr(role.coroutine, "send"):
                raise RoleError(f"{plan.strategy.name}.{spec.kind} is not `async def`: a role is a coroutine.")
            role.resume = role.coroutine.send

    def _clock(self) -> int:
        return self.now

    # the loop ----------------------------------------------------------------------------------------------------------

    def advance(self, until: float) -> bool:
        """Let virtual time pass up to `until` seconds; False once the run is over."""
        self._loop(nanoseconds(until), False)
        if self.stopped_by is None:
            self.now = max(self.now, nanoseconds(until))
            self.flush()
        return self.stopped_by is None

    @property
    def seconds(self) -> float:
        """Where virtual time stands."""
        return seconds(self.now)

    def wait(self, timeout: float | None = None) -> None:
        """Go on to the end (`timeout` is for engines that have to wait)."""
        while self.stopped_by is None:
            self._loop(1 << 62, False)

    def pause(self) -> None:
        """Nothing to do: virtual time stands still unless it is advanced."""

    resume = pause

    def step(self) -> bool:
        """Go on to the next applied update; False once the run is over."""
        self._loop(1 << 62, True)
        self.flush()
        return self.stopped_by is None

    def _loop(self, until: int, one_update: bool) -> None:
        heap, ready, drive = self._heap, self._ready, self._drive
        versions = self._versions()
        while self.stopped_by is None:
            if self._script and self._script[-1][3] == self._turn and nanoseconds(self._script[-1][0]) <= until:
                at, name, arguments, _ = self._script.pop()
                self.now = max(self.now, nanoseconds(at))
                getattr(self, name)(**arguments)
            elif ready and not (heap and heap[0] < ready[0]):  # type: ignore[operator]
                self._turn += 1
                _, _, _, role, value = ready.popleft()
                drive(role, value)
            elif heap:
                if heap[0][0] > until:
                    return
                time, _, _, what, role, payload = heappop(heap)
                if role is self.chief and self._idle(time, what):
                    self._stuck()
                    return
                self.now = time
                self._turn += what != COMMAND
                if what == DELIVER:
                    self._deliver(role, payload)
                elif what == DONE:
                    if role.token == payload:
                        self._done(role)
                elif what == WAKE:
                    if role.token == payload:
                        self._woken(role)
                else:
                    getattr(self, role)(**payload)
            else:
                self._stuck()
                return
            if one_update and self._versions() > versions:
                return

    def _versions(self) -> int:
        return min((self.by_name[owner].shard.version for owner in self.plan.layout.observed), default=0)

    def _idle(self, time: int, what: int) -> bool:
        """Whether only the end of the budget's seconds would move this run: then it has got stuck before."""
        limit = self.plan.budget.seconds
        if what != WAKE or limit is None or time < nanoseconds(limit) or self.chief.waiting is None or self._ready:
            return False
        return not any(e[3] == DELIVER or (e[3] != COMMAND and e[4].token == e[5]) for e in self._heap)

    def _go_on(self, role: SimulatedRole, value: Any) -> None:
        """`role` may go on with `value`, after all that was caused before."""
        self._sequence += 1
        self._ready.append((self.now, EARLY, self._sequence, role, value))

    def _event(self, time: int, priority: int, what: int, role: Any, payload: Any) -> None:
        self._sequence += 1
        heappush(self._heap, (time, priority, self._sequence, what, role, payload))

    def _drive(self, role: SimulatedRole, value: Any) -> None:
        """Perform what `role` asks for until it has to wait."""
        resume = role.resume
        while True:
            try:
                effect = resume(value)
            except StopIteration:
                self._returned(role)
                return
            except Exception as error:
                self._failed(role, error)
                return
            mark = effect[0] if effect.__class__ is tuple and effect else None
            if mark is RECV:
                value = self._receive(role, effect)
                if value is self:
                    return
            elif mark is COMPUTE:
                value = self._compute(role, effect)
                if value is self:
                    return
            elif mark is SLEEP:
                if effect[1] > 0:
                    role.since = self.now
                    role.token += 1
                    self._event(self.now + nanoseconds(effect[1]), EARLY, WAKE, role, role.token)
                    return
                value = self._at_once(role)
                if value is self:
                    return
            else:
                self._throw(role, foreign_effect(role.name, effect))
                return

    # effects: each returns a value, or `self` if the role has to wait ------------------------------------------------------

    def _receive(self, role: SimulatedRole, effect: tuple[Any, ...]) -> Any:
        kinds, sender, inbox = effect[1], effect[3], role.inbox
        if inbox:
            for i, message in enumerate(inbox):
                if message.__class__ in kinds and (sender is None or message.sender == sender):
                    if i:
                        del inbox[i]
                    else:
                        inbox.popleft()
                    return self._taken(role, message)
        timeout = effect[2]
        if timeout is not None:
            if timeout <= 0:
                return self._at_once(role)
            role.token += 1
            self._event(self.now + nanoseconds(timeout), LATE, WAKE, role, role.token)
        role.waiting, role.wait_sender, role.since = kinds, sender, self.now
        return self

    def _at_once(self, role: SimulatedRole) -> Any:
        """A look, or a sleep of no length. In a loop without end they would hold virtual time for ever."""
        instant, looks = role.looks
        role.looks = (self.now, looks + 1 if instant == self.now else 1)
        if looks < POLLS:
            return None
        error = RoleError(
            f"looked {POLLS:,} times in one instant (timeout=0, or sleep(0), in a loop): virtual time passes only in a wait; let "
            "the loop `await ctx.sleep(0.001)`, or wait without timeout=0."
        )
        self._throw(role, error)
        return self

    def _taken(self, role: SimulatedRole, message: Message) -> Message:
        if message.carries:
            role.counters.taken[self.by_name[message.sender].id] = message.step  # type: ignore[attr-defined]
        return message

    def _compute(self, role: SimulatedRole, effect: tuple[Any, ...]) -> Any:
        _, fn, args, cost, unless = effect
        work = getattr(getattr(fn, "__self__", None), "work", "gradient" if role.spec.computes else "server")
        sampler = role.samplers[work]
        duration = 0 if sampler is None else sampler.next()
        if cost != 1.0 or role.factor != 1.0:
            duration = round(duration * cost * role.factor)
        if unless is not None and any(m.__class__ is unless for m in role.inbox):
            return self._give_up(fn)
        if not duration:
            if work != "server":
                return self._call(role, fn, args)
            # An update ends a turn: a run can be stepped, and others come first; but not those whom the update itself woke up.
            self._sequence += 1
            entry, place = self._sequence, len(self._ready)
            value = self._call(role, fn, args)
            if value is not self:
                self._ready.insert(place, (self.now, EARLY, entry, role, value))
            return self
        start, core = self.now, -1
        cores = self._cores.get(role.node) if self._cores else None
        if cores is not None:
            core = min(range(len(cores)), key=cores.__getitem__)
            start = max(start, cores[core])
            cores[core] = start + duration
        role.since, role.working, role.unless = start, (fn, args, PHASE[work], core, start + duration), unless
        role.token += 1
        self._event(start + duration, EARLY, DONE, role, role.token)
        return self

    def _call(self, role: SimulatedRole, fn: Any, args: tuple[Any, ...]) -> Any:
        """`fn(*args)`; an exception goes to the role, at the line where it waits."""
        try:
            return fn(*args)
        except Exception as error:
            self._throw(role, error)
            return self

    def _throw(self, role: SimulatedRole, error: Exception) -> None:
        """Raise `error` inside the role. If the role catches it, it goes on with its next effect."""
        try:
            effect = role.coroutine.throw(error)
        except StopIteration:
            self._returned(role)
        except Exception as failure:
            self._failed(role, failure)
        else:
            role.resume = _once(effect, role)
            self._go_on(role, None)

    @staticmethod
    def _give_up(fn: Any) -> None:
        cancelled = getattr(getattr(fn, "__self__", None), "cancelled", None)
        if cancelled is not None:
            cancelled()

    def _free_core(self, role: SimulatedRole) -> None:
        """Work was given up. Whoever has queued behind it keeps its turn; who comes now may start at once."""
        _, _, _, core, end = role.working
        if core >= 0 and self._cores[role.node][core] == end:
            self._cores[role.node][core] = max(self.now, role.since)

    def _done(self, role: SimulatedRole) -> None:
        fn, args, phase, _, _ = role.working
        role.working = role.unless = None
        role.counters.phases[phase] += self.now - role.since
        role.recorder.spans.extend((phase, role.since, self.now, role.counters.computed))
        value = self._call(role, fn, args)
        if value is not self:
            self._drive(role, value)

    def _woken(self, role: SimulatedRole) -> None:
        """A sleep is over, or a wait has lasted long enough."""
        waited = role.waiting is not None
        role.waiting = None
        role.recorder.span(WAITING if waited else SLEEPING, role.since, self.now)
        self._drive(role, None)

    # messages ----------------------------------------------------------------------------------------------------------

    def post(self, role: SimulatedRole, target: SimulatedRole, message: Message, size: int, category: int) -> None:
        """Put `message` of `size` bytes on its way; it is the target's own already."""
        now = self.now
        role.counters.bytes[category] += size
        role.counters.messages += 1
        free = category == EVALUATION or self._network.free or role.node == target.node
        arrival = now if free else self._network.arrival(now, role.node, target.node, size)
        kind = self._kind_ids[message.__class__]
        target.recorder.messages.extend((role.id, kind, category, size, now, arrival))
        if free:
            self._deliver(target, message)
        else:
            self._event(arrival, EARLY, DELIVER, target, message)

    def _deliver(self, role: SimulatedRole, message: Message) -> None:
        kind = message.__class__
        waiting = role.waiting
        if waiting is not None and kind in waiting and (role.wait_sender is None or role.wait_sender == message.sender):
            if self.now > role.since:
                role.recorder.span(WAITING, role.since, self.now)
            role.waiting = None
            role.token += 1
            self._go_on(role, self._taken(role, message))
        elif kind is Look:
            if message.final:  # type: ignore[attr-defined]
                self._show(role, True)
        else:
            role.inbox.append(message)
            if role.unless is kind:
                role.token += 1
                role.recorder.span(role.working[2], role.since, self.now, role.counters.computed)
                self._give_up(role.working[0])
                self._free_core(role)
                role.working = role.unless = None
                self._go_on(role, None)

    def _watch(self, shard: Shard) -> None:
        self._show(self.by_name[self.plan.layout.roles[shard.recorder.role].name], False)

    def _show(self, role: SimulatedRole, final: bool) -> None:
        shard = role.shard
        values = shard.values if role.name in self.plan.layout.observed else shard.values[:0]
        if not shard.counts_only:
            values = values.copy()
        snapshot = Snapshot(values, shard.index, shard.version, shard.samples, final)
        snapshot.__dict__["sender"] = role.name
        self.post(role, self.chief, snapshot, values.nbytes, EVALUATION)

    # commands ----------------------------------------------------------------------------------------------------------

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
        for role in self.roles:
            for name in knobs:
                object.__setattr__(role.strategy, name, getattr(changed, name))
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

    # the end -----------------------------------------------------------------------------------------------------------

    def _returned(self, role: SimulatedRole) -> None:
        role.resume = None
        if role is self.chief:
            self._end(self.judge.verdict or "finished", "")
        elif all(r.resume is None for r in self._players):
            self._hurry("finished")

    def _failed(self, role: SimulatedRole, error: Exception) -> None:
        report = failure_report(role.name, role.counters.computed if role.spec.computes else role.counters.version, error)
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
        self.flush()
        if stopped_by == "diverged":
            rate = getattr(self.roles[0].strategy, "learning_rate", None)
            why = f"the loss is {self.judge.loss} at update {self.judge.update}" + (f", learning_rate {rate:g}" if rate else "")
        self.trace.end(
            stopped_by=stopped_by, why=why, time=self.now, wall_seconds=None, in_flight=self._in_flight(),
            update=self.judge.update, loss=self.judge.loss, accuracy=self.judge.accuracy,
            parameters_sha256=fingerprint(self.judge.parameters),
        )  # fmt: skip
        if self._folder is not None and self.chief.state is not None:
            write_state(self._folder, self.chief.name, self.chief.state)
        for role in self.roles:
            with contextlib.suppress(Exception):  # a role that goes on after it was told to end: nobody drives it any more
                role.coroutine.close()

    def _in_flight(self) -> list[list[int]]:
        """Every gradient on a wire, in an inbox or handed over in this instant: [shard, sender, incarnation, step, count]."""
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
            self.trace.append(role.recorder.take(self.now, plain=False))

    @property
    def parameters(self) -> np.ndarray | None:
        """The evaluated parameters that met the budget, or the newest evaluated ones."""
        return self.judge.parameters


def _once(effect: Any, role: SimulatedRole) -> Any:
    """A stand-in for `coroutine.send` that first hands over an effect that is already known."""

    def resume(_: Any) -> Any:
        role.resume = role.coroutine.send
        return effect

    return resume
