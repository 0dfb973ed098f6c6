"""Submissions as they come: notebooks, folders, and the zip files of Moodle and Canvas, sorted by student.

What is given to `grade` is a platform's zip, or a folder: the first names in it are the platform's (or the instructor's), one
for each student, and all that lies below is one student's. An identity comes from these first names and from nothing else;
and from them only if all of them are written as one platform writes them, or if the platform is named. A submission that
cannot be read is one line of the report; it never ends the batch, and its limits are its own.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ..errors import BadInput
from .archive import MOST_FILES, is_hidden
from .attempts import LAST, AttemptPolicy
from .lms import PATTERNS, Student, plain_student, platform_of_names, student_of
from .reading import MOST_NOTEBOOKS, Answers, Reader
from .schema import Assignment
from .taken import Taken

__all__ = ["Read", "Submission", "check_paths", "read_submissions"]

SHOWN = 3  # paths of notebooks that are not graded, in one note


@dataclass(frozen=True)
class Submission:
    """One attempt that is to be graded, or the sentence that says why nothing can be."""

    path: str
    student: Student
    taken: Taken | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    variant: str = ""
    """The variant that the notebook says it was given out as."""
    broken: bool = False
    """Whether the machine may be the reason of the problem."""


@dataclass(frozen=True)
class Read:
    """What was found under the paths of one batch. `warnings` are for the instructor."""

    submissions: list[Submission]
    warnings: list[str]


def check_paths(paths: Sequence[Path]) -> None:
    """Refuse a path that does not exist.

    Raises:
        BadInput: a path on the command line does not exist.
    """
    for path in paths:
        try:
            exists = path.exists()
        except OSError:  # a name longer than the system allows
            exists = False
        if not exists:
            raise BadInput(f"there is no {path}; allowed: notebooks, folders of them, zip files.")


def read_submissions(
    paths: Sequence[Path],
    base: Assignment,
    policy: AttemptPolicy = LAST,
    platform: str = "",
    jobs: int = 1,
    stop: threading.Event | None = None,
) -> Read:
    """Every submission under these paths, by student, in a fixed order.

    Args:
        base: the master or the release; no solution of it enters a reading process.
        platform: "moodle" or "canvas": what writes the first names; "plain": nothing does; "": found out.
        jobs: how many processes read at once.
        stop: set to end all of them.

    Raises:
        BadInput: a path on the command line does not exist.
        Stopped: `stop` was set.
    """
    check_paths(paths)
    reader = Reader(stop)
    finder = _Finder(base.name, reader, platform)
    finder.look(paths)
    students = finder.students()
    with ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="read") as pool:
        try:
            found = [*pool.map(lambda units: _attempts(units, base, policy, reader), students)]
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return Read([*finder.refused, *(each for attempts in found for each in attempts)], finder.warnings)


# finding --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A notebook or zip of a student's. `place`: in the platform's zip at `path`; None: a file of its own."""

    path: Path
    shown: str
    inner: PurePosixPath
    time: int
    place: int | None = None
    problem: str = ""

    @property
    def is_zip(self) -> bool:
        return self.inner.suffix.lower() == ".zip"


@dataclass
class _Unit:
    """All files under one first name of one place."""

    student: Student
    where: str
    files: list[_File] = field(default_factory=list)


