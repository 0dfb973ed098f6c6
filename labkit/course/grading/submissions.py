"""Finds the submissions in notebooks, folders, and the zip files of Moodle and Canvas, groups them by student, and reads them.

The argument of `grade` is a platform's zip or a folder. The names at its first level ("first names") were written by
the platform or the instructor, and all files below a first name are one student's. Identities are taken only from first
names, and only if all first names have the pattern of one platform, or if the platform is named. A submission that
cannot be read is one row of the report.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ...errors import BadInput
from ..schema import Assignment
from .answers import Answers
from .archive import MAX_FILES, MAX_OTHERS, is_drive, is_hidden, is_notebook_or_zip, made_by_a_program
from .attempts import LAST, AttemptPolicy
from .lms import PATTERNS, Student, plain_student, platform_of_names, student_of
from .reader import MAX_NOTEBOOKS, Reader, ReadNotebook

MAX_LISTED_PATHS = 3  # paths in one note


@dataclass(frozen=True)
class Submission:
    """One attempt to be graded, or the problem because of which it cannot be graded."""

    path: str
    student: Student
    answers: Answers | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    variant: str = ""
    """The variant in the notebook's metadata."""
    broken: bool = False
    """Whether the machine may be the cause of the problem."""


@dataclass(frozen=True)
class Submissions:
    """The submissions under the paths of one batch, and warnings for the instructor."""

    found: list[Submission]
    warnings: list[str]
    any_notebook: bool
    """Whether there is a notebook or a zip."""


def check_paths(paths: Sequence[Path]) -> None:
    """Raise `BadInput` if a path does not exist."""
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
    reports: Sequence[Path] = (),
) -> Submissions:
    """Read all submissions under these paths, by student, in a deterministic order.

    `base`: the reference notebook or the release; reader processes do not get its solutions. `platform`: the platform that has
    written the first names: "moodle", "canvas", "plain" (no platform), or "" (the platform is recognized from the names).
    `jobs`: the number of reader processes at a time. `reports`: files and folders of reports, which are no submissions.

    Raises `BadInput` if a path does not exist, and `Interrupted` if `stop` was set; then all reader processes have ended.
    """
    check_paths(paths)
    reader = Reader(stop)
    finder = _Finder(base.name, reader, platform, reports)
    finder.find(paths)
    students = finder.students()
    with ThreadPoolExecutor(max(jobs, 1), thread_name_prefix="read") as pool:
        try:
            found = [*pool.map(lambda units: _attempts(units, base, policy, reader), students)]
        except BaseException:
            if stop is not None:
                stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    submissions = [*finder.refused, *(each for attempts in found for each in attempts)]
    return Submissions(submissions, finder.warnings, bool(finder.refused) or any(unit.files for unit in finder.units))


# finding --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _File:
    """A student's notebook or zip. `index`: its index in the platform's zip at `path`; None for a separate file."""

    path: Path
    shown: str
    inner: PurePosixPath
    time: int
    index: int | None = None
    problem: str = ""

    @property
    def is_zip(self) -> bool:
        return self.inner.name.lower().endswith(".zip")


