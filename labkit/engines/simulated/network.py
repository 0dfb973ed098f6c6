"""The network of virtual time: cut-through and full duplex.

A message starts when the sender's egress and, `latency` later, the receiver's ingress are free, and holds both for
bytes / bandwidth. Roles on one node talk for free. All times are whole nanoseconds. What can go wrong on a link is in
`trouble`.
"""

from __future__ import annotations

import math

from ...trace.vocabulary import NANO, nanoseconds

__all__ = ["RESEND_S", "Network"]

RESEND_S = 0.05  # what is not acknowledged is sent again


class Network:
    """Links between `nodes` nodes. `latency` seconds, `bandwidth` bytes a second (may be infinite)."""

    __slots__ = ("_egress", "_ingress", "_latency", "_per_byte", "free")

    def __init__(self, nodes: int, latency: float, bandwidth: float):
        self._latency = nanoseconds(latency)
        self._per_byte = 0.0 if math.isinf(bandwidth) else NANO / bandwidth
        self.free = not self._latency and not self._per_byte
        self._egress, self._ingress = [0] * nodes, [0] * nodes

    def arrival(self, now: int, source: int, target: int, size: int) -> int:
        """When a message of `size` bytes sent now from node `source` has arrived at node `target`; both are busy until
        then.
        """
        if source == target or self.free:
            return now
        held = round(size * self._per_byte)
        start = max(now, self._egress[source], self._ingress[target] - self._latency)
        self._egress[source] = start + held
        self._ingress[target] = arrival = start + self._latency + held
        return arrival
