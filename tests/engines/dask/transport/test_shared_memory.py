"""Shared memory between two roles behaves as a socket does; a peer that violates the protocol is disconnected."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labkit.engines.dask.transport import connection
from labkit.engines.dask.transport.connection import ReceiveConnection, SendConnection
from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.engines.dask.transport.frames import HEADER, MAGIC, FrameCodec
from labkit.engines.dask.transport.handshake import Hello, Identity
from labkit.engines.dask.transport.shared_memory import (
    DATA,
    ORIGIN,
    READ,
    READER_SLEEPS,
    SEALS,
    SIZE,
    WRITTEN,
    MemoryReader,
    MemoryWriter,
    Offer,
    available,
)  # fmt: skip
from labkit.engines.dask.transport.tcp import TcpStream
from labkit.errors import RoleError
from labkit.roles.messages import Ack, Push
from tests.engines.dask.transport.helpers import (
    KINDS,
    LONG,
    Intruder,
    connect,
    contents,
    descriptors,
    introduce,
    mappings,
    receiving_from,
    run,
    sending_to,
    shut,
    values,
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    not available(),
    reason="processes of this machine cannot share memory: see labkit.engines.dask.transport.shared_memory.available",
)
SMALL, PIECE = 256, 64  # sizes of a small memory and of a piece of it, bytes


# one writer, one reader -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def memory(size: int = SMALL) -> Iterator[tuple[MemoryWriter, MemoryReader]]:
    with contextlib.ExitStack() as stack:
        writer = MemoryWriter(size, PIECE)
        stack.callback(writer.close)
        reader = MemoryReader(writer.offer, size)
        stack.callback(reader.close)
        yield writer, reader


@pytest.fixture
def ends() -> Iterator[tuple[MemoryWriter, MemoryReader]]:
    with memory() as pair:
        yield pair


def read(reader: MemoryReader, *sizes: int) -> bytes:
    buffers = [memoryview(bytearray(size)) for size in sizes]
    count = reader.read_into(buffers)
    return b"".join(buffers)[:count]


def test_the_reader_receives_the_written_bytes(ends: tuple[MemoryWriter, MemoryReader]) -> None:
    writer, reader = ends
    assert writer.write([b"ab", np.frombuffer(b"cde", np.uint8), b""]) == 5
    assert bytes(reader.peek()) == b"abcde"
    assert read(reader, 1, 0, 2) == b"abc"
    assert read(reader, 100) == b"de"
    with pytest.raises(BlockingIOError):
        read(reader, 100)
    assert len(reader.peek()) == 0


def test_a_write_to_almost_full_memory_is_partial_and_to_full_memory_blocks(
    ends: tuple[MemoryWriter, MemoryReader],
) -> None:
    writer, reader = ends
    assert writer.write([bytes(200), bytes(range(100))]) == SMALL
    for pieces in ([b"x"], [b"x" * 1000]):
        with pytest.raises(BlockingIOError):
            writer.write(pieces)
    assert writer.wait_for_room()
    assert read(reader, 200) == bytes(200)
    assert reader.writer_waits()
    assert not reader.writer_waits()  # once
    assert not writer.wait_for_room()
    assert writer.write([b"y" * 300]) == 200
    assert read(reader, 56) == bytes(range(56))
    assert read(reader, 300) == b"y" * 200


def test_an_empty_buffer_restarts_at_its_beginning(ends: tuple[MemoryWriter, MemoryReader]) -> None:
    writer, reader = ends
    for _ in range(5):
        writer.write([b"z" * 200])
        assert len(reader.peek()) == 200  # in one piece: not around the end
        reader.advance(200)


def test_a_struct_and_a_payload_in_one_piece_or_not_at_all(ends: tuple[MemoryWriter, MemoryReader]) -> None:
    writer, reader = ends
    packer = Struct("<q")
    assert writer.write_packed(packer, (7,), b"abc", 3)
    assert read(reader, 100) == packer.pack(7) + b"abc"
    assert not writer.write_packed(packer, (1 << 63,), b"abc", 3)  # no 64-bit number
    assert not writer.write_packed(packer, (7,), bytes(PIECE + 1), PIECE + 1)
    assert not reader.ready()
    writer.write([bytes(200)])
    assert not writer.write_packed(packer, (7,), bytes(50), 50)  # around the end
    read(reader, 199)
    assert not writer.write_packed(packer, (7,), bytes(50), 50)
    read(reader, 1)
    assert writer.write_packed(packer, (7,), bytes(50), 50)


def test_a_sleeping_reader_gets_one_doorbell(ends: tuple[MemoryWriter, MemoryReader]) -> None:
    writer, reader = ends
    assert not writer.reader_sleeps()
    assert reader.sleep()
    writer.write([b"x"])
    assert writer.reader_sleeps()
    assert not writer.reader_sleeps()
    assert not reader.sleep()  # there is something to read
    reader.cancel_sleep()
    assert not writer.reader_sleeps()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.lists(st.integers(0, SMALL + 50), max_size=4)),
            st.tuples(st.just("put"), st.integers(0, PIECE + 5)),
            st.tuples(st.just("read"), st.lists(st.integers(1, SMALL), min_size=1, max_size=3)),
            st.tuples(st.just("peek"), st.integers(0, SMALL)),
        ),
        max_size=40,
    )
)
@settings(deadline=None, max_examples=150)
def test_shared_memory_is_a_queue_of_bytes(steps: list[tuple[str, Any]]) -> None:
    packer, fresh = Struct("<q"), iter(lambda: os.urandom(1), b"")
    with memory() as (writer, reader):
        there = b""
        for what, argument in steps:
            if what == "send":
                pieces = [os.urandom(size) for size in argument]
                expected = min(sum(argument), SMALL - len(there))
                with contextlib.nullcontext() if expected else pytest.raises(BlockingIOError):
                    assert writer.write(pieces) == expected
                there += b"".join(pieces)[:expected]
            elif what == "put":
                payload = b"".join(next(fresh) for _ in range(argument))
                if writer.write_packed(packer, (len(there),), payload, argument):
                    there += packer.pack(len(there)) + payload
            elif what == "read":
                expected = min(sum(argument), len(there))
                with contextlib.nullcontext() if expected else pytest.raises(BlockingIOError):
                    assert read(reader, *argument) == there[:expected]
                there = there[expected:]
            else:
                seen = bytes(reader.peek())
                assert there.startswith(seen)
                assert bool(seen) == bool(there) == reader.ready()
                reader.advance(min(argument, len(seen)))
                there = there[min(argument, len(seen)) :]
            assert len(there) <= SMALL


@pytest.fixture
def intruder(ends: tuple[MemoryWriter, MemoryReader]) -> Iterator[Intruder]:
    with contextlib.closing(Intruder(ends[0].offer)) as found:
        yield found


@pytest.mark.parametrize("nonsense", [-1, SMALL + 1, 1 << 62, -(1 << 63)])
def test_invalid_counters_break_the_connection(
    ends: tuple[MemoryWriter, MemoryReader], intruder: Intruder, nonsense: int
) -> None:
    writer, reader = ends
    intruder.words[WRITTEN] = nonsense
    for look in (reader.peek, lambda: read(reader, 10)):
        with pytest.raises(ConnectionError, match="are invalid"):
            look()
    intruder.words[READ] = -nonsense if nonsense > 0 else 1
    with pytest.raises(ConnectionError, match="are invalid"):
        writer.write([b"x"])
    assert not writer.write_packed(Struct("<q"), (1,), b"x", 1)  # so that `write` is called, which raises


@pytest.mark.parametrize("nonsense", [-1, SMALL + 1, (1 << 63) - 1, -(1 << 63)])
def test_an_invalid_origin_yields_invalid_bytes_only(
    ends: tuple[MemoryWriter, MemoryReader], intruder: Intruder, nonsense: int
) -> None:
    writer, reader = ends
    writer.write([b"x" * 100])
    intruder.words[ORIGIN] = nonsense
    assert len(reader.peek()) <= 100
    assert len(read(reader, 1000)) == 100


def other(name: str, size: int = DATA + SIZE, seals: int = SEALS) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@pytest.mark.parametrize(
    "make_fd",
    [
        lambda folder: other("labkit-fake"),
        lambda folder: other("labkit-token1"),
        lambda folder: other("labkit-toke"),
        lambda folder: other("labkit-token", size=4096),
        lambda folder: other("labkit-token", size=1 << 40),
        lambda folder: other("labkit-token", seals=SEALS & ~0x2),
        lambda folder: other("labkit-token", seals=SEALS | 0x8),  # F_SEAL_WRITE
        lambda folder: os.open(folder / "memfd:labkit-token (deleted)", os.O_RDWR | os.O_CREAT),
        lambda folder: os.open(folder, os.O_RDONLY),
        lambda folder: os.open("/dev/null", os.O_RDWR),
        lambda folder: os.pipe()[0],
    ],
)
def test_an_invalid_offer_is_ignored(make_fd: Callable[[Path], int], tmp_path: Path) -> None:
    fd = make_fd(tmp_path)
    try:
        before = descriptors(), mappings()
        for _ in range(20):
            with pytest.raises(OSError, match=r"\w"):
                MemoryReader(Offer(os.getpid(), fd, "token"))
        assert mappings() == before[1]
        assert descriptors() < before[0] + 15  # a leak would be 20 or more; others may open or close one meanwhile
    finally:
        os.close(fd)
    for offer in (Offer(os.getpid(), fd, "token"), Offer(0, 0, "token"), Offer((1 << 32) - 1, 3, "token")):
        with pytest.raises(OSError, match=r"\w"):
            MemoryReader(offer)


def test_a_part_of_the_token_is_not_enough() -> None:
    writer = MemoryWriter()
    for part in ("", writer.offer.token[:1], writer.offer.token[:-1]):
        with pytest.raises(OSError, match="memfd"):
            MemoryReader(writer.offer._replace(token=part))
    writer.close()


def test_closed_ends_leave_no_descriptor_and_no_mapping() -> None:
    before = descriptors(), mappings()
    for _ in range(20):
        with memory() as (writer, reader):
            assert writer.accepted()
            writer.end_offer()
            writer.write([b"last words"])
            with pytest.raises(OSError, match=r"\w"):
                MemoryReader(writer.offer)
            writer.close()
            assert bytes(reader.peek()) == b"last words"
    assert mappings() == before[1]
    assert descriptors() < before[0] + 15  # a leak would be 20 or more; others may open or close one meanwhile


# two endpoints ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def make() -> Iterator[Callable[..., Endpoint]]:
    with contextlib.ExitStack() as stack:

        def make(name: str, incarnation: int = 0, **options: Any) -> Endpoint:
            endpoint = Endpoint(name, incarnation, FrameCodec(KINDS), **options)
            stack.callback(endpoint.close)
            return endpoint

        yield make


def turn(one: Endpoint, two: Endpoint) -> tuple[SendConnection, ReceiveConnection]:
    """Both ends of the connection from one to two, whose frames go through the memory after this."""
    link, end, intruder = turn_and_intrude(one, two)
    intruder.close()
    return link, end


def turn_and_intrude(one: Endpoint, two: Endpoint) -> tuple[SendConnection, ReceiveConnection, Intruder]:
    """The same, and the memory."""
    connect(one, two)
    intruder = Intruder(sending_to(one, two.name).offer)
    before = len(two.inbox)
    one.send(two.name, Ack(0))
    run((one, two), lambda: len(two.inbox) > before)
    two.inbox.pop()
    link, end = sending_to(one, two.name), receiving_from(two, one.name)
    assert link.in_memory
    assert end.in_memory
    return link, end, intruder


def frame(sequence: int, kind: int = 3, payload: int = 0, meta: bytes = bytes(16)) -> bytes:
    return HEADER.pack(MAGIC, kind, 0, 0, len(meta), 0, sequence, 0, 0, payload) + meta


def test_frames_go_through_the_memory_once_the_offer_is_taken_up(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    one.send("two", Ack(0))
    link = sending_to(one, "two")
    assert link.sharing
    assert not link.in_memory
    run(pair, lambda: two.inbox)
    end = receiving_from(two, "one")
    one.send("two", Ack(1))
    assert link.in_memory
    run(pair, lambda: len(two.inbox) == 2)
    assert end.in_memory
    assert contents(two) == [Ack(0), Ack(1)]
    shut(link)  # the socket is not needed for this
    one.send("two", Ack(2))
    assert end.has_data()


def test_other_hosts_and_peers_without_permission_use_tcp(
    make: Callable[..., Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there, private = make("here"), make("there", host="localhost"), make("shy", share=False)
    introduce(here, there, private)
    for one, two in ((here, there), (there, here), (private, here)):
        for step in range(3):
            one.send(two.name, Ack(step))
            run((one, two), lambda two=two: two.inbox)
            assert two.inbox.popleft().message.step == step
        assert not sending_to(one, two.name).sharing
    monkeypatch.setattr(connection, "MemoryReader", lambda *_: os.stat("/none"))  # as if it ran in another container
    here.send("shy", Ack(0))
    link = sending_to(here, "shy")
    assert link.sharing
    run((here, private), lambda: not link.sharing)
    here.send("shy", Ack(1))
    run((here, private), lambda: len(private.inbox) == 2)
    assert not link.in_memory


def test_an_offer_on_an_encrypted_connection_is_not_accepted(
    make: Callable[..., Endpoint], tls: dict[str, ssl.SSLContext]
) -> None:
    """Frames in memory would not be encrypted. No endpoint of labkit makes such an offer."""
    one, identity = make("one", **tls), Identity()
    one.add_peer("two", "127.0.0.1", 9, identity.public, 0)
    writer = MemoryWriter()
    hello = Hello("", "two", "one", 0, offer=writer.offer).pack(identity.key(one.identity.public))
    reported, seen = [], threading.Event()

    def call() -> None:
        with tls["client_context"].wrap_socket(
            socket.create_connection(one.address), server_hostname="127.0.0.1"
        ) as sock:
            sock.sendall(hello)
            reported.append(sock.recv(4))
            seen.wait()

    thread = threading.Thread(target=call)
    thread.start()
    run((one,), lambda: one.receiving)
    assert not receiving_from(one, "two").sharing
    seen.set()
    thread.join()
    assert reported == [b"LKWe"]
    assert not writer.accepted()
    writer.close()


ARRAYS = hnp.arrays(
    st.sampled_from(["f4", "<f8", ">i2", "u1", "?", "c16", "M8[s]", "U3", "S5"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12),
    elements=None,
)


@given(st.lists(ARRAYS, min_size=1, max_size=12), st.integers(0, 12), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_array_arrives_before_and_after_the_switch(arrays: list[np.ndarray], turned: int, small: bool) -> None:
    size = 1024 if small else SIZE  # small: most messages are larger
    with contextlib.ExitStack() as stack:
        one, two = (
            stack.enter_context(contextlib.closing(Endpoint(n, 0, FrameCodec(KINDS), memory_size=size)))
            for n in ("one", "two")
        )
        introduce(one, two)
        for step, array in enumerate(arrays):
            if step == turned:
                connect(one, two)
            one.send("two", Push(array, step, 0, 0))
        run((one, two), lambda: len(two.inbox) == len(arrays))
        assert sending_to(one, "two").in_memory or turned >= len(arrays)
        for step, (message, array) in enumerate(zip(values(two), arrays, strict=True)):
            assert message.step == step
            assert message.values.dtype == array.dtype
            np.testing.assert_array_equal(message.values, array)


def test_a_sleeping_reader_is_woken_by_a_frame_in_the_memory(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    _, _, intruder = turn_and_intrude(one, two)
    for step in range(5):
        thread = threading.Thread(target=two.poll, args=(30.0,))
        thread.start()
        while not intruder.words[READER_SLEEPS]:
            os.sched_yield()
        one.send("two", Push(np.zeros(100), step, 0, 0))
        thread.join()
        assert two.inbox.pop().message.step == step  # type: ignore[attr-defined]


def test_a_sleeping_writer_is_woken_when_there_is_room(make: Callable[..., Endpoint]) -> None:
    """The reader takes exactly what is there: no remaining data would make it read, and ring the doorbell, again."""
    one, two = make("one", memory_size=4096), make("two", memory_size=4096)
    introduce(one, two)
    turn(one, two)
    rest = one.codec.encode(Push(np.zeros(1, np.uint8), 0, 0, 0))[0]
    first = 4096 - 512 - HEADER.size - len(rest)  # 512: what is read ahead
    one.send("two", Push(np.zeros(first, np.uint8), 1, 0, 0))
    one.send("two", Push(np.ones(9000, np.uint8), 2, 0, 0))
    assert one.queued
    for _ in range(30):
        two.poll(0.0)
        one.poll(0.0)  # and no flush: the doorbell alone resumes it
    assert [message.step for message in values(two)] == [1, 2]


def test_a_failed_doorbell_prevents_the_switch_to_shared_memory(pair: tuple[Endpoint, Endpoint]) -> None:
    """The kernel may be full to the last byte when it is time to switch to the memory."""

    def full(stream: TcpStream, data: bytes) -> int:
        raise BlockingIOError

    one, two = pair
    connect(one, two)
    link = sending_to(one, "two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TcpStream, "send_control", full)
        one.send("two", Ack(0))
    assert not link.in_memory
    one.send("two", Ack(1))
    assert link.in_memory
    run(pair, lambda: len(two.inbox) == 2)
    assert contents(two) == [Ack(0), Ack(1)]


def test_bytes_in_kernel_buffers_arrive_after_the_sender_closes(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    for step in range(1500):  # 30 MB: more than the kernel takes
        one.send("two", Push(np.zeros(2500), step, 0, 0))
    one.flush()
    assert one.queued
    two.poll(LONG)  # accepts the offer, and reads a part; one is not notified
    one.flush()
    one.close()
    assert two.drain({"one"}, LONG) == set()
    assert two.received["one"] == one.sent["two"] == len(two.inbox)
    assert one.sent["two"] + one.undelivered["two"] == 1500


def test_a_doorbell_to_a_closed_receiver_raises_no_exception(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    _, _, intruder = turn_and_intrude(one, two)
    two.close()
    for step in range(3):  # the first doorbell is answered by a reset, the next ones find the connection gone
        intruder.words[READER_SLEEPS] = 1
        one.send("two", Push(np.zeros(3), step, 0, 0))
    one.send("two", Push(np.zeros(5_000_000), 3, 0, 0))  # 40 MB: what does not fit waits
    assert one.sent["two"] == 5
    run((one,), lambda: one.unreachable)
    assert (one.sent["two"], one.undelivered["two"]) == (4, 1)


def test_a_message_that_cannot_be_sent_is_refused_with_its_field(
    pair: tuple[Endpoint, Endpoint], make: Callable[..., Endpoint]
) -> None:
    one, two = pair
    turn(one, two)
    small = make("small", max_frame=1000)
    introduce(small, two)
    turn(small, two)
    for step in (1, 2):  # the second is packed in one call
        one.send("two", Push(np.zeros(4), step, 0, 0))
    with pytest.raises(RoleError, match=r"Push\.step holds an int beyond 64 bits"):
        one.send("two", Push(np.zeros(4), 1 << 70, 0, 0))
    for _ in range(2):
        with pytest.raises(RoleError, match="at most 1,000"):
            small.send("two", Push(np.zeros(1000), 0, 0, 0))
    one.send("two", Ack(3))
    run((one, two, small), lambda: len(two.inbox) == 3)
    assert (one.sent["two"], small.sent["two"]) == (4, 1)


# peers that die, and misbehaving peers --------------------------------------------------------------------------------

CHILD = """
import os, signal, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from tests.engines.dask.transport.helpers import KINDS, Intruder, run, sending_to
from labkit.engines.dask.transport.frames import FrameCodec
from labkit.engines.dask.transport.endpoint import Endpoint
from labkit.roles.messages import Ack, Push

