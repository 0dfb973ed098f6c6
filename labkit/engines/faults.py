"""Fault schedules: faults that consist of many commands, and the expansion of all faults into the commands of a run.

    lk.Partition("worker-1", during=(2, 4))                 partition:worker-1:*@2-4
    lk.Preempt(0.01)                                        preempt:worker:0.01

The primitive faults (`Kill`, `Freeze`, `Slow`, `Limit`, `Cut`, `Delay`, `Drop`) are commands: see `commands.py`. A fault is a
value that expands into a finite list of primitive commands, each with its time. The expansion depends only on the fault and the
plan of the run, so a run with faults can be saved, repeated and compared like any other run. Times are engine seconds since the
start of the run, or since the injection if the fault is injected into a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any

from ..errors import BadInput, shown
from ..options import option
from ..random_streams import PREEMPTION, role_stream
from ..roles.layout import RoleSpec
from .commands import (
    COMMANDS,
    EVERY,
    Command,
    Cut,
    Delay,
    Drop,
    During,
    Executed,
    Freeze,
    Kill,
    Lasting,
    Limit,
    OnLinks,
    Slow,
    Who,
    at_option,
    check_who,
    named,
    parse_command,
    until_option,
)
from .plan import Plan

MAX_PREEMPTIONS = 10_000  # preemptions of one fault
LATEST_S = 1e9  # engine seconds


@dataclass(frozen=True)
class Partition(OnLinks):
    """Fault: a network partition, which cuts all links between two groups of roles.

    Messages inside a group are delivered. A single role that is partitioned from "*" is also cut off from the client.

    Parameters
    ----------
    a : str or tuple of str
        One end of the links: the name of a role, a kind of role ("worker": all workers), a tuple of these, or "*", every role
        that is not at the other end.
    b : str or tuple of str, default: '*'
        The other end, in the same way.
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    See Also
    --------
    Run.cut : Cut one link now.

    Examples
    --------
    >>> split = lk.Partition(("worker-0", "worker-1"), "server", during=(1, 2))
    >>> cluster, budget = lk.SimulatedCluster(workers=4), lk.Budget(seconds=3)
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, budget, faults=split)
    >>> [run.advance(1.0).summary()["updates"] for _ in range(3)]
    [398, 600, 1000]
    """

    a: Who
    b: Who = EVERY
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "partition", ("a", "b"), "partition:worker-1:*@2-4"

    def _begin(self, plan: Plan) -> list[Cut]:
        return [Cut(role, None if peer == EVERY else peer, self.at, self.until) for role, peer in self._ends(plan)]

    def _ends(self, plan: Plan) -> list[tuple[str, str]]:
        group = named(self.b if self.a == EVERY else self.a, plan)
        if EVERY not in (self.a, self.b) or len(group) == 1:
            return super()._ends(plan)
        others = [role for role in plan.role_ids if role not in group]
        if not others:
            raise BadInput(f"{self!r}: there are no roles outside of that group.")
        return [(role, other) for role in group for other in others]


@dataclass(frozen=True)
class Preempt(Lasting):
    """Fault: kills roles at random times, and restarts them, like preemptible machines.

    The intervals between two losses of a role are exponential. The times depend only on the seed of the run, the role and the
    text of this fault. There are no more preemptions after `until`, after the budget's seconds, or after 10,000 preemptions,
    whichever comes first.

    Parameters
    ----------
    roles : str or tuple of str, default: 'worker'
        The name of a role, a kind of role ("worker": all workers), or a tuple of these.
    during : tuple of float, optional
        (start, stop): the same as `at=start, until=stop`.

    Examples
    --------
    >>> cluster = lk.SimulatedCluster(workers=4, restart_after=0.5)
    >>> fault = lk.Preempt(0.2)
    >>> run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(seconds=5), faults=fault).wait()
    >>> sum(" was killed" in line for line in run.log)
    7
    """

    rate: float = option(0.01, low=1e-9, high=1e3, help="the mean number of losses of a role per second")
    roles: Who = "worker"
    at: float = at_option()
    until: float | None = until_option()
    during: During = field(default=None, repr=False)

    word, parts, example = "preempt", ("roles", "rate"), "preempt:worker:0.01"

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles", check_who("Preempt", "roles", self.roles))
        super().__post_init__()

    def commands(self, plan: Plan) -> list[Command]:
        roles = [plan.layout.roles[plan.role_ids[name]] for name in named(self.roles, plan)]
        return list(islice(merge(*(self._of(role, plan) for role in roles), key=attrgetter("at")), MAX_PREEMPTIONS))

    def _of(self, role: RoleSpec, plan: Plan) -> Iterator[Command]:
        draws, at = role_stream(plan.seed, role.kind, role.index, PREEMPTION, more=self.text().encode()), self.at
        end = min(limit for limit in (self.until, plan.budget.seconds, LATEST_S) if limit is not None)
        while True:
            at += float(draws.exponential(1.0 / self.rate))
            if at >= end:
                return
            yield Kill(role.name, at)


Faults = Command | str | Iterable[Command | Executed | str]  # one fault or several, as values or texts

FAULTS: dict[str, type[Command]] = {
    kind.word: kind for kind in (Kill, Freeze, Slow, Limit, Delay, Drop, Partition, Preempt)
}
KINDS: dict[str, type[Command]] = COMMANDS | FAULTS  # all commands and faults that a run can be started with


def parse_fault(text: str) -> Command:
    """Convert a value of `--fault`: `slow:worker-2:5@2-4` is `lk.Slow("worker-2", 5, at=2, until=4)`.

    The text is `word:part:part`, followed by `@start` or `@start-stop` (seconds) unless the fault is for the whole run.
    """
    return parse_command(text, FAULTS, "fault")


def schedule_faults(faults: Faults, plan: Plan, since: float = 0.0) -> list[Command | Executed]:
    """Return the primitive commands of one or several faults (values or texts), sorted by time; times are relative to `since`
    (engine seconds). `BadInput` for anything that is not a fault or does not fit the run."""
    commands: list[Command | Executed] = []
    for fault in _as_list(faults):
        fault = parse_fault(fault) if isinstance(fault, str) else fault
        if not isinstance(fault, Command | Executed):
            raise BadInput(f"faults: {shown(fault)} is not a fault; give for example lk.Slow('worker-0', 5, at=2.0).")
        commands.extend(fault.commands(plan))
    if since:
        plain = (entry.command if isinstance(entry, Executed) else entry for entry in commands)
        commands = [command.later(since) for command in plain]
    return sorted(commands, key=attrgetter("at"))


def _as_list(faults: Any) -> list[Any]:
    if isinstance(faults, str):
        return [faults]
    try:
        return list(faults)
    except TypeError:  # a single fault; the caller refuses anything else
        return [faults]
