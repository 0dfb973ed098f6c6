"""A Binder session without Docker: an environment built from the files in `binder/`, on one CPU and 2 GB.

Every process of a session inherits an environment variable with a unique value and is found by it, also after its
parent has changed. Memory is added up without counting shared pages twice.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .front_end import FrontEnd

ROOT = Path(__file__).resolve().parents[1]
MARK = "LABKIT_BINDER_SESSION"
MEMORY = 2 << 30  # memory limit of a session on Binder, bytes
EVERY = 0.25  # seconds between two samples of the memory
# at most: to install, to run something, for the last process to go
BUILD_S, STEP_S, EXIT_TIMEOUT_S = 900.0, 300.0, 20.0
NOT_COPIED = (".*", "__pycache__", "build", "dist", "*.egg-info", "dask-scratch-space")


@dataclass(frozen=True)
class Environment:
    """`prefix`: the environment; `repo`: the checkout; `home`: the home folder of its sessions."""

    prefix: Path
    repo: Path
    home: Path

    def variables(self, **more: str) -> dict[str, str]:
        """Environment variables of its processes: none of the Python that runs the tests."""
        strange = (
            "PYTHON",
            "VIRTUAL_ENV",
            "PYTEST",
            "JUPYTER",
            "IPYTHON",
            "MPL",
            "LABKIT",
            "DASK",
            "OMP_",
            "OPENBLAS_",
        )
        own = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
        path = os.pathsep.join([str(self.prefix / "bin"), os.environ.get("PATH", os.defpath)])
        return {**own, "PATH": path, "HOME": str(self.home), "NB_PYTHON_PREFIX": str(self.prefix), **more}


def build(folder: Path, python: str) -> Environment:
    """Do what repo2docker does with `binder/`: install the pins, then run postBuild in the checkout. Modules are compiled only
    when they are imported; most of them never are.

    The pins are installed by uv, which takes a fifth of pip's processor time; by pip if there is no uv, or if uv, which does not
    read pip's configuration, fails.
    """
    made = Environment(folder / "env", folder / "repo", folder / "home")
    shutil.copytree(ROOT, made.repo, ignore=shutil.ignore_patterns(*NOT_COPIED))
    made.home.mkdir()
    if os.path.realpath(python) == os.path.realpath(sys.executable):
        venv.create(made.prefix, with_pip=True, symlinks=True)
    else:
        subprocess.run([python, "-m", "venv", made.prefix], check=True, timeout=STEP_S)
    there = made.prefix / "bin" / "python"
    uv = [shutil.which("uv") or "uv", "pip", "install", "--python", there]
    pip = [there, "-m", "pip", "install", "--no-compile"]
    pins = ["--quiet", "-r", "binder/requirements.txt"]
    with_settings = made.variables(HOME=os.environ.get("HOME", str(made.home)))
    try:
        _run([*uv, *pins], made.repo, with_settings, BUILD_S)
    except (OSError, RuntimeError):
        _run([*pip, *pins], made.repo, with_settings, BUILD_S)
    _run(["binder/postBuild"], made.repo, made.variables(), STEP_S)
    return made


def _run(command: list[object], where: Path, variables: dict[str, str], seconds: float) -> None:
    done = subprocess.run(
        [str(word) for word in command], cwd=where, env=variables, timeout=seconds, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


# one CPU and 2 GB -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def groups() -> Iterator[list[Path]]:
    """Control groups of one CPU and 2 GB, as far as this user can create them, of version 1 or 2; removed afterwards."""
    top, made = Path("/sys/fs/cgroup"), []
    name = f"labkit-session-{secrets.token_hex(4)}"
    wanted = [
        (top / "memory" / name, {"memory.limit_in_bytes": str(MEMORY)}),
        (top / "cpu" / name, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}),
    ]
    if (top / "cgroup.controllers").exists():
        wanted = [(top / name, {"memory.max": str(MEMORY), "cpu.max": "100000 100000"})]
    for folder, files in wanted:
        with contextlib.suppress(OSError):
            folder.mkdir()
            made.append(folder)
            for file, text in files.items():
                (folder / file).write_text(text)
    try:
        yield [folder for folder in made if (folder / "cgroup.procs").exists()]
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


# memory ---------------------------------------------------------------------------------------------------------------


@dataclass
class Memory:
    """The largest sums observed, bytes. `pss`: shared pages in equal parts; `uss`: pages of one process only."""

    pss: int = 0
    uss: int = 0
    samples: int = 0
    parts: list[tuple[int, str]] = field(default_factory=list)  # (pss, command) at the largest sum

    def look(self, pids: list[int]) -> int:
        """Add one sample of these processes, and return its PSS."""
        found = [(*sums, _command(pid)) for pid in pids if (sums := _private(pid)) is not None]
        self.samples += 1
        self.uss = max(self.uss, sum(uss for _, uss, _ in found))
        if (total := sum(pss for pss, _, _ in found)) > self.pss:
            self.pss, self.parts = total, sorted(((pss, command) for pss, _, command in found), reverse=True)
        return total

    def __str__(self) -> str:
        mega = [f"{pss >> 20} MiB {command}" for pss, command in self.parts]
        head = (
            f"PSS at most {self.pss >> 20} MiB, USS at most {self.uss >> 20} MiB, {self.samples} samples; then it was"
        )
        return "\n  ".join([head, *mega])


def _private(pid: int) -> tuple[int, int] | None:
    """(PSS, USS) of a process in bytes; None if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    kilo = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return kilo["Pss"] << 10, (kilo["Private_Clean"] + kilo["Private_Dirty"]) << 10


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100]
    return "?"


