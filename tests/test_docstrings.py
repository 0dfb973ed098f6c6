"""Docstrings: public functions and classes have examples that print what they show; internal ones say more than their name.

Public are the names of `labkit.__all__`, those of its modules (`lk.lessons`, `lk.lessons.pictures`), the types that these
return, and the public methods and properties of all these classes, also those that a base class in labkit defines.
"""

from __future__ import annotations

import ast
import doctest
import functools
import inspect
import re
import types
from pathlib import Path

import numpy as np
import pytest

import labkit as lk
from labkit.confusion import ConfusionMatrix
from labkit.data import DaskDataset, Dataset
from labkit.forecasts.advice.advise import Advice
from labkit.forecasts.advice.advise import AdviceRow as AdvisedStrategy
from labkit.lab.guess import Revealed
from labkit.lab.run_table import Runs
from labkit.summary import Summary
from labkit.views import Plots

from .public import public_objects

RETURNED = (Advice, AdvisedStrategy, ConfusionMatrix, DaskDataset, Dataset, Plots, Revealed, Runs, Summary)
# what takes longer than a second: calibrations, forecasts, long runs
SLOW = {"Calibration", "Forecasts", "LocalSGD", "Predictions", "Preempt", "calibrate", "forecast", "predict", "resume"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").startswith("labkit.")


def names():
    """{path: object} of all public names; the path is that of the definition."""
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in (*public_objects().values(), *RETURNED)}


def members(cls):
    """{path: (function or property, class)} of the public methods and properties of a class."""
    kinds = (types.FunctionType, property, functools.cached_property, classmethod, staticmethod)
    return {
        f"{base.__module__}.{base.__qualname__}.{name}": (member, base)
        for base in cls.__mro__
        if is_ours(base)
        for name, member in vars(base).items()
        if not name.startswith("_") and isinstance(member, kinds)
    }


NAMES = names()
MEMBERS = {path: found for cls in NAMES.values() if inspect.isclass(cls) for path, found in members(cls).items()}
ALL = sorted({*NAMES, *MEMBERS})


def test_every_public_function_and_class_has_an_example():
    assert len(NAMES) > 100
    without = sorted(path for path, thing in NAMES.items() if ">>> " not in (thing.__doc__ or ""))
    assert not without, "\n".join(without)


def examples():
    finder = doctest.DocTestFinder(recurse=False)
    found = {path: NAMES.get(path) or getattr(MEMBERS[path][0], "__func__", MEMBERS[path][0]) for path in ALL}
    tests = (
        finder.find(thing, path, module=False, globs={"lk": lk, "np": np})
        for path, thing in found.items()
        if thing.__doc__
    )
    return [test for tests_of_one in tests for test in tests_of_one if test.examples]


def marks(example):
    if example.name.endswith(".DaskCluster"):
        return pytest.mark.dask, pytest.mark.slow
    slow = example.name.endswith(tuple(f".{name}" for name in SLOW))
    return (pytest.mark.simulated, pytest.mark.slow) if slow else pytest.mark.simulated


@pytest.mark.parametrize("example", [pytest.param(test, id=test.name, marks=marks(test)) for test in examples()])
def test_the_examples_print_what_they_show(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)


# all docstrings -------------------------------------------------------------------------------------------------------

SOURCES = Path(lk.__file__).parent
OTHER_FORMATS = re.compile(
    r"^ *(Args|Arguments|Parameters|Attributes|Returns|Yields|Raises|Notes?|Examples?):$", re.MULTILINE
)
GENERAL = re.findall(r"\w+", """
    a an all and are as at be been by each for from has have if in into is it its no none not of on one or own return returns
    same that the there this to was were whether which who with yield yields
""")  # fmt: skip


@functools.cache
def docstrings():
    """[(place, path, node, docstring)] of everything in labkit that has a docstring, also of internal names."""
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        module = ".".join(file.relative_to(SOURCES.parent).with_suffix("").parts).removesuffix(".__init__")
        todo = [(module, ast.parse(file.read_text()))]
        for path, node in todo:  # what a node contains is added to the end
            if isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) and ast.get_docstring(node):
                place = f"{file.relative_to(SOURCES.parent)}:{getattr(node, 'lineno', 1)}"
                found.append((place, path, node, ast.get_docstring(node)))
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    todo.append((f"{path}.{child.name}" if hasattr(child, "name") else path, child))
    return found


def stems(text):
    """The words of a text or of identifiers, without endings: `count_pulls`, "counts a pull" -> {"count", "pull"}."""
    words = re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return {re.sub(r"(?<=..)(?:ies|ing|ed|es|s|e)$", "", word) for word in words if word not in GENERAL}


def test_docstrings_have_the_sections_of_numpydoc_or_none():
    assert len(docstrings()) > 1000
    violations = [place for place, _, _, text in docstrings() if OTHER_FORMATS.search(text)]
    assert not violations, "\n".join(violations)


def test_docstrings_of_internal_names_say_more_than_the_signature():
    """Remove the docstring, or say what a reader of the signature does not know."""
    violations = []
    for place, path, node, text in docstrings():
        known = stems(" ".join(path.split(".")[2:]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            known |= stems(f"{ast.unparse(node.args)} {ast.unparse(node.returns) if node.returns else ''}")
        if path not in NAMES and path not in MEMBERS and stems(text) <= known:
            violations.append(f"{place}: {path.rpartition('.')[2]}: {text}")
    assert not violations, "\n".join(violations)
