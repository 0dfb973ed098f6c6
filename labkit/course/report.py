"""Reports of a batch: CSV for a learning platform, JSON, JUnit, and how many solved each question.

Its law: a report is a function of the results and of nothing else: no times, no paths of this computer. Text that came from
students' files is escaped for whoever reads it next: a spreadsheet, an XML parser, a browser.

Columns. Moodle's grading worksheet (assignment, "Upload grading worksheet") reads Identifier, Grade, Last modified (grade)
and Feedback comments, and ignores others; these are the English names, and a site in another language wants its own.
Canvas's gradebook import wants Student, ID, SIS Login ID, Section first and takes every other column for an assignment,
except those whose name has a read-only total in it, such as "Current Points".
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from .lms import Student
from .marks import Result, number
from .schema import Assignment

__all__ = ["PLATFORMS", "best_of_each", "pass_rates", "platform_of", "to_csv", "to_json", "to_junit"]

PLATFORMS = ("moodle", "canvas", "plain")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would compute a cell that begins so
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def platform_of(students: Iterable[Student]) -> str:
    """The platform that most submissions come from, by their names."""
    names = [student.platform or "plain" for student in students]
    return max(PLATFORMS, key=names.count)


def best_of_each(results: Sequence[Result]) -> list[Result]:
    """One result a student: where a person handed in several, the one that earned most (the first of equals)."""
    best: dict[object, Result] = {}
    for i, result in enumerate(results):
        who = result.student.identity or i
        if who not in best or result.earned > best[who].earned:
            best[who] = result
    return list(best.values())


def pass_rates(results: Sequence[Result], base: Assignment) -> list[tuple[str, int, int, float]]:
    """For each question with tests: (question, how many solved it, of how many, mean points), one result a student."""
    best = best_of_each(results)
    rows = []
    for i, question in enumerate(base.questions()):
        marks = [result.questions[i] for result in best]
        if marks and marks[0].tests:
            mean = sum(mark.earned for mark in marks) / len(marks)
            rows.append((question, sum(mark.ok for mark in marks), len(marks), mean))
    return rows


# CSV ------------------------------------------------------------------------------------------------------------------


def to_csv(results: Sequence[Result], base: Assignment, platform: str) -> str:
    """One line a student, in the columns of the platform ("moodle", "canvas" or "plain")."""
    make = {"moodle": _moodle, "canvas": _canvas, "plain": _plain}[platform]
    out = io.StringIO()
    writer = csv.writer(out)
    for row in make(best_of_each(results), base):
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: str) -> str:
    return f"'{value}" if value.startswith(_FORMULA) and value != "-" else value


def _earned(result: Result) -> list[str]:
    return [number(mark.earned) for mark in result.questions]


def _moodle(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    most = number(sum(cell.points for cell in base.of_kind("test", "explain")))
    head = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)", "Feedback comments"]
    yield [*head, *base.questions(), "File"]
    for result in results:
        student = result.student
        who = f"Participant {student.id}" if student.platform == "moodle" else ""
        yield [who, student.name, number(result.earned), most, "-", _comment(result), *_earned(result), result.path]


def _canvas(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    most = number(sum(cell.points for cell in base.of_kind("test", "explain")))
    questions = base.questions()
    head = ["Student", "ID", "SIS Login ID", "Section", base.title]
    yield [*head, *(f"{question} Current Points" for question in questions)]
    yield ["Points Possible", "", "", "", most, *("(read only)" for _ in questions)]
    for result in results:
        student = result.student
        own = student.id if student.platform == "canvas" and student.id.isdigit() else ""
        yield [student.name, own, "", "", number(result.earned), *_earned(result)]


def _plain(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    yield ["Student", "ID", "Grade", "Points", *base.questions(), "By hand", "Problem", "Notes", "File"]
    by_hand = number(sum(cell.points for cell in base.of_kind("explain")))
    for result in results:
        student, last = result.student, [by_hand, result.problem, "; ".join(result.notes), result.path]
        yield [student.name, student.id, number(result.earned), number(result.points), *_earned(result), *last]


def _comment(result: Result) -> str:
    """What a student reads beside the grade."""
    if result.problem:
        return result.problem
    lines = []
    for mark in result.questions:
        if mark.tests:
            hints = "" if mark.ok else f" {' / '.join(mark.hints)}"
            lines.append(f"{mark.question}: {number(mark.earned)} of {number(mark.points)}.{hints}")
        if mark.by_hand:
            lines.append(f"{mark.question}: {number(mark.by_hand)} points are graded by hand.")
    return " ".join([*lines, *(f"({note})" for note in result.notes)])


# for programs ---------------------------------------------------------------------------------------------------------


def to_json(results: Sequence[Result], base: Assignment, variant: str) -> str:
    """Everything, with what only the instructor may see."""
    about = {"assignment": base.name, "title": base.title, "variant": variant}
    rows = [r.as_json() for r in results]
    for row in rows:
        del row["student"]["key"], row["student"]["upload"]  # they may name a folder of this computer
    return json.dumps({**about, "submissions": rows}, indent=1, ensure_ascii=False) + "\n"


def to_junit(results: Sequence[Result], base: Assignment) -> str:
    """JUnit's XML: one test case for each question of each submission; an unreadable submission is an error."""
    suite = ElementTree.Element("testsuite", name=base.name)
    failures = errors = cases = 0
    for result in results:
        for mark in result.questions:
            if not mark.tests:
                continue
            cases += 1
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(result.student.name), name=mark.question)
            if result.problem:
                errors += 1
                ElementTree.SubElement(case, "error", message=_xml(result.problem))
            elif not mark.ok:
                failures += 1
                said = f"{number(mark.earned)} of {number(mark.points)} points. {' / '.join(mark.hints)}"
                failure = ElementTree.SubElement(case, "failure", message=_xml(said))
                failure.text = _xml("\n\n".join(test.detail for test in mark.tests if test.detail))
    suite.attrib |= {"tests": str(cases), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", re.sub("\x1b\\[[0-9;]*m", "", text))
