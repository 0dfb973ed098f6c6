"""New processes for measurements: each imports this source tree and has one BLAS thread.

All descendants of a program inherit a marker in its environment. Processes with the marker are killed when the program
has ended, failed or timed out. These include a framework's daemons, which have detached from their parents.
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

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {
    f"{library}_THREADS": "1" for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
}
MARKER = "LABKIT_BENCHMARKER_PROGRAM"
TIMEOUT_S = 300.0  # seconds
EXIT_TIMEOUT_S = 10.0  # seconds for a server process to end before it is killed
TAIL_CHARS = 500  # characters of a program's last output


class ProgramFailed(RuntimeError):
    """A program failed or timed out. The message ends with the program's last output."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that imports this source tree, with one thread of linear algebra."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path, **more}


def run_program(module: str, *arguments: object, timeout: float = TIMEOUT_S) -> Any:
    """Run `python -m module arguments` to its end, and return its last line, which is JSON.

    All descendants of the program are killed before this call returns. Raises `ProgramFailed` if the program fails or
    exceeds `timeout` seconds.
    """
    command, marker = [sys.executable, "-m", module, *map(str, arguments)], uuid.uuid4().hex
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:  # a descendant could keep a pipe open
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": stdout, "stderr": stderr}
        process = subprocess.Popen(command, env=environment(**{MARKER: marker}), start_new_session=True, **streams)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{module} timed out after {timeout:g} s. {_tail(stderr)}") from None
        finally:
            _kill_marked(marker)
            process.wait()
            process.stdin.close()  # type: ignore[union-attr]
        if code:
            raise ProgramFailed(f"{module} failed ({code}). {_tail(stderr)}")
        return json.loads(_tail(stdout, 1_000_000).splitlines()[-1])


def _tail(file: IO[bytes], length: int = TAIL_CHARS) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()[-length:]


def _kill_marked(marker: str) -> None:
    """Kill all processes with the marker. Two passes are needed, because a process may start another in the first pass."""
    for _ in range(2):
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):  # another user's process, or one that has just ended
                if process.environ().get(MARKER) == marker:
                    process.kill()


@contextlib.contextmanager
def server_process(module: str, *arguments: object) -> Iterator[str]:
    """Run `python -m module arguments` beside this process, and yield its first line, the address at which it listens.

    The process should end when its peer has ended; otherwise it is killed.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"{module} ended before it printed its address")
        yield line.strip()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_TIMEOUT_S)
    finally:
        process.kill()  # no effect if it has ended
        process.wait()
        process.stdout.close()
