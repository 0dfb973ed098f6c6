# ruff: noqa: E501  (a line of a submission stays a line)
"""A check has the same result in a notebook, where the answer is a local function, and in grading. The oracle is the same source,
evaluated in this process.
"""

import collections
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import course
from labkit.course.sandbox.confine import confinement_problem
from tests.course.sharing import shared_answers, solution

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)

SOURCE = """
import collections
from decimal import Decimal
from fractions import Fraction
seen, Pair = [], collections.namedtuple("Pair", "dx dw")
base = np.arange(6.0).reshape(2, 3)
fixed = np.arange(3.0); fixed.setflags(write=False)
def count(kept=[]):
    kept.append(1); seen.append(1)
    return len(kept) + len(seen)
def f(code):
    return eval(code, globals())
"""
ATOMS = (
    "2", "2.0", "True", "np.bool_(True)", "np.bool_(False)", "np.True_ & (1 < 2)", "np.float64(2)", "np.float32(2)", "np.int64(2)", "np.uint8(2)",
    "np.array(2.0)", "np.array(True)", "np.str_('two')", "'two'", "b'two'", "2 + 0j", "float('inf')", "2 ** 70", "None", "np.longdouble(2)",
    "base", "base[0]", "base.T", "base[:, ::2]", "base[::-1]", "base.copy()", "base.astype('f4')", "np.asfortranarray(base)", "fixed", "fixed[1:]",
    "np.broadcast_to(2.0, (2, 3))", "np.zeros((0, 3))", "np.array(['a', 'bc'])", "np.array([base, None], object)",
    "Fraction(5, 2)", "Decimal('2.50')", "Decimal(2)", "[2, 3]", "(2, 3)", "{2, 3}", "frozenset({2})", "range(2, 4)", "(i for i in (2, 3))", "map(int, '23')",
    "zip((2, 3), (4, 5))", "iter([2, 3])", "reversed([3, 2])", "{'a': 2}.values()", "{'a': 2}.items()", "{'a': 2, 3: 4}", "Pair(1, base)",
    "collections.Counter('aab')", "collections.deque([2, 3])", "collections.OrderedDict(a=2)", "bytearray(b'ab')", "count()",
)  # fmt: skip
AROUND = (
    "{}",
    "[{}]",
    "({}, 2)",
    "{{'a': {}}}",
    "[{0}, {0}]",
    "tuple([{}])",
    "Pair({}, 2)",
    "(x for x in [{}])",
    "np.array([{}])",
)
CHECKS = {
    "expect 2": lambda r: course.expect("it", r, 2), "expect True": lambda r: course.expect("it", r, True),
    "expect a tuple": lambda r: course.expect("it", tuple(r), (2, 3)), "expect a list": lambda r: course.expect("it", r, [2, 3]),
    "expect text": lambda r: course.expect("it", r, "two"), "length": len, "items": lambda r: list(map(repr, r)), "truth": bool,
    "first": lambda r: repr(r[0]), "attribute": lambda r: repr(r.dx), "shape": np.shape, "dtype": lambda r: str(r.dtype),
    "type": lambda r: type(r).__name__, "twice": lambda r: (len(list(r)), len(list(r))), "sorted": sorted, "int": int, "float": float,
    "sum": lambda r: repr(sum(r)), "close": lambda r: bool(np.allclose(r, 2)), "equal": lambda r: repr(r == 2), "is": lambda r: r is True,
    "write": lambda r: r.__setitem__(0, 7) or repr(r), "in": lambda r: 2 in r, "hash": lambda r: hash(r) is None, "numbers": lambda r: repr(np.asarray(r) * 2),
    "unpacked": lambda r: (lambda a, b: (repr(a), repr(b)))(*r), "keys": lambda r: list(r.keys()), "text": lambda r: f"{r:.3f}",
}  # fmt: skip
TYPES = {"generator", "map", "zip", "list_iterator", "list_reverseiterator", "tuple_iterator"}  # all give items once


ADDRESS = re.compile(
    r"<\w+ object <genexpr> at 0x\w+>|<\w+ object at 0x\w+>"
)  # iterators differ in class and address only


def outcome(check, result):
    """The outcome of a check of a result: its value, or the class of its error."""
    try:
        found = check(result)
    except Exception as error:
        return type(error).__name__
    return ADDRESS.sub("<items>", repr(found))


@pytest.fixture(scope="module")
def played(server):
    with shared_answers([solution(SOURCE, f="function")], server) as guest:
        yield guest.defined("q")["f"]


@pytest.fixture(scope="module")
def own():
    names = {"np": np}
    exec(SOURCE, names)
    return names["f"]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ATOMS), st.sampled_from(AROUND), st.sampled_from(sorted(CHECKS)))
def test_a_check_has_the_same_result_in_grading(played, own, atom, around, check):
    code = around.format(atom)
    try:
        mine = own(code)
    except Exception:
        with pytest.raises(Exception):  # noqa: B017, PT011
            played(code)
        return
    there, here = outcome(CHECKS[check], played(code)), outcome(CHECKS[check], mine)
    if check == "type" and here.strip("'") in TYPES:
        assert there.strip("'") in TYPES
    else:
        assert there == here, (code, check)


def differences(there, here):
    """In what two answers differ, by their type and what NumPy and `len` say of them."""
    if type(there).__name__ != type(here).__name__ and not {type(there).__name__, type(here).__name__} <= TYPES:
        yield f"{type(there)}, and not {type(here)}"
    if isinstance(here, np.ndarray) and here.dtype != object:
        for name in ("dtype", "shape"):
            if getattr(there, name) != getattr(here, name):
                yield f"{name} {getattr(there, name)}, and not {getattr(here, name)}"
        if there.flags.writeable != here.flags.writeable:
            yield "writeable" if there.flags.writeable else "read-only"
    sized = isinstance(here, collections.abc.Sized) and not (isinstance(here, np.ndarray) and here.ndim == 0)
    if sized and len(there) != len(here):
        yield f"{len(there)} items, and not {len(here)}"


def test_every_kind_of_answer_keeps_its_type(played, own):
    wrong = [f"{atom}: {what}" for atom in ATOMS for what in differences(played(atom), own(atom))]
    assert not wrong, "\n".join(wrong)


ERRORS = {"1 / 0": ZeroDivisionError, "[][1]": IndexError, "{}['a']": KeyError, "int('x')": ValueError, "None.x": AttributeError,
          "np.zeros(2) + np.zeros(3)": ValueError}  # fmt: skip


def test_errors_keep_their_class(played, own):
    for function in (own, played):
        for raised, caught in ERRORS.items():
            with pytest.raises(caught):
                function(raised)
