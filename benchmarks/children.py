"""Fresh processes for what must not be measured in this one: each imports this very source and has one BLAS thread."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["fresh", "partner"]

ROOT = Path(__file__).resolve().parents[1]
ONE_THREAD = {
    f"{library}_THREADS": "1" for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM")
}
PATIENCE = 300.0  # seconds
LEAVE = 10.0  # seconds that a partner has to end by itself


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": path}


def fresh(module: str, *arguments: object) -> dict[str, Any]:
    """Run `python -m module arguments` to its end; the object that it prints as its last line of JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f"{module} failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def partner(module: str, *arguments: object) -> Iterator[int]:
    """Run `python -m module arguments` beside this process; gives the port that it prints as its first line.

    It is expected to end when its peer is gone, and is killed if it does not.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    process = subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"{module} ended before it said where it listens")
        yield int(line)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LEAVE)
    finally:
        process.kill()  # nothing happens if it has ended
        process.wait()
        process.stdout.close()
