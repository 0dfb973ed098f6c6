"""Type checkers and editors know the public names with their parameters, types and docstrings.

mypy and pyright (the package `basedpyright`, in pyright's mode) check the programs in `typed_programs` and all Python blocks of
the documents, in one run each. mypy keeps its cache with that of pytest: the first run takes about 15 s, later runs 2 s.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
import typing
from collections import defaultdict
from pathlib import Path

import jedi
import pytest

import labkit as lk

from .test_documents import BLOCKS

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted((ROOT / "tests" / "typed_programs").glob("*.py"))
STUB = ast.parse((ROOT / "labkit" / "__init__.pyi").read_text())

MYPY = f"""\
[mypy]
strict = True
ignore_missing_imports = True
mypy_path = {ROOT}

[mypy-labkit.*]
follow_imports = silent
"""
PYRIGHT = {"include": ["*.py"], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
# Modules without annotations: pyright would infer the types of parameters from their defaults.
UNTYPED = ("dask/__init__", "dask/array", "distributed/__init__")
# The code in a document may be without annotations; a block that does not run may be a part of a larger program.
RELAXED = "# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls"
UNDEFINED = "# mypy: disable-error-code=name-defined\n# pyright: reportUndefinedVariable=false"


HEADER = re.compile(r"\A---\n.*?^---\n|\A(?::[^\n]*\n)+", re.DOTALL | re.MULTILINE)  # options of a cell


def programs_of_documents():
    """{name: code} of the programs in the documents, lines at their numbers. A block is one, and so are all cells of a page."""
    found = {}
    for block in BLOCKS:
        page = re.sub(r"[^a-z]", "_", block.page.relative_to(ROOT).with_suffix("").as_posix().lower())
        if block.language == "python":
            name = block.file or f"{page}_{block.line}.py"
            assert name not in found, f"{block.where}: another document has a file {name}"
            found[name] = head = f"{RELAXED}\n{UNDEFINED}" if "no-run" in block.marks else RELAXED
        elif block.language == "{code-cell}":
            name = f"{page}_cells.py"
            head = found.setdefault(name, f"{RELAXED}, allow-redefinition")
        else:
            continue
        code = HEADER.sub(lambda match: "\n" * match[0].count("\n"), block.code)
        found[name] += "\n" * (block.line - head.count("\n")) + code
    return found


def expected(program):
    """{line: (error of mypy, error of pyright)} in the comments of a program."""
    lines = enumerate(program.read_text().splitlines(), 1)
    found = {line: re.search(r"  # ([\w-]+), (report\w+)$", text) for line, text in lines}
    return {line: match.groups() for line, match in found.items() if match}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with the programs."""
    folder = tmp_path_factory.mktemp("programs")
    for program in PROGRAMS:
        shutil.copy(program, folder)
    for name, code in programs_of_documents().items():
        (folder / name).write_text(code)
    for module in UNTYPED:
        stub = folder / "typings" / f"{module}.pyi"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("from typing import Any\ndef __getattr__(name: str) -> Any: ...\n")
    (folder / "mypy.ini").write_text(MYPY)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return folder


@pytest.fixture(scope="module")
def mypy_errors(programs, pytestconfig):
    """{file: {(line, error)}} of mypy."""
    cache = pytestconfig.cache.mkdir("mypy")
    command = [sys.executable, "-m", "mypy", "--cache-dir", cache, "--output", "json", "--no-error-summary"]
    command += sorted(programs.glob("*.py"))
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = defaultdict(set)
    for error in map(json.loads, done.stdout.splitlines()):
        if error["severity"] == "error":
            found[Path(error["file"]).name].add((error["line"], error["code"], error["message"]))
    return found


