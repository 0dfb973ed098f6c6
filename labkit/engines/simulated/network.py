"""The network of virtual time, and faults of its links.

The network is cut-through and full duplex. A message starts as soon as the egress of the sender's node is free and the ingress
of the receiver's node is free `latency` later. It occupies both for bytes / bandwidth seconds. Messages between roles on one
node take no time. All times are whole nanoseconds.

Link faults change only the time of arrival: a link stays first-in first-out, and every message is delivered exactly once. Two
roles on one node have no link.

- Limited: a node sends and receives with its own bandwidth, as above. The limits of nodes are a second network, which every
  message passes at the same time, and it arrives when the slower of the two has delivered it.
- Delayed: a message arrives `delay` later.
- Lossy: transmissions and acknowledgements are lost with the same probability. An unacknowledged transmission is repeated after
  `RESEND_S`. All losses of a message are drawn when it is sent. A message whose first K transmissions are lost arrives
  K x RESEND_S later. Duplicates are discarded and counted. Retransmissions count as sent bytes, but do not occupy the nodes.
- Cut: messages are held, and are sent when the link is reconnected. A message that is in flight when the link is cut is
  delivered.

Evaluation is not part of the measured system. Its messages are held by a cut, but they are neither delayed nor lost.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...random_streams import NETWORK, role_stream
from ...roles.messages import Message, copied_for_sending
from ...trace.recorder import MESSAGE
from ...trace.schema import EVALUATION, NANO, nanoseconds
from ..active_faults import ActiveFaults, Conditions, Reason
from ..commands import RESEND_S, Delay, Drop, End, Limit
from .event_loop import DELIVER, EARLY, EventLoop

if TYPE_CHECKING:
    from .role import SimulatedRole

RESEND = nanoseconds(RESEND_S)

Link = tuple[str, str]  # sender, receiver


class LinkTimes:
    """Arrival times of messages between `nodes` nodes. `latency` in seconds, `bandwidth` in bytes/s (may be infinite).

    `latency`: in ns. `free`: whether messages take no time.
    """

    __slots__ = ("_egress", "_ingress", "_per_byte", "free", "latency")

    def __init__(self, nodes: int, latency: float, bandwidth: float):
        self.latency = nanoseconds(latency)
        self._per_byte = 0.0 if math.isinf(bandwidth) else NANO / bandwidth
        self.free = not self.latency and not self._per_byte
        self._egress, self._ingress = [0] * nodes, [0] * nodes

    def arrival(self, now: int, source: int, target: int, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes, sent now from node `source`, has arrived at node `target`;
        both nodes are busy until then.
        """
        if source == target or self.free:
            return now
        held = round(size * self._per_byte)
        # Cut-through: the first byte leaves when the sender's link is free and, a latency later, the receiver's is.
        start = max(now, self._egress[source], self._ingress[target] - self.latency)
        self._egress[source] = start + held
        self._ingress[target] = arrival = start + self.latency + held
        return arrival


