"""Tries labkit with the oldest and with the newest version of Dask that `pyproject.toml` allows.

    python -m tests.dev.dask_versions [--keep FOLDER] [tests ...]

For each it makes a virtual environment, installs labkit with this version of dask and distributed, and runs the tests: by default
those of the private interfaces (`labkit/engines/dask/dask_private.py`), and the quick ones of runs on processes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["tests/engines/dask", "tests/dask/test_start.py", "tests/dask/test_kill.py", "tests/dask/test_scripts.py"]


def requirements() -> dict[str, list[str]]:
    """Return the requirements to install in addition to labkit, by the name of the environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dask = [text.split("#")[0].strip() for text in project["dependencies"] if text.startswith(("dask", "distributed"))]
    return {"oldest": [f"{text.replace('>=', '==')}.*" for text in dask], "newest": ["--upgrade", *dask]}


def run(name: str, packages: list[str], folder: Path, tests: list[str]) -> bool:
    """Make the environment in `folder` and run the tests in it. Returns whether they passed."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[test]", *packages], check=True)
    version = subprocess.check_output([python, "-c", "import distributed; print(distributed.__version__)"], text=True)
    print(f"{name}: distributed {version.strip()}", flush=True)
    return subprocess.run([python, "-m", "pytest", "-n", "0", *tests], cwd=ROOT).returncode == 0


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the environments in this folder")
    options.add_argument("tests", nargs="*", default=TESTS)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        failed = [name for name, packages in requirements().items() if not run(name, packages, folder, given.tests)]
    print(f"failed with the {' and the '.join(failed)} version" if failed else "passed with both versions")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
