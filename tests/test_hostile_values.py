"""Every public callable is given hostile values, one argument at a time.

Allowed are success and labkit's own errors, whose messages are labkit's. An error from inside (`OverflowError`,
`TypeError: '<' not supported`, ...) is a bug, whatever was given.
"""

import dataclasses
import functools
import inspect
import math

import numpy as np
import pytest

import labkit as lk
from labkit.knobs import knobs_of

HUGE = 10**400


class Raises:
    """An object whose every conversion raises."""

    def _raise(self, *_):
        raise RuntimeError("a hostile object")

    __repr__ = __str__ = __index__ = __float__ = __int__ = __bool__ = __len__ = __iter__ = __eq__ = __lt__ = _raise
    __le__ = __gt__ = __ge__ = __hash__ = __fspath__ = __getitem__ = __contains__ = __array__ = __call__ = _raise


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


NUMBERS = {
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0.0": -0.0, "-1": -1, "0": 0, "half": 0.5, "1e308": 1e308,
    "tiny": 5e-324, "huge": HUGE, "-huge": -HUGE, "longer than str() allows": 10**5000, "True": True,
    "np.bool_": np.bool_(True), "np.nan": np.float32("nan"), "np.int64": np.int64(2), "np.float64": np.float64(2.5),
    "complex": 1j,
}  # fmt: skip
TEXTS = {
    "empty": "", "x": "x", "nul": "\0", "long": "x" * 100_000, "long path": "x/" * 4000, "surrogate": "\ud800", "number": "3",
    "url": "ftp://?#[", "bad url": "http://[", "a folder": "/", "bytes": b"", "more bytes": b"\0\xff",
    "braces": "{0} %s \n\x1b[2J",
}  # fmt: skip
OBJECTS = {
    "None": None, "list": [], "nested": [[1], [2, 3]], "tuple": (), "dict": {}, "dict of None": {None: None}, "set": {1},
    "object": object(), "class": int, "function": len, "array": np.zeros(3), "empty array": np.zeros((0, 3)),
    "object array": np.array([None, "x"], object), "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "scalar array": np.array(2), "raises": Raises(), "unprintable": Unprintable(), "generator": (i for i in ()),
    "NotImplemented": NotImplemented, "Ellipsis": ...,
}  # fmt: skip
HOSTILE = NUMBERS | TEXTS | OBJECTS

SMALL = lk.Problem("moons", hidden=(2,), batch_size=4)
TIMED = lk.Problem("moons", hidden=(), timing_only=True)


def outcome(call, allowed=(lk.LabkitError, TimeoutError)):
    """None if `call` did something or refused; else what went wrong."""
    try:
        call()
    except allowed as error:
        text = str(error)
        return f"a message of {len(text):,} characters" if len(text) > 4000 else None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:90]}"
    return None


def holds(cases):
    """Each of [(name, call), ...] succeeds or is refused."""
    wrong = [f"{name}: {what}" for name, call in cases if (what := outcome(call)) is not None]
    assert not wrong, "\n".join(wrong)


def each_argument(name, call, good, values=None):
    """(label, call) with one argument after the other replaced by every hostile value. A list among the values is copied."""
    for argument in good:
        for label, value in (values or HOSTILE).items():
            value = list(value) if type(value) is list else dict(value) if type(value) is dict else value
            yield f"{name}({argument}={label})", functools.partial(call, **{**good, argument: value})


# values ---------------------------------------------------------------------------------------------------------------

DATACLASSES = sorted(
    name for name in lk.__all__
    if inspect.isclass(getattr(lk, name)) and dataclasses.is_dataclass(getattr(lk, name))
    and not issubclass(getattr(lk, name), lk.Message | Exception)
    and name not in ("Layout", "RoleSpec", "Prediction", "Scalability")
)  # fmt: skip
NEEDED = {"Delay": {"a": "worker-0"}, "Drop": {"a": "worker-0"}, "Partition": {"a": "worker-0"}}
NEEDED |= {"Cosine": {"total": 10}, "Step": {"every": 10}, "Warmup": {"updates": 10}}


NO_NUMBERS = ["nan", "np.nan", "huge", "-huge", "True", "np.bool_", "x", "bytes", "list", "dict", "array", "masked", "raises"]


def made(cls, **given):
    """An instance, and a description of it."""
    thing = cls(**given)
    if not any(isinstance(value, Raises) for value in given.values()):
        repr(thing)
    return thing


@pytest.mark.parametrize("name", DATACLASSES)
def test_values(name):
    cls = getattr(lk, name)
    fields = [field.name for field in dataclasses.fields(cls) if field.init]
    base = dict(NEEDED.get(name, {}))
    cases = []
    for field in fields:
        for label, value in HOSTILE.items():
            cases.append((f"{name}({field}={label})", functools.partial(made, cls, **{**base, field: value})))
    holds(cases)


@pytest.mark.parametrize("name", DATACLASSES)
def test_what_is_no_number_is_not_taken_for_one(name):
    """A knob that is a number refuses nan, texts, truth values, arrays of several, and numbers that no float can hold."""
    cls = getattr(lk, name)
    wrong = [
        f"{name}({k.name}={label})"
        for k in knobs_of(cls).values()
        if k.type in (int, float) and k.choices is None
        for label in NO_NUMBERS
        if refused_not(lambda k=k, label=label: cls(**{**NEEDED.get(name, {}), k.name: HOSTILE[label]}))
    ]
    assert wrong == []


def refused_not(call):
    try:
        call()
    except lk.BadInput:
        return False
    return True
