"""Finding the answers in a submission, and the content of the rebuilt notebook. No notebook is run."""

import json

import pytest

from labkit.course.authoring.release import release
from labkit.course.grading import answers
from labkit.course.grading.answers import find_answers
from labkit.course.grading.magics import without_magics
from labkit.course.grading.rebuild import rebuild, solutions_as_answers
from labkit.course.grading.submitted_notebook import parse_submitted
from labkit.course.schema import parse
from labkit.errors import BadInput
from tests.course import toy_reference as toy

REFERENCE = parse(toy.notebook(), "m")
RELEASED = release(REFERENCE, "first")


def solved(**sources):
    return toy.solve(RELEASED, **sources)


def submitted(raw):
    return parse_submitted(json.dumps(raw).encode())


def found_in(raw, base=REFERENCE):
    return find_answers(base, submitted(raw))


def place(raw, name, *made):
    """Put cells before the one with this grade_id (at the end for "")."""
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in raw["cells"]]
    at = ids.index(name) if name else len(ids)
    raw["cells"][at:at] = list(made)
    return raw


def without_metadata(raw, keep_ids):
    """A notebook as saved by some other editors."""
    return {
        **raw,
        "cells": [
            {**cell, "metadata": {}, "id": cell.get("id", f"new{i}") if keep_ids else f"new{i}"}
            for i, cell in enumerate(raw["cells"])
        ],
    }


def sources(raw, base=REFERENCE):
    made = rebuild(base, found_in(raw, base), {})
    return [(cell["kind"], cell["id"], cell["source"]) for cell in made.sources["cells"]]