# The first name is written by the platform; students can choose all later names, so these do not tell who they are.
@dataclass
class _StudentFiles:
    """All files under one first name of a zip or folder."""

    student: Student
    where: str
    files: list[_File] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Paths of some other files, if there is neither a notebook nor a zip."""
    shown: str = ""
    """The first name, if there is neither."""

    @property
    def problem(self) -> str:
        if not self.others:
            return "there is no file in it"
        more = ", ..." if len(self.others) >= MAX_OTHERS else ""
        return f"there is no notebook (.ipynb) and no zip, but {', '.join(self.others)}{more}"


class _Finder:
    """Collects units (`_StudentFiles`), determines the platform of the first names, and groups the units by student."""

    def __init__(self, assignment: str, reader: Reader, platform: str, reports: Sequence[Path] = ()) -> None:
        self.assignment, self.reader, self.platform = assignment, reader, platform
        self.reports = {path.resolve() for path in reports}
        self.units: list[_StudentFiles] = []
        self.refused: list[Submission] = []
        self.warnings: list[str] = []

    def find(self, paths: Sequence[Path]) -> None:
        """Find the units of the command line's arguments. An argument is a container or the submission of one student.

        The id in the name of an argument is used only if the platform is named, because a shell's `*` may expand to
        names that students have chosen.
        """
        patterns = PATTERNS if not self.platform else {k: v for k, v in PATTERNS.items() if k == self.platform}
        matching = [any(pattern.fullmatch(path.name) for pattern in patterns.values()) for path in paths]
        for path, known in zip(paths, matching):
            if path.is_dir():
                one = known and (self.platform or "moodle") == "moodle" and student_of(path.name, "moodle") is not None
            elif path.suffix.lower() == ".zip":
                one = known and len(paths) > 1 and all(matching)  # else it is a platform's zip, which can have any name
            else:
                one = True
            if one:
                self._add_argument(path, known)
            elif path.is_dir():
                self._add_container(path, *self._in_folder(path))
            else:
                self._add_platform_zip(path)

    def _add_argument(self, path: Path, known: bool) -> None:
        """Add an argument that is one student's submission."""
        student = student_of(path.name, self.platform) if known and self.platform else None
        if known and student is None:
            self.warnings.append(
                f"{path} gives no id, because it is a single argument. Give the folder or zip that contains it, or the platform "
                "with --lms"
            )
        unit = _StudentFiles(student or plain_student(path.name, str(path)), str(path.parent), shown=path.name)
        if path.is_dir():
            unit.files, others = self._in_folder(path)
            unit.others = [file for files in others.values() for file in files][:MAX_OTHERS]
        else:
            unit.files = [_on_disk(path, PurePosixPath(path.name))]
        self.units.append(unit)

    def _add_platform_zip(self, path: Path) -> None:
        try:
            with _open_regular_file(path) as descriptor:
                members, others = self.reader.members(descriptor)
            if not members and not others:
                raise BadInput("the zip has no notebook in it")
        except BadInput as why:
            self.refused.append(Submission(str(path), plain_student(path.name, str(path)), problem=str(why)))
            return
        files = []
        for member in members:
            inner = PurePosixPath(member.path)
            files.append(_File(path, f"{path.name}:{inner}", inner, member.time, member.index))
        self._add_container(path, files, others)

    def _in_folder(self, path: Path) -> tuple[list[_File], dict[str, list[str]]]:
        """Return the notebooks and zips in a folder, by path, and {first name: paths of some files} of first names without any.

        Symbolic links are not followed. The reports of this batch are left out.
        """
        files: list[_File] = []
        others: dict[str, list[str]] = {}
        for folder, below, names in os.walk(path):
            below[:] = sorted(name for name in below if (Path(folder) / name).resolve() not in self.reports)
            for name in [*sorted(names), *below]:
                file = Path(folder) / name
                inner = PurePosixPath(file.relative_to(path).as_posix())
                if made_by_a_program(inner) or file.resolve() in self.reports:
                    continue
                own = others.setdefault(inner.parts[0], [])
                if name in below:
                    if file.is_symlink():
                        own.append(f"{inner} (a link)")
                elif not is_hidden(inner) and is_notebook_or_zip(inner):
                    files.append(_on_disk(file, inner))
                elif len(own) < MAX_OTHERS:
                    own.append(str(inner))
            if len(files) > MAX_FILES:
                raise BadInput(f"{path} has more than {MAX_FILES:,} notebooks and zips.")
        known = {file.inner.parts[0] for file in files}
        files.sort(key=lambda file: file.inner.parts)
        return files, {name: own for name, own in others.items() if name not in known}

    def _add_container(self, path: Path, files: Sequence[_File], others: Mapping[str, list[str]]) -> None:
        """Add a platform's zip or a folder, with one student for each first name. `others`: {first name: paths of some files} of
        the first names without a notebook or zip, which do not decide whether the names are a platform's.
        """
        parts: dict[str, list[_File]] = {}
        for file in files:
            first = file.inner.parts[0] if file.inner.parts else ""
            inside = not file.inner.is_absolute() and first != ".." and not is_drive(first)
            parts.setdefault(first if inside else f"\0{file.inner}", []).append(file)
        platform = self._platform(path, [part for part in parts if not part.startswith("\0")] or list(others))
        for part, own in parts.items():
            student = student_of(part, platform) if platform else None
            name = PurePosixPath(part[1:]).name if part.startswith("\0") else part
            self.units.append(_StudentFiles(student or plain_student(name, f"{path}/{part}"), str(path), own))
            if not student and len(own) > 1:
                self.warnings.append(
                    f"{len(own)} files in {path} are under {name!r} and count as one student's. Each first name in the "
                    "given folder or zip is one student; give the one that contains the students' own folders"
                )
        for part, names in others.items():
            student = student_of(part, platform) if platform else None
            unit = _StudentFiles(student or plain_student(part, f"{path}/{part}"), str(path), others=names, shown=part)
            self.units.append(unit)

    def _platform(self, path: Path, parts: Sequence[str]) -> str:
        if self.platform:
            return "" if self.platform == "plain" else self.platform
        found, matching = platform_of_names(parts)
        if matching and not found:
            self.warnings.append(
                f"{matching} of {len(parts)} names in {path} have the pattern of a platform and the others do not, so none "
                "gives an id (if they are a platform's, give --lms moodle or --lms canvas)"
            )
        return found

    def students(self) -> list[list[_StudentFiles]]:
        """Return the units of each student, in the order of discovery. One id with two names counts as two students."""
        names: dict[tuple[str, str], set[str]] = {}
        for unit in self.units:
            if unit.student.id:
                names.setdefault((unit.student.platform, unit.student.id), set()).add(unit.student.name)
        for unit in self.units:
            student = unit.student
            if student.id and len(names[student.platform, student.id]) > 1:
                both = " and ".join(sorted(map(repr, names[student.platform, student.id])))
                self.warnings.append(f"the id {student.id} has two names, {both}: it is used for neither")
                unit.student = Student(student.name, late=student.late, key=f"{unit.where}/{student.name}/{student.id}")
        groups: dict[tuple[str, str], list[_StudentFiles]] = {}
        for unit in self.units:
            groups.setdefault(unit.student.identity or ("", ""), []).append(unit)
        name_counts = Counter(group[0].student.name for group in groups.values())
        for group in groups.values():
            for unit in group:
                if name_counts[unit.student.name] > 1 and not unit.student.id:
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
        problem = "it is a link to another file: ignored"
    elif not stat.S_ISREG(about.st_mode):
        problem = "it is not a file"
    return _File(path, str(inner), inner, at, problem=problem)


