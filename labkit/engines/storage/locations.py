"""Where files are kept: a folder of this machine, or whatever fsspec reaches by a URL. Both can do the same five things.

`put` replaces a file in one step. Whoever reads while it is written, or after its writer was killed half way, finds
the file before, or the new one, never half of one. When `put` returns, the file outlives a crash of the machine. What
goes wrong is an `OSError`, in the words of the system.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from ...errors import BadInput, shown
from ...paths import as_path

__all__ = ["Bucket", "Folder", "Place", "place_at"]

T = TypeVar("T")
DRAFT = ".draft"


class Place(Protocol):
    """A flat set of named files."""

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """Write the pieces as file `name`, in one step. Not `durable`: it outlives its writer, perhaps not the machine."""

    def get(self, name: str) -> bytes:
        """The bytes of a file."""

    def names(self) -> list[str]:
        """The names of all files, sorted; drafts are not among them. Empty if the place does not exist yet."""

    def remove(self, name: str) -> None:
        """Remove a file; it need not be there."""

    def make(self) -> None:
        """Make the place, if need be."""


def place_at(place: str | os.PathLike[str]) -> Place:
    """The place with this path or URL. `BadInput` if nobody here knows such URLs."""
    text = as_path("checkpoint", place)
    if "://" not in text:
        return Folder(Path(text))
    if text.startswith(("file://", "local://")):
        return Folder(Path(unquote(urlsplit(text).path)))
    return Bucket(text)


class Folder:
    """A folder of this machine."""

    def __init__(self, path: Path):
        self.path = path.absolute()

    def make(self) -> None:
        """Make the folder and those above it."""
        self.path.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """A draft, on the disk before it gets its name; then its name, on the disk before anybody relies on it."""
        draft = self.path / f".{name}.{os.getpid()}.{secrets.token_hex(4)}{DRAFT}"
        try:
            with open(draft, "xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(draft, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        if durable:
            self._sync()
        self._sweep(name)

    def _sync(self) -> None:
        """The folder's own entries on the disk: without it a crash may undo a renaming. (Not on Windows, which has no
        such call.)"""
        if not hasattr(os, "O_DIRECTORY"):
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _sweep(self, name: str) -> None:
        """Remove what writers of such files left who were killed half way."""
        role = name.rpartition(".")[0].rpartition(".")[0]
        for path in self.path.glob(f".{role}.*{DRAFT}") if role else ():
            pid = path.name.split(".")[-3]
            if pid.isdigit() and not _lives(int(pid)):
                path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        """The bytes of a file."""
        return (self.path / name).read_bytes()

    def names(self) -> list[str]:
        """All files but drafts and other hidden ones, sorted."""
        try:
            return sorted(entry.name for entry in os.scandir(self.path) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file; it need not be there."""
        (self.path / name).unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.path)


def _lives(pid: int) -> bool:
    """Whether a process of this machine has this number. Who is not sure says yes."""
    import psutil

    return bool(psutil.pid_exists(pid))


class Bucket:
    """Files at a URL, through fsspec: "s3://bucket/run", "memory://run", "gs://...", ..."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._fs, self._root = _reach(self.url)

    def make(self) -> None:
        """Make the folder, where there are folders."""
        _asked(lambda: self._fs.makedirs(self._root, exist_ok=True))

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """A draft, which is there when it is closed; then its name."""
        draft = self._path(f".{name}.{os.getpid()}.{secrets.token_hex(4)}{DRAFT}")

        def write() -> None:
            try:
                with self._fs.open(draft, "wb") as file:
                    for piece in pieces:
                        file.write(piece)
                self._fs.mv(draft, self._path(name))
            except BaseException:
                with contextlib.suppress(Exception):
                    self._fs.rm(draft)
                raise

        _asked(write)

    def get(self, name: str) -> bytes:
        """The bytes of a file."""
        return _asked(lambda: bytes(self._fs.cat_file(self._path(name))))

    def names(self) -> list[str]:
        """All files but drafts and other hidden ones, sorted."""

        def listed() -> list[str]:
            self._fs.invalidate_cache(self._root)  # others write here, too
            return [str(path).rstrip("/").rpartition("/")[2] for path in self._fs.ls(self._root, detail=False)]

        try:
            return sorted(name for name in _asked(listed) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file; it need not be there."""
        with contextlib.suppress(FileNotFoundError):
            _asked(lambda: self._fs.rm_file(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.url,)  # a connection is made anew in another process

    def __str__(self) -> str:
        return self.url


def _reach(url: str) -> tuple[Any, str]:
    """(the file system, the path on it)."""
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url)
    except ImportError as error:
        raise BadInput(f"checkpoint={shown(url)}: a package that reaches such places is missing ({error}).") from None
    except Exception as error:  # each file system has errors of its own for a URL that it cannot read
        raise BadInput(f"checkpoint={shown(url)}: give a folder or a URL that fsspec knows ({error}).") from None
    return fs, str(root).rstrip("/")


def _asked(what: Callable[[], T]) -> T:
    """What a file system answers. Each has errors of its own; here they are all `OSError`."""
    try:
        return what()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
