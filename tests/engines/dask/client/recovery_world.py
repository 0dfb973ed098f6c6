"""A simulated cluster and its roles, which drive a recovery policy through losses, delays and lost requests, without
processes, clocks and threads. Like `client/recovery.py` on a real cluster, it performs every action, and checks it.
"""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from labkit.engines.commands import Join, Leave, Restart
from labkit.engines.dask.client import recovery_policy as policy
from labkit.engines.dask.client.membership import Membership
from labkit.engines.dask.client.recovery_events import (
    Departed,
    Heartbeat,
    Report,
    RoleUp,
    StateCollected,
    TaskFailed,
    TaskFinished,
    WorkerHeartbeats,
    WorkerJoined,
    WorkerLeft,
)
from labkit.engines.dask.timeouts import REPORT_S
from labkit.engines.lifecycle import PRESENT, State
from labkit.roles.group_restart import restarts_as_group
from labkit.roles.layout import Layout, RoleSpec
from labkit.trace.events import GroupRestarted, RoleJoined, RoleLeft, RoleLost, RoleRestarted, RunWaits

TIMER_S, REPORT_EVERY_S = 0.25, 0.5
TIMEOUT = 5.0


def servers(workers=3, servers=2, backups=0):
    """Workers that push to servers, and the chief."""
    roles = [RoleSpec("chief", "chief", 0, "chief")]
    roles += [
        RoleSpec(f"server-{i}", "server", i, f"server-{i}", shard=i, part=slice(i, i + 1)) for i in range(servers)
    ]
    roles += [RoleSpec(f"worker-{i}", "worker", i, f"worker-{i}", computes=True, data=i) for i in range(workers)]
    roles += [RoleSpec(f"backup-{i}", "backup", i, f"backup-{i}", backs=1 + i) for i in range(backups)]
    return Layout(tuple(roles), (), ())


def ring(workers=3, parts=False):
    """Workers that hold replicas of the model, or its parts; the chief shares the process of the first."""
    roles = [RoleSpec("chief", "chief", 0, "worker-0")]
    for i in range(workers):
        part = slice(i, i + 1) if parts else slice(0, 1)
        roles.append(RoleSpec(f"worker-{i}", "worker", i, f"worker-{i}", computes=True, shard=i, part=part, data=i))
    return Layout(tuple(roles), (), (), replication="synchronized")


@dataclass
class Process:
    """A Dask worker."""

    address: str
    alive: bool = True
    frozen: bool = False
    closing: bool = False
    held_back: list = field(default_factory=list)  # requests received while it is frozen


@dataclass
class Task:
    """An incarnation of a role, on its process."""

    role: str
    incarnation: int
    process: Process
    up: bool = False
    begun: bool = False
    over: bool = False
    change: int = -1


