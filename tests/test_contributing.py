"""CONTRIBUTING.md, the workflow, the hooks of pre-commit, the templates and CITATION.cff agree with the project."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
QUOTED = re.findall(r"`([^`\n]+)`", TEXT)
PATHS = sorted({quoted for quoted in QUOTED if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:py|md|toml)", quoted)})
COMMANDS = re.findall(r"^ *(?:pytest|python -m|python) .*(?:\\\n.*)*", TEXT, re.MULTILINE) + QUOTED


# CONTRIBUTING.md ------------------------------------------------------------------------------------------------------


def test_it_names_paths():
    assert len(PATHS) > 25


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    "path", sorted({path for command in COMMANDS for path in re.findall(r"\b(?:tests|notebooks)/[\w./*-]+", command)})
)
def test_every_path_in_a_command_exists(path):
    example = "tests/results/test_every_second.py"  # the contributor's own file
    assert path == example or list(ROOT.glob(path))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("FAMILIES", "labkit/strategies/__init__.py"), ("FORMULAS", "labkit/advisor/advise.py"),
        ("THEORY", "benchmarks/slow_worker.py"), ("OPTIONS", "tests/digests/digest_runs.py"),
        ("EXPECTED", "tests/narrative/test_sentence.py"), ("PANELS", "labkit/views/plots.py"), ("LAYER_OF", "conftest.py"),
    ],
)  # fmt: skip
def test_the_tables_are_in_the_files_that_it_names(name, file):
    assert f"`{name}`" in TEXT
    assert f"`{file}`" in TEXT
    assert re.search(rf"^{name}\b.* = ", (ROOT / file).read_text(), re.MULTILINE)


def test_it_names_every_layer_of_the_tests():
    layers = re.search(r'^LAYERS = \((.*)\)', (ROOT / "conftest.py").read_text(), re.MULTILINE)
    assert set(re.findall(r'"(\w+)"', layers[1])) <= set(QUOTED)


def test_the_options_of_the_build_of_the_site_exist():
    from docs.__main__ import main

    known = {option for parameter in main.params for option in parameter.opts}
    used = set(re.findall(r"python -m docs (--[\w-]+)", TEXT))
    assert "--check" in used <= known


def test_the_sections_of_the_design_document_are_those_it_names():
    sections = dict(re.findall(r"^## (\d+)\. (.*)", (ROOT / "DESIGN.md").read_text(), re.MULTILINE))
    assert (sections["2"], sections["6"], sections["7"]) == ("Layers", "Where to add what", "Decisions")


# continuous integration -----------------------------------------------------------------------------------------------


def test_the_workflow_runs_all_checks():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    listed = subprocess.run(["git", "ls-files", "-s", ".ci/run"], cwd=ROOT, capture_output=True, text=True).stdout
    assert listed == "" or listed.startswith("100755")  # "": no git here


def test_the_workflow_keeps_the_screenshots_where_the_checks_put_them():
    (upload,) = [s for j in WORKFLOW["jobs"].values() for s in j["steps"] if "upload-artifact" in s.get("uses", "")]
    assert f"LABKIT_SCREENSHOTS={upload['with']['path']} " in CI


def test_the_workflow_installs_the_programs_that_the_checks_look_for():
    (install,) = [
        s["run"] for j in WORKFLOW["jobs"].values() for s in j["steps"] if "apt-get" in s.get("run", "")
    ]
    for package in ("chromium", "fonts-dejavu-core", "iproute2", "openssh-server"):
        assert package in install
        assert package in CI


def test_the_hooks_are_the_static_checks_of_the_continuous_integration():
    entries = [hook["entry"] for repository in HOOKS for hook in repository["hooks"]]
    static = re.findall(r"^ *((?:ruff|mypy)\b.*)$", CI, re.MULTILINE)
    assert entries == static == ["ruff check .", "mypy"]


def test_the_checks_begin_with_the_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    (install,) = re.findall(r"^python3 -m venv .* && (pip install .*) && pytest$", readme, re.MULTILINE)
    after = CI[CI.index(install.replace("install", "install --quiet")) :]
    assert re.search(r"^pytest.*$", after, re.MULTILINE)[0] == "pytest || failed=1"


# templates and citation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_issue_forms_have_what_github_requires(form):
    given = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= set(given)
    fields = [field for field in given["body"] if field["type"] != "markdown"]
    assert fields
    assert all(field["type"] in ("input", "textarea", "dropdown", "checkboxes") for field in fields)
    assert all(field["attributes"]["label"] for field in fields)
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_there_are_forms_for_bugs_features_and_questions():
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]


def test_the_citation_file_is_valid_and_agrees_with_the_project():
    given = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    allowed = {"abstract", "authors", "cff-version", "keywords", "license", "message", "title", "type", "version"}
    assert {"cff-version", "message", "title", "authors"} <= set(given) <= allowed
    assert given["cff-version"] == "1.2.0"
    assert given["type"] == "software"
    assert str(given["version"]) == PROJECT["version"]
    assert given["license"] == PROJECT["license"]
    assert given["authors"] == PROJECT["authors"]
    assert given["keywords"] == PROJECT["keywords"]
    json.dumps(given)  # plain values only: a date without quotes is not text
