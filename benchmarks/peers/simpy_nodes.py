"""Nodes, links and mailboxes in SimPy, and an asynchronous parameter server on top: the model of labkit's simulator.

It is written in the style of SimPy's documentation: a `Resource` for what can be occupied, a process for what waits, a
store for message delivery, a `timeout` for durations. A node has a core, an egress and an ingress, each first come,
first served. Roles run on nodes and are addressed by name. A role takes messages out of its mailbox by kind, and bytes
are counted for every message. All this is modelled even if it takes no time. Time is in whole nanoseconds.

Links are cut-through: a message occupies the sender's egress and, `latency` later, the receiver's ingress, each for
bytes / bandwidth. Because all links have the same latency, the ingress can be reserved in the sender's time. A message
acquires both when it departs, releases both when its last byte has left, and arrives `latency` after that.

With the same draws the simulation ends at the same nanosecond as labkit's, with the same staleness of every update and
the same bytes (this is tested). It records nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simpy

PULL, PUSH, WEIGHTS = "pull", "push", "weights"

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a simulation.

    staleness: {value: updates}. sent: {node: bytes}. virtual: ns at the end. wall: seconds that `env.run` took.
    """

    staleness: dict[int, int]
    sent: dict[str, int]
    virtual: int
    wall: float


class Message(NamedTuple):
    """A message between roles. `nbytes`: its size on a link."""

    kind: str
    sender: str
    version: int
    nbytes: int


class Node:
    """A machine, whose core, egress and ingress have capacity 1. `sent` and `received` are bytes."""

    def __init__(self, env: simpy.Environment):
        self.core = simpy.Resource(env, capacity=1)
        self.egress = simpy.Resource(env, capacity=1)
        self.ingress = simpy.Resource(env, capacity=1)
        self.sent = self.received = 0


class Cluster:
    """Nodes by name, roles by name, and the network between them. `latency` is in ns, `per_byte` in ns per byte."""

    def __init__(self, env: simpy.Environment, latency: int = 0, per_byte: float = 0.0):
        self.env, self.latency, self.per_byte = env, latency, per_byte
        self.nodes: dict[str, Node] = {}
        self.roles: dict[str, Role] = {}

    def role(self, name: str, node: str) -> Role:
        """Make a new role on `node`, which is created if it does not exist."""
        if node not in self.nodes:
            self.nodes[node] = Node(self.env)
        self.roles[name] = role = Role(self, name, self.nodes[node])
        return role

    def deliver(self, message: Message, source: Node, target: Role) -> Process:
        """Deliver one message. Messages between roles on one node take no time."""
        node = target.node
        if node is not source:
            with source.egress.request() as egress, node.ingress.request() as ingress:
                yield egress
                yield ingress
                yield self.env.timeout(round(message.nbytes * self.per_byte))
            yield self.env.timeout(self.latency)
            node.received += message.nbytes
        target.mailbox.put(message)


class Role:
    """A named role on a node, with a mailbox."""

    def __init__(self, cluster: Cluster, name: str, node: Node):
        self.cluster, self.env, self.name, self.node = cluster, cluster.env, name, node
        self.mailbox = simpy.FilterStore(cluster.env)

    def send(self, to: str, kind: str, version: int = 0, nbytes: int = 0) -> None:
        """Send a message to role `to` without waiting for its delivery."""
        self.node.sent += nbytes
        message = Message(kind, self.name, version, nbytes)
        self.env.process(self.cluster.deliver(message, self.node, self.cluster.roles[to]))

    def recv(self, *kinds: str) -> simpy.Event:
        """Wait for the oldest message of these kinds, and return it."""
        return self.mailbox.get(lambda message: message.kind in kinds)

    def compute(self, duration: int) -> Process:
        """Hold the node's core for `duration` ns."""
        with self.node.core.request() as core:
            yield core
            yield self.env.timeout(duration)


# the algorithm: an asynchronous parameter server --------------------------------------------------------------------


def server(role: Role, updates: int, service: int, nbytes: int, staleness: Counter[int]) -> Process:
    """Serve requests, first come, first served. `service`: ns of an update; `nbytes`: bytes of the weights."""
    version = 0
    while version < updates:
        request = yield role.recv(PUSH, PULL)
        if request.kind == PUSH:
            yield from role.compute(service)
            staleness[version - request.version] += 1
            version += 1
        role.send(request.sender, WEIGHTS, version, nbytes)  # only the sender continues


def worker(role: Role, draw: Callable[[], int], nbytes: int) -> Process:
    """Compute on the received weights, send the gradient, receive newer weights. `draw()` returns the ns of a gradient."""
    role.send("server", PULL)
    weights = yield role.recv(WEIGHTS)
    while True:
        yield from role.compute(draw())
        role.send("server", PUSH, weights.version, nbytes)
        weights = yield role.recv(WEIGHTS)


def simulate(
    draws: Sequence[Callable[[], int]], updates: int, *, latency: int = 0, per_byte: float = 0.0, nbytes: int = 0,
    service: int = 0,
) -> Outcome:  # fmt: skip
    """Simulate `updates` gradients. Every role has its own node.

    draws: for each worker a function that returns the ns of its next gradient. nbytes: bytes of a gradient, and of the
    weights. service: ns that the server takes for one update.
    """
    env = simpy.Environment()
    cluster = Cluster(env, latency, per_byte)
    staleness: Counter[int] = Counter()
    for i, draw in enumerate(draws):
        env.process(worker(cluster.role(f"worker-{i}", f"node-{i}"), draw, nbytes))
    last = env.process(server(cluster.role("server", "server"), updates, service, nbytes, staleness))
    began = time.perf_counter()
    env.run(last)
    wall = time.perf_counter() - began
    return Outcome(dict(staleness), {name: node.sent for name, node in cluster.nodes.items()}, env.now, wall)
