"""The rules of a role instance, without an engine: matching, incarnations, accounting, membership."""

from dataclasses import dataclass

import numpy as np
import pytest

import labkit as lk
from labkit.engines.role_core import KnownMembers, RoleCore
from labkit.roles.layout import RoleSpec
from labkit.roles.messages import Joined, Left, Message, Pull, Push, SnapshotRequest, Weights
from labkit.trace.recorder import Recorder
from labkit.trace.schema import EVALUATION, STARTUP, TRAINING

IDS = {"chief": 0, "server-0": 1, "worker-0": 2, "worker-1": 3}
KINDS = frozenset((Push, Pull, Weights, SnapshotRequest))


class Driver(RoleCore):
    """A role that records what it would transmit. `computed`: peers that have computed a gradient."""

    def __init__(self, name="worker-0", kind="worker"):
        spec = RoleSpec(name, kind, 0, name)
        recorder = Recorder(IDS[name], roles=len(IDS))
        super().__init__(spec, recorder, IDS, KINDS, KnownMembers({}, dict.fromkeys(IDS, 0)), lk.AsyncPS())
        self.transmitted, self.computed = [], set()

    def clock(self):
        return 5

    def computed_until(self, now):
        return 0

    def transmit(self, to, message, category):
        self.transmitted.append((to, type(message).__name__, category))
        return 100

    def deliver(self, message):
        self.inbox.append(message)

    def has_computed(self, peer):
        return peer in self.computed


@dataclass(frozen=True)
class Letter(Message):
    number: int


def message_from(kind, sender, incarnation=0, **fields):
    message = kind(**fields)
    message.__dict__.update(sender=sender, incarnation=incarnation)
    return message


def push(step, count=1, sender="worker-0"):
    return message_from(Push, sender, values=np.zeros(3), generation=0, version=0, step=step, samples=8, count=count)


def weights(sender="server-0", version=0, incarnation=0):
    return message_from(Weights, sender, incarnation, values=np.zeros(3), shard=0, generation=0, version=version)


# receiving ------------------------------------------------------------------------------------------------------------


def test_the_first_message_that_fits_is_taken_and_the_others_stay_in_order():
    role = Driver("server-0", "server")
    first, second, third = message_from(Pull, "worker-1"), push(0), message_from(Pull, "worker-0")
    role.inbox.extend((first, second, third))
    assert role.take((Push,), None) is second
    assert role.take((Pull,), "worker-0") is third
    assert role.take((Pull,), "worker-0") is None
    assert role.take((Push, Pull), None) is first
    assert not role.inbox


def test_a_push_that_is_taken_counts_as_received_by_its_instance():
    role = Driver("server-0", "server")
    late = push(7)
    late.__dict__["incarnation"] = 2
    role.inbox.extend((push(3), late))
    role.take((Push,), None)
    role.take((Push,), None)
    worker = IDS["worker-0"]
    assert role.counters.last_received == {worker: 3, worker + 2 * len(IDS): 7}


# sending --------------------------------------------------------------------------------------------------------------


def test_traffic_before_the_first_gradient_is_startup_traffic():
    role = Driver()
    role.send("server-0", Pull())
    role.computed.add("server-0")
    role.send("server-0", Pull())
    role.computed.clear()
    role.counters.computed = 1
    role.send("server-0", Pull())
    role.send("server-0", push(0))
    assert [category for *_, category in role.transmitted] == [STARTUP, TRAINING, TRAINING, TRAINING]
    assert role.trained == {"server-0"}
    assert (role.counters.bytes[STARTUP], role.counters.bytes[TRAINING], role.counters.messages) == (100, 300, 4)


def test_a_restarted_peer_has_not_computed_yet():
    role = Driver("server-0", "server")
    role.computed.add("worker-1")
    role.send("worker-1", weights())
    role.computed.clear()
    role.peer_joined("worker-1")
    role.send("worker-1", weights())
    assert [category for *_, category in role.transmitted] == [TRAINING, STARTUP]


