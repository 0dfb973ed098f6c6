"""`labkit strategies`, `lab`, `doctor`, `--help`: what they print, what they start, and what they do not change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.cli import checks, notebooks
from labkit.engines import machine_limits
from labkit.errors import BadInput
from labkit.options import options_of
from labkit.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]


def test_every_line_of_strategies_starts_with_its_name(labkit):
    lines = labkit("strategies").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_options_of_a_strategy_are_those_of_its_declaration(labkit, name):
    lines = labkit("strategies", "--options", name).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(options_of(STRATEGIES[name]))


@pytest.mark.slow
def test_help_imports_nothing_heavy(labkit_process):
    heavy = {"numpy", "dask", "distributed", "matplotlib", "rich", "ipywidgets"}
    code = "import sys; from labkit.cli import main; main(['--help'], standalone_mode=False)"
    code += f"; print({heavy} & {{*sys.modules}})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "set()"
    assert labkit_process("--help").returncode == 0


# lab ------------------------------------------------------------------------------------------------------------


def notebooks_in(folder):
    (folder / "data").mkdir(parents=True)
    (folder / notebooks.FIRST).write_text("first")
    (folder / "data" / "table.csv").write_text("1,2")


def test_a_checkout_opens_its_own_notebooks(tmp_path):
    notebooks_in(tmp_path / "notebooks")
    (tmp_path / "pyproject.toml").touch()
    assert notebooks.find_notebooks(tmp_path / "labkit", tmp_path / "elsewhere") == tmp_path / "notebooks"


def test_an_installed_package_copies_its_notebooks_and_keeps_the_users_files(tmp_path):
    package, here = tmp_path / "site-packages" / "labkit", tmp_path / "home"
    notebooks_in(package / "notebooks")
    here.mkdir()
    copies = notebooks.find_notebooks(package, here)
    assert copies == here / "labkit-notebooks"
    (copies / notebooks.FIRST).write_text("the user's work")
    (copies / "data" / "table.csv").unlink()
    notebooks.find_notebooks(package, here)
    assert (copies / notebooks.FIRST).read_text() == "the user's work"
    assert (copies / "data" / "table.csv").read_text() == "1,2"


def test_without_notebooks_lab_says_where_it_looked(tmp_path):
    with pytest.raises(BadInput, match="install labkit again"):
        notebooks.find_notebooks(tmp_path / "labkit", tmp_path)


def test_lab_becomes_jupyterlab_of_this_python(labkit, monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(notebooks, "become", commands.append)
    monkeypatch.setattr(notebooks, "find_notebooks", lambda *_: tmp_path)
    assert labkit("lab", "--no-browser", "--port", 9123, "--", "--ServerApp.token=x").exit_code == 0
    assert commands[0][:3] == [sys.executable, "-m", "jupyterlab"]
    assert commands[0][3:5] == [f"--ServerApp.root_dir={tmp_path}", f"--LabApp.default_url=/lab/tree/{notebooks.FIRST}"]
    assert {"--no-browser", "--port=9123", "--ServerApp.token=x"} <= set(commands[0])


# doctor ------------------------------------------------------------------------------------------------------------


def fixed(*states):
    return (lambda: iter([checks.Line(f"check {i}", state, "value", "advice") for i, state in enumerate(states)]),)


def test_doctor_is_content_with_warnings_and_fails_on_problems(labkit, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", fixed(checks.OK, checks.WARNING))
    result = labkit("doctor")
    assert result.exit_code == 0
    assert "labkit can work here (1 warning)." in result.stdout
    monkeypatch.setattr(checks, "CHECKS", fixed(checks.OK, checks.PROBLEM))
    assert labkit("doctor").exit_code == 1
    result = labkit("doctor", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["usable"] is False
    assert [line["state"] for line in said["checks"]] == ["ok", "problem"]


QUICK = [checks.versions, checks.cpus, checks.memory, checks.ports, checks.temporary_folder]


@pytest.mark.parametrize("check", QUICK, ids=lambda check: check.__name__)
def test_no_check_finds_a_problem_where_the_tests_run(check):
    lines = list(check())
    assert lines
    assert not [line for line in lines if line.state == checks.PROBLEM]


def test_a_missing_package_is_named_with_what_to_type(monkeypatch):
    monkeypatch.setattr(checks, "PACKAGES", ("labkit-distributed", "no-such-package-of-ours"))
    line = next(line for line in checks.versions() if line.name == "no-such-package-of-ours")
    assert (line.state, line.advice) == (checks.PROBLEM, "pip install no-such-package-of-ours")


def write(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_limits_of_control_groups_2_count_up_to_the_root(tmp_path):
    group = tmp_path / "sys/fs/cgroup/user.slice/session"
    group.mkdir(parents=True)
    write(tmp_path, proc__self__cgroup="0::/user.slice/session\n")
    assert machine_limits.cpu_quota(tmp_path) is None
    assert machine_limits.memory_limit(tmp_path) == (None, 0)
    write(group, cpu_DOT_max="max 100000\n", memory_DOT_max="max\n")
    write(group.parent, cpu_DOT_max="150000 100000\n", memory_DOT_max="2000\n", memory_DOT_current="700\n")
    write(group.parent, memory_DOT_stat="anon 500\ninactive_file 200\n")
    assert machine_limits.cpu_quota(tmp_path) == 1.5
    assert machine_limits.memory_limit(tmp_path) == (2000, 500)


def test_limits_of_control_groups_1(tmp_path):
    top = tmp_path / "sys/fs/cgroup"
    write(tmp_path, proc__self__cgroup="4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n")
    write(top / "cpu,cpuacct", **{"cpu_DOT_cfs_quota_us": "50000\n", "cpu_DOT_cfs_period_us": "100000\n"})
    write(top / "memory", **{"memory_DOT_limit_in_bytes": "1000\n", "memory_DOT_usage_in_bytes": "400\n"})
    assert machine_limits.cpu_quota(tmp_path) == 0.5
    assert machine_limits.memory_limit(tmp_path) == (1000, 400)
    write(top / "cpu,cpuacct", cpu_DOT_cfs_quota_us="-1\n")
    write(top / "memory", memory_DOT_limit_in_bytes="9223372036854771712\n")
    assert machine_limits.cpu_quota(tmp_path) is None
    assert machine_limits.memory_limit(tmp_path) == (None, 0)


def test_usable_cpus_are_at_most_those_of_the_machine():
    assert 0 < machine_limits.usable_cpus() <= (os.cpu_count() or 1)
