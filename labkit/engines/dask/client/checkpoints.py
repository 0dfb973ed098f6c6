"""Where the roles of a run keep their checkpoints, as its client sees it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any, Literal

from ...storage.store import Store
from .resume import without_accounting

__all__ = ["RunCheckpoints"]


class RunCheckpoints:
    """Of one run. `store`: a place that was asked for; None: a folder that is removed when this object is; False: nowhere.
    `resume`: the same place, seen by a run that resumes an earlier one.

    `folder`: where roles write, None: nowhere. `age`: of the run, as `Store` has it. `named`: the place, if one was asked for.
    """

    def __init__(self, store: Store | Literal[False] | None, resume: Store | None):
        self.named: Store | None = resume or store or None
        self.age = resume.age if resume else 0
        self.folder: str | None = None
        if store is None:
            self.folder = tempfile.mkdtemp(prefix="labkit-")
            weakref.finalize(self, _remove, self.folder, os.getpid())
        elif store:
            self.folder = str(store.place)

    def newest_evaluation(self) -> dict[str, Any]:
        """The last evaluation that the chief has kept: parameters, measurements, and which gradients they hold; {}: none."""
        if self.folder is None:
            return {}
        store = Store(self.folder, age=self.age)
        for tag in reversed(store.known("chief")):
            found = store.read("chief", tag)
            if found is not None:  # of an earlier age: its parameters hold no gradient of this run
                return found[0] if tag >= 0 else without_accounting(found[0])
        return {}

    def states(self, role: str) -> dict[int, Any]:
        """{number: state} of a role's checkpoints; in a group equal numbers are equal versions of one past."""
        if self.folder is None:
            return {}
        store = Store(self.folder, age=self.age)
        try:
            found = {tag: store.read(role, tag) for tag in store.tags(role)}
        except OSError:
            return {}
        return {tag: state[0] for tag, state in found.items() if state is not None}


def _remove(folder: str, owner: int) -> None:
    """Remove a folder, unless this is a fork of the process that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
