"""`labkit sweep`: settings from `--vary`, files, and refusals."""

import csv
import importlib.util
import json

import pytest

import labkit as lk

SMALL = ["--dataset", "moons", "--hidden", "4", "--updates", "10", "--compute", "exponential:0.01", "--seeds", "1"]


def runs(result):
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["runs"]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)


def test_every_combination_of_the_values_is_run(labkit):
    found = runs(
        labkit("sweep", "async-ps", "--vary", "workers=1,2", "--vary", "learning_rate=0.1,0.2", *SMALL, "--json")
    )
    assert [(run["workers"], run["learning_rate"]) for run in found] == [(1, 0.1), (1, 0.2), (2, 0.1), (2, 0.2)]


def test_an_option_is_varied_for_the_strategies_that_have_it(labkit):
    found = runs(labkit("sweep", "ssp", "async-ps", "--vary", "s=1,3", "--workers", "2", *SMALL, "--json"))
    assert [(run["strategy"], run["s"]) for run in found] == [("SSP", 1), ("SSP", 3), ("AsyncPS", None)]


def test_a_list_is_one_value(labkit):
    found = runs(
        labkit("sweep", "async-ps", "--vary", "hidden=4", "--vary", "hidden=4,4", "--workers", "1", *SMALL, "--json")
    )
    assert [run["hidden"] for run in found] == ["4", "4,4"]


def test_the_files_are_written(labkit, tmp_path):
    files = [tmp_path / name for name in ("sweep.csv", "sweep.png", "sweep.jsonl")]
    result = labkit("sweep", "sync-ps", "async-ps", "--vary", "workers=1,2", *SMALL, "--csv", files[0], "--figure", files[1],
                    "--out", files[2])  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].startswith("strategy")
    with open(files[0], newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert len(files[2].read_text().splitlines()) == 5


def test_a_missing_package_is_reported_before_anything_runs(labkit, monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "pyarrow" else find(name, *more)
    )
    result = labkit("sweep", "async-ps", *SMALL, "--parquet", tmp_path / "x.parquet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Parquet files need pyarrow; install with: pip install pyarrow." in result.stderr


def test_a_failed_run_is_shown_with_the_table_and_gives_exit_code_1(labkit, monkeypatch):
    monkeypatch.setattr("labkit.forecasts.sweeps.train", failing_train)
    result = labkit("sweep", "async-ps", "--vary", "workers=1,2", *SMALL)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].split()[:3] == ["workers", "runs", "failed"]
    assert "Error: AsyncPS, seed 0: two workers are too many" in result.stderr


def failing_train(problem, strategy, cluster, budget, **more):
    if cluster.workers == 2:
        raise lk.ClusterError("two workers are too many")
    return lk.train(problem, strategy, cluster, budget, **more)


def test_refusals(labkit):
    for words, message in [
        ([], "sweep takes at least one strategy"),
        (["async-ps", "--vary", "workers"], "give an option and its values"),
        (["async-ps", "--vary", "wokers=1"], "workers"),
        (["async-ps", "--vary", "workers=0"], "workers=0"),
        (["async-ps", "--vary", "workers=1,1"], "twice"),
        (["async-ps", "--vary", "workers=1,,2"], "workers"),
        (["async-ps", "--fault", "kill:worker-1@2"], "has no option '--fault'"),
        (["async-ps", "--seeds", "0"], "seeds=0 is not allowed"),
        (["async-ps", "--out", "/nowhere/x.jsonl"], "there is no folder"),
        (["async-ps", "--figure", "x.txt"], "the name of a figure ends in"),
        (["async-ps", "--seeds", "9999999"], "a sweep has at most 100,000"),
    ]:
        result = labkit("sweep", *words, *([] if "--seeds" in words else SMALL))
        assert result.exit_code == 2, result.stderr
        assert message in result.stderr, (words, message)
        assert "Traceback" not in result.stderr, (words, message)
