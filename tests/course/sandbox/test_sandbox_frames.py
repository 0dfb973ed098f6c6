# ruff: noqa: E501  (a line of a submission stays a line)
"""The encoding of messages between the grader and a student process: values arrive unchanged, others are refused."""

import collections
import contextlib
import enum
import io
import json
import struct
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from labkit.course.sandbox import frames
from tests.course.unusual_values import Number, Op

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
    st.one_of(numbers, st.text(st.characters()), some_arrays, fixed, scalars, st.binary(), st.fractions(),
              st.decimals(allow_nan=False, min_value=-(10**9), max_value=10**9), st.frozensets(hashable),
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
    return frames.Decoder(exactly(io.BytesIO(data)), lambda value: ["found", value]).decode()


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


def test_objects_and_containers_arrive():
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
              iter(int, 1), [1 << 200_000], np.datetime64("2020"), [[[object()]]], Decimal("1e1000"), Decimal("sNaN"), Fraction(1, 1 << 5_000),
              enum.Enum("Op", "F").F, np.broadcast_to(1.0, (1 << 20, 1 << 20)), np.broadcast_to(np.array(None), (1 << 20, 1 << 20))],
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


def test_strided_arrays_arrive():
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    assert (decoded(frames.encode(strided, lambda _: None)) == strided).all()


# values that decide what they equal -----------------------------------------------------------------------------------


class Yes(np.ndarray):
    """Equals everything, and shows the right values to the functions of NumPy."""

    def __eq__(self, other):
        return np.ones(self.shape, bool)

    def __array_function__(self, func, types, args, kwargs):
        return True

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return np.ones(self.shape)

    def __array__(self, *args, **kwargs):
        return np.ones(self.shape)


def subclasses():
    """By name: a value of a subclass, and the plain value that it holds."""
    garbage = np.array([[1.0, 9.0], [9.0, 9.0]])
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        matrix = np.matrix(garbage)
    records = garbage.view(np.recarray)
    return {
        "a masked array": (np.ma.array(garbage, mask=[[0, 1], [1, 1]]), garbage),
        "all is masked": (np.ma.masked_all((2, 2)).filled(9).view(np.ma.MaskedArray), np.full((2, 2), 9.0)),
        "a hard mask": (np.ma.array(garbage, mask=True, hard_mask=True), garbage),
        "a mask of one number": (np.ma.array(9.0, mask=True), np.array(9.0)),
        "the constant of masks": (np.ma.masked, np.array(0.0)),
        "a matrix": (matrix, garbage),
        "a record array": (records, garbage),
        "a subclass that equals everything": (garbage.view(Yes), garbage),
        "a subclass with its own method for bytes": (np.arange(3.0).view(Endless), np.arange(3.0)),
        "text that ignores blanks": (np.char.array(["a  ", "b"]), np.array(["a  ", "b"])),
        "an array of objects with a mask": (
            np.ma.array([1, None], mask=[0, 1], dtype=object),
            np.array([1, None], object),
        ),
        "a member of an enum": (Op.FORWARD, "forward"),
        "a float of one's own": (Number(1.0), 1.0),
        "an int of one's own": (enum.IntEnum("N", "A")["A"], 1),
        "in lists": ([np.ma.array([9.0], mask=True), (Op.FORWARD, Number(1.0))], [np.array([9.0]), ("forward", 1.0)]),
    }


@pytest.mark.parametrize("name", subclasses())
def test_values_of_subclasses_arrive_as_plain_values(name):
    sent, plain = subclasses()[name]
    arrived = decoded(frames.encode(sent, lambda _: None))
    if isinstance(plain, np.ndarray) and plain.dtype == object:
        assert type(arrived) is np.ndarray
        assert arrived.tolist() == plain.tolist()
    else:
        assert same(plain, arrived)


# the work of a frame --------------------------------------------------------------------------------------------------

P = 2**61 - 1  # the hash of a number is its remainder modulo P


def frame(packed, body=b""):
    text = json.dumps(packed, separators=(",", ":")).encode()
    assert len(text) <= frames.MAX_TEXT_BYTES
    return struct.pack("<QQ", len(text), len(body)) + text + body


def collisions(count):
    """Different keys that all have the same hash, as they are sent."""
    return {
        "whole numbers": [{"int": hex(i * P)} for i in range(1, count)],
        "fractions": [{"fraction": [{"int": hex(1 + i * P)}, 1]} for i in range(1, count)],
        "decimals": [{"decimal": str(i * P)} for i in range(1, count)],
        "tuples": [{"tuple": [{"int": hex(i * P)}, 1]} for i in range(1, count)],
        "named tuples": [{"named": ["N", ["a"], [{"int": hex(i * P)}]]} for i in range(1, count)],
        "frozen sets": [{"frozenset": [{"int": hex(i * P)}]} for i in range(1, count)],
        "complex numbers": [{"complex": [float(1000003 * i), float(-i)]} for i in range(2, count + 1)],
        "ranges of nothing and numbers": [
            {"tuple": [{"range": [0, 1, 1]}, {"int": hex(i * P)}]} for i in range(1, count)
        ],
    }