class _Finder:
    """Collects units, decides whose the first names are, and groups units by student."""

    def __init__(self, assignment: str, reader: Reader, platform: str) -> None:
        self.assignment, self.reader, self.platform = assignment, reader, platform
        self.units: list[_Unit] = []
        self.refused: list[Submission] = []
        self.warnings: list[str] = []

    def look(self, paths: Sequence[Path]) -> None:
        """Look at what is given on the command line: containers, or what is one student's each.

        The name of an argument gives an id only if the platform is named: a shell's `*` may stand for names that a
        student has chosen.
        """
        patterns = PATTERNS if not self.platform else {k: v for k, v in PATTERNS.items() if k == self.platform}
        alike = [any(pattern.fullmatch(path.name) for pattern in patterns.values()) for path in paths]
        for path, known in zip(paths, alike):
            if path.is_dir():
                one = known and (self.platform or "moodle") == "moodle" and student_of(path.name, "moodle") is not None
            elif path.suffix.lower() == ".zip":
                one = known and len(paths) > 1 and all(alike)  # else a platform's zip, which may be called anything
            else:
                one = True
            if one:
                self._one(path, known)
            elif path.is_dir():
                self._many(path, self._in_folder(path))
            else:
                self._zip(path)

    def _one(self, path: Path, known: bool) -> None:
        """All of an argument is one student's."""
        student = student_of(path.name, self.platform) if known and self.platform else None
        if known and student is None:
            self.warnings.append(
                f"{path} gives no id: it was named by itself. Give the folder or zip in which it is, or say whose name it "
                "is with --lms"
            )
        unit = _Unit(student or plain_student(path.name, str(path)), str(path.parent))
        unit.files += self._in_folder(path) if path.is_dir() else [_on_disk(path, PurePosixPath(path.name))]
        self.units.append(unit)

    def _zip(self, path: Path) -> None:
        try:
            with _opened(path) as descriptor:
                members = self.reader.members(descriptor)
            if not members:
                raise BadInput("the zip has no notebook in it")
        except BadInput as why:
            self.refused.append(Submission(str(path), plain_student(path.name, str(path)), problem=str(why)))
            return
        files = []
        for member in members:
            inner = PurePosixPath(member.path)
            files.append(_File(path, f"{path.name}:{inner}", inner, member.time, member.place))
        self._many(path, files)

    def _in_folder(self, path: Path) -> list[_File]:
        """Notebooks and zips in a folder, by path; links are not followed."""
        files = []
        for folder, below, names in os.walk(path):
            below.sort()
            for name in sorted(names):
                file = Path(folder) / name
                inner = PurePosixPath(file.relative_to(path).as_posix())
                if not is_hidden(inner) and file.suffix.lower() in (".ipynb", ".zip"):
                    files.append(_on_disk(file, inner))
            if len(files) > MOST_FILES:
                raise BadInput(f"{path} has more than {MOST_FILES:,} notebooks and zips.")
        return sorted(files, key=lambda file: file.inner.parts)

    def _many(self, path: Path, files: Sequence[_File]) -> None:
        """A platform's zip or a folder: one student for each first name."""
        parts: dict[str, list[_File]] = {}
        for file in files:
            first = file.inner.parts[0] if file.inner.parts else ""
            inside = not file.inner.is_absolute() and first != ".." and ":" not in first
            parts.setdefault(first if inside else f"\0{file.inner}", []).append(file)
        platform = self._platform(path, [part for part in parts if not part.startswith("\0")])
        for part, own in parts.items():
            student = student_of(part, platform) if platform else None
            name = PurePosixPath(part[1:]).name if part.startswith("\0") else part
            self.units.append(_Unit(student or plain_student(name, f"{path}/{part}"), str(path), own))
            if not student and len(own) > 1:
                self.warnings.append(
                    f"{len(own)} files in {path} are under {name!r}: one student's. Each first name in what is given to "
                    "grade is one student; give the folder or zip in which the students' own folders are"
                )

    def _platform(self, path: Path, parts: Sequence[str]) -> str:
        if self.platform:
            return "" if self.platform == "plain" else self.platform
        found, alike = platform_of_names(parts)
        if alike and not found:
            self.warnings.append(
                f"{alike} of {len(parts)} names in {path} look like a platform's and the others do not, so none gives an "
                "id (if they are, say --lms moodle or --lms canvas)"
            )
        return found

    def students(self) -> list[list[_Unit]]:
        """Units by student, in the order in which students were found. One id under two names is two students."""
        names: dict[tuple[str, str], set[str]] = {}
        for unit in self.units:
            if unit.student.id:
                names.setdefault((unit.student.platform, unit.student.id), set()).add(unit.student.name)
        for unit in self.units:
            student = unit.student
            if student.id and len(names[student.platform, student.id]) > 1:
                both = " and ".join(sorted(map(repr, names[student.platform, student.id])))
                self.warnings.append(f"the id {student.id} has two names, {both}: it is taken for neither")
                unit.student = Student(student.name, late=student.late, key=f"{unit.where}/{student.name}/{student.id}")
        groups: dict[tuple[str, str], list[_Unit]] = {}
        for unit in self.units:
            groups.setdefault(unit.student.identity or ("", ""), []).append(unit)
        called = Counter(group[0].student.name for group in groups.values())
        for group in groups.values():
            for unit in group:
                if called[unit.student.name] > 1 and not unit.student.id:
                    unit.student = replace(unit.student, name=unit.student.key)
        self.warnings = list(dict.fromkeys(self.warnings))
        return list(groups.values())


