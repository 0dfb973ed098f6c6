"""The metadata and cells that a reference notebook may have; everything else is refused with the number of the cell."""

import json

import pytest

from labkit.course.authoring.reference_checks import check_reference
from labkit.course.schema import NotebookErrors, parse, read_notebook
from labkit.errors import BadInput
from tests.course import toy_reference as toy


def refusals(raw):
    """The lines with which a reference notebook is refused."""
    with pytest.raises(NotebookErrors) as caught:
        check_reference(parse(raw, "m"), "m")
    return caught.value.lines


def changed(number, change, **about):
    """The toy reference notebook with `change` applied to the cell of this number."""
    raw = toy.notebook(**about)
    change(raw["cells"][number - 1])
    return raw


def test_each_cell_has_its_kind():
    kinds = [cell.kind for cell in parse(toy.notebook(), "m").cells]
    assert kinds == [
        "text", "variant", "given", "locked", "solution", "test", "test", "solution", "test", "test", "solution", "test",
        "explain", "live",
    ]  # fmt: skip


def test_the_toy_reference_breaks_no_rule():
    check_reference(parse(toy.notebook(), "m"), "m")


def test_all_errors_are_reported_together():
    raw = toy.notebook()
    raw["cells"][4]["source"] = raw["cells"][4]["source"].replace("# q1 (keep this line)\n", "")
    raw["cells"][7]["source"] = raw["cells"][7]["source"].replace("    ### END SOLUTION", "    pass")
    lines = refusals(raw)
    assert [line.split(":")[0] for line in lines] == ["cell 5", "cell 8"]


def nb(**change):
    return lambda cell: cell["metadata"]["nbgrader"].update(change)


def source(old, new):
    def change(cell):
        assert old in cell["source"]
        cell["source"] = cell["source"].replace(old, new)

    return change


INVALID = [  # (number of the cell, what is changed in it, text of the refusal)
    (6, nb(points=0), "points is 0; allowed: a number above 0"),
    (6, nb(points="3"), "points is '3'"),
    (6, nb(points=True), "points is True"),
    (5, nb(points=3), "points belong to tests"),
    (6, nb(solution=True), "has no kind; allowed for code: given, locked, solution, test"),
    (6, nb(task=True), "'task' cells are not used"),
    (6, nb(schema_version=2), "schema_version is 2; allowed: 3"),
    (6, nb(grade_id="a b"), "grade_id is 'a b'"),
    (6, nb(grade_id="x" * 101), "grade_id is"),
    (6, nb(grade_idd="x"), "Did you mean 'grade_id'?"),
    (6, nb(locked="yes"), "'locked' is 'yes'"),
    (6, nb(cell_type="markdown"), "the cell is a code cell"),
    (6, lambda c: c["metadata"]["labkit"].update(queston="q1"), "Did you mean 'question'?"),
    (6, lambda c: c["metadata"].pop("labkit"), "has no kind"),
    (14, lambda c: c["metadata"].pop("labkit"), "no nbgrader metadata has no kind"),
    (14, lambda c: c.update(cell_type="raw"), "neither a code nor a markdown cell"),
    (7, nb(grade_id="q1-test"), "grade_id 'q1-test' is that of cell 6 too"),
    (8, lambda c: c.update(id="c04"), "cell id 'c04' is that of cell 5 too"),
    (5, source("    ### BEGIN SOLUTION\n", ""), "without '### BEGIN SOLUTION' before it"),
    (5, source("### END SOLUTION", "### BEGIN SOLUTION"), "has no '### END SOLUTION'"),
    (5, source("    ### END SOLUTION", "    # END SOLUTION"), "looks like a delimiter and is none"),
    (6, source("### END HIDDEN TESTS", "### End hidden tests"), "looks like a delimiter and is none"),
    (6, source("### END HIDDEN TESTS", ""), "has no '### END HIDDEN TESTS'"),
    (7, source("if", "### BEGIN SOLUTION\n### END SOLUTION\nif"), "is in a test cell"),
    (4, source("from", "### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS\nfrom"), "is in a locked cell"),
    (5, source("# q1 (keep this line)", "# q2 (keep this line)"), "allowed: `# q1 (keep this line)`"),
    (5, source("    return V", "    retrun V"), "line 5 is not Python"),
    (4, source("from", "%matplotlib inline\nfrom"), "is not Python"),
    (6, source("print", "# NBVAL_IGNORE_OUTPUT\nprint"), "NBVAL_"),
    (1, source("{{scale}}", "{{scael}}"), "no variant 'scael' for {{scael}}; allowed: scale"),
    (2, source("2", "3"), "V is {'scale': 3}, and the first choices"),
    (2, source("V =", "W ="), "`V = {...}`"),
    (2, source("2", "f()"), "`V = {...}`"),
]  # fmt: skip


def test_invalid_cells_are_refused():
    accepted = []
    for number, change, text in INVALID:
        lines = refusals(changed(number, change))
        if not any(line.startswith(f"cell {number}: ") and text in line for line in lines):
            accepted.append(f"cell {number}, {text}: {lines}")
    assert not accepted, "\n".join(accepted)


def test_a_definition_in_the_solution_region_only_is_refused():
    body = "# q1 (keep this line)\nkeep = 1\n### BEGIN SOLUTION\ndef scaled(x):\n    return x\n### END SOLUTION"
    lines = refusals(changed(5, lambda cell: cell.update(source=body)))
    assert lines == [
        "cell 5: 'scaled' is defined in the solution region only; put its class, def or `scaled = ...` line before it"
    ]


def test_a_helper_with_an_underscore_may_be_in_the_solution_region():
    body = "# q1 (keep this line)\nkeep = 1\n### BEGIN SOLUTION\ndef _scaled(x):\n    return x\n### END SOLUTION"
    check_reference(parse(changed(5, lambda cell: cell.update(source=body)), "m"), "m")


def test_every_question_has_a_solution_and_a_test():
    made = toy.cells()
    assert "question 'q3' has a solution cell and no test cell" in refusals(toy.notebook(made[:11] + made[12:]))
    assert "question 'q3' has a test cell and no solution cell" in refusals(toy.notebook(made[:10] + made[11:]))


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"assignment": "../x"}, "it names files"),
        ({"format": 2}, '"format" is 2; allowed: 1'),
        ({"tools": "Push"}, "a list of names"),
        ({"variants": {"scale": []}}, "variant 'scale'"),
        ({"variants": {"scale": [{"value": 2, "word": "twice"}]}}, "variant 'scale'"),
        ({"titel": "x"}, "Did you mean 'title'?"),
    ],
)
def test_invalid_notebook_metadata_is_refused(about, text):
    assert any(text in line for line in refusals(toy.notebook(**about)))


@pytest.mark.parametrize(
    ("content", "text"), [("{", "not JSON"), ("[]", "format 4"), ('{"nbformat": 3, "worksheets": []}', "format 4")]
)
def test_a_file_that_is_not_a_notebook_is_refused(tmp_path, content, text):
    (tmp_path / "m.ipynb").write_text(content)
    with pytest.raises(BadInput, match=text):
        read_notebook(tmp_path / "m.ipynb")


def test_a_missing_notebook_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_notebook(tmp_path / "m.ipynb")


def test_windows_line_ends_do_not_change_the_reference():
    raw = toy.notebook()
    windows = json.loads(json.dumps(raw).replace("\\n", "\\r\\n"))
    assert [c.source for c in parse(windows, "m").cells] == [c.source for c in parse(raw, "m").cells]
