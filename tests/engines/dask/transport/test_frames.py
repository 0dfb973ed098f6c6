"""Encoding of messages: decoding restores the message, and invalid bytes raise `ProtocolError` and no other error."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labkit.engines.dask.protocol import ProtocolError
from labkit.engines.dask.transport.frames import (
    FINAL,
    HEADER,
    MAGIC,
    MAX_FRAME,
    READ_AHEAD,
    FrameCodec,
    FrameParser,
    Header,
    lay_out,
    read_header,
)  # fmt: skip
from labkit.engines.dask.transport.handshake import MAX_HELLO, Hello, verify
from labkit.errors import BadInput, RoleError
from labkit.nn.buffer_pool import BufferPool
from labkit.roles.messages import Message, Pull, Push, copied_for_sending


@dataclass(frozen=True)
class Anything(Message):
    value: Any
    number: int = 0
    rate: float = 0.0
    other: Any = None


@dataclass(frozen=True)
class Foo(Message):
    pass


CODEC = FrameCodec((Push, Pull, Anything))


def encoded_and_decoded(message: Message, codec: FrameCodec = CODEC) -> Message:
    meta, arrays = codec.encode(message)
    assert len(meta) % 16 == 0
    pieces, total, _ = lay_out(arrays)
    body = BufferPool().take(len(meta) + total)
    joined = b"".join(bytes(piece) for piece in (meta, *pieces))
    body[: len(joined)] = np.frombuffer(joined, np.uint8)
    view = memoryview(body)[: len(joined)]
    return codec.decode(codec.index(message, "a"), view[: len(meta)], view[len(meta) :], "worker-0", 3)


def same(one: Any, two: Any) -> bool:
    if isinstance(one, np.ndarray):
        return (
            type(two) is np.ndarray
            and (one.dtype, one.shape) == (two.dtype, two.shape)
            and one.tobytes() == two.tobytes()
            and two.flags.writeable
            and two.flags.aligned
            and not np.shares_memory(one, two)
        )
    if isinstance(one, tuple):
        return type(two) is tuple and len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and (one == two or one != one)


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(min_len=1),
    hnp.unicode_string_dtypes(min_len=1),
)
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
INTS = st.integers(-(1 << 63), (1 << 63) - 1)
PLAIN = st.one_of(st.none(), st.booleans(), INTS, st.floats(), st.text(), ARRAYS)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(value=VALUES, number=st.one_of(INTS, PLAIN), rate=PLAIN, other=VALUES)
def test_every_message_arrives_as_it_was(value: Any, number: Any, rate: Any, other: Any) -> None:
    message = Anything(value, number, rate, other)
    for _ in range(2):  # the second time its shape is cached
        there = encoded_and_decoded(message)
        assert type(there) is Anything
        assert (there.sender, there.incarnation) == ("worker-0", 3)
        for field in ("value", "number", "rate", "other"):
            assert same(getattr(message, field), getattr(there, field)), field


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6)[:, ::2],
        np.arange(24.0).reshape(4, 6).T,
        np.arange(6)[::-1],
        np.broadcast_to(np.float32(1.5), (3, 4)),
        np.asfortranarray(np.ones((3, 5))),
    ],
)
def test_arrays_that_are_not_contiguous_are_copied(array: np.ndarray) -> None:
    there = encoded_and_decoded(Anything(array))
    assert isinstance(there, Anything)
    assert there.value.flags.c_contiguous
    np.testing.assert_array_equal(there.value, array)


@pytest.mark.parametrize("value", [np.int32(3), np.float32(0.5), np.bool_(True), np.str_("a"), np.uint64(7)])
def test_numbers_of_numpy_arrive_as_plain_numbers(value: Any) -> None:
    there = encoded_and_decoded(Anything(value, value, value))
    assert isinstance(there, Anything)
    for got in (there.value, there.number, there.rate):
        assert type(got) is type(value.item())
        assert got == value


@pytest.mark.parametrize(
    "value",
    [[1], {"a": 1}, {1}, b"bytes", 1j, object(), np.array([None]), np.array([(1, 2.0)], "i4,f8"), (1, (2, [3]))],
)
@pytest.mark.parametrize("field", ["value", "number", "other"])
def test_fields_that_cannot_be_encoded_are_refused_by_name(value: Any, field: str) -> None:
    message = dataclasses.replace(Anything(1), **{field: value})
    with pytest.raises(RoleError, match=rf"^Anything\.{field} holds an? "):
        CODEC.encode(message)


def test_the_error_message_equals_that_of_the_simulator() -> None:
    with pytest.raises(RoleError) as here:
        CODEC.encode(Anything([1]))
    with pytest.raises(RoleError) as there:
        copied_for_sending(Anything([1]), "worker-0")
    assert str(here.value) == str(there.value)


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, np.uint64(1 << 63)])
def test_whole_numbers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(RoleError, match=r"^Anything\.number holds an int beyond 64 bits"):
        CODEC.encode(Anything(0, value))
    with pytest.raises(RoleError, match=r"^Anything\.value holds an int beyond 64 bits"):
        CODEC.encode(Anything((value,)))


def test_tuples_nested_too_deep_and_forgotten_awaits_are_refused() -> None:
    deep: Any = 0
    for _ in range(100):
        deep = (deep,)
    with pytest.raises(RoleError, match="nested deeper than 32"):
        CODEC.encode(Anything(deep))

    async def answer() -> int:
        return 1

    coroutine = answer()
    with pytest.raises(RoleError, match="Is an `await` missing"):
        CODEC.encode(Anything(coroutine))
    coroutine.close()


def test_a_kind_that_is_not_listed_is_named() -> None:
    with pytest.raises(RoleError) as caught:
        FrameCodec((Push, Pull)).index(Foo(), "worker-0")
    assert str(caught.value) == "worker-0 sends Foo, which is not listed in messages = (Push, Pull)"


def decode_or_refuse(index: int, meta: bytes, payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        CODEC.decode(index, memoryview(bytearray(meta)), memoryview(bytearray(payload)), "x", 0)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 5), st.binary(max_size=200), st.binary(max_size=64))
def test_random_bytes_raise_frame_error_only(index: int, meta: bytes, payload: bytes) -> None:
    decode_or_refuse(index, meta, payload)
    decode_or_refuse(index, HEADER.pack(MAGIC, 0, 0, 0, 0, 0, 0, 0, 0, 0)[:24] + meta, payload)


@settings(max_examples=150, deadline=None)
@given(value=VALUES, data=st.data())
def test_damaged_messages_raise_frame_error_only(value: Any, data: st.DataObject) -> None:
    meta, arrays = CODEC.encode(Anything(value, 1, None))
    pieces, _, _ = lay_out(arrays)
    payload = b"".join(bytes(piece) for piece in pieces)
    at, bit = data.draw(st.integers(0, len(meta) - 1)), data.draw(st.integers(0, 7))
    damaged = bytearray(meta)
    damaged[at] ^= 1 << bit
    decode_or_refuse(2, bytes(damaged), payload)
    decode_or_refuse(2, meta[:at], payload)
    decode_or_refuse(2, meta, payload[:-1])
    decode_or_refuse(2, meta, payload + b"\0")


@pytest.mark.parametrize("code", [b"|O", b"|O8", b"i4,i4", b"(99999999,)i4", b"<f4 ", b"", b"|S0", b"\xff"])
def test_dtypes_that_are_none_are_refused(code: bytes) -> None:
    body = bytes([len(code)]) + code + (1).to_bytes(8, "little")
    meta = bytes(24) + b"a" + len(body).to_bytes(2, "little") + body + b"N"
    with pytest.raises(ProtocolError):
        CODEC.decode(2, memoryview(meta), memoryview(bytearray(8)), "x", 0)


def test_a_header_is_accepted_only_within_bounds() -> None:
    good = HEADER.pack(MAGIC, 1, 2, FINAL, 16, 3, 4, -5, 6, 7)
    assert read_header(good, 0)[1:] == (1, 2, 1, 16, 3, 4, -5, 6, 7)
    for bad in (
        HEADER.pack(MAGIC, 0, 0, 0, 16, 0, 1, 0, 0, 1 << 40),  # 1 TB
        HEADER.pack(MAGIC, 0, 0, 0, 16, 9, 1, 0, 0, 8),
        HEADER.pack(MAGIC, 0, 0, 0, 17, 0, 1, 0, 0, 8),
        HEADER.pack(MAGIC, 0, 0, 3, 16, 0, 1, 0, 0, 8),
        HEADER.pack(b"HTTP", 0, 0, 0, 16, 0, 1, 0, 0, 8),
    ):
        with pytest.raises(ProtocolError):
            read_header(bad, 0)


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.sampled_from([400, 464, 465, 1000, 5000])), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 1200), min_size=1, max_size=30),
    ahead=st.integers(0, READ_AHEAD),
)
def test_frames_are_found_wherever_the_bytes_are_cut(sizes: list[int], cuts: list[int], ahead: int) -> None:
    frames = [
        (HEADER.pack(MAGIC, 1, 0, 0, 16, 0, number, 0, 0, size), bytes([number]) * (16 + size))
        for number, size in enumerate(sizes, 1)
    ]
    wanted = [(HEADER.unpack(header), body) for header, body in frames]
    data = b"".join(header + body for header, body in frames)
    checked: list[int] = []
    parser = FrameParser(BufferPool(), MAX_FRAME, lambda header: checked.append(header[6]), data[:ahead])
    at, step, found = min(ahead, len(data)), 0, []

    def take() -> None:
        while (frame := parser.next()) is not None:
            found.append((frame[0], bytes(frame[1])))

    take()
    while at < len(data):
        left = count = min(cuts[step % len(cuts)], len(data) - at, sum(map(len, parser.buffers())))
        full = count == sum(map(len, parser.buffers()))
        for buffer in parser.buffers():
            size = min(left, len(buffer))
            buffer[:size] = data[at : at + size]
            at, left = at + size, left - size
        assert parser.received(count) is full
        take()
        step += 1
    assert (found, checked) == (wanted, list(range(1, len(sizes) + 1)))
    assert parser.empty
    assert not parser.between
    there = memoryview(data)
    for header, body in wanted:
        used, *frame = parser.whole(there) or (0,)
        assert (used, frame[0], bytes(frame[1])) == (48 + len(body), header, body)
        assert parser.whole(there[: used - 1]) is None
        there = there[used:]
    assert parser.whole(there) is None


def test_a_frame_that_is_not_due_is_refused_before_memory_is_taken_for_it() -> None:
    def refuse(header: Header) -> None:
        raise ProtocolError("not due")

    pool = BufferPool()
    parser = FrameParser(pool, MAX_FRAME, refuse, HEADER.pack(MAGIC, 1, 0, 0, 16, 0, 7, 0, 0, 1 << 30))
    with pytest.raises(ProtocolError, match="not due"):
        parser.next()
    assert pool.kept == 0


@given(st.binary(max_size=MAX_HELLO))
def test_a_handshake_frame_is_complete_or_refused(noise: bytes) -> None:
    hello = Hello("run", "worker-ß", "server-0", 7, 3)
    data = hello.pack(b"secret")
    assert Hello.unpack(data + noise) == (hello, data)
    verify(data, b"secret")
    for end in range(len(data)):
        assert Hello.unpack(data[:end]) is None
    for bad in (noise, data[:4] + noise):
        with contextlib.suppress(ProtocolError):
            found = Hello.unpack(bad)
            if found is not None:
                verify(found[1], b"secret")
                raise AssertionError("noise is no hello")
    with pytest.raises(ProtocolError, match="not signed"):
        verify(data, b"Secret")
    for at in range(len(data)):
        with pytest.raises(ProtocolError, match="not signed"):
            verify(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], b"secret")
    with pytest.raises(BadInput, match="at most 512"):
        hello._replace(run="x" * 500).pack(b"secret")


def test_a_buffer_is_used_again_only_when_nothing_holds_it() -> None:
    pool = BufferPool()
    first = pool.take(100_000)
    address = first.ctypes.data
    view = np.ndarray(10, np.float32, memoryview(first)[16:], 0)
    del first
    assert pool.take(100_000).ctypes.data != address
    del view
    assert address in {pool.take(100_000).ctypes.data for _ in range(2)}


def test_the_pool_keeps_within_its_limit() -> None:
    pool = BufferPool(limit=1 << 20)
    held = [pool.take(10_000 * (1 + i % 30)) for i in range(300)]
    assert pool.kept <= pool.limit
    assert len({b.ctypes.data for b in held}) == 300
    buffers = [weakref.ref(buffer) for buffer in held]
    held.clear()
    assert pool.kept == sum(buffer().nbytes for buffer in buffers if buffer() is not None)
    assert pool.take(2 << 20).nbytes >= 2 << 20