def test_requests_for_snapshots_are_evaluation():
    role = Driver("chief", "chief")
    role.send("server-0", SnapshotRequest(0, False))
    assert role.transmitted == [("server-0", "SnapshotRequest", EVALUATION)]


def test_skipped_gradients_are_never_used():
    role = Driver()
    role.send("server-0", push(0))
    role.send("server-0", push(4, count=2))  # 3 and 4: 1 and 2 were skipped
    assert role.counters.released == 5
    drops = role.recorder.take(9)
    assert sum(role.counters.drops) == 2
    assert "drops" in drops["tables"]


def test_the_version_that_was_sent_to_a_worker_is_remembered():
    role = Driver("server-0", "server")
    role.send("worker-1", weights(version=12))
    assert role.counters.reads == {IDS["worker-1"]: 12}


@pytest.mark.parametrize(
    ("to", "message", "pattern"),
    [
        ("worker-7", Pull(), r"sends to 'worker-7'; there is no such role in this run \(there is chief, server-0"),
        ("server-0", Letter(1), r"sends Letter, which AsyncPS does not list: messages = \(Push, Pull"),
    ],
)
def test_invalid_messages_are_refused_and_not_counted(to, message, pattern):
    role = Driver()
    with pytest.raises(lk.RoleError, match=pattern):
        role.send(to, message)
    assert (role.counters.messages, role.transmitted) == (0, [])


# incarnations ---------------------------------------------------------------------------------------------------------


def test_messages_to_a_lost_peer_are_dropped_until_it_has_returned():
    role = Driver()
    role.awaited_kinds = (Weights, Joined)
    role.members.absent.add("server-0")
    role.unacknowledged.add("server-0")
    role.send("server-0", Pull())
    role.members.absent.discard("server-0")
    role.members.incarnations["server-0"] = 1
    role.peer_joined("server-0")
    role.send("server-0", Pull())
    assert role.transmitted == []
    assert role.counters.messages == 2  # sent, and lost
    (news,) = role.inbox
    assert (type(news), news.name, news.incarnation) == (Joined, "server-0", 1)
    assert role.take((Weights, Joined), None) is news
    role.send("server-0", Pull())
    assert [to for to, *_ in role.transmitted] == ["server-0"]


def test_a_message_of_a_new_instance_announces_the_instance():
    role = Driver()
    role.unacknowledged.add("server-0")
    role.members.incarnations["server-0"] = 1
    role.inbox.extend((weights(incarnation=0), weights(incarnation=1)))
    role.take((Weights,), None)
    assert role.unacknowledged == {"server-0"}  # a late message of the lost instance is no sign of the new one
    role.take((Weights,), None)
    assert role.unacknowledged == set()


def test_a_role_that_did_not_listen_for_news_has_nothing_to_repeat():
    role = Driver()
    role.unacknowledged.add("server-0")
    role.peer_joined("server-0")
    role.peer_left("worker-1")
    assert role.unacknowledged == set()
    assert not role.inbox


def test_an_answer_goes_to_the_instance_that_asked():
    role = Driver("server-0", "server")
    asked = message_from(Pull, "worker-1", incarnation=0)
    role.send(asked, weights())
    role.members.incarnations["worker-1"] = 1
    role.send(asked, weights())
    assert len(role.transmitted) == 1
    assert role.counters.messages == 2
    assert sum(role.counters.bytes) == 100 + 3 * 8  # three float64 of the second, which is lost


def test_news_replaces_earlier_news_of_the_same_member():
    role = Driver()
    role.awaited_kinds = (Left, Joined)
    role.peer_left("worker-1")
    role.peer_left("server-0")
    role.peer_joined("worker-1")
    assert [(type(m), m.name) for m in role.inbox] == [(Left, "server-0"), (Joined, "worker-1")]
