"""Reads zip files of submissions: the list of their notebooks, and the content of each. Runs in the reader process only.

A zip file is read in memory and never unpacked, so paths in the zip (`../x`, `/etc/x`, a link) have no effect. Sizes
are counted while reading, because the sizes declared in the zip may be wrong.
"""

from __future__ import annotations

import io
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from ...errors import BadInput
from .submitted_notebook import MAX_FILE_BYTES, too_large

MAX_FILES = 20_000  # files of any kind in one zip
MAX_UNPACKED_BYTES = 2 * 2**30  # unpacked bytes of all zips of one submission
MAX_PATH_LENGTH = 1_000  # characters of a path in a zip
MAX_OTHERS = 4  # files that are named for a first name without a notebook
MAX_DEPTH = 1  # levels of zips in a zip: a student's zip may be in the platform's zip

_PROGRAMS = frozenset(
    {"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", ".ipynb_checkpoints", "__pycache__", ".pytest_cache", ".git"}
)
DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip


def inner_path(member: zipfile.ZipInfo) -> PurePosixPath:
    """Return the path of a member with slashes, because some Windows programs write backslashes."""
    return PurePosixPath(member.filename.replace("\\", "/"))


def made_by_a_program(path: PurePosixPath) -> bool:
    """Whether a path was added by a program, such as Jupyter's checkpoints and macOS's `__MACOSX`."""
    return any(part in _PROGRAMS or part.startswith("._") for part in path.parts)


def is_hidden(path: PurePosixPath) -> bool:
    """Whether a path was added by a program, or is hidden. A first name may begin with a dot: it is a student's."""
    return made_by_a_program(path) or any(part.startswith(".") and part != ".." for part in path.parts[1:])


def is_notebook_or_zip(path: PurePosixPath) -> bool:
    """Whether the name of a file is that of a notebook or a zip, also if it consists of the ending only."""
    return path.name.lower().endswith((".ipynb", ".zip"))


def is_drive(part: str) -> bool:
    """Whether the first part of a path is a drive of Windows, as in `C:/x`. In other names a colon is a character."""
    return len(part) == 2 and part[0].isascii() and part[0].isalpha() and part[1] == ":"


def escapes_folder(path: PurePosixPath) -> bool:
    """Whether a path would be outside the folder into which the zip is unpacked."""
    return path.is_absolute() or ".." in path.parts or any(is_drive(part) for part in path.parts[:1])


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[int, zipfile.ZipInfo, PurePosixPath]]:
    """Yield (index, member, path) of the notebooks and zips in a zip."""
    infos = archive.infolist()
    if len(infos) > MAX_FILES:
        raise BadInput(f"the zip has {len(infos):,} files; allowed: {MAX_FILES:,}")
    for index, member in enumerate(infos):
        path = inner_path(member)
        if member.is_dir() or not is_notebook_or_zip(path):
            continue
        if escapes_folder(path) or not is_hidden(path):
            yield index, member, path


