"""Registry of the labs made by each notebook cell. Running a cell again closes the labs that it made before.

The registry is the only module-level mutable state of the package. It is needed because a cell that is run again has no
reference to the lab that it made before. Without the registry, the old lab would never be closed. The key is JupyterLab's
id of the cell. If there is no id (nbclient, nbval, scripts), nothing is registered.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

__all__ = ["forget", "in_kernel", "open_labs", "remember", "stale", "this_cell", "this_execution"]

_lock = threading.Lock()
_open: dict[str, tuple[str, list[Any]]] = {}  # cell -> (execution, labs made in it)


def in_kernel() -> bool:
    """Return whether IPython runs in a kernel, so that a browser may show widgets."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def this_cell() -> tuple[str, str] | None:
    """Return (cell id, id of this execution) of the cell that is being run, or None if the cell has no id."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    try:
        request = kernel.get_parent("shell")  # type: ignore[union-attr]
        cell, execution = request["metadata"]["cellId"], request["header"]["msg_id"]
    except (AttributeError, KeyError, TypeError, LookupError):
        return None
    return (str(cell), str(execution)) if cell else None


def this_execution() -> str | None:
    """Return the id of the request that executes the present cell, or None outside a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    try:
        return str(shell.kernel.get_parent("shell")["header"]["msg_id"])  # type: ignore[union-attr]
    except (AttributeError, KeyError, TypeError, LookupError):
        return None


def remember(lab: Any, where: tuple[str, str] | None) -> None:
    """Register `lab` for this cell. Labs of an earlier execution are closed, but several labs of the same execution stay
    open.
    """
    if where is None:
        return
    cell, execution = where
    old = stale(where)
    with _lock:
        before, labs = _open.get(cell, ("", []))
        _open[cell] = (execution, [lab] if before != execution else [*labs, lab])
    for other in old:
        other.close()


def stale(where: tuple[str, str] | None) -> list[Any]:
    """Return the labs that an earlier execution of this cell made and that are still open."""
    if where is None:
        return []
    cell, execution = where
    with _lock:
        before, labs = _open.get(cell, ("", []))
        return list(labs) if before != execution else []


def forget(lab: Any) -> None:
    """Remove a closed lab from the registry."""
    with _lock:
        for cell, (execution, labs) in list(_open.items()):
            left = [other for other in labs if other is not lab]
            if left:
                _open[cell] = (execution, left)
            else:
                del _open[cell]


def open_labs() -> list[Any]:
    """Return all registered labs that are not closed."""
    with _lock:
        return [lab for _, labs in _open.values() for lab in labs]
