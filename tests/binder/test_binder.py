"""The files of `binder/` agree with each other, with pyproject.toml and with the guide."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NEEDED = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
NEEDED += PROJECT["project"]["optional-dependencies"]["grade"]  # students check their work there
GUIDE = (ROOT / "docs" / "guides" / "binder.md").read_text()
SCRIPTS = ("postBuild", "start")
OVERRIDES = ROOT / "labkit" / "cli" / "jupyter" / "labconfig" / "default_setting_overrides.json"


def pins():
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    versions = {canonicalize_name(r.name): next(iter(r.specifier)) for r in found}
    assert len(versions) == len(found)  # none twice
    return versions


def python():
    """As runtime.txt has it: "3.11"."""
    return re.fullmatch(r"python-(\d+\.\d+)\n", (BINDER / "runtime.txt").read_text())[1]


# pins -----------------------------------------------------------------------------------------------------------------


def test_all_requirements_are_pinned():
    for name, pin in pins().items():
        assert (pin.operator, "*" in pin.version) == ("==", False), name


def test_pins_satisfy_the_requirements_of_labkit():
    assert len(NEEDED) > 10
    for needed in map(Requirement, NEEDED):
        assert needed.specifier.contains(pins()[canonicalize_name(needed.name)].version), needed


def test_pins_satisfy_the_requirements_of_all_pinned_packages():
    """Checks packages that are installed here in the pinned version; the slow test checks all of them."""
    checked = 0
    for name, pin in pins().items():
        try:
            here = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if here.version != pin.version:
            continue
        checked += 1
        for needed in map(Requirement, here.requires or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                pinned = pins()[canonicalize_name(needed.name)]
                assert needed.specifier.contains(pinned.version), f"{name} needs {needed}"
    print(f"{checked} of {len(pins())} are installed here in the pinned version")


def test_the_python_version_is_supported_and_tested():
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(f"{python()}.0")
    assert python() == PROJECT["tool"]["mypy"]["python_version"]


# scripts --------------------------------------------------------------------------------------------------------------


def test_scripts_use_strict_bash_and_are_executable():
    for name in SCRIPTS:
        lines = (BINDER / name).read_text().splitlines()
        code = [line for line in lines if line and not line.startswith("#")]
        assert lines[0] == "#!/usr/bin/env bash", name
        assert code[0] == "set -euo pipefail", name
        assert subprocess.run(["bash", "-n", BINDER / name], timeout=180).returncode == 0, name
        assert os.access(BINDER / name, os.X_OK), name
        listed = subprocess.run(["git", "ls-files", "-s", f"binder/{name}"], cwd=ROOT, capture_output=True, text=True)
        assert listed.stdout == "" or listed.stdout.startswith("100755"), name  # "": no git here, or not added yet


def start(*command, **variables):
    return subprocess.run(
        [BINDER / "start", *command], env={**os.environ, **variables}, capture_output=True, text=True, timeout=180
    )


def test_the_start_script_executes_the_command_in_its_own_process():
    code = "import os; print(os.getppid(), os.environ['OPENBLAS_NUM_THREADS'])"
    done = start(sys.executable, "-c", code, "two words")
    assert done.stdout == f"{os.getpid()} 1\n"  # no shell in between: signals arrive
    assert start(sys.executable, "-c", "import sys; sys.exit(7)").returncode == 7


def test_a_failing_step_stops_the_build(tmp_path):
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    done = subprocess.run([BINDER / "postBuild"], env={**os.environ, "NB_PYTHON_PREFIX": str(tmp_path)}, timeout=180)
    assert done.returncode == 3
    assert not (tmp_path / "share").exists()


def test_the_build_requires_the_folder_variable(tmp_path):
    without = {name: value for name, value in os.environ.items() if name != "NB_PYTHON_PREFIX"}
    done = subprocess.run([BINDER / "postBuild"], env=without, capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    assert "NB_PYTHON_PREFIX" in done.stderr


# JupyterLab's settings ------------------------------------------------------------------------------------------------


def test_overrides_are_valid_jupyterlab_settings():
    schemas = Path(sys.prefix) / "share" / "jupyter" / "lab" / "schemas"
    overrides = json.loads(OVERRIDES.read_text())
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"  # no news dialog
    for plugin, settings in overrides.items():
        package, _, name = plugin.partition(":")
        schema = json.loads((schemas / package / f"{name}.json").read_text())
        for key, value in settings.items():
            allowed = schema["properties"][key]
            assert isinstance(value, {"string": str, "boolean": bool}[allowed["type"]])
            assert "oneOf" not in allowed or value in [choice["const"] for choice in allowed["oneOf"]]


# links ----------------------------------------------------------------------------------------------------------------


def opened():
    """The paths in JupyterLab that the guide's links open, all of one repository and branch."""
    links = [urlsplit(link) for link in re.findall(r"https://mybinder\.org/v2/\S+", GUIDE)]
    assert {link.path for link in links} == {"/v2/gh/OWNER/labkit/main"}  # the account is for the reader to fill in
    return [unquote(parse_qs(link.query)["urlpath"][0]) for link in links]


def test_the_links_open_the_start_notebook_and_the_assignments():
    assert opened() == ["lab/tree/notebooks/00_start_here.ipynb", "lab/tree/notebooks/assignments"]
    assert all((ROOT / path.removeprefix("lab/tree/")).exists() for path in opened())


def test_no_other_document_has_a_placeholder():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.*")]
    assert [page.name for page in pages if re.search(r"\bOWNER\b", page.read_text())] == ["binder.md"]


def test_the_first_cell_warns_that_changes_are_lost():
    cells = json.loads((ROOT / "notebooks" / "00_start_here.ipynb").read_text())["cells"]
    first = "".join(cells[0]["source"])
    for words in ("Binder", "forgets", "ten idle minutes", "Download", "lab.share_text()", "lk.Lab.from_share_text("):
        assert words in first
