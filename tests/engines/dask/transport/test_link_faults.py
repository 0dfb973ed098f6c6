"""Link faults: frames are delayed, lost, or wait for a connection; each message arrives once, and in order."""

from __future__ import annotations

import contextlib
import math
import random
import ssl
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from labkit.engines.commands import RESEND_S
from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import FrameCodec
from labkit.engines.dask.transport.poller import Poller
from labkit.engines.dask.transport.shared_memory import SIZE, available
from labkit.errors import BadInput
from labkit.roles.messages import Ack, Pull, Push
from labkit.trace.schema import EVALUATION
from tests.engines.dask.transport.helpers import (
    KINDS,
    LONG,
    connect,
    descriptors,
    dial,
    hello,
    introduce,
    mappings,
    run,
    suspended,
    values,
)

pytestmark = pytest.mark.sample(12, slow=24)

AGES = 1000.0  # seconds; longer than any test


@pytest.fixture(params=["memory", "socket", "tls"])
def carrier(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of endpoints whose frames travel through shared memory, over sockets, and encrypted."""
    if request.param == "tls":
        contexts: dict[str, ssl.SSLContext] = request.getfixturevalue("tls")
        return dict(contexts)
    if request.param == "memory" and not available():
        pytest.skip(
            "processes of this machine cannot share memory: see labkit.engines.dask.transport.shared_memory.available"
        )
    return {"share": request.param == "memory"}


class Clock:
    """The endpoints' time. It follows the machine's clock until it is stopped; then the test moves it."""

    def __init__(self) -> None:
        self.stopped: float | None = None

    def __call__(self) -> float:
        return time.monotonic() if self.stopped is None else self.stopped

    def advance(self, seconds: float) -> None:
        assert self.stopped is not None
        self.stopped += seconds


@pytest.fixture
def running() -> Clock:
    return Clock()


@pytest.fixture
def clock(running: Clock) -> Clock:
    """A clock that the test moves."""
    running.stopped = time.monotonic()
    return running


@pytest.fixture
def make(carrier: dict[str, Any], running: Clock) -> Iterator[Callable[..., Endpoint]]:
    with contextlib.ExitStack() as stack:

        def make(name: str, incarnation: int = 0, **options: Any) -> Endpoint:
            endpoint = Endpoint(name, incarnation, FrameCodec(KINDS), **{"now": running} | carrier | options)
            stack.callback(endpoint.close)
            return endpoint

        yield make


def impair(one: Endpoint, two: Endpoint, **how: Any) -> None:
    """Set the link fault at both ends."""
    one.set_link_fault(two.name, **how)
    two.set_link_fault(one.name, **how)


def idle(*endpoints: Endpoint, rounds: int = 20) -> None:
    """Poll the endpoints until they have nothing left to do."""
    for _ in range(rounds):
        for endpoint in endpoints:
            endpoint.poll(0.0)


def steps(endpoint: Endpoint, sender: str = "") -> list[int]:
    return [message.step for message in values(endpoint) if sender in ("", message.sender)]


def push(step: int, size: int = 100) -> Push:
    return Push(np.full(size, step, np.float32), step, 0, 0)


def warm(one: Endpoint, two: Endpoint) -> None:
    """Send frames in both directions, the last of them through shared memory if it is used."""
    for _ in range(2):
        one.send(two.name, Ack(-1))
        two.send(one.name, Ack(-1))
        run((one, two), lambda: one.inbox and two.inbox)
        one.inbox.clear()
        two.inbox.clear()


# late -----------------------------------------------------------------------------------------------------------------


def test_a_delayed_frame_arrives_when_it_is_due(pair: tuple[Endpoint, Endpoint], clock: Clock) -> None:
    one, two = pair
    warm(one, two)
    one.set_link_fault("two", delay=0.5)
    one.send("two", push(1))
    clock.advance(0.3)
    one.send("two", push(2))
    two.send("one", Ack(9))  # this direction is as it was
    idle(one, two)
    assert (steps(one), steps(two), one.sent["two"] - two.received["one"]) == ([9], [], 2)
    clock.advance(0.201)
    idle(one, two)
    assert steps(two) == [1]
    clock.advance(0.3)
    idle(one, two)
    assert steps(two) == [1, 2]
    assert one.sent["two"] == two.received["one"]


def test_the_sender_may_overwrite_what_is_held(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    one.set_link_fault("two", delay=AGES)
    array = np.zeros(100_000)
    for step in range(3):
        array[:] = step
        assert one.send("two", Push(array, step, 0, 0)) == array.nbytes
    array[:] = -1
    one.set_link_fault("two")
    run(pair, lambda: len(two.inbox) == 3)
    assert [message.values[[0, -1]].tolist() for message in values(two)] == [[0, 0], [1, 1], [2, 2]]


def test_a_shorter_delay_takes_effect_at_once(pair: tuple[Endpoint, Endpoint], clock: Clock) -> None:
    one, two = pair
    connect(one, two)
    one.set_link_fault("two", delay=AGES)
    one.send("two", push(1))
    one.set_link_fault("two", delay=1.0)
    one.send("two", push(2))
    idle(one, two)
    assert not two.inbox
    clock.advance(1.001)
    idle(one, two)
    assert steps(two) == [1, 2]


def test_poll_returns_when_a_delayed_frame_is_due(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    one.set_link_fault("two", delay=0.01)
    one.send("two", push(1))
    one.poll(LONG)
    run(pair, lambda: two.inbox)


# limited --------------------------------------------------------------------------------------------------------------

BYTE_S = 0.1 / 400  # seconds for a byte: `push` has 400, and takes 0.1 s


def limited(one: Endpoint, *peers: Endpoint, per_byte: float = BYTE_S) -> None:
    """Limit the bandwidth of `one`; the links to its peers are as slow."""
    one.limit(per_byte)
    for peer in peers:
        impair(one, peer, per_byte=per_byte)


def arrivals(clock: Clock, *endpoints: Endpoint) -> dict[str, list[tuple[int, int]]]:
    """{receiver: [(time in tenths of a second, step)]} of a second."""
    found: dict[str, list[tuple[int, int]]] = {endpoint.name: [] for endpoint in endpoints}
    for hundredth in range(100):
        idle(*endpoints, rounds=4)
        for endpoint in endpoints:
            found[endpoint.name] += [(round(hundredth / 10), step) for step in steps(endpoint)]
            endpoint.inbox.clear()
        clock.advance(0.01)
    return found


@pytest.fixture
def trio(make: Callable[..., Endpoint]) -> tuple[Endpoint, Endpoint, Endpoint]:
    endpoints = make("one"), make("two"), make("three")
    introduce(*endpoints)
    for here in endpoints:
        for there in endpoints:
            if here is not there:
                here.connect(there.name)
    idle(*endpoints)
    return endpoints


def test_a_limited_role_sends_one_frame_at_a_time(trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock) -> None:
    one, two, three = trio
    limited(one, two, three)
    for step, to in enumerate((two, two, three, two)):
        one.send(to.name, push(step))
    two.send("three", push(9))  # other links are as they were
    assert arrivals(clock, *trio) == {"one": [], "two": [(1, 0), (2, 1), (4, 3)], "three": [(0, 9), (3, 2)]}
    assert one.sent == {"two": two.received["one"], "three": three.received["one"]}


def test_a_limited_role_receives_one_frame_at_a_time(trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock) -> None:
    one, two, three = trio
    limited(three, one, two)
    for step in (1, 2):
        one.send("three", push(step))
        two.send("three", push(-step))
    one.send("two", push(9))
    found = arrivals(clock, *trio)
    assert [tenth for tenth, _ in found["three"]] == [1, 2, 3, 4]
    assert [step for _, step in found["three"] if step > 0] == [1, 2]
    assert [step for _, step in found["three"] if step < 0] == [-1, -2]
    assert found["two"] == [(0, 9)]


def test_a_frame_occupies_each_role_at_its_own_bandwidth(
    trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock
) -> None:
    one, two, three = trio
    limited(two, one, per_byte=3 * BYTE_S)
    one.limit(BYTE_S)
    one.set_link_fault("three", per_byte=BYTE_S)
    for step, to in enumerate((two, three, two)):
        one.send(to.name, push(step))
    assert arrivals(clock, *trio) == {"one": [], "two": [(3, 0), (6, 2)], "three": [(2, 1)]}


def test_frames_keep_their_times_when_a_limit_changes(trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock) -> None:
    one, two, three = trio
    one.send("two", push(0))
    limited(one, two, three)
    for step in (1, 2):
        one.send("two", push(step))
    limited(one, two, three, per_byte=0.0)
    one.send("two", push(3))  # behind the others of this link
    one.send("three", push(4))
    assert arrivals(clock, *trio) == {"one": [], "two": [(0, 0), (1, 1), (2, 2), (2, 3)], "three": [(0, 4)]}


def test_frames_that_a_cut_holds_are_sent_one_after_the_other(
    trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock
) -> None:
    one, two, _ = trio
    one.limit(BYTE_S)
    impair(one, two, per_byte=BYTE_S, cut=True)
    for step in range(3):
        one.send("two", push(step))
    assert not any(arrivals(clock, *trio).values())
    impair(one, two, per_byte=BYTE_S)
    assert arrivals(clock, *trio)["two"] == [(1, 0), (2, 1), (3, 2)]


def test_the_evaluation_is_not_limited(trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock) -> None:
    one, two, three = trio
    limited(one, two, three)
    one.send("three", push(1))
    one.send("two", push(2), EVALUATION)
    assert arrivals(clock, *trio) == {"one": [], "two": [(0, 2)], "three": [(1, 1)]}


def test_what_a_busy_role_was_sent_meanwhile_has_been_received(
    trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock
) -> None:
    """A role that computes for a second, and polls then, does not wait for the bandwidth again."""
    one, two, three = trio
    limited(three, one, two)
    idle(*trio)
    for sender in (one, two):
        sender.send("three", push(1))
    for _ in range(10):
        clock.advance(0.1001)
        idle(one, two)
    idle(three)
    assert steps(three) == [1, 1]


def test_the_end_delivers_what_a_limited_receiver_holds(
    trio: tuple[Endpoint, Endpoint, Endpoint], clock: Clock
) -> None:
    one, two, three = trio
    three.limit(AGES)
    for sender in (one, two):
        three.set_link_fault(sender.name, per_byte=AGES)
    one.send("three", push(0))
    idle(*trio)
    for sender in (one, two):
        sender.send("three", push(1))
    idle(*trio)
    assert (steps(three), three.received) == ([0], {"one": 1})
    two_new = two.incarnation + 1
    three.fence("two", two_new)  # an incarnation that is replaced delivers nothing any more
    one.finish_sending(LONG)
    assert three.drain({"one"}, LONG) == set()
    assert (steps(three), three.received) == ([0, 1], {"one": 2})


# lost -----------------------------------------------------------------------------------------------------------------


def test_lost_frames_are_retransmitted_and_delivered_in_order(pair: tuple[Endpoint, Endpoint], clock: Clock) -> None:
    one, two = pair
    warm(one, two)
    one.set_link_fault("two", drop=0.4)
    for step in range(60):
        one.send("two", push(step))
    seen, rounds = [0], 0
    while len(two.inbox) < 60:
        idle(one, two, rounds=3)
        seen.append(len(two.inbox))
        clock.advance(RESEND_S / 2)
        rounds += 1
        assert rounds < 2000
    idle(one, two)
    assert steps(two) == list(range(60))
    assert rounds > 20  # 60 frames, 2 of 5 transmissions lost: some 40 waits
    assert max(np.diff(seen)) < 30  # frames after a lost frame wait for it
    assert two.repeated["one"] > 10  # their acknowledgements were lost
    assert one.sent["two"] == two.received["one"]


def test_random_drops_are_the_same_in_every_run(make: Callable[..., Endpoint], clock: Clock) -> None:
    def received_steps(name: str) -> list[int]:
        one, two = make(name), make("two")
        introduce(one, two)
        connect(one, two)
        one.set_link_fault(None, drop=0.5)
        seen = []
        for step in range(30):
            one.send("two", push(step))
            clock.advance(RESEND_S)
            idle(one, two, rounds=6)
            seen.append(two.repeated[name] * 100 + len(two.inbox))
        return seen

    assert received_steps("one") == received_steps("one") != received_steps("other")


def test_no_message_passes_a_link_that_drops_all_frames(pair: tuple[Endpoint, Endpoint], clock: Clock) -> None:
    one, two = pair
    one.set_link_fault("two", drop=1.0)
    one.send("two", push(1))
    for _ in range(10):
        clock.advance(RESEND_S)
        idle(one, two, rounds=2)
    assert not two.inbox
    one.set_link_fault("two")
    run(pair, lambda: two.inbox)
    assert two.repeated["one"] == 0


@pytest.mark.parametrize(("how", "why"), [
    ({"delay": -1.0}, "delayed by -1.0 s"), ({"delay": math.nan}, "nan"), ({"delay": math.inf}, "inf"),
    ({"per_byte": -1.0}, "cannot take -1.0 s"), ({"per_byte": math.inf}, "inf"),
    ({"drop": 1.5}, "with chance 1.5"), ({"drop": -0.1}, "allowed: 0 to 1"), ({"drop": math.nan}, "nan"),
])  # fmt: skip
def test_numbers_that_make_no_sense(pair: tuple[Endpoint, Endpoint], how: dict[str, float], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        pair[0].set_link_fault("two", **how)


# cut ------------------------------------------------------------------------------------------------------------------


def test_a_cut_closes_the_connections_and_nothing_is_lost(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    warm(one, two)
    one.send("two", push(1))
    impair(one, two, cut=True)
    run(pair, lambda: not (one.receiving or two.receiving or one.sending or two.sending))
    for step in (2, 3):
        one.send("two", push(step))
        two.send("one", push(-step))
    idle(one, two)
    assert (steps(one), steps(two)) == ([], [1])
    assert (one.sent["two"] - two.received["one"], two.sent["one"] - one.received["two"]) == (2, 2)
    impair(one, two)
    run(pair, lambda: len(one.inbox) == 2 and len(two.inbox) == 3)
    assert (steps(one), steps(two)) == ([-2, -3], [1, 2, 3])
    run(pair, lambda: not (one.held or two.held))  # unaffected by the fault
    for endpoint in pair:
        assert not any((endpoint.left, endpoint.lost, endpoint.refused, endpoint.unreachable, endpoint.repeated))
    warm(one, two)


def test_messages_sent_before_the_sender_applies_a_cut_are_not_lost(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    warm(two, one)
    two.set_link_fault("one", cut=True)
    run(pair, lambda: not one.receiving)
    one.send("two", push(1))  # over the existing connection
    idle(one, two)
    one.set_link_fault("two", cut=True)
    run(pair, lambda: not two.receiving)
    one.set_link_fault("two")  # the link is restored; two is not notified yet
    for step in range(2, 40):
        one.send("two", push(step, 50_000))
    run(pair, lambda: suspended(two))
    idle(one, two)
    assert steps(two) == [1]
    one.set_link_fault("two", cut=True)  # again, while two keeps the connection that it has not read
    one.send("two", push(40))
    one.set_link_fault("two")
    two.set_link_fault("one")
    run(pair, lambda: len(two.inbox) == 40)
    assert steps(two) == list(range(1, 41))
    assert not any((two.lost, two.left, two.refused, one.unreachable))


def test_a_frame_that_is_half_written_is_finished(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    warm(one, two)
    for step in range(6):
        one.send("two", push(step, 2_000_000))  # 48 MB: more than the kernel or the memory takes
    assert one.queued
    impair(one, two, cut=True)
    assert len(one.sending) == 1  # it is not read yet
    run(pair, lambda: not (one.sending or two.receiving))
    begun = len(two.inbox)
    assert 1 <= begun < 6
    assert begun + one.held["two"] == 6
    impair(one, two)
    run(pair, lambda: len(two.inbox) == 6)
    assert steps(two) == list(range(6))
    assert all((message.values == message.step).all() for message in values(two))


def test_all_links_means_unknown_ones_and_later_ones(make: Callable[..., Endpoint]) -> None:
    one, two, three = make("one"), make("two"), make("three")
    introduce(one, two)
    warm(one, two)
    one.set_link_fault(None, cut=True)
    introduce(one, three)
    one.send("three", push(1))
    three.send("one", push(2))
    two.send("one", push(3))
    run((one, two, three), lambda: suspended(one))
    idle(one, two, three)
    assert not three.inbox
    assert steps(one) == [3]  # two is not notified yet, and has a connection
    one.set_link_fault("three")  # the later request is valid
    run((one, three), lambda: three.inbox and len(one.inbox) == 2)
    one.send("two", push(4))
    idle(one, two)
    assert not two.inbox
    one.set_link_fault(None)
    run((one, two, three), lambda: two.inbox)
    assert (steps(two), steps(three), steps(one)) == ([4], [1], [3, 2])


@pytest.mark.parametrize("how", [{"cut": True}, {"delay": AGES}, {"drop": 1.0}, {"per_byte": AGES}])
def test_messages_held_by_a_link_fault_at_the_end_are_reported(
    pair: tuple[Endpoint, Endpoint], how: dict[str, Any]
) -> None:
    one, two = pair
    warm(one, two)
    impair(one, two, **how)
    one.send("two", Push(np.zeros(3), 7, 0, 0, count=2))
    one.send("two", Pull())
    one.send("two", Push((np.zeros(3), np.ones(2)), 8, 0, 0))  # type: ignore[arg-type]
    run(pair, lambda: not two.receiving or "cut" not in how)
    assert one.finish_sending(LONG if "cut" in how else 0.02) == {"two"}
    impair(one, two)  # too late: the ledger has been written
    idle(one, two)
    waits, wait = [], Poller.wait
    with pytest.MonkeyPatch.context() as recorded:
        recorded.setattr(Poller, "wait", lambda *arguments: waits.append((arguments[1], [*wait(*arguments)])) or [])
        one.poll(0.05, spin=False)
    assert waits == [(0.05, [])]  # nor does a later `poll` return at once, again and again
    assert one.unsent_gradients() == [("two", 7, 2), ("two", 8, 1)]
    assert not two.inbox
    assert one.sent["two"] - two.received["one"] == 3
    one.close()
    assert (one.undelivered["two"], one.unsent_gradients()) == (3, [])


def test_closing_waits_for_delayed_frames(make: Callable[..., Endpoint]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    warm(one, two)
    one.set_link_fault("two", delay=0.02, drop=0.3)
    for step in range(5):
        one.send("two", push(step))
    assert one.finish_sending(20.0) == set()
    assert one.send("two", push(9)) == 0
    assert two.drain({"one"}, 20.0) == set()
    assert (steps(two), two.left, two.lost, two.refused) == ([0, 1, 2, 3, 4], {"one"}, set(), [])


def test_draining_reads_messages_held_by_a_cut(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    two.set_link_fault("one", cut=True)
    one.send("two", push(1))
    run(pair, lambda: suspended(two))
    idle(one, two)
    assert not two.inbox  # though it arrived together with the handshake
    one.finish_sending(0.0)
    run(pair, lambda: not one.queued)
    assert two.drain({"one"}, 20.0) == set()
    assert steps(two) == [1]
    assert two.left == {"one"}


def test_forty_cuts_leave_one_connection(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    before = descriptors()
    for round_ in range(40):
        impair(one, two, cut=round_ % 2 == 0)
        one.send("two", push(round_))
        run(pair, lambda: one.held or not one.queued)
    impair(one, two)
    run(pair, lambda: len(two.inbox) == 40)
    assert steps(two) == list(range(40))
    assert descriptors() < before + 20
    assert len(one.sending) == len(two.receiving) == 1


# peers that are frozen, restarted, gone -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"cut": True}, {"delay": AGES}])
def test_a_restarted_peer_is_dialled_anew(make: Callable[..., Endpoint], how: dict[str, Any]) -> None:
    one, old = make("one"), make("two", 0)
    introduce(one, old)
    warm(one, old)
    if how:
        one.set_link_fault("two", **how)
        old.set_link_fault("one", **how)
    if "cut" in how:
        run((one, old), lambda: not one.sending)
    old.send("one", push(-1))
    for step in range(3):
        one.send("two", push(step))
    new = make("two", 1)
    new.add_peer("one", *one.contact, 0)
    one.add_peer("two", *new.contact, 1)
    assert (one.sent["two"], one.received["two"], one.undelivered["two"]) == (0, 0, 3 if how else 0)
    one.send("two", push(10))
    old.send("one", push(-2))
    idle(one, old, new)
    one.set_link_fault(None)
    old.set_link_fault(None)
    run((one, new), lambda: new.inbox)
    new.send("one", push(-10))
    old.send("one", push(-3))
    run((one, old, new), lambda: steps(one)[-1:] == [-10])
    run((one, old), lambda: "one" in old.unreachable)
    assert (steps(new), steps(one)) == ([10], [-10])  # nothing arrives from the old one any more
    assert (one.sent["two"], one.received["two"]) == (1, 1)
    assert not one.lost


def test_messages_of_an_old_incarnation_behind_a_cut_are_dropped(make: Callable[..., Endpoint]) -> None:
    one, old, new = make("one"), make("two", 0), make("two", 1)
    introduce(one, old)
    new.add_peer("one", *one.contact, 0)
    one.set_link_fault("two", cut=True)
    old.send("one", push(-1))
    run((one, old), lambda: suspended(one))
    one.add_peer("two", *new.contact, 1)
    new.send("one", push(1))
    run((one, old, new), lambda: one.refused and suspended(one) and "one" in old.unreachable)
    one.set_link_fault("two")
    run((one, old, new), lambda: one.inbox)
    assert steps(one) == [1]
    assert one.received == {"two": 1}


def test_a_frozen_peer_blocks_no_other_and_costs_nothing_when_forgotten(make: Callable[..., Endpoint]) -> None:
    one, frozen, other = make("one"), make("frozen"), make("other")
    introduce(one, frozen, other)
    warm(one, frozen)
    warm(one, other)
    one.pool.limit = 0  # what is not needed is given back
    shared_before = mappings() if available() else 0
    tracemalloc.start()
    try:
        for step in range(12):
            one.send("frozen", push(step, 1_000_000))
            one.set_link_fault("frozen", delay=AGES * (step > 8))
            one.send("other", push(step))
            run((one, other), lambda: other.inbox)
            other.inbox.clear()
        assert tracemalloc.get_traced_memory()[0] > 8_000_000
        one.remove_peer("frozen")
        idle(one, other)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000
    finally:
        tracemalloc.stop()
    if shared_before:
        assert mappings() == shared_before - 1
    assert one.sent["frozen"] + one.undelivered["frozen"] == 14
    assert one.send("frozen", push(0)) == 0
    assert not any((one.queued, one.held))


def test_a_peer_that_dies_behind_a_cut_is_broken(make: Callable[..., Endpoint]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    warm(one, two)
    impair(one, two, cut=True)
    run((one, two), lambda: not (one.sending or two.receiving))
    one.send("two", push(1))
    two.close()
    one.set_link_fault("two")
    run((one,), lambda: one.unreachable)
    assert (one.sent["two"], one.undelivered["two"]) == (2, 1)
    assert one.send("two", push(2)) == 0


def test_a_peer_that_dies_in_the_middle_of_a_cut_is_broken(make: Callable[..., Endpoint]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    warm(one, two)
    for step in range(2):
        one.send("two", push(step, 10_000_000))  # 40 MB: the first is not half taken
    impair(one, two, cut=True)
    two.close()
    run((one,), lambda: one.unreachable)
    assert (one.sent["two"], one.undelivered["two"]) == (2, 2)
    assert not one.held


def test_a_closed_connection_is_an_acknowledgement(make: Callable[..., Endpoint], clock: Clock) -> None:
    class Drawn(random.Random):
        """The transmission arrives, its acknowledgement does not. Nothing else is drawn: nothing is retransmitted."""

        values = iter([0.9, 0.1])

        def random(self) -> float:
            return next(self.values)

    drawn = Drawn()
    one, two = pair = make("one", random=lambda peer: drawn), make("two")
    introduce(one, two)
    warm(one, two)
    impair(one, two, drop=0.5)
    one.send("two", push(1))
    assert list(drawn.values) == []
    assert one.held == {"two": 0}
    impair(one, two, drop=0.5, cut=True)
    run(pair, lambda: not one.sending)
    impair(one, two, drop=0.5)
    for _ in range(3):
        clock.advance(RESEND_S)
        idle(one, two)
    assert steps(two) == [1]
    assert not two.repeated


def test_a_number_that_does_not_fit_is_refused() -> None:
    with contextlib.closing(Endpoint("one", 0, FrameCodec(KINDS))) as one, dial(one, hello(one, "mad", after=5)):
        run((one,), lambda: one.refused)
        assert "continues after frame 5" in one.refused[0]
    assert not one.inbox


# any fault, at any time - ---------------------------------------------------------------------------------------------

SIZES = (0, 10, 300, 20_000, 500_000)  # numbers in a message


def act(chance: random.Random, endpoints: list[Endpoint], sent: dict[tuple[str, str], int]) -> None:
    """Perform one of the events that can happen at any moment."""
    one, two = chance.sample(endpoints, 2)
    what = chance.random()
    if what < 0.45:
        step = sent[one.name, two.name] = sent.get((one.name, two.name), -1) + 1
        one.send(two.name, push(step, chance.choice(SIZES)))
    elif what < 0.75:
        for _ in range(chance.choice((1, 1, 5))):
            one.poll(chance.choice((0.0, 0.0, 0.001)))
    elif what < 0.97:
        how: dict[str, Any] = chance.choice(
            (
                {}, {}, {"cut": True}, {"cut": True}, {"delay": 0.003}, {"drop": 0.3}, {"drop": 0.2, "delay": 0.001},
                {"per_byte": 1e-8}, {"per_byte": 1e-8, "drop": 0.2},
            )
        )  # fmt: skip
        one.limit(how.get("per_byte", 0.0))
        peer = chance.choice((two.name, two.name, None))
        one.set_link_fault(peer, **how)
        if chance.random() < 0.6:  # else the other end is not notified yet
            two.set_link_fault(one.name, **how)
    else:
        one.flush()


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_messages_arrive_once_and_in_order(make: Callable[..., Endpoint], seed: int, small: bool) -> None:
    chance = random.Random(seed)
    size = 4096 if small else SIZE  # small: most frames wait for room
    endpoints = [
        make(name, memory_size=size, resend_s=0.002) for name in ("one", "two", "three")[: chance.choice((2, 3))]
    ]
    introduce(*endpoints)
    if chance.random() < 0.5:
        connect(*endpoints)
    sent: dict[tuple[str, str], int] = {}
    for _ in range(120):
        act(chance, endpoints, sent)
    for endpoint in chance.sample(endpoints, len(endpoints)):
        endpoint.set_link_fault(None)
    run(
        tuple(endpoints),
        lambda: sum(len(endpoint.inbox) for endpoint in endpoints) == sum(last + 1 for last in sent.values()),
    )
    run(tuple(endpoints), lambda: not any(endpoint.held for endpoint in endpoints))  # unaffected by the fault
    idle(*endpoints)
    for (here, there), last in sent.items():
        receiver = next(endpoint for endpoint in endpoints if endpoint.name == there)
        sender = next(endpoint for endpoint in endpoints if endpoint.name == here)
        assert steps(receiver, here) == list(range(last + 1))
        assert sender.sent[there] == receiver.received[here] == last + 1
    for endpoint in endpoints:
        assert all((message.values == message.step).all() for message in values(endpoint))
        assert not any((endpoint.left, endpoint.lost, endpoint.refused, endpoint.unreachable, +endpoint.undelivered))