KEYED = {
    "set": lambda keys: {"set": keys}, "frozenset": lambda keys: {"frozenset": keys},
    "dict": lambda keys: {"dict": [[key, 0] for key in keys]}, "ordered": lambda keys: {"ordered": [[key, 0] for key in keys]},
    "counter": lambda keys: {"counter": [[key, 0] for key in keys]}, "defaults": lambda keys: {"defaults": [[key, 0] for key in keys]},
    "keys": lambda keys: {"keys": keys}, "items": lambda keys: {"items": [[key, 0] for key in keys]},
}  # fmt: skip


@pytest.mark.parametrize("what", collisions(2))
def test_keys_that_would_be_compared_with_each_other_are_refused(what):
    keys = collisions(200)[what]
    arrived = decoded(frame(keys))  # in a list they are harmless
    assert len(set(arrived)) == len(keys)
    assert len(set(map(hash, arrived))) == 1
    for name, put in KEYED.items():
        with pytest.raises(frames.MalformedFrame):
            decoded(frame(put(keys)))
        assert len(decoded(frame(put(keys[:20])))) == 20, name


@pytest.mark.parametrize(
    "keys",
    [range(-500, 500), [float(i) for i in range(1000)], [i / 7 for i in range(1000)], [2.0**i for i in range(1000)],
     [Fraction(i, 7) for i in range(1000)], [(i, j) for i in range(-9, 9) for j in range(-9, 9)],
     [(i, j, k) for i in (-2, -1, 0) for j in (-2, -1, 0) for k in (-2, -1, 0)], [str(i) for i in range(1000)], [2**i for i in range(2000)],
     [frozenset([i, -i]) for i in range(500)], [1j * i for i in range(500)], [True, None, "", (), 2, 3.5]],
)  # fmt: skip
def test_honest_keys_arrive(keys):
    for sent in (set(keys), dict.fromkeys(keys, 1), frozenset(keys)):
        assert decoded(frames.encode(sent, lambda _: None)) == sent


BIG = {"int": hex(1 << 90_000)}
COSTLY = {
    "a class for each named tuple": frame([{"named": [f"N{i}", ["a"], [1]]} for i in range(1000)]),
    "a class for each list of fields": frame([{"named": ["N", [f"a{i}"], [1]]} for i in range(1000)]),
    "a fraction to reduce": frame({"fraction": [BIG, {"int": hex((1 << 90_000) + 1)}]}),
    "a decimal with a giant exponent": frame({"decimal": "1E999999"}),
    "a decimal with many digits": frame({"decimal": "7" * 100_000}),
    "a decimal that signals": frame({"decimal": "sNaN"}),
    "a float with many digits": frame({"float": "7" * 100_000}),
    "digits in JSON": struct.pack("<QQ", 100_000, 0) + b"7" * 100_000,
    "a tuple of an array": frame({"tuple": {"array": ["|b1", [1 << 20]]}}, bytes(1 << 20)),
    "a set of an array": frame({"set": {"array": ["<i8", [1 << 17]]}}, np.arange(1 << 17).tobytes()),
    "a deque of bytes": frame({"deque": {"bytes": 1 << 20}}, bytes(1 << 20)),
    "an iterator over bytes": frame({"iterator": {"bytes": 1 << 20}}, bytes(1 << 20)),
    "values of text": frame({"values": "x" * 100_000}),
    "objects of an array": frame({"objects": [[1 << 20], {"array": ["|b1", [1 << 20]]}]}, bytes(1 << 20)),
    "a range that is too long": frame({"range": [0, {"int": hex(1 << 80)}, 1]}),
    "nesting": struct.pack("<QQ", 200_000, 0) + b"[" * 100_000 + b"]" * 100_000,
    "nested sets": frame(json.loads('{"frozenset":[' * 100 + "1" + "]}" * 100)),
    "an array that the frame does not have": frame({"array": ["<f8", [1 << 20, 1 << 20]]}, b"12345678"),
    "an empty array with a long axis": frame({"array": ["<f8", [0, 1 << 40]]}),
    "objects without elements": frame({"objects": [[0, 1 << 40], []]}),
    "a reference to text": frame({"ref": "x" * 1000}),
}


@pytest.mark.parametrize("what", COSTLY)
def test_frames_that_cost_more_than_their_size_are_refused(what):
    with pytest.raises(frames.MalformedFrame):
        decoded(COSTLY[what])


def test_named_tuples_of_a_few_classes_are_made_once():
    sent = [collections.namedtuple(f"N{i % 5}", "a b")(i, i) for i in range(2000)]
    arrived = decoded(frames.encode(sent, lambda _: None))
    assert arrived == sent
    assert len(set(map(type, arrived))) == 5


def test_a_decoder_counts_the_text_of_all_frames():
    data = frames.encode(["x" * 1000] * 3, lambda _: None)
    decoder = frames.Decoder(exactly(io.BytesIO(data * 4)), lambda value: value)
    for _ in range(4):
        decoder.decode()
    assert decoder.text_bytes == 4 * len(json.dumps(["x" * 1000] * 3, separators=(",", ":")))
