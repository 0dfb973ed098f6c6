"""`labkit assign | check | grade`: course work given out, checked by its author, and graded.

Tables go to standard output, the bar and warnings to standard error. What a student wrote is shown as text: no markup, no
control characters.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import BadInput
from .group import FAILED

__all__ = ["assign", "check", "grade"]

WIDE = 400  # columns, where nobody's terminal breaks the lines
FILE = click.Path(path_type=Path)


@click.command(short_help="Make the students' version of an assignment.")
@click.argument("master", type=FILE)
@click.option("--out", "folder", type=FILE, required=True, metavar="DIR", help="Where the two files go.")
@click.option(
    "--variant", "seed", metavar="SEED", help="Draw another variant (none: the one that the master is written as)."
)
def assign(master: Path, folder: Path, seed: str | None) -> None:
    """Make the students' notebook of MASTER, and the bundle with which they check it.

    Refused unless the master's own solutions get full marks.
    """
    from ..course.assigning import assign as make
    from ..course.assigning import read_master
    from ..course.validation import Harness, needs

    read_master(master, seed)  # what is wrong with the arguments is said before what is not installed
    _check_places([], folder)
    needs()
    made = make(master, folder, seed, Harness())
    from ..course.marks import number

    by_hand = f" and {number(made.by_hand)} by hand" if made.by_hand else ""
    click.echo(f"{made.name}: {number(made.points)} points by tests{by_hand}; the master gets them all.")
    click.echo(f"For students, both: {made.notebook} and {made.bundle}")


@click.command(short_help="Check your solution of an assignment.")
@click.argument("notebook", type=FILE)
@click.option("--bundle", type=FILE, metavar="FILE", help="The bundle that came with it (the one beside it).")
def check(notebook: Path, bundle: Path | None) -> None:
    """Check the solutions in NOTEBOOK as saved: the same way as grading, with the tests that you have.

    Exit code 0 if all is right, 1 if not.
    """
    from ..course.checking import check as look
    from ..course.checking import read
    from ..course.validation import Harness, needs

    opened = read(notebook, bundle)  # what is wrong with the arguments is said before what is not installed
    needs()
    checked = look(opened, Harness())
    result = checked.result
    click.echo(f"{checked.title}: {notebook.name}, saved {checked.saved}")
    for warning in checked.warnings:
        click.echo(f"Warning: {plain(warning)}.", err=True)
    if result.problem:
        raise click.ClickException(plain(result.problem))
    _print_questions(result, checked.unseen, checked.partly)
    for note in result.notes:
        click.echo(f"Note: {plain(note)}.")
    if not all(mark.ok for mark in result.questions):
        raise click.exceptions.Exit(FAILED)


def _print_questions(result: Any, unseen: Any, partly: Any) -> None:
    """A row for each question and each further hint, and one for what is graded by hand."""
    from ..course.marks import number

    rows = []
    for mark in result.questions:
        if mark.tests:
            earned = f"{number(mark.earned)} of {number(mark.points)}"
            further = ["so far; it is checked further when it is graded"] if mark.question in partly else []
            first, *others = (further if mark.ok else mark.hints) or [""]
            rows.append([mark.question, earned, "yes" if mark.ok else "NO", first])
            rows.extend(["", "", "", hint] for hint in others)
        if unseen.get(mark.question):
            rows.append(
                [mark.question, f"? of {number(unseen[mark.question])}", "later", "by tests that you do not have"]
            )
        if mark.by_hand:
            answered = "graded by hand" if all(mark.answers.values()) else "graded by hand; the answer is empty"
            rows.append([mark.question, f"? of {number(mark.by_hand)}", "later", answered])
    _table(["question", "points", "ok", "hint"], rows)


@click.command(short_help="Grade what students handed in (Linux).")
@click.argument("submissions", nargs=-1, required=True, type=FILE)
@click.option(
    "--master", type=FILE, required=True, metavar="FILE", help="The assignment with solutions and hidden tests."
)
@click.option("--variant", "seed", metavar="SEED", help="The seed with which it was given out.")
@click.option("--csv", "csv_file", type=FILE, metavar="FILE", help="Grades for a learning platform.")
@click.option(
    "--lms",
    type=click.Choice(["moodle", "canvas", "plain"]),
    help="Whose columns the CSV has (found out by file names).",
)
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Everything, for you only: it shows hidden tests.")
@click.option("--junit", "junit_file", type=FILE, metavar="FILE", help="JUnit XML, for you only.")
@click.option("--html", "html_folder", type=FILE, metavar="DIR", help="A page of feedback for each student.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="How many at once (one for each CPU).")
def grade(
    submissions: tuple[Path, ...], master: Path, seed: str | None, csv_file: Path | None, lms: str | None,
    json_file: Path | None, junit_file: Path | None, html_folder: Path | None, jobs: int | None,
) -> None:  # fmt: skip
    """Grade SUBMISSIONS: notebooks, folders of them, zip files of Moodle or Canvas."""
    from ..course import report
    from ..course.assigning import read_master
    from ..course.grading import grade_all, make_key
    from ..course.intake import check_paths, read_submissions
    from ..course.sandbox.confine import can_confine
    from ..course.validation import Harness, needs
    from ..course.variants import digest
    from ..engines.limits import usable_cpus

    _check_places([csv_file, json_file, junit_file], html_folder)
    base = read_master(master, seed)
    check_paths(submissions)
    needs()
    if why := can_confine():
        raise BadInput(f"Nothing was graded and no marks were given: {why}.")
    read = list(read_submissions(submissions, base.name))
    if not read:
        raise BadInput("there is nothing to grade: no .ipynb and no .zip was found.")
    harness = Harness(confined=True)
    click.echo(f"{base.title}: {len(read)} submissions. The master is graded first.", err=True)
    key = make_key(base, digest(base, seed), harness)
    with Bar(len(read)) as done:
        results = grade_all(key, read, harness, jobs or max(1, int(usable_cpus())), done)
    _print_results(results, base)
    texts = {
        csv_file: report.to_csv(results, base, lms or report.platform_of(results)),
        json_file: report.to_json(results, base, key.variant),
        junit_file: report.to_junit(results, base),
        **_pages(html_folder, results, base.title),
    }
    failed = [path for path, text in texts.items() if path and not _is_written(path, text)]
    if failed:
        raise click.exceptions.Exit(FAILED)


def _check_places(files: Sequence[Path | None], folder: Path | None) -> None:
    """Refuse what cannot be written before the hours of grading, not after."""
    asked = [path for path in files if path]
    if len({path.resolve() for path in asked}) < len(asked):
        raise BadInput("two reports would be the same file; allowed: one file each.")
    for path in [*asked, *([folder / "page.html"] if folder else [])]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise BadInput(f"{path.parent} cannot be made: {why.strerror or why}.") from None
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadInput(f"{path} cannot be written; allowed: a file in a folder that you may write to.")


def _pages(folder: Path | None, results: Sequence[Any], title: str) -> dict[Path | None, str]:
    """The pages for students, by file."""
    from ..course.feedback import file_names, page

    return {folder / name: page(result, title) for name, result in zip(file_names(results), results) if folder}


def _is_written(path: Path, text: str) -> bool:
    """Write one report; what goes wrong (a full disk) costs this one only."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace", newline="")  # half of a character is possible in JSON
    except OSError as why:
        click.echo(f"Error: {path} cannot be written: {why.strerror or why}.", err=True)
        return False
    return True


