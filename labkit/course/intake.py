"""Submissions as they come: files, folders, and the zip files of Moodle and Canvas, each read into sources or a sentence.

Its law: one bad submission is one line of the report and never ends the batch. A zip file is read in memory, nothing
is unpacked, so a path in it (`../x`, `/etc/x`, a link) can lead nowhere; it is said and left out. What is read of a zip is
counted as it is read, not as the zip says.
"""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ..errors import BadInput
from .handed import LARGEST_FILE, Handed, read_handed
from .lms import Student, student_of

__all__ = ["Submission", "check_paths", "read_submissions"]

MOST_FILES = 20_000  # in one zip, of any kind
MOST_BYTES = 8 * 2**30  # read from one zip altogether
DEEPEST = 1  # a zip that a student handed in, inside the platform's zip

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class Submission:
    """One handed-in file: what is in it, or the sentence that says why nothing can be graded."""

    path: str
    student: Student
    handed: Handed | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()


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


def read_submissions(paths: Sequence[Path], assignment: str) -> Iterator[Submission]:
    """Every submission under these paths, one after the other, in a fixed order; outputs are never kept.

    Raises:
        BadInput: a path on the command line does not exist.
    """
    check_paths(paths)
    found = [each for path in paths for each in _under(path, assignment)]
    yield from _told_apart(found)


def _under(path: Path, assignment: str) -> Iterator[Submission]:
    if not path.is_dir():
        yield from _file(path, PurePosixPath(path.name), assignment)
        return
    for below in sorted(path.rglob("*")):
        inner = PurePosixPath(below.relative_to(path).as_posix())
        if (
            _hidden(inner)
            or below.suffix.lower() not in (".ipynb", ".zip")
            or (below.is_dir() and not below.is_symlink())
        ):
            continue
        if below.is_symlink():
            yield _bad(str(inner), inner, assignment, "it is a link to another file: not followed")
            continue
        yield from _file(below, inner, assignment)


def _file(path: Path, inner: PurePosixPath, assignment: str) -> Iterator[Submission]:
    try:
        if not path.is_file():
            yield _bad(str(path), inner, assignment, "it is not a file")
        elif path.suffix.lower() == ".zip":
            with path.open("rb") as stream:
                yield from _zip(stream, inner, assignment, _Allowance(), 0)
        elif path.stat().st_size > LARGEST_FILE:
            yield _bad(str(path), inner, assignment, _too_large(path.stat().st_size))
        else:
            yield _read(path.read_bytes(), str(path), inner, assignment)
    except OSError as why:
        yield _bad(str(path), inner, assignment, f"the file cannot be read: {why.strerror or why}")


class _Allowance:
    """Bytes that may still be read from one zip."""

    def __init__(self) -> None:
        self.left = MOST_BYTES


def _zip(stream: object, name: PurePosixPath, assignment: str, allowed: _Allowance, depth: int) -> Iterator[Submission]:
    try:
        with zipfile.ZipFile(stream) as archive:  # type: ignore[call-overload]
            members = archive.infolist()
            if len(members) > MOST_FILES:
                yield _bad(str(name), name, assignment, f"the zip has {len(members):,} files; allowed: {MOST_FILES:,}")
                return
            found = False
            for member in sorted(members, key=lambda member: member.filename):
                for each in _member(archive, member, name, assignment, allowed, depth):
                    found = True
                    yield each
            if not found:
                yield _bad(str(name), name, assignment, "the zip has no notebook in it")
    except _UNREADABLE as why:
        yield _bad(str(name), name, assignment, f"the zip cannot be read: {why or type(why).__name__}")


def _member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    name: PurePosixPath,
    assignment: str,
    allowed: _Allowance,
    depth: int,
) -> Iterator[Submission]:
    inner = PurePosixPath(member.filename.replace("\\", "/"))  # as some programs of Windows write it
    nested = inner.suffix.lower() == ".zip" and depth < DEEPEST
    out = inner.is_absolute() or ".." in inner.parts or any(":" in part for part in inner.parts[:1])
    if member.is_dir() or not (nested or inner.suffix.lower() == ".ipynb") or (_hidden(inner) and not out):
        return
    # what a student zipped keeps the student's name, which is in the name of the zip
    whose = name.parent / name.stem / inner if depth else inner
    shown = f"{name}:{inner}"
    if out:
        yield _bad(
            shown, PurePosixPath(inner.name), assignment, "its path in the zip leads out of the folder: left out"
        )
    elif stat.S_ISLNK(member.external_attr >> 16):
        yield _bad(shown, whose, assignment, "it is a link in the zip: not followed")
    elif member.flag_bits & 1:
        yield _bad(shown, whose, assignment, "it is encrypted: a password is needed")
    else:
        try:
            data = _bytes(archive, member, allowed)
        except BadInput as why:
            yield _bad(shown, whose, assignment, str(why))
        except _UNREADABLE as why:
            yield _bad(shown, whose, assignment, f"it is damaged in the zip: {why or type(why).__name__}")
        else:
            if nested:
                yield from _zip(io.BytesIO(data), whose, assignment, allowed, depth + 1)
            else:
                yield _read(data, shown, whose, assignment)


def _bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo, allowed: _Allowance) -> bytes:
    """At most what is allowed, counted while unpacking: a zip may say anything of its sizes."""
    limit = min(LARGEST_FILE, allowed.left)
    with archive.open(member) as stream:
        data = stream.read(limit + 1)
    allowed.left -= len(data)
    if len(data) > limit:
        raise BadInput(
            _too_large(max(member.file_size, len(data)))
            if limit == LARGEST_FILE
            else "the zip is too large when unpacked"
        )
    return data


def _read(data: bytes, shown: str, inner: PurePosixPath, assignment: str) -> Submission:
    student = student_of(inner, assignment)
    notes = ("handed in late",) if student.late else ()
    try:
        return Submission(shown, student, read_handed(data), notes=notes)
    except BadInput as why:
        return Submission(shown, student, problem=str(why), notes=notes)


def _bad(shown: str, inner: PurePosixPath, assignment: str, problem: str) -> Submission:
    return Submission(shown, student_of(inner, assignment), problem=problem)


def _too_large(size: int) -> str:
    return f"the file has {size >> 20} MB; allowed: {LARGEST_FILE >> 20} MB. Clear its outputs and save it"


def _hidden(path: PurePosixPath) -> bool:
    """Checkpoints, what macOS adds to zips, and hidden files are nobody's submission."""
    return any(part == "__MACOSX" or (part.startswith(".") and part not in ("..", ".")) for part in path.parts)


def _told_apart(found: Sequence[Submission]) -> Iterator[Submission]:
    """Two files of one name get their paths as names; two of one person say so (all are graded, the best counts)."""
    for each in found:
        same = [other for other in found if other is not each and _clash(each.student, other.student)]
        if not same:
            yield each
        elif each.student.identity:
            note = f"{len(same) + 1} notebooks of this student: each is graded, the best one counts"
            yield replace(each, notes=(*each.notes, note))
        else:
            note = f"{len(same) + 1} submissions are called {each.student.name!r}: told apart by their paths"
            yield replace(each, student=replace(each.student, name=each.path), notes=(*each.notes, note))


def _clash(one: Student, other: Student) -> bool:
    return one.identity == other.identity if one.identity or other.identity else one.name == other.name
