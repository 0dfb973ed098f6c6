"""Roles that cannot reach each other: what the log says, from scripted reports with a scripted clock."""

from collections import Counter
from typing import NamedTuple

import pytest

from labkit.engines.dask.client.membership import Membership
from labkit.engines.dask.client.reachability import Reachability
from labkit.engines.dask.timeouts import REPORT_S
from tests.engines.dask.client.recovery_world import servers

HOSTS = {"worker-0": "A", "worker-1": "A", "worker-2": "C", "server-0": "B", "chief": "C"}


class Silence(NamedTuple):
    """From `begin` to `end` (seconds) no message of `role` reaches `peer`, of which this is the `incarnation`."""

    role: str
    peer: str
    begin: float = 0.0
    end: float = 1e9
    why: str = "no answer"
    incarnation: int = 0


class World:
    """Five roles on three hosts. `events`: {second: what happens to the membership}; `mute`: {role: it reports until then}."""

    def __init__(self, *silences, events=(), mute=(), hosts=()):
        self.silences, self.events, self.mute = silences, dict(events), dict(mute)
        layout = servers(3, 1)
        self.hosts = HOSTS | dict(hosts)
        self.members = Membership(layout, {role.name: role.name for role in layout.roles}, Counter())
        for role, host in self.hosts.items():
            self.members.arrive(role, (host, 1, role))
        self.reachability = Reachability(self.members)

    def log(self, until):
        """[(time, the first sentence)] of what is recorded."""
        found = []
        for tick in range(int(10 * until)):
            now = tick / 10
            self.events.pop(now, lambda world: None)(self)
            for role in self.members.contact:
                if now < self.mute.get(role, 1e9):
                    number = self.members.incarnation[role]
                    self.reachability.heard(role, now)
                    self.reachability.report(role, number, self.unanswered(role, now), now)
            found += [(now, text.partition(". ")[0].rstrip(".")) for text in self.reachability.news(now)]
        self.now = until
        return found

    def unanswered(self, role, now):
        mine = [s for s in self.silences if s.role == role and s.begin <= now < s.end]
        return {s.peer: [s.incarnation, now - s.begin, s.why] for s in mine}


def moves_to(role, host):
    """The role is lost, and its next incarnation is up on another host."""

    def act(world):
        world.members.lose(role, "was killed")
        world.members.place(role, host)
        world.members.arrive(role, (host, 1, role))

    return act


def leaves(role):
    return lambda world: world.members.lose(role, "was killed")


BOTH = Silence("worker-0", "server-0"), Silence("server-0", "worker-0")
CASES = {
    "no direction is open": (
        World(*BOTH),
        ["server-0 on B cannot reach worker-0 on A (no answer); worker-0 on A cannot reach server-0 on B (no answer)"],
    ),
    "one direction is open": (
        World(Silence("server-0", "worker-0", why="Connection refused")),
        ["server-0 on B cannot reach worker-0 on A (Connection refused)"],
    ),
    "the link closes later in the run": (
        World(Silence("worker-2", "server-0", begin=12.0)),
        ["worker-2 on C cannot reach server-0 on B (no answer)"],
    ),
    "a role restarts on another host": (
        World(Silence("worker-1", "server-0", 5.0, incarnation=1), events={5.0: moves_to("server-0", "D")}),
        ["worker-1 on A cannot reach server-0 on D (no answer)"],
    ),
    "two roles of a host": (
        World(Silence("worker-0", "server-0"), Silence("worker-1", "server-0", begin=0.4)),
        ["worker-0 and worker-1 on A cannot reach server-0 on B (no answer)"],
    ),
    "one pair of three hosts": (
        World(Silence("chief", "server-0"), Silence("worker-0", "server-0", end=5.0)),
        ["chief on C cannot reach server-0 on B (no answer)"],
    ),
    "one host": (
        World(Silence("worker-0", "worker-1")),
        ["worker-0 on A cannot reach worker-1 on A (no answer)"],
    ),
    "more roles than are named": (
        World(*(Silence(role, "server-0") for role in HOSTS if role != "server-0"), Silence("server-0", "chief"),
              hosts=dict.fromkeys(HOSTS, "A")),
        ["chief, server-0, worker-0, worker-1 and 1 more on A cannot reach chief and server-0 on A (no answer)"],
    ),
    "the link opens again": (
        World(Silence("worker-0", "server-0", end=20.0)),
        ["worker-0 on A cannot reach server-0 on B (no answer)", "worker-0 on A can reach server-0 on B again"],
    ),
    "a short interruption": (World(Silence("worker-0", "server-0", end=8.0)), []),
    "the peer is lost": (World(*BOTH, events={6.0: leaves("server-0")}), []),
    "the client does not reach the peer either": (World(*BOTH, mute={"server-0": 0.0}), []),
    "a report about an earlier incarnation": (World(BOTH[0], events={5.0: moves_to("server-0", "D")}), []),
    "all links are open": (World(), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_log_names_roles_that_cannot_reach_each_other_within_the_bound(case):
    world, expected = CASES[case]
    log = world.log(until=30.0)
    assert [text for _, text in log] == expected
    if expected:
        assert log[0][0] - max(silence.begin for silence in world.silences) < REPORT_S


def test_the_text_is_that_of_the_roles_that_the_log_has_named():
    world = World(Silence("worker-0", "server-0"), Silence("chief", "server-0", begin=5.0))
    assert world.log(until=12.0)
    worker, chief = (f"{role} cannot reach server-0 on B (no answer)" for role in ("worker-0 on A", "chief on C"))
    assert world.reachability.text(12.0) == worker
    assert world.reachability.text(12.0, "chief") == ""
    assert world.reachability.text(12.0, "server-0") == worker
    assert world.reachability.text(12.0, seconds=4.0) == ""
    world = World(Silence("worker-0", "server-0"), Silence("chief", "server-0", begin=5.0))
    world.log(until=20.0)
    assert world.reachability.text(20.0) == f"{chief}; {worker}"
    assert world.reachability.text(20.0, seconds=7.0) == worker
    assert world.reachability.text(30.0) == ""  # nothing has been heard since
    leaves("chief")(world)
    assert world.reachability.text(20.0) == worker
