"""Tries the wheel outside the checkout, with the oldest and the newest versions of all packages that `pyproject.toml` allows.

    python -m tests.dev.versions [--keep FOLDER] [--python PATH ...] [-- ARGUMENTS OF PYTEST]

By default it uses the oldest and the newest Python of this machine that labkit supports. For each, and for the oldest and the
newest versions, it makes a virtual environment with the wheel, and runs tests in the unpacked source distribution, without its
folder `labkit`: there they, their processes and their notebooks import the installed package. The tests are the first command of
the README in a browser, all examples of the documents, the start notebook, the command line, runs on processes, and what may
depend on a version. Packages are not compiled: "oldest" is the lowest allowed version that has a wheel for this Python.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import uv

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("test", "grade", "browser")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
RUNS = [  # arguments of pytest; the browser has a run of its own, because Playwright and nbval each need the thread's event loop
    ["tests/browser/test_first_command.py"],
    ["-m", "", "tests/test_readme.py", "tests/test_documents.py", "tests/dask/test_scripts.py", "notebooks/00_start_here.ipynb"],
    ["tests/cli", "tests/course/test_cli.py", "tests/engines", "tests/results", "tests/lab", "tests/views", "tests/data",
     "tests/nn", "tests/models", "tests/dask/test_start.py", "tests/dask/test_kill.py"],
]  # fmt: skip


def call_uv(*words: object) -> None:
    """Run uv in the checkout. It downloads packages, but no Python."""
    subprocess.run([uv.find_uv_bin(), *map(str, words), "--quiet", "--no-python-downloads"], cwd=ROOT, check=True)


def version_of(python: Path) -> tuple[int, ...] | None:
    """Return (major, minor); None for a command of pyenv while another version is selected."""
    done = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def pythons() -> list[Path]:
    """Return the oldest and the newest Python of this machine that labkit supports; those of pyenv are considered, too."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = tuple(map(int, required.removeprefix(">=").split(".")))
    on_path = [shutil.which(f"python3.{minor}") for minor in range(oldest[1], oldest[1] + 20)]
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("*/bin/python3")
    found = {version_of(path): path for path in [Path(sys.executable), *map(Path, filter(None, on_path)), *of_pyenv]}
    allowed = sorted(version for version in found if version and version >= oldest)
    return [found[version] for version in dict.fromkeys([allowed[0], allowed[-1]])]


def install(folder: Path, python: Path, resolution: str, wheel: Path) -> Path:
    """Make a virtual environment with labkit from the wheel, and what it and the tests need. Return its Python."""
    call_uv("venv", "--clear", "--python", python, folder)
    within, needed = folder / "bin" / "python", folder / "requirements.txt"
    options = ["--no-build", "--python", within]
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    call_uv("pip", "compile", *options, "--resolution", resolution, *extras, "pyproject.toml", "--output-file", needed)
    call_uv("pip", "install", *options, "--compile-bytecode", "--requirements", needed, wheel)
    return within


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the environments in this folder")
    options.add_argument("--python", action="append", type=Path, help="its path, instead of the oldest and the newest")
    options.add_argument("arguments", nargs="*", help="of pytest, instead of all that is tried by default")
    given = options.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.keep or Path(temporary)).resolve()
        call_uv("build", "--out-dir", temporary, ROOT)
        (source,), (wheel,) = Path(temporary).glob("*.tar.gz"), Path(temporary).glob("*.whl")
        shutil.unpack_archive(source, temporary)
        copy = Path(temporary) / source.name.removesuffix(".tar.gz")
        shutil.rmtree(copy / "labkit")
        for python in given.python or pythons():
            for name, resolution in RESOLUTIONS.items():
                where = f"python{'.'.join(map(str, version_of(python) or ()))}-{name}"
                print(f"== {where}", flush=True)
                within = install(folder / where, python, resolution, wheel)
                for arguments in [given.arguments] if given.arguments else RUNS:
                    done = subprocess.run([within, "-m", "pytest", "-n", "auto", *arguments], cwd=copy)
                    failed += [f"{where}: {' '.join(arguments)}"] if done.returncode else []
    print("\n".join(["failed:", *failed]) if failed else "passed with all versions")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