class World:
    """The world of one run. `local`: the cluster restarts lost processes. `same_address`: at the same address.

    `chance`: numbers in [0, 1).
    """

    def __init__(self, layout, *, on_loss="wait", local=True, outside=(), seed=0, spare=0, same_address=False):
        self.chance = random.Random(seed)
        self.now, self._heap, self._order = 0.0, [], count()
        self.addresses = count()
        self.local, self.place, self.same_address = local, None, same_address
        self.processes = {}
        self.respawning = 0
        self.lose_orders = 0.0  # the probability that a request is lost
        self.fail_starts = 0  # so many of the next starts fail
        self.hang_starts = 0  # so many of the next starts hang with their process
        self.fatal = {}  # {role whose process dies each time soon after the role has begun: seconds until then}
        self.deaths = Counter()  # {role: how often its process died of it}
        self.done, self.trace, self.tasks = [], [], {}
        self.ended = None
        self.dismissed = set()  # (role, incarnation) that are over
        self.lost_at = {}  # role -> when its loss was recorded first, for losses without an answer in the log
        self.absent = 0.0  # seconds for which the client was suspended
        self.longest = 0.0  # from a loss to its answer in the log
        nodes = dict.fromkeys(r.node for r in layout.roles if r.name not in outside)
        address_of = {node: self._new_process().address for node in nodes}
        for _ in range(spare):
            self._new_process()
        where = {r.name: address_of[r.node] for r in layout.roles if r.name not in outside}
        leaves = [r.name for r in layout.roles if r.backs is not None or (r.computes and on_loss == "continue")]
        self.members = Membership(layout, where, Counter(), leaves, outside)
        for role, address in where.items():
            self.members.arrive(role, ("host", 1, f"{role}#0"))
            task = self.tasks[role, 0] = Task(role, 0, self.processes[address], up=True, begun=True)
            self._in(self.chance.random() * REPORT_EVERY_S, self._report, task)
        for task in self.tasks.values():
            task.change = self.members.change
        elastic = bool(outside)
        self.node = {role.name: role.node for role in layout.roles}
        self.workers = [role.name for role in layout.roles if role.kind == "worker"] if elastic else []
        self.group = [role.name for role in layout.roles if role.kind != "chief"] if restarts_as_group(layout) else []
        self.policy = policy.RecoveryPolicy(
            self.members,
            self,
            list(self.processes),
            on_loss=on_loss,
            heartbeat_timeout=TIMEOUT,
            elastic=elastic,
            now=0.0,
        )
        self._in(TIMER_S, self._timer)

    def make_fatal(self, role, after=0.0):
        """From now on the process of `role` dies so many seconds after the role has begun."""
        self.fatal[role] = after
        self._die(self.tasks[role, self.members.incarnation[role]])

    def _die(self, task):
        if not task.over and task.role in self.fatal and task.process.address in self.processes:
            self.deaths[task.role] += 1
            self.kill_process(task.process.address)

    # the cluster, as the policy sees it -----------------------------------------------------------------------------------

    @property
    def recovering(self):
        return self.local and (self.respawning > 0 or any(p.alive for p in self.processes.values()))

    def _new_process(self, address=None):
        address = address or f"tcp://host-{next(self.addresses)}:1"
        process = self.processes[address] = Process(address)
        return process

    def _respawn(self, address=None):
        self.respawning -= 1
        self.join_process(address)

    def join_process(self, address=None):
        """Add a Dask worker to the cluster: at this address, at that of an earlier worker, or at a new one."""
        process = self._new_process(address)
        self.tell(WorkerJoined(process.address))

    def kill_process(self, address):
        """Kill the process without notice."""
        process = self.processes.get(address)
        if process is None or not process.alive:
            return
        process.alive = False
        process.held_back.clear()
        for task in self._on(process):
            task.over = True
        self._in(self._delay(), self._gone, process, process.closing)

    def _gone(self, process, expected):
        self.tell(WorkerLeft(process.address, expected, "signal 11, SIGSEGV"))
        del self.processes[process.address]
        if self.local:
            self.respawning += 1
            address = process.address if self.same_address and not process.frozen else None
            self._in(0.3 + self._delay(), self._respawn, address)

    def freeze(self, address, seconds):
        process = self.processes.get(address)
        if process is not None and process.alive and not process.frozen:
            process.frozen = True
            self._in(seconds, self._thaw, process)

    def _thaw(self, process):
        process.frozen = False
        waiting, process.held_back = process.held_back, []
        for what, arguments in waiting:
            self._in(self._delay(), what, *arguments)

    def retire(self, address):
        """Retire the Dask worker gracefully: its roles are shut down."""
        process = self.processes.get(address)
        if process is None or not process.alive or process.closing:
            return
        process.closing = True
        for task in self._on(process):
            self._in(self._delay(), self._take_leave, task, True)
        self._in(1.0, self.kill_process, address)

    def _on(self, process):
        return [task for task in self.tasks.values() if task.process is process and not task.over]

    # time ---------------------------------------------------------------------------------------------------------------

    def _in(self, seconds, what, *arguments):
        heapq.heappush(self._heap, (self.now + seconds, next(self._order), what, arguments))

    def _delay(self):
        return 0.001 + 0.2 * self.chance.random() ** 3

    def run(self, seconds):
        """Advance until so much time has passed, or the run has ended."""
        until = self.now + seconds
        while self._heap and self._heap[0][0] <= until and not self.ended:
            due, _, what, arguments = heapq.heappop(self._heap)
            self.now = max(self.now, due)  # events due while the client was suspended are late
            process = arguments[0].process if arguments and isinstance(arguments[0], Task) else None
            if process is not None and process.frozen:
                process.held_back.append((what, arguments))
                continue
            what(*arguments)
        self.now = max(self.now, until)

    def settle(self, limit=400.0):
        """Advance without further faults until the state no longer changes; fails if that takes too long."""
        until = self.now + limit
        while not self.ended and not self.quiescent():
            assert self.now < until, self.describe()
            self.run(1.0)
        self.run(TIMEOUT + 3.0)
        assert self.ended or self.quiescent(), self.describe()

    def _timer(self):
        self.tell(policy.Timer())
        self._in(TIMER_S, self._timer)

    # roles ----------------------------------------------------------------------------------------------------------------

    def _report(self, task):
        if task.over:
            return
        if task.begun:
            self.tell(Report(task.role, task.incarnation, {}, task.change, [], None, 0, 0, 0, False, {}))
        else:
            self.tell(Heartbeat(task.role, task.incarnation))
        self._in(REPORT_EVERY_S, self._report, task)

    def _start_task(self, task):
        process = task.process
        if task.over or not process.alive:
            return
        if self.hang_starts:
            self.hang_starts -= 1
            process.frozen = True  # it sends no heartbeats any more
            process.held_back.append((self._start_task, (task,)))
            self._in(30.0, self._thaw, process)
            return
        if self.fail_starts:
            self.fail_starts -= 1
            task.over = True
            self.tell(TaskFailed(task.role, task.incarnation, "error", "ValueError: no"))
            return
        task.up = True
        self.tell(RoleUp(task.role, task.incarnation, ["host", 1, f"{task.role}#{task.incarnation}"], [], [], None, 0))
        self._in(REPORT_EVERY_S, self._report, task)

    def _begin(self, task, order):
        if not task.over and task.up:
            first, task.begun = not task.begun, True
            self._apply_membership(task, order)
            if first and task.role in self.fatal:
                self._in(self.fatal[task.role], self._die, task)

    def _apply_membership(self, task, order):
        if not task.over and task.begun and order["change"] > task.change:
            task.change = order["change"]
            if order["incarnations"][task.role] > task.incarnation:
                task.over = True  # it has been fenced

    def _take_leave(self, task, retired):
        if not task.over:
            task.over = True
            if task.begun:
                self.tell(Departed(task.role, task.incarnation, {}, retired))
            self._in(self._delay(), self._task_finished, task)

    def _hand_over(self, task):
        if not task.over and task.begun:
            task.over = True
            self._in(self._delay(), self._task_finished, task)

    def finish_task(self, role):
        """The task of a role returns without notice. Its process lives."""
        task = self.tasks[role, self.members.incarnation[role]]
        task.over = True
        self._task_finished(task)

    def _task_finished(self, task):
        if task.process.alive:
            self.tell(TaskFinished(task.role, task.incarnation))

    def _handed_over(self, task):
        if task.process.alive:
            report = {"by": task.role} if task.begun else {"role": task.role, "never_began": True}
            self.tell(StateCollected(task.role, task.incarnation, report))

    def _leave_requested(self, task):
        task.over = True

    def cancel(self, roles):
        """Dask cancels the tasks of these roles."""
        for role in roles:
            task = self.tasks.get((role, self.members.incarnation[role]))
            if task is not None and not task.over:
                self._in(3.0, self._leave_requested, task)
                self.tell(TaskFailed(task.role, task.incarnation, "cancelled"))

    # requests ---------------------------------------------------------------------------------------------------------------

    def kill(self, role, restart=True):
        task = self.tasks.get((role, self.members.incarnation[role]))
        there = self.members.state[role] in PRESENT and task is not None and task.up and task.process.alive
        self.tell(policy.Killed(role, restart, task.process.address if there else None))
        if there:
            self.kill_process(task.process.address)

    def request(self, command):
        role = command.role
        if isinstance(command, Restart) and self.members.state[role] in PRESENT and not self.policy.stays_away(role):
            return  # refused before it reaches the policy
        self.tell(command)

    def join(self, role):
        self.request(Join(role))

    def leave(self, role):
        self.request(Leave(role))

    def restart(self, role):
        self.request(Restart(role))

    # actions of the policy ------------------------------------------------------------------------------------------------

    def tell(self, event):
        """Pass one event to the policy, and perform its actions."""
        if self.ended:
            return
        for action in self.policy.handle(event, self.now):
            self.done.append(action)
            self._check(action)
            getattr(self, f"_do_{type(action).__name__.lower()}")(action)
        self._check_members()

    def _check(self, action):
        """The rules that hold for every action."""
        key = (getattr(action, "role", None), getattr(action, "incarnation", None))
        if isinstance(action, policy.Fence):
            assert key in self.members.fenced
        elif isinstance(action, policy.RoleAction):
            assert key not in self.dismissed, (action, "acts on an instance that is over, or fenced")
        if isinstance(action, policy.Dismiss):
            self.dismissed.add(key)
        assert not self.ended, (action, "follows the end")

    def _check_members(self):
        """The rules that hold between any two events."""
        members = self.members
        nodes = {}
        for role, address in members.where.items():
            nodes.setdefault(address, set()).add(self.node[role])
        assert all(len(there) == 1 for there in nodes.values()), ("two nodes on one Dask worker", nodes)
        assert self.dismissed >= members.fenced.keys()
        assert {role for role, state in members.state.items() if state in PRESENT} == members.where.keys()
        assert {role for role, state in members.state.items() if state is State.RUNNING} == members.contact.keys()
        assert +members.usage == Counter(members.where.values())
        for role, incarnation in members.fenced:
            assert members.incarnation[role] > incarnation
        if not self.ended:
            for since in self.lost_at.values():
                self.longest = max(self.longest, self.now - since)

    def _do_submit(self, action):
        self._submit(action.role, action.incarnation, action.worker)

    def _submit(self, role, incarnation, worker):
        key = (role, incarnation)
        assert key not in self.tasks, (key, "is started twice")
        older = [number for name, number in self.tasks if name == role]
        assert all(number < incarnation for number in older)
        assert self.members.where[role] == worker
        process = self.processes.get(worker) or Process(worker, alive=False)
        task = self.tasks[key] = Task(role, incarnation, process, over=not process.alive)
        self._in(0.05 + self._delay(), self._start_task, task)

    def _do_startgroup(self, action):
        self.trace.append((self.now, GroupRestarted, ()))
        for role, worker in action.workers.items():
            self._submit(role, action.incarnation, worker)
        for role, report in action.reports.items():
            assert report == {"by": role}

    def _do_admit(self, action):
        assert self.tasks[action.role, action.incarnation].up

    def _do_dismiss(self, action):
        assert not self.members.is_present(action.role, action.incarnation)
        task = self.tasks[action.role, action.incarnation]
        if not task.up:
            self._in(
                self._delay(), self._leave_requested, task
            )  # Dask removes it; a running one leaves when it is fenced

    def _arrives(self):
        return self.chance.random() >= self.lose_orders

    def _do_begin(self, action):
        task = self.tasks[action.role, action.incarnation]
        assert task.process.address == action.worker
        if self._arrives():
            self._in(self._delay(), self._begin, task, action.order)

    def _do_order(self, action):
        task = self.tasks[action.role, action.incarnation]
        assert task.process.address == action.worker
        if not self._arrives():
            return
        what = action.command["do"]
        if what == "depart":
            self._in(self._delay(), self._take_leave, task, False)
        elif what == "group_restart":
            self._in(self._delay(), self._hand_over, task)
        else:
            self._in(self._delay(), self._apply_membership, task, action.command)

    def _do_fence(self, action):
        task = self.tasks[action.role, action.incarnation]
        assert task.process.address == action.worker
        if self._arrives():
            self._in(self._delay(), self._leave_requested, task)

    def _do_fetch(self, action):
        self._in(self._delay(), self._handed_over, self.tasks[action.role, action.incarnation])

    def _do_announce(self, action):
        for address in action.workers:
            for task in self._on(self.processes[address]) if address in self.processes else ():
                if self._arrives():
                    self._in(self._delay(), self._apply_membership, task, action.order)
        if action.then and self._arrives():
            self._in(self._delay(), self.tell, policy.Announced(action.then))

    def _do_account(self, action):
        assert not action.report.get("never_began"), "it has nothing to account for"

    def _do_record(self, action):
        self._record(action.kind, action.fields)

    def _do_recordrestart(self, action):
        self._record(RoleRestarted, (action.up.role, action.up.incarnation))

    def _record(self, kind, fields):
        self.trace.append((self.now, kind, fields))
        role = fields[1] if kind is RunWaits else fields[0]
        if kind is RoleLost:
            self.lost_at.setdefault(role, self.now)
        if kind in (RoleRestarted, RoleJoined, RoleLeft, RunWaits) or role in self.members.outside:
            self.lost_at.pop(role, None)

    def _do_scaleup(self, action):
        if self.local:
            frozen = sum(p.frozen for p in self.processes.values())
            missing = action.nodes - len(self.processes) - self.respawning
            assert action.nodes <= 4 * len(self.members.state) + frozen
            for _ in range(missing):
                self.respawning += 1
                self._in(0.3 + self._delay(), self._respawn)

    def _do_requestheartbeats(self, action):
        seen = {a: int(self.now * 2) for a, p in self.processes.items() if p.alive and not p.frozen}
        self._in(self._delay(), self.tell, WorkerHeartbeats(seen))

    def _do_checkreturned(self, action):
        pass

    def _do_failrun(self, action):
        self.ended = action
        self.lost_at.clear()

    # state ----------------------------------------------------------------------------------------------------------------

    def quiescent(self):
        """Whether every participating role has begun and has the full membership, and the rest is absent or outside
        by request.
        """
        members = self.members
        if self.policy.changing or self.respawning:
            return False
        if any(process.frozen or process.closing for process in self.processes.values()):
            return False
        for role, state in members.state.items():
            if state is State.RUNNING:
                task = self.tasks[role, members.incarnation[role]]
                if task.over or not task.begun or task.change != members.change:
                    return False
            elif state not in (State.STOPPED, State.OUTSIDE) and not self._waits_for_group(role, state):
                return False
        return all(task.over or self.members.is_present(*key) for key, task in self.tasks.items())

    def _waits_for_group(self, role, state):
        """A member that was lost waits for one that is to stay away."""
        away = self.members.in_state(State.STOPPED)
        return state in (State.LOST, State.ENDED) and any(name in self.group for name in away)

    def answered_in_time(self):
        """Assert that every loss was answered, in the log or by the end of the run, within the guaranteed time."""
        return self.longest <= REPORT_S + self.absent

    def be_absent(self, seconds):
        """The client is suspended; the other components continue."""
        self.now += seconds
        self.absent += seconds

    def describe(self):
        lines = [f"{at:8.3f} {kind.__name__} {fields}" for at, kind, fields in self.trace]
        lines += [f"{role}: {state}#{self.members.incarnation[role]}" for role, state in self.members.state.items()]
        lines += [f"phase {self.policy.phase!r}", *(f"{task}" for task in self.tasks.values() if not task.over)]
        lines += [str(process).replace("Process", "") for process in self.processes.values()]
        return "\n".join(lines)
