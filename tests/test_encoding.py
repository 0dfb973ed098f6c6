# ruff: noqa: E501  (a table of values or of malformed bytes has a line for each)
"""The encoding of arrays and plain values: values are decoded unchanged, others are refused, as are malformed bytes."""

import collections
import contextlib
import enum
import io
import struct
import warnings
from decimal import Decimal
from fractions import Fraction

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from labkit.encoding import MAX_DEPTH, SMALL, Decoder, EncodingError, SizeLimits, encode
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
            and a.dtype == b.dtype
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


def encoded(value, refer=lambda _: None, **options):
    return b"".join(encode(value, refer, **options))


def decoded(data, **options):
    return Decoder(lambda parts: ["found", *parts], **options).decode(exactly(io.BytesIO(data)))


def exactly(stream):
    def read(size):
        assert size <= SMALL.outline + SMALL.arrays
        data = stream.read(size)
        if len(data) < size:
            raise EOFError
        return data

    return read


@settings(max_examples=150, deadline=None)
@given(values)
def test_plain_values_arrive_unchanged(value):
    assert same(value, decoded(encoded(value)))


@pytest.mark.parametrize("dtype", ["<i4", ">i4", ">f8", ">U3"])
def test_arrays_keep_their_byte_order(dtype):
    assert same(np.arange(6).astype(dtype).reshape(2, 3), decoded(encoded(np.arange(6).astype(dtype).reshape(2, 3))))


def test_iterators_arrive_as_iterators():
    for sent in ((i for i in range(3)), iter([0, 1, 2]), map(int, "012"), filter(None.__eq__, [])):
        arrived = decoded(encoded(sent))
        items = list(arrived)
        assert items in ([0, 1, 2], [])
        assert list(arrived) == []
    table = {"a": 1, "b": 2}
    for sent in (table.keys(), table.values(), table.items()):
        arrived = decoded(encoded(sent))
        assert type(arrived) is type(sent)
        assert list(arrived) == list(sent)


def test_objects_and_containers_arrive():
    objects = decoded(encoded(np.array([[None, "x"], [np.arange(2), 1]], object)))
    assert objects.shape == (2, 2)
    assert objects[1, 0].tolist() == [0, 1]
    counted = decoded(encoded(collections.Counter("aab")))
    assert counted == collections.Counter("aab")
    assert type(counted) is collections.Counter
    assert decoded(encoded(collections.defaultdict(list, a=[1]))) == {"a": [1]}


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_invalid_bytes_are_malformed_frames(data):
    with contextlib.suppress(EncodingError, EOFError):
        decoded(data)
    with contextlib.suppress(EncodingError):
        decoded(struct.pack("<QQ", len(data), 0) + data)


def frame(*objects, body=b""):
    """These objects as an outline, and the bytes of arrays."""
    outline = b"".join(msgpack.packb(each, unicode_errors="surrogatepass") for each in objects)
    return struct.pack("<QQ", len(outline), len(body)) + outline + body


types = st.sampled_from(
    [
        "int",
        "decimal",
        "complex",
        "array",
        "fixed",
        "scalar",
        "objects",
        "named",
        "tuple",
        "set",
        "dict",
        "counter",
        "ref",
        "",
    ]
)
objects = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=9), st.binary(),
    st.sampled_from(["<f8", "|O", "V9", "f8,f8", "<U3", "(", "0x7"]), st.lists(st.integers(0, 3)), st.builds(dict, a=st.just(1), b=st.just(2)),
    st.dictionaries(types, st.integers(0, 3) | st.text() | st.just({}), min_size=1, max_size=1),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(objects, max_size=12), st.binary(max_size=64))
def test_outlines_of_random_objects_are_malformed_or_decoded(outline, body):
    with contextlib.suppress(EncodingError):
        decoded(frame(*outline, body=body))


@settings(max_examples=50, deadline=None)
@given(values, st.data())
def test_truncated_bytes_are_malformed(value, data):
    whole = encoded(value)
    with pytest.raises((EncodingError, EOFError)):
        decoded(whole[: data.draw(st.integers(0, len(whole) - 1))])
    length, size = struct.unpack_from("<QQ", whole)
    cut, more = data.draw(st.integers(0, length - 1)), whole[16:] + bytes(9)
    with pytest.raises(EncodingError):  # lengths that fit each other, but not the value
        decoded(struct.pack("<QQ", cut, size) + more)
    with pytest.raises(EncodingError):
        decoded(struct.pack("<QQ", length, size + 8) + more)


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
    with pytest.raises(EncodingError):
        encoded(value)


