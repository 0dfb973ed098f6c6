"""A batch: submissions read, results taken over from the journal, the others graded, and reports written as results come."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

from ..errors import BadInput, nearest
from . import report
from .attempts import AttemptPolicy
from .feedback import file_names, page
from .grading import LOOK_S, grade_all, make_key
from .intake import Read, Submission, read_submissions
from .journal import Journal, fingerprint_of_master, write_whole
from .marks import Result
from .schema import Assignment
from .validation import Harness
from .variants import digest

__all__ = ["Batch", "Reports", "stopping"]

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C, and the signals to end and to hang up, set `stop` instead of interrupting a line of code.

    All that takes long looks at `stop`, so a batch ends within a second, between two writes and never in one. A signal
    that this process was told to ignore (as in the background of a shell script) stays ignored.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Batch:
    """Grades submissions of one master. A context manager: it holds the journal open.

    Every method raises `Stopped` when `harness.stop` is set; no process is left then.
    """

    def __init__(self, base: Assignment, seed: str | None, harness: Harness, jobs: int, journal: Path | None) -> None:
        self.base, self.variant, self.harness, self.jobs = base, digest(base, seed), harness, jobs
        self.journal = Journal(journal, fingerprint_of_master(base, self.variant)) if journal else None
        self.results: dict[int, Result] = {}
        """Results by the place of their submission: taken over, then graded."""
        self.missing = 0
        """Submissions that `--only` leaves out and that no journal has."""
        self.said = ""
        """What is graded and what is taken over, in a sentence."""
        self.unkept = ""
        """Why results are not in the journal (a full disk)."""
        self._all: list[Submission] = []
        self._chosen: list[int] = []
        self._taken_over = 0

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *error: object) -> None:
        if self.journal:
            self.journal.close()

    @property
    def graded(self) -> int:
        """How many results there are."""
        return len(self.results)

    def read(self, paths: Sequence[Path], policy: AttemptPolicy, platform: str) -> Read:
        """Read all submissions.

        Raises:
            BadInput: there is none.
        """
        found = self._apart(lambda: read_submissions(paths, self.base, policy, platform, self.jobs, self.harness.stop))
        if not found.submissions:
            raise BadInput("there is nothing to grade: no .ipynb and no .zip was found.")
        return found

    def plan(self, submissions: Sequence[Submission], only: Sequence[str] = ()) -> list[int]:
        """The places of the submissions that are graded now; the others are taken over from the journal.

        Raises:
            BadInput: a student in `only` handed in nothing.
        """
        self._all = list(submissions)
        for name in only:
            if not any(_is(each, name) for each in self._all):
                raise nearest("student", name, {each.student.name for each in self._all})
        for i, submission in enumerate(self._all):
            again = any(_is(submission, name) for name in only)
            known = None if again or not self.journal else self.journal.find(submission)
            if known is not None:
                self.results[i] = known
            elif again or not only:
                self._chosen.append(i)
            else:
                self.missing += 1
        self._taken_over = len(self.results)
        self.said = f"{len(self._all)} submissions"
        if self.journal and (self._taken_over or self.journal.other):
            self.said += f", {self._taken_over} taken over from {self.journal.path.name}, {len(self._chosen)} to grade"
            if self.journal.other:
                self.said += (
                    f" ({self.journal.other} results in it are of another master, variant or version of labkit)"
                )
        self.said += "."
        return self._chosen

    def run(self, done: Callable[[int, Result], object]) -> list[Result]:
        """Grade what was planned; `done` is called with each result, after it is in the journal. All results, in order."""
        if self._chosen:
            key = self._apart(lambda: make_key(self.base, self.variant, self.harness))

            def add(number: int, result: Result) -> None:
                i = self._chosen[number]
                self.results[i] = result
                self._keep(self._all[i], result)
                done(i, result)

            grade_all(key, [self._all[i] for i in self._chosen], self.harness, self.jobs, add)
        return [self.results[i] for i in sorted(self.results)]

    def _keep(self, submission: Submission, result: Result) -> None:
        if self.journal:
            try:
                self.journal.add(submission, result)
            except OSError as why:
                self.unkept = (
                    f"{self.journal.path} cannot be written, so that a batch cannot be continued: {why.strerror or why}"
                )

    def _apart(self, work: Callable[[], Any]) -> Any:
        """Do work on another thread and look at `stop` meanwhile; signals reach the main thread only."""
        with ThreadPoolExecutor(1, thread_name_prefix="batch") as pool:
            future = pool.submit(work)
            while True:
                try:
                    return future.result(LOOK_S)
                except TimeoutError:
                    if future.done():
                        raise  # of the work itself


def _is(submission: Submission, name: str) -> bool:
    return name in (submission.student.name, submission.student.id, submission.path)


class Reports:
    """The files of a batch. The CSV and a student's page are written after each result, the others at the end.

    Each is whole at any instant. What cannot be written is in `failed`, and costs no other file.
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
        """Learn who handed in, and write what was taken over."""
        self._names = file_names([each.student for each in submissions])
        self._platform = self._platform or report.platform_of([each.student for each in submissions])
        self._results = dict(results)
        for i in results:
            self._page(i)
        if results:
            self._csv()

    def add(self, i: int, result: Result) -> None:
        """Write one more result."""
        self._results[i] = result
        self._page(i)
        self._csv()

    def finish(self) -> None:
        """Write what is written once; nothing if there is no result."""
        results = self._sorted()
        if results:
            self._write(self.json, lambda: report.to_json(results, self.base, self._variant))
            self._write(self.junit, lambda: report.to_junit(results, self.base))

    def _sorted(self) -> list[Result]:
        return [self._results[i] for i in sorted(self._results)]

    def _csv(self) -> None:
        self._write(self.csv, lambda: report.to_csv(self._sorted(), self.base, self._platform or "plain"))

    def _page(self, i: int) -> None:
        if self.pages:
            self._write(self.pages / self._names[i], lambda: page(self._results[i], self.base.title))

    def _write(self, path: Path | None, text: Callable[[], str]) -> None:
        if path is None:
            return
        try:
            write_whole(path, text())
        except OSError as why:
            self.failed[path] = f"{path} cannot be written: {why.strerror or why}."
        else:
            self.failed.pop(path, None)
