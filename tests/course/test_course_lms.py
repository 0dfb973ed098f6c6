"""Who handed a file in, by the names that Moodle and Canvas give to files."""

from pathlib import PurePosixPath

import pytest

from labkit.course.lms import student_of


class TestStudents:
    @pytest.mark.parametrize(
        ("path", "name", "number", "platform"),
        [
            ("Ada Lovelace_12345_assignsubmission_file_/x.ipynb", "Ada Lovelace", "12345", "moodle"),
            ("all/Ada_Lovelace_12345_assignsubmission_file_/sub/x.ipynb", "Ada_Lovelace", "12345", "moodle"),
            ("Ada Lovelace_12345_assignsubmission_file_x.ipynb", "Ada Lovelace", "12345", "moodle"),
            ("lovelaceada_123_456_toy.ipynb", "lovelaceada", "123", "canvas"),
            ("lovelaceada_123_456_toy-1.ipynb", "lovelaceada", "123", "canvas"),
            ("lovelaceada_123_456_my_own_name.ipynb", "lovelaceada", "123", "canvas"),
            ("lovelaceada_LATE_123_456_toy.ipynb", "lovelaceada", "123", "canvas"),
            ("ada/toy.ipynb", "ada", "", ""),
            ("ada/toy/toy.ipynb", "ada", "", ""),
            ("ada/toy-Copy1.ipynb", "ada", "", ""),
            ("toy.ipynb", "toy", "", ""),
            ("ada.ipynb", "ada", "", ""),
            ("group/ada.ipynb", "ada", "", ""),
        ],
    )
    def test_who(self, path, name, number, platform):
        found = student_of(PurePosixPath(path), "toy")
        assert (found.name, found.id, found.platform) == (name, number, platform)

    def test_late(self):
        assert student_of(PurePosixPath("lovelaceada_LATE_123_456_toy.ipynb"), "toy").late
