"""Reading submissions: a file that cannot be read is reported as a problem in one sentence."""

import io
import json
import os
import re
import stat
import threading
import tracemalloc
import zipfile

import pytest

from labkit.course.grading import archive, submitted_notebook
from labkit.course.grading.attempts import AttemptPolicy
from labkit.course.grading.nbval_run import Interrupted
from labkit.course.grading.submissions import read_submissions
from labkit.course.grading.submitted_notebook import parse_submitted
from labkit.course.schema import parse
from labkit.errors import BadInput
from tests.course import toy_reference as toy

NOTEBOOK = json.dumps(toy.notebook()).encode()


REFERENCE = parse(toy.notebook(), "m")


def read_all(*paths, **options):
    return read_submissions(paths, REFERENCE, **options)


def read(*paths, **options):
    return read_all(*paths, **options).found


def zipped(path, *, hours=None, **members):
    """A zip file with these members; `hours`: the hour of day of each, by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            about = zipfile.ZipInfo(name, (2026, 1, 1, (hours or {}).get(name, 0), 0, 0))
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, content)
    return path


def answering(q3):
    """The toy notebook with this answer to q3, which identifies it."""
    raw = toy.solve(toy.notebook(), q3=f"# q3 (keep this line)\nanswer = {q3}")
    return json.dumps(raw).encode()


def q3(submission):
    return submission.answers.solutions["q3"].rpartition("= ")[2]


class TestNotebook:
    def test_sources_and_ids_are_parsed(self):
        cells = parse_submitted(NOTEBOOK).cells
        assert cells[4].source == toy.Q1
        assert (cells[4].grade_id, cells[4].key, cells[4].type) == ("q1", "c04", "code")
        assert [cell.live for cell in cells] == [False] * 13 + [True]

    def test_the_metadata_of_a_notebook_is_read(self):
        raw = toy.notebook()
        raw["metadata"]["labkit"]["variant"] = "abc"
        found = parse_submitted(json.dumps(raw).encode())
        assert (found.assignment, found.variant) == ("toy", "abc")

    def test_files_that_are_not_notebooks_are_refused(self):
        for data, written in (
            (b"", "empty"),
            (b"  \n", "empty"),
            (b"PK\x03\x04", "not JSON"),
            (b"\xff\xfe{", "not text"),
            (b"hello", "not JSON"),
            (b"3", "no cells"),
            (b"[]", "no cells"),
            (b"{}", "no cells"),
            (b'{"cells": 3}', "no list of cells"),
            (b'{"worksheets": [3]}', "no list of cells"),
            (NOTEBOOK[:-200], "not JSON"),
            (b"[" * 200_000, "not JSON"),
            (b'{"cells": [], "x": ' + b"9" * 5000 + b"}", "not JSON"),
        ):
            with pytest.raises(BadInput, match=written):
                parse_submitted(data)

    @pytest.mark.parametrize(
        "metadata",
        [
            {"kernelspec": {"name": "ir", "language": "R", "display_name": "R"}},
            {"language_info": {"name": "julia"}},
        ],
    )
    def test_a_kernel_of_another_language_is_refused(self, metadata):
        with pytest.raises(BadInput, match="allowed: a Python kernel"):
            parse_submitted(json.dumps({**toy.notebook(), "metadata": metadata}).encode())

    @pytest.mark.parametrize("name", ["python3", "conda-env-torch-py", "ir"])
    def test_python_kernels_of_any_name_are_accepted(self, name):
        parse_submitted(
            json.dumps({**toy.notebook(), "metadata": {"kernelspec": {"name": name, "language": "python"}}}).encode()
        )

    @pytest.mark.parametrize(
        "junk",
        [
            {"cells": [3, None, "x", [], {}]},
            {"cells": [{"cell_type": "code", "source": 3, "metadata": 3}]},
            {"cells": [], "metadata": []},
            {
                "cells": [
                    {"cell_type": ["code"], "source": [1, {"a": 2}, "x"], "metadata": {"nbgrader": [], "execution": 3}}
                ]
            },
        ],
    )
    def test_any_shape_of_json_is_read_or_refused(self, junk):
        assert all(isinstance(cell.source, str) for cell in parse_submitted(json.dumps(junk).encode()).cells)

    def test_windows_line_ends_and_a_byte_order_mark_are_accepted(self):
        windows = b"\xef\xbb\xbf" + json.dumps(toy.notebook()).replace("\\n", "\\r\\n").encode().replace(b"\n", b"\r\n")
        assert parse_submitted(windows) == parse_submitted(NOTEBOOK)

    def test_notebook_format_3_is_read(self):
        cells = [
            {"cell_type": "code", "input": ["# q1 (keep this line)\n", "x = 1"], "outputs": [], "language": "python"}
        ]
        found = parse_submitted(json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}).encode())
        assert [cell.source for cell in found.cells] == ["# q1 (keep this line)\nx = 1"]

    def test_an_oversized_id_is_ignored(self):
        raw = toy.notebook()
        toy.find(raw, "q1")["metadata"]["nbgrader"]["grade_id"] = "x" * 10**6
        assert parse_submitted(json.dumps(raw).encode()).cells[4].grade_id == ""

    def test_the_size_of_a_source_is_limited(self):
        raw = toy.notebook()
        raw["cells"][4]["source"] = "x" * (2**20 + 1)
        with pytest.raises(BadInput, match="cell 5 has 1,048,577 characters"):
            parse_submitted(json.dumps(raw).encode())

    def test_a_file_that_is_too_large_is_refused(self, monkeypatch):
        monkeypatch.setattr(submitted_notebook, "MAX_FILE_BYTES", 1000)
        with pytest.raises(BadInput, match="Clear its outputs"):
            parse_submitted(NOTEBOOK)

    @pytest.mark.slow
    def test_a_hundred_megabytes_of_output_are_dropped(self):
        raw = toy.notebook()
        raw["cells"][4]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["y" * 99 + "\n"] * 10**6}]
        data = json.dumps(raw).encode()
        tracemalloc.start()
        found = parse_submitted(data)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.cells == parse_submitted(NOTEBOOK).cells
        assert kept < 2**20


class TestFiles:
    def test_a_folder_is_searched_for_notebooks(self, tmp_path):
        for name in (
            "ada/toy.ipynb",
            "bob/deep/er/toy.ipynb",
            "ada/.ipynb_checkpoints/toy-checkpoint.ipynb",
            "ada/notes.txt",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(NOTEBOOK)
        found = read(tmp_path)
        assert [each.student.name for each in found] == ["ada", "bob"]
        assert all(each.answers for each in found)

    def test_a_missing_path_is_refused(self, tmp_path):
        for name in ("x.ipynb", "x" * 5000):
            with pytest.raises(BadInput, match="there is no"):
                read(tmp_path / name)

    def test_a_link_in_a_folder_is_not_followed(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "elsewhere").mkdir()
        for folder in (tmp_path, tmp_path / "elsewhere"):
            (folder / "secret.ipynb").write_bytes(NOTEBOOK)
        (tmp_path / "in" / "x.ipynb").symlink_to(tmp_path / "secret.ipynb")
        (tmp_path / "in" / "folder").symlink_to(tmp_path / "elsewhere")
        found = read(tmp_path / "in")
        assert [each.answers for each in found] == [None, None]
        assert all("link" in each.problem for each in found)

    def test_a_folder_named_like_a_notebook_is_not_a_notebook(self, tmp_path):
        (tmp_path / "x.ipynb").mkdir()
        (each,) = read(tmp_path)
        assert (each.answers, each.problem) == (None, "there is no file in it")
        assert not read_all(tmp_path).any_notebook

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything can be read here")
    def test_an_unreadable_file_is_reported(self, tmp_path):
        (tmp_path / "x.ipynb").write_bytes(NOTEBOOK)
        (tmp_path / "x.ipynb").chmod(0)
        assert read(tmp_path)[0].problem == "the file cannot be read: Permission denied"

    def test_a_pipe_is_not_opened(self, tmp_path):
        os.mkfifo(tmp_path / "x.ipynb")
        assert read(tmp_path)[0].problem == "it is not a file"

    def test_students_with_equal_names_are_distinguished(self, tmp_path):
        for folder in ("a", "b"):
            toy.write(tmp_path / folder / "ada", toy.notebook(), "toy.ipynb")
        found = read(tmp_path / "a", tmp_path / "b")
        assert len({each.student.name for each in found}) == 2
        assert len({each.student.identity for each in found}) == 2


class TestZip:
    def test_a_moodle_zip_is_read(self, tmp_path):
        path = zipped(
            tmp_path / "m.zip",
            **{
                "Ada L_7_assignsubmission_file_/toy.ipynb": NOTEBOOK,
                "Bob_8_assignsubmission_file_/toy.ipynb": NOTEBOOK,
            },
        )
        assert [(e.student.name, e.student.id) for e in read(path)] == [("Ada L", "7"), ("Bob", "8")]

    def test_a_path_outside_the_folder_is_refused(self, tmp_path):
        for name in ("../x.ipynb", "a/../../x.ipynb", "/etc/x.ipynb", "C:/x.ipynb", "..\\x.ipynb"):
            path = zipped(tmp_path / "m.zip", **{name: NOTEBOOK, "ada.ipynb": NOTEBOOK})
            bad, good = sorted(read(path), key=lambda each: not each.problem)
            assert "outside its folder" in bad.problem, name
            assert good.answers, name
            assert sorted(p.name for p in tmp_path.rglob("*")) == ["m.zip"], name

    def test_a_link_in_a_zip_is_refused(self, tmp_path):
        link = zipfile.ZipInfo("ada.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as made:
            made.writestr(link, "/etc/passwd")
        assert "link" in read(tmp_path / "m.zip")[0].problem

    def test_a_students_zip_is_read(self, tmp_path):
        inner = zipped(tmp_path / "inner.zip", **{"work/toy.ipynb": NOTEBOOK})
        path = zipped(tmp_path / "m.zip", **{"Ada_7_assignsubmission_file_/w.zip": inner.read_bytes()})
        (ada,) = read(path)
        assert (ada.student.id, bool(ada.answers)) == ("7", True)
        path = zipped(tmp_path / "c.zip", **{"ada_1_2_w.zip": inner.read_bytes()})
        assert [(e.student.id, bool(e.answers)) for e in read(path)] == [("1", True)]

    def test_a_zip_at_the_third_level_is_not_read(self, tmp_path):
        data = NOTEBOOK
        for i in range(3):
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w") as made:
                made.writestr("toy.ipynb" if i == 0 else "w.zip", data)
            data = stream.getvalue()
        (tmp_path / "m.zip").write_bytes(data)
        assert ["no notebook" in each.problem for each in read(tmp_path / "m.zip")] == [True]

    def test_the_size_of_a_zip_bomb_is_counted_while_unpacking(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "MAX_FILE_BYTES", 10**6)
        path = zipped(tmp_path / "m.zip", **{"bomb.ipynb": b"0" * 10**7, "ada.ipynb": NOTEBOOK})
        data = bytearray(path.read_bytes())
        for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # the zip declares a small size
            start = data.index(b"bomb.ipynb", data.index(signature)) - (30 if at == 22 else 46)
            data[start + at : start + at + 4] = (100).to_bytes(4, "little")
        (tmp_path / "liar.zip").write_bytes(data)
        for name in ("m.zip", "liar.zip"):
            with (tmp_path / name).open("rb") as stream:
                bomb, ada = archive.ZipReader("toy").at_indices(stream, [0, 1])
            assert ada[1] == NOTEBOOK
            assert isinstance(bomb[1], str)

    def test_the_bytes_read_of_one_submission_are_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", len(NOTEBOOK) + 10)
        path = zipped(tmp_path / "m.zip", **{f"s{i}.ipynb": NOTEBOOK for i in range(3)})
        for _ in range(2):  # and of another as much again
            with path.open("rb") as stream:
                found = [data == NOTEBOOK for _, data in archive.ZipReader("toy").at_indices(stream, [0, 1, 2])]
            assert found == [True, False, False]

    def test_a_zip_with_too_many_files_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(archive, "MAX_FILES", 2)
        path = zipped(tmp_path / "m.zip", **{f"s{i}.ipynb": NOTEBOOK for i in range(3)})
        with path.open("rb") as stream, pytest.raises(BadInput, match="allowed: 2"):
            archive.members(stream)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"hello"])
    def test_a_file_that_is_not_a_zip_is_refused(self, tmp_path, content):
        (tmp_path / "m.zip").write_bytes(content)
        assert "zip cannot be read" in read(tmp_path / "m.zip")[0].problem

    def test_a_damaged_member_does_not_affect_the_others(self, tmp_path):
        data = bytearray(zipped(tmp_path / "m.zip", **{"ada.ipynb": NOTEBOOK, "bob.ipynb": NOTEBOOK}).read_bytes())
        data[60:100] = b"\xff" * 40
        (tmp_path / "m.zip").write_bytes(data)
        ada, bob = read(tmp_path / "m.zip")
        assert "damaged" in ada.problem
        assert bob.answers

    def test_checkpoints_and_macos_files_are_ignored(self, tmp_path):
        path = zipped(tmp_path / "m.zip", **{"ada.ipynb": NOTEBOOK})
        with zipfile.ZipFile(path, "a") as made:
            made.writestr("__MACOSX/._ada.ipynb", b"")
            made.writestr(".ipynb_checkpoints/ada-checkpoint.ipynb", NOTEBOOK)
        assert [each.student.name for each in read(path)] == ["ada"]


# {what a first name holds: the problem of its row, "" if it is graded}
HELD = {
    "toy.ipynb": "", "deep/er/toy.IPYNB": "", "work.zip": "no notebook in it", ".toy.ipynb": "no notebook",
    ".git/toy.ipynb": "no file in it", "page.html": "but .*page.html", "answer.py": "no notebook", "scan.pdf": "no notebook",
    "work.rar": "no notebook", "toy": "no notebook", "toy.ipynb.txt": "no notebook", "": "there is no file in it",
}  # fmt: skip
NAMES = (
    "Ada", ".ada", "..ada", "Ada: the first", "A:B", "Ä", "Александр", "日本", "हिन्दी", "\u202eAda", "a;=1", "\x1b[31mred",
    " ada ", "a" * 100,
)  # fmt: skip
EMPTY = io.BytesIO()
zipfile.ZipFile(EMPTY, "w").close()


def classes(pattern):
    """{first name: what it holds} of classes in which every name holds each kind of file once. `pattern`: of the first names."""
    for turn in range(len(HELD)):
        kinds = list(HELD)[turn:] + list(HELD)[:turn]
        yield {pattern.format(name, 100 + i): kinds[i % len(kinds)] for i, name in enumerate(NAMES)}


class TestEveryFirstNameHasARow:
    """The oracle is the list of names that were written."""

    def check(self, found, held, name_of):
        assert sorted(name_of(each) for each in found) == sorted(held)
        for each in found:
            problem = HELD[held[name_of(each)]]
            assert (each.answers is not None) == (not problem), each
            assert re.search(problem, each.problem), each

    @pytest.mark.parametrize("turn", range(0, len(HELD), 4))
    def test_in_a_folder(self, tmp_path, turn):
        held = list(classes("{}"))[turn]
        for name, inner in held.items():
            path = tmp_path / name / inner
            (path.parent if inner else path).mkdir(parents=True)
            if inner:
                path.write_bytes(EMPTY.getvalue() if inner.endswith("zip") else NOTEBOOK)
        found = read_all(tmp_path)
        self.check(found.found, held, lambda each: each.student.key.removeprefix(f"{tmp_path}/"))
        assert not [warning for warning in found.warnings if "platform" in warning]

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("pattern", ["{}", "{}_{}_assignsubmission_file_"])
    @pytest.mark.parametrize("turn", range(0, len(HELD), 4))
    def test_in_a_zip(self, tmp_path, pattern, turn):
        held = dict(list(classes(pattern))[turn])
        if "{}_" not in pattern:
            held.pop(".ada"), held.pop("..ada")
        members = {
            f"{name}/{inner}": EMPTY.getvalue() if inner.endswith("zip") else NOTEBOOK for name, inner in held.items()
        }
        members |= {"__MACOSX/._x": b"", ".DS_Store": b""}
        found = read(zipped(tmp_path / "all.zip", **members))
        if pattern == "{}":
            self.check(found, held, lambda each: each.student.key.removeprefix(f"{tmp_path}/all.zip/"))
        else:
            assert {each.student.platform for each in found} == {"moodle"}
            ids = {name.split("_")[1]: inner for name, inner in held.items()}
            self.check(found, ids, lambda each: each.student.id)

    def test_files_at_the_first_level(self, tmp_path):
        for name in ("ada.ipynb", ".bob.ipynb", "Eve: last.ipynb", "report.pdf", "marks.csv"):
            (tmp_path / name).write_bytes(NOTEBOOK)
        found = read(tmp_path, reports=[tmp_path / "marks.csv"])
        assert {each.student.name: bool(each.answers) for each in found} == {
            "ada": True, ".bob": True, "Eve: last": True, "report.pdf": False,
        }  # fmt: skip

    def test_a_drive_is_no_first_name(self, tmp_path):
        path = zipped(tmp_path / "m.zip", **{"C:/x.ipynb": NOTEBOOK, "C: minor/x.ipynb": NOTEBOOK})
        assert {each.student.name: each.problem[:12] for each in read(path)} == {"x": "its path in ", "C: minor": ""}


ADA, EVE = "Ada_200_assignsubmission_file_", "Eve_9_assignsubmission_file_"
INNER = io.BytesIO()
with zipfile.ZipFile(INNER, "w") as _archive:
    _archive.writestr(f"{ADA}/toy.ipynb", answering("666"))
    _archive.writestr(f"{ADA}toy.ipynb", answering("666"))
    _archive.writestr("ada_200_1_toy.ipynb", answering("666"))
# names that a student can choose below the platform's name
IMITATIONS = {
    "a file like Moodle's": {f"{ADA}toy.ipynb": answering("666")},
    "a folder like Moodle's": {f"{ADA}/toy.ipynb": answering("666")},
    "nested twice": {f"{ADA}/{ADA}/{ADA}toy.ipynb": answering("666")},
    "a file like Canvas's": {"ada_200_1_toy.ipynb": answering("666")},
    "a late file like Canvas's": {"ada_LATE_200_1_toy.ipynb": answering("666")},
    "a zip in a zip": {"work.zip": INNER.getvalue()},
    "a zip named like Moodle's": {f"{ADA}work.zip": INNER.getvalue()},
    "the outer name again": {f"{EVE}/{EVE}/{ADA}toy.ipynb": answering("666")},
    "another case": {f"{ADA.upper()}/{ADA}toy.ipynb": answering("666")},
    "decomposed": {f"Ada\u0301_200_assignsubmission_file_/{ADA}toy.ipynb": answering("666")},
    "backslashes": {f"x\\{ADA}\\toy.ipynb": answering("666")},
    "dots": {f"./{ADA}/toy.ipynb": answering("666")},
    "up": {f"../{ADA}/toy.ipynb": answering("666")},
    "up with backslashes": {f"..\\{ADA}\\toy.ipynb": answering("666")},
    "absolute": {f"/{ADA}/toy.ipynb": answering("666")},
}


def outcome(found):
    """(id, answer) of everything that would be graded, ids of everything that is reported."""
    return {(each.student.id, q3(each)) for each in found if each.answers}, {each.student.id for each in found}


class TestNamesChosenByStudents:
    """Nothing below the first name of a zip or folder sets an identity, removes LATE or changes another student's
    marks.
    """

    @pytest.mark.slow
    def test_names_below_a_moodle_folder_are_not_used(self, tmp_path):
        wrong = []
        for name in IMITATIONS:
            members = {f"{ADA}/toy.ipynb": answering("7")}
            members |= {f"{EVE}/{inner}": data for inner, data in IMITATIONS[name].items()}
            paths = {"zip": zipped(tmp_path / f"{name}.zip", **members)}
            if not any(".." in inner or "\\" in inner for inner in members):  # no folder holds such a name
                paths["folder"] = tmp_path / name
                for inner, data in members.items():
                    file = paths["folder"] / inner.replace("//", "/")
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(data)
            for kind, path in paths.items():
                graded, reported = outcome(read(path))
                if not {("200", "7")} <= graded <= {("200", "7"), ("9", "666")} or "9" not in reported:
                    wrong.append(f"{name} in a {kind}: {graded} graded, {reported} reported")
        assert not wrong, "\n".join(wrong)

    @pytest.mark.parametrize("file", ["x_LATE_1_2_toy.ipynb", "bob_8_1_toy.ipynb", f"{ADA}toy.ipynb"])
    def test_names_after_the_canvas_numbers_are_not_used(self, tmp_path, file):
        path = zipped(tmp_path / "c.zip", **{f"eve_LATE_9_5_{file}": NOTEBOOK, "bob_8_6_toy.ipynb": NOTEBOOK})
        found = {each.student.id: each for each in read(path)}
        assert set(found) == {"9", "8"}
        assert (found["9"].student.late, found["8"].student.late) == (True, False)
        assert "submitted late" in found["9"].notes

    def test_the_late_flag_does_not_depend_on_names_in_a_zip(self, tmp_path):
        inner = zipped(tmp_path / "i.zip", **{"eve_9_5_toy.ipynb": NOTEBOOK})
        (eve,) = read(zipped(tmp_path / "c.zip", **{"eve_LATE_9_5_w.zip": inner.read_bytes()}))
        assert (eve.student.late, eve.notes[0]) == (True, "submitted late")

    @pytest.mark.parametrize("inner", [f"{ADA}toy.ipynb", f"{ADA}/toy.ipynb", "ada_200_1_toy.ipynb", "ada.ipynb"])
    def test_ids_are_not_taken_from_a_folder_that_a_student_named(self, tmp_path, inner):
        for path in (tmp_path / "in" / "eve" / inner, tmp_path / "in" / "bob" / "toy.ipynb"):
            path.parent.mkdir(parents=True)
            path.write_bytes(NOTEBOOK)
        assert [(e.student.name, e.student.id) for e in read(tmp_path / "in")] == [("bob", ""), ("eve", "")]

    def test_one_moodle_like_name_among_others_gives_no_id(self, tmp_path):
        for name in (f"{ADA}toy.ipynb", "bob.ipynb"):
            (tmp_path / name).write_bytes(NOTEBOOK)
        found = read_all(tmp_path)
        assert {each.student.id for each in found.found} == {""}
        assert "1 of 2 names" in found.warnings[0]
        assert {each.student.id for each in read(tmp_path, platform="moodle")} == {"200", ""}  # set by the instructor

    def test_a_zip_without_a_platform_has_one_student_per_first_name(self, tmp_path):
        (tmp_path / "eve.zip").write_bytes(INNER.getvalue())
        (tmp_path / "bob.ipynb").write_bytes(NOTEBOOK)
        assert [(e.student.name, e.student.id) for e in read(tmp_path)] == [("bob", ""), ("eve", "")]

    def test_names_from_a_shells_glob_give_no_id(self, tmp_path):
        folder = tmp_path / "eve"
        folder.mkdir()
        (folder / f"{ADA}toy.ipynb").write_bytes(NOTEBOOK)
        found = read_all(folder / f"{ADA}toy.ipynb")
        assert (found.found[0].student.id, len(found.warnings)) == ("", 1)
        (tmp_path / EVE).mkdir()
        (tmp_path / EVE / f"{ADA}toy.ipynb").write_bytes(NOTEBOOK)
        assert read(tmp_path / EVE)[0].student.id == ""
        assert read(tmp_path / EVE, platform="moodle")[0].student.id == "9"

    def test_an_id_with_two_names_is_used_for_neither(self, tmp_path):
        path = zipped(tmp_path / "c.zip", **{"eve_200_1_toy.ipynb": NOTEBOOK, "ada_200_2_toy.ipynb": NOTEBOOK})
        found = read_all(path)
        assert [each.student.id for each in found.found] == ["", ""]
        assert len({each.student.identity for each in found.found}) == 2
        assert "two names" in found.warnings[0]

    def test_the_plain_platform_gives_no_ids(self, tmp_path):
        path = zipped(tmp_path / "m.zip", **{f"{ADA}/toy.ipynb": NOTEBOOK})
        assert read(path, platform="plain")[0].student.id == ""


class TestAttempts:
    """The platform's data decide which notebook of a student counts, never a file name or zip of the student."""

    @pytest.mark.slow
    def test_canvas_attempts_are_ordered_by_upload_number(self, tmp_path):
        members = {
            "ada_1_30_a.ipynb": answering("30"),
            "ada_1_4_z.ipynb": answering("4"),
            "ada_1_5_b.ipynb": answering("5"),
        }
        hours = {"ada_1_4_z.ipynb": 23}
        path = zipped(tmp_path / "c.zip", hours=hours, **members)
        assert [q3(each) for each in read(path)] == ["30"]
        assert [q3(each) for each in read(path, policy=AttemptPolicy("first"))] == ["4"]
        assert [q3(each) for each in read(path, policy=AttemptPolicy("best", 2))] == ["30", "5"]
        (only,) = read(path)
        assert "2 more notebooks of this student are not graded (the last one counts)" in only.notes[0]

    def test_moodle_attempts_are_ordered_by_the_time_in_the_zip(self, tmp_path):
        names = [f"{ADA}/{name}.ipynb" for name in ("z", "a", "m")]
        members = {name: answering(str(i)) for i, name in enumerate(names)}
        path = zipped(tmp_path / "m.zip", hours=dict(zip(names, (1, 3, 2))), **members)
        assert [q3(each) for each in read(path)] == ["1"]
        assert [q3(each) for each in read(path, policy=AttemptPolicy("first"))] == ["0"]

    def test_times_in_a_students_zip_are_not_used(self, tmp_path):
        inner = zipped(
            tmp_path / "i.zip", hours={"b.ipynb": 23}, **{"a.ipynb": answering("1"), "b.ipynb": answering("2")}
        )
        path = zipped(tmp_path / "m.zip", **{f"{ADA}/w.zip": inner.read_bytes()})
        assert [q3(each) for each in read(path)] == ["1"]

    def test_of_equal_times_the_file_with_the_assignments_name_comes_first(self, tmp_path):
        path = zipped(
            tmp_path / "m.zip",
            **{f"{ADA}/{name}.ipynb": answering(str(i)) for i, name in enumerate(("a", "sub/toy", "toy", "z"))},
        )
        assert [q3(each) for each in read(path)] == ["2"]

    def test_notebooks_that_cannot_be_graded_do_not_count_as_attempts(self, tmp_path):
        members = {
            f"{ADA}/toy.ipynb": answering("7"),
            f"{ADA}/later.ipynb": b"{",
            f"{ADA}/scratch.ipynb": b'{"cells": []}',
        }
        hours = {f"{ADA}/later.ipynb": 9, f"{ADA}/scratch.ipynb": 8}
        (ada,) = read(zipped(tmp_path / "m.zip", hours=hours, **members))
        assert q3(ada) == "7"
        assert sum("not graded: m.zip:" in note for note in ada.notes) == 2

    def test_thousands_of_notebooks_of_one_student_are_limited(self, tmp_path):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as made:
            for i in range(3000):
                made.writestr(f"{i:04d}.ipynb", NOTEBOOK)
        path = zipped(tmp_path / "m.zip", **{f"{EVE}/w.zip": inner.getvalue(), f"{ADA}/toy.ipynb": NOTEBOOK})
        found = read(path)
        assert [each.student.id for each in found] == ["9", "200"]
        assert "at most 20 notebooks" in found[0].notes[-1]
        many = zipped(tmp_path / "n.zip", **{f"{EVE}/{i}.ipynb": NOTEBOOK for i in range(60)})
        (eve,) = read(many, policy=AttemptPolicy("best", 1))
        assert any("40 more files were not read" in note for note in eve.notes)

    def test_unknown_policies_are_refused(self):
        for text in ("", "best", "best-of-0", "best-of-11", "best-of-\u0663", "latest", "-1"):
            with pytest.raises(BadInput, match="allowed: last, first, best-of-N"):
                AttemptPolicy.parse(text)

    def test_attempt_policies_round_trip_as_text(self):
        assert [str(AttemptPolicy.parse(text)) for text in ("last", "first", "best-of-3")] == [
            "last",
            "first",
            "best-of-3",
        ]


def test_reading_can_be_interrupted(tmp_path):
    stop = threading.Event()
    stop.set()
    (tmp_path / "x.ipynb").write_bytes(NOTEBOOK)
    with pytest.raises(Interrupted):
        read(tmp_path, stop=stop)
