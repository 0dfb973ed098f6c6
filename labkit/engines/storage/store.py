"""Checkpoint store: the newest states of every role of a run, from which lost roles are restarted.

A file is `<role>.<number>.ckpt`. The number grows with the version of a shard, with the incarnation of a role, and with each
resumption of the run. It is not a clock time, because clocks may jump. States survive a crash once `write` has returned;
`read` returns complete states only, and falls back to the previous one if the newest is damaged. An incarnation that was
declared lost and still writes does not replace states of its successor.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from ...errors import BadInput, shown
from ...nn import SparseParameters
from ...paths import as_path
from .checkpoint_format import Damaged, seal, unseal
from .locations import Folder, Place, place_at

__all__ = ["LIFE", "Store", "check_folder", "fingerprint", "open_store"]

ENDING = ".ckpt"
LIFE = 10**12  # tags per incarnation of a role, for roles that number them by incarnation
AGE = 10**18  # tags per age of a run


class Store:
    """The checkpoints of one run. `place`: a folder or an fsspec URL ("s3://bucket/run", "memory://run").

    `keep`: the number of states kept per role. `age`: how many times the run was resumed. States of earlier ages have negative
    tags, so they are older than all of this age. A store can be pickled; a relative folder is resolved when the store is made.
    Methods raise `OSError` (disk full, no permission, no connection).
    """

    def __init__(self, place: str | os.PathLike[str], keep: int = 2, age: int = 0):
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise BadInput(f"keep={shown(keep)}: how many checkpoints of a role stay is a whole number, at least 1.")
        self.files: Place = place_at(place)
        self.keep, self.age = keep, age

    @property
    def place(self) -> str:
        """The absolute path of the folder, or the URL."""
        return str(self.files)

    @property
    def local(self) -> bool:
        """Whether it is a local folder, which may be inaccessible to roles on other hosts."""
        return isinstance(self.files, Folder)

    def check(self) -> Store:
        """Create the location if necessary, and test a write; `BadInput` if that fails. Returns the store."""
        try:
            self.files.make()
            self.files.put("labkit-probe", [b"?"])
            self.files.remove("labkit-probe")
        except OSError as error:
            what = "folder" if self.local else "place"
            raise BadInput(
                f"checkpoint={shown(self.place)}: the {what} cannot be written to ({error.strerror or error})."
            ) from None
        return self

    def write(self, role: str, state: Mapping[str, Any], tag: int) -> None:
        """Save `state` of `role` under `tag`, an integer >= 0; see `seal` for the allowed values.

        When it returns, the state is durable and all but the `keep` newest (by tag) are removed. `OSError`: nothing has changed,
        earlier states are kept. `BadInput` names a value that cannot be stored.
        """
        if isinstance(tag, bool) or not isinstance(tag, (int, np.integer)) or not 0 <= tag < AGE:
            raise BadInput(f"tag={shown(tag)}: checkpoints are numbered by whole numbers from 0.")
        try:
            pieces = seal({"role": role, "tag": self._number(int(tag)), "state": dict(state)})
        except BadInput as error:
            raise BadInput(f"The checkpoint of {role} cannot be written: {error}") from None
        self.files.put(self._file(role, int(tag)), pieces)
        for past in self.known(role)[: -self.keep]:
            self.files.remove(self._file(role, past))

    def read(self, role: str, tag: int | None = None) -> tuple[dict[str, Any], str] | None:
        """(state, remark) of the newest intact checkpoint of `role`, or of the one with this tag; None if there is none.

        `remark`: a text about newer checkpoints that are damaged, or "". Damaged files raise no error.
        """
        damaged: list[tuple[int, str]] = []
        for number in reversed(self.known(role)) if tag is None else [tag]:
            try:
                state = self._open(role, number)
            except Damaged as error:
                damaged.append((number, str(error)))
                continue
            except FileNotFoundError:  # its writer has removed it meanwhile
                continue
            return state, f"{_trouble(role, damaged)}; the one before is used" if damaged else ""
        return None

    def trouble(self, role: str) -> str:
        """A text about the damaged checkpoints of `role`; "" if there are none."""
        damaged = []
        for number in reversed(self.known(role)):
            try:
                self._open(role, number)
            except Damaged as error:
                damaged.append((number, str(error)))
            except FileNotFoundError:
                continue
        return _trouble(role, damaged) if damaged else ""

    def tags(self, role: str) -> list[int]:
        """The tags of the intact states of `role`, ascending."""
        return [number for number in self.known(role) if self.read(role, number) is not None]

    def roles(self) -> list[str]:
        """The roles that have files here, sorted."""
        return sorted({found[0] for found in map(_parts, self.files.names()) if found is not None})

    def clear(self) -> None:
        """Remove all states. Must not be called while roles write."""
        for name in self.files.names():
            if _parts(name) is not None:
                self.files.remove(name)

    def known(self, role: str) -> list[int]:
        """The tags of all states of `role`, ascending, intact or damaged: files are listed, not read."""
        found = (_parts(name) for name in self.files.names())
        return sorted(parts[1] - self.age * AGE for parts in found if parts is not None and parts[0] == role)

    def _number(self, tag: int) -> int:
        return self.age * AGE + tag

    def _file(self, role: str, tag: int) -> str:
        return f"{quote(role, safe='')}.{self._number(tag):012d}{ENDING}"

    def _open(self, role: str, tag: int) -> dict[str, Any]:
        try:
            kept = unseal(self.files.get(self._file(role, tag)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Damaged(f"cannot be read: {error.strerror or error}") from None
        if (kept.get("role"), kept.get("tag")) != (role, self._number(tag)) or not isinstance(kept.get("state"), dict):
            raise Damaged("it is another's")
        state: dict[str, Any] = kept["state"]
        return state

    def __repr__(self) -> str:
        return f"<Store {self.place}>"


def open_store(checkpoint: Any, keep: int = 2) -> Store | None:
    """The store for the value of `train(checkpoint=...)`, checked; None for None, False and True, which name no location."""
    if checkpoint is None or isinstance(checkpoint, bool):
        return None
    if not isinstance(checkpoint, (str, os.PathLike)):
        raise BadInput(f"checkpoint={shown(checkpoint)}: give a folder, a URL that fsspec knows, None or False.")
    return Store(as_path("checkpoint", checkpoint), keep).check()


def _parts(name: str) -> tuple[str, int] | None:
    """(role, number) of a file name; None if it is not a checkpoint."""
    role, _, number = name.removesuffix(ENDING).rpartition(".")
    return (unquote(role), int(number)) if name.endswith(ENDING) and role and number.isdigit() else None


def _trouble(role: str, damaged: list[tuple[int, str]]) -> str:
    (number, why), *more = damaged
    also = f" (and {len(more)} more)" if more else ""
    return f"{role}'s newest checkpoint (version {number % LIFE}) is damaged ({why}){also}"


def check_folder(checkpoint: Any) -> Path | None:
    """The folder for checkpoints, created if necessary; `BadInput` if it is not writable."""
    store = open_store(checkpoint)
    return None if store is None else Path(store.place)


def fingerprint(parameters: Any) -> str | None:
    """SHA-256 of the bytes of the parameters, as hex; None without parameters."""
    if isinstance(parameters, SparseParameters):
        return parameters.fingerprint() if len(parameters) else None
    if parameters is None or parameters.strides == (0,):
        return None
    return hashlib.sha256(np.ascontiguousarray(parameters).tobytes()).hexdigest()
