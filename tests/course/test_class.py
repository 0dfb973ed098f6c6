# ruff: noqa: E501  (a submission stays a line)
"""A class through `labkit grade`: right answers in ten styles, twenty wrong ones, thirty broken submissions; weekly all twice.

The oracle is how a submission was made: right ones have full marks, others have not, and each first name has one row and page.
"""

import ast
import copy
import csv
import io
import json
import re
import zipfile
from pathlib import Path

import pytest

from labkit.course.authoring.assign import read_reference
from labkit.course.sandbox.confine import confinement_problem
from tests.command_line import invoke
from tests.course import toy_reference as toy
from tests.course.mutants import folded
from tests.course.wrong_answers import answer, wrong_in

COURSE = Path(__file__).parent / "reference_notebooks" / "06_pipeline_schedule.ipynb"
RELEASED = Path(__file__).parents[2] / "notebooks" / "assignments" / COURSE.name
NAMES = (
    "Ada",
    "Александр",
    "日本",
    "हिन्दी",
    ".dot",
    "Eve: the first",
    "=1+1",
    "a;=HYPERLINK(1)",
    "\u202eLeft",
    "O'Neil-Smith",
)


def solved(sources):
    """The released notebook with these sources of its solution cells."""
    raw = copy.deepcopy(json.loads(RELEASED.read_text()))
    for name, source in sources.items():
        toy.find(raw, name)["source"] = f"# {name} (keep this line)\n{source}"
    return raw


def data(raw):
    return json.dumps(raw).encode()


