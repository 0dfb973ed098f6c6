"""Grades a batch: reads submissions, reuses results in the journal, and grades the other submissions."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any, TypeVar

from ...errors import BadInput, nearest
from ..schema import Assignment
from ..variants import digest
from .attempts import AttemptPolicy
from .grade import POLL_S, grade_all, make_key
from .journal import Journal, fingerprint_of_reference
from .nbval_run import Harness
from .scores import Result
from .submissions import Submission, Submissions, read_submissions

T = TypeVar("T")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Return a context in which SIGINT, SIGTERM and SIGHUP set the event `stop` and do not interrupt the code.

    All long operations check `stop`, so a batch ends within a second, and never during a write. A signal that this
    process ignores (as in the background of a shell script) stays ignored.
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


class Grading:
    """Grades the submissions of one reference notebook. A context manager, which closes the journal at the end.

    All methods raise `Interrupted` if `harness.stop` is set. By then all processes have ended.
    """

    def __init__(self, base: Assignment, seed: str | None, harness: Harness, jobs: int, journal: Path | None) -> None:
        self.base, self.variant, self.harness, self.jobs = base, digest(base, seed), harness, jobs
        self.journal = Journal(journal, fingerprint_of_reference(base, self.variant)) if journal else None
        self.results: dict[int, Result] = {}
        """Results by the index of their submission: reused ones, and those graded so far."""
        self.missing = 0
        """The number of submissions that are neither in `only` nor in the journal."""
        self.summary = ""
        """The numbers of submissions that are reused and graded, as a sentence."""
        self.journal_error = ""
        """Why results could not be written to the journal."""
        self._submissions: list[Submission] = []
        self._planned: list[int] = []
        self._reused = 0

    def __enter__(self) -> Grading:
        return self

    def __exit__(self, *error: object) -> None:
        if self.journal:
            self.journal.close()

    @property
    def graded(self) -> int:
        return len(self.results)

    def read(
        self, paths: Sequence[Path], policy: AttemptPolicy, platform: str, reports: Sequence[Path] = ()
    ) -> Submissions:
        """Read all submissions. `reports`: files and folders of this batch's reports, which are no submissions. Raises
        `BadInput` if there are no submissions.
        """
        found = self._run_in_thread(
            lambda: read_submissions(paths, self.base, policy, platform, self.jobs, self.harness.stop, reports)
        )
        if not found.any_notebook:
            raise BadInput("there is nothing to grade: no .ipynb and no .zip was found.")
        return found

    def plan(self, submissions: Sequence[Submission], only: Sequence[str] = ()) -> list[int]:
        """Return the indices of the submissions to grade. The results of other submissions are reused from the journal.

        `only`: names or ids of the students to grade. If it is empty, all submissions without a result in the journal are
        graded. Raises `BadInput` if a student in `only` has no submission.
        """
        self._submissions = list(submissions)
        for name in only:
            if not any(_matches(each, name) for each in self._submissions):
                raise nearest("student", name, {each.student.name for each in self._submissions})
        for i, submission in enumerate(self._submissions):
            again = any(_matches(submission, name) for name in only)
            known = None if again or not self.journal else self.journal.find(submission)
            if known is not None:
                self.results[i] = known
            elif again or not only:
                self._planned.append(i)
            else:
                self.missing += 1
        self._reused = len(self.results)
        self.summary = f"{len(self._submissions)} submissions"
        if self.journal and (self._reused or self.journal.other):
            self.summary += f", {self._reused} reused from {self.journal.path.name}, {len(self._planned)} to grade"
            if self.journal.other:
                others = f"{self.journal.other} results in it"
                self.summary += f" ({others} have another reference notebook, variant or version of labkit)"
        self.summary += "."
        return self._planned

    def run(self, done: Callable[[int, Result], object]) -> list[Result]:
        """Grade the planned submissions and return all results in order. `done(i, result)` is called after each journal entry."""
        if self._planned:
            key = self._run_in_thread(lambda: make_key(self.base, self.variant, self.harness))

            def add(number: int, result: Result) -> None:
                i = self._planned[number]
                self.results[i] = result
                self._write(self._submissions[i], result)
                done(i, result)

            grade_all(key, [self._submissions[i] for i in self._planned], self.harness, self.jobs, add)
        return [self.results[i] for i in sorted(self.results)]

    def _write(self, submission: Submission, result: Result) -> None:
        if self.journal:
            try:
                self.journal.add(submission, result)
            except OSError as why:
                self.journal_error = (
                    f"{self.journal.path} cannot be written, so the batch cannot be continued: {why.strerror or why}"
                )

    def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` on another thread, so that the main thread can handle signals."""
        with ThreadPoolExecutor(1, thread_name_prefix="batch") as pool:
            future = pool.submit(work)
            while True:
                try:
                    return future.result(POLL_S)
                except TimeoutError:
                    if future.done():
                        raise  # raised by `work`


def _matches(submission: Submission, name: str) -> bool:
    return name in (submission.student.name, submission.student.id, submission.path)
