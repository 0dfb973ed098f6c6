"""Small reference notebooks and submissions, made in code: `notebook()` has every kind of cell, `solve` fills in a release."""

from __future__ import annotations

import copy
import json

from labkit.course.authoring.release import release
from labkit.course.schema import parse
from labkit.course.variants import with_variant

VARIANTS = {
    "scale": [{"value": 2, "words": "twice"}, {"value": 3, "words": "three times"}, {"value": 5, "words": "five times"}]
}
ABOUT = {"assignment": "toy", "title": "A toy", "format": 1, "tools": [], "variants": VARIANTS}

Q1 = '''# q1 (keep this line)
def scaled(x):
    """Return x {{scale}}."""
    ### BEGIN SOLUTION
    return V["scale"] * x
    ### END SOLUTION'''
Q2 = """# q2 (keep this line)
def both(x, y):
    ### BEGIN SOLUTION
    return scaled(x) + scaled(y)
    ### END SOLUTION"""
Q3 = """# q3 (keep this line)
answer = ...
### BEGIN SOLUTION
answer = 7
### END SOLUTION"""
T1 = """print(scaled(0))
if scaled(-1) >= 0:
    raise course.CheckFailed("the sign is lost: did you square?")
### BEGIN HIDDEN TESTS
secret = V["scale"]
assert scaled(10) == secret * 10
### END HIDDEN TESTS"""
T1_WHOLE = """if abs(scaled(3)) <= 3:
    raise course.CheckFailed("nothing is scaled")"""
T2 = "assert both(0, 0) == 0"
T2_HIDDEN = """### BEGIN HIDDEN TESTS
if both(1, 2) != 3 * V["scale"]:
    raise course.CheckFailed("the sum of {{scale}} each is expected")
### END HIDDEN TESTS"""
T3 = "print(answer)"
WHY = "Why?\n\n### BEGIN SOLUTION\nBecause of linearity.\n### END SOLUTION"


def nbgrader(name, kind, points=None):
    grade, solution, locked = {
        "solution": (False, True, False), "test": (True, False, True), "locked": (False, False, True),
        "explain": (True, True, False),
    }[kind]  # fmt: skip
    said = {
        "grade_id": name, "grade": grade, "solution": solution, "locked": locked, "task": False, "schema_version": 3,
        "cell_type": "markdown" if kind == "explain" else "code",
    }  # fmt: skip
    return said if points is None else {**said, "points": points}


def code(source, nb=None, **labkit):
    return {
        "cell_type": "code",
        "source": source,
        "outputs": [],
        "execution_count": None,
        "metadata": metadata(nb, labkit),
    }


def text(source, nb=None, **labkit):
    return {"cell_type": "markdown", "source": source, "metadata": metadata(nb, labkit)}


def metadata(nb, labkit):
    return ({"nbgrader": nb} if nb else {}) | ({"labkit": labkit} if labkit else {})


def solution(question, source, name=None):
    return code(source, nbgrader(name or question, "solution"), question=question)


def test(name, question, points, source):
    return code(source, nbgrader(name, "test", points), question=question)


test.__test__ = False


def cells():
    """Three questions, the second of which builds on the first; q1 has 3 + 1 points, q2 1 + 2, q3 1, and one by hand."""
    return [
        text("# A toy\n\nScale it {{scale}}."),
        code('V = {"scale": 2}', variant=True),
        code("import numpy as np", nbgrader("imports", "locked"), given=True),
        code("from labkit import course", nbgrader("for-tests", "locked")),
        solution("q1", Q1), test("q1-test", "q1", 3, T1), test("q1-more", "q1", 1, T1_WHOLE),
        solution("q2", Q2), test("q2-test", "q2", 1, T2), test("q2-hidden", "q2", 2, T2_HIDDEN),
        solution("q3", Q3), test("q3-test", "q3", 1, T3),
        text(WHY, nbgrader("q4-why", "explain", 2), question="q4"),
        code("import labkit as lk\nrun = lk.DaskCluster", live=True),
    ]  # fmt: skip


def notebook(made=None, **about):
    made = [{**cell, "id": f"c{i:02d}"} for i, cell in enumerate(copy.deepcopy(cells() if made is None else made))]
    return {
        "cells": made,
        "metadata": {"labkit": {**copy.deepcopy(ABOUT), **about}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write(folder, raw, name="reference.ipynb"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(raw))
    return path


def find(raw, name):
    """The cell with this grade_id."""
    return next(c for c in raw["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == name)


RIGHT = {
    "q1": "# q1 (keep this line)\ndef scaled(x):\n    return 2 * x",
    "q2": "# q2 (keep this line)\ndef both(x, y):\n    return scaled(x) + scaled(y)",
    "q3": "# q3 (keep this line)\nanswer = 7",
}


def solve(released, **sources):
    """A released notebook with these sources in its solution cells (right ones where none is given)."""
    raw = copy.deepcopy(released)
    for name, source in {**RIGHT, **sources}.items():
        find(raw, name)["source"] = source
    return raw


REFERENCE = with_variant(parse(notebook(), "m"), None)
RELEASED = release(REFERENCE, "first")