def test_frames_that_are_too_large_are_refused_on_both_ends():
    with pytest.raises(EncodingError, match="MB"):
        encoded(np.zeros(SMALL.arrays // 8 + 1))
    with pytest.raises(EncodingError, match="MB of text"):
        encoded("x" * (SMALL.outline + 1))
    deep = []
    for _ in range(MAX_DEPTH + 2):
        deep = [deep]
    with pytest.raises(EncodingError, match="nested lists"):
        encoded(deep)
    for lengths in ((SMALL.outline + 1, 0), (0, SMALL.arrays + 1), (2**63, 2**63)):
        with pytest.raises(EncodingError):
            decoded(struct.pack("<QQ", *lengths))
    for dtype, *shape in (
        ["<f8", 2**62], ["<f8", 2**40, 0, 2**40], ["<f8", -1], ["<f8", True], ["O", 1], ["<f8", *[0] * 33], ["<f8", 0, 2**40],
        ["<U1048576", 0, 9], ["<f800", 1],
    ):  # fmt: skip
        with pytest.raises(EncodingError):
            decoded(frame({"array": len(shape)}, dtype, *shape, body=b"12345678"))


def test_the_limits_are_those_of_all_arrays_together():
    half = np.zeros(SMALL.arrays // 16)
    assert len(decoded(encoded([half, half]))) == 2
    with pytest.raises(EncodingError, match="MB of arrays"):
        encoded([half, half, np.zeros(1)])
    many = [half] * 2 + [np.zeros(1)]
    assert same(many, decoded(encoded(many, limits=SizeLimits(99, 1 << 30)), limits=SizeLimits(99, 1 << 30)))
    with pytest.raises(EncodingError):  # each of them would be allowed
        decoded(frame({"list": 50}, *[{"array": 2}, "<f8", 0, 1 << 17] * 50))


def test_an_error_has_the_place_in_the_value():
    for value, keys in (
        ({"a": [1, {2: object()}]}, ["a", 1, 2]),
        ((0, collections.Counter(x=object())), [1, "x"]),
        (len, []),
    ):
        with pytest.raises(EncodingError) as found:
            encoded(value)
        assert found.value.keys == keys


def test_arrays_can_be_made_writable():
    sent = np.arange(3.0)
    sent.flags.writeable = False
    assert not decoded(encoded(sent)).flags.writeable
    assert decoded(encoded(sent), writable=True).flags.writeable


def test_objects_that_the_writer_refers_to_are_found():
    thing = object()
    sent = encoded([thing, 1], lambda value: ["thing", 7, [1]] if value is thing else None)
    assert decoded(sent) == [["found", "thing", 7, [1]], 1]


def test_strided_arrays_arrive():
    strided = np.arange(12.0).reshape(3, 4).T[::2]
    assert (decoded(encoded(strided)) == strided).all()


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
    arrived = decoded(encoded(sent))
    if isinstance(plain, np.ndarray) and plain.dtype == object:
        assert type(arrived) is np.ndarray
        assert arrived.tolist() == plain.tolist()
    else:
        assert same(plain, arrived)


# the work of the reader ------------------------------------------------------------------------------------------------

P = 2**61 - 1  # the hash of a number is its remainder modulo P


def big(number):
    return {"int": hex(number)}


def collisions(count):
    """Different keys that all have the same hash, as they are sent: lists of objects."""
    return {
        "whole numbers": [[big(i * P)] for i in range(1, count)],
        "fractions": [[{"fraction": 2}, big(1 + i * P), 1] for i in range(1, count)],
        "decimals": [[{"decimal": str(i * P)}] for i in range(1, count)],
        "tuples": [[{"tuple": 2}, big(i * P), 1] for i in range(1, count)],
        "named tuples": [[{"named": 1}, "N", "a", big(i * P)] for i in range(1, count)],
        "frozen sets": [[{"frozenset": 1}, big(i * P)] for i in range(1, count)],
        "complex numbers": [[{"complex": 2}, float(1000003 * i), float(-i)] for i in range(2, count + 1)],
        "ranges of nothing and numbers": [[{"tuple": 2}, {"range": 3}, 0, 1, 1, big(i * P)] for i in range(1, count)],
    }


def container(what, keys, *more):
    """A container of `keys`, each followed by `more`: the value, if it has values."""
    return frame({what: len(keys) * (1 + len(more))}, *(each for key in keys for each in (*key, *more)))


KEYED = dict.fromkeys(["set", "frozenset", "keys"], ()) | dict.fromkeys(
    ["dict", "ordered", "counter", "defaults", "items"], (0,)
)


@pytest.mark.parametrize("what", collisions(2))
def test_keys_that_would_be_compared_with_each_other_are_refused(what):
    keys = collisions(200)[what]
    arrived = decoded(container("list", keys))  # in a list they are harmless
    assert len(set(arrived)) == len(keys)
    assert len(set(map(hash, arrived))) == 1
    for name, more in KEYED.items():
        with pytest.raises(EncodingError):
            decoded(container(name, keys, *more))
        assert len(decoded(container(name, keys[:20], *more))) == 20, name


@pytest.mark.parametrize(
    "keys",
    [range(-500, 500), [float(i) for i in range(1000)], [i / 7 for i in range(1000)], [2.0**i for i in range(1000)],
     [Fraction(i, 7) for i in range(1000)], [(i, j) for i in range(-9, 9) for j in range(-9, 9)],
     [(i, j, k) for i in (-2, -1, 0) for j in (-2, -1, 0) for k in (-2, -1, 0)], [str(i) for i in range(1000)], [2**i for i in range(2000)],
     [frozenset([i, -i]) for i in range(500)], [1j * i for i in range(500)], [True, None, "", (), 2, 3.5]],
)  # fmt: skip
def test_honest_keys_arrive(keys):
    for sent in (set(keys), dict.fromkeys(keys, 1), frozenset(keys)):
        assert decoded(encoded(sent)) == sent


LENGTH = 1 << 20
COSTLY = {
    "a class for each named tuple": frame({"list": 1000}, *(each for i in range(1000) for each in ({"named": 1}, f"N{i}", "a", 1))),
    "a class for each list of fields": frame({"list": 1000}, *(each for i in range(1000) for each in ({"named": 1}, "N", f"a{i}", 1))),
    "a fraction to reduce": frame({"fraction": 2}, big(1 << 90_000), big((1 << 90_000) + 1)),
    "a decimal with a giant exponent": frame({"decimal": "1E999999"}),
    "a decimal with many digits": frame({"decimal": "7" * 100_000}),
    "a decimal that signals": frame({"decimal": "sNaN"}),
    "a number with many digits": frame({"int": "0x" + "7" * 100_000}),
    "decimal digits": frame({"int": "7" * 100_000}),
    "a tuple with too few parts": frame({"tuple": 1 << 62}, 1, 2, 3),
    "a dict with too few parts": frame({"dict": 1 << 62}, 1, 2, 3),
    "bytes of a number": frame({"bytes": 1}, 1 << 40),
    "bytes of other numbers": frame({"bytes": 1}, {"array": 1}, "<f8", 1, body=b"12345678"),
    "addresses as bytes": frame({"bytes": 1}, {"objects": 1}, 1, 1, 5),
    "bytes that are not there": frame({"bytearray": 1}, {"array": 1}, "|u1", 1 << 20, body=b"12345678"),
    "objects that are not there": frame({"objects": 1}, 1, 1 << 20, 1),
    "objects without elements": frame({"objects": 0}, 2, 0, 1 << 40),
    "a key without a value": frame({"dict": 3}, 1, 2, 3),
    "a range that is too long": frame({"range": 3}, 0, big(1 << 80), 1),
    "nesting": frame(*[{"list": 1}] * 100_000, 1),
    "nested sets": frame(*[{"frozenset": 1}] * 100, 1),
    "an array that is not there": frame({"array": 2}, "<f8", 1 << 20, 1 << 20, body=b"12345678"),
    "an empty array with a long axis": frame({"array": 2}, "<f8", 0, 1 << 40),
    "text that is none": frame({"array": 1}, "<U1", 2, body=b"\xff" * 8),
    "text that is none, in the other byte order": frame({"array": 1}, ">U1", 2, body=b"\xff" * 8),
    "a reference with too few parts": frame({"ref": 9}, "x"),
    "more than a value": frame(1, 2),
    "nothing": frame(),
    # objects of msgpack for which it would allocate memory, or make something, before this module could refuse them
    "a list of msgpack": frame([1, 2]),
    "an announced list": struct.pack("<QQ", 5, 0) + b"\xdd\x00\x0f\xff\xff",
    "announced lists in lists": struct.pack("<QQ", LENGTH, 0) + b"\xdd\x00\x0f\xff\xff" * (LENGTH // 5) + b"\x01",
    "nested dicts of msgpack": struct.pack("<QQ", 3 * 100_000, 0) + b"\x81\xa1a" * 100_000,
    "a dict of msgpack in a dict": frame({"list": {"list": 1}}, 1),
    "a dict of two entries": frame({"list": 1, "tuple": 1}, 1),
    "an empty dict": frame({}),
    "a number as a type": struct.pack("<QQ", 3, 0) + b"\x81\x01\x01",
    "bytes of msgpack": frame(b"x"),
    "an extension of msgpack": frame(msgpack.ExtType(5, b"x")),
    "an empty extension of msgpack": frame(msgpack.ExtType(5, b"")),
    "a time of msgpack": frame(msgpack.Timestamp(1, 2)),
    "announced text": struct.pack("<QQ", 5, 0) + b"\xdb\xff\xff\xff\xff",
    "text that is not UTF-8": struct.pack("<QQ", 4, 0) + b"\xa3\xff\xfe\xfd",
}  # fmt: skip


@pytest.mark.parametrize("what", COSTLY)
def test_bytes_that_would_cost_more_than_their_number_are_refused(what):
    with pytest.raises(EncodingError):
        decoded(COSTLY[what])


def test_named_tuples_of_a_few_classes_are_made_once():
    sent = [collections.namedtuple(f"N{i % 5}", "a b")(i, i) for i in range(2000)]
    arrived = decoded(encoded(sent))
    assert arrived == sent
    assert len(set(map(type, arrived))) == 5


def test_a_decoder_counts_the_outlines_of_all_values():
    data = encoded(["x" * 1000] * 3)
    decoder, stream = Decoder(lambda parts: parts), io.BytesIO(data * 4)
    for _ in range(4):
        decoder.decode(exactly(stream))
    assert decoder.outline_bytes == 4 * struct.unpack_from("<Q", data)[0] > 12_000
