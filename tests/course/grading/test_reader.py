"""Hostile files: one that exceeds a limit is a problem of its own submission, and returned data are validated.

No time is measured: each reader process has limits that end it.
"""

import io
import json
import sys
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.course.grading import magics, reader
from labkit.course.grading.answers import find_answers
from labkit.course.grading.magics import without_magics
from labkit.course.grading.reader import Reader
from labkit.course.grading.submissions import read_submissions
from labkit.course.schema import from_data, parse, public_data
from labkit.errors import BadInput
from tests.course import toy_reference as toy

REFERENCE = parse(toy.notebook(), "m")


def cells_with(*sources, **answers):
    """The toy solved, with further cells of these sources."""
    raw = toy.solve(toy.notebook(), **answers)
    raw["cells"] += [toy.code(source) for source in sources]
    return json.dumps(raw).encode()


GOOD = cells_with()
HEAD, TAIL = GOOD[:-1], b"}"


def read(data, tmp_path, **limits):
    (tmp_path / "x.ipynb").write_bytes(data)
    with (tmp_path / "x.ipynb").open("rb") as stream:
        (found,), _ = Reader(**limits).read(stream.fileno(), REFERENCE)
    return found


NESTED = "(" * 100_000 + ")" * 100_000
READABLE = {
    "a million spaces": " " * 10**6 + "$",
    "a million spaces in an assignment": "x" + " " * 10**6 + "= $\n$",
    "a million letters and a question": "a" * 10**6 + "?\n$",
    "a million question marks": "?" * 10**6,
    "thousands of magics": "%a\n" * 4000,
    "a hundred thousand magics": "%a\n" * 100_000,
    "thousands of broken lines": "a b\n" * 100_000,
    "deep brackets": NESTED,
    "a million quotes": "'" * 10**6,
    "a million hashes": "#" * 10**6 + "\n%a",
    "markers": "# q (keep this line" * 50_000,
    "marker spaces": "#" + " " * 10**6 + "q1 (keep this line)",
    "surrogates": "x = '\ud83d'",
    "a zero byte": "x = 1\0",
    "minus signs": "-" * 200_000 + "1",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["one", "all others"])
@pytest.mark.parametrize("place", ["q1", "helper", "q4-why"])
def test_a_source_that_is_hard_to_parse_does_not_affect_the_other_answers(tmp_path, place, quick):
    lost = []
    for name in list(READABLE)[:1] if quick else list(READABLE)[1:]:
        source = READABLE[name]
        found = read(cells_with(source) if place == "helper" else cells_with(**{place: source}), tmp_path)
        if found.answers is None:  # no Python can be read of it: a sentence, and no more
            lost += [] if "process" in found.problem else [f"{name}: {found.problem}"]
        elif found.answers.solutions["q3"] != toy.RIGHT["q3"]:
            lost.append(f"{name}: q3 is {found.answers.solutions['q3']!r}")
    assert not lost, "\n".join(lost)


def objects():
    return b'{"":0},' * 3_000_000


def wide_text():
    return json.dumps({"cells": ["\U0001f600" + "x" * 60_000_000]}, ensure_ascii=False).encode()


# Made by the test, because every process of the tests imports this file.
UNREADABLE = {
    "objects": (lambda: HEAD + b', "x": [' + objects() + b"0]" + TAIL, "MB of memory"),
    "objects in outputs": (lambda: b'{"cells": [{"outputs": [' + objects() + b"0]}]}", "MB of memory"),
    "strings": (lambda: b'{"cells": ["' + b'","' * 9_000_000 + b'"]}', "allowed: 10,000"),
    "wide text": (wide_text, "MB of memory"),
    "depth": (lambda: b'{"cells": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}", "not JSON"),
    "cells": (lambda: b'{"cells": [' + b"{}," * 20_000 + b"{}]}", "20,001 cells; allowed: 10,000"),
    "text in many cells": (lambda: cells_with(*["x" * 10**6] * 5), "KB of text"),
    "a number": (lambda: b'{"cells": [], "x": ' + b"9" * 10**6 + b"}", "not JSON"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("objects", "cells") else [pytest.mark.slow]) for n in UNREADABLE]
)
def test_exceeding_the_memory_limit_is_reported(tmp_path, name):
    make, message = UNREADABLE[name]
    found = read(make(), tmp_path, memory=192 << 20)
    assert found.answers is None
    assert message in found.problem
    assert not found.broken
    assert read(GOOD, tmp_path).answers, "the next one"


def test_exceeding_the_processor_time_limit_is_reported(tmp_path):
    many = b'{"cells": [' + b"{}," * 8_500_000 + b"{}]}"  # each calls a function
    found = read(many, tmp_path, processor_s=1)
    assert found.problem == "reading it takes more than 1 s of processor time"


class TestLimits:
    """One student's submission does not use up another's limits."""

    def blanks(self, count, size):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
            for i in range(count):
                made.writestr(f"{i}.ipynb", b" " * size)
        return stream.getvalue()

    def grade(self, tmp_path, bomb):
        with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as made:
            made.writestr("Eve_1_assignsubmission_file_/w.zip", bomb)
            for i in range(2, 5):
                made.writestr(f"S{i}_{i}_assignsubmission_file_/toy.ipynb", GOOD)
        found = read_submissions([tmp_path / "m.zip"], REFERENCE).found
        assert [(each.student.id, bool(each.answers)) for each in found] == [("1", False), *((n, True) for n in "234")]
        return found[0]

    def test_a_zip_of_blank_files_does_not_affect_other_students(self, tmp_path):
        assert self.grade(tmp_path, self.blanks(5, 10**6)).problem == "the file is empty"

    @pytest.mark.sample(0, slow=0)
    def test_a_zip_of_gigabytes_does_not_affect_other_students(self, tmp_path):
        eve = self.grade(tmp_path, self.blanks(12, 190 * 10**6))
        assert eve.problem
        assert len(eve.notes) <= 6


