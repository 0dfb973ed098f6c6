"""Reports: the columns that Moodle and Canvas document, JSON, JUnit, feedback pages; text of students is escaped."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from labkit.course.grading.feedback import file_names, page
from labkit.course.grading.lms import Student
from labkit.course.grading.reports import best_of_each, pass_rates, platform_of, to_csv, to_json, to_junit
from labkit.course.grading.scores import QuestionScore, Result, TestScore, zero_scores
from labkit.course.schema import parse
from tests.course import toy_reference as toy

REFERENCE = parse(toy.notebook(), "m")
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

    @pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\t=1"])
    def test_formulas_in_names_are_escaped(self, name):
        assert rows(to_csv([result(name)], REFERENCE, "plain"))[1][0] == f"'{name}"

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
    assert cases[0].find("failure").get("message") == "1 of 4 points. h?"
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

    def test_file_names_are_valid_and_unique(self):
        made = [
            result(name)
            for name in ("../../etc/passwd", "Ada", "ada", "Ada", "", "日本", "x" * 300, "CON.html", "a/b\\c:d")
        ]
        names = file_names([each.student for each in made])
        assert len({name.lower() for name in names}) == len(names)
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,90}\.html", name) for name in names)
        many = file_names([Student("a") for _ in range(20_000)])
        assert len(set(many)) == 20_000
