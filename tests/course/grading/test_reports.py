"""Reports: the columns that Moodle and Canvas document, JSON, JUnit, feedback pages; text of students is escaped."""

import csv
import io
import json
import re
import unicodedata
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from labkit.cli.course import plain
from labkit.course.grading.feedback import file_names, page
from labkit.course.grading.lms import Student
from labkit.course.grading.reports import best_of_each, pass_rates, platform_of, to_csv, to_json, to_junit
from labkit.course.grading.scores import QuestionScore, Result, TestScore, zero_scores
from labkit.course.schema import parse
from tests.course import toy_reference as toy

REFERENCE = parse(toy.notebook(), "m")
# ruff: noqa: E501
MARKS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u2028\x00\x07\x1b\x7f\x85\x9b\t"
HOSTILE = (
    "=cmd|' /C calc'!A0", "+1", "-1", "@x", "\t=1", "\r=1", "a;=HYPERLINK(1)", "a;-1", 'a";=1', "a; +1", "a;\t@x", "\uff1d1+1", "\uff0b1", "a;\uff20x",
    "\u202e=1", "a;\u200f=1", "\x1b[31m=1", "\x1b]0;=1\x07", "x\n=1", "x\n;=1", "\ufeff=1", "\x9b31m=1", "a;\ufe63" + "1", "\u2028=1", MARKS + "=1",
)  # fmt: skip
EVIL = "<script>alert(1)</script>"


def result(name="Ada", number="", platform="", q1=4.0, q2=3.0, q3=1.0, hint="", **more):
    """A result with these points (of 4, 3, 1)."""
    marks = [
        QuestionScore(
            f"q{i}",
            (
                TestScore(f"t{i}", got, True),
                TestScore(f"hidden{i}", most - got, got == most, hint * (got < most), "secret"),
            ),
        )
        for i, (got, most) in enumerate([(q1, 4.0), (q2, 3.0), (q3, 1.0)], 1)
    ]
    marks = [replace(mark, tests=tuple(t for t in mark.tests if t.points)) for mark in marks]
    by_hand = QuestionScore("q4", (), 2.0, {"q4-why": more.pop("answer", "")})
    return Result(Student(name, number, platform), f"{name}.ipynb", (*marks, by_hand), **more)


def nothing(name="Bob", problem="it is not JSON", **more):
    return Result(Student(name, **more), f"{name}.ipynb", zero_scores(REFERENCE), problem=problem)


def rows(text):
    return list(csv.reader(io.StringIO(text)))


class TestCsv:
    def test_csv_matches_the_moodle_grading_worksheet(self):
        head, row = rows(
            to_csv([result("Ada Lovelace", "12345", "moodle", q2=1.5, hint="too stale")], REFERENCE, "moodle")
        )
        found = dict(zip(head, row))
        assert found["Identifier"] == "Participant 12345"
        assert (found["Full name"], found["Grade"], found["Maximum Grade"]) == ("Ada Lovelace", "6.5", "10")
        assert found["Last modified (grade)"] == "-"
        assert "q2: 1.5 of 3. too stale" in found["Feedback comments"]
        assert [found[q] for q in ("q1", "q2", "q3")] == ["4", "1.5", "1"]

    def test_csv_matches_the_canvas_gradebook(self):
        head, most, row = rows(to_csv([result("lovelaceada", "123", "canvas")], REFERENCE, "canvas"))
        assert head[:5] == ["Student", "ID", "SIS Login ID", "Section", "A toy"]
        assert all(name.endswith(" Current Points") for name in head[5:])  # else Canvas makes an assignment of it
        assert most[:5] == ["Points Possible", "", "", "", "10"]
        assert row == ["lovelaceada", "123", "", "", "8", "4", "3", "1", "0"]

    def test_plain_csv_has_points_problems_and_notes(self):
        head, row, bob = rows(to_csv([result(q1=1), nothing()], REFERENCE, "plain"))
        assert dict(zip(head, row)) == {
            "Student": "Ada", "ID": "", "Grade": "5", "Points": "8", "q1": "1", "q2": "3", "q3": "1", "q4": "0", "By hand": "2",
            "Problem": "", "Notes": "", "File": "Ada.ipynb",
        }  # fmt: skip
        assert (bob[0], bob[2], bob[3], bob[9]) == ("Bob", "0", "8", "it is not JSON")

    def test_all_rows_have_all_columns(self):
        for platform in ("moodle", "canvas", "plain"):
            assert len({len(row) for row in rows(to_csv([result(), nothing()], REFERENCE, platform))}) == 1

    @pytest.mark.parametrize("platform", ["moodle", "canvas", "plain"])
    @pytest.mark.parametrize("name", HOSTILE)
    def test_no_cell_is_evaluated_whatever_separates_columns(self, platform, name):
        """The oracle is Python's reader of CSV with either separator, as a spreadsheet in another language reads the file."""
        text = to_csv([result(name, hint=name, q1=1, notes=(name, "n")), nothing(name, name)], REFERENCE, platform)
        assert not set(text) & set(MARKS)
        cells = [
            cell for separator in ",;" for row in csv.reader(io.StringIO(text), delimiter=separator) for cell in row
        ]
        lines = [line.strip("\"' ") if line[:1] == '"' else line.strip() for cell in cells for line in cell.split("\n")]
        assert len(cells) > 10
        assert [
            line for line in lines if line != "-" and unicodedata.normalize("NFKC", line)[:1] in tuple("=+-@")
        ] == []

    @pytest.mark.parametrize("name", ["Ada", "Åsa", "Александр", "日本", "علی\u200cرضا", "हिन्दी", "O'Neil-Smith", "-"])
    def test_names_of_people_are_not_changed(self, name):
        assert rows(to_csv([result(name)], REFERENCE, "plain"))[1][0] == name
        assert escape(name) in page(result(name), "t")

    def test_commas_quotes_and_line_ends_are_quoted(self):
        name = 'a,"b"\nc'
        assert rows(to_csv([result(name)], REFERENCE, "plain"))[1][0] == name

    def test_each_student_has_one_row_with_the_best_result(self):
        twice = [result("Ada", "1", "moodle", q1=1), result("Ada", "1", "moodle"), result("Ada", "2", "moodle", q1=0)]
        assert [r.earned for r in best_of_each(twice)] == [8, 4]
        assert len(rows(to_csv(twice, REFERENCE, "moodle"))) == 3

    def test_equal_names_without_a_platform_are_different_students(self):
        assert len(best_of_each([result("a"), result("a")])) == 2

    def test_the_platform_is_recognized(self):
        made = (result("a", "1", "canvas"), result("b", "2", "canvas"), nothing())
        assert platform_of([each.student for each in made]) == "canvas"
        assert platform_of([nothing().student]) == "plain"