@pytest.fixture(scope="module")
def pyright_errors(programs):
    """{file: {(line, error)}} of pyright."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", programs]
    done = subprocess.run(command, cwd=programs, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(programs.glob("*.py")))
    found = defaultdict(set)
    for error in report["generalDiagnostics"]:
        if error["severity"] == "error":
            line = error["range"]["start"]["line"] + 1
            found[Path(error["file"]).name].add((line, error.get("rule", "syntax"), error["message"]))
    return found


CORRECT = ["valid.py", "own_strategy.py", *programs_of_documents()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_correct_programs_have_no_errors(name, checker, request):
    assert request.getfixturevalue(f"{checker}_errors")[name] == set()


@pytest.mark.slow
@pytest.mark.parametrize(("checker", "which"), [("mypy", 0), ("pyright", 1)])
def test_mistakes_are_reported_on_their_lines_and_nothing_else(checker, which, request):
    (program,) = (program for program in PROGRAMS if program.name == "wrong.py")
    found = {(line, code) for line, code, _ in request.getfixturevalue(f"{checker}_errors")["wrong.py"]}
    assert found == {(line, codes[which]) for line, codes in expected(program).items()}


# names at run time ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("name", "hint"), [("AsnycPS", "Did you mean 'AsyncPS'?"), ("zzz", "It has ADPSGD, Accumulator")]
)
def test_an_unknown_name_raises_an_error_with_known_names(name, hint):
    with pytest.raises(AttributeError, match=re.escape(f"labkit has no {name!r}. {hint}")):
        getattr(lk, name)


# Without a narrower type: the state of a codec, which is its own; parts of a model of several classes; Dask collections.
ANY = {
    "Codec.encode(state)", "Codec.state()", "Codec.sum_over_workers(state)", "Float16.encode(state)",
    "Float16.sum_over_workers(state)", "SignSGD.encode(state)", "TopK.encode(state)", "Hybrid.worker(piece)",
    "Layout.assemble_model()", "from_dask(x)", "from_dask(y)",
}  # fmt: skip


def public_functions():
    """(name, function) of every public function and method of labkit that is not overloaded."""
    found = {}
    for name in lk.__all__:
        value = getattr(lk, name)
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
            if kind in (inspect._empty, "Any") and (p != first or name[0].islower())
        }
        if signature.return_annotation in (inspect._empty, "Any") and not name.endswith("__init__"):
            found.add(f"{name}()")
    assert found == ANY


# editors --------------------------------------------------------------------------------------------------------------


def script(code):
    return jedi.Script(f"import labkit as lk\n{code}", path=ROOT / "example.py", project=jedi.Project(ROOT))


def completions(code):
    return {found.name for found in script(code).complete()}


def test_editors_complete_all_public_names():
    assert set(lk.__all__) <= completions("lk.")
    assert {"AsyncPS", "AsynchronousServer"} == completions("lk.Async")


@pytest.mark.parametrize(("code", "names"), [
    ("lk.SimulatedCluster(workers=4).spec.", {"compute", "latency", "describe"}),
    ("lk.train('digits', lk.AsyncPS(), lk.SimulatedCluster()).", {"wait", "summary", "plot", "kill"}),
    ("lk.train('digits', lk.AsyncPS(), lk.SimulatedCluster()).wait().plot.", {"staleness", "timeline", "overview"}),
    ("lk.pictures.", {"straggler", "bubble"}),
    ("lk.Lab().", {"run", "share_text"}),
], ids=["cluster", "run", "plot", "pictures", "lab"])  # fmt: skip
def test_editors_complete_attributes(code, names):
    assert names <= completions(code)


@pytest.mark.parametrize(
    "name", ["AsyncPS", "SSP", "Problem", "SimulatedCluster", "Budget", "DaskCluster", "train", "Kill", "Lab"]
)
def test_editors_show_all_parameters(name):
    (signature,) = script(f"lk.{name}(").get_signatures()
    shown = [parameter.name for parameter in signature.params]
    expected = [name for name in inspect.signature(getattr(lk, name)).parameters if not name.startswith("_")]
    assert set(expected) <= set(shown)


def test_editors_show_parameters_with_type_and_default():
    (signature,) = script("lk.AsyncPS(").get_signatures()
    assert "learning_rate: float=option(0.1" in signature.to_string()


def test_editors_show_the_docstring_of_every_class_and_function():
    code = "".join(f"lk.{name}\n" for name in lk.__all__)
    editor = script(code)
    without = []
    for line, name in enumerate(lk.__all__, 2):
        (found, *_) = editor.help(line, 3 + len(name) - 1) or [None]
        if found is None or not found.docstring(raw=True):
            without.append(name)
    assert without == []
