"""Reports of a batch: CSV for a learning platform, JSON, JUnit, pass rates, and the files to which they are written.

A report depends only on the results, so it has no times and no paths of this computer. Text from students' files is
escaped for the program that reads the report (a spreadsheet, an XML parser, a browser).

Moodle's grading worksheet (assignment, "Upload grading worksheet") reads the columns Identifier, Grade, Last modified
(grade) and Feedback comments, and ignores other columns. These are the English names; a site in another language needs
the names in that language. Canvas's gradebook import needs the columns Student, ID, SIS Login ID and Section first. It
treats every other column as an assignment, except columns with the name of a read-only total, such as "Current Points".
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from ...files import write_text
from ..schema import Assignment
from .feedback import file_names, page
from .lms import Student
from .plain_text import shown_text, spreadsheet_cell
from .scores import Result, format_points
from .submissions import Submission

PLATFORMS = ("moodle", "canvas", "plain")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def platform_of(students: Iterable[Student]) -> str:
    """That of most submissions."""
    names = [student.platform or "plain" for student in students]
    return max(PLATFORMS, key=names.count)


def best_of_each(results: Sequence[Result]) -> list[Result]:
    """Return one result for each student: the result with the most points, and of equal results the first."""
    best: dict[object, Result] = {}
    for i, result in enumerate(results):
        who = result.student.identity or i
        if who not in best or result.earned > best[who].earned:
            best[who] = result
    return list(best.values())


def pass_rates(results: Sequence[Result], base: Assignment) -> list[tuple[str, int, int, float]]:
    """Return (question, students who solved it, students, mean points) for each question with tests.

    Each student's best result is counted.
    """
    best = best_of_each(results)
    rows = []
    for i, question in enumerate(base.questions()):
        scores = [result.questions[i] for result in best]
        if scores and scores[0].tests:
            mean = sum(score.earned for score in scores) / len(scores)
            rows.append((question, sum(score.ok for score in scores), len(scores), mean))
    return rows


# CSV ------------------------------------------------------------------------------------------------------------------


def to_csv(results: Sequence[Result], base: Assignment, platform: str) -> str:
    """Return CSV with one row for each student, and the columns of the platform ("moodle", "canvas" or "plain")."""
    make = {"moodle": _moodle, "canvas": _canvas, "plain": _plain}[platform]
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)  # also what contains another program's separator
    for row in make(best_of_each(results), base):
        writer.writerow([spreadsheet_cell(value) for value in row])
    return out.getvalue()


def _earned(result: Result) -> list[str]:
    return [format_points(score.earned) for score in result.questions]


def _moodle(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    most = format_points(sum(cell.points for cell in base.of_kind("test", "explain")))
    head = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)", "Feedback comments"]
    yield [*head, *base.questions(), "File"]
    for result in results:
        student = result.student
        who = f"Participant {student.id}" if student.platform == "moodle" else ""
        yield [
            who,
            student.name,
            format_points(result.earned),
            most,
            "-",
            _comment(result),
            *_earned(result),
            result.path,
        ]


def _canvas(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    most = format_points(sum(cell.points for cell in base.of_kind("test", "explain")))
    questions = base.questions()
    head = ["Student", "ID", "SIS Login ID", "Section", base.title]
    yield [*head, *(f"{question} Current Points" for question in questions)]
    yield ["Points Possible", "", "", "", most, *("(read only)" for _ in questions)]
    for result in results:
        student = result.student
        own = student.id if student.platform == "canvas" and student.id.isdigit() else ""
        yield [student.name, own, "", "", format_points(result.earned), *_earned(result)]


def _plain(results: Sequence[Result], base: Assignment) -> Iterable[list[str]]:
    yield ["Student", "ID", "Grade", "Points", *base.questions(), "By hand", "Problem", "Notes", "File"]
    by_hand = format_points(sum(cell.points for cell in base.of_kind("explain")))
    for result in results:
        student, last = result.student, [by_hand, result.problem, "; ".join(result.notes), result.path]
        yield [
            student.name,
            student.id,
            format_points(result.earned),
            format_points(result.points),
            *_earned(result),
            *last,
        ]


def _comment(result: Result) -> str:
    if result.problem:
        return result.problem
    lines = []
    for score in result.questions:
        if score.tests:
            hints = "" if score.ok else f" {' / '.join(score.hints)}"
            lines.append(f"{score.question}: {format_points(score.earned)} of {format_points(score.points)}.{hints}")
        if score.by_hand:
            lines.append(f"{score.question}: {format_points(score.by_hand)} points are graded by hand.")
    return " ".join([*lines, *(f"({note})" for note in result.notes)])


# JSON and JUnit ---------------------------------------------------------------------------------------------------------


def to_json(results: Sequence[Result], base: Assignment, variant: str) -> str:
    """Return all results as JSON, including data that only the instructor may see."""
    about = {"assignment": base.name, "title": base.title, "variant": variant}
    rows = [r.as_json() for r in results]
    for row in rows:
        del row["student"]["key"], row["student"]["upload"]  # they may contain a path of this computer
    return json.dumps({**about, "submissions": rows}, indent=1, ensure_ascii=False) + "\n"


def to_junit(results: Sequence[Result], base: Assignment) -> str:
    """Return JUnit XML with a test case for each question of each submission. If a submission could not be graded, its
    test cases are errors.
    """
    suite = ElementTree.Element("testsuite", name=base.name)
    failures = errors = cases = 0
    for result in results:
        for score in result.questions:
            if not score.tests:
                continue
            cases += 1
            case = ElementTree.SubElement(suite, "testcase", classname=_xml(result.student.name), name=score.question)
            if result.problem:
                errors += 1
                ElementTree.SubElement(case, "error", message=_xml(result.problem))
            elif not score.ok:
                failures += 1
                message = (
                    f"{format_points(score.earned)} of {format_points(score.points)} points. {' / '.join(score.hints)}"
                )
                failure = ElementTree.SubElement(case, "failure", message=_xml(message))
                failure.text = _xml("\n\n".join(test.detail for test in score.tests if test.detail))
    suite.attrib |= {"tests": str(cases), "failures": str(failures), "errors": str(errors)}
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _NOT_XML.sub("?", shown_text(text))


# files ----------------------------------------------------------------------------------------------------------------


class ReportFiles:
    """Writes the reports of a batch: the CSV and the student's page after each result, the other reports at the end.

    Files are replaced atomically. `failed`: {path: error} of the files that could not be written.
    """

    def __init__(
        self, base: Assignment, variant: str, platform: str | None, csv: Path | None, json: Path | None, junit: Path | None,
        pages: Path | None,
    ) -> None:  # fmt: skip
        self.base, self.csv, self.json, self.junit, self.pages = base, csv, json, junit, pages
        self.failed: dict[Path, str] = {}
        self._variant, self._platform = variant, platform
        self._names: list[str] = []
        self._results: dict[int, Result] = {}

    def begin(self, submissions: Sequence[Submission], results: dict[int, Result]) -> None:
        """Set the submissions, and write the results that are reused."""
        self._names = file_names([each.student for each in submissions])
        self._platform = self._platform or platform_of([each.student for each in submissions])
        self._results = dict(results)
        for i in results:
            self._page(i)
        if results:
            self._csv()

    def add(self, i: int, result: Result) -> None:
        self._results[i] = result
        self._page(i)
        self._csv()

    def finish(self) -> None:
        """Write the JSON and JUnit reports, unless there is no result."""
        results = self._sorted()
        if results:
            self._write(self.json, lambda: to_json(results, self.base, self._variant))
            self._write(self.junit, lambda: to_junit(results, self.base))

    def _sorted(self) -> list[Result]:
        return [self._results[i] for i in sorted(self._results)]

    def _csv(self) -> None:
        self._write(self.csv, lambda: to_csv(self._sorted(), self.base, self._platform or "plain"))

    def _page(self, i: int) -> None:
        if self.pages:
            self._write(self.pages / self._names[i], lambda: page(self._results[i], self.base.title))

    def _write(self, path: Path | None, text: Callable[[], str]) -> None:
        if path is None:
            return
        try:
            write_text(path, text(), sync=True)
        except OSError as why:
            self.failed[path] = f"{path} cannot be written: {why.strerror or why}."
        else:
            self.failed.pop(path, None)