def test_pass_rates_use_the_best_result_of_each_student():
    assert pass_rates([result(), result(q1=1), nothing()], REFERENCE) == [
        ("q1", 1, 3, pytest.approx(5 / 3)),
        ("q2", 2, 3, 2.0),
        ("q3", 2, 3, pytest.approx(2 / 3)),
    ]


def test_json_has_all_results():
    found = json.loads(to_json([result(q1=1, hint="h"), nothing()], REFERENCE, "first"))
    assert (found["assignment"], found["variant"]) == ("toy", "first")
    assert set(found["submissions"][0]["student"]) == {"name", "id", "platform", "late"}
    ada, bob = found["submissions"]
    assert (ada["earned"], ada["points"]) == (5, 8)
    assert ada["questions"][0]["tests"][1] == {
        "id": "hidden1",
        "points": 3.0,
        "passed": False,
        "hint": "h",
        "detail": "secret",
    }
    assert bob["problem"] == "it is not JSON"


def test_junit_xml_has_failures_and_errors():
    name = "Ada \x00\x1b[31m\ud800 " + EVIL
    root = ElementTree.fromstring(
        to_junit([result(name, q1=1, hint="h\x01"), nothing()], REFERENCE).encode("utf-8", "replace")
    )
    (suite,) = root
    assert suite.attrib == {"name": "toy", "tests": "6", "failures": "1", "errors": "3"}
    cases = list(suite)
    assert [case.get("name") for case in cases] == ["q1", "q2", "q3"] * 2
    assert EVIL in cases[0].get("classname")
    assert cases[0].find("failure").get("message") == "1 of 4 points. h"
    assert cases[3].find("error").get("message") == "it is not JSON"


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert all(not name.startswith("on") and name not in ("src", "href") for name, _ in attrs)


class TestPage:
    @pytest.mark.parametrize("made", [result(EVIL, q1=1, hint=EVIL, answer=EVIL, notes=(EVIL,)), nothing(EVIL, EVIL)])
    def test_all_text_on_the_page_is_escaped(self, made):
        text = page(made, EVIL)
        assert EVIL not in text
        assert text.count("&lt;script&gt;") >= 3
        assert "script" not in Tags(text).tags

    def test_details_of_hidden_tests_are_not_on_the_page(self):
        text = page(result(q1=1, hint="a hint"), "A toy")
        assert "a hint" in text
        assert "secret" not in text
        assert "hidden1" not in text

    def test_the_page_shows_points_and_answers_graded_by_hand(self):
        text = page(result(q1=1, answer="Because."), "A toy")
        assert "5 of 8 points" in text
        assert "graded by hand, 2 points" in text
        assert "<pre>Because.</pre>" in text

    def test_the_feedback_page_loads_no_external_resources(self):
        assert not re.search(r"https?:|url\(|@import", page(result(), "A toy"))

    @pytest.mark.parametrize("text", HOSTILE)
    def test_the_page_and_the_terminal_have_no_hidden_characters(self, text):
        made = page(result(text, q1=1, hint=text, answer=text, notes=(text,)), text) + page(nothing(text, text), "t")
        assert not set(made) & set(MARKS) - {"\t"}
        assert plain(text).isprintable()
        assert "[31m" not in made + plain(text)

    def test_file_names_can_be_found_and_are_valid_and_unique(self):
        known = {
            "Ada": "Ada", "ada": "ada-2", "Александр": "Александр", "日本": "日本", "हिन्दी": "हिन्दी", "José": "José", "a/b\\c:d": "a_b_c_d",
            "../../etc/passwd": "etc_passwd", "CON": "CON_", "nul": "nul_", "\u202eevil.exe": "evil_exe", "": "student", "...": "student-2",
            "ＡＤＡ": "ＡＤＡ-3", "half \ud83d": "half",
        }  # fmt: skip
        names = file_names([Student(name) for name in known])
        assert names == [f"{stem}.html" for stem in known.values()]
        long = file_names([Student(letter * 300) for letter in "xщ日"] * 2)
        assert all(len(name.encode()) <= 200 for name in long)
        assert len(set(long)) == 6
        many = file_names([Student("a") for _ in range(20_000)])
        assert len(set(many)) == 20_000
