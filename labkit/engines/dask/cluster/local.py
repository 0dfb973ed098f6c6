"""Starts the processes of a local cluster."""

from __future__ import annotations

import ast
import contextlib
import multiprocessing.process
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker, spawn
from pathlib import Path
from typing import Any

import dask

from ....errors import BadInput
from ....files import temporary
from .credentials import new_security
from .http_servers import Scheduler
from .nannies import Nanny, OwnCluster, ProcessTable
from .settings import MALLOC, SILENT, SharedContext

MAX_FOLDER_BYTES = 80  # bytes of a folder's path; the path of a socket in it may have about 100


def new_cluster(table: ProcessTable, token: str | None) -> OwnCluster:
    """Return a new cluster with a scheduler in this process. Its `scale` adds processes with one thread each.

    Must be called with `settings` applied. Only processes and clients with the cluster's credentials, which are generated
    here, can connect to it. `table`: where the stages of the processes are recorded. `token`: the token of the dashboard;
    None: no dashboard.
    """
    for name in MALLOC:
        os.environ.pop(name, None)  # values left by an earlier cluster would override the configuration
    # Dask puts the folder into every worker's `sys.path`, so no other user may write to it.
    folder = temporary.program_folder(dask.config.get("temporary-directory", None))
    _put_sockets_into(folder)
    if sys.platform.startswith("linux"):
        forkserver.ensure_running()  # the fork server imports its modules while the key is generated
    common = {"host": "127.0.0.1", "protocol": "tls://", "security": new_security(), "local_directory": str(folder)}
    scheduler = {
        "plugins": [table],
        "dashboard": token is not None,
        "dashboard_address": "127.0.0.1:0",
        "token": token,
    }
    worker = {
        "cls": Nanny,
        "options": {
            **common, "nthreads": 1, "memory_limit": 0, "dashboard": False, "silence_logs": SILENT, "table": table,
        },
    }  # fmt: skip
    return OwnCluster(
        scheduler={"cls": Scheduler, "options": {**common, **scheduler}},
        worker=worker, security=common["security"], silence_logs=False, name="labkit",
    )  # fmt: skip


def _put_sockets_into(folder: Path) -> None:
    """Make `multiprocessing` create its sockets in `folder`, unless it has a folder for them, which a killed program would leave.

    This has no public interface. If another Python has another one, a killed program leaves a small folder `pymp-*`.
    """
    config = getattr(multiprocessing.process.current_process(), "_config", None)
    if isinstance(config, dict) and len(os.fsencode(folder)) < MAX_FOLDER_BYTES:
        config.setdefault("tempdir", str(folder))


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT: threads started in this context, and all processes that they start, never receive it.

    Ctrl-C and a notebook's interrupt are sent to the whole process group, but the workers are needed for an orderly end
    of the run. This process receives a pending SIGINT when the context is left.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started now, because its start unblocks signals in the calling thread
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main_is_script() -> bool:
    """Return whether `__main__` is a Python file, which new processes import, and not a notebook or a console.

    A notebook may define `__file__`: some editors and kernels do, and people do for `pathlib`. Its file is missing or no Python.
    """
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if not isinstance(path, str) or "get_ipython" in vars(main):
        return False
    return os.path.isfile(path) and not path.endswith(".ipynb")


@contextlib.contextmanager
def _notebooks_not_imported() -> Iterator[None]:
    """Context manager in which new processes of `multiprocessing` import `__main__` only if it is a script.

    `multiprocessing` has no setting for this. It reads `__file__` in the thread that starts a process, at any later time.
    """
    module = spawn  # at the end of a program that forked, globals are None
    before = module.get_preparation_data

    def preparation_data(name: str) -> dict[str, Any]:
        found = before(name)
        if not main_is_script():
            found.pop("init_main_from_path", None)
        return found

    module.get_preparation_data = preparation_data
    try:
        yield
    finally:
        module.get_preparation_data = before


notebooks_not_imported = SharedContext(_notebooks_not_imported)


def check_script() -> None:
    """Raise `BadInput` if the main script cannot start processes, because every new process executes the script again."""
    if getattr(sys.modules.get("__main__"), "__file__", "") == "<stdin>":
        raise BadInput(
            "A script on standard input cannot start processes, because each of them executes it again: save it to a file."
        )
    line = unguarded_line()
    if line is not None:
        raise BadInput(
            f'{line}: a script that starts processes must do so under `if __name__ == "__main__":`, because '
            "every process executes the script again."
        )


def unguarded_line() -> str | None:
    """Return `file:line` of the main script's current statement if it is not under `if __name__ == "__main__"`, else None.

    Each new process imports the main script again, and an unguarded script would start processes in turn. Returns None
    for notebooks, modules, the interactive prompt, and guarded scripts.
    """
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if path is None or not os.path.exists(path):
        return None
    frame = sys._getframe()
    while frame is not None and not (
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") in ("__main__", "__mp_main__")
    ):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or os.path.abspath(frame.f_code.co_filename) != os.path.abspath(path):
        return None
    try:
        tree = ast.parse(Path(path).read_text())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    for node in tree.body:
        guards = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        if guards and node.lineno <= frame.f_lineno <= (node.end_lineno or 0):
            return None
    return f"{path}:{frame.f_lineno}"