endpoint = Endpoint("child", 0, FrameCodec(KINDS))
endpoint.add_peer("parent", "127.0.0.1", int(sys.argv[2]), sys.argv[3], 0)
print(endpoint.address[1], endpoint.identity.public, flush=True)
endpoint.connect("parent")
link = sending_to(endpoint, "parent")
run((endpoint,), lambda: link.ready)
print(link.offer.token, flush=True)
intruder = Intruder(link.offer)
"""
SENDER = """
for step in range(1000):
    endpoint.send("parent", Push(np.full(100, step), step, 0, 0))
assert link.in_memory and not link.queued
intruder.write(bytes(link.fileno()))  # a part of a header
os.kill(os.getpid(), signal.SIGKILL)
"""
RECEIVER = """
endpoint.send("parent", Ack(0))
run((endpoint,), lambda: endpoint.inbox)  # it is stopped before anything comes
"""


@contextlib.contextmanager
def child(parent: Endpoint, code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process with an endpoint connected to `parent`; return it and the token of the memory that it offers."""
    command = [sys.executable, "-c", CHILD + code, str(Path(__file__).parents[4]), *map(str, parent.contact[1:])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port, key = process.stdout.readline().split()
            parent.add_peer("child", "127.0.0.1", int(port), key, 0)
            run((parent,), lambda: parent.receiving)
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def processes_that_map(token: str) -> list[str]:
    """Open descriptors and mappings of that memory, in any process."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [str(path)] * (f"labkit-{token}" in (path / "maps").read_text())
        with contextlib.suppress(OSError):
            for fd in (path / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found += [str(fd)] * (f"labkit-{token}" in os.readlink(fd))
    return found


def test_all_bytes_written_by_a_killed_sender_arrive(make: Callable[..., Endpoint]) -> None:
    parent = make("parent")
    with child(parent, SENDER) as (process, token):
        assert process.wait() == -signal.SIGKILL
        run((parent,), lambda: parent.lost)
    assert [message.step for message in values(parent)] == list(range(1000))
    assert all((message.values == message.step).all() for message in values(parent))
    assert (parent.lost, parent.refused) == ({"child"}, [])
    assert processes_that_map(token) == []  # the parent has closed its end


def test_a_killed_receiver_breaks_the_link_and_counts_stay_exact(make: Callable[..., Endpoint]) -> None:
    parent = make("parent")
    with child(parent, RECEIVER) as (process, token):
        run((parent,), lambda: parent.inbox)
        parent.connect("child")
        link = sending_to(parent, "child")
        run((parent,), lambda: link.ready)
        assert link.offer is not None
        own = link.offer.token
        process.send_signal(signal.SIGSTOP)
        run((parent,), lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        for step in range(6):
            parent.send("child", Push(np.zeros(1_000_000), step, 0, 0))  # 48 MB, of which 16 MB fit into the memory
        process.kill()
        assert process.wait() == -signal.SIGKILL
        run((parent,), lambda: parent.unreachable)
        parent.send("child", Ack(0))
    assert parent.sent["child"] + parent.undelivered["child"] == 7
    assert parent.undelivered["child"] >= 5
    parent.close()
    assert processes_that_map(token) == processes_that_map(own) == []
    assert not [name for name in os.listdir("/dev/shm") if "labkit" in name]


def spoil(word: int, value: int) -> Callable[[Intruder], None]:
    def act(intruder: Intruder) -> None:
        intruder.words[word] = value

    return act


def say(data: bytes) -> Callable[[Intruder], None]:
    def act(intruder: Intruder) -> None:
        intruder.write(data)

    return act


def lead_astray(origin: int) -> Callable[[Intruder], None]:
    def act(intruder: Intruder) -> None:
        say(frame(2))(intruder)
        spoil(ORIGIN, origin)(intruder)

    return act


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (say(b"x" * 48), "no frame starts with"),
        (say(b"x" * 600), "no frame starts with"),
        (say(frame(2)[:20] + b"x" * 28), "frame"),
        (say(HEADER.pack(MAGIC, 0, 0, 0, 16, 0, 2, 0, 0, 1 << 40)), "at most 2,147,483,648"),
        (say(frame(77)), "frame 77 where 2 is due"),
        (say(frame(77)[:48]), "frame 77 where 2 is due"),
        (say(frame(2, kind=9)), "an invalid frame of kind"),
        (say(frame(2, meta=b"")), "an invalid frame of kind"),
        (spoil(WRITTEN, -1), "are invalid"),
        (spoil(WRITTEN, 1 << 40), "are invalid"),
        (spoil(WRITTEN, -(1 << 63)), "are invalid"),
        (lead_astray(-1), "no frame starts with"),
        (lead_astray((1 << 63) - 1), "no frame starts with"),
        (lead_astray(-(1 << 63)), ""),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_garbage_in_the_memory_ends_its_connection_only(
    make: Callable[..., Endpoint], act: Callable[[Intruder], None], why: str, ended: bool
) -> None:
    mad, two, good = make("mad"), make("two"), make("good")
    introduce(mad, two, good)
    link, end, intruder = turn_and_intrude(mad, two)
    turn(good, two)
    before = mappings()
    act(intruder)
    if ended:
        shut(link)
    for _ in range(3):
        two.poll(0.001)
    if why:
        assert [why in refusal and refusal.startswith("mad: ") for refusal in two.refused] == [True]
        assert two.lost == {"mad"}
        assert (end.open, mappings()) == (False, before - 1)
    good.send("two", Ack(5))
    run((good, two), lambda: Ack(5) in contents(two))


def test_a_peer_that_keeps_writing_after_its_end_is_not_awaited(pair: tuple[Endpoint, Endpoint]) -> None:
    one, two = pair
    link, _, intruder = turn_and_intrude(one, two)
    delivered = []
    body = frame(0, 0, 100_000, one.codec.encode(Push(np.zeros(12_500), 0, 0, 0))[0])[HEADER.size :]

    def again(*_: Any) -> None:
        delivered.append(1)
        header = HEADER.pack(MAGIC, 0, 0, 0, len(body), 0, len(delivered) + 2, 0, 0, 100_000)
        intruder.write(header + body + bytes(100_000))

    two.deliver = again
    one.send("two", Push(np.zeros(12_500), 0, 0, 0))
    shut(link)
    select.select([receiving_from(two, "one")], [], [])
    for _ in range(1000):
        two.poll(0.0)
    assert two.lost == {"one"}  # and `poll` has returned


@pytest.mark.parametrize("nonsense", [1 << 40, -(1 << 40), -(1 << 63)])
def test_a_reader_whose_counter_cannot_be_right_is_broken(pair: tuple[Endpoint, Endpoint], nonsense: int) -> None:
    one, two = pair
    _, _, intruder = turn_and_intrude(one, two)
    intruder.words[READ] = nonsense
    total = 1
    while not one.unreachable:
        one.send("two", Push(np.zeros(20_000), 0, 0, 0))
        total += 1
    assert "are invalid" in one.unreachable["two"]
    assert one.sent["two"] + one.undelivered["two"] == total
    assert one.send("two", Ack(0)) == 0
