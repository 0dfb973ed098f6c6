"""Released assignments with right, wrong and missing answers: `pytest --nbval`, `labkit check` and the cells in a notebook's
kernel agree on every test, and show the same hint. What pytest reads beside the notebook does not depend on where it is started.
"""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jupyter_client import KernelManager

from labkit.course.authoring.assign import read_reference
from labkit.course.authoring.release import release
from labkit.course.bundle import CONFIGURATION, write_release
from labkit.course.grading.check import check, open_notebook
from labkit.course.grading.nbval_run import Harness
from labkit.course.schema import parse
from tests.course import toy_reference as toy
from tests.course.mutants import folded
from tests.course.wrong_answers import WRONG, answer, wrong_in

ASSIGNMENTS = Path(__file__).parents[2] / "notebooks" / "assignments"
REFERENCES = Path(__file__).parent / "reference_notebooks"
PLACE_IN_A_MODEL = re.compile(r" on \d+ rows of \d+ numbers.*")  # in grading it is a line of a cell
COLORS = re.compile(r"(?:\x1b|#x1B)\[[0-9;]*m")
TIME = {  # a cell of the student's, which prints something else than when it was saved
    "cell_type": "code", "id": "mine", "metadata": {}, "execution_count": 1, "source": "import time; print(time.perf_counter())",
    "outputs": [{"output_type": "stream", "name": "stdout", "text": "0.5\n"}],
}  # fmt: skip


def with_answers(released, answers):
    """A copy of a released notebook with these sources of its solution cells, and another cell."""
    raw = copy.deepcopy(released)
    for cell in raw["cells"]:
        cell["source"] = answers.get(grade_id(cell), cell["source"])
    return {**raw, "cells": [TIME, *raw["cells"]]}


def grade_id(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def check_ids(raw):
    return {
        grade_id(cell)
        for cell in raw["cells"]
        if cell["metadata"].get("nbgrader", {}).get("points") and "outputs" in cell
    }


def by_nbval(folder, notebooks):
    """The text of each cell that fails under plain `pytest --nbval`, by notebook and grade_id (or source)."""
    report = folder / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--nbval",
        "-q",
        f"--junitxml={report}",
        *(f"{name}.ipynb" for name in notebooks),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    found = {name: {} for name in notebooks}
    for case in ElementTree.parse(report).iter("testcase"):
        name, number = case.get("classname").rpartition(".")[2], int(case.get("name").removeprefix("Cell "))
        cell = [
            cell for cell in notebooks[case.get("classname").split(".")[0]]["cells"] if cell["cell_type"] == "code"
        ][number]
        for wrong in case.findall("failure") + case.findall("error"):
            found[case.get("classname").split(".")[0]][grade_id(cell) or cell["source"]] = COLORS.sub("", wrong.text)
        assert name == "ipynb"
    return found


def in_a_kernel(folder, notebooks):
    """(error, its text) of each cell that raises one in a kernel, as a student sees it, by notebook and grade_id (or source)."""
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "k"))
    manager.start_kernel(cwd=folder)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready()  # what a kernel publishes before the client has subscribed is lost
    found = {name: {} for name in notebooks}
    try:
        for name, raw in notebooks.items():
            client.execute_interactive("%reset -f", output_hook=lambda message: None)
            for cell in raw["cells"]:
                if "outputs" in cell and not cell["metadata"].get("labkit", {}).get("live"):
                    reply = client.execute_interactive("".join(cell["source"]), output_hook=lambda message: None)[
                        "content"
                    ]
                    if reply["status"] != "ok":
                        found[name][grade_id(cell) or cell["source"]] = reply["ename"], reply["evalue"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


def by_check(folder, name):
    """The hint of each test that fails under `labkit check`."""
    result = check(open_notebook(folder / f"{name}.ipynb", None), Harness()).result
    assert not result.problem
    return {test.id: test.hint for score in result.questions for test in score.tests if not test.passed}


@pytest.mark.sample(0, slow=1)
@pytest.mark.parametrize("name", WRONG)
def test_nbval_check_and_the_notebook_agree(name, tmp_path, here):
    reference = read_reference(next(REFERENCES.glob(f"{name}*")), None)
    right = {cell.id: cell.source for cell in reference.of_kind("solution")}
    values = {key: choices[0]["value"] for key, choices in reference.variants.items()}
    first = {cell: (what, changes) for what, cell, changes, *_ in reversed(wrong_in(name, values))}
    wrong = {cell: answer(what, changes, right, cell)[cell] for cell, (what, changes) in first.items()}
    assert wrong.keys() == right.keys()
    for path in (*ASSIGNMENTS.glob(f"{name}*"), ASSIGNMENTS / CONFIGURATION):
        shutil.copy(path, tmp_path)
    released = json.loads(next(ASSIGNMENTS.glob(f"{name}*.ipynb")).read_text())
    notebooks = {
        what: with_answers(released, {cell: folded(source, values) for cell, source in answers.items()})
        for what, answers in (("right", right), ("wrong", wrong), ("empty", {}))
    }
    for what, raw in notebooks.items():
        toy.write(tmp_path, raw, f"{what}.ipynb")
    nbval, kernel = by_nbval(tmp_path, notebooks), in_a_kernel(tmp_path, notebooks)
    assert nbval["right"] == kernel["right"] == {}
    assert kernel["empty"].keys() == check_ids(released)
    assert {test.partition("-")[0] for test in kernel["wrong"]} == set(right)
    for what in notebooks:
        hints = by_check(tmp_path, what)
        assert nbval[what].keys() == kernel[what].keys() == hints.keys(), what
        for test, hint in hints.items():
            error, text = kernel[what][test]
            said = text.partition("\n")[0]
            assert f"{error}: {said}" in nbval[what][test]
            said = PLACE_IN_A_MODEL.sub("", said)
            assert hint == said or re.match(
                rf"(\w+\.\w+ raised )?{error}: {re.escape(said)}|{re.escape(said)} \(cell", hint
            )


@pytest.mark.slow
def test_the_configuration_beside_the_notebook_is_read(tmp_path):
    """From its folder and for a renamed notebook, from above, from elsewhere with an absolute path, below another one."""
    course = tmp_path / "course"
    for folder in (course / "week 1", tmp_path / "other"):
        folder.mkdir(parents=True)
    (course / "pytest.ini").write_text("[pytest]\naddopts = --nbval-cell-timeout=1\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    reference = parse(toy.notebook(), "toy")
    files = write_release(course / "week 1", release(reference, "first"), {}, {})
    toy.write(
        files.notebook.parent, with_answers(json.loads(files.notebook.read_text()), toy.RIGHT), "my answers.ipynb"
    )
    run = [sys.executable, "-m", "pytest", "--nbval"]
    for start, named, more in (
        (course, "week 1/toy.ipynb", ["--collect-only"]), (tmp_path / "other", str(course / "week 1"), ["--collect-only"]),
        (course / "week 1", "my answers.ipynb", []),
    ):  # fmt: skip
        done = subprocess.run([*run, *more, named], cwd=start, capture_output=True, text=True)
        assert f"rootdir: {course / 'week 1'}\nconfigfile: {CONFIGURATION}" in done.stdout, (named, done.stdout)
        assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout  # the cell for the live cluster
