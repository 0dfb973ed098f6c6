"""Registry of what each notebook cell has made: labs, and runs on processes. A cell that is executed again replaces what is left
of its previous execution.

- A new lab closes the labs of the previous execution, whose output it replaces.
- A run that still goes on is ended if nothing refers to it besides the output history (`Out`, `_`, `__`).
- In the output history, a cluster of an earlier cell is replaced by a view that does not keep its processes.

The registry is the only module-level mutable state of the package. It is needed because a cell that is run again has no
reference to what it made before. Without it, this would never be closed. The key is JupyterLab's id of the cell. A front
end that sends no id (nbclient, nbval) executes a cell again if it sends the same text. In scripts, nothing is registered.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import re
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..engines.base import Engine
from ..engines.commands import Stop
from ..engines.dask import DaskCluster

HISTORY = re.compile(r"_{1,3}|_\d+")  # names of the output history, besides `Out`


@dataclass
class _Going:
    """A run that goes on. `run` is None after another execution of its cell: then only others keep the run."""

    cell: str
    execution: str
    run: Any
    reference: weakref.ref[Any]
    engine: Engine


_lock = threading.Lock()
_open: dict[str, tuple[str, list[Any]]] = {}  # cell -> (execution, labs made in it)
_going: list[_Going] = []


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def in_kernel() -> bool:
    """Return whether IPython runs in a kernel, so that a browser may show widgets."""
    return getattr(_shell(), "kernel", None) is not None


def _request() -> dict[str, Any]:
    """Return the message that requests the execution of the present cell; empty outside a kernel."""
    try:
        request = _shell().kernel.get_parent("shell")
        return request if request["header"]["msg_id"] else {}
    except (AttributeError, KeyError, TypeError, LookupError):
        return {}


def _text() -> str:
    """Return the text of the present cell."""
    return str(_request().get("content", {}).get("code", ""))


def this_cell() -> tuple[str, str] | None:
    """Return (cell, id of this execution) of the cell that is being run, or None outside a kernel."""
    request = _request()
    cell = request.get("metadata", {}).get("cellId") or _text()
    return (str(cell), str(request["header"]["msg_id"])) if cell else None


def this_execution() -> str | None:
    """Return the id of the request that executes the present cell, or None outside a kernel."""
    request = _request()
    return str(request["header"]["msg_id"]) if request else None


def output_name(*more: str) -> str:
    """Return a name for an output of the present cell, which is the same each time the notebook is executed."""
    where = this_cell()
    with _lock:
        execution, labs = _open.get(where[0], ("", [])) if where else ("", [])
    number = len(labs) if where and where[1] == execution else 0
    return hashlib.sha256("\0".join([_text(), str(number), *more]).encode()).hexdigest()[:12]


# labs -----------------------------------------------------------------------------------------------------------------


def remember(lab: Any, where: tuple[str, str] | None, replaced: int = 0) -> None:
    """Register `lab` for this cell. Labs of an earlier execution are closed, but several labs of the same execution stay
    open. `replaced`: the number of labs that `lab` itself has closed.
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
    if replaced or old:
        _tell("lab", replaced + len(old), "previous execution of this cell", "closed")


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


# runs, and the output history -----------------------------------------------------------------------------------------


def remember_run(run: Any) -> None:
    """Register a run on processes for the present cell. It goes on without a reference to it until the cell is run again."""
    where = this_cell()
    if where is None:
        return
    _shell().events.register("post_run_cell", close_earlier)  # once, however often it is called
    with _lock:
        _going[:] = [each for each in _going if each.engine.stopped_by is None]
        _going.append(_Going(*where, run, weakref.ref(run), run.engine))


def close_earlier(result: Any = None) -> None:
    """End the runs of earlier executions of the present cell to which nothing refers. The output history keeps no processes.

    IPython calls it after each cell. `result`: the result of the cell, as IPython passes it.
    """
    where, shell = this_cell(), _shell()
    if shell is None:
        return
    latest = getattr(result, "result", None)
    _replace_in_history(shell, lambda value: _view(value) if value is not latest else value)
    with _lock:
        _going[:] = [each for each in _going if each.engine.stopped_by is None]
        for each in _going:
            if where is not None and each.cell == where[0] and each.execution != where[1]:
                each.run = None
        earlier = [each for each in _going if each.run is None]
    if not earlier:
        return
    # a handle in the history is replaced by an equal one: if the handle itself is then gone, nothing else referred to it
    handles = {id(each.reference()) for each in earlier}
    _replace_in_history(shell, lambda value: copy.copy(value) if id(value) in handles else value)
    gc.collect()
    left = [each for each in earlier if each.reference() is None and each.engine.stopped_by is None]
    for each in left:
        each.engine.execute(Stop("user"))
    if left:
        this = where is not None and all(each.cell == where[0] for each in left)
        _tell("run", len(left), f"previous execution of {'this' if this else 'its'} cell", "stopped")


def _tell(kind: str, count: int, made_by: str, done: str) -> None:
    many = f"{count} {kind}s" if count > 1 else kind
    print(f"The {many} of the {made_by} {'were' if count > 1 else 'was'} {done}.")


def _view(value: Any) -> Any:
    return value.with_spec(value.spec, keep=False) if isinstance(value, DaskCluster) else value


def _replace_in_history(shell: Any, replaced: Callable[[Any], Any]) -> None:
    """Replace each value `v` of the output history by `replaced(v)`."""
    hook = vars(shell.displayhook)
    for names in (shell.user_ns, shell.user_ns_hidden, hook):
        for name in [name for name in names if isinstance(name, str) and HISTORY.fullmatch(name)]:
            names[name] = replaced(names[name])
    outputs = shell.user_ns.get("_oh", {})
    for number in list(outputs):
        outputs[number] = replaced(outputs[number])
