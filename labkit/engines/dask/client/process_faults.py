"""Fault injection on processes: kills, freezes and thaws them with signals.

Nothing is simulated: the run detects the consequences of a command like those of a real fault. Signals are sent to
processes that labkit started, and to other processes only if the cluster allows it.

No process stays frozen after the client has ended, even by SIGKILL: processes of labkit's own are ended by the kernel
(`processes.end_with_parent`), others on this machine are thawed by a `Guard`, and those on another machine by their nanny.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....errors import BadInput, shown
from ....trace.events import EngineWarning, RoleFrozen, RoleKilled, RoleThawed
from ...active_faults import Conditions, reason_of
from ...commands import Command, End, Freeze, Kill, Restart, Thaw
from ...lifecycle import PRESENT
from ..processes import (
    ENDS_WITH_PARENT,
    LEASE_S,
    Guard,
    boot_id,
    end_process,
    freeze_on_lease,
    freeze_process,
    thaw_on_lease,
    thaw_process,
    this_process,
)
from ..timeouts import KILL_S
from .membership import Membership
from .recovery_events import Done, Killed
from .run_record import RunRecord
from .supervisor import Supervisor

if TYPE_CHECKING:
    from .recovery import Recovery

NANNY_S = 5.0  # timeout for a nanny on another machine to forward a signal, seconds
SIGNALS: frozenset[type[Command]] = frozenset((Kill, Restart, Freeze, Thaw))  # commands that concern processes

Process = tuple[Any, ...]


def check_allowed(command: Command, may_kill: bool) -> None:
    """Raise `BadInput` if the command signals processes, and the cluster does not allow that (`DaskCluster.may_kill`)."""
    if type(command) in SIGNALS and not may_kill:
        role = getattr(command, "role", "")
        raise BadInput(
            f"{command.word}({shown(role)}): labkit did not start these processes, and others may need them; "
            "lk.DaskCluster(..., may_kill=True) allows it."
        )


class ProcessFaults:
    """Process faults of one run. Used by the run's thread only; never blocks.

    `local`: whether the processes are those of a local cluster.
    """

    def __init__(self, local: bool, supervisor: Supervisor, record: RunRecord, recovery: Recovery):
        self._local, self._supervisor, self._record, self._recovery = local, supervisor, record, recovery
        self._members: Membership = supervisor.members
        self._frozen: Conditions[tuple[str, Process]] = Conditions()  # of (Dask worker, process) of each role
        self._guards: dict[Process, Guard] = {}
        self._renew_at = 0.0  # when leases are to be renewed; 0: there are none

    def kill(self, command: Kill, done: Done) -> None:
        """Kill the process of a role with SIGKILL. Raises `BadInput` if that is this process.

        A process on another machine receives a request to kill itself. The request is retransmitted until the role
        instance is lost; `done` is called when the first request has been answered, or has timed out.
        """
        role, restart = command.role, command.restart
        address = self._members.where.get(role)
        process = None if address is None else self._supervisor.processes.get(address)
        self._check_not_own_process(role, process)
        self._record.executed(command)
        self._record.event(RoleKilled, role, restart, process is None)
        if address is None or process is None:  # the role is lost, or the process of its next instance is not known yet
            self._recovery.handle(Killed(role, restart, None))
            return done(None)
        self._recovery.handle(Killed(role, restart, address))
        if self._local or process[0] == boot_id():
            end_process(process)
            return done(None)

        incarnation, first = self._members.incarnation[role], True

        def order() -> None:
            self._supervisor.call(address, end_process, (process,), KILL_S, answered)

        def answered(answer: Any) -> None:
            nonlocal first
            unacknowledged = isinstance(answer, TimeoutError)  # a connection error is the expected result of a kill
            if first:
                first = False
                if unacknowledged:
                    self._record.event(EngineWarning, f"{role} did not acknowledge 'kill', which is retransmitted")
                done(None)
            if unacknowledged and self._members.is_present(role, incarnation):
                order()

        order()

    def restart(self, command: Restart) -> None:
        """Restart a role that was killed without restart. Raises `BadInput` if it is present."""
        role = command.role
        if self._members.state[role] in PRESENT and not self._recovery.policy.stays_away(role):
            raise BadInput(
                f"restart({shown(role)}): it is {self._members.state[role]}; only a role that was killed without restart "
                "can be restarted."
            )
        self._record.executed(command)
        self._recovery.handle(command)

    def freeze(self, command: Freeze, done: Done) -> None:
        """Suspend the process of a role with SIGSTOP. Raises `BadInput` if the role is not present or runs in this process."""
        role = command.role
        address = self._members.where.get(role)
        process = None if address is None else self._supervisor.processes.get(address)
        if address is None or process is None:
            why = self._members.why.get(role, "is starting")
            raise BadInput(f"{command.word}({shown(role)}): it is not present ({role} {why}).")
        self._check_not_own_process(role, process)
        self._frozen.begin(role, reason_of(command), (address, process))
        remote = process[0] != boot_id()
        if not remote:
            if not (self._local and ENDS_WITH_PARENT) and process not in self._guards:
                self._guards[process] = Guard(process)
            freeze_process(process)
        self._record.executed(command)
        self._record.event(RoleFrozen, role)  # after the signal, so that the role computes nothing later than the event
        if not remote:
            return done(None)
        self._renew_at = self._renew_at or time.monotonic() + LEASE_S / 4
        self._order_nanny(address, process, freeze_on_lease, done)

    def thaw(self, command: Thaw, done: Done) -> None:
        """Resume the process of a role with SIGCONT. Instances that were declared lost meanwhile are fenced when they report."""
        freed = self._frozen.end(command.role, None)
        if not freed:
            raise BadInput(f"thaw({shown(command.role)}): it is not frozen.")
        self._thaw(command, freed, done)

    def end(self, command: End, done: Done) -> None:
        """End a temporary freeze. The process stays frozen if there is another reason, and does not exist if it was killed."""
        self._thaw(command, self._frozen.end(command.role, command.fault), done)

    def _thaw(self, command: Thaw | End, freed: list[tuple[str, Process]], done: Done) -> None:
        self._record.executed(command)
        if not freed:
            return done(None)
        self._record.event(RoleThawed, command.role)
        *others, last = freed
        for other in others:
            self._resume(*other, lambda error: None)
        self._resume(*last, done)

    def thaw_all(self) -> None:
        """Resume all frozen processes. Called when the run has ended."""
        for _, (address, process) in self._frozen.held():
            self._resume(address, process, lambda error: None)

    def _resume(self, address: str, process: Process, done: Done) -> None:
        if process[0] != boot_id():
            return self._order_nanny(address, process, thaw_on_lease, done)
        thaw_process(process)
        if guard := self._guards.pop(process, None):
            guard.end()
        done(None)

    def renew_leases(self) -> None:
        """Keep the frozen processes on other machines frozen, if it is time to do so."""
        if not self._renew_at or time.monotonic() < self._renew_at:
            return
        elsewhere = [each for _, each in self._frozen.held() if each[1][0] != boot_id()]
        self._renew_at = time.monotonic() + LEASE_S / 4 if elsewhere else 0.0
        for address, process in elsewhere:
            self._supervisor.call(address, freeze_on_lease, (process, True), NANNY_S, lambda answer: None, nanny=True)

    def _check_not_own_process(self, role: str, process: Process | None) -> None:
        """Raise `BadInput` if `process` is this process."""
        if process is not None and process == this_process():
            raise BadInput(f"{role} runs in this process, which would be killed; start workers in processes.")

    def _order_nanny(self, address: str, process: Process, act: Callable[[Process], None], done: Done) -> None:
        """Call `act` in the nanny of a process on another machine, which runs even while the process is suspended."""

        def answered(answer: Any) -> None:
            if not isinstance(answer, Exception):
                return done(None)
            done(
                BadInput(
                    f"The process at {address} is on another machine, and its nanny does not pass the signal on ({answer}); "
                    "start workers with `dask worker --nanny`."
                )
            )

        self._supervisor.call(address, act, (process,), NANNY_S, answered, nanny=True)
