"""New processes for measurements: each imports this source tree and has one BLAS thread.

All descendants of a program inherit a mark in its environment. Processes with the mark are killed when the program has ended,
failed or timed out, including a framework's daemons, which have detached from their parents.
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
LEAVE = 10.0  # seconds for a partner to end before it is killed
WORDS = 500  # characters of a program's last output


class ProgramFailed(RuntimeError):
    """A program failed or timed out; the message ends with its last output."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that imports this source tree, with one thread of linear algebra."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, **more}


def fresh(module: str, *arguments: object, patience: float = PATIENCE) -> Any:
    """Run `python -m module arguments` to its end; returns its last line, which is JSON.

    All its descendants are killed before this call returns. `ProgramFailed` if it fails or exceeds `patience` seconds.
    """
    command, mark = [sys.executable, "-m", module, *map(str, arguments)], uuid.uuid4().hex
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:  # a descendant could keep a pipe open
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
    """Kill all processes with the mark. Two passes, because a process may start another one during the first."""
    for _ in range(2):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # another user's process, or one that has just ended
                if process.environ().get(MARK) == mark:
                    process.kill()


@contextlib.contextmanager
def partner(module: str, *arguments: object) -> Iterator[str]:
    """Run `python -m module arguments` beside this process; yields its first line, the address at which it listens.

    It should end when its peer has ended, and is killed otherwise.
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
        process.kill()  # no effect if it has ended
        process.wait()
        process.stdout.close()
