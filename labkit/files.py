"""Files and folders that several programs use at once: locks, files that are replaced as a whole, and temporary folders.

Locks are the kernel's (`flock`): they end with the process that holds them, however it ends, so no lock can be stale. Where there
are none (on Windows, and on some file systems), nothing is locked.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, ClassVar

from .errors import BadInput, shown
from .paths import writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "labkit-"  # of the names of temporary folders
# names of the files that lock the folder which they are in
OF_FOLDER, OF_TEMPORARY_FOLDER = ".labkit-lock", ".labkit-temporary"


# locks ----------------------------------------------------------------------------------------------------------------


def lock_open_file(descriptor: int) -> bool | None:
    """Lock an open file until it is closed.

    Returns False if it is locked already, by another process or through another descriptor of this one; None if the file system
    has no locks.
    """
    try:
        if fcntl is None:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


class FileLock:
    """A lock, as the file `path`, which is created and, in an orderly end, removed. It contains the id of its process.

    The lock is held until `release`, or until the object is collected. A forked child does not hold it.
    """

    _held: ClassVar[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end: Callable[[], object] | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> FileLock:
        return cls(folder / OF_FOLDER)

    @classmethod
    def of_file(cls, path: Path) -> FileLock:
        """Return the lock of a file that is replaced while it is locked."""
        return cls(path.with_name(f".{path.name[:40]}{OF_FOLDER}"))  # 40 characters have at most 160 of 255 bytes

    def acquire(self, create: bool = True) -> bool | None:
        """Take the lock. Returns and means the same as `lock_open_file`. Raises `OSError` if the file cannot be opened.

        `create`: whether the file is created if it is missing.
        """
        options = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        while True:
            descriptor = os.open(self.path, options | (os.O_CREAT if create else 0), 0o600)
            locked = lock_open_file(descriptor)
            if locked and _is_at(descriptor, self.path):
                break
            os.close(descriptor)
            if not locked:
                return locked
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._end = weakref.finalize(self, _release, self.path, descriptor, os.getpid())
        self._held.add(self)
        return True

    def release(self) -> None:
        """Release the lock. No effect if it is not held."""
        if self._end is not None:
            self._end()

    @property
    def holder(self) -> str:
        """The process that holds the lock, as text: "process 123"."""
        try:
            number = self.path.read_text("ascii", "replace")
        except OSError:
            number = ""
        if number == str(os.getpid()):
            return "this program"
        return f"process {number}" if number.isdigit() else "another program"

    @classmethod
    def forked(cls) -> None:
        """Called in a forked child: close its copies of the descriptors, which would keep the locks of its parent."""
        for lock in list(cls._held):
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FileLock.forked)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has this path: its last holder may have removed it before it was locked."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _release(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            path.unlink()  # while the lock is held: whoever has opened this file opens the next one instead
    with contextlib.suppress(OSError):
        os.close(descriptor)


@contextlib.contextmanager
def reserved(paths: Iterable[Path], by: str) -> Iterator[None]:
    """Return a context in which no other program that asks for it writes these files, or files in these folders.

    `by`: what may be writing them, for the error. Raises `BadInput` if another one has reserved one of them.
    """
    with contextlib.ExitStack() as held:
        for path in paths:
            lock = FileLock.of_folder(path) if path.is_dir() else FileLock.of_file(path)
            with writing(path):
                free = lock.acquire()
            if free is False:
                raise BadInput(
                    f"{shown(str(path))} is being written by {by} ({lock.holder}); wait for it, or give another name."
                )
            held.callback(lock.release)
        yield


# files that are replaced as a whole -----------------------------------------------------------------------------------


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], sync: bool = False) -> Iterator[IO[bytes]]:
    """Open a draft for writing, which replaces the file `path` at the end: a reader finds the old or the new file, never a part.

    Devices and pipes are written directly. `sync`: whether the file survives a crash of the machine once it is written. Raises
    `OSError` if it cannot be written; the old file is then unchanged.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with open(target, "wb") as file:
            yield file
        return
    draft = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")  # the name has at most 255 bytes
    try:
        with open(draft, "xb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if sync:
        sync_folder(target.parent)


def write_text(path: str | os.PathLike[str], text: str, sync: bool = False) -> None:
    """Write text as a whole file, see `whole_file`, in UTF-8; "?" for surrogates, which JSON may contain."""
    data = text.encode("utf-8", "replace")
    with whole_file(path, sync) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Synchronize the entries of a folder, if the system supports it: after a crash a new file is still in it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


# temporary folders ----------------------------------------------------------------------------------------------------


class TemporaryFolders:
    """The temporary folders of this program. They lie in one folder, `labkit-*`, which is locked and removed with the program.

    A killed program leaves its folder. The next program of the same user that makes one removes it, because its lock is free.
    Any thread may call the methods.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[str, tuple[Path, FileLock]] = {}  # {folder above: (the program's folder in it, its lock)}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """In a forked child: the folders are the parent's, and another thread of the parent may have held the lock."""
        self._lock, self._made = threading.Lock(), {}

    def program_folder(self, above: str | os.PathLike[str] | None = None) -> Path:
        """Return the program's folder, which only this user can read or change.

        `above`: where it is created; None: in the system's folder for temporary files.
        """
        parent = os.path.abspath(above or tempfile.gettempdir())
        with self._lock:
            if parent not in self._made or not self._made[parent][0].is_dir():
                _remove_abandoned(parent)
                made = self._made[parent] = _locked_folder(parent)
                atexit.register(_remove, *made, os.getpid())
            return self._made[parent][0]

    def new(self) -> Path:
        """Create a folder in the program's folder."""
        return Path(tempfile.mkdtemp(dir=self.program_folder()))

    @contextlib.contextmanager
    def within(self) -> Iterator[str]:
        """Return a context with a new folder, which is removed at its end."""
        folder = self.new()
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(parent: str) -> tuple[Path, FileLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = FileLock(folder / OF_TEMPORARY_FOLDER)
        with contextlib.suppress(FileNotFoundError):
            if lock.acquire() is not False:
                return folder, lock
        # between its creation and its locking another program has removed it as abandoned: try again


def _remove(folder: Path, lock: FileLock, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def _remove_abandoned(parent: str) -> None:
    """Remove the folders in `parent` that killed programs of this user have left, which are those with a lock that is free."""
    if not hasattr(os, "getuid"):
        return
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with contextlib.suppress(OSError):
                lock = FileLock(Path(entry.path) / OF_TEMPORARY_FOLDER)
                own, its = entry.stat(follow_symlinks=False), os.lstat(lock.path)
                ours = (
                    own.st_uid == its.st_uid == os.getuid() and stat.S_ISDIR(own.st_mode) and stat.S_ISREG(its.st_mode)
                )
                if ours and lock.acquire(create=False):
                    _remove(Path(entry.path), lock, os.getpid())


temporary = TemporaryFolders()
