"""The digest of code and data: what changes it, and what does not. The oracle is the table of edits, made by hand."""

import functools
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

from labkit.content_digest import content_digest

BEFORE = """
import functools
import math
from dataclasses import dataclass
import numpy as np
import labkit as lk

RATE = 0.5
TABLE = {"a": [1, 2.0], "b": np.arange(3)}

def helper(x, by=2):
    return x * RATE + by

def outer(x):
    return helper(x)

class Base:
    limit = 3
    def method(self):
        return [helper(k) for k in range(self.limit)]

@dataclass(frozen=True)
class Mine(lk.AsyncPS, Base):
    async def worker(self, ctx, model):
        '''What a worker does.'''
        weights = await lk.pull(ctx)
        try:
            weights = outer(weights)
        except ValueError:
            weights = math.sqrt(TABLE["a"][0])

def unrelated():
    return 1

value = Mine(schedule=functools.partial(lambda u, by: 1 / by, by=2))
"""
EDITS = {
    "a number in a method": ("range(self.limit)", "range(self.limit + 1)"),
    "a constant of the module": ("RATE = 0.5", "RATE = 0.25"),
    "a function that is called indirectly": ("x * RATE + by", "x * RATE - by"),
    "a default": ("by=2)", "by=3)"),
    "an attribute of a base class": ("limit = 3", "limit = 4"),
    "a value in a table": ("2.0]", "2.5]"),
    "an array in a table": ("np.arange(3)", "np.arange(1, 4)"),
    "another base class": ("lk.AsyncPS, Base", "lk.Downpour, Base"),
    "an exception that is handled": ("ValueError", "KeyError"),
    "another function of Python": ("math.sqrt", "math.exp"),
    "the code of a lambda": ("1 / by", "2 / by"),
    "an argument of a partial function": ("by=2))", "by=3))"),
    "an int that becomes a float": ("limit = 3", "limit = 3.0"),
}
NO_EDITS = {
    "nothing": ("", ""),
    "a comment": ("import math", "import math  # for roots"),
    "empty lines": ("RATE = 0.5", "\n\n\nRATE = 0.5"),
    "a function that nothing refers to": ("return 1", "return 2"),
    "a docstring of a class": ("class Base:", "class Base:\n    'The base.'"),
}


def made(source, name="of_a_user"):
    module = types.ModuleType(name)
    module.__file__ = f"/home/user/{name}.py"
    sys.modules[name] = module
    try:
        exec(compile(source, module.__file__, "exec"), vars(module))
        return content_digest(module.value)
    finally:
        del sys.modules[name]


def edited(one, other):
    assert one in BEFORE
    return BEFORE.replace(one, other, 1) if one else BEFORE


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_code_or_values_changes_the_digest(edit):
    assert made(edited(*EDITS[edit])) != made(BEFORE)


@pytest.mark.parametrize("edit", NO_EDITS)
def test_what_does_not_run_does_not_change_the_digest(edit):
    assert made(edited(*NO_EDITS[edit])) == made(BEFORE)


def closure(factor):
    return lambda x: factor * x


def recursive(n):
    return n if n < 2 else recursive(n - 1)


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


CYCLE: list[object] = [1]
CYCLE.append(CYCLE)
DIFFERENT = {
    "closures": (closure(1.0), closure(0.0)),
    "arrays": (np.arange(4), np.arange(4)[::-1]),
    "types of arrays": (np.zeros(2, np.int64), np.zeros(2)),
    "shapes": (np.zeros((2, 3)), np.zeros((3, 2))),
    "arrays of objects": (np.array([1, "a"], object), np.array([1, "b"], object)),
    "nesting": ([[1], 2], [[1, 2]]),
    "text and number": ("1", 1),
    "words": (["ab", "c"], ["a", "bc"]),
    "states": (Slots(1), Slots(2)),
    "generators": (np.random.default_rng(0), np.random.default_rng(1)),
    "methods": (Slots(1).__init__, Slots(2).__init__),
    "partial functions": (functools.partial(max, 1), functools.partial(max, 2)),
}
SAME = {
    "closures": (closure(1.0), closure(1.0)),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "order of a set": ({"a", "b", "c"}, {"c", "b", "a"}),
    "layout of an array": (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))),
    "shared and equal parts": ([(s := [1]), s], [[1], [1]]),
    "generators": (np.random.default_rng(0), np.random.default_rng(0)),
    "recursion": (recursive, recursive),
    "a cycle": (CYCLE, CYCLE),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_values_have_different_digests(name):
    one, other = DIFFERENT[name]
    assert content_digest(one) != content_digest(other)


@pytest.mark.parametrize("name", SAME)
def test_equal_values_have_equal_digests(name):
    one, other = SAME[name]
    assert content_digest(one) == content_digest(other)


def test_the_digest_is_that_of_other_processes_except_of_what_cannot_be_identified():
    program = textwrap.dedent("""
        import sys, threading
        from labkit.content_digest import content_digest
        from tests.test_content_digest import BEFORE, made
        print(made(BEFORE), content_digest(threading.Lock()))
    """)
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    (one, lock), (two, other_lock) = (run.stdout.split() for run in runs)
    assert one == two == made(BEFORE)
    assert lock != other_lock