class TestValidationOfReaderOutput:
    """A hostile file may control the reader process: the returned data are validated field by field."""

    def answer(self, tmp_path, monkeypatch, script):
        (tmp_path / "fake.py").write_text(f"import sys\nwrite = sys.stdout.write\nsys.stdin.read()\n{script}")
        monkeypatch.setattr(reader, "LAUNCH", tmp_path / "fake.py")
        return read(GOOD, tmp_path)

    def test_malformed_output_is_a_problem(self, tmp_path, monkeypatch):
        begun = '{"begin": ""}\n'
        for line in (
            "no JSON", "[]", "3", '"x"', "[" * 100_000, "{}", '{"left": -1}', '{"left": true}', '{"begin": 3}',
            begun + '{"answers": 3, "variant": ""}', begun + '{"answers": {}, "variant": ""}', begun + '{"problem": 3}', "\xff",
        ):  # fmt: skip
            found = self.answer(tmp_path, monkeypatch, f"write({line!r} + chr(10))")
            assert found.answers is None, line
            assert found.problem, line

    def test_malformed_answers_are_refused(self, tmp_path, monkeypatch):
        right = {"solutions": {}, "before": {}, "after": [], "explained": {}, "notes": [], "untouched": []}
        malformed = (
            {"solutions": {"q9": "x = 1"}}, {"solutions": {"q1": 3}}, {"solutions": []}, {"before": {"q1": "x"}},
            {"before": {"q1": [3]}}, {"after": "x"}, {"explained": {"q1": "x"}}, {"notes": [3]}, {"untouched": [[]]},
        )  # fmt: skip
        for change in ({}, *malformed):
            line = json.dumps({"answers": {**right, **change}, "variant": ""})
            found = self.answer(tmp_path, monkeypatch, f"write('{{\"begin\": \"\"}}\\n' + {line!r} + '\\n')")
            assert bool(found.answers) == (not change), change

    def test_the_output_of_the_reader_process_is_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reader, "MAX_LINE_BYTES", 1 << 20)
        assert "MB of text" in self.answer(tmp_path, monkeypatch, "while True: write('x' * 65536)").problem
        monkeypatch.setattr(reader, "MAX_OUTPUT_BYTES", 1 << 20)
        lines = "while True: write('{\"left\": 1}\\n')"
        assert "MB of text" in self.answer(tmp_path, monkeypatch, lines).problem

    def test_a_hanging_reader_process_is_killed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reader, "WALL_S", 0.3)
        found = self.answer(tmp_path, monkeypatch, "import time\ntime.sleep(10**6)")
        assert (found.problem, found.broken) == ("reading it was ended after 0.3 s", True)

    def test_a_reader_process_that_crashes_is_reported(self, tmp_path, monkeypatch):
        found = self.answer(tmp_path, monkeypatch, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        assert "crashed (signal 11)" in found.problem

    def test_reader_processes_receive_no_solution(self):
        text = json.dumps(public_data(REFERENCE))
        assert 'V[\\"scale\\"]' not in text
        assert '{\\"scale\\": 2}' not in text
        assert "secret" not in text
        assert "linearity" not in text


def test_answers_are_found_with_the_public_data():
    """Answers are found with the public part of a reference notebook as with the reference notebook."""
    from labkit.course.grading.submitted_notebook import parse_submitted

    raw = json.loads(cells_with("%time\nx = 1", q1="x"))
    raw["cells"] = [cell for cell in raw["cells"] if "variant" not in cell["metadata"].get("labkit", {})]
    notebook = parse_submitted(json.dumps(raw).encode())
    assert find_answers(from_data(public_data(REFERENCE)), notebook) == find_answers(REFERENCE, notebook)


# lines of IPython -----------------------------------------------------------------------------------------------------

STATEMENTS = [
    "x = (1,\n% 2)", 'text = """\n%kept\n!kept\n"""', "y = 7 \\\n% 4", "def f(a):\n    return a % 2", "# why?", "s = 'a?'",
    "t = '''it's\n?kept'''", 'u = "\\""', "v = [\n# ( ' \"\n1]", "if x:\n    pass", "w = r'\\\\'", "a = b = 'x' \"'\" '\"'", "",
]  # fmt: skip
MAGICS = [
    "%time x",
    "!echo it's \"(",
    "?len",
    "len??",
    "x?",
    "files = !ls (",
    "a, b = %run x",
    "  ",
    "    %who"[4:],
    "%%time",
]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([(s, False) for s in STATEMENTS] + [(m, True) for m in MAGICS]), min_size=1, max_size=12)
)
def test_only_ipython_lines_are_replaced(rows):
    rows = [(text, magic and bool(text.strip())) for text, magic in rows]
    source = "\n".join(text for text, _ in rows)
    wanted = "\n".join("pass" if magic else text for text, magic in rows)
    assert without_magics(source) == (wanted, sum(magic for _, magic in rows))


def test_a_source_is_parsed_once(monkeypatch):
    parses = []
    plain = magics.ast.parse
    monkeypatch.setattr(magics.ast, "parse", lambda source: (parses.append(len(source)), plain(source)))
    assert without_magics("%a\n" * 4000)[1] == 4000
    assert len(parses) == 1


def test_a_missing_notebook_is_refused(tmp_path):
    with (tmp_path / "empty").open("wb+") as stream, pytest.raises(BadInput, match="the file is empty"):
        Reader().about(stream.fileno())


assert sys.getrecursionlimit() < 100_000  # deeper nesting is refused by Python
