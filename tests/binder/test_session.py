"""A session as on Binder, without Docker: an environment of the files in `binder/` only, on one CPU and 2 GB.

The limits are set by control groups if this user can create them; else by CPU affinity, and memory is only sampled.
With `-s`, the method and the memory per process are printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.binder_session import ROOT, Session, build, groups

pytestmark = [
    pytest.mark.slow,
    pytest.mark.dask,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from Linux's /proc"),
]
MAX_SESSION_BYTES = 1_200_000_000  # bytes that a session may take
VERSION = (ROOT / "binder" / "runtime.txt").read_text().strip().removeprefix("python-")
ASSIGNMENTS = Path("notebooks") / "assignments"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    here = "{}.{}".format(*sys.version_info)
    python = getattr(sys, "_base_executable", sys.executable) if here == VERSION else shutil.which(f"python{VERSION}")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {VERSION} here, which binder/runtime.txt names (this is {here})")
    folder = tmp_path_factory.mktemp("binder")
    yield build(folder, python)
    shutil.rmtree(folder)  # half a gigabyte


def ask(environment, code):
    command = [environment.prefix / "bin" / "python", "-c", code]
    done = subprocess.run(command, env=environment.variables(), cwd=environment.home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_environment_has_the_pinned_packages_and_labkit(environment):
    code = "import importlib.metadata as m; print(*{f'{d.name}=={d.version}' for d in m.distributions()})"
    installed = {re.sub(r"[-_.]+", "-", text).lower() for text in ask(environment, code)}
    lines = (ROOT / "binder" / "requirements.txt").read_text().lower().splitlines()
    pinned = {re.sub(r"[-_.]+", "-", line) for line in lines if line and not line.startswith("#")}
    assert pinned <= installed
    extra = {text.partition("==")[0] for text in installed - pinned}
    assert extra - {"pip", "setuptools"} == {"labkit-distributed"}
    check = [environment.prefix / "bin" / "python", "-m", "pip", "check"]
    assert subprocess.run(check, env=environment.variables(), capture_output=True).returncode == 0


def test_labkit_is_installed_as_a_copy(environment):
    (where,) = ask(environment, "import labkit; print(labkit.__file__)")
    assert Path(where).is_relative_to(environment.prefix)


def test_jupyterlab_applies_the_overrides(environment):
    there = environment.prefix / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    assert there.read_bytes() == (ROOT / "labkit/cli/jupyter/labconfig/default_setting_overrides.json").read_bytes()


def first_assignment():
    found = sorted((ROOT / ASSIGNMENTS).glob("*.ipynb"))
    return pytest.param(found[0].relative_to(ROOT), id=found[0].name)


@pytest.mark.parametrize(
    "notebook", [Path("notebooks/00_start_here.ipynb"), first_assignment()], ids=lambda path: path.name
)
def test_a_session_stays_within_its_memory_and_leaves_no_process(environment, notebook, request):
    """The start notebook from end to end. An unsolved assignment stops at a cell that reports it."""
    solved = ASSIGNMENTS not in notebook.parents
    with groups() as control_groups, Session(environment, control_groups) as session:
        session.run(environment.repo / notebook, errors=not solved)
        left = session.left()
    kind = (
        f"control groups {', '.join(str(group.parent) for group in control_groups)}"
        if control_groups
        else "CPU affinity only"
    )
    print(f"\n{notebook.name}, held by {kind} (this machine has {os.cpu_count()} CPUs)\n{session.memory}")
    assert not left
    assert session.memory.samples > 10
    assert 100_000_000 < session.memory.pss < MAX_SESSION_BYTES  # a session without memory was not measured
    assert session.memory.uss < MAX_SESSION_BYTES
