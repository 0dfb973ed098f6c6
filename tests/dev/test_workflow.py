"""The workflow, the hooks of pre-commit, the issue forms and CITATION.cff agree with the project."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CI = (ROOT / ".ci" / "run").read_text()
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# continuous integration -----------------------------------------------------------------------------------------------


def test_the_workflow_runs_all_checks():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    listed = subprocess.run(["git", "ls-files", "-s", ".ci/run"], cwd=ROOT, capture_output=True, text=True).stdout
    assert listed == "" or listed.startswith("100755")  # "": no git here


def test_the_workflow_keeps_screenshots_and_durations_where_the_checks_put_them():
    (upload,) = [s for j in WORKFLOW["jobs"].values() for s in j["steps"] if "upload-artifact" in s.get("uses", "")]
    assert f"LABKIT_SCREENSHOTS={upload['with']['path']}/screenshots " in CI
    durations = re.findall(r"--junitxml=(\S+)", CI)
    assert len(durations) >= 3
    assert all(path.startswith(f"{upload['with']['path']}/durations/") for path in durations)


def test_the_workflow_installs_the_programs_that_the_checks_look_for():
    (install,) = [s["run"] for j in WORKFLOW["jobs"].values() for s in j["steps"] if "apt-get" in s.get("run", "")]
    for package in ("chromium", "fonts-dejavu-core", "iproute2", "openssh-server"):
        assert package in install
        assert package in CI


def test_the_hooks_are_the_static_checks_of_the_continuous_integration():
    entries = [hook["entry"] for repository in HOOKS for hook in repository["hooks"]]
    static = re.findall(r"^ *step \w+ ((?:ruff|mypy)\b.*?)(?: \|\| true)?$", CI, re.MULTILINE)
    assert entries == static == ["ruff check .", "ruff format --check .", "mypy"]


def test_the_checks_run_all_tests_in_the_environment_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    (extra, command) = re.findall(
        r'^python3 -m venv .* && pip install -e "\.\[(.*)\]" && (pytest.*)$', readme, re.MULTILINE
    )[0]
    assert '    step "install of [$3]" $2 --quiet -e ".[$3]"\n' in CI
    (environment,) = re.findall(r'^environment \w+ (".*"|\S+) (\S+)$', CI, re.MULTILINE)
    assert environment == ('"pip install"', extra)
    assert f'\nstep "tests" {command} -m "" --junitxml' in CI


# templates and citation -----------------------------------------------------------------------------------------------


def test_issue_forms_have_what_github_requires():
    assert [path.stem for path in FORMS] == ["bug", "feature", "question"]
    for form in FORMS:
        given = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= set(given), form.name
        fields = [field for field in given["body"] if field["type"] != "markdown"]
        assert fields, form.name
        assert all(field["type"] in ("input", "textarea", "dropdown", "checkboxes") for field in fields), form.name
        assert all(field["attributes"]["label"] for field in fields), form.name
        ids = [field["id"] for field in fields]
        assert len(set(ids)) == len(ids), form.name
        assert any(field.get("validations", {}).get("required") for field in fields), form.name


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
