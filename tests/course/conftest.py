"""The fork server that the tests of course work share."""

import threading

import pytest

from labkit.course.grading import grade as grading
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.sandbox.processes import ForkServer
from tests.course import toy_reference as toy
from tests.course.sharing import run_here

# Neither lessons nor releases: `authoring/test_reference_notebooks.py` executes them.
collect_ignore = ["reference_notebooks"]


@pytest.fixture(scope="session")
def server():
    """A fork server with the limits of grading. Every use of it starts processes of its own."""
    with ForkServer() as made:
        yield made


@pytest.fixture(scope="session")
def toy_key(server):
    """The grading key of the toy reference notebook."""
    answers = solutions_as_answers(toy.REFERENCE)
    cells = run_here(rebuild(toy.REFERENCE, answers, None), server).cells
    assert {name: cell.message for name, cell in cells.items() if not cell.passed} == {}
    outputs = {cell.id: cells[cell.id].outputs for cell in toy.REFERENCE.of_kind("test")}
    return GradingKey(toy.REFERENCE, outputs, answers, "first")


@pytest.fixture
def here(monkeypatch, server):
    """Run rebuilt notebooks in this process, without nbval, one at a time (standard output belongs to the process)."""
    lock = threading.Lock()

    def run(rebuilt, harness):
        with lock:
            return run_here(rebuilt, server)

    monkeypatch.setattr(grading, "run_notebook", run)
