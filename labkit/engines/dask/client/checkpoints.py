"""The checkpoints of a run, as read by its client."""

from __future__ import annotations

import os
import shutil
import weakref
from typing import Any, Literal

from ....files import temporary
from ...storage.store import Store
from .resume import without_accounting

__all__ = ["RunCheckpoints"]


class RunCheckpoints:
    """The checkpoints of one run.

    `store`: the store that the user requested; None: a temporary folder, which is removed with this object; False: no
    checkpoints. `resume`: the store of an earlier run that this run resumes, in the same location; None: the run is
    new.

    Attributes to read: `folder`, where roles save checkpoints, or None; `times_resumed`, how often the run was resumed
    (see `Store`); `named`, the requested store, or None.
    """

    def __init__(self, store: Store | Literal[False] | None, resume: Store | None):
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
        if self.folder is None:
            return {}
        store = Store(self.folder, times_resumed=self.times_resumed)
        for tag in reversed(store.all_tags("chief")):
            found = store.read("chief", tag)
            if found is not None:  # parameters saved before the run was resumed contain no gradient of this run
                return found[0] if tag >= 0 else without_accounting(found[0])
        return {}

    def states(self, role: str) -> dict[int, Any]:
        """Return {number: state} of a role's checkpoints. In a group, the checkpoints with one number belong together."""
        if self.folder is None:
            return {}
        store = Store(self.folder, times_resumed=self.times_resumed)
        try:
            found = {tag: store.read(role, tag) for tag in store.tags(role)}
        except OSError:
            return {}
        return {tag: state[0] for tag, state in found.items() if state is not None}


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this is a fork of the process that created it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
