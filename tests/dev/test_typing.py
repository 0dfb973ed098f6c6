"""Type checkers and editors know the public names with their parameters, types and docstrings.

mypy and pyright (the package `basedpyright`, in pyright's mode) check the programs in `typed_programs` and all Python blocks of
the documents, in one run each. mypy keeps its cache with that of pytest: the first run takes about 15 s, later runs 2 s.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import jedi
import pytest

import labkit as lk
from tests.test_documents import BLOCKS

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests" / "dev" / "typed_programs").glob("*.py"))

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
UNTYPED = ("dask/__init__", "dask/array", "distributed/__init__", "torch/__init__")
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


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_correct_programs_have_no_errors(checker, request):
    found = request.getfixturevalue(f"{checker}_errors")
    names = ["valid.py", "own_strategy.py", *programs_of_documents()]
    assert len(names) > 30
    violations = [f"{name}:{line}: {code} {message}" for name in names for line, code, message in sorted(found[name])]
    assert not violations, "\n".join(violations)


@pytest.mark.slow
@pytest.mark.parametrize(("checker", "which"), [("mypy", 0), ("pyright", 1)])
def test_mistakes_are_reported_on_their_lines_and_nothing_else(checker, which, request):
    (program,) = (program for program in PROGRAMS if program.name == "wrong.py")
    found = {(line, code) for line, code, _ in request.getfixturevalue(f"{checker}_errors")["wrong.py"]}
    assert found == {(line, codes[which]) for line, codes in expected(program).items()}


# editors --------------------------------------------------------------------------------------------------------------


def script(code):
    return jedi.Script(f"import labkit as lk\n{code}", path=ROOT / "example.py", project=jedi.Project(ROOT))


def completions(code):
    return {found.name for found in script(code).complete()}


def test_editors_complete_all_public_names():
    assert set(lk.__all__) <= completions("lk.")
    assert {"AsyncPS", "AsynchronousServer"} == completions("lk.Async")


def test_editors_complete_attributes():
    for code, names in {
        "lk.SimulatedCluster(workers=4).spec.": {"compute", "latency", "describe"},
        "lk.train('digits', lk.AsyncPS(), lk.SimulatedCluster()).": {"wait", "summary", "plot", "kill"},
        "lk.train('digits', lk.AsyncPS(), lk.SimulatedCluster()).wait().plot.": {"staleness", "timeline", "overview"},
        "lk.lessons.": {"young", "step_costs", "pictures"},
        "lk.lessons.pictures.": {"straggler", "bubble"},
        "lk.Lab().": {"run", "share_text"},
    }.items():
        assert names <= completions(code), code


def test_editors_show_all_parameters():
    for name in ("AsyncPS", "SSP", "Problem", "SimulatedCluster", "Budget", "DaskCluster", "train", "Kill", "Lab"):
        (signature,) = script(f"lk.{name}(").get_signatures()
        shown = {parameter.name for parameter in signature.params}
        expected = {given for given in inspect.signature(getattr(lk, name)).parameters if given[0] != "_"}
        assert expected <= shown, name


def test_editors_show_the_parameters_of_methods_that_several_classes_have():
    for code in ("lk.train('digits', lk.AsyncPS(), lk.SimulatedCluster()).kill(", "lk.Lab().kill("):
        (signature,) = script(code).get_signatures()
        assert signature.to_string().startswith("kill(role: str, restart: bool=True)"), code


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
