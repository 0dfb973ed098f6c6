"""The checkpoints of a run, as read by its client."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable
from typing import Any, Literal

from ....files import temporary
from ....paths import reason
from ....roles.evaluator import Evaluator
from ...storage.store import Check, Store
from .resume import without_accounting


class RunCheckpoints:
    """The checkpoints of one run.

    `store`: the store that the user requested; None: a temporary folder, which is removed with this object; False: no
    checkpoints. `resume`: the store of an earlier run that this run resumes, in the same location; None: the run is
    new. `warn(text)` is called when checkpoints are damaged.

    Attributes to read: `folder`, where roles save checkpoints, or None; `times_resumed`, how often the run was resumed
    (see `Store`); `named`, the requested store, or None.
    """

    def __init__(self, store: Store | Literal[False] | None, resume: Store | None, warn: Callable[[str], None]):
        self._warn, self._warned = warn, set[str]()
        self.named: Store | None = resume or store or None
        self.times_resumed = resume.times_resumed if resume else 0
        self.folder: str | None = None
        if store is None:
            self.folder = str(temporary.new())
            weakref.finalize(self, _remove, self.folder, os.getpid())
        elif store:
            self.folder = str(store.location)

    def newest_evaluation(self) -> dict[str, Any]:
        """Return the chief's last saved evaluation, or {} if there is none.

        It consists of parameters, measurements, and the gradients that the parameters contain.
        """
        found = self._read("chief", Evaluator.check_state)
        if not found:
            return {}
        # parameters saved before the run was resumed contain no gradient of this run
        tag, newest = next(iter(found.items()))
        return newest if tag >= 0 else without_accounting(newest)

    def states(self, role: str) -> dict[int, Any]:
        """Return {number: state} of a role's checkpoints. In a group, the checkpoints with one number belong together."""
        return self._read(role)

    def _read(self, role: str, check: Check | None = None) -> dict[int, dict[str, Any]]:
        if self.folder is None:
            return {}
        try:
            found, note = Store(self.folder, times_resumed=self.times_resumed).read_all(role, check)
        except OSError as error:
            found, note = {}, f"the checkpoints of {role} cannot be read ({reason(error)})"
        if note and note not in self._warned:
            self._warned.add(note)
            self._warn(f"{note}; {'an older checkpoint' if found else 'no checkpoint of ' + role} is used")
        return found


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this is a fork of the process that created it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
