"""The wheel holds the package, the files that the lab page reads, and the notebooks; no caches, no tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHES = {"__pycache__", ".ipynb_checkpoints"}
SOURCES = {"labkit": "labkit", "notebooks": "labkit/notebooks"}  # folder of the checkout: folder of the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the checkout in which notebooks were opened, and so have checkpoints."""
    top = tmp_path_factory.mktemp("packaging")
    copy = top / "checkout"
    for folder in (*SOURCES, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns(*CACHES))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / file, copy / file)
    for folder in ("notebooks", "notebooks/assignments", "labkit/lab"):
        checkpoints = copy / folder / ".ipynb_checkpoints"
        checkpoints.mkdir()
        (checkpoints / "00_start_here-checkpoint.ipynb").write_text("{}")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", top]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    (built,) = top.glob("*.whl")
    return built


def test_the_wheel_holds_exactly_the_files_of_the_package_and_the_notebooks(wheel):
    expected = set()
    for folder, packed in SOURCES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not CACHES.intersection(path.parts):
                expected.add(f"{packed}/{path.relative_to(ROOT / folder).as_posix()}")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {"labkit/lab/page/page.js", "labkit/lab/page/style.css", "labkit/notebooks/00_start_here.ipynb"} <= held


def test_the_package_is_imported_from_a_zip_file(wheel, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import labkit as lk; print(lk.__file__);"
        "print(lk.train('digits', lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=3)).wait().stopped_by)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.stdout.split() == [f"{wheel}/labkit/__init__.py", "updates"], done.stderr


def test_the_page_reads_its_files_from_the_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import labkit.lab.guess as p, labkit.lab.page.widget as w;"
        " print(w.__file__, len(w.PageWidget._esm) > 1000, len(p.Guess('?', 'a', 'b').question))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.stdout.split() == [str(tmp_path / "labkit/lab/page/widget.py"), "True", "1"], done.stderr
