"""One rebuilt notebook through nbval, in a process of its own that reads nobody's configuration.

Its law: a result is what nbval says of each cell, or one sentence why there is none; and the same notebook gives the same
result every time. The folder is fresh and holds the notebook and its sources only; the environment is clean (no
PYTHONPATH, no PYTEST_*, no user's IPython or Jupyter folders, a fixed hash seed, one thread); `conftest.py`, `pytest.ini`
and other plugins are not read. The one use of wall time is the outer limit: what runs into it is ended with all its children
and run again alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput, LabkitError
from .rebuild import JUDGE, JUDGE_CELL, SOURCES, Rebuilt

__all__ = ["CellResult", "Harness", "Outcome", "Stopped", "needs", "validate"]

NOTEBOOK, REPORT = "rebuilt.ipynb", "report.json"
LONGEST_PATH = 80  # bytes; that of a socket may have some 100
MEMORY = 3 << 30  # bytes of data of each process of a run: the judge's own limits are some 256 MB
POLL = 0.05  # seconds between two looks at the process
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
)
_FIXED = {
    "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8",
    "TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLBACKEND": "agg",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PLATFORM_DIRS": "1",
    "NO_COLOR": "1",
}  # fmt: skip
# nbformat's jsonschema would build a grammar that notebooks do not need, which takes longer than all else here
_START = (  # where there are such limits: a bug in a check must not use up the machine's memory
    f"import sys\ntry:\n import resource; resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))\n"
    "except (ImportError, AttributeError, ValueError, OSError): pass\n"
    "from labkit.course.sandbox.parent import end_with_parent; end_with_parent(int(sys.argv.pop(1)))\n"
    "sys.modules['rfc3987_syntax'] = None; import pytest; sys.exit(pytest.console_main())"
)
_IPYTHON = """c = get_config()
c.InteractiveShellApp.ignore_cwd = True
c.HistoryManager.enabled = False
import os
from labkit.course.sandbox.parent import end_with_parent
end_with_parent(int(os.environ["JPY_PARENT_PID"]))  # of what started the kernel
"""


class Stopped(LabkitError):
    """The batch was interrupted."""


@dataclass(frozen=True)
class Harness:
    """How rebuilt notebooks are run. The defaults are what `check` and `grade` use; times are in seconds of wall time."""

    judge: str = JUDGE
    paths: tuple[str, ...] = ()
    """Folders that are put on the kernel's path (for a judge that is not labkit's)."""
    confined: bool | None = None
    """True: refuse to run where the sandbox cannot be had; None: use it where it can."""
    cell_seconds: float = 300.0
    wall_seconds: float = 900.0
    stop: threading.Event = field(default_factory=threading.Event, compare=False)
    """Set by whoever wants all runs to end now."""


@dataclass(frozen=True)
class CellResult:
    """What nbval said of one cell."""

    passed: bool
    error: str = ""
    """The exception's class, "NbCellError" for outputs that differ, "Broken" for a time limit or a dead kernel."""
    message: str = ""
    detail: str = ""
    outputs: Sequence[Mapping[str, Any]] = ()
    line: int = 0
    """The line of the cell at which it ended; 0 if that is not known."""


@dataclass(frozen=True)
class Outcome:
    """All cells by name, or `broken`: why there is no answer."""

    cells: Mapping[str, CellResult]
    broken: str = ""


def needs() -> None:
    """Say what to install when nbval or pytest is missing.

    Raises:
        BadInput: it is.
    """
    missing = [name for name in ("pytest", "nbval", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"{' and '.join(missing)} must be installed for this: pip install 'pytest>=8' 'nbval>=0.11' (labkit's extra `grade`)."
        )


def validate(rebuilt: Rebuilt, harness: Harness) -> Outcome:
    """Run a rebuilt notebook through nbval.

    Raises:
        Stopped: `harness.stop` was set.
    """
    with _folder() as folder, _folder() as scratch:  # apart: a student's process is told where the second is
        root = Path(folder)
        work = root / "work"
        work.mkdir()
        sources = {**rebuilt.sources, "confined": harness.confined}
        (work / NOTEBOOK).write_text(json.dumps(rebuilt.notebook), encoding="utf-8")
        (work / SOURCES).write_text(json.dumps(sources), encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        environment = {**_environment(root, harness), "TMPDIR": scratch}
        said = _run(_command(root, work, harness), work, environment, harness)
        return _outcome(root / REPORT, said, rebuilt)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True)


def _command(root: Path, work: Path, harness: Harness) -> list[str]:
    sockets = os.name != "nt" and len(os.fsencode(root)) < LONGEST_PATH
    return [
        sys.executable, "-P", "-c", _START, str(os.getpid()), "-q", "--color=no", "-c", str(root / "pytest.ini"),
        "--rootdir", str(work),
        "--confcutdir", str(work), "--noconftest", "-p", "no:cacheprovider", "-p", "nbval.plugin",
        "-p", "labkit.course.recording", "--nbval", "--nbval-current-env",
        "--nbval-cell-timeout", str(harness.cell_seconds), "--nbval-kernel-startup-timeout", "120",
        "--labkit-report", str(root / REPORT), *(["--labkit-sockets", str(root)] if sockets else []), str(work / NOTEBOOK),
    ]  # fmt: skip


def _environment(root: Path, harness: Harness) -> dict[str, str]:
    """A clean environment with folders of its own for IPython and Jupyter."""
    profile = root / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(_IPYTHON, encoding="utf-8")
    places = {"IPYTHONDIR": str(root / "ipython")}
    for name in ("CONFIG", "DATA", "RUNTIME"):
        places[f"JUPYTER_{name}_DIR"] = str(root / name.lower())
    package = Path(__file__).parents[2]  # a checkout that is not installed must still be found
    paths = [*harness.paths, *([str(package)] if not {"site-packages", "dist-packages"} & set(package.parts) else [])]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **_FIXED, **places, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _run(command: list[str], work: Path, environment: dict[str, str], harness: Harness) -> str:
    """The process's last words, or why it was ended."""
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        end = time.monotonic() + harness.wall_seconds
        try:
            while process.poll() is None:
                if harness.stop.is_set():
                    raise Stopped("Interrupted.")
                if time.monotonic() > end:
                    return f"it was ended after {harness.wall_seconds:g} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL)
        finally:
            _end(process)
        words.seek(max(words.seek(0, os.SEEK_END) - 4000, 0))
        return words.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with everything that it started; the kernel has a process group of its own."""
    import psutil

    if process.poll() is not None:
        return
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    for each in family:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()


def _outcome(report: Path, said: str, rebuilt: Rebuilt) -> Outcome:
    """Read the plugin's record; without a whole one there is no answer."""
    try:
        record = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        lines = [line for line in said.strip().splitlines() if line.strip()]
        return Outcome(
            {},
            said if said.startswith("it was ended") else f"the run gave no result: {lines[-1] if lines else 'no word'}",
        )
    names = [cell["metadata"]["labkit"]["cell"] for cell in rebuilt.notebook["cells"]]
    cells = {name: CellResult(**record[name]) for name in names if name in record}
    broken = next((f"cell {name!r}: {cell.message}" for name, cell in cells.items() if cell.error == "Broken"), "")
    opening = cells.get(JUDGE_CELL)
    if opening and not opening.passed:
        broken = f"the judge did not start: {opening.message}"
    if not broken and len(cells) < len(names):
        broken = "the run ended before its last cell"
    return Outcome(cells, broken)