class LimitedNodes:
    """Arrival times of messages, without latency, between nodes of which some have a limited bandwidth.

    If all nodes have the same bandwidth, these are the times of `LinkTimes`. A message from or to a limited node does not occupy
    the node at the other end if that one is not limited, so it does not block other messages there. A node that is not limited
    any more is free at once; that messages of one link stay in order is up to the caller.
    """

    __slots__ = ("_egress", "_ingress", "_per_byte")

    def __init__(self) -> None:
        self._per_byte: defaultdict[int, float] = defaultdict(float)  # ns, of each node
        self._egress: defaultdict[int, int] = defaultdict(int)  # ns at which each node can send again
        self._ingress: defaultdict[int, int] = defaultdict(int)

    def limit(self, node: int, bandwidth: float) -> None:
        """Change the bandwidth (bytes/s, may be infinite) for messages that are sent from now on."""
        self._per_byte[node] = NANO / bandwidth

    def arrival(self, now: int, source: int, target: int, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes, sent now from node `source`, has arrived at node `target`."""
        sends, receives = round(size * self._per_byte[source]), round(size * self._per_byte[target])
        start = max(now, self._egress[source] if sends else 0, self._ingress[target] if receives else 0)
        if sends:
            self._egress[source] = start + sends
        if receives:
            self._ingress[target] = start + receives
        return start + max(sends, receives)


class SimulatedNetwork:
    """Delivers messages over `links`. `kind_ids`: the number of each kind of message in the trace. `seed`: the seed of the
    random streams of lossy links.
    """

    __slots__ = ("_faults", "_kind_ids", "_links", "_loop", "_seed")

    def __init__(self, loop: EventLoop, links: LinkTimes, kind_ids: Mapping[type, int], seed: int):
        self._loop, self._links, self._kind_ids, self._seed = loop, links, kind_ids, seed
        self._faults: SimulatedLinkFaults | None = None

    def send(self, role: SimulatedRole, to: str, message: Message, category: int) -> int:
        """Send a copy of `message` from `role` to the role `to`; returns the bytes of its payload."""
        have = message.__dict__
        size, incarnation = have.get("timing_only_bytes"), role.recorder.incarnation
        if size is None or incarnation or have.setdefault("sender", role.name) != role.name:
            message, size = copied_for_sending(message, role.name, incarnation)
        loop, target = self._loop, role.by_name[to]
        now = loop.now
        role.touched = target.touched = True
        if self._faults is not None:
            self._faults.send(Mail(role, target, message, size, category, now))
            return size
        links = self._links
        free = links.free or category == EVALUATION or role.node == target.node
        arrival = now if free else links.arrival(now, role.node, target.node, size)
        target.recorder.messages += MESSAGE(role.id, self._kind_ids[message.__class__], category, size, now, arrival)
        if free:
            target.deliver(message)
        else:
            loop.sequence = entry = loop.sequence + 1
            loop.add_event((arrival, EARLY, entry, DELIVER, target, message))
        return size

    # faults -----------------------------------------------------------------------------------------------------------

    @property
    def faults(self) -> SimulatedLinkFaults:
        """The link faults, created on first use. From then on, messages are checked for them."""
        if self._faults is None:
            self._faults = SimulatedLinkFaults(self.arrival, self.latency, self._loop, self._kind_ids, self._seed)
        return self._faults

    def arrival(self, role: SimulatedRole, target: SimulatedRole, size: int) -> int:
        """Return the time (ns) at which a message of `size` bytes, sent now to a role on another node, arrives."""
        return self._links.arrival(self._loop.now, role.node, target.node, size)

    def latency(self, role: SimulatedRole, target: SimulatedRole) -> int:
        """Return the time (ns) that a message without bytes takes between two roles on different nodes."""
        return self._links.latency

    def held(self) -> list[tuple[SimulatedRole, Message]]:
        """Return (receiver, message) of all messages held by cut links, in order of sending."""
        return [] if self._faults is None else self._faults.held()

    def is_cut(self, role: SimulatedRole, target: SimulatedRole) -> bool:
        return self._faults is not None and self._faults.is_cut(role, target)

    def held_links(self) -> list[Link]:
        return list(dict.fromkeys((message.sender, target.name) for target, message in self.held()))

    def isolated(self) -> Collection[str]:
        """Roles that are cut off from all other nodes."""
        return () if self._faults is None else self._faults.isolated

    def reconnect(self, name: str) -> None:
        """Reconnect role `name`, or its next instance, to the other nodes. Held messages are sent by `send_held`."""
        if self._faults is not None:
            self._faults.isolated.discard(name)

    def send_held(self) -> None:
        if self._faults is not None:
            self._faults.send_held()

    def discard_messages(self, names: Collection[str], sent: bool = True) -> None:
        """Discard messages, in flight or held, to these roles and, if `sent`, from them."""
        self._loop.discard_messages(names, sent)
        if self._faults is not None:
            self._faults.discard_messages(names, sent)


class Mail(NamedTuple):
    role: SimulatedRole
    target: SimulatedRole
    message: Message
    size: int
    category: int
    sent: int  # ns


def transmissions(rng: np.random.Generator, chance: float) -> tuple[int, int, int]:
    """Draw the transmissions of one message on a lossy link. Returns (number of transmissions, number of transmissions lost
    before the first arrival, number of further arrivals)."""
    sent = lost = arrived = 0
    while True:
        sent += 1
        if rng.random() < chance:
            lost += not arrived
            continue
        arrived += 1
        if rng.random() >= chance:  # the acknowledgement arrives
            return sent, lost, arrived - 1


class SimulatedLinkFaults:
    """The faults of the links of a run. `isolated`: roles that are cut off from every other node. `arrival`, `latency`: methods
    of the network.
    """

    def __init__(
        self, arrival: Callable[[SimulatedRole, SimulatedRole, int], int],
        latency: Callable[[SimulatedRole, SimulatedRole], int], loop: EventLoop, kind_ids: Mapping[type, int], seed: int,
    ):  # fmt: skip
        self._arrival, self._latency, self._loop, self._kind_ids, self._seed = arrival, latency, loop, kind_ids, seed
        self._limited: LimitedNodes | None = None
        self._active = ActiveFaults()
        self._amounts: dict[Link, tuple[int, float]] = {}  # {link: (delay in ns, chance of loss)}, as far as known
        self._streams: dict[Link, np.random.Generator] = {}
        self._last: dict[Link, int] = {}  # when the last message of a link arrives
        self._cut: Conditions[None] = Conditions()
        self.isolated: set[str] = set()
        self._held: list[Mail] = []  # in order of sending

    # faults -----------------------------------------------------------------------------------------------------------

    def change(self, command: Delay | Drop | End) -> float:
        """Change delays or losses from now on. Returns the amount that now acts on the links of the command."""
        # the amounts of all links, because a fault may be one of all links of a role
        self._amounts.clear()
        return self._active.apply(command)

    def limit(self, command: Limit | End, node: int, roles: Iterable[str]) -> float:
        """Change the bandwidth of the role of a command. Returns the bandwidth that it has now. `roles`: those on its `node`."""
        bandwidth = self._active.apply(command)
        self._limited = self._limited or LimitedNodes()
        self._limited.limit(node, self._active.bandwidth(roles))
        return bandwidth

    def cut(self, role: str, peer: str, reason: Reason) -> None:
        self._cut.begin(frozenset((role, peer)), reason, None)

    def isolate(self, names: Iterable[str]) -> None:
        """Cut the links between these roles and all roles on other nodes."""
        self.isolated.update(names)

    def reconnect(self, role: str, peers: Iterable[str], reason: Reason) -> bool:
        """Undo `cut` between `role` and `peers`, for a temporary fault or, if `reason` is None, for all reasons. Returns whether
        all these links are connected. Held messages are sent by `send_held`."""
        links = [frozenset((role, peer)) for peer in peers]
        for link in links:
            self._cut.end(link, reason)
        return not any(self._cut.holds(link, None) for link in links)

    def send_held(self) -> None:
        free = [mail for mail in self._held if not self.is_cut(mail.role, mail.target)]
        self._held = [mail for mail in self._held if self.is_cut(mail.role, mail.target)]
        for mail in free:
            self._send(mail)

    def is_cut(self, role: SimulatedRole, target: SimulatedRole) -> bool:
        if role.node == target.node:
            return False
        link = frozenset((role.name, target.name))
        return not self.isolated.isdisjoint(link) or self._cut.holds(link, None)

    # messages ---------------------------------------------------------------------------------------------------------

    def send(self, mail: Mail) -> None:
        """Send a message, or hold it if its link is cut."""
        if self.is_cut(mail.role, mail.target):
            self._held.append(mail)
        else:
            self._send(mail)

    def held(self) -> list[tuple[SimulatedRole, Message]]:
        return [(mail.target, mail.message) for mail in self._held]

    def discard_messages(self, names: Collection[str], sent: bool) -> None:
        self._held = [m for m in self._held if m.target.name not in names and not (sent and m.role.name in names)]

    def _send(self, mail: Mail) -> None:
        role, target, message, size, category, began = mail
        now, link = self._loop.now, (role.name, target.name)
        arrival, sent = now, 1
        if role.node != target.node and category != EVALUATION:
            delay, chance = self._amounts.get(link) or self._look_up(link)
            arrival = self._arrival(role, target, size)
            if self._limited is not None:
                limited = self._limited.arrival(now, role.node, target.node, size)
                arrival = max(arrival, limited + self._latency(role, target))
            arrival += delay
            if chance:
                sent, lost, again = transmissions(self._stream(link, role, target), chance)
                arrival += lost * RESEND
                role.counters.bytes[category] += (sent - 1) * size
                target.counters.duplicates += again
        last = self._last.get(link, -1)
        # a link keeps the order of its messages, also if an earlier one is delayed or retransmitted
        arrival = max(arrival, last)
        role.touched = target.touched = True
        kind = self._kind_ids[message.__class__]
        target.recorder.messages += MESSAGE(role.id, kind, category, sent * size, began, arrival)
        if last < now == arrival:
            target.deliver(message)
        else:
            self._last[link] = arrival
            self._loop.schedule(arrival, EARLY, DELIVER, target, message)

    def _look_up(self, link: Link) -> tuple[int, float]:
        self._amounts[link] = found = nanoseconds(self._active.delay(*link)), self._active.loss(*link)
        return found

    def _stream(self, link: Link, role: SimulatedRole, target: SimulatedRole) -> np.random.Generator:
        """It depends only on the seed and the two roles."""
        if link not in self._streams:
            spec, other = role.spec, target.spec
            more = (*other.kind.encode(), 0, other.index)
            self._streams[link] = role_stream(self._seed, spec.kind, spec.index, NETWORK, more=more)
        return self._streams[link]
