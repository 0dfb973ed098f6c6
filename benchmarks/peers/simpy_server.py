"""An asynchronous parameter server in SimPy: the model of a timing-only run of labkit's `AsyncPS`, and nothing else.

Workers and the server are processes. The server's inbox is a `Store`, from which it serves one message at a time, first
come, first served. Each worker waits for an event, which is faster than a `Store` (by a third). Links are cut-through
and full duplex, like labkit's: a message occupies the sender's egress and, `latency` later, the receiver's ingress,
each for as long as its bytes take. Links and servers that take no time cost no events. Time is in whole nanoseconds.

With the same draws the simulation ends at the same nanosecond as labkit's, with the same staleness of every update
(this is tested). It keeps a histogram of the staleness and no other record. Messages are tuples, which are neither
checked nor copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a simulation.

    staleness: {value: updates}. virtual: ns at the last update. wall: seconds that `env.run` took.
    """

    staleness: dict[int, int]
    virtual: int
    wall: float


class Links:
    """The ingress and egress of every node. `latency` is in ns, `per_byte` in ns per byte. If both are 0, links take no time."""

    def __init__(self, env: simpy.Environment, nodes: int, latency: int = 0, per_byte: float = 0.0):
        self.env, self.latency, self.per_byte = env, latency, per_byte
        self.free = not latency and not per_byte
        self.egress_free_at, self.ingress_free_at = [0] * nodes, [0] * nodes

    def send(self, source: int, target: int, nbytes: int, message: Any, deliver: Callable[[Any], Any]) -> None:
        """Call `deliver(message)` when the message has arrived."""
        if self.free:
            deliver(message)
            return
        now, occupied = self.env.now, round(nbytes * self.per_byte)
        start = max(now, self.egress_free_at[source], self.ingress_free_at[target] - self.latency)
        self.egress_free_at[source] = start + occupied
        self.ingress_free_at[target] = arrival = start + self.latency + occupied
        self.env.timeout(arrival - now, message).callbacks.append(lambda event: deliver(event.value))


def simulate(
    draws: Sequence[Callable[[], int]], updates: int, *, latency: int = 0, per_byte: float = 0.0, nbytes: int = 0,
    service: int = 0,
) -> Outcome:  # fmt: skip
    """Simulate `updates` gradients.

    draws: for each worker a function that returns the ns of its next gradient. nbytes: bytes of a gradient, and of the
    weights. service: ns that the server takes for one update.
    """
    env = simpy.Environment()
    inbox, links = simpy.Store(env), Links(env, len(draws) + 1, latency, per_byte)
    staleness: dict[int, int] = {}
    for number, draw in enumerate(draws, 1):
        env.process(_worker(env, links, inbox, number, draw, nbytes))
    server = env.process(_server(env, links, inbox, updates, nbytes, service, staleness))
    began = time.perf_counter()
    env.run(server)
    return Outcome(staleness, env.now, time.perf_counter() - began)


def _worker(
    env: simpy.Environment, links: Links, inbox: simpy.Store, number: int, draw: Callable[[], int], nbytes: int
) -> Process:
    reply = env.event()
    links.send(number, 0, 0, (number, None, reply), inbox.put)  # pull
    version = yield reply
    while True:
        yield env.timeout(draw())
        reply = env.event()
        links.send(number, 0, nbytes, (number, version, reply), inbox.put)  # push
        version = yield reply


def _server(
    env: simpy.Environment, links: Links, inbox: simpy.Store, updates: int, nbytes: int, service: int,
    staleness: dict[int, int],
) -> Process:  # fmt: skip
    version = 0
    while True:
        number, read, reply = yield inbox.get()
        if read is not None:
            if service:
                yield env.timeout(service)
            staleness[version - read] = staleness.get(version - read, 0) + 1
            version += 1
            if version == updates:
                return
        links.send(0, number, nbytes, version, reply.succeed)