# a session ------------------------------------------------------------------------------------------------------------


class Session:
    """JupyterLab behind `binder/start`, on one CPU; and notebooks that run in it. `memory` is sampled all the time."""

    def __init__(self, environment: Environment, control_groups: list[Path]):
        self.environment, self.memory, self.token = environment, Memory(), secrets.token_hex(16)
        self._control_groups, self._mark = control_groups, secrets.token_hex(16)
        self._log = environment.home / "server.log"
        self._core = min(os.sched_getaffinity(0))
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Session:
        root = ["--allow-root"] if os.geteuid() == 0 else []
        options = ["--no-browser", "--expose-app-in-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", *root]
        self._sampler.start()
        with self._log.open("w") as log:
            self.server = self._start(["jupyter-lab", *options, f"--IdentityProvider.token={self.token}"], log)
        return self

    def address(self) -> str:
        """Return the address of the server, as soon as it listens. RuntimeError if it has ended."""
        while self.server.poll() is None:
            if found := re.search(r"(http://127\.0\.0\.1:\d+/)lab\?token=", self._log.read_text()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"JupyterLab has ended: {self._log.read_text()[-2000:]}")

    @contextlib.contextmanager
    def kernel(self) -> Iterator[FrontEnd]:
        """Start a kernel of the session, and a front end that acknowledges frames. Both end with the context."""
        from jupyter_client.connect import write_connection_file

        file, connection = write_connection_file(
            str(self.environment.home / "kernel.json"), key=secrets.token_hex(16).encode()
        )
        process = self._start(
            ["python", "-m", "ipykernel_launcher", "-f", file, "--log-level=ERROR"], subprocess.DEVNULL
        )
        try:
            with contextlib.closing(FrontEnd(connection)) as front_end:
                front_end.wait_until_ready()
                yield front_end
        finally:
            process.kill()
            process.wait()

    def pss(self) -> int:
        """Return the present PSS of all processes of the session, bytes."""
        return self.memory.look(self._pids())

    def run(self, notebook: Path, errors: bool = False) -> str:
        """Run all cells of a notebook of the checkout with nbclient; return the output. AssertionError if one fails.

        `errors`: after a cell that fails, the next one is run.
        """
        options = [f"--timeout={STEP_S:g}", *(["--allow-errors"] if errors else [])]
        process = self._start(["jupyter-execute", *options, str(notebook)], subprocess.PIPE)
        try:
            said, _ = process.communicate(timeout=STEP_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{notebook.name} did not end within {STEP_S:g} s") from None
        assert process.returncode == 0, f"{notebook.name} failed:\n{said[-4000:]}"
        return str(said)

    def left(self) -> list[str]:
        """The processes besides the server that still exist after a grace period."""
        for pid in self._pids():
            if pid != self.server.pid:
                with contextlib.suppress(ProcessLookupError):
                    ended = os.pidfd_open(pid)
                    select.select([ended], [], [], EXIT_TIMEOUT_S)
                    os.close(ended)
        return [_command(pid) for pid in self._pids() if pid != self.server.pid]

    def __exit__(self, *exc: object) -> None:
        self.server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(EXIT_TIMEOUT_S)
        for pid in self._pids():  # no process outlives the test, also after a failure
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        self.server.wait()
        self._ended.set()
        self._sampler.join()

    def _start(self, command: list[str], output: Any) -> subprocess.Popen[str]:
        def confine() -> None:
            os.sched_setaffinity(0, {self._core})
            for group in self._control_groups:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        first, *rest = command
        return subprocess.Popen(
            [self.environment.repo / "binder" / "start", self.environment.prefix / "bin" / first, *rest],
            cwd=self.environment.repo, env=self.environment.variables(**{MARK: self._mark}), preexec_fn=confine,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def _pids(self) -> list[int]:
        mark, found = f"{MARK}={self._mark}".encode(), []
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):  # gone, or of another user
                    environment = Path(entry.path, "environ").read_bytes().split(b"\0")
                    if (
                        mark in environment
                        and Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                    ):
                        found.append(int(entry.name))
        return found

    def _sample(self) -> None:
        while not self._ended.wait(EVERY):
            self.memory.look(self._pids())
