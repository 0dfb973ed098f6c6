"""Boxes compared with plain index arithmetic: exactly their parameters, in their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit.nn.index_sets import Box, Boxes


def indices(box):
    """The indices of a box, by the definition, one by one."""
    return [box.offset + r * box.stride + c for r in range(box.rows) for c in range(box.low, box.high)]


@st.composite
def disjoint(draw):
    """(length of the vector, boxes that do not overlap): matrices one behind the other, of each some columns."""
    boxes, offset = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 5))):
        rows, stride = draw(st.integers(0, 4)), draw(st.integers(0, 6))
        cuts = sorted(draw(st.lists(st.integers(0, stride), min_size=2, max_size=4)))
        for low, high in list(zip(cuts[::2], cuts[1::2])):
            boxes.append(Box(offset, rows, stride, low, high))
        offset += rows * stride + draw(st.integers(0, 2))
    return offset + draw(st.integers(1, 3)), draw(st.permutations(boxes))


@given(disjoint())
def test_take_and_put_are_inverse(made):
    length, boxes = made
    owner = Boxes(boxes)
    places = [i for box in boxes for i in indices(box)]
    assert owner.size == len(owner) == len(places) == len(set(places))
    flat = np.arange(length, dtype=np.float64)
    taken = owner.take(flat)
    assert taken.tolist() == places
    assert taken.shape == (owner.size,)
    assert not np.shares_memory(taken, flat)
    other = np.full(length, -1.0)
    owner.put(other, taken)
    rest = [i for i in range(length) if i not in set(places)]
    assert other[places].tolist() == places
    assert np.all(other[rest] == -1)
    assert np.array_equal(owner.take(other), taken)


@given(disjoint(), st.sampled_from(["float32", "float64"]))
def test_take_keeps_the_dtype_and_the_order_of_memory(made, dtype):
    length, boxes = made
    taken = Boxes(boxes).take(np.zeros(length, dtype))
    assert taken.dtype == dtype
    assert taken.flags.c_contiguous
    assert taken.flags.writeable


@given(disjoint())
def test_arrays_without_memory_stay_without(made):
    length, boxes = made
    taken = Boxes(boxes).take(np.broadcast_to(np.float32(0), (length,)))
    assert taken.shape == (Boxes(boxes).size,)
    assert taken.strides == (0,)
    assert taken.dtype == np.float32


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_slice_is_a_box_of_one_row(start, length):
    owner = Boxes.of(slice(start, start + length))
    flat = np.arange(50.0)
    assert owner.take(flat).tolist() == flat[start : start + length].tolist()
    assert Boxes.of(owner) is owner
    assert owner.boxes == ((start, 1, length, 0, length),)


def test_columns_of_a_matrix():
    flat = np.arange(3 + 2 * 4)
    owner = Boxes([(3, 2, 4, 1, 3)])
    assert owner.take(flat).tolist() == [4, 5, 8, 9]
    owner.put(flat, np.array([-4, -5, -8, -9]))
    assert flat.tolist() == [0, 1, 2, 3, -4, -5, 6, 7, -8, -9, 10]


def test_equal_boxes_are_equal_and_hash_alike():
    a, b = Boxes([(0, 1, 4, 0, 2)]), Boxes([(np.int64(0), 1, 4, 0, 2)])
    assert a == b
    assert hash(a) == hash(b)
    assert a != Boxes([(0, 1, 4, 0, 3)])
    assert a != [(0, 1, 4, 0, 2)]
    assert repr(a) == "Boxes([(0, 1, 4, 0, 2)], 2 parameters)"


@pytest.mark.parametrize(
    "box", [(-1, 1, 2, 0, 2), (0, -1, 2, 0, 2), (0, 1, 2, 2, 1), (0, 1, 2, 0, 3), (0, 1, 2, -1, 1)]
)
def test_invalid_boxes_are_refused(box):
    with pytest.raises(lk.BadInput, match="0 <= low <= high <= stride"):
        Boxes([box])


@pytest.mark.parametrize("shape", [(3,), (5,), (4, 1), (2, 2)])
def test_values_of_another_size_are_refused_and_nothing_is_written(shape):
    flat = np.zeros(8)
    with pytest.raises(lk.BadInput, match="The owner has 4 parameters"):
        Boxes([(0, 2, 4, 1, 3)]).put(flat, np.ones(shape))
    assert not flat.any()
