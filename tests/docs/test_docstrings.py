"""Docstrings of all public names are in numpydoc's format, and their examples run.

Public are the names of `labkit.__all__`, the functions of `lk.pictures`, the types that these return, and the public methods
and properties of all these classes, also those that a base class in labkit defines.
"""

from __future__ import annotations

import dataclasses
import doctest
import functools
import inspect
import types

import numpy as np
import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

import labkit as lk
from labkit.advisor.advise import Advice
from labkit.advisor.advise import Prediction as AdvisedStrategy
from labkit.data import DaskDataset, Dataset
from labkit.lab.prediction import Revealed
from labkit.lab.run_table import Runs
from labkit.options import HasOptions, options_of
from labkit.summary import Summary
from labkit.views import Plots

# The checks of numpydoc, by the numbers that its documentation explains.
EVERYWHERE = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL10"),  # format; known sections, in order; not missing
    *("SS01", "SS02", "SS03", "SS04", "SS06"),  # a summary: a sentence on one line
    *("PR01", "PR02", "PR03"),  # the parameters of the signature, and no others, in their order
    *("PR04", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10"),  # each with its type and a description in sentences
    *("RT01", "RT03", "RT04", "RT05", "YD01"),  # what is returned, in sentences
    *("SA02", "SA03"),
}
RETURNED = (Advice, AdvisedStrategy, DaskDataset, Dataset, Plots, Revealed, Runs, Summary)
PROCESSES = (pytest.mark.dask, pytest.mark.slow)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").startswith("labkit.")


def names():
    """{path: object} of all public names; the path is that of the definition."""
    named = [getattr(lk, name) for name in lk.__all__]
    named += [getattr(module, name) for module in named if inspect.ismodule(module) for name in module.__all__]
    return {
        f"{thing.__module__}.{thing.__qualname__}": thing
        for thing in (*named, *RETURNED)
        if not inspect.ismodule(thing)
    }


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


def is_documented_above(path):
    """Whether a base class in labkit describes the parameters and the result of this method, or `Strategy` does, because it is a
    role: their arguments are the context and the components of the role.
    """
    if path not in MEMBERS:
        return False
    (member, owner), name = MEMBERS[path], path.rpartition(".")[2]
    if issubclass(owner, lk.Strategy) and inspect.iscoroutinefunction(member):
        return list(inspect.signature(member).parameters)[:2] == ["self", "ctx"]
    return any(vars(base)[name].__doc__ for base in owner.__mro__[1:] if is_ours(base) and name in vars(base))


def is_exempt(code, path, thing):
    """The section Parameters of a class with options is made from their declarations (GL02: it has no line after its end), and
    is not for parameters whose names begin with an underscore. `-> Self` says that a method returns its object. What an effect
    yields to the engine is not for its caller.
    """
    if code in ("PR01", "RT01", "YD01") and is_documented_above(path):
        return True
    if code == "YD01":
        return bool(thing.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE)
    if code == "GL02":
        return isinstance(thing, type) and issubclass(thing, HasOptions)
    if code == "RT01":
        return getattr(thing, "__annotations__", {}).get("return") == "Self"
    if code in ("PR01", "PR03"):
        doc = Validator(get_doc_object(thing))
        return list(doc.doc_all_parameters) == [name for name in doc.signature_parameters if not name.startswith("_")]
    return False


@pytest.mark.parametrize("path", ALL)
def test_the_docstring_is_in_the_format_of_numpydoc(path):
    member, owner = MEMBERS.get(path, (NAMES.get(path), None))
    if owner is not None and not getattr(member, "__func__", member).__doc__:
        name = path.rpartition(".")[2]
        assert any(getattr(vars(base).get(name), "__doc__", None) for base in owner.__mro__[1:] if is_ours(base)), path
        return  # the docstring is that of the base class
    thing = Validator._load_obj(path)
    errors = [
        (code, text)
        for code, text in validate(path)["errors"]
        if code in EVERYWHERE and not is_exempt(code, path, thing)
    ]
    assert errors == []


@pytest.mark.parametrize("path", [path for path in ALL if path in NAMES])
def test_every_public_function_and_class_has_an_example(path):
    assert ">>> " in (NAMES[path].__doc__ or "")


@pytest.mark.parametrize("path", [path for path in ALL if dataclasses.is_dataclass(NAMES.get(path))])
def test_documented_defaults_are_those_of_the_options(path):
    documented = Validator(get_doc_object(NAMES[path])).doc_all_parameters
    for name, k in options_of(NAMES[path]).items():
        if name in documented and k.default is not dataclasses.MISSING:
            assert documented[name][0].endswith(f"default: {k.default!r}")


def examples():
    finder = doctest.DocTestFinder(recurse=False)
    found = {path: NAMES.get(path) or getattr(MEMBERS[path][0], "__func__", MEMBERS[path][0]) for path in ALL}
    tests = (
        finder.find(thing, path, module=False, globs={"lk": lk, "np": np})
        for path, thing in found.items()
        if thing.__doc__
    )
    return [test for tests_of_one in tests for test in tests_of_one if test.examples]


@pytest.mark.parametrize(
    "example",
    [pytest.param(test, id=test.name, marks=PROCESSES if test.name.endswith(".DaskCluster") else ()) for test in examples()],
)
def test_the_examples_print_what_they_show(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(example, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
