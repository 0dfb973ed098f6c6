"""The release contains no solutions and no hidden tests, and its fixed cells are protected."""

import ast
import json

import pytest

from labkit.course.authoring.assign import assign
from labkit.course.authoring.release import points_by_question, release
from labkit.course.bundle import find_bundle, read_bundle, write_release
from labkit.course.grading.nbval_run import Harness
from labkit.course.regions import released, replace_regions
from labkit.course.schema import parse
from labkit.errors import BadInput
from tests.course import toy_reference as toy


@pytest.fixture
def made():
    return release(parse(toy.notebook(), "m"), "first")


def test_a_release_has_no_solution_and_no_hidden_test(made):
    everything = json.dumps(made)
    for secret in ("V[", "linearity", "secret", "HIDDEN", "BEGIN SOLUTION", "variants", "the sum of", "answer = 7"):
        assert secret not in everything


def test_stubs_are_indented_like_the_block(made):
    assert "".join(toy.find(made, "q1")["source"]).endswith('\n    raise NotImplementedError("your code")')
    assert "".join(toy.find(made, "q3")["source"]).endswith('answer = ...\nraise NotImplementedError("your code")')


def test_all_code_of_a_release_is_valid_python(made):
    for cell in made["cells"]:
        if cell["cell_type"] == "code":
            ast.parse("".join(cell["source"]))


def test_hidden_tests_and_the_variant_cell_are_removed(made):
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in made["cells"]]
    assert "q2-hidden" not in ids
    assert "q2-test" in ids
    assert not any("variant" in cell["metadata"].get("labkit", {}) for cell in made["cells"])


def test_nbgrader_metadata_is_kept(made):
    assert toy.find(made, "q1-test")["metadata"]["nbgrader"] == toy.nbgrader("q1-test", "test", 3)


def test_given_and_test_cells_cannot_be_edited_or_deleted(made):
    for name in ("imports", "for-tests", "q1-test"):
        assert toy.find(made, name)["metadata"]["editable"] is False
    for name in ("q1", "q1-test", "q4-why"):
        assert toy.find(made, name)["metadata"]["deletable"] is False
    assert "editable" not in toy.find(made, "q1")["metadata"]


def test_outputs_are_cleared():
    raw = toy.notebook()
    for cell in raw["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [{"output_type": "stream", "name": "stdout", "text": "7"}], "execution_count": 3}
    made = release(parse(raw, "m"), "first")
    assert all(not c["outputs"] and c["execution_count"] is None for c in made["cells"] if c["cell_type"] == "code")


def test_releasing_a_release_changes_nothing(made):
    again = release(parse(made, "m"), "first")
    assert again == made


def test_all_regions_of_a_cell_are_replaced():
    source = "a\n  ### BEGIN SOLUTION\n  x\n\n  ### END SOLUTION\nb\n### BEGIN SOLUTION\n### END SOLUTION"
    assert replace_regions(source, ("### BEGIN SOLUTION", "### END SOLUTION"), "stub") == "a\n  stub\nb\nstub"


def test_lines_around_a_hidden_region_are_kept():
    assert released("a\n### BEGIN HIDDEN TESTS\nb\n### END HIDDEN TESTS\nc", "test") == "a\nc"


def test_points_are_summed_by_question():
    table = points_by_question(parse(toy.notebook(), "m"))
    assert table["q1"] == {"points": 4, "hidden": 0, "partly": 3, "by hand": 0}
    assert table["q2"] == {"points": 3, "hidden": 2, "partly": 0, "by hand": 0}
    assert table["q4"] == {"points": 0, "hidden": 0, "partly": 0, "by hand": 2}


class TestBundle:
    def test_the_bundle_beside_the_notebook_is_found(self, made, tmp_path):
        notebook, bundle, _ = write_release(tmp_path, made, {"q3-test": []}, {})
        assert find_bundle(notebook, "toy", None) == bundle
        assert find_bundle(tmp_path / "renamed.ipynb", "toy", None) == bundle
        assert find_bundle(tmp_path / "renamed.ipynb", "", None) == bundle
        assert read_bundle(bundle).base.name == "toy"

    def test_a_missing_bundle_is_refused(self, tmp_path):
        with pytest.raises(BadInput, match=r"no toy\.bundle\.json beside"):
            find_bundle(tmp_path / "toy.ipynb", "toy", None)

    def test_a_folder_that_cannot_be_created_is_refused(self, made, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(BadInput, match="cannot be written"):
            write_release(tmp_path / "file" / "below", made, {}, {})


@pytest.mark.usefixtures("here")
class TestAssign:
    """A reference notebook is released only if its own solutions pass all tests. `TestCourse` in `test_cli.py` runs nbval."""

    def test_assign_writes_a_notebook_and_a_public_bundle(self, tmp_path):
        done = assign(toy.write(tmp_path, toy.notebook()), tmp_path / "out", "4", Harness())
        bundle = json.loads(done.files.bundle.read_text())
        assert (done.points, done.by_hand) == (8, 2)
        assert bundle["outputs"]["q3-test"] == [{"output_type": "stream", "name": "stdout", "text": "7\n"}]
        assert set(bundle["outputs"]) == {"q1-test", "q1-more", "q2-test", "q3-test"}
        assert bundle["notebook"] == json.loads(done.files.notebook.read_text())
        for secret in ("V[", "linearity", "secret", "HIDDEN", "the sum of"):
            assert secret not in done.files.bundle.read_text()

    @pytest.mark.parametrize(
        ("name", "old", "new", "message"),
        [
            ("q1", 'V["scale"] * x', '-V["scale"] * x', "cell 6 .q1-test.: CheckFailed: the sign is lost"),
            (
                "q3-test",
                "print(answer)",
                "import random\nprint(random.random())",
                "run a second time does not pass its own tests",
            ),
            (
                "q2-test",
                "assert both(0, 0) == 0",
                "assert V",
                "no variant cell and no hidden tests. does not pass its own tests",
            ),
        ],
    )
    def test_assign_refuses_reference_notebooks_that_fail(self, tmp_path, name, old, new, message):
        raw = toy.notebook()
        cell = toy.find(raw, name)
        assert old in cell["source"]
        cell["source"] = cell["source"].replace(old, new)
        with pytest.raises(BadInput, match=message):
            assign(toy.write(tmp_path, raw), tmp_path / "out", None, Harness())
        assert not (tmp_path / "out").exists()
