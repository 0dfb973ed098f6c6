"""Honest code in any style gets full points: in student processes it gives bit for bit the results of the student's own
class in the simulator, which is the oracle.
"""

import __future__

import ast
import contextlib
import dataclasses
import sys
import types

import numpy as np
import pytest

import labkit as lk
from labkit import course
from labkit.course.sandbox.confine import confinement_problem
from tests.course.sharing import GIVEN, descriptors, helper, shared_answers, solution
from tests.course.unusual_code import HEAD, ODD, at_once, other

pytestmark = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"submitted code is confined on Linux only: {confinement_problem()}"
)
QUICK = [*list(ODD)[::8], "random numbers"]


def own_class(monkeypatch, before, source):
    """The student's class in this process, as it is in the student's notebook; statements that fail there are skipped."""
    module = types.ModuleType("own")
    monkeypatch.setitem(sys.modules, "own", module)
    vars(module).update(np=np, lk=lk, dataclass=dataclasses.dataclass)
    for cell in [*before, source]:
        if "plt" in cell or "course" in cell:
            continue  # plots and trials, which have no effect in the sandbox
        for statement in ast.parse(cell).body:
            with contextlib.suppress(ZeroDivisionError, FileNotFoundError):
                flags = __future__.annotations.compiler_flag if "__future__" in cell else 0
                exec(compile(ast.Module([statement], []), "<own>", "exec", flags, dont_inherit=True), vars(module))
    return module.X


def results(trial):
    """What must be equal, by name."""
    counted = ("ledger", "seconds", "sent", "staleness", "leads", "computed")
    return {"parameters": trial.parameters.tobytes()} | {name: getattr(trial, name) for name in counted}


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some", "all others"])
def test_unusual_code_gives_the_same_bytes_as_without_a_sandbox(server, quick, monkeypatch):
    wrong = []
    for name in [name for name in ODD if (name in QUICK) == quick]:
        before, source, more = ODD[name]
        options = {"workers": 2, "updates": 10, "seed": 3} | more
        open_before = descriptors()
        cells = [helper(text, f"h{i}") for i, text in enumerate(before)] + [solution(source, X="class")]
        found = course.trial(shared_answers(cells, server).defined("q")["X"], **options)
        own = results(course.trial(own_class(monkeypatch, before, source), **options).check())
        if not found.ok:
            wrong.append(f"{name}: {found.error}")
            continue
        wrong += [f"{name}: other {what}" for what, value in results(found).items() if value != own[what]]
        wrong += [f"{name}: {left} is open" for left in descriptors() - open_before]
    assert not wrong, "\n".join(wrong)


def test_the_reference_solution_equals_the_synchronous_server(server):
    made = shared_answers([solution(ODD["as it is taught"][1], X="class")], server).defined("q")["X"]
    assert course.same_parameters(course.trial(made, workers=3), course.trial(lk.SyncPS(), workers=3))


def test_options_can_be_set(server):
    X = shared_answers([solution(ODD["steps at once"][1], X="class")], server).defined("q")["X"]
    assert X().learning_rate == 0.1
    quick, slow = (course.trial(X(learning_rate=rate)).check() for rate in (0.5, 0.1))
    assert not course.same_parameters(quick, slow)
    assert course.same_parameters(quick, course.trial(lk.AsyncPS(learning_rate=0.5)))


def test_each_role_has_a_reproducible_random_stream(server):
    source = HEAD + at_once() + other(
        "assert ctx.rng is ctx.rng\nif ctx.rng.random() < 0.5:\n    await ctx.sleep(0.05)\n"
        "gradient = await ctx.compute(model.gradient, weights, batch)\nweights = await lk.push_pull(ctx, gradient)"
    )  # fmt: skip
    X = shared_answers([solution(source, X="class")], server).defined("q")["X"]
    first, again, other_seed = course.trial(X, seed=1), course.trial(X, seed=1), course.trial(X, seed=2)
    assert first.check().parameters.tobytes() == again.check().parameters.tobytes()
    assert first.seconds == again.seconds != other_seed.check().seconds


FUNCTIONS = """
from __future__ import annotations
import math, collections
from dataclasses import dataclass
from typing import Any

@dataclass
class Pair:
    a: float
    b: float = 2.0

def mean(xs: NoSuchType) -> Any:
    "An annotation that means nothing."
    print(xs)
    return np.mean(xs)

def dense(x, w, b=0.0, *, relu=False):
    y = x @ w + b
    return (np.maximum(y, 0) if relu else y), y.shape

def counted(words):
    return dict(collections.Counter(words))

def pair(x):
    return Pair(x).a + Pair(x).b

def schedule(stages, micro):
    return [("forward", np.int64(i)) for i in range(micro)]

def empty(): return np.zeros((0, 3)), np.zeros(()), None, float("nan"), 1 + 2j, 2**70, -(2**63) - 1
half = np.float32(0.5)
"""


def test_functions_and_values_are_resolved(server):
    kinds = dict.fromkeys(("mean", "dense", "counted", "pair", "schedule", "empty"), "function") | {"half": "value"}
    names = shared_answers([solution(FUNCTIONS, **kinds)], server).defined("q")
    course.expect("mean", names["mean"]([1, 2, 6]), 3)
    course.expect("mean of an array", names["mean"](np.arange(5.0)), 2.0)
    y, shape = names["dense"](np.ones((2, 3)), w=np.ones((3, 4)), b=1, relu=True)
    assert shape == (2, 4)
    assert y.dtype == np.float64
    assert (y == 4).all()
    assert names["counted"](["a", "b", "a"]) == {"a": 2, "b": 1}
    assert names["pair"](1.5) == 3.5
    assert names["half"] == 0.5
    assert names["schedule"](2, 2) == [("forward", 0), ("forward", 1)]
    none, point, nothing, nan, imaginary, big, low = names["empty"]()
    assert none.shape == (0, 3)
    assert point.shape == ()
    assert nothing is None
    assert nan != nan
    assert (imaginary, big, low) == (1 + 2j, 2**70, -(2**63) - 1)


def test_given_cells_are_run(server):
    assert "import numpy" in GIVEN["source"]
    assert shared_answers([solution("v = float(np.sqrt(49))", v="value")], server).defined("q")["v"] == 7.0