def members(stream: BinaryIO) -> tuple[list[list[Any]], dict[str, list[str]]]:
    """Return [index, path, time as YYYYMMDDHHMMSS] of each notebook and zip in a platform's zip, and {first name: paths of some
    files} of the first names that have neither. Raises `BadInput` if the file is not a zip, or has too many files.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            rows: list[list[Any]] = []
            first: set[str] = set()
            for index, member, path in _members(archive):
                time = 0
                for number in member.date_time:
                    time = time * 100 + number
                rows.append([index, str(path)[:MAX_PATH_LENGTH], time])
                first |= {*path.parts[:1]}
            return rows, _others(archive, first)
    except DAMAGED as why:
        if isinstance(why, BadInput):
            raise
        raise BadInput(f"the zip cannot be read: {why or type(why).__name__}") from None


def _others(archive: zipfile.ZipFile, known: set[str]) -> dict[str, list[str]]:
    """Return {first name: paths of some files} of the first names that are not `known`."""
    found: dict[str, list[str]] = {}
    for member in archive.infolist():
        path = inner_path(member)
        first = PurePosixPath(*path.parts[:1])
        if path.parts and str(first) not in known and not made_by_a_program(first):
            files = found.setdefault(str(first)[:MAX_PATH_LENGTH], [])
            if not member.is_dir() and not made_by_a_program(path) and len(files) < MAX_OTHERS:
                files.append(str(path)[:MAX_PATH_LENGTH])
    return found


class ZipReader:
    """Reads the notebooks of one submission from a platform's or a student's zip.

    The methods yield (path, content) of each notebook; the content is its bytes, or a str that says why it cannot be read.
    """

    def __init__(self, assignment: str) -> None:
        self.assignment = assignment
        self._left = MAX_UNPACKED_BYTES

    def at_indices(self, stream: BinaryIO, indices: Sequence[int]) -> Iterator[tuple[str, bytes | str]]:
        """Yield the members at these indices of a platform's zip, in this order."""
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
                for index in indices:
                    yield from self._member(archive, infos[index], "", 0)
        except DAMAGED as why:
            yield "", f"the zip cannot be read: {why or type(why).__name__}"

    def all(self, stream: BinaryIO, depth: int = MAX_DEPTH, prefix: str = "") -> Iterator[tuple[str, bytes | str]]:
        """Yield all notebooks of a student's zip: first those with the name of the assignment, then by depth and name."""
        found = False
        try:
            with zipfile.ZipFile(stream) as archive:
                for _, member, _ in sorted(_members(archive), key=lambda row: self._order(row[2])):
                    for each in self._member(archive, member, prefix, depth):
                        found = True
                        yield each
        except DAMAGED as why:
            yield prefix.rstrip(":"), str(why) if isinstance(why, BadInput) else f"the zip cannot be read: {why}"
            return
        if not found:
            yield prefix.rstrip(":"), "the zip has no notebook in it"

    def _order(self, path: PurePosixPath) -> tuple[bool, int, str]:
        return path.stem != self.assignment, len(path.parts), str(path)

    def _member(
        self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, prefix: str, depth: int
    ) -> Iterator[tuple[str, bytes | str]]:
        path = inner_path(member)
        shown = f"{prefix}{path}"[:MAX_PATH_LENGTH]
        nested = path.name.lower().endswith(".zip")
        if nested and depth >= MAX_DEPTH:
            return
        if len(str(path)) > MAX_PATH_LENGTH:
            yield shown, f"its path in the zip has {len(str(path)):,} characters; allowed: {MAX_PATH_LENGTH:,}"
        elif escapes_folder(path):
            yield shown, "its path in the zip is outside its folder: ignored"
        elif stat.S_ISLNK(member.external_attr >> 16):
            yield shown, "it is a link in the zip: ignored"
        elif member.flag_bits & 1:
            yield shown, "it is encrypted: a password is needed"
        else:
            try:
                data = self._bytes(archive, member)
            except DAMAGED as why:
                known = isinstance(why, BadInput)
                yield shown, str(why) if known else f"it is damaged in the zip: {why or type(why).__name__}"
                return
            if nested:
                yield from self.all(io.BytesIO(data), depth + 1, f"{shown}:")
            else:
                yield shown, data

    def _bytes(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        """Read the content of a member. Raises `BadInput` if it has more bytes than are allowed."""
        limit = min(MAX_FILE_BYTES, self._left)
        with archive.open(member) as stream:
            data = stream.read(limit + 1)
        self._left -= min(len(data), limit)
        if len(data) > limit:
            raise BadInput(
                too_large(max(member.file_size, len(data)))
                if limit == MAX_FILE_BYTES
                else f"the zips of this submission have more than {MAX_UNPACKED_BYTES >> 20} MB when unpacked"
            )
        return data
