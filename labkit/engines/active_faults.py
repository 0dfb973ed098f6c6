"""What the faults of a run amount to at present. Both engines use these objects; they have no I/O and no clock.

A command without an end is *manual*: for each role or link that it concerns, it replaces the last manual command. A *temporary*
fault acts from its start to its `End`, which restores what was there before.

- *Amounts* (slowdowns, bandwidths, delays, chances of loss) are composed of what is normal for the cluster, of the last manual
  command, and of all temporary faults that act: slowdowns are multiplied, the lowest bandwidth counts, delays are added, losses
  are independent.
- *Conditions* (frozen, cut) hold as long as there is a reason for them. `Thaw` and `Reconnect` remove all reasons at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import reduce
from operator import add, mul, or_
from typing import Generic, TypeVar

from .commands import Delay, Drop, End, Lasting, Limit, Slow

Amount = Slow | Limit | Delay | Drop
Reason = Lasting | None  # a temporary fault; None: a manual command
Process = TypeVar("Process", bound=Hashable)


class _Amounts:
    """The amounts of one kind of fault. `compose(a, b)`: the amount of two of them together; `normal`: {target: amount}."""

    def __init__(self, compose: Callable[[float, float], float], none: float, normal: Mapping[str, float]):
        self._compose, self._none = compose, none
        self._normal: dict[Hashable, float] = dict(normal.items())
        self._manual: dict[Hashable, tuple[int, float]] = {}  # {target: (number of the command, amount)}
        # {target: (amount, end) of each fault}
        self._temporary: dict[Hashable, Counter[tuple[float, float | None]]] = {}
        self._commands = 0

    def begin(self, target: Hashable, amount: float, until: float | None) -> None:
        if until is None:
            self._commands += 1
            self._manual[target] = self._commands, amount
        else:
            self._temporary.setdefault(target, Counter())[amount, until] += 1

    def end(self, target: Hashable, amount: float, until: float | None) -> None:
        if target in self._temporary:
            self._temporary[target] -= Counter([(amount, until)])  # no effect if it has not begun

    def total(self, target: Hashable, *wider: Hashable) -> float:
        """Return the amount at a target that is part of each of the `wider` ones. A fault of several of these counts once."""
        manual = [self._manual[one] for one in (target, *wider) if one in self._manual]
        acting = [self._temporary[one] for one in wider if one in self._temporary]
        # a temporary slowdown comes on top of that of the cluster, which is left when it ends
        amounts = [self._normal[target]] if target in self._normal else []
        amounts += [max(manual)[1]] if manual else []
        for faults in (self._temporary.get(target, Counter()), reduce(or_, acting, Counter())):
            amounts += [amount for amount, _ in faults.elements()]
        return reduce(self._compose, amounts, self._none)


class ActiveFaults:
    """The slowdowns and bandwidths of roles, and the delays and losses of links. `slow`: {role: factor} of the cluster."""

    def __init__(self, slow: Mapping[str, float] | None = None):
        self._slow, self._bandwidths = _Amounts(mul, 1.0, slow or {}), _Amounts(min, math.inf, {})
        self._delays, self._losses = _Amounts(add, 0.0, {}), _Amounts(lambda p, q: p + q - p * q, 0.0, {})

    def apply(self, command: Amount | End) -> float:
        """Apply a primitive command. Returns the amount that now acts on its role or links."""
        fault: Lasting = command.fault if isinstance(command, End) else command
        targets: tuple[Hashable, ...]
        match fault:
            case Slow(role=role, factor=amount):
                amounts, targets = self._slow, (role,)
            case Limit(bandwidth=bandwidth):
                amounts, targets = self._bandwidths, (fault.role,)
                amount = math.inf if bandwidth is None else bandwidth
            case Delay(seconds=amount):
                amounts, targets = self._delays, _targets(fault.role, fault.peer)
            case Drop(chance=amount):
                amounts, targets = self._losses, _targets(fault.role, fault.peer)
            case _:
                raise TypeError(fault)
        change = amounts.end if isinstance(command, End) else amounts.begin
        change(targets[0], float(amount), fault.until)
        return amounts.total(*targets)

    def slowdown(self, role: str) -> float:
        """Return how many times slower than its distribution `role` computes."""
        return self._slow.total(role)

    def bandwidth(self, roles: Iterable[str]) -> float:
        """Return the bandwidth of the node of these roles, in bytes/s; infinity if it is not limited."""
        return min(map(self._bandwidths.total, roles))

    def delay(self, role: str, peer: str) -> float:
        """Return the delay of messages between two roles, in seconds."""
        return self._delays.total(*_targets(role, peer))

    def loss(self, role: str, peer: str) -> float:
        """Return the probability that a transmission between two roles is lost."""
        return self._losses.total(*_targets(role, peer))


def _targets(role: str, peer: str | None) -> tuple[Hashable, ...]:
    """Return the link between two roles, and all links of each of them; if `peer` is None, all links of `role`."""
    return ((role, None),) if peer is None else (frozenset((role, peer)), (role, None), (peer, None))


class Conditions(Generic[Process]):
    """A condition of roles or links, and its reasons: a manual command, and the temporary faults that act.

    `process` identifies the process of a role: a lost one may be frozen or cut off while the role has another one. It is None for
    links.
    """

    def __init__(self) -> None:
        self._reasons: dict[Hashable, dict[Process, set[Reason]]] = {}

    def begin(self, target: Hashable, reason: Reason, process: Process) -> None:
        self._reasons.setdefault(target, {}).setdefault(process, set()).add(reason)

    def end(self, target: Hashable, reason: Reason) -> list[Process]:
        """Remove a temporary fault, or, if `reason` is None, all reasons. Returns the processes for which none is left."""
        held = self._reasons.get(target, {})
        for reasons in held.values():
            reasons.intersection_update(() if reason is None else reasons - {reason})
        freed = [process for process, reasons in held.items() if not reasons]
        for process in freed:
            del held[process]
        return freed

    def held(self) -> Iterator[tuple[Hashable, Process]]:
        """Yield (target, process)."""
        return ((target, process) for target, processes in self._reasons.items() for process in processes)

    def discard(self, target: Hashable, process: Process) -> None:
        """Forget a process, because it has ended."""
        self._reasons.get(target, {}).pop(process, None)

    def holds(self, target: Hashable, process: Process) -> bool:
        return process in self._reasons.get(target, ())


def reason_of(command: Lasting) -> Reason:
    """Return the reason that a primitive command is, which its `End` contains."""
    return None if command.until is None else command.changed(at=0.0)
