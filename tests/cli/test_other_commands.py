"""`labkit strategies`, `lab`, `doctor`, `--help`: output, started processes, and files that are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from jupyterlab_server.settings_utils import get_settings

from labkit.cli import doctor_checks, notebooks
from labkit.engines import machine_limits
from labkit.errors import BadInput
from labkit.options import options_of
from labkit.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]


def test_each_line_of_strategies_begins_with_a_strategy_name(labkit):
    lines = labkit("strategies").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(STRATEGIES)


def test_strategies_options_lists_the_declared_options(labkit):
    for name, strategy in STRATEGIES.items():
        lines = labkit("strategies", name).stdout.splitlines()
        assert [line.split()[0] for line in lines] == list(options_of(strategy)), name


@pytest.mark.slow
def test_help_imports_no_slow_package(labkit_process):
    slow_packages = {"numpy", "dask", "distributed", "matplotlib", "rich", "ipywidgets"}
    code = "import sys; from labkit.cli import main; main(['--help'], standalone_mode=False)"
    code += f"; print({slow_packages} & {{*sys.modules}})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "set()"
    assert labkit_process("--help").returncode == 0


# lab ------------------------------------------------------------------------------------------------------------


def make_notebooks(folder):
    (folder / "data").mkdir(parents=True)
    (folder / notebooks.FIRST).write_text("first")
    (folder / "data" / "table.csv").write_text("1,2")


def make_checkout(folder):
    make_notebooks(folder / "notebooks")
    (folder / "pyproject.toml").touch()
    return folder / "labkit"


def make_package(folder):
    make_notebooks(folder / "labkit" / "notebooks")
    return folder / "labkit"


@pytest.mark.parametrize("make", [make_checkout, make_package])
def test_notebooks_are_copied_and_the_users_files_are_kept(make, tmp_path, capsys):
    package, here = make(tmp_path / "source"), tmp_path / "home"
    here.mkdir()
    copies = notebooks.copy_notebooks(package, here)
    assert copies == here / "labkit-notebooks"
    assert f"Your notebooks are in {copies} (files copied: 2, kept: 0)." in capsys.readouterr().err
    (copies / notebooks.FIRST).write_text("the user's work")
    (copies / "data" / "table.csv").unlink()
    notebooks.copy_notebooks(package, here)
    assert "(files copied: 1, kept: 1)" in capsys.readouterr().err
    assert (copies / notebooks.FIRST).read_text() == "the user's work"
    assert (copies / "data" / "table.csv").read_text() == "1,2"
    originals = [path.read_text() for path in (tmp_path / "source").rglob(notebooks.FIRST)]
    assert originals == ["first"]


def test_copies_inside_the_notebooks_of_a_checkout_are_not_copied_again(tmp_path):
    package = make_checkout(tmp_path)
    for _ in range(2):
        notebooks.copy_notebooks(package, tmp_path / "notebooks")
    assert len(list(tmp_path.rglob(notebooks.FIRST))) == 2


def test_git_ignores_the_copies_of_a_checkout():
    done = subprocess.run(
        ["git", "check-ignore", f"{notebooks.COPY_FOLDER}/{notebooks.FIRST}"], cwd=ROOT, capture_output=True
    )
    if done.returncode == 128:
        pytest.skip("this is no git repository")
    assert done.returncode == 0


def test_missing_notebooks_are_an_error_with_advice(tmp_path):
    with pytest.raises(BadInput, match="install labkit again"):
        notebooks.copy_notebooks(tmp_path / "labkit", tmp_path)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """(command, environment) of each JupyterLab that `labkit lab` would have become."""
    found = []
    monkeypatch.setattr(notebooks, "replace_process", lambda *given: found.append(given))
    monkeypatch.setattr(notebooks, "copy_notebooks", lambda *_: tmp_path)
    return found


def test_lab_starts_jupyterlab_in_this_python_environment(labkit, started, tmp_path):
    assert labkit("lab", "--no-browser", "--port", 9123, "--", "--ServerApp.token=x").exit_code == 0
    ((command, _),) = started
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[3:5] == [f"--ServerApp.root_dir={tmp_path}", f"--LabApp.default_url=/lab/tree/{notebooks.FIRST}"]
    assert {"--no-browser", "--port=9123", "--ServerApp.token=x"} <= set(command)


def test_jupyterlab_started_by_lab_does_not_ask_about_news(labkit, started, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "users"))
    labkit("lab", "--no-browser")
    ((_, environment),) = started
    paths = environment["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert paths[0] == str(tmp_path / "users")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", environment["JUPYTER_CONFIG_PATH"])
    folder, plugin = Path(sys.prefix) / "share/jupyter/lab", "@jupyterlab/apputils-extension:notification"
    settings, _ = get_settings(str(tmp_path), str(folder / "schemas"), str(tmp_path), schema_name=plugin)
    properties = settings["schema"]["properties"]
    assert (properties["fetchNews"]["default"], properties["checkForUpdates"]["default"]) == ("false", False)


# doctor ------------------------------------------------------------------------------------------------------------


def checks_with_states(*states):
    return (
        lambda: iter([doctor_checks.Finding(f"check {i}", state, "value", "advice") for i, state in enumerate(states)]),
    )


def test_doctor_succeeds_with_warnings_and_fails_with_problems(labkit, monkeypatch):
    monkeypatch.setattr(doctor_checks, "CHECKS", checks_with_states(doctor_checks.OK, doctor_checks.WARNING))
    result = labkit("doctor")
    assert result.exit_code == 0
    assert "labkit can work here (1 warning)." in result.stdout
    monkeypatch.setattr(doctor_checks, "CHECKS", checks_with_states(doctor_checks.OK, doctor_checks.PROBLEM))
    assert labkit("doctor").exit_code == 1
    result = labkit("doctor", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["usable"] is False
    assert [line["state"] for line in report["checks"]] == ["ok", "problem"]


QUICK = [
    doctor_checks.versions,
    doctor_checks.cpus,
    doctor_checks.memory,
    doctor_checks.ports,
    doctor_checks.temporary_folder,
]


@pytest.mark.parametrize("check", QUICK, ids=lambda check: check.__name__)
def test_quick_checks_find_no_problem_on_the_test_machine(check):
    lines = list(check())
    assert lines
    assert not [line for line in lines if line.state == doctor_checks.PROBLEM]


def test_a_missing_package_is_reported_with_the_install_command(monkeypatch):
    monkeypatch.setattr(doctor_checks, "PACKAGES", ("labkit-distributed", "no-such-package"))
    line = next(line for line in doctor_checks.versions() if line.name == "no-such-package")
    assert (line.state, line.advice) == (doctor_checks.PROBLEM, "pip install no-such-package")


def write_files(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_cgroup_v2_limits_include_those_of_parent_groups(tmp_path):
    group = tmp_path / "sys/fs/cgroup/user.slice/session"
    group.mkdir(parents=True)
    write_files(tmp_path, proc__self__cgroup="0::/user.slice/session\n")
    assert machine_limits.cpu_quota(tmp_path) is None
    assert machine_limits.memory_limit(tmp_path) == (None, 0)
    write_files(group, cpu_DOT_max="max 100000\n", memory_DOT_max="max\n")
    write_files(group.parent, cpu_DOT_max="150000 100000\n", memory_DOT_max="2000\n", memory_DOT_current="700\n")
    write_files(group.parent, memory_DOT_stat="anon 500\ninactive_file 200\n")
    assert machine_limits.cpu_quota(tmp_path) == 1.5
    assert machine_limits.memory_limit(tmp_path) == (2000, 500)


def test_cgroup_v1_limits_are_read(tmp_path):
    top = tmp_path / "sys/fs/cgroup"
    write_files(tmp_path, proc__self__cgroup="4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n")
    write_files(top / "cpu,cpuacct", **{"cpu_DOT_cfs_quota_us": "50000\n", "cpu_DOT_cfs_period_us": "100000\n"})
    write_files(top / "memory", **{"memory_DOT_limit_in_bytes": "1000\n", "memory_DOT_usage_in_bytes": "400\n"})
    assert machine_limits.cpu_quota(tmp_path) == 0.5
    assert machine_limits.memory_limit(tmp_path) == (1000, 400)
    write_files(top / "cpu,cpuacct", cpu_DOT_cfs_quota_us="-1\n")
    write_files(top / "memory", memory_DOT_limit_in_bytes="9223372036854771712\n")
    assert machine_limits.cpu_quota(tmp_path) is None
    assert machine_limits.memory_limit(tmp_path) == (None, 0)


def test_usable_cpus_do_not_exceed_the_cpu_count():
    assert 0 < machine_limits.usable_cpus() <= (os.cpu_count() or 1)