def _print_results(results: Sequence[Any], base: Any) -> None:
    """Each submission, then how many solved each question."""
    from ..course.marks import number
    from ..course.report import best_of_each, pass_rates

    rows = []
    for result in results:
        marks = [number(mark.earned) + "*" * mark.helped for mark in result.questions if mark.tests]
        said = result.problem or "; ".join(result.notes)
        rows.append([result.student.name, number(result.earned), *marks, said])
    rates = pass_rates(results, base)
    _table(["student", "points", *(row[0] for row in rates), ""], rows)
    if any(mark.helped for result in results for mark in result.questions):
        click.echo("* with correct answers to the questions before it")
    click.echo()
    solved = [
        [question, f"{passed} of {count}", f"{passed / count:.0%}", number(mean)]
        for question, passed, count, mean in rates
    ]
    _table(["question", "solved by", "", "mean points"], solved)
    best = best_of_each(results)
    troubled = sum(bool(result.problem) for result in results)
    click.echo(f"{len(best)} students, {len(results)} submissions, {troubled} that could not be graded.")
    variants = sum(any("given out as variant" in note for note in result.notes) for result in results)
    if variants:
        are = "submission is" if variants == 1 else "submissions are"
        click.echo(f"Warning: {variants} {are} of another variant; is --variant right?", err=True)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(value)) for value in row))
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=WIDE)).print(table)


def plain(text: str) -> str:
    """Text on one line without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class Bar:
    """A progress bar on standard error if that is a terminal; else nothing."""

    def __init__(self, total: int):
        self.total = total
        self._progress: Any = None

    def __enter__(self) -> Callable[[Any], None]:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task("grading", total=self.total)
        return self._done

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _done(self, _: Any) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)
