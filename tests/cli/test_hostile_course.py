"""`assign`, `check`, `grade`, `lab` and `doctor` with hostile values and files: an exit code and an error
message, no traceback.
"""

import json
import os
import random
from pathlib import Path

import click
import pytest

from labkit.cli import doctor_checks, main, notebooks
from labkit.course.authoring.assign import read_reference
from labkit.course.authoring.release import release
from labkit.course.bundle import write_release
from labkit.course.grading import grade as grading
from labkit.course.grading.batch import Grading
from labkit.course.grading.nbval_run import RunResult
from labkit.course.schema import parse
from labkit.errors import BadInput
from tests.cli.test_hostile import TEXTS, exit_problem
from tests.course import toy_reference as toy
from tests.nested_values import changed, places

FILES = {  # made by `folder`
    "nothing there": "no/such/file.ipynb", "a folder": "folder", "garbage": "garbage", "an empty file": "empty.ipynb",
    "JSON": "json.ipynb", "unreadable": "unreadable.ipynb", "a pipe": "pipe.ipynb", "a circle": "circle.ipynb",
    "below a file": "garbage/x.ipynb", "a zip": "garbage.zip", "itself": "reference.ipynb", "long name": "x" * 250,
    "too long": "\u00e4" * 200, "NUL": "a\0b", "dots": "..",
}  # fmt: skip
VALUES_AND_FILES = {**TEXTS, **FILES}
BASE = {
    "assign": {"REFERENCE": "reference.ipynb", "--out": "out"},
    "check": {"NOTEBOOK": "toy.ipynb"},
    "grade": {"SUBMISSIONS": "toy.ipynb", "--reference": "reference.ipynb"},
    "doctor": {},
    "lab": {},
}
CASES = [
    (command, param.opts[0] if isinstance(param, click.Option) else param.name.upper())
    for command in BASE
    for param in main.commands[command].params
    if not getattr(param, "is_flag", False) and param.name != "jupyter"  # which is JupyterLab's
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a valid reference, a released notebook, a bundle, and other files; nothing is graded or started."""
    monkeypatch.chdir(tmp_path)
    raw = toy.notebook()
    toy.write(tmp_path, raw)
    reference = parse(raw, "toy")
    write_release(tmp_path, release(reference, "first"), {}, {})
    for name, content in {
        "garbage": random.Random(0).randbytes(1000), "garbage.zip": b"PK\3\4" + random.Random(1).randbytes(1000),
        "empty.ipynb": b"", "json.ipynb": b"[1e999, {}]", "unreadable.ipynb": b"{}",
    }.items():  # fmt: skip
        Path(name).write_bytes(content)
    Path("unreadable.ipynb").chmod(0)  # root can read it nevertheless: it is refused for its content
    Path("folder").mkdir()
    Path("circle.ipynb").symlink_to("circle.ipynb")
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe.ipynb")
    monkeypatch.setattr(grading, "run_notebook", lambda rebuilt, harness: RunResult({}, "nothing is run in this test"))
    monkeypatch.setattr(Grading, "read", raise_bad_input)
    monkeypatch.setattr("labkit.course.grading.nbval_run.require_nbval", lambda: None)
    monkeypatch.setattr("labkit.course.sandbox.confine.confinement_problem", lambda: "")
    monkeypatch.setattr(notebooks, "replace_process", lambda command: None)
    monkeypatch.setattr(doctor_checks, "CHECKS", ())
    return tmp_path


def raise_bad_input(*_):
    raise BadInput("nothing is read in this test.")


def words(command, changed, text):
    """The command line with `changed`, an option or argument, set to `text`."""
    given = {**BASE[command], changed: text}
    options = [f"{name}={value}" for name, value in given.items() if name.startswith("-")]
    return [command, *options, "--", *(value for name, value in given.items() if not name.startswith("-"))]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("command", "param"), CASES, ids=map("-".join, CASES))
def test_hostile_options_and_arguments_are_reported(folder, command, param):
    wrong = {label: exit_problem(words(command, param, text)) for label, text in VALUES_AND_FILES.items()}
    assert {label: what for label, what in wrong.items() if what is not None} == {}


@pytest.mark.parametrize("command", BASE)
def test_misplaced_options_are_reported(folder, command):
    good = [*(f"{name}={value}" for name, value in BASE[command].items() if name.startswith("-")), "--",
            *(value for name, value in BASE[command].items() if not name.startswith("-"))]  # fmt: skip
    for wrong in (["--workers", "3"], ["--json"], ["--bogus=\0"], ["-x"], ["--set=a=b"]):
        assert exit_problem([*wrong, command, *good]) is None
        assert exit_problem([command, *wrong, *good]) is None


VALUES = {
    "null": None, "a list": [], "a table": {}, "a number": -1, "true": True, "huge": 10**400, "NaN": float("nan"),
    "text": "x", "NUL": "\0", "surrogate": "\udcff", "nested": [[[{}]]], "braces": "{{" * 50, "parentheses": "(" * 5000,
}  # fmt: skip


def unexpected_errors(document, read, value):
    """The places at which `value` makes `read` raise an error other than a `BadInput` with a message."""
    wrong = {}
    for path in places(document):
        Path("broken.json").write_text(
            json.dumps(changed(document, path, lambda node, key: node.__setitem__(key, value)))
        )
        try:
            read(Path("broken.json"))
        except BadInput as why:
            if not str(why):
                wrong[path] = "no message"
        except Exception as why:
            wrong[path] = f"{type(why).__name__}: {why}"
    return wrong


@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_notebook_with_one_invalid_value_is_reported(folder, value):
    assert unexpected_errors(toy.notebook(), lambda path: read_reference(path, "seed"), value) == {}