class TestFindAnswers:
    @pytest.mark.parametrize("base", [REFERENCE, parse(RELEASED, "r")], ids=["grade", "check"])
    def test_answers_are_the_sources_of_the_solution_cells(self, base):
        found = found_in(solved(), base)
        assert found.solutions == toy.RIGHT
        assert (found.before, found.after, found.notes) == ({"q1": [], "q2": [], "q3": []}, [], ())

    def test_an_unchanged_answer_is_recognized(self):
        found = found_in(solved(q2="".join(toy.find(RELEASED, "q2")["source"])))
        assert [found.is_untouched(REFERENCE, name) for name in ("q1", "q2", "q3")] == [False, True, False]

    def test_helper_cells_keep_their_positions(self):
        raw = place(solved(), "q2", toy.code("h2 = 1"))
        raw = place(raw, "q1", toy.code("import math"), toy.code("h1 = 1"))
        raw = place(raw, "", toy.code("last = 1"))
        found = sources(raw)
        assert [cell[1:] for cell in found if cell[0] != "solution"] == [
            ("imports", "import numpy as np"), ("helper-1", "import math"), ("helper-2", "h1 = 1"), ("helper-3", "h2 = 1"),
            ("helper-4", "last = 1"),
        ]  # fmt: skip
        assert [cell[1] for cell in found] == [
            "imports",
            "helper-1",
            "helper-2",
            "q1",
            "helper-3",
            "q2",
            "q3",
            "helper-4",
        ]

    def test_parts_of_a_split_cell_and_cells_between_them_are_joined(self):
        raw = solved(q1="# q1 (keep this line)\nfactor = 2")
        half = toy.solution("q1", "def scaled(x):\n    return double * x")
        found = found_in(place(raw, "q1-test", toy.code("double = factor"), half))
        assert (
            found.solutions["q1"]
            == "# q1 (keep this line)\nfactor = 2\ndouble = factor\ndef scaled(x):\n    return double * x"
        )
        assert "several cells have the id 'q1': joined in their order" in found.notes

    def test_merged_cells_are_split_at_the_marker(self):
        raw = solved(q1=f"{toy.RIGHT['q1']}\n\n{toy.RIGHT['q2']}")
        raw["cells"].remove(toy.find(raw, "q2"))
        found = found_in(raw)
        assert {name: text.strip() for name, text in found.solutions.items()} == toy.RIGHT
        assert "the cell of 'q2' had lost its id and was found by its marker comment" in found.notes

    def test_a_test_that_was_merged_into_an_answer_is_removed(self):
        test = "".join(toy.find(RELEASED, "q1-test")["source"])
        raw = solved(q1=f"{toy.RIGHT['q1']}\n\n{test}")
        raw["cells"].remove(toy.find(raw, "q1-test"))
        assert found_in(raw).solutions["q1"].strip() == toy.RIGHT["q1"]

    @pytest.mark.parametrize("keep_ids", [True, False])
    def test_answers_are_found_without_metadata(self, keep_ids):
        raw = place(solved(), "q2", toy.code("helper = 1"))
        found = found_in(without_metadata(raw, keep_ids))
        assert found.solutions == toy.RIGHT
        assert found.before["q2"] == ["helper = 1"]

    def test_a_lost_marker_and_a_lost_id_are_found_by_the_cells_own_id(self):
        raw = solved(q1="def scaled(x):\n    return 2 * x")
        toy.find(raw, "q1")["metadata"] = {}
        assert found_in(raw).solutions["q1"] == "def scaled(x):\n    return 2 * x"

    def test_a_copy_of_a_marker_does_not_replace_the_answer(self):
        found = found_in(place(solved(), "q1", toy.code("# q1 (keep this line)\nold = 1")))
        assert found.solutions["q1"] == toy.RIGHT["q1"]
        assert found.before["q1"] == ["# q1 (keep this line)\nold = 1"]

    def test_reordered_cells_are_put_into_the_order_of_the_base(self):
        raw = solved()
        raw["cells"].reverse()
        assert [cell[1] for cell in sources(raw) if cell[0] == "solution"] == ["q1", "q2", "q3"]

    def test_a_deleted_cell_is_an_empty_answer(self):
        raw = solved()
        raw["cells"].remove(toy.find(raw, "q2"))
        assert ("solution", "q2", "") in sources(raw)
        assert "the cell 'q2' is not in the notebook (deleted?)" in found_in(raw).notes

    @pytest.mark.parametrize("keep_ids", [True, False])
    @pytest.mark.parametrize("kind", ["markdown", "raw"])
    def test_solution_cells_that_are_no_code_cells_are_named(self, kind, keep_ids):
        raw = solved()
        toy.find(raw, "q2")["cell_type"] = kind
        shown = "Markdown" if kind == "markdown" else kind
        said = f"is a {shown} cell now and is not run: make it a code cell"
        found = found_in(raw if keep_ids else without_metadata(raw, False)).notes
        assert [note for note in found if "q2" in note] == [f"the cell 'q2' {said}"]
        for name in ("q1", "q3"):
            toy.find(raw, name)["cell_type"] = kind
        with pytest.raises(BadInput, match=f"'q1' {said}; the cell 'q2' {said}; the cell 'q3' {said}"):
            found_in(raw if keep_ids else without_metadata(raw, False))

    def test_edited_tests_are_ignored(self):
        raw = solved()
        toy.find(raw, "q1-test")["source"] = "pass"
        toy.find(raw, "for-tests")["source"] = "course = None"
        assert all("pass" not in source and "course = None" not in source for _, _, source in sources(raw))
        assert sum("was changed" in note for note in found_in(raw).notes) == 2

    def test_an_answer_with_the_id_of_a_test_is_still_an_answer(self):
        raw = solved()
        toy.find(raw, "q1")["metadata"]["nbgrader"]["grade_id"] = "q1-test"  # the marker still identifies it
        assert found_in(raw).solutions["q1"] == toy.RIGHT["q1"]

    def test_live_cells_are_ignored_and_names_they_define_are_noted(self):
        raw = solved(q2="# q2 (keep this line)\ndef both(x, y):\n    return total(scaled(x), scaled(y))")
        raw["cells"][-1]["source"] = "def total(a, b):\n    return a + b"
        assert not any("def total" in source for _, _, source in sources(raw))
        assert any("'total' is defined in a cell for the live cluster" in note for note in found_in(raw).notes)

    def test_text_answers_are_collected(self):
        raw = solved()
        toy.find(raw, "q4-why")["source"] = "Because."
        assert found_in(raw).explained == {"q4-why": "Because."}

    def test_a_notebook_of_another_assignment_is_refused(self):
        raw = solved()
        raw["metadata"]["labkit"]["assignment"] = "other"
        with pytest.raises(BadInput, match="another assignment: 'other'; allowed: 'toy'"):
            found_in(raw)

    def test_a_notebook_without_solution_cells_is_refused(self):
        with pytest.raises(BadInput, match="no solution cell"):
            found_in(toy.notebook([toy.text("hello"), toy.code("x = 1")]))

    def test_answers_in_added_cells_are_found(self):
        raw = toy.notebook([toy.code(source.split("\n", 1)[1]) for source in toy.RIGHT.values()])
        found = found_in(raw)
        assert found.after == [source.split("\n", 1)[1] for source in toy.RIGHT.values()]
        assert not any(found.is_untouched(REFERENCE, name) for name in toy.RIGHT)

    def test_too_many_helpers_are_refused(self, monkeypatch):
        monkeypatch.setattr(answers, "MAX_HELPERS", 5)
        with pytest.raises(BadInput, match="6 extra code cells; allowed: 5"):
            found_in(place(solved(), "q2", *[toy.code(f"x = {i}") for i in range(6)]))

    def test_cells_with_unknown_ids_are_helpers(self):
        raw = place(solved(), "q2", toy.solution("q9", "x = 1", name="../../etc"))
        assert found_in(raw).before["q2"] == ["x = 1"]


