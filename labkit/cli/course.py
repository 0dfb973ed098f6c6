"""`labkit assign | check | grade`: course work given out, checked by its author, and graded.

Tables go to standard output, the bar and warnings to standard error. What a student wrote is shown as text: no markup, no
control characters.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import BadInput
from ..paths import reason
from .group import FAILED, WholeNumber
from .places import ExistingFile, Place

__all__ = ["assign", "check", "grade"]

WIDE = 400  # columns, where nobody's terminal breaks the lines
PLACE = Place()
MASTER = ExistingFile("the notebook of an assignment with its solutions (.ipynb)")
NOTEBOOK = ExistingFile("your notebook of an assignment (.ipynb)")
BUNDLE = ExistingFile("the bundle that came with the notebook (.bundle.json)")


@click.command(short_help="Make the students' version of an assignment.")
@click.argument("master", type=MASTER)
@click.option("--out", "folder", type=PLACE, required=True, metavar="DIR", help="Where the two files go.")
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
@click.argument("notebook", type=NOTEBOOK)
@click.option("--bundle", type=BUNDLE, metavar="FILE", help="The bundle that came with it (the one beside it).")
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


class Attempts(click.ParamType):
    """`last`, `first` or `best-of-N`."""

    name = "last|first|best-of-N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Read it, or say what is allowed."""
        from ..course.attempts import AttemptPolicy

        return value if isinstance(value, AttemptPolicy) else AttemptPolicy.of(value)


@click.command(short_help="Grade what students handed in (Linux).")
@click.argument("submissions", nargs=-1, required=True, type=PLACE)
@click.option(
    "--master", type=MASTER, required=True, metavar="FILE", help="The assignment with solutions and hidden tests."
)
@click.option("--variant", "seed", metavar="SEED", help="The seed with which it was given out.")
@click.option(
    "--attempts", "policy", type=Attempts(), default="last", show_default=True,
    help="Which notebook counts of a student who handed in several: ordered by what the platform says, not by names.",
)  # fmt: skip
@click.option(
    "--lms",
    type=click.Choice(["moodle", "canvas", "plain"]),
    help="Who wrote the first names in SUBMISSIONS, which give ids (plain: nobody's ids), and whose columns the CSV has. "
    "Without it: found out, if all names agree.",
)
@click.option("--csv", "csv_file", type=PLACE, metavar="FILE", help="Grades for a learning platform, after each result.")
@click.option("--json", "json_file", type=PLACE, metavar="FILE", help="Everything, for you only: it shows hidden tests.")
@click.option("--junit", "junit_file", type=PLACE, metavar="FILE", help="JUnit XML, for you only.")
@click.option("--html", "html_folder", type=PLACE, metavar="DIR", help="A page of feedback for each student.")
@click.option(
    "--journal", "journal_file", type=PLACE, metavar="FILE",
    help="Results as they come, for you only; the same command again continues (default: the first report's name and .journal).",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="STUDENT",
    help="Grade this student (name or id) again, and take the others from the journal. May be repeated.",
)  # fmt: skip
@click.option("--jobs", type=WholeNumber(1), metavar="N", help="How many at once (one for each CPU).")
def grade(
    submissions: tuple[Path, ...], master: Path, seed: str | None, policy: Any, lms: str | None, csv_file: Path | None,
    json_file: Path | None, junit_file: Path | None, html_folder: Path | None, journal_file: Path | None,
    only: tuple[str, ...], jobs: int | None,
) -> None:  # fmt: skip
    """Grade SUBMISSIONS: zip files of Moodle or Canvas, folders, notebooks. The first names in a zip or folder are students.

    Results are written as they come. Ctrl-C ends all of it; the same command again continues.
    """
    from ..course.assigning import read_master
    from ..course.batch import Batch, Reports, stopping
    from ..course.intake import check_paths
    from ..course.sandbox.confine import can_confine
    from ..course.validation import Harness, Stopped, needs
    from ..course.variants import digest
    from ..engines.limits import usable_cpus

    _check_places([csv_file, json_file, junit_file], html_folder)
    if journal_file is None:
        first = csv_file or json_file or junit_file
        journal_file = first.with_name(f"{first.name}.journal") if first else None
    _check_places([csv_file, json_file, junit_file, journal_file], None)
    if only and (journal_file is None or not journal_file.exists()):
        raise BadInput("--only takes the other students from the journal, and there is none; allowed: grade all first.")
    base = read_master(master, seed)
    check_paths(submissions)
    needs()
    if why := can_confine():
        raise BadInput(f"Nothing was graded and no marks were given: {why}.")
    harness = Harness(confined=True)
    workers = jobs or max(1, int(usable_cpus()))
    reports = Reports(base, digest(base, seed), lms, csv_file, json_file, junit_file, html_folder)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        click.echo(f"SIGINT (Ctrl-C) is ignored here; `kill {os.getpid()}` ends the batch in order.", err=True)
    with stopping(harness.stop), Batch(base, seed, harness, workers, journal_file) as batch:
        try:
            read = batch.read(submissions, policy, lms or "")
            for warning in read.warnings:
                click.echo(f"Warning: {plain(warning)}.", err=True)
            chosen = batch.plan(read.submissions, only)
            click.echo(f"{base.title}: {plain(batch.said)}", err=True)
            if chosen:
                click.echo("The master is graded first.", err=True)
            reports.begin(read.submissions, batch.results)
            with Bar(len(chosen)) as done:


                def add(i: int, result: Any) -> None:
                    reports.add(i, result)
                    done(result)

                results = batch.run(add)
        except Stopped:
            reports.finish()
            for failed in reports.failed.values():
                click.echo(f"Error: {failed}", err=True)
            if journal_file is not None and batch.graded:
                click.echo(f"{batch.graded} results are in {journal_file}; the same command continues.", err=True)
            raise KeyboardInterrupt from None
    reports.finish()
    _print_results(results, base)
    if batch.unkept:
        click.echo(f"Warning: {plain(batch.unkept)}.", err=True)
    if batch.missing:
        click.echo(f"Warning: {batch.missing} students are in no journal and were not graded (--only).", err=True)
    for failed in reports.failed.values():
        click.echo(f"Error: {failed}", err=True)
    if reports.failed:
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
            raise BadInput(f"{path.parent} cannot be made: {reason(why)}.") from None
        wrong = _why_not_written(path)
        if wrong:
            raise BadInput(f"{path} cannot be written: {wrong}; allowed: a file in a folder that you may write to.")


def _why_not_written(path: Path) -> str:
    """Why there can be no report at `path`, which is written beside it first and then put in its place; "" if there can."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return "" if os.access(path.parent, os.W_OK) else "no permission"
    except OSError as why:  # a name that is too long
        return reason(why)
    if not stat.S_ISREG(about.st_mode):
        return "it is a folder" if stat.S_ISDIR(about.st_mode) else "it is a device or a pipe"
    return "" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "no permission"


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
