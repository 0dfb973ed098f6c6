"""`labkit assign | check | grade`: release an assignment, check a solution, grade submissions.

Tables are written to standard output, the progress bar and warnings to standard error. Text from students' files is shown without
markup and control characters.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BadInput
from ..files import reserved
from ..paths import reason
from .command_group import FAILED, WholeNumber
from .path_types import ExistingFile, PathType

if TYPE_CHECKING:
    from ..course.grading.attempts import AttemptPolicy
    from ..course.grading.scores import Result
    from ..course.schema import Assignment

PIPE_WIDTH = 400  # columns, if the output is not a terminal
PATH = PathType()
REFERENCE = ExistingFile("the notebook of an assignment with its solutions (.ipynb)")
NOTEBOOK = ExistingFile("your notebook of an assignment (.ipynb)")
BUNDLE = ExistingFile("the bundle of the assignment (.bundle.json)")


@click.command(short_help="Create the release of an assignment.")
@click.argument("reference", type=REFERENCE)
@click.option("--out", "folder", type=PATH, required=True, metavar="DIR", help="The folder for the three files.")
@click.option(
    "--variant", "seed", metavar="SEED", help="Draw a variant (default: the first choices, as written in the notebook)."
)
def assign(reference: Path, folder: Path, seed: str | None) -> None:
    """Make the release of REFERENCE: the students' notebook, the bundle for `labkit check`, and pytest.ini for `pytest --nbval`.

    The reference notebook's own solutions must pass all tests.
    """
    from ..course.authoring.assign import assign as make
    from ..course.authoring.assign import read_reference
    from ..course.grading.nbval_run import Harness, require_nbval

    read_reference(reference, seed)  # errors in the arguments are reported before missing packages
    _check_report_paths([], folder)
    require_nbval()
    made = make(reference, folder, seed, Harness())
    from ..course.grading.scores import format_points

    by_hand = f" and {format_points(made.by_hand)} by hand" if made.by_hand else ""
    click.echo(
        f"{made.name}: {format_points(made.points)} points by tests{by_hand}; the reference notebook passes all tests."
    )
    files = made.files
    click.echo(f"Give students all three files: {files.notebook}, {files.bundle} and {files.configuration}")


@click.command(short_help="Check your solution of an assignment.")
@click.argument("notebook", type=NOTEBOOK)
@click.option(
    "--bundle", type=BUNDLE, metavar="FILE", help="The bundle of the assignment (default: beside the notebook)."
)
def check(notebook: Path, bundle: Path | None) -> None:
    """Run the visible tests on the solutions in NOTEBOOK, as saved, in the same way as grading.

    Exit code 0 if all tests pass, 1 if not.
    """
    from ..course.grading.check import check as run_check
    from ..course.grading.check import open_notebook
    from ..course.grading.nbval_run import Harness, require_nbval

    opened = open_notebook(notebook, bundle)  # errors in the arguments are reported before missing packages
    require_nbval()
    checked = run_check(opened, Harness())
    result = checked.result
    click.echo(f"{checked.title}: {notebook.name}, saved {checked.saved}")
    for warning in checked.warnings:
        click.echo(f"Warning: {plain(warning)}.", err=True)
    if result.problem:
        raise click.ClickException(plain(result.problem))
    _print_questions(result, checked.unseen, checked.partly)
    for note in result.notes:
        click.echo(f"Note: {plain(note)}.")
    if not all(score.ok for score in result.questions):
        raise click.exceptions.Exit(FAILED)


def _print_questions(result: Result, unseen: Mapping[str, float], partly: frozenset[str]) -> None:
    """Print a row for each question, each further hint, the points of hidden tests, and each part that is graded by hand."""
    from ..course.grading.scores import format_points

    rows = []
    for score in result.questions:
        if score.tests:
            earned = f"{format_points(score.earned)} of {format_points(score.points)}"
            further = ["so far; a part of the test is hidden until grading"] if score.question in partly else []
            first, *others = (further if score.ok else score.hints) or [""]
            rows.append([score.question, earned, "yes" if score.ok else "NO", first])
            rows.extend(["", "", "", hint] for hint in others)
        if unseen.get(score.question):
            rows.append([score.question, f"? of {format_points(unseen[score.question])}", "later", "by hidden tests"])
        if score.by_hand:
            answered = "graded by hand" if all(score.answers.values()) else "graded by hand; the answer is empty"
            rows.append([score.question, f"? of {format_points(score.by_hand)}", "later", answered])
    _table(["question", "points", "ok", "hint"], rows)


class Attempts(click.ParamType):
    """The parameter type of `--attempts`: `last`, `first` or `best-of-N`."""

    name = "last|first|best-of-N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> AttemptPolicy:
        from ..course.grading.attempts import AttemptPolicy

        return value if isinstance(value, AttemptPolicy) else AttemptPolicy.parse(str(value))


@click.command(short_help="Grade submissions (Linux).")
@click.argument("submissions", nargs=-1, required=True, type=PATH)
@click.option(
    "--reference", type=REFERENCE, required=True, metavar="FILE", help="The assignment with solutions and hidden tests."
)
@click.option("--variant", "seed", metavar="SEED", help="The seed of the release.")
@click.option(
    "--attempts", "policy", type=Attempts(), default="last", show_default=True,
    help="Which notebook counts if a student has several, ordered by the platform's data, not by names.",
)  # fmt: skip
@click.option(
    "--lms",
    type=click.Choice(["moodle", "canvas", "plain"]),
    help="The platform of the first names in SUBMISSIONS, which give ids, and of the CSV's columns (plain: no ids). "
    "Default: recognized, if all names agree.",
)
@click.option("--csv", "csv_file", type=PATH, metavar="FILE", help="Grades for a learning platform, after each result.")
@click.option(
    "--json",
    "json_file",
    type=PATH,
    metavar="FILE",
    help="All results, for the instructor only: the file contains hidden tests.",
)
@click.option("--junit", "junit_file", type=PATH, metavar="FILE", help="JUnit XML, for the instructor only.")
@click.option("--html", "html_folder", type=PATH, metavar="DIR", help="A feedback page for each student.")
@click.option(
    "--journal", "journal_file", type=PATH, metavar="FILE",
    help="The journal, for the instructor only: the same command continues from it "
    "(default: the name of the first report with .journal).",
)  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="STUDENT",
    help="Grade this student (name or id) again and reuse the other results of the journal. May be repeated.",
)  # fmt: skip
@click.option(
    "--jobs", type=WholeNumber(1), metavar="N", help="Number of submissions graded in parallel (default: one per CPU)."
)
def grade(
    submissions: tuple[Path, ...], reference: Path, seed: str | None, policy: AttemptPolicy, lms: str | None,
    csv_file: Path | None,
    json_file: Path | None, junit_file: Path | None, html_folder: Path | None, journal_file: Path | None,
    only: tuple[str, ...], jobs: int | None,
) -> None:  # fmt: skip
    """Grade SUBMISSIONS: zip files of Moodle or Canvas, folders, notebooks. Each first name in a zip or folder is a student.

    Reports are written after each result. Ctrl-C ends the batch; the same command continues it.
    """
    from ..course.authoring.assign import read_reference
    from ..course.grading.batch import Grading, stop_on_signals
    from ..course.grading.nbval_run import Harness, Interrupted, require_nbval
    from ..course.grading.reports import ReportFiles
    from ..course.grading.submissions import check_paths
    from ..course.sandbox.confine import confinement_problem
    from ..course.variants import digest
    from ..engines.machine_limits import usable_cpus

    _check_report_paths([csv_file, json_file, junit_file], html_folder)
    if journal_file is None:
        first = csv_file or json_file or junit_file
        journal_file = first.with_name(f"{first.name}.journal") if first else None
    _check_report_paths([csv_file, json_file, junit_file, journal_file], None)
    if only and (journal_file is None or not journal_file.exists()):
        raise BadInput(
            "--only reuses the other results of the journal, and there is no journal; grade all submissions first."
        )
    base = read_reference(reference, seed)
    check_paths(submissions)
    require_nbval()
    if why := confinement_problem():
        raise BadInput(f"Nothing was graded: {why}.")
    harness = Harness(confined=True)
    workers = jobs or max(1, int(usable_cpus()))
    reports = ReportFiles(base, digest(base, seed), lms, csv_file, json_file, junit_file, html_folder)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        click.echo(
            f"SIGINT (Ctrl-C) is ignored here; `kill {os.getpid()}` stops the batch in an orderly way.", err=True
        )
    written = [path for path in (csv_file, json_file, junit_file, journal_file, html_folder) if path is not None]
    with (
        reserved(written, "another `labkit grade`"), stop_on_signals(harness.stop),
        Grading(base, seed, harness, workers, journal_file) as batch,
    ):  # fmt: skip
        try:
            read = batch.read(submissions, policy, lms or "", written)
            for warning in read.warnings:
                click.echo(f"Warning: {plain(warning)}.", err=True)
            chosen = batch.plan(read.found, only)
            click.echo(f"{base.title}: {plain(batch.summary)}", err=True)
            if chosen:
                click.echo("First the reference notebook is graded.", err=True)
            reports.begin(read.found, batch.results)
            with ProgressBar(len(chosen)) as done:

                def add(i: int, result: Result) -> None:
                    reports.add(i, result)
                    done(result)

                results = batch.run(add)
        except Interrupted:
            reports.finish()
            for failed in reports.failed.values():
                click.echo(f"Error: {failed}", err=True)
            if journal_file is not None and batch.graded:
                click.echo(
                    f"{batch.graded} results are in {journal_file}; the same command continues the batch.", err=True
                )
            raise KeyboardInterrupt from None
        reports.finish()
    _print_results(results, base)
    if batch.journal_error:
        click.echo(f"Warning: {plain(batch.journal_error)}.", err=True)
    if batch.missing:
        click.echo(f"Warning: {batch.missing} students are not in the journal and were not graded (--only).", err=True)
    for failed in reports.failed.values():
        click.echo(f"Error: {failed}", err=True)
    if reports.failed:
        raise click.exceptions.Exit(FAILED)


def _check_report_paths(files: Sequence[Path | None], folder: Path | None) -> None:
    """Raise `BadInput` if a report cannot be written, so that this is known before grading. Missing folders are created."""
    given = [path for path in files if path]
    if len({path.resolve() for path in given}) < len(given):
        raise BadInput("two reports have the same file; give each its own.")
    for path in [*given, *([folder / "page.html"] if folder else [])]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise BadInput(f"{path.parent} cannot be created: {reason(why)}.") from None
        wrong = _write_problem(path)
        if wrong:
            raise BadInput(f"{path} cannot be written: {wrong}; allowed: a file in a folder that you may write to.")


def _write_problem(path: Path) -> str:
    """Return why `path` cannot be written atomically, which needs write access to its folder; "" if it can be written."""
    try:
        about = os.stat(path)
    except FileNotFoundError:
        return "" if os.access(path.parent, os.W_OK) else "no permission"
    except OSError as why:  # for example, a name that is too long
        return reason(why)
    if not stat.S_ISREG(about.st_mode):
        return "it is a folder" if stat.S_ISDIR(about.st_mode) else "it is a device or a pipe"
    return "" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "no permission"


def _print_results(results: Sequence[Result], base: Assignment) -> None:
    """Print a row for each submission, then the pass rate of each question."""
    from ..course.grading.reports import best_of_each, pass_rates
    from ..course.grading.scores import format_points

    rows = []
    for result in results:
        points = [format_points(score.earned) + "*" * score.with_reference for score in result.questions if score.tests]
        remark = result.problem or "; ".join(result.notes)
        rows.append([result.student.name, format_points(result.earned), *points, remark])
    rates = pass_rates(results, base)
    _table(["student", "points", *(row[0] for row in rates), ""], rows)
    if any(score.with_reference for result in results for score in result.questions):
        click.echo("* with correct answers to the questions before it")
    click.echo()
    solved = [
        [question, f"{passed} of {count}", f"{passed / count:.0%}", format_points(mean)]
        for question, passed, count, mean in rates
    ]
    _table(["question", "solved by", "", "mean points"], solved)
    best = best_of_each(results)
    failed = sum(bool(result.problem) for result in results)
    click.echo(f"{len(best)} students, {len(results)} submissions, {failed} that could not be graded.")
    variants = sum(any("released as variant" in note for note in result.notes) for result in results)
    if variants:
        are = "submission was" if variants == 1 else "submissions were"
        click.echo(f"Warning: {variants} {are} released as another variant; check --variant.", err=True)


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
    (console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)).print(table)


def plain(text: str) -> str:
    """Return the text on one line, without control characters and marks of direction."""
    from ..course.grading.plain_text import shown_text

    return "".join(letter if letter.isprintable() else " " for letter in shown_text(text))


class ProgressBar:
    """A progress bar on standard error. Nothing is shown if standard error is not a terminal."""

    def __init__(self, total: int):
        self.total = total
        self._progress: Any = None

    def __enter__(self) -> Callable[[Result], None]:
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

    def _done(self, _: Result) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)
