"""Byte streams, over TCP and in shared memory: bytes are read in the order in which they were written, and neither end blocks."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator

import pytest

from labkit.engines.dask.transport.connection import ByteReader, ByteWriter
from labkit.engines.dask.transport.shared_memory import MemoryReader, MemoryWriter, available
from labkit.engines.dask.transport.tcp import TcpStream, accept, dial, listen

Ends = tuple[ByteWriter, ByteReader, Callable[[], None]]  # and how the writer's end is closed


@pytest.fixture(params=["tcp", "tls", "memory"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with contextlib.ExitStack() as stack:
        if request.param == "memory":
            if not available():
                pytest.skip("processes of this machine cannot share memory")
            memory = MemoryWriter(1 << 16)
            stack.callback(memory.close)
            reader = MemoryReader(memory.offer, 1 << 16)
            stack.callback(reader.close)
            yield memory, reader, memory.close
            return
        tls = request.getfixturevalue("tls") if request.param == "tls" else {}
        with listen("127.0.0.1") as listener:
            near = dial("127.0.0.1", listener.getsockname()[1], tls.get("client_context"))
            stack.callback(near.close)
            wait(near.established)
            listener.setblocking(True)
            far = accept(listener.accept()[0], tls.get("server_context"))
            stack.callback(far.close)
        yield near, far, near.end_writing if request.param == "tcp" else near.close


def wait(done: Callable[[], bool]) -> None:
    while not done():
        os.sched_yield()


def read(reader: ByteReader, *sizes: int) -> bytes:
    buffers = [memoryview(bytearray(size)) for size in sizes]
    try:
        count = reader.read_into(buffers)
    except BlockingIOError:
        return b""
    return b"".join(buffers)[:count]


def write(writer: ByteWriter, pieces: list[bytes]) -> int:
    try:
        return writer.write(pieces)
    except BlockingIOError:
        return 0


def test_bytes_arrive_in_order_and_a_full_stream_takes_no_more(ends: Ends) -> None:
    writer, reader, _ = ends
    chance = random.Random(0)
    sent, got, left, full = bytearray(), bytearray(), b"", 0
    while full < 3 or len(sent) < 1_000_000:
        left = left or chance.randbytes(chance.choice((1, 100, 50_000)))
        taken = write(writer, [left])  # after `BlockingIOError` the same bytes again: with TLS they are sealed
        sent += left[:taken]
        left = left[taken:]
        if not sent:  # with TLS both ends take part in the handshake
            assert read(reader, 100) == b""
        elif not taken:  # else no byte is read, and the stream becomes full
            full += 1
            for _ in range(chance.randrange(1, 5)):
                got += read(reader, 7, 100_000, 1)
    while left or len(got) < len(sent):
        taken = write(writer, [left]) if left else 0
        sent += left[:taken]
        left = left[taken:]
        got += read(reader, 1000, 100_000)
    assert got == sent
    assert read(reader, 10) == b""


def test_the_end_comes_behind_all_bytes(ends: Ends) -> None:
    writer, reader, close = ends
    got = b""
    while not write(writer, [b"some bytes"]):  # with TLS both ends take part in the handshake
        assert read(reader, 100) == b""
    close()
    with contextlib.suppress(EOFError):
        while not (isinstance(reader, MemoryReader) and not reader.ready()):
            got += read(reader, 3, 4)
    assert got == b"some bytes"
    if isinstance(reader, TcpStream):
        with pytest.raises(EOFError):
            reader.read_into([memoryview(bytearray(10))])