def renamed(source):
    """The source with other names of local variables."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        local = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in local:
                node.id = f"my_{node.id}"
    return ast.unparse(tree)


def in_helpers(sources):
    """The answers in functions of another cell, which the cells of the answers call."""
    whole, calls = [], {}
    for name, source in sources.items():
        tree = ast.parse(source)
        for node in tree.body:
            node.name, arguments = f"my_{node.name}", ", ".join(argument.arg for argument in node.args.args)
            calls[name] = f"def {node.name[3:]}({arguments}):\n    return {node.name}({arguments})"
        whole.append(ast.unparse(tree))
    return with_cells(solved(calls), 1, "\n\n".join(whole))


def with_cells(raw, at, *sources):
    cells = [
        {"cell_type": "code", "metadata": {}, "source": s, "outputs": [], "execution_count": None} for s in sources
    ]
    return {**raw, "cells": [*raw["cells"][:at], *cells, *raw["cells"][at:]]}


def bare(raw, keep_code=False):
    """Without metadata, or only the code cells in one."""
    if keep_code:
        cells = [cell for cell in raw["cells"] if toy_id(cell) in ("q1", "q2", "q3")]
        return {
            **raw,
            "cells": [{"cell_type": "code", "metadata": {}, "source": "\n\n".join(cell["source"] for cell in cells)}],
        }
    return {**raw, "cells": [{**cell, "metadata": {}, "id": f"x{i}"} for i, cell in enumerate(raw["cells"])]}


def toy_id(cell):
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def format_3(raw):
    cells = [
        {"cell_type": "code", "input": "".join(cell["source"]), "language": "python", "outputs": [], "metadata": cell["metadata"]}
        if cell["cell_type"] == "code" else {key: cell[key] for key in ("cell_type", "source", "metadata")}
        for cell in raw["cells"]
    ]  # fmt: skip
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": raw["metadata"], "worksheets": [{"cells": cells}]}


def packed(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return stream.getvalue()


def without(raw, *names):
    return {**raw, "cells": [cell for cell in raw["cells"] if toy_id(cell) not in names]}


def as_text(raw, *names):
    for name in names:
        toy.find(raw, name)["cell_type"] = "markdown"
    return raw


def right_styles(right):
    """{file: content} of one right submission in each style."""
    raw = solved(right)
    windows = b"\xef\xbb\xbf" + data(raw).replace(b"\\n", b"\\r\\n")
    numbers = {**right, "q3": f"import numpy as np\n{right['q3']}".replace("return ", "return np.float64(1) * ")}
    return {
        "as released": {"x.ipynb": data(raw)},
        "other names": {"x.ipynb": data(solved({name: renamed(source) for name, source in right.items()}))},
        "helpers": {"x.ipynb": data(in_helpers(right))},
        "numbers of NumPy": {"x.ipynb": data(solved(numbers))},
        "no metadata": {"x.ipynb": data(bare(raw))},
        "one cell": {"x.ipynb": data(bare(raw, keep_code=True))},
        "Windows": {"x.ipynb": windows},
        "format 3": {"x.ipynb": data(format_3(raw))},
        "experiments": {"x.ipynb": data(with_cells(raw, 4, "%matplotlib inline\n!ls\n1 / 0", "import seaborn", "print(order(2, 2, 0)"))},
        "in a zip, beside a broken one": {"w.zip": packed(**{"a/b/x.ipynb": data(raw), "a/y.ipynb": b"{"}), "report.pdf": b"%PDF"},
    }  # fmt: skip


def broken_styles(right):
    """{file: content} of one broken submission of each kind."""
    raw, whole = solved(right), data(solved(right))

    def q1(source):
        return {"x.ipynb": data(solved({**right, "q1": source}))}

    head = "def order(stages, micro_batches, stage):\n    "
    other = {**raw, "metadata": {"labkit": {"assignment": "05_ring_all_reduce"}}}
    kernel = {**raw, "metadata": {**raw["metadata"], "kernelspec": {"name": "ir", "language": "R"}}}
    return {
        "nothing": {}, "empty": {"x.ipynb": b""}, "cut off": {"x.ipynb": whole[:-400]}, "no cells": {"x.ipynb": b"{}"},
        "a list": {"x.ipynb": b"[" * 50_000}, "not text": {"x.ipynb": b"\xff\xfe{"}, "another": {"x.ipynb": data(other)},
        "another kernel": {"x.ipynb": data(kernel)}, "a page": {"x.html": b"<html>"}, "a script": {"x.py": b"def order(): pass"},
        "a scan": {"x.pdf": b"%PDF"}, "an archive": {"x.rar": b"Rar!"}, "a text": {"x.ipynb.txt": whole}, "hidden": {".x.ipynb": whole},
        "a checkpoint": {".ipynb_checkpoints/x.ipynb": whole}, "an empty zip": {"w.zip": packed()}, "no zip": {"w.zip": b"PK\x03\x04"},
        "zips in zips": {"w.zip": packed(a=b"", **{"b.zip": packed(**{"c.zip": packed(**{"x.ipynb": whole})})})},
        "all as text": {"x.ipynb": data(as_text(solved(right), "q1", "q2", "q3"))}, "one as text": {"x.ipynb": data(as_text(solved(right), "q2"))},
        "one deleted": {"x.ipynb": data(without(raw, "q3"))}, "all deleted": {"x.ipynb": data(without(raw, "q1", "q2", "q3"))},
        "as released": {"x.ipynb": RELEASED.read_bytes()}, "no syntax": q1("def order(stages:"), "raises": q1(f"{head}1 / 0"),
        "exits": q1("import sys\nsys.exit(0)"), "another name": q1(right["q1"].replace("def order", "def orders")),
        "nothing returned": q1(f"{head}pass"), "one argument": q1("def order(stages):\n    return []"),
        "another function": q1(f"import os\n{head}os._exit(0)"),
    }  # fmt: skip


def submissions(students):
    """[(first name, {file: content}, whether it is right)] of so many students."""
    reference = read_reference(COURSE, None)
    values = {key: choices[0]["value"] for key, choices in reference.variants.items()}
    sources = {cell.id: cell.source for cell in reference.of_kind("solution")}
    right = {name: folded(source, values) for name, source in sources.items()}
    wrong = [answer(what, changes, sources, cell) for what, cell, changes, *_ in wrong_in("06", values)[:20]]
    wrong = [{"x.ipynb": data(solved({name: folded(s, values) for name, s in each.items()}))} for each in wrong]
    kinds = [(each, True) for each in right_styles(right).values()] + [(each, False) for each in wrong]
    kinds += [(each, False) for each in broken_styles(right).values()]
    assert len(kinds) == 60
    return [
        (f"{NAMES[(i + i // 60) % len(NAMES)]}_{i}_assignsubmission_file_", *kinds[i % 60]) for i in range(students)
    ]


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize("students", [120, 60])
@pytest.mark.skipif(bool(confinement_problem()), reason=f"`grade` runs on Linux only: {confinement_problem()}")
def test_a_class(tmp_path, here, students):
    made = submissions(students)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for first, files, _ in made:
            archive.writestr(f"{first}/", b"")
            for name, content in files.items():
                archive.writestr(f"{first}/{name}", content)
    command = [
        "grade",
        tmp_path / "all.zip",
        "--reference",
        COURSE,
        "--csv",
        tmp_path / "marks.csv",
        "--html",
        tmp_path / "pages",
    ]
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    with (tmp_path / "marks.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = {row["Identifier"].removeprefix("Participant "): row for row in rows}
    assert len(rows) == len(found) == students
    full = read_reference(COURSE, None)
    most = sum(cell.points for cell in full.of_kind("test"))
    wrongly = [
        (first, row["Grade"], row["Feedback comments"])
        for first, _, right in made
        if ((row := found[first.split("_")[1]])["Grade"] == f"{most:g}") != right
        or (not right and not re.search(r"[a-z]{4}", row["Feedback comments"]))
    ]  # fmt: skip
    assert wrongly == []
    pages = {path.name for path in (tmp_path / "pages").iterdir()}
    assert len(pages) == students
    assert {
        "Александр_1.html",
        "日本_2.html",
        "हिन्दी_3.html",
        "dot_4.html",
        "Eve_the_first_5.html",
        "Александр_11.html",
    } <= pages
