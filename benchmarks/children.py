"""Fresh processes for what must not be measured in this one: each imports this very source and has one BLAS thread.

Whatever a program starts inherits a mark in its environment, and everything that still bears it when the program has
ended, failed or run out of time is killed: a framework's daemons, too, which have left their parents behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

__all__ = ["ProgramFailed", "environment", "fresh", "partner"]

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {
    f"{library}_THREADS": "1" for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
}
MARK = "LABKIT_BENCHMARK_PROGRAM"
PATIENCE = 300.0  # seconds
LEAVE = 10.0  # seconds that a partner has to end by itself
WORDS = 500  # characters of what a program said last


class ProgramFailed(RuntimeError):
    """A program ended with an error, or not at all; the message ends with its last words."""


def environment(**more: str) -> dict[str, str]:
    """Of a process that imports this very source, with one thread of linear algebra."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, **more}


def fresh(module: str, *arguments: object, patience: float = PATIENCE) -> Any:
    """Run `python -m module arguments` to its end; what it prints as its last line, which is JSON.

    Nothing that it started outlives this call. `ProgramFailed` if it fails or is not through after `patience` seconds.
    """
    command, mark = [sys.executable, "-m", module, *map(str, arguments)], uuid.uuid4().hex
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:  # a pipe could be held open
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": said, "stderr": complained}
        process = subprocess.Popen(command, env=environment(**{MARK: mark}), start_new_session=True, **streams)
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{module} was not through after {patience:g} s. {_end_of(complained)}") from None
        finally:
            _kill_marked(mark)
            process.wait()
            process.stdin.close()  # type: ignore[union-attr]
        if code:
            raise ProgramFailed(f"{module} failed ({code}). {_end_of(complained)}")
        return json.loads(_end_of(said, 1_000_000).splitlines()[-1])


def _end_of(file: IO[bytes], length: int = WORDS) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()[-length:]


def _kill_marked(mark: str) -> None:
    """Twice, since a process may start another while the first look is under way."""
    for _ in range(2):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # somebody else's, or just gone
                if process.environ().get(MARK) == mark:
                    process.kill()


@contextlib.contextmanager
def partner(module: str, *arguments: object) -> Iterator[str]:
    """Run `python -m module arguments` beside this process; gives its first line, which says where it listens.

    It is expected to end when its peer is gone, and is killed if it does not.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"{module} ended before it said where it listens")
        yield line.strip()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE)
    finally:
        process.kill()  # nothing happens if it has ended
        process.wait()
        process.stdout.close()
