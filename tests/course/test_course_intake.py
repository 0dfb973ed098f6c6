"""Submissions as they come: what cannot be read is one sentence, and never more."""

import io
import json
import os
import stat
import tracemalloc
import zipfile

import pytest
import toy_master as toy

from labkit.course import handed, intake
from labkit.course.handed import read_handed
from labkit.course.intake import read_submissions
from labkit.errors import BadInput

NOTEBOOK = json.dumps(toy.notebook()).encode()


def read(*paths):
    return list(read_submissions(paths, "toy"))


def zipped(path, **members):
    """A zip file with these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


class TestNotebook:
    def test_sources_and_ids(self):
        cells = read_handed(NOTEBOOK).cells
        assert cells[4].source == toy.Q1
        assert (cells[4].grade_id, cells[4].key, cells[4].type) == ("q1", "c04", "code")
        assert [cell.live for cell in cells] == [False] * 13 + [True]

    def test_what_is_said_of_it(self):
        raw = toy.notebook()
        raw["metadata"]["labkit"]["variant"] = "abc"
        found = read_handed(json.dumps(raw).encode())
        assert (found.assignment, found.variant) == ("toy", "abc")

    @pytest.mark.parametrize(
        ("data", "said"),
        [
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
        ],
    )  # fmt: skip
    def test_what_it_is_not(self, data, said):
        with pytest.raises(BadInput, match=said):
            read_handed(data)

    @pytest.mark.parametrize(
        "metadata",
        [
            {"kernelspec": {"name": "ir", "language": "R", "display_name": "R"}},
            {"language_info": {"name": "julia"}},
        ],
    )
    def test_another_kernel(self, metadata):
        with pytest.raises(BadInput, match="allowed: a Python kernel"):
            read_handed(json.dumps({**toy.notebook(), "metadata": metadata}).encode())

    @pytest.mark.parametrize("name", ["python3", "conda-env-torch-py", "ir"])
    def test_a_python_kernel_of_any_name(self, name):
        read_handed(
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
        assert all(isinstance(cell.source, str) for cell in read_handed(json.dumps(junk).encode()).cells)

    def test_windows_line_ends_and_a_byte_order_mark(self):
        windows = b"\xef\xbb\xbf" + json.dumps(toy.notebook()).replace("\\n", "\\r\\n").encode().replace(b"\n", b"\r\n")
        assert read_handed(windows) == read_handed(NOTEBOOK)

    def test_format_3(self):
        cells = [
            {"cell_type": "code", "input": ["# q1 (keep this line)\n", "x = 1"], "outputs": [], "language": "python"}
        ]
        found = read_handed(json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}).encode())
        assert [cell.source for cell in found.cells] == ["# q1 (keep this line)\nx = 1"]

    def test_a_huge_id_is_no_id(self):
        raw = toy.notebook()
        toy.find(raw, "q1")["metadata"]["nbgrader"]["grade_id"] = "x" * 10**6
        assert read_handed(json.dumps(raw).encode()).cells[4].grade_id == ""

    def test_a_source_of_a_megabyte(self):
        raw = toy.notebook()
        raw["cells"][4]["source"] = "x" * (2**20 + 1)
        with pytest.raises(BadInput, match="cell 5 has 1,048,577 characters"):
            read_handed(json.dumps(raw).encode())

    def test_a_file_that_is_too_large(self, monkeypatch):
        monkeypatch.setattr(handed, "LARGEST_FILE", 1000)
        with pytest.raises(BadInput, match="Clear its outputs"):
            read_handed(NOTEBOOK)

    @pytest.mark.slow
    def test_a_hundred_megabytes_of_output_are_dropped(self):
        raw = toy.notebook()
        raw["cells"][4]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ["y" * 99 + "\n"] * 10**6}]
        data = json.dumps(raw).encode()
        tracemalloc.start()
        found = read_handed(data)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found.cells == read_handed(NOTEBOOK).cells
        assert kept < 2**20


class TestFiles:
    def test_a_folder_is_searched(self, tmp_path):
        for name in (
            "ada/toy.ipynb",
            "bob/deep/er/toy.ipynb",
            "ada/.ipynb_checkpoints/toy-checkpoint.ipynb",
            "ada/notes.txt",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(NOTEBOOK)
        assert [each.student.name for each in read(tmp_path)] == ["ada", "er"]

    def test_a_path_that_is_not_there(self, tmp_path):
        with pytest.raises(BadInput, match="there is no"):
            read(tmp_path / "x.ipynb")

    def test_a_link_in_a_folder_is_not_followed(self, tmp_path):
        (tmp_path / "in").mkdir()
        (tmp_path / "secret.ipynb").write_bytes(NOTEBOOK)
        (tmp_path / "in" / "x.ipynb").symlink_to(tmp_path / "secret.ipynb")
        (each,) = read(tmp_path / "in")
        assert each.handed is None
        assert "link" in each.problem

    def test_a_folder_that_is_called_like_a_notebook(self, tmp_path):
        (tmp_path / "x.ipynb").mkdir()
        assert read(tmp_path) == []

    def test_a_file_that_cannot_be_read(self, tmp_path, monkeypatch):
        def refuse(self):
            raise PermissionError(13, "Permission denied")

        (tmp_path / "x.ipynb").write_bytes(NOTEBOOK)
        monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
        assert read(tmp_path)[0].problem == "the file cannot be read: Permission denied"

    def test_a_pipe_is_not_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "x.ipynb")
        assert read(tmp_path)[0].problem == "it is not a file"

    def test_two_of_one_name_are_told_apart(self, tmp_path):
        for folder in ("a", "b"):
            toy.write(tmp_path / folder, toy.notebook(), "ada.ipynb")
        found = read(tmp_path)
        assert len({each.student.name for each in found}) == 2
        assert all("told apart" in each.notes[0] for each in found)

    def test_two_of_one_person_are_one_person(self, tmp_path):
        zipped(
            tmp_path / "a.zip",
            **{"ada_1_2_toy.ipynb": NOTEBOOK, "ada_1_3_other.ipynb": NOTEBOOK, "bob_2_4_toy.ipynb": NOTEBOOK},
        )
        found = read(tmp_path / "a.zip")
        assert [len(each.notes) for each in found] == [1, 1, 0]
        assert "the best one counts" in found[0].notes[0]


class TestZip:
    def test_moodle(self, tmp_path):
        path = zipped(
            tmp_path / "m.zip",
            **{
                "Ada L_7_assignsubmission_file_/toy.ipynb": NOTEBOOK,
                "Bob_8_assignsubmission_file_/toy.ipynb": NOTEBOOK,
            },
        )
        assert [(e.student.name, e.student.id) for e in read(path)] == [("Ada L", "7"), ("Bob", "8")]

    @pytest.mark.parametrize("name", ["../x.ipynb", "a/../../x.ipynb", "/etc/x.ipynb", "C:/x.ipynb", "..\\x.ipynb"])
    def test_a_path_that_leads_out(self, tmp_path, name):
        path = zipped(tmp_path / "m.zip", **{name: NOTEBOOK, "ada.ipynb": NOTEBOOK})
        bad, good = sorted(read(path), key=lambda each: not each.problem)
        assert "leads out" in bad.problem
        assert good.handed
        assert sorted(p.name for p in tmp_path.rglob("*")) == ["m.zip"]

    def test_a_link(self, tmp_path):
        link = zipfile.ZipInfo("ada.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
            archive.writestr(link, "/etc/passwd")
        assert "link" in read(tmp_path / "m.zip")[0].problem

    def test_a_zip_that_a_student_made_is_looked_into(self, tmp_path):
        inner = zipped(tmp_path / "inner.zip", **{"work/toy.ipynb": NOTEBOOK})
        path = zipped(
            tmp_path / "m.zip",
            **{"Ada_7_assignsubmission_file_/w.zip": inner.read_bytes(), "ada_1_2_w.zip": inner.read_bytes()},
        )
        assert [e.student.id for e in read(path)] == ["7", "1"]

    def test_a_zip_in_a_zip_in_a_zip_is_not(self, tmp_path):
        data = NOTEBOOK
        for i in range(3):
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w") as archive:
                archive.writestr("toy.ipynb" if i == 0 else "w.zip", data)
            data = stream.getvalue()
        (tmp_path / "m.zip").write_bytes(data)
        assert ["no notebook" in each.problem for each in read(tmp_path / "m.zip")] == [True]

    def test_a_bomb_is_counted_while_it_is_unpacked(self, tmp_path, monkeypatch):
        monkeypatch.setattr(intake, "LARGEST_FILE", 10**6)
        path = zipped(tmp_path / "m.zip", **{"bomb.ipynb": b"0" * 10**7, "ada.ipynb": NOTEBOOK})
        data = bytearray(path.read_bytes())
        for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):  # the zip says that it is small
            start = data.index(b"bomb.ipynb", data.index(signature)) - (30 if at == 22 else 46)
            data[start + at : start + at + 4] = (100).to_bytes(4, "little")
        (tmp_path / "liar.zip").write_bytes(data)
        for name in ("m.zip", "liar.zip"):
            ada, bomb = read(tmp_path / name)
            assert ada.handed
            assert bomb.problem

    def test_what_is_read_of_one_zip_is_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(intake, "MOST_BYTES", len(NOTEBOOK) + 10)
        found = read(zipped(tmp_path / "m.zip", a=b"", **{f"s{i}.ipynb": NOTEBOOK for i in range(3)}))
        assert [bool(each.handed) for each in found] == [True, False, False]

    def test_too_many_files(self, tmp_path, monkeypatch):
        monkeypatch.setattr(intake, "MOST_FILES", 2)
        assert (
            "allowed: 2" in read(zipped(tmp_path / "m.zip", **{f"s{i}.ipynb": NOTEBOOK for i in range(3)}))[0].problem
        )

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04nonsense", b"hello"])
    def test_something_that_is_no_zip(self, tmp_path, content):
        (tmp_path / "m.zip").write_bytes(content)
        assert "zip cannot be read" in read(tmp_path / "m.zip")[0].problem

    def test_a_damaged_member_costs_no_other(self, tmp_path):
        data = bytearray(zipped(tmp_path / "m.zip", **{"ada.ipynb": NOTEBOOK, "bob.ipynb": NOTEBOOK}).read_bytes())
        data[60:100] = b"\xff" * 40
        (tmp_path / "m.zip").write_bytes(data)
        ada, bob = read(tmp_path / "m.zip")
        assert "damaged" in ada.problem
        assert bob.handed

    def test_checkpoints_and_what_macos_adds_are_nobodys(self, tmp_path):
        path = zipped(tmp_path / "m.zip", **{"ada.ipynb": NOTEBOOK})
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("__MACOSX/._ada.ipynb", b"")
            archive.writestr(".ipynb_checkpoints/ada-checkpoint.ipynb", NOTEBOOK)
        assert [each.student.name for each in read(path)] == ["ada"]
