"""Checkpoint store: the newest states of every role of a run, from which lost roles are restarted.

A file is `<role>.<number>.ckpt`. The number grows with the version of a shard, with the incarnation of a role, and with each
resumption of the run. It is not a clock time, because clocks may jump. A state survives a crash once `write` has returned.
`read` returns only complete states; if the newest state is damaged, it returns the previous state. If an incarnation that was
declared lost still writes, its states do not replace those of the next incarnation.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from ...errors import BadInput, shown
from ...files import FileLock
from ...nn import SparseParameters
from ...paths import as_path, reason
from .checkpoint_format import DamagedCheckpoint, decode_state, encode_state
from .locations import Folder, Location, open_location

SUFFIX = ".ckpt"
TAGS_PER_INCARNATION = 10**12  # tags per incarnation of a role, for roles that number them by incarnation
TAGS_PER_RESUMPTION = 10**18  # tags per resumption of a run

Check = Callable[[dict[str, Any]], None]


class Store:
    """The checkpoints of one run. `location`: a folder or an fsspec URL ("s3://bucket/run", "memory://run").

    `keep`: the number of states kept per role. `times_resumed`: how often the run was resumed. States that were written before
    the last resumption have negative tags, so that they count as older than all later states. A store can be pickled. A
    relative folder is resolved when the store is created. Methods raise `OSError` (disk full, no permission, no connection).
    """

    def __init__(self, location: str | os.PathLike[str], keep: int = 2, times_resumed: int = 0):
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise BadInput(
                f"keep={shown(keep)}: the number of checkpoints kept per role is a whole number, at least 1."
            )
        self.files: Location = open_location(location)
        self.keep, self.times_resumed = keep, times_resumed

    @property
    def location(self) -> str:
        """The absolute path of the folder, or the URL."""
        return str(self.files)

    @property
    def local(self) -> bool:
        """Whether the location is a local folder, which may be inaccessible to roles on other hosts."""
        return isinstance(self.files, Folder)

    def lock(self) -> FileLock | None:
        """Reserve the location for one run, until the lock is released or collected. Returns None for a URL, which has no locks.

        Raises `BadInput` if a run has reserved it.
        """
        if not isinstance(self.files, Folder):
            return None
        lock = FileLock.of_folder(self.files.path)
        try:
            free = lock.acquire()
            if free is False:
                gc.collect()  # it may be reserved for a run of this program to which nothing refers any more
                free = lock.acquire()
        except OSError as error:
            raise BadInput(f"{shown(self.location)} cannot be written to ({reason(error)}).") from None
        if free is False:
            raise BadInput(
                f"{shown(self.location)} belongs to a run in {lock.holder}, which has not ended. Stop it, or give another folder."
            )
        return lock

    def check(self) -> Store:
        """Create the location if necessary, and test a write. Raises `BadInput` if that fails. Returns the store."""
        try:
            self.files.make()
            self.files.put("labkit-probe", [b"?"])
            self.files.remove("labkit-probe")
        except OSError as error:
            what = "folder" if self.local else "URL"
            raise BadInput(
                f"checkpoint={shown(self.location)}: the {what} cannot be written to ({error.strerror or error})."
            ) from None
        return self

    def write(self, role: str, state: Mapping[str, Any], tag: int) -> None:
        """Save `state` of `role` under `tag`, an integer >= 0; see `encode_state` for the allowed values.

        When the call returns, the state is durable, and all states except the `keep` newest (by tag) are removed. If it raises
        `OSError`, the earlier states are unchanged. Raises `BadInput`, with the name of the value, if a value cannot be stored.
        """
        if isinstance(tag, bool) or not isinstance(tag, (int, np.integer)) or not 0 <= tag < TAGS_PER_RESUMPTION:
            raise BadInput(f"tag={shown(tag)}: checkpoints are numbered by whole numbers from 0.")
        try:
            pieces = encode_state({"role": role, "tag": self._file_number(int(tag)), "state": dict(state)})
        except BadInput as error:
            raise BadInput(f"The checkpoint of {role} cannot be written: {error}") from None
        self.files.put(self._file(role, int(tag)), pieces)
        for old in self.all_tags(role)[: -self.keep]:
            self.files.remove(self._file(role, old))

    def read(self, role: str, check: Check | None = None) -> tuple[dict[str, Any] | None, str]:
        """Return (state, note): the newest intact state of `role`, or None if there is none.

        `check(state)` raises `ValueError` if a state has wrong contents; it then counts as damaged. The note is a text that names
        the newer files that are damaged, and why, or "". Damaged files raise no error.
        """
        damaged: list[str] = []
        for _, state in self._intact(role, check, damaged):
            return state, ", ".join(damaged)
        return None, ", ".join(damaged)

    def read_all(self, role: str, check: Check | None = None) -> tuple[dict[int, dict[str, Any]], str]:
        """Return ({tag: state}, note): all intact states of `role`, newest first, and a text that names the damaged files."""
        damaged: list[str] = []
        return dict(self._intact(role, check, damaged)), ", ".join(damaged)

    def _intact(self, role: str, check: Check | None, damaged: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (tag, state) of the intact states, newest first. A text about every damaged file is appended to `damaged`."""
        for tag in reversed(self.all_tags(role)):
            try:
                state = self._load(role, tag)
                if check is not None:
                    check(state)
            except FileNotFoundError:  # removed by its writer in the meantime
                continue
            except (DamagedCheckpoint, ValueError) as error:
                damaged.append(f"{self._file(role, tag)} is damaged ({str(error).rstrip('.')})")
                continue
            yield tag, state

    def tags(self, role: str) -> list[int]:
        """Return the tags of the intact states of `role`, ascending."""
        return sorted(self.read_all(role)[0])

    def roles(self) -> list[str]:
        """Return the roles that have files here, sorted."""
        return sorted({found[0] for found in map(_parse_name, self.files.names()) if found is not None})

    def clear(self) -> None:
        """Remove all states, and the drafts of killed writers. Must not be called while roles write."""
        for name in self.files.names():
            if _parse_name(name) is not None:
                self.files.remove(name)
        self.files.remove_drafts()

    def all_tags(self, role: str) -> list[int]:
        """Return the tags of all states of `role`, ascending, intact or damaged: files are listed, not read."""
        found = (_parse_name(name) for name in self.files.names())
        before = self.times_resumed * TAGS_PER_RESUMPTION
        return sorted(parts[1] - before for parts in found if parts is not None and parts[0] == role)

    def _file_number(self, tag: int) -> int:
        return self.times_resumed * TAGS_PER_RESUMPTION + tag

    def _file(self, role: str, tag: int) -> str:
        return f"{quote(role, safe='')}.{self._file_number(tag):012d}{SUFFIX}"

    def _load(self, role: str, tag: int) -> dict[str, Any]:
        try:
            found = decode_state(self.files.get(self._file(role, tag)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DamagedCheckpoint(f"cannot be read: {error.strerror or error}") from None
        if (found.get("role"), found.get("tag")) != (role, self._file_number(tag)) or not isinstance(
            found.get("state"), dict
        ):
            raise DamagedCheckpoint("it belongs to another role")
        state: dict[str, Any] = found["state"]
        return state

    def __repr__(self) -> str:
        return f"<Store {self.location}>"


def open_store(checkpoint: Any, keep: int = 2) -> Store | None:
    """Return the store for the value of `train(checkpoint=...)`, checked; None for None, False and True, which name no
    location.
    """
    if checkpoint is None or isinstance(checkpoint, bool):
        return None
    if not isinstance(checkpoint, (str, os.PathLike)):
        raise BadInput(f"checkpoint={shown(checkpoint)}: give a folder, a URL that fsspec supports, None or False.")
    return Store(as_path("checkpoint", checkpoint), keep).check()


def _parse_name(name: str) -> tuple[str, int] | None:
    """Return (role, number) of a file name; None if it is not a checkpoint."""
    role, _, number = name.removesuffix(SUFFIX).rpartition(".")
    return (unquote(role), int(number)) if name.endswith(SUFFIX) and role and number.isdigit() else None


def fingerprint(parameters: Any) -> str | None:
    """Return the SHA-256 of the bytes of the parameters, as hex; None if there are no parameters."""
    if isinstance(parameters, SparseParameters):
        return parameters.fingerprint() if len(parameters) else None
    if parameters is None or parameters.strides == (0,):
        return None
    return hashlib.sha256(np.ascontiguousarray(parameters).tobytes()).hexdigest()