def _on_disk(path: Path, inner: PurePosixPath) -> _File:
    try:
        about = path.lstat()
    except OSError as why:
        return _File(path, str(inner), inner, 0, problem=f"the file cannot be read: {why.strerror or why}")
    moment = time.gmtime(max(about.st_mtime, 0))
    at = int(time.strftime("%Y%m%d%H%M%S", moment))
    problem = ""
    if stat.S_ISLNK(about.st_mode):
        problem = "it is a link to another file: not followed"
    elif not stat.S_ISREG(about.st_mode):
        problem = "it is not a file"
    return _File(path, str(inner), inner, at, problem=problem)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a regular file; a link or a pipe that has come in its place is not opened.

    Raises:
        BadInput: it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as why:
        raise BadInput(f"the file cannot be read: {why.strerror or why}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInput("it is not a file")
        yield descriptor
    finally:
        os.close(descriptor)


# reading one student --------------------------------------------------------------------------------------------------


def _attempts(units: Sequence[_Unit], base: Assignment, policy: AttemptPolicy, reader: Reader) -> list[Submission]:
    """What is graded of one student: at least one submission, at most what the policy says."""
    files = [(unit, file) for unit in units for file in unit.files]
    files.sort(key=lambda row: (row[1].inner.stem != base.name, len(row[1].inner.parts), str(row[1].inner)))
    sign = 1 if policy.kind == "first" else -1
    files.sort(key=lambda row: (sign * row[0].student.upload, sign * row[1].time))
    found: list[tuple[_Unit, str, Answers]] = []
    left = 0
    while files and len(found) < MOST_NOTEBOOKS:
        unit, first = files[0]
        count = 1
        if (
            first.place is not None
        ):  # the notebooks of one platform's zip that follow each other are read by one process
            while count < len(files) and files[count][0] is unit and files[count][1].path == first.path:
                count += 1
        own, files = [file for _, file in files[:count]], files[count:]
        answers, more = _read(own, base, reader)
        found += [(unit, _path(own[0], each), each) for each in answers]
        left += more
    left += len(files) + max(len(found) - MOST_NOTEBOOKS, 0)
    found = found[:MOST_NOTEBOOKS]
    return _chosen(found, left, policy)


def _read(files: Sequence[_File], base: Assignment, reader: Reader) -> tuple[list[Answers], int]:
    """The answers in files that one process reads."""
    first = files[0]
    if first.problem:
        return [Answers("", problem=first.problem)], 0
    try:
        with _opened(first.path) as descriptor:
            places = None if first.place is None else [file.place for file in files if file.place is not None]
            return reader.answers(descriptor, base, places, is_zip=first.place is None and first.is_zip)
    except BadInput as why:
        return [Answers("", problem=str(why))], 0


def _path(first: _File, answers: Answers) -> str:
    if first.place is not None:
        return f"{first.path.name}:{answers.path}" if answers.path else first.shown
    return f"{first.shown}:{answers.path}" if answers.path else first.shown


def _chosen(found: Sequence[tuple[_Unit, str, Answers]], left: int, policy: AttemptPolicy) -> list[Submission]:
    """The attempts that count. What cannot be graded is no attempt, unless nothing else is there."""
    good = [row for row in found if row[2].taken is not None]
    chosen = good[: policy.most] or list(found[:1])
    others = [row for row in good if row not in chosen]
    unread = [row for row in found if row[2].taken is None and row not in chosen]
    notes = []
    if others:
        paths = ", ".join(path for _, path, _ in others[:SHOWN]) + (", ..." if len(others) > SHOWN else "")
        notes.append(f"{len(others)} more of this student's notebooks not graded ({policy.sentence}): {paths}")
    if policy.most > 1 and len(chosen) > 1:
        notes.append(f"{len(chosen)} notebooks of this student are graded: {policy.sentence}")
    notes += [f"not graded: {path}: {answers.problem}" for _, path, answers in unread[:SHOWN]]
    if len(unread) > SHOWN:
        notes.append(f"{len(unread) - SHOWN} more that cannot be graded")
    if left:
        notes.append(f"{left} more files not read; at most {MOST_NOTEBOOKS} notebooks of one submission are")
    return [
        Submission(
            path, unit.student, answers.taken, answers.problem,
            (*(("handed in late",) if unit.student.late else ()), *notes), answers.variant, answers.broken,
        )
        for unit, path, answers in chosen
    ]  # fmt: skip