class TestMagics:
    @pytest.mark.parametrize(
        ("source", "kept", "dropped"),
        [
            ("%matplotlib inline\nx = 1", "pass\nx = 1", 1),
            ("!pip install x\n%time y = 2\nx = 1", "pass\npass\nx = 1", 2),
            ("x?\nlen??\n?len\nx = 1", "pass\npass\npass\nx = 1", 3),
            ("files = !ls\nx = 1", "pass\nx = 1", 1),
            ("%%time\nx = 1", "pass\nx = 1", 1),
            ("%%bash\nrm -rf /", "", 2),
            ("if x:\n    %time y\nz = 1", "if x:\n    pass\nz = 1", 1),
            ("!echo it's", "pass", 1),
            ('text = """\n%not magic\n"""', 'text = """\n%not magic\n"""', 0),
            ("x = (7\n% 4)", "x = (7\n% 4)", 0),
            ('text = """\n%kept\n"""\n%dropped', 'text = """\n%kept\n"""\npass', 1),
            ("def f(:\n    pass", "def f(:\n    pass", 0),
            ("await x", "await x", 0),
        ],
    )
    def test_ipython_lines_are_replaced_by_pass(self, source, kept, dropped):
        assert without_magics(source) == (kept, dropped)

    def test_replaced_ipython_lines_are_noted(self):
        found = found_in(solved(q1="%matplotlib inline\n" + toy.RIGHT["q1"]))
        assert "1 line of IPython (%, !, ?) not run" in found.notes


class TestRebuild:
    def test_a_students_source_does_not_occur_in_the_notebook(self):
        evil = "# q1 (keep this line)\nraise SystemExit('EVIL')"
        raw = place(solved(q1=evil), "q1", toy.code("EVIL = 1"))
        made = rebuild(REFERENCE, found_in(raw), {})
        assert "EVIL" not in json.dumps(made.notebook)
        assert json.dumps(made.sources).count("EVIL") == 2

    def test_a_rebuilt_notebook_has_setup_given_solution_and_test_cells(self):
        made = rebuild(
            REFERENCE, found_in(solved()), {"q3-test": [{"output_type": "stream", "name": "stdout", "text": "7\n"}]}
        )
        cells = {cell["metadata"]["labkit"]["cell"]: cell for cell in made.notebook["cells"]}
        assert list(cells) == [
            "(setup)", "(variant)", "imports", "for-tests", "q1", "q1-test", "q1-more", "q2", "q2-test", "q2-hidden", "q3",
            "q3-test",
        ]  # fmt: skip
        assert (
            cells["(setup)"]["source"]
            == 'from labkit.course.sandbox.remote_answers import RemoteAnswers\n\nanswers = RemoteAnswers.open("sources.json")'
        )
        assert cells["q1"]["source"] == 'globals().update(answers.defined("q1"))'
        assert cells["q1-test"]["source"] == toy.T1
        assert cells["q3-test"]["outputs"][0]["text"] == "7\n"

    def test_only_tests_with_known_outputs_have_outputs_to_compare(self):
        cells = rebuild(REFERENCE, found_in(solved()), {"q1-test": []}).notebook["cells"]
        assert [c["metadata"]["labkit"]["cell"] for c in cells if c["execution_count"] is not None] == ["q1-test"]
        assert all("tags" not in cell["metadata"] for cell in cells)

    def test_recording_has_no_outputs_to_compare(self):
        assert all(
            cell["execution_count"] is None for cell in rebuild(REFERENCE, found_in(solved()), None).notebook["cells"]
        )

    def test_expected_names_are_those_outside_the_solution_regions(self):
        made = rebuild(REFERENCE, found_in(solved(q1="def other(): pass")), {})
        assert [c["defines"] for c in made.sources["cells"] if c["kind"] == "solution"] == [
            {"scaled": "function"}, {"both": "function"}, {"answer": "value"},
        ]  # fmt: skip

    def test_check_and_grade_expect_the_same_names(self):
        base = parse(RELEASED, "r")
        found = [rebuild(b, found_in(solved(), b), {}).sources["cells"] for b in (REFERENCE, base)]
        assert found[0] == found[1]

    def test_the_variant_cell_is_available_to_the_reference_answers_only(self):
        reference = solutions_as_answers(REFERENCE)
        own = rebuild(REFERENCE, found_in(solved()), {}).sources["cells"]
        theirs = rebuild(REFERENCE, reference, {}).sources["cells"]
        assert "variant" not in [cell["id"] for cell in own]
        assert (theirs[0]["id"], theirs[0]["kind"], theirs[0]["source"]) == ("variant", "given", 'V = {"scale": 2}')

    def test_reference_answers_replace_earlier_ones_and_their_source_is_separate(self):
        reference = solutions_as_answers(REFERENCE)
        found = found_in(solved(q1="wrong", q3="own"))
        made = rebuild(REFERENCE, found, {}, reference_answers=reference, replaced=["q1"]).sources
        cells = {cell["id"]: (cell["kind"], cell["source"]) for cell in made["cells"]}
        assert cells["q1"] == ("reference", "")
        assert (cells["q2"], cells["q3"]) == (("solution", toy.RIGHT["q2"]), ("solution", "own"))
        assert [cell["id"] for cell in made["reference"]] == ["variant", "imports", "q1"]
        assert made["reference"][-1]["source"] == toy.Q1
