"""Student identities come from the names that Moodle and Canvas write, and from no other part of a path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.course.grading.lms import plain_student, platform_of_names, student_of


@pytest.mark.parametrize(
    ("part", "platform", "name", "number"),
    [
        ("Ada Lovelace_12345_assignsubmission_file_", "moodle", "Ada Lovelace", "12345"),
        ("Ada Lovelace_12345_assignsubmission_file_x.ipynb", "moodle", "Ada Lovelace", "12345"),
        ("Ada_7_assignsubmission_onlinetext_", "moodle", "Ada", "7"),
        # a file name chosen by a student cannot precede the platform's number
        ("Ada_7_assignsubmission_file_Bob_8_assignsubmission_file_x.ipynb", "moodle", "Ada", "7"),
        ("lovelaceada_123_456_toy.ipynb", "canvas", "lovelaceada", "123"),
        ("lovelaceada_123_456_toy-1.ipynb", "canvas", "lovelaceada", "123"),
        ("lovelaceada_123_456_bob_9_9_toy.ipynb", "canvas", "lovelaceada", "123"),
        ("lovelaceada_LATE_123_456_toy.ipynb", "canvas", "lovelaceada", "123"),
        ("de_la_cruz_123_456_toy.ipynb", "canvas", "de_la_cruz", "123"),
    ],
)
def test_students_are_parsed_from_platform_names(part, platform, name, number):
    found = student_of(part, platform)
    assert (found.name, found.id, found.platform) == (name, number, platform)


@pytest.mark.parametrize(
    "part",
    [
        "Ada_Lovelace_12_assignsubmission_file_",  # Moodle puts spaces in place of `_`
        "Ada_012_assignsubmission_file_",
        "Ada_\u0661\u0662_assignsubmission_file_",  # digits, and not those that Moodle writes
        "Ada_12_AssignSubmission_file_",
        "Ada_12_assignsubmission_file_".replace("_", "\uff3f"),
        "Ada_-1_assignsubmission_file_",
        "_12_assignsubmission_file_",
    ],
)
def test_names_without_moodles_pattern_give_no_id(part):
    assert student_of(part, "moodle") is None


def test_late_flag_and_upload_number_are_parsed():
    found = student_of("lovelaceada_LATE_123_456_toy.ipynb", "canvas")
    assert (found.late, found.upload) == (True, 456)
    found = student_of("lovelaceada_123_456_ada_LATE_1_2_toy.ipynb", "canvas")
    assert (found.late, found.upload) == (False, 456)


@given(st.from_regex(r"[^_]{1,20}", fullmatch=True), st.integers(0, 10**9), st.text(max_size=60))
def test_file_names_do_not_change_the_moodle_number(name, number, file):
    assert student_of(f"{name}_{number}_assignsubmission_file_{file}", "moodle").id == str(number)


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True), st.integers(0, 10**9), st.integers(0, 10**9), st.text(min_size=1))
def test_file_names_do_not_change_the_canvas_numbers(name, number, upload, file):
    found = student_of(f"{name}_{number}_{upload}_{file}", "canvas")
    assert (found.id, found.upload, found.late) == (str(number), upload, False)


def test_a_platform_is_recognized_only_if_all_names_have_its_pattern():
    assert platform_of_names(["a_1_assignsubmission_file_", "b_2_assignsubmission_file_"])[0] == "moodle"
    assert platform_of_names(["a_1_2_x.ipynb", "b_2_3_x.ipynb"])[0] == "canvas"
    assert platform_of_names(["a_1_assignsubmission_file_", "b"]) == ("", 1)
    assert platform_of_names([])[0] == ""


def test_names_are_compared_in_unicode_normal_form():
    assert plain_student("Zoe\u0308", "k").name == plain_student("Zo\u00eb", "k").name