@contextlib.contextmanager
def _open_regular_file(path: Path) -> Iterator[int]:
    """Open a regular file and yield its descriptor. Raises `BadInput` if it cannot be read, or is not a regular file.

    The type is checked after the file was opened, so that the file cannot be replaced in between.
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


def _attempts(
    units: Sequence[_StudentFiles], base: Assignment, policy: AttemptPolicy, reader: Reader
) -> list[Submission]:
    """Return the submissions of one student that are graded: at least one, at most as many as the policy allows."""
    files = [(unit, file) for unit in units for file in unit.files]
    files.sort(key=lambda row: (row[1].inner.stem != base.name, len(row[1].inner.parts), str(row[1].inner)))
    sign = 1 if policy.kind == "first" else -1
    files.sort(key=lambda row: (sign * row[0].student.upload, sign * row[1].time))
    found: list[tuple[_StudentFiles, str, ReadNotebook]] = []
    left = 0
    while files and len(found) < MAX_NOTEBOOKS:
        unit, first = files[0]
        count = 1
        if first.index is not None:  # one process reads consecutive notebooks of one platform's zip
            while count < len(files) and files[count][0] is unit and files[count][1].path == first.path:
                count += 1
        own, files = [file for _, file in files[:count]], files[count:]
        notebooks, unread = _read(own, base, reader)
        found += [(unit, _path(own[0], each), each) for each in notebooks]
        left += unread
    left += len(files) + max(len(found) - MAX_NOTEBOOKS, 0)
    found = found[:MAX_NOTEBOOKS]
    if not found:
        late = ("submitted late",) if units[0].student.late else ()
        return [Submission(units[0].shown, units[0].student, problem=units[0].problem, notes=late)]
    return _select_attempts(found, left, policy)


def _read(files: Sequence[_File], base: Assignment, reader: Reader) -> tuple[list[ReadNotebook], int]:
    first = files[0]
    if first.problem:
        return [ReadNotebook("", problem=first.problem)], 0
    try:
        with _open_regular_file(first.path) as descriptor:
            indices = None if first.index is None else [file.index for file in files if file.index is not None]
            return reader.read(descriptor, base, indices, is_zip=first.index is None and first.is_zip)
    except BadInput as why:
        return [ReadNotebook("", problem=str(why))], 0


def _path(first: _File, notebook: ReadNotebook) -> str:
    if first.index is not None:
        return f"{first.path.name}:{notebook.path}" if notebook.path else first.shown
    return f"{first.shown}:{notebook.path}" if notebook.path else first.shown


def _select_attempts(
    found: Sequence[tuple[_StudentFiles, str, ReadNotebook]], left: int, policy: AttemptPolicy
) -> list[Submission]:
    """Return the attempts that are graded. A notebook that cannot be graded counts as an attempt only if there is no other."""
    good = [row for row in found if row[2].answers is not None]
    chosen = good[: policy.most] or list(found[:1])
    others = [row for row in good if row not in chosen]
    unread = [row for row in found if row[2].answers is None and row not in chosen]
    notes = []
    if others:
        paths = ", ".join(path for _, path, _ in others[:MAX_LISTED_PATHS])
        paths += ", ..." if len(others) > MAX_LISTED_PATHS else ""
        notes.append(f"{len(others)} more notebooks of this student are not graded ({policy.sentence}): {paths}")
    if policy.most > 1 and len(chosen) > 1:
        notes.append(f"{len(chosen)} notebooks of this student are graded: {policy.sentence}")
    notes += [f"not graded: {path}: {notebook.problem}" for _, path, notebook in unread[:MAX_LISTED_PATHS]]
    if len(unread) > MAX_LISTED_PATHS:
        notes.append(f"{len(unread) - MAX_LISTED_PATHS} more cannot be graded")
    if left:
        notes.append(f"{left} more files were not read; at most {MAX_NOTEBOOKS} notebooks of one submission are read")
    return [
        Submission(
            path, unit.student, notebook.answers, notebook.problem,
            (*(("submitted late",) if unit.student.late else ()), *notes), notebook.variant, notebook.broken,
        )
        for unit, path, notebook in chosen
    ]  # fmt: skip
