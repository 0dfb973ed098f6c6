"""Runs a rebuilt notebook with nbval in a separate process, isolated from the user's configuration.

The result is nbval's verdict on each cell, or a sentence that says why there is no verdict. To make it reproducible,
the notebook and its sources are in a new folder without other files; the environment is clean (no PYTHONPATH, no
PYTEST_*, no user folders of IPython or Jupyter, a fixed hash seed, one thread); and the user's `conftest.py`,
`pytest.ini` and other plugins are not loaded. Wall time is used for the outer limit only. A run that exceeds this limit
is ended with all its children, and repeated while no other notebook runs.
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

from ...errors import BadInput, LabkitError
from ...files import temporary
from .rebuild import ANSWERS_MODULE, SETUP_CELL, SOURCES, Rebuilt

NOTEBOOK, REPORT = "rebuilt.ipynb", "report.json"
MAX_ROOT_BYTES = 80  # bytes of the folder's path; the path of a socket in the folder may have about 100
MEMORY = 3 << 30  # bytes of data of each process of a run; the sandbox limits what submissions use to about 256 MB
POLL_S = 0.05  # between two checks of the process
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
# jsonschema would import these packages for formats that notebooks do not have: one compiles a grammar, both are slow.
_START = (  # a limit on memory, where the system has one, protects the machine from a bug in a check
    f"import sys\ntry:\n import resource; resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY}, {MEMORY}))\n"
    "except (ImportError, AttributeError, ValueError, OSError): pass\n"
    "from labkit.course.sandbox.parent_death import end_with_parent; end_with_parent(int(sys.argv.pop(1)))\n"
    "sys.modules.update(rfc3987_syntax=None, isoduration=None); import pytest; sys.exit(pytest.console_main())"
)
_IPYTHON = """c = get_config()
c.InteractiveShellApp.ignore_cwd = True
c.HistoryManager.enabled = False
import os
from labkit.course.sandbox.parent_death import end_with_parent
end_with_parent(int(os.environ["JPY_PARENT_PID"]))  # the process that started the kernel
"""


class Interrupted(LabkitError):
    pass


@dataclass(frozen=True)
class Harness:
    """How rebuilt notebooks are run; the defaults are those of `check` and `grade`. Times are in seconds of wall time."""

    answers_module: str = ANSWERS_MODULE
    paths: tuple[str, ...] = ()
    """Folders added to the kernel's import path (for another `answers_module`)."""
    confined: bool | None = None
    """True: refuse to run on a host without confinement; None: confine where the host can."""
    cell_seconds: float = 300.0
    wall_seconds: float = 900.0
    stop: threading.Event = field(default_factory=threading.Event, compare=False)
    """Setting it ends all runs."""


@dataclass(frozen=True)
class CellResult:
    passed: bool
    error: str = ""
    """The class of the exception; "NbCellError" if outputs differ; "Broken" for a time limit or a dead kernel."""
    message: str = ""
    detail: str = ""
    outputs: Sequence[Mapping[str, Any]] = ()
    line: int = 0
    """The line of the cell that raised; 0 if it is not known."""


@dataclass(frozen=True)
class RunResult:
    """The results of all cells by name. `broken`: why the run broke, or "" if it did not."""

    cells: Mapping[str, CellResult]
    broken: str = ""


def require_nbval() -> None:
    """Raise `BadInput`, with the command that installs them, if nbval, pytest or ipykernel is missing."""
    missing = [name for name in ("pytest", "nbval", "ipykernel") if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"{' and '.join(missing)} must be installed for this: pip install 'pytest>=8' 'nbval>=0.11' (labkit's extra `grade`)."
        )


def run_notebook(rebuilt: Rebuilt, harness: Harness) -> RunResult:
    """Run a rebuilt notebook with nbval. Raises `Interrupted` if `harness.stop` is set."""
    with (
        temporary.within() as folder,
        temporary.within() as scratch,
    ):  # two folders, because student processes learn the path of the second
        root = Path(folder)
        work = root / "work"
        work.mkdir()
        sources = {**rebuilt.sources, "confined": harness.confined}
        (work / NOTEBOOK).write_text(json.dumps(rebuilt.notebook), encoding="utf-8")
        (work / SOURCES).write_text(json.dumps(sources), encoding="utf-8")
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        environment = {**_environment(root, harness), "TMPDIR": scratch}
        output = _run(_command(root, work, harness), work, environment, harness)
        return _result(root / REPORT, output, rebuilt)


def _command(root: Path, work: Path, harness: Harness) -> list[str]:
    sockets = os.name != "nt" and len(os.fsencode(root)) < MAX_ROOT_BYTES
    return [
        sys.executable, "-P", "-c", _START, str(os.getpid()), "-q", "--color=no", "-c", str(root / "pytest.ini"),
        "--rootdir", str(work),
        "--confcutdir", str(work), "--noconftest", "-p", "no:cacheprovider", "-p", "nbval.plugin",
        "-p", "labkit.course.grading.nbval_plugin", "--nbval", "--nbval-current-env",
        "--nbval-cell-timeout", str(harness.cell_seconds), "--nbval-kernel-startup-timeout", "120",
        "--labkit-report", str(root / REPORT), *(["--labkit-sockets", str(root)] if sockets else []), str(work / NOTEBOOK),
    ]  # fmt: skip


def _environment(root: Path, harness: Harness) -> dict[str, str]:
    """Make a clean environment with separate folders for IPython and Jupyter."""
    profile = root / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(_IPYTHON, encoding="utf-8")
    places = {"IPYTHONDIR": str(root / "ipython")}
    for name in ("CONFIG", "DATA", "RUNTIME"):
        places[f"JUPYTER_{name}_DIR"] = str(root / name.lower())
    package = Path(__file__).parents[3]  # for a checkout that is not installed
    paths = [*harness.paths, *([str(package)] if not {"site-packages", "dist-packages"} & set(package.parts) else [])]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **_FIXED, **places, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})}


def _run(command: list[str], work: Path, environment: dict[str, str], harness: Harness) -> str:
    """Run the process, and return the end of its output, or why it was ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        end = time.monotonic() + harness.wall_seconds
        try:
            while process.poll() is None:
                if harness.stop.is_set():
                    raise Interrupted("Interrupted.")
                if time.monotonic() > end:
                    return f"it was ended after {harness.wall_seconds:g} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
        finally:
            _end(process)
        output.seek(max(output.seek(0, os.SEEK_END) - 4000, 0))
        return output.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all its descendants; the kernel has a separate process group."""
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


def _result(report: Path, output: str, rebuilt: Rebuilt) -> RunResult:
    """Read the report of the plugin. If the report is not complete, the run is broken."""
    try:
        record = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        lines = [line for line in output.strip().splitlines() if line.strip()]
        return RunResult(
            {},
            output
            if output.startswith("it was ended")
            else f"the run gave no result: {lines[-1] if lines else 'no output'}",
        )
    names = [cell["metadata"]["labkit"]["cell"] for cell in rebuilt.notebook["cells"]]
    cells = {name: CellResult(**record[name]) for name in names if name in record}
    broken = next((f"cell {name!r}: {cell.message}" for name, cell in cells.items() if cell.error == "Broken"), "")
    setup = cells.get(SETUP_CELL)
    if setup and not setup.passed:
        broken = f"the sandbox did not start: {setup.message}"
    if not broken and len(cells) < len(names):
        broken = "the run ended before its last cell"
    return RunResult(cells, broken)
