# ruff: noqa: E501  (a line of a submission stays a line)
"""The encoding of messages between the grader and a student process: values arrive unchanged, others are refused."""

import collections
import contextlib
import io
import json
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from labkit.course.sandbox import frames

numbers = st.one_of(
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.booleans(),
    st.none(),
)
dtypes = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="="),
    arrays.unsigned_integer_dtypes(endianness="="),
    arrays.floating_dtypes(endianness="="),
    arrays.complex_number_dtypes(endianness="="),
    arrays.unicode_string_dtypes(endianness="=", max_len=3),
)
some_arrays = arrays.arrays(dtypes, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
scalars = arrays.arrays(dtypes, ()).map(lambda array: array[()])
hashable = st.one_of(st.text(), st.integers(), st.tuples(st.integers()), st.booleans(), st.binary(max_size=3))
fixed = some_arrays.map(lambda array: array.setflags(write=False) or array)
Pair = collections.namedtuple("Pair", "dx dw")
values = st.recursive(
    st.one_of(numbers, st.text(st.characters()), some_arrays, fixed, scalars, st.binary(), st.fractions(), st.frozensets(hashable),
              st.sets(hashable), st.builds(range, st.integers(-9, 9), st.integers(-9, 99))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.builds(Pair, inner, inner),
        st.lists(inner, max_size=3).map(collections.deque), st.dictionaries(hashable, inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=3).map(collections.OrderedDict),
    ), max_leaves=12,
)  # fmt: skip


def same(a, b):
    if isinstance(a, np.ndarray | np.generic):
        return (
            type(a) is type(b)
            and a.dtype == b.dtype.newbyteorder("=")
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
            and (a.ndim == 0 or not a.size or a.flags.writeable == b.flags.writeable)
        )
    if isinstance(a, Pair):
        return type(b).__name__ == "Pair" and b._fields == a._fields and all(map(same, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple | collections.deque):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def decoded(data):
    return frames.decode(exactly(io.BytesIO(data)), lambda value: ["found", value])


def exactly(stream):
    def read(size):
        if size > frames.MAX_FRAME_BYTES:
            raise frames.MalformedFrame("too much")
        data = stream.read(size)
        if len(data) < size:
            raise EOFError
        return data

    return read


@settings(max_examples=300, deadline=None)
@given(values)
def test_plain_values_arrive_unchanged(value):
    assert same(value, decoded(frames.encode(value, lambda _: None)))


@pytest.mark.parametrize("order", "<>")
def test_numbers_arrive_in_native_byte_order(order):
    sent = np.arange(6, dtype=f"{order}i4").reshape(2, 3)
    arrived = decoded(frames.encode(sent, lambda _: None))
    assert arrived.dtype == np.int32
    assert (arrived == sent).all()


def test_iterators_arrive_as_iterators():
    for sent in ((i for i in range(3)), iter([0, 1, 2]), map(int, "012"), filter(None.__eq__, [])):
        arrived = decoded(frames.encode(sent, lambda _: None))
        items = list(arrived)
        assert items in ([0, 1, 2], [])
        assert list(arrived) == []
    table = {"a": 1, "b": 2}
    for sent in (table.keys(), table.values(), table.items()):
        arrived = decoded(frames.encode(sent, lambda _: None))
        assert type(arrived) is type(sent)
        assert list(arrived) == list(sent)


def test_masks_matrices_objects_and_containers_arrive():
    masked = decoded(frames.encode(np.ma.array([1.0, 2], mask=[0, 1]), lambda _: None))
    assert masked.sum() == 1.0
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        assert type(decoded(frames.encode(np.matrix([[1, 2]]), lambda _: None))) is np.matrix
    objects = decoded(frames.encode(np.array([[None, "x"], [np.arange(2), 1]], object), lambda _: None))
    assert objects.shape == (2, 2)
    assert objects[1, 0].tolist() == [0, 1]
    counted = decoded(frames.encode(collections.Counter("aab"), lambda _: None))
    assert counted == collections.Counter("aab")
    assert type(counted) is collections.Counter
    assert decoded(frames.encode(collections.defaultdict(list, a=[1]), lambda _: None)) == {"a": [1]}


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_invalid_bytes_are_malformed_frames(data):
    with contextlib.suppress(frames.MalformedFrame, EOFError):
        decoded(data)
    with contextlib.suppress(frames.MalformedFrame):
        decoded(struct.pack("<QQ", len(data), 0) + data)


keys = st.sampled_from(["int", "float", "complex", "array", "tuple", "dict", "there", "other", ""])
packed = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.sampled_from(["<f8", "|O", "V9", "f8,f8", "U3", "("])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, min_size=1, max_size=2)), max_leaves=10,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(packed, st.binary(max_size=64))
def test_frames_of_random_json_are_malformed_or_decoded(value, body):
    text = json.dumps(value).encode("utf-8", "surrogatepass")
    with contextlib.suppress(frames.MalformedFrame):
        decoded(struct.pack("<QQ", len(text), len(body)) + text + body)


class Pretends(dict):
    def items(self):
        raise AssertionError("a subclass is not asked")


class Endless(np.ndarray):
    def __array_finalize__(self, other):
        pass

    def tobytes(self, *args):
        raise AssertionError("a subclass is not asked")


@pytest.mark.parametrize(
    "value", [object(), {object()}, lambda: 1, Pretends(), int, np.array([object()]), np.array([(1, 2)], "i4,i4"), range(10**9),
              iter(int, 1), [1 << 200_000], np.datetime64("2020"), type("F", (float,), {})(1.0), [[[object()]]]],
)  # fmt: skip
def test_values_that_cannot_be_encoded_are_refused(value):
    with pytest.raises(frames.MalformedFrame):
        frames.encode(value, lambda _: None)


def test_frames_that_are_too_large_are_refused_on_both_ends():
    with pytest.raises(frames.MalformedFrame, match="MB"):
        frames.encode(np.zeros(frames.MAX_FRAME_BYTES // 8 + 1), lambda _: None)
    with pytest.raises(frames.MalformedFrame, match="MB of text"):
        frames.encode("x" * (frames.MAX_TEXT_BYTES + 1), lambda _: None)
    deep = []
    for _ in range(frames.MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(frames.MalformedFrame, match="nested lists"):
        frames.encode(deep, lambda _: None)
    for lengths in ((frames.MAX_TEXT_BYTES + 1, 0), (0, frames.MAX_FRAME_BYTES + 1), (2**63, 2**63)):
        with pytest.raises(frames.MalformedFrame):
            decoded(struct.pack("<QQ", *lengths))
    for array in (
        ["<f8", [2**62]],
        ["<f8", [2**40, 0, 2**40]],
        ["<f8", [-1]],
        ["<f8", [True]],
        ["O", [1]],
        ["<f8", [0] * 33],
        ["<f8", [0, 2**40]],
        ["<U1048576", [0, 9]],
        ["<f800", [1]],
    ):
        text = json.dumps({"array": array}).encode()
        with contextlib.suppress(frames.MalformedFrame):
            assert decoded(struct.pack("<QQ", len(text), 8) + text + b"12345678").size == 0


def test_array_subclasses_arrive_as_arrays():
    arrived = decoded(frames.encode(np.arange(3.0).view(Endless), lambda _: None))
    assert type(arrived) is np.ndarray
    assert arrived.tolist() == [0, 1, 2]
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    assert (decoded(frames.encode(strided, lambda _: None)) == strided).all()
