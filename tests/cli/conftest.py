"""Fixtures that call the command line: in this process if possible, in a separate process where it matters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import invoke

ROOT = Path(__file__).parents[2]


@pytest.fixture
def labkit():
    """`labkit("simulate", "--json")` -> a result with exit_code, stdout and stderr."""
    return invoke


@pytest.fixture
def labkit_process():
    """The same in a separate process; `prefix`: words before the command, `env`: additional environment variables."""

    def call(*words, prefix=(), **env):
        command = [*prefix, sys.executable, "-m", "labkit", *map(str, words)]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONPATH": paths, **env}, timeout=180)

    return call
