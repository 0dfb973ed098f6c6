"""The wire: everything arrives, in order and unchanged; nobody waits for anybody; strangers change nothing."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.engines.dask.frames import HEADER, MAGIC, Codec
from labkit.engines.dask.handshake import Hello, Identity
from labkit.engines.dask.shared import available
from labkit.engines.dask.wire import Wire
from labkit.errors import BadInput, RoleError
from labkit.roles.messages import Ack, Message, Pull, Push, Weights

KINDS = (Push, Pull, Weights, Ack)
PATIENCE = 20.0  # seconds; only a broken test waits that long

socket_only = pytest.mark.parametrize("share", [False])  # tests of what happens before, or without, shared memory


@dataclass(frozen=True)
class Foo(Message):
    pass


@pytest.fixture(params=[True, False], ids=["memory", "socket"])
def share(request: pytest.FixtureRequest) -> bool:
    """Whether frames travel through shared memory, once a link is open."""
    if request.param and not available():
        pytest.skip("processes of this machine cannot share memory: see labkit.engines.dask.shared.available")
    return bool(request.param)


@pytest.fixture
def pair(make: Callable[..., Wire]) -> tuple[Wire, Wire]:
    one, two = make("one"), make("two")
    introduce(one, two)
    connect(one, two)
    return one, two


def introduce(*wires: Wire) -> None:
    for here in wires:
        for there in wires:
            if here is not there:
                here.know(there.name, *there.contact, there.incarnation)


def connect(*wires: Wire) -> None:
    """Open all links. Nothing is sent, but from now on every frame goes through the memory, where it is shared."""
    pairs = [(here, there.name) for here in wires for there in wires if here is not there]
    links = [here._out.by_name.get(name) or here._dial(name) for here, name in pairs]
    hellos = len(wires) - 1
    run(wires, lambda: all(len(wire._incoming) - len(wire._strangers) >= hellos for wire in wires))
    run(wires, lambda: not any(link is None or link.opening for link in links))
    assert all(link is not None and (link.stream is None or link.stream.taken()) for link in links)


def run(wires: tuple[Wire, ...], done: Callable[[], Any]) -> None:
    """Let the wires work until `done()`."""
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, "waited in vain"
        for wire in wires:
            wire.flush()
            wire.poll(0.001)


def values(wire: Wire) -> list[Any]:
    return [delivered.message for delivered in wire.inbox]


def dial(wire: Wire, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(wire.address)
    sock.settimeout(PATIENCE)
    sock.sendall(data)
    return sock


def hello(to: Wire, name: str = "stranger", incarnation: int = 0, run: str = "", **more: Any) -> bytes:
    """The hello of a role instance that `to` has heard of."""
    identity = Identity()
    to.know(name, "127.0.0.1", 9, identity.public, incarnation)
    return Hello(run, name, more.pop("called", to.name), incarnation, **more).pack(identity.key(to.identity.public))


def is_closed(sock: socket.socket) -> bool:
    """Within the time limit; after what the acceptor had to say."""
    with sock, contextlib.suppress(ConnectionResetError):
        while sock.recv(100):
            pass
    return True


def test_a_message_arrives_with_what_its_frame_says(make: Callable[..., Wire], share: bool) -> None:
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
    assert one._out.by_name["two"].shares is two._incoming[next(iter(two._incoming))].shares is share


@pytest.mark.parametrize("size", [0, 1, 100, 400, 500, 40_000, 1_000_003, 20_000_000])
def test_any_size_arrives(pair: tuple[Wire, Wire], size: int) -> None:
    one, two = pair
    array = np.random.default_rng(0).integers(0, 255, size, np.uint8)
    for step in range(2):
        assert one.send("two", Push(array, step, 0, 0)) == size
    run(pair, lambda: len(two.inbox) == 2)
    for message in values(two):
        np.testing.assert_array_equal(message.values, array)


def test_many_arrays_in_one_message(pair: tuple[Wire, Wire]) -> None:
    one, two = pair
    arrays = tuple(np.full(i % 7, i) for i in range(600))
    total = sum(array.nbytes for array in arrays)
    shapes = 8 * sum(not array.size for array in arrays)  # an empty array carries nothing but its shape, which is counted
    assert one.send("two", Push(arrays, 0, 0, 0)) == total + shapes  # type: ignore[arg-type]
    run(pair, lambda: two.inbox)
    assert two.inbox[0].nbytes == total
    for got, array in zip(values(two)[0].values, arrays, strict=True):
        np.testing.assert_array_equal(got, array)


def test_ten_thousand_messages_keep_their_order(pair: tuple[Wire, Wire]) -> None:
    one, two = pair
    for step in range(10_000):
        if step % 100:
            one.send("two", Ack(step))
        else:
            one.send("two", Push(np.full(3000, step), step, 0, 0))
    run(pair, lambda: len(two.inbox) == 10_000)
    assert [message.step for message in values(two)] == list(range(10_000))


def test_the_sender_may_overwrite_its_array_at_once(pair: tuple[Wire, Wire]) -> None:
    one, two = pair
    array = np.empty(3_000_000)
    for step in range(4):  # more than the kernel takes
        array[:] = step
        one.send("two", Push(array, step, 0, 0))
    array[:] = -1
    run(pair, lambda: len(two.inbox) == 4)
    for step, message in enumerate(values(two)):
        assert (message.values == step).all()


def test_an_array_stays_what_it_was_while_others_arrive(pair: tuple[Wire, Wire]) -> None:
    one, two = pair
    held: list[np.ndarray] = []
    for step in range(60):
        one.send("two", Push(np.full(20_000, step), step, 0, 0))
        run(pair, lambda: two.inbox)
        message: Any = two.inbox.popleft().message
        if step % 3 == 0:
            held.append(message.values[5:10])  # a view is enough
        elif step % 3 == 1:
            message.values[:] = -1  # it is the receiver's own
    for index, array in enumerate(held):
        assert (array == 3 * index).all()


def test_two_roles_that_send_64_mb_at_once_do_not_deadlock(pair: tuple[Wire, Wire]) -> None:
    def talk(here: Wire, there: str, number: int) -> None:
        here.send(there, Push(np.full(16 << 20, number, np.float32), 0, 0, 0))
        until = time.monotonic() + PATIENCE
        while (not here.inbox or here._out.waiting) and time.monotonic() < until:
            here.poll(1.0)

    one, two = pair
    threads = [threading.Thread(target=talk, args=arguments) for arguments in ((one, "two", 1), (two, "one", 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [message.values[[0, -1]].tolist() for message in values(one)] == [[2, 2]]
    assert [message.values[[0, -1]].tolist() for message in values(two)] == [[1, 1]]


def test_a_slow_reader_stops_nobody(make: Callable[..., Wire]) -> None:
    fast, slow, other = wires = make("fast"), make("slow"), make("other")
    introduce(*wires)
    connect(*wires)
    for step in range(8):
        fast.send("slow", Push(np.zeros(1_000_000), step, 0, 0))  # slow reads nothing
    fast.send("other", Ack(7))
    run((fast, other), lambda: other.inbox)
    assert fast._out.waiting
    run(wires, lambda: len(slow.inbox) == 8)


def test_poll_does_where_there_is_no_epoll(make: Callable[..., Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll", raising=False)
    one, two = make("one"), make("two")
    introduce(one, two)
    for step in range(3):
        one.send("two", Push(np.full(2_000_000, step), step, 0, 0))
    run((one, two), lambda: len(two.inbox) == 3)
    assert [message.values[-1] for message in values(two)] == [0, 1, 2]
    one.close()
    assert two.drain({"one"}, PATIENCE) == set()


@socket_only
def test_wake_ends_a_poll_from_another_thread(pair: tuple[Wire, Wire]) -> None:
    one, _ = pair
    threading.Thread(target=one.wake).start()
    start = time.monotonic()
    one.poll(PATIENCE)
    assert time.monotonic() - start < PATIENCE / 2
    for _ in range(100_000):  # nobody reads: it rings, and does not block
        one.wake()


def test_a_wire_that_is_tended_is_reached_and_says_what_it_has_sent_but_hears_nothing(make: Callable[..., Wire]) -> None:
    """As that of a paused role: handshakes are completed, so that a peer that goes on does not wait for it."""
    one, two = make("one"), make("two")
    introduce(one, two)
    one.send("two", Pull())  # its handshake has to be answered by `two`
    two.send("one", Pull())  # and this one by `one`, which does not poll
    until = time.monotonic() + PATIENCE
    while not two.inbox or two._out.waiting:
        assert time.monotonic() < until, "waited in vain"
        one.tend()
        two.poll(0.01)
    assert len(two.inbox) == 1
    for _ in range(20):
        one.tend()
    assert not one.inbox
    run((one, two), lambda: one.inbox)
    assert len(one.inbox) == 1


def test_what_may_not_be_sent_changes_nothing(pair: tuple[Wire, Wire], make: Callable[..., Wire]) -> None:
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
    (b"LKH4" + b"\xff" * 600, "a hello of"),
    (bytes(range(200, 216)), "no hello"),
]


@socket_only
@pytest.mark.parametrize(("data", "why"), GARBAGE)
def test_garbage_is_refused_and_changes_nothing(pair: tuple[Wire, Wire], data: bytes, why: str) -> None:
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
def test_strangers_are_refused(pair: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair
    reasons = [
        (hello(two, called="one", name="two"), "not signed"),  # by a role of this run, meant for another
        (Hello("", "two", "one", 0).pack(Identity().key(one.identity.public)), "not signed"),
        (hello(one, called="two"), "looks for 'two'"),
        (hello(one, run="another"), "run 'another'"),
        (hello(one, name=""), "looks for"),
    ]
    for data, why in reasons:
        sock = dial(one, data + HEADER.pack(MAGIC, 1, 0, 0, 16, 0, 1, 0, 0, 0) + bytes(16))
        run(pair, lambda: one.refused)
        assert why in one.refused.pop()
        assert is_closed(sock)
    dial(one, hello(one)[:9]).close()
    run(pair, lambda: one.refused)
    assert "closed before its hello" in one.refused.pop()
    sock = dial(one, hello(one)[:9])
    run(pair, lambda: one._strangers)
    later = time.monotonic() + 100
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: later)
        one.poll(0.0)
    assert "no hello in time" in one.refused.pop()
    assert is_closed(sock)
    assert not one.inbox
    assert not one.lost


@socket_only
@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (HEADER.pack(MAGIC, 0, 0, 0, 16, 0, 1, 0, 0, 1 << 40), "at most 2,147,483,648"),
        (HEADER.pack(MAGIC, 9, 0, 0, 16, 0, 1, 0, 0, 0) + bytes(16), "makes no sense"),
        (HEADER.pack(MAGIC, 3, 0, 0, 16, 0, 7, 0, 0, 0) + bytes(16), "frame 7 where 1 is due"),
        (HEADER.pack(MAGIC, 3, 0, 0, 0, 0, 1, 0, 0, 0), "makes no sense"),
        (bytes(48), "no frame"),
    ],
)
def test_a_bad_frame_ends_its_connection_only(pair: tuple[Wire, Wire], frame: bytes, why: str) -> None:
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
def test_a_truncated_frame_is_a_loss_and_no_message(pair: tuple[Wire, Wire]) -> None:
    one, _ = pair
    dial(one, hello(one, "dying") + HEADER.pack(MAGIC, 0, 0, 0, 64, 0, 1, 0, 0, 4000) + bytes(1000)).close()
    run(pair, lambda: one.lost)
    assert one.lost == {"dying"}
    assert not one.inbox


def test_an_earlier_incarnation_is_refused(make: Callable[..., Wire]) -> None:
    server, old, new = make("server"), make("worker", 0), make("worker", 1)
    for worker in (old, new):
        introduce(server, worker)
        worker.send("server", Ack(worker.incarnation))
        run((server, worker), lambda worker=worker: len(server.inbox) == worker.incarnation + 1)
    assert "worker: incarnation 0, but 1 is known" in server.refused  # closed when the new one came
    run((old,), lambda: "server" in old.broken)
    late = make("worker", 0)
    introduce(server, late)
    assert server.peers["worker"][3] == 1
    late.send("server", Ack(0))
    run((server, late), lambda: any("incarnation 0 of worker" in refusal for refusal in server.refused))
    assert [(m.sender, m.incarnation) for m in values(server)] == [("worker", 0), ("worker", 1)]
    assert server.received == {"worker": 1}
    assert not server.lost


def test_a_restarted_role_waits_for_the_news_of_it(make: Callable[..., Wire]) -> None:
    """Only Dask says which incarnation there is: else a role could fence another off by claiming to be its next one."""
    server, old, new = make("server"), make("worker", 0), make("worker", 1)
    introduce(server, old)
    server.send("worker", Ack(0))
    run((server, old), lambda: old.inbox)
    new.know("server", *server.contact, 0)
    new.send("server", Pull())
    run((server, new), lambda: any(end.said for end in server._strangers.values()))
    old.send("server", Ack(7))
    run((server, old, new), lambda: server.inbox)
    assert values(server) == [Ack(7)]
    introduce(server, new)
    server.send("worker", Ack(1))
    run((server, new), lambda: new.inbox and len(server.inbox) == 2)
    assert values(new) == [Ack(1)]
    assert server.sent == {"worker": 1}


def test_a_vanished_peer_is_counted_and_no_exception(make: Callable[..., Wire]) -> None:
    one, two = make("one"), make("two")
    introduce(one, two)
    connect(one, two)
    one.send("two", Pull())
    run((one, two), lambda: two.inbox)
    for _ in range(4):
        one.send("two", Push(np.zeros(2_000_000), 0, 0, 0))
    two.close()
    run((one,), lambda: one.broken)
    assert one.send("two", Pull()) == 0
    assert 2 <= one.undelivered["two"] <= 5  # what the kernel had taken counts as sent
    assert one.sent["two"] + one.undelivered["two"] == 6
    one.know("nobody", "127.0.0.1", two.address[1], two.identity.public, 0)  # where nobody listens
    one.send("nobody", Pull())
    run((one,), lambda: one.undelivered["nobody"] == 1)
    one.forget("nobody")
    one.send("nobody", Pull())
    assert one.undelivered["nobody"] == 2
    assert one.sent["nobody"] == 0


def test_the_end_in_order_counts_what_was_under_way(make: Callable[..., Wire]) -> None:
    server, *workers = wires = make("server"), make("worker-0"), make("worker-1")
    introduce(*wires)
    connect(*wires)
    for worker in workers:
        for step in range(50):
            worker.send("server", Push(np.zeros(5000), step, 0, 0))
    threads = [threading.Thread(target=worker.finish_sending, args=(PATIENCE,)) for worker in workers]
    for thread in threads:
        thread.start()
    still = {"worker-0", "worker-1"}
    while any(thread.is_alive() for thread in threads):
        server.poll(0.01)
    assert server.drain(still, PATIENCE) == set()
    assert server.received == {"worker-0": 50, "worker-1": 50}
    assert sum(worker.sent["server"] for worker in workers) == len(server.inbox) == 100
    assert (server.left, server.lost) == (still, set())
    assert workers[0].send("server", Pull()) == 0
    assert workers[0].undelivered["server"] == 1


def test_an_end_without_goodbye_is_a_loss(pair: tuple[Wire, Wire]) -> None:
    one, two = pair
    one.send("two", Pull())
    one.close()
    assert two.drain({"one"}, PATIENCE) == set()
    assert (two.left, two.lost, len(two.inbox)) == (set(), {"one"}, 1)


def test_ends_that_do_not_come_are_named(make: Callable[..., Wire]) -> None:
    one, two, three = wires = make("one"), make("two"), make("three")
    introduce(*wires)
    connect(*wires)
    for wire in (two, three):
        wire.send("one", Pull())
    run(wires, lambda: len(one.inbox) == 2)
    assert one.drain({"two", "never there"}, 0.01) == {"two"}
    two.send("one", Push(np.zeros(4_000_000), 0, 0, 0))
    assert two.finish_sending(0.0) == {"one"}
    two.close()
    assert one.drain({"two"}, PATIENCE) == set()  # three is still there, and not waited for
    assert one.lost == {"two"}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_no_descriptor_leaks(pair: tuple[Wire, Wire], share: bool) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    one, _ = pair
    before = descriptors()
    reset = struct.pack("ii", 1, 0)
    for index in range(600):
        sock = dial(one, (b"", b"garbage", hello(one, f"w{index}"))[index % 3])
        if index % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        sock.close()
        one.poll(0.0)
    run(pair, lambda: len(one._incoming) == 1)
    assert len(one.refused) <= 1000
    for incarnation in range(1, 60):
        peer = Wire("peer", incarnation, Codec(KINDS), share=share)
        introduce(one, peer)
        one.send("peer", Pull())
        peer.send("one", Pull())
        run((one, peer), lambda peer=peer: peer.inbox and one.inbox)
        one.inbox.clear()
        peer.close()
    run(pair, lambda: len(one._incoming) == len(one._out.by_fd) == 1)
    assert descriptors() < before + 30  # a leak would be of hundreds; others in this process open and close some


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ssl.SSLContext]:
    """Contexts with a certificate of their own, checked on both sides."""
    if shutil.which("openssl") is None:
        pytest.fail("This test makes a certificate: install the `openssl` command.")
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    command = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        ["openssl", *command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate)
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=certificate)
    for context in (server, client):
        context.load_cert_chain(certificate, key)
    server.verify_mode = ssl.CERT_REQUIRED
    return {"server_context": server, "client_context": client}


def test_tls_carries_everything(make: Callable[..., Wire], tls: dict[str, ssl.SSLContext]) -> None:
    one, two = make("one", **tls), make("two", **tls)
    introduce(one, two)
    array = np.random.default_rng(0).random(1_000_000)
    for here, there in ((one, "two"), (two, "one")):
        here.send(there, Pull())
        assert here.send(there, Push(array, 1, 0, 0)) == array.nbytes
        here.send(there, Ack(5))
    run((one, two), lambda: len(one.inbox) == len(two.inbox) == 3)
    for wire in (one, two):
        np.testing.assert_array_equal(values(wire)[1].values, array)
    end = next(iter(one._incoming.values()))
    assert isinstance(end.sock, ssl.SSLSocket)
    assert end.stream is two._out.by_name["one"].stream is None  # memory would not be encrypted
    thread = threading.Thread(target=one.finish_sending, args=(PATIENCE,))
    thread.start()
    assert two.drain({"one"}, PATIENCE) == set()
    thread.join()
    assert two.left == {"one"}


@socket_only
def test_plain_and_tls_do_not_talk(make: Callable[..., Wire], tls: dict[str, ssl.SSLContext]) -> None:
    plain, safe = make("plain"), make("safe", **tls)
    introduce(plain, safe)
    for here, there in ((plain, safe), (safe, plain)):
        here.send(there.name, Pull())
        run((plain, safe), lambda here=here, there=there: there.refused and here.broken)
        assert not there.inbox
    anonymous = ssl.create_default_context()
    anonymous.check_hostname = False
    anonymous.verify_mode = ssl.CERT_NONE
    sly = make("sly", server_context=tls["server_context"], client_context=anonymous)
    introduce(sly, safe)
    sly.send("safe", Pull())
    run((sly, safe), lambda: sly.broken)
    assert len(safe.refused) > 1
    assert not safe.inbox
