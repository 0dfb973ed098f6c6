"""Storage locations: a local folder or an fsspec URL, with the same five operations.

`put` replaces a file atomically: a reader finds either the previous or the new file, even while the file is being written or
after the writer was killed. When `put` has returned, the file survives a crash of the machine. All failures raise `OSError`.
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

T = TypeVar("T")
DRAFT = ".draft"


class Location(Protocol):
    """A flat set of named files."""

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """Write the pieces as file `name`, atomically. If not `durable`, the file may be lost if the machine crashes."""

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted, without drafts. The list is empty if the location does not exist yet."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def remove_drafts(self) -> None:
        """Remove the drafts of killed writers. Must not be called while a writer is at work."""

    def make(self) -> None:
        """Create the location if it does not exist."""


def open_location(location: str | os.PathLike[str]) -> Location:
    """Return the location of a path or URL. Raises `BadInput` if no installed file system supports the URL."""
    text = as_path("checkpoint", location)
    if "://" not in text:
        return Folder(Path(text))
    if text.startswith(("file://", "local://")):
        return Folder(Path(unquote(urlsplit(text).path)))
    return Bucket(text)


class Folder:
    """A local folder."""

    def __init__(self, path: Path):
        self.path = path.absolute()

    def make(self) -> None:
        """Create the folder and its parents."""
        self.path.mkdir(parents=True, exist_ok=True)

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """Write the pieces as file `name`, atomically: write and sync a draft, rename it, then sync the folder."""
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
        self._remove_stale_drafts(name)

    def _sync(self) -> None:
        """Sync the folder's entries; otherwise a crash may undo a renaming. Does nothing on Windows, which has no such call."""
        if not hasattr(os, "O_DIRECTORY"):
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _remove_stale_drafts(self, name: str) -> None:
        """Remove drafts of the same role's files that were left by killed writers."""
        role = name.rpartition(".")[0].rpartition(".")[0]
        for path in self.path.glob(f".{role}.*{DRAFT}") if role else ():
            pid = path.name.split(".")[-3]
            if pid.isdigit() and not _process_exists(int(pid)):
                path.unlink(missing_ok=True)

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return (self.path / name).read_bytes()

    def names(self) -> list[str]:
        """Return the names of all files except drafts and other hidden ones, sorted."""
        try:
            return sorted(entry.name for entry in os.scandir(self.path) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self.path / name).unlink(missing_ok=True)

    def remove_drafts(self) -> None:
        """Remove the drafts of killed writers. Must not be called while a writer is at work."""
        for path in self.path.glob(f".*{DRAFT}"):
            path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.path)


def _process_exists(pid: int) -> bool:
    """Return whether a process with this ID exists on this machine. True if this cannot be determined."""
    import psutil

    return bool(psutil.pid_exists(pid))


class Bucket:
    """Files at a URL, through fsspec: "s3://bucket/run", "memory://run", "gs://...", ..."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self._fs, self._root = _open_filesystem(self.url)

    def make(self) -> None:
        """Create the folder, if the file system has folders."""
        _as_oserror(lambda: self._fs.makedirs(self._root, exist_ok=True))

    def put(self, name: str, pieces: Iterable[bytes | memoryview], durable: bool = True) -> None:
        """Write the pieces as file `name`: write and close a draft, then rename it. The draft of a killed writer is not removed
        until `remove_drafts`.
        """
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

        _as_oserror(write)

    def get(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return _as_oserror(lambda: bytes(self._fs.cat_file(self._path(name))))

    def names(self) -> list[str]:
        """Return the names of all files except drafts and other hidden ones, sorted."""
        try:
            return sorted(name for name in self._listed() if not name.startswith("."))
        except FileNotFoundError:
            return []

    def _listed(self) -> list[str]:
        """Return the names of all files, drafts included. Raises `FileNotFoundError` if the location does not exist yet."""

        def listed() -> list[str]:
            self._fs.invalidate_cache(self._root)  # other processes also write here
            try:
                return [str(path).rstrip("/").rpartition("/")[2] for path in self._fs.ls(self._root, detail=False)]
            except KeyError:  # fsspec's memory file system: another thread removed a file while the files were listed
                return listed()

        return _as_oserror(listed)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            _as_oserror(lambda: self._fs.rm_file(self._path(name)))

    def remove_drafts(self) -> None:
        """Remove the drafts of killed writers. Must not be called while a writer is at work."""
        with contextlib.suppress(FileNotFoundError):
            for name in self._listed():
                if name.startswith(".") and name.endswith(DRAFT):
                    self.remove(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucket, (self.url,)  # another process opens a new connection

    def __str__(self) -> str:
        return self.url


def _open_filesystem(url: str) -> tuple[Any, str]:
    """Return (the file system, the path on it). Raises `BadInput` if the URL is not supported."""
    from fsspec.core import url_to_fs

    try:
        fs, root = url_to_fs(url)
    except ImportError as error:
        raise BadInput(f"checkpoint={shown(url)}: the package for this kind of URL is missing ({error}).") from None
    except Exception as error:  # file systems raise various errors for invalid URLs
        raise BadInput(f"checkpoint={shown(url)}: give a folder or a URL that fsspec supports ({error}).") from None
    return fs, str(root).rstrip("/")


def _as_oserror(operation: Callable[[], T]) -> T:
    """Call `operation()`. Any exception of the file system is raised as `OSError`."""
    try:
        return operation()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
