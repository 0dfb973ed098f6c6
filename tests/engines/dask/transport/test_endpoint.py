"""Endpoints: messages arrive in order and unchanged; no role blocks another; foreign processes have no effect."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import HEADER, MAGIC, FrameCodec
from labkit.engines.dask.transport.handshake import REFUSED, Hello, Identity
from labkit.engines.dask.transport.shared_memory import available
from labkit.errors import BadInput, RoleError
from labkit.roles.messages import Ack, Message, Pull, Push
from tests.engines.dask.transport.helpers import (
    KINDS,
    LONG,
    connect,
    contents,
    descriptors,
    dial,
    hello,
    introduce,
    is_closed,
    receiving_from,
    run,
    sending_to,
    values,
)  # fmt: skip

socket_only = pytest.mark.parametrize("share", [False])  # tests of what happens before, or without, shared memory


@dataclass(frozen=True)
class Foo(Message):
    pass


@pytest.fixture(params=[True, False], ids=["memory", "socket"])
def share(request: pytest.FixtureRequest) -> bool:
    """Whether frames travel through shared memory, once a link is open."""
    if request.param and not available():
        pytest.skip(
            "processes of this machine cannot share memory: see labkit.engines.dask.transport.shared_memory.available"
        )
    return bool(request.param)


@pytest.fixture
def pair(make: Callable[..., Endpoint]) -> tuple[Endpoint, Endpoint]:
    one, two = make("one"), make("two")
    introduce(one, two)
    connect(one, two)
    return one, two


def test_a_message_arrives_with_the_fields_of_its_frame(make: Callable[..., Endpoint], share: bool) -> None:
    one, two = make("one", 4, clock=lambda: 17), make("two", clock=lambda: 42)
    introduce(one, two)
    connect(one, two)
    array = np.arange(10, dtype="f4")
    assert one.send("two", Push(array, 3, 2, 1), category=5, computed=99) == 40
    assert one.send("two", Pull()) == 0
    run((one, two), lambda: len(two.inbox) == 2)
    push = two.inbox[0]
    assert isinstance(push.message, Push)
    np.testing.assert_array_equal(push.message.values, array)
    assert (push.message.sender, push.message.incarnation, push.message.step) == ("one", 4, 3)
    assert (push.kind_index, push.category, push.sent_ns) == (0, 5, 17)
    assert (push.received_ns, push.computed, push.nbytes) == (42, 99, 40)
    assert two.inbox[1].nbytes == 0
    assert one.sent == {"two": 2}
    assert two.received == {"one": 2}
    assert sending_to(one, "two").in_memory is receiving_from(two, "one").in_memory is share


@pytest.mark.parametrize("size", [0, 1, 100, 400, 500, 40_000, 1_000_003, 20_000_000])
def test_any_size_arrives(pair: tuple[Endpoint, Endpoint], size: int) -> None:
    one, two = pair
    array = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    for step in range(2):
        assert one.send("two", Push(array, step, 0, 0)) == size
    run(pair, lambda: len(two.inbox) == 2)
    for message in values(two):
        np.testing.assert_array_equal(message.values, array)


def test_many_arrays_in_one_message(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    arrays = tuple(np.full(i % 7, i) for i in range(600))
    total = sum(array.nbytes for array in arrays)
    shapes = 8 * sum(not array.size for array in arrays)  # an empty array consists of its shape only, which is counted
    assert one.send("two", Push(arrays, 0, 0, 0)) == total + shapes  # type: ignore[arg-type]
    run(pair, lambda: two.inbox)
    assert two.inbox[0].nbytes == total
    for got, array in zip(values(two)[0].values, arrays, strict=True):
        np.testing.assert_array_equal(got, array)


def test_ten_thousand_messages_keep_their_order(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    for step in range(10_000):
        if step % 100:
            one.send("two", Ack(step))
        else:
            one.send("two", Push(np.full(3000, step), step, 0, 0))
    run(pair, lambda: len(two.inbox) == 10_000)
    assert [message.step for message in values(two)] == list(range(10_000))


def test_the_sender_may_overwrite_its_array_at_once(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    array = np.empty(3_000_000)
    for step in range(4):  # more than the kernel takes
        array[:] = step
        one.send("two", Push(array, step, 0, 0))
    array[:] = -1
    run(pair, lambda: len(two.inbox) == 4)
    for step, message in enumerate(values(two)):
        assert (message.values == step).all()


def test_received_arrays_are_not_overwritten_by_later_messages(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    held: list[np.ndarray] = []
    for step in range(60):
        one.send("two", Push(np.full(20_000, step), step, 0, 0))
        run(pair, lambda: two.inbox)
        message: Any = two.inbox.popleft().message
        if step % 3 == 0:
            held.append(message.values[5:10])  # a view is enough
        elif step % 3 == 1:
            message.values[:] = -1  # it belongs to the receiver
    for index, array in enumerate(held):
        assert (array == 3 * index).all()


def test_two_roles_that_send_64_mb_at_once_do_not_deadlock(pair: tuple[Endpoint, Endpoint]) -> None:
    def talk(here: Endpoint, there: str, number: int) -> None:
        here.send(there, Push(np.full(16 << 20, number, np.float32), 0, 0, 0))
        while not here.inbox or here.queued:
            here.poll(1.0)

    one, two = pair
    threads = [threading.Thread(target=talk, args=arguments) for arguments in ((one, "two", 1), (two, "one", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [message.values[[0, -1]].tolist() for message in values(one)] == [[2, 2]]
    assert [message.values[[0, -1]].tolist() for message in values(two)] == [[1, 1]]


def test_a_slow_reader_blocks_no_other(make: Callable[..., Endpoint]) -> None:
    fast, slow, other = endpoints = make("fast"), make("slow"), make("other")
    introduce(*endpoints)
    connect(*endpoints)
    for step in range(8):
        fast.send("slow", Push(np.zeros(1_000_000), step, 0, 0))  # slow reads nothing
    fast.send("other", Ack(7))
    run((fast, other), lambda: other.inbox)
    assert fast.queued
    run(endpoints, lambda: len(slow.inbox) == 8)


def test_poll_is_used_without_epoll(make: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    one, two = make("one"), make("two")
    introduce(one, two)
    for step in range(3):
        one.send("two", Push(np.full(2_000_000, step), step, 0, 0))
    run((one, two), lambda: len(two.inbox) == 3)
    assert [message.values[-1] for message in values(two)] == [0, 1, 2]
    one.close()
    assert two.drain({"one"}, LONG) == set()


@socket_only
def test_wake_ends_a_poll_from_another_thread(pair: tuple[Endpoint, Endpoint]) -> None:
    one, _ = pair
    threading.Thread(target=one.wake).start()
    one.poll(LONG)
    for _ in range(100_000):  # it is not read: the doorbell is rung, and send does not block
        one.wake()


def test_a_suspended_endpoint_accepts_connections_and_reports_what_it_sent_but_reads_nothing(
    make: Callable[..., Endpoint],
) -> None:
    """As for a paused role: handshakes are completed, so that a running peer does not wait for it."""
    one, two = make("one"), make("two")
    introduce(one, two)
    one.send("two", Pull())  # its handshake has to be answered by `two`
    two.send("one", Pull())  # and this one by `one`, which does not poll
    while not two.inbox or two.queued:
        one.progress()
        two.poll(0.01)
    assert len(two.inbox) == 1
    for _ in range(20):
        one.progress()
    assert not one.inbox
    run((one, two), lambda: one.inbox)
    assert len(one.inbox) == 1


def test_a_refused_message_changes_nothing(pair: tuple[Endpoint, Endpoint], make: Callable[..., Endpoint]) -> None:
    one, _ = pair
    with pytest.raises(
        RoleError, match=r"^one sends Foo, which is not listed in messages = \(Push, Pull, Weights, Ack\)$"
    ):
        one.send("two", Foo())
    with pytest.raises(RoleError, match="Did you mean 'two'"):
        one.send("tow", Pull())
    with pytest.raises(RoleError, match=r"Push\.values holds a list"):
        one.send("two", Push([1.0], 0, 0, 0))  # type: ignore[arg-type]
    small = make("small", max_frame=1000)
    introduce(small, one)
    with pytest.raises(RoleError, match="at most 1,000"):
        small.send("one", Push(np.zeros(1000), 0, 0, 0))
    assert not +one.sent
    assert not +small.sent
    with pytest.raises(BadInput, match="both TLS contexts"):
        make("half", client_context=ssl.create_default_context())


GARBAGE = [
    (b"GET / HTTP/1.1\r\n\r\n", "no hello"),
    (b"\0" * 600, "no hello"),
    (b"LKHi\xff\xff" + b"\xff" * 600, "it uses protocol 65535, and this process protocol"),
    (REFUSED.replace(b"LKRe", b"LKHi") + b"\xff" * 600, "a hello of"),
    (bytes(range(200, 216)), "no hello"),
]


@socket_only
@pytest.mark.parametrize(("data", "why"), GARBAGE)
def test_garbage_is_refused_and_changes_nothing(pair: tuple[Endpoint, Endpoint], data: bytes, why: str) -> None:
    one, two = pair
    sock = dial(one, data)
    run(pair, lambda: one.refused)
    assert why in one.refused[0]
    assert is_closed(sock)
    two.send("one", Pull())
    run(pair, lambda: one.inbox)
    assert len(one.inbox) == 1
    assert not one.lost


@socket_only
def test_other_processes_are_refused(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    reasons = [
        (hello(two, called="one", name="two"), "not signed"),  # by a role of this run, meant for another
        (Hello("", "two", "one", 0).pack(Identity().key(one.identity.public)), "not signed"),
        (hello(one, called="two"), "to 'two' of run"),
        (hello(one, run="another"), "run 'another'"),
        (hello(one, name=""), "a connection of '' to"),
    ]
    for data, why in reasons:
        sock = dial(one, data + HEADER.pack(MAGIC, 1, 0, 0, 16, 0, 1, 0, 0, 0) + bytes(16))
        run(pair, lambda: one.refused)
        assert why in one.refused.pop()
        assert is_closed(sock)
    dial(one, hello(one)[:9]).close()
    run(pair, lambda: one.refused)
    assert "closed before its hello" in one.refused.pop()
    assert not one.inbox
    assert not one.lost


@socket_only
def test_a_handshake_has_a_time_limit(make: Callable[..., Endpoint]) -> None:
    late = 0.0
    one = make("one", now=lambda: time.monotonic() + late)
    sock = dial(one, hello(one)[:9])
    run((one,), lambda: one.unauthenticated)
    assert not one.refused
    late = 100.0
    one.poll(0.0)
    assert "no hello in time" in one.refused.pop()
    assert is_closed(sock)


@socket_only
@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (HEADER.pack(MAGIC, 0, 0, 0, 16, 0, 1, 0, 0, 1 << 40), "at most 2,147,483,648"),
        (HEADER.pack(MAGIC, 9, 0, 0, 16, 0, 1, 0, 0, 0) + bytes(16), "an invalid frame of kind"),
        (HEADER.pack(MAGIC, 3, 0, 0, 16, 0, 7, 0, 0, 0) + bytes(16), "frame 7 where 1 is due"),
        (HEADER.pack(MAGIC, 3, 0, 0, 0, 0, 1, 0, 0, 0), "an invalid frame of kind"),
        (bytes(48), "no frame"),
    ],
)
def test_a_bad_frame_ends_its_connection_only(pair: tuple[Endpoint, Endpoint], frame: bytes, why: str) -> None:
    one, two = pair
    sock = dial(one, hello(one, "mad") + frame)
    run(pair, lambda: one.refused)
    assert one.refused[0].startswith("mad: ")
    assert why in one.refused[0]
    assert is_closed(sock)
    assert one.lost == {"mad"}
    two.send("one", Pull())
    run(pair, lambda: one.inbox)


@socket_only
def test_a_truncated_frame_is_dropped_as_lost(pair: tuple[Endpoint, Endpoint]) -> None:
    one, _ = pair
    dial(one, hello(one, "dying") + HEADER.pack(MAGIC, 0, 0, 0, 64, 0, 1, 0, 0, 4000) + bytes(1000)).close()
    run(pair, lambda: one.lost)
    assert one.lost == {"dying"}
    assert not one.inbox


def test_an_earlier_incarnation_is_refused(make: Callable[..., Endpoint]) -> None:
    server, old, new = make("server"), make("worker", 0), make("worker", 1)
    for worker in (old, new):
        introduce(server, worker)
        worker.send("server", Ack(worker.incarnation))
        run((server, worker), lambda worker=worker: len(server.inbox) == worker.incarnation + 1)
    assert "worker: incarnation 0, but 1 is known" in server.refused  # closed when the new one was accepted
    run((old,), lambda: "server" in old.unreachable)
    late = make("worker", 0)
    introduce(server, late)
    server.send("worker", Ack(9))
    run((server, new, late), lambda: new.inbox)  # it is still the peer
    late.send("server", Ack(0))
    run((server, late), lambda: any("incarnation 0 of worker" in refusal for refusal in server.refused))
    assert [(m.sender, m.incarnation) for m in values(server)] == [("worker", 0), ("worker", 1)]
    assert server.received == {"worker": 1}
    assert not server.lost


def test_messages_from_and_to_a_fenced_role_are_dropped(make: Callable[..., Endpoint]) -> None:
    server, old, new = make("server"), make("worker", 0), make("worker", 1)
    introduce(server, old)
    old.send("server", Ack(0))
    server.send("worker", Ack(0))
    run((server, old), lambda: server.inbox and old.inbox)
    server.fence("worker", 1)  # it is lost, and its next incarnation is not announced yet
    assert server.refused == ["worker: incarnation 0, but 1 is known"]
    assert (server.received, server.sent, server.lost) == ({}, {}, set())
    assert server.send("worker", Ack(1)) == 0
    assert server.undelivered == {"worker": 1}
    again = make("worker", 0)
    introduce(server, again)  # a late notification about the earlier incarnation has no effect
    again.send("server", Ack(2))
    run((server, again), lambda: len(server.refused) == 2)
    introduce(server, new)
    new.send("server", Ack(3))
    server.send("worker", Ack(4))
    run((server, new), lambda: new.inbox and len(server.inbox) == 2)
    assert [(m.incarnation, m.step) for m in values(server)] == [(0, 0), (1, 3)]
    assert (server.sent, server.received) == ({"worker": 1}, {"worker": 1})
    server.fence("worker", 1)  # it is gone, but not earlier than itself
    new.send("server", Ack(5))
    run((server, new), lambda: len(server.inbox) == 3)


def test_a_restarted_role_waits_for_the_news_of_it(make: Callable[..., Endpoint]) -> None:
    """Only Dask announces incarnations: else a role could fence off another by claiming to be its next incarnation."""
    server, old, new = make("server"), make("worker", 0), make("worker", 1)
    introduce(server, old)
    server.send("worker", Ack(0))
    run((server, old), lambda: old.inbox)
    new.add_peer("server", *server.contact, 0)
    new.send("server", Pull())
    run((server, new), lambda: any(c.hello for c in server.unauthenticated))
    old.send("server", Ack(7))
    run((server, old, new), lambda: server.inbox)
    assert contents(server) == [Ack(7)]
    introduce(server, new)
    server.send("worker", Ack(1))
    run((server, new), lambda: new.inbox and len(server.inbox) == 2)
    assert contents(new) == [Ack(1)]
    assert server.sent == {"worker": 1}


def test_messages_to_a_vanished_peer_are_counted_without_an_exception(make: Callable[..., Endpoint]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    connect(one, two)
    one.send("two", Pull())
    run((one, two), lambda: two.inbox)
    for _ in range(4):
        one.send("two", Push(np.zeros(2_000_000), 0, 0, 0))
    two.close()
    run((one,), lambda: one.unreachable)
    assert one.send("two", Pull()) == 0
    assert 2 <= one.undelivered["two"] <= 5  # bytes accepted by the kernel count as sent
    assert one.sent["two"] + one.undelivered["two"] == 6
    one.add_peer("gone", "127.0.0.1", two.address[1], two.identity.public, 0)  # a port without listener
    one.send("gone", Pull())
    run((one,), lambda: one.undelivered["gone"] == 1)
    one.remove_peer("gone")
    one.send("gone", Pull())
    assert one.undelivered["gone"] == 2
    assert one.sent["gone"] == 0


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener whose kernel drops further connections, because nobody accepts those before."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        waiting = stack.enter_context(socket.create_connection(listener.getsockname()))
        assert waiting.getpeername() == listener.getsockname()
        yield listener.getsockname()[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other kernels queue more connections")
def test_peers_that_messages_do_not_reach_are_known(make: Callable[..., Endpoint], full: int) -> None:
    now = 0.0
    one, two, slow, cut = make("one", now=lambda: now), make("two"), make("slow"), make("cut")
    for peer in (two, slow, cut):  # of these only `two` polls, so the others look as if their processes were frozen
        one.add_peer(peer.name, *peer.contact, 0)
    two.add_peer("one", *one.contact, 0)
    key = two.identity.public
    with socket.create_server(("127.0.0.1", 0)) as closed:
        one.add_peer("closed", "127.0.0.1", closed.getsockname()[1], key, 3)
    one.add_peer("silent", "127.0.0.1", full, key, 4)
    one.set_link_fault("cut", cut=True)
    assert one.unanswered() == {}
    for peer in ("two", "slow", "cut", "closed", "silent"):
        one.send(peer, Pull())
    run((one, two), lambda: two.inbox and one.unreachable)
    why = {
        "closed": (3, 0.0, str(OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))),
        "silent": (4, 0.0, "no answer"),
    }
    assert one.unanswered() == why
    now = 10.0
    assert one.unanswered() == {peer: (incarnation, 10.0, reason) for peer, (incarnation, _, reason) in why.items()}
    now = 16.0
    run((one,), lambda: "silent" in one.unreachable)
    assert one.unanswered()["silent"] == (4, 16.0, "no answer within 15 s")
    one.add_peer("silent", *slow.contact, 5)  # it is restarted elsewhere
    one.fence("closed", 4)
    assert one.unanswered() == {}
    one.send("silent", Pull())
    run((one,), lambda: not one.unanswered())


def test_the_end_in_order_counts_what_was_under_way(make: Callable[..., Endpoint]) -> None:
    server, *workers = endpoints = make("server"), make("worker-0"), make("worker-1")
    introduce(*endpoints)
    connect(*endpoints)
    for worker in workers:
        for step in range(50):
            worker.send("server", Push(np.zeros(5000), step, 0, 0))
    threads = [threading.Thread(target=worker.finish_sending, args=(LONG,)) for worker in workers]
    for thread in threads:
        thread.start()
    still = {"worker-0", "worker-1"}
    while any(thread.is_alive() for thread in threads):
        server.poll(0.01)
    assert server.drain(still, LONG) == set()
    assert server.received == {"worker-0": 50, "worker-1": 50}
    assert sum(worker.sent["server"] for worker in workers) == len(server.inbox) == 100
    assert (server.left, server.lost) == (still, set())
    assert workers[0].send("server", Pull()) == 0
    assert workers[0].undelivered["server"] == 1


def test_a_connection_that_ends_without_a_close_frame_is_a_loss(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    one.send("two", Pull())
    one.close()
    assert two.drain({"one"}, LONG) == set()
    assert (two.left, two.lost, len(two.inbox)) == (set(), {"one"}, 1)


def test_ends_that_do_not_come_are_named(make: Callable[..., Endpoint]) -> None:
    one, two, three = endpoints = make("one"), make("two"), make("three")
    introduce(*endpoints)
    connect(*endpoints)
    for endpoint in (two, three):
        endpoint.send("one", Pull())
    run(endpoints, lambda: len(one.inbox) == 2)
    assert one.drain({"two", "never there"}, 0.01) == {"two"}
    two.send("one", Push(np.zeros(4_000_000), 0, 0, 0))
    assert two.finish_sending(0.0) == {"one"}
    two.close()
    assert one.drain({"two"}, LONG) == set()  # three still exists, and is not waited for
    assert one.lost == {"two"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_no_descriptor_leaks(pair: tuple[Endpoint, Endpoint], share: bool) -> None:
    one, _ = pair
    before = descriptors()
    reset = struct.pack("ii", 1, 0)
    for index in range(600):
        sock = dial(one, (b"", b"garbage", hello(one, f"w{index}"))[index % 3])
        if index % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        sock.close()
        one.poll(0.0)
    run(pair, lambda: len(one.receiving) + len(one.unauthenticated) == 1)
    assert len(one.refused) <= 1000
    for incarnation in range(1, 60):
        peer = Endpoint("peer", incarnation, FrameCodec(KINDS), share=share)
        introduce(one, peer)
        one.send("peer", Pull())
        peer.send("one", Pull())
        run((one, peer), lambda peer=peer: peer.inbox and one.inbox)
        one.inbox.clear()
        peer.close()
    run(pair, lambda: len(one.receiving) == len(one.sending) == 1 and not one.unauthenticated)
    assert descriptors() < before + 30  # a leak would be of hundreds; others in this process open and close some


def test_tls_carries_everything(make: Callable[..., Endpoint], tls: dict[str, ssl.SSLContext]) -> None:
    one, two = make("one", **tls), make("two", **tls)
    introduce(one, two)
    array = np.random.default_rng(0).random(1_000_000)
    for here, there in ((one, "two"), (two, "one")):
        here.send(there, Pull())
        assert here.send(there, Push(array, 1, 0, 0)) == array.nbytes
        here.send(there, Ack(5))
    run((one, two), lambda: len(one.inbox) == len(two.inbox) == 3)
    for endpoint in (one, two):
        np.testing.assert_array_equal(values(endpoint)[1].values, array)
    assert receiving_from(one, "two").encrypted
    assert (
        receiving_from(one, "two").sharing is sending_to(two, "one").sharing is False
    )  # memory would not be encrypted
    thread = threading.Thread(target=one.finish_sending, args=(LONG,))
    thread.start()
    assert two.drain({"one"}, LONG) == set()
    thread.join()
    assert two.left == {"one"}


@socket_only
def test_plain_and_tls_endpoints_do_not_connect(make: Callable[..., Endpoint], tls: dict[str, ssl.SSLContext]) -> None:
    plain, safe = make("plain"), make("safe", **tls)
    introduce(plain, safe)
    for here, there in ((plain, safe), (safe, plain)):
        here.send(there.name, Pull())
        run((plain, safe), lambda here=here, there=there: there.refused and here.unreachable)
        assert not there.inbox
    anonymous = ssl.create_default_context()
    anonymous.check_hostname = False
    anonymous.verify_mode = ssl.CERT_NONE
    sly = make("sly", server_context=tls["server_context"], client_context=anonymous)
    introduce(sly, safe)
    sly.send("safe", Pull())
    run((sly, safe), lambda: sly.unreachable)
    assert len(safe.refused) > 1
    assert not safe.inbox
