"""Zip files as they are handed in: their list of notebooks, and the bytes of these. Runs in the reading process only.

A zip file is read in memory, nothing is unpacked, so a path in it (`../x`, `/etc/x`, a link) leads nowhere. What is read is
counted as it is read, not as the zip says.
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

from ..errors import BadInput
from .handed import LARGEST_FILE, too_large

__all__ = ["DAMAGED", "MOST_BYTES", "MOST_FILES", "Notebooks", "is_hidden", "leads_out", "listing"]

MOST_FILES = 20_000  # in one zip, of any kind
MOST_BYTES = 2 * 2**30  # read of the zips of one submission altogether
LONGEST_PATH = 1_000  # characters
DEEPEST = 1  # a zip that a student handed in, inside the platform's zip

DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip


def inner_path(member: zipfile.ZipInfo) -> PurePosixPath:
    """The path of a member; some programs of Windows write backslashes."""
    return PurePosixPath(member.filename.replace("\\", "/"))


def is_hidden(path: PurePosixPath) -> bool:
    """Checkpoints, what macOS adds to zips, and hidden files are no submission."""
    return any(part == "__MACOSX" or (part.startswith(".") and part not in ("..", ".")) for part in path.parts)


def leads_out(path: PurePosixPath) -> bool:
    """Whether a path in a zip would leave the folder into which the zip is unpacked."""
    return path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts[:1])


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[int, zipfile.ZipInfo, PurePosixPath]]:
    """Notebooks and zips in a zip, with their places in its directory."""
    members = archive.infolist()
    if len(members) > MOST_FILES:
        raise BadInput(f"the zip has {len(members):,} files; allowed: {MOST_FILES:,}")
    for place, member in enumerate(members):
        path = inner_path(member)
        if member.is_dir() or path.suffix.lower() not in (".ipynb", ".zip"):
            continue
        if leads_out(path) or not is_hidden(path):
            yield place, member, path


def listing(stream: BinaryIO) -> list[list[Any]]:
    """What is in a platform's zip: [place in its directory, path, time as YYYYMMDDHHMMSS] of each notebook and zip.

    Raises:
        BadInput: it is no zip, or has too many files.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            rows: list[list[Any]] = []
            for place, member, path in _members(archive):
                time = 0
                for number in member.date_time:
                    time = time * 100 + number
                rows.append([place, str(path)[:LONGEST_PATH], time])
            return rows
    except DAMAGED as why:
        if isinstance(why, BadInput):
            raise
        raise BadInput(f"the zip cannot be read: {why or type(why).__name__}") from None


class Notebooks:
    """The notebooks of one submission in a platform's zip, or in one that a student handed in: (path, bytes or a problem)."""

    def __init__(self, assignment: str) -> None:
        self.assignment = assignment
        self._left = MOST_BYTES

    def of_places(self, stream: BinaryIO, places: Sequence[int]) -> Iterator[tuple[str, bytes | str]]:
        """Those at these places of a platform's zip, in this order."""
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                for place in places:
                    yield from self._member(archive, members[place], "", 0)
        except DAMAGED as why:
            yield "", f"the zip cannot be read: {why or type(why).__name__}"

    def of_zip(self, stream: BinaryIO, depth: int = DEEPEST, prefix: str = "") -> Iterator[tuple[str, bytes | str]]:
        """Those of a student's zip: first the one that is named as the assignment, then by depth and name."""
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
        shown = f"{prefix}{path}"[:LONGEST_PATH]
        nested = path.suffix.lower() == ".zip"
        if nested and depth >= DEEPEST:
            return
        if len(str(path)) > LONGEST_PATH:
            yield shown, f"its path in the zip has {len(str(path)):,} characters; allowed: {LONGEST_PATH:,}"
        elif leads_out(path):
            yield shown, "its path in the zip leads out of the folder: left out"
        elif stat.S_ISLNK(member.external_attr >> 16):
            yield shown, "it is a link in the zip: not followed"
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
                yield from self.of_zip(io.BytesIO(data), depth + 1, f"{shown}:")
            else:
                yield shown, data

    def _bytes(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        """At most what is allowed, counted while unpacking: a zip may say anything of its sizes."""
        limit = min(LARGEST_FILE, self._left)
        with archive.open(member) as stream:
            data = stream.read(limit + 1)
        self._left -= min(len(data), limit)
        if len(data) > limit:
            raise BadInput(
                too_large(max(member.file_size, len(data)))
                if limit == LARGEST_FILE
                else f"the zips of this submission have more than {MOST_BYTES >> 20} MB when unpacked"
            )
        return data
