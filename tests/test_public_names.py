"""Public names exist as the stub lists them, and public functions have types."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import labkit as lk

from .public import public_objects

ROOT = Path(__file__).parents[1]
STUB = ast.parse((ROOT / "labkit" / "__init__.pyi").read_text())


def test_the_stub_lists_the_names_that_exist_at_run_time():
    imported = [(alias.name, alias.asname) for node in STUB.body[1:] for alias in node.names]
    assert all(name == public for name, public in imported)  # `X as X` makes a name public
    names = [name for name, _ in imported]
    assert sorted(names) == lk.__all__ == dir(lk)
    assert all(getattr(lk, name) is not None for name in names)


def test_a_name_is_the_object_of_the_module_in_the_stub():
    for node in STUB.body[1:]:
        for alias in node.names:
            value = getattr(lk, alias.name)
            assert inspect.ismodule(value) or value is getattr(sys.modules[f"labkit.{node.module}"], alias.name)


def test_a_module_with_the_name_of_a_function_does_not_replace_it():
    code = "import labkit.resume, labkit as lk; print(callable(lk.resume))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.stdout == "True\n", done.stderr


def test_an_unknown_name_raises_an_error_with_known_names():
    hints = {
        "AsnycPS": "Did you mean 'AsyncPS'?",
        "Pareto": "It is lk.distributions.Pareto.",
        "zzz": "It has ADPSGD, Accumulator",
    }
    for name, hint in hints.items():
        with pytest.raises(AttributeError, match=re.escape(f"labkit has no {name!r}. {hint}")):
            getattr(lk, name)


# Without a narrower type: the state of a codec, which is its own; parts of a model of several classes; Dask collections.
ANY = {
    "Codec.encode(state)", "Codec.state()", "Codec.sum_over_workers(state)", "Float16.encode(state)",
    "Float16.sum_over_workers(state)", "SignSGD.encode(state)", "TopK.encode(state)", "Hybrid.worker(piece)",
    "Layout.assemble_model()", "NumpyStage.backward(saved)", "TaskQueue.get()", "from_dask(x)", "from_dask(y)",
    "from_dask(sample_weights)",
}  # fmt: skip


def public_functions():
    """(name, function) of every public function and method of labkit that is not overloaded."""
    found = {}
    for name, value in public_objects().items():
        if inspect.isfunction(value):
            found[name] = value
        for owner in value.__mro__ if inspect.isclass(value) else ():
            for attribute, member in vars(owner).items():
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if attribute in ("__init__", "__call__") or not attribute.startswith("_"):
                    found[f"{owner.__name__}.{attribute}"] = member
    own = {name: f for name, f in found.items() if inspect.isfunction(f) and f.__module__.startswith("labkit.")}
    return {name: function for name, function in own.items() if not typing.get_overloads(function)}


def test_parameters_and_results_of_public_functions_have_types():
    found = set()
    for name, function in public_functions().items():
        signature = inspect.signature(function)
        types = {p.name: p.annotation for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
        first = next(iter(types), "")  # self
        found |= {
            f"{name}({p})"
            for p, kind in types.items()
            if kind in (inspect.Parameter.empty, "Any") and (p != first or name[0].islower())
        }
        if signature.return_annotation in (inspect.Parameter.empty, "Any") and not name.endswith("__init__"):
            found.add(f"{name}()")
    assert found == ANY
