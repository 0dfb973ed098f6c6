"""`labkit calibrate` and `labkit forecast`."""

import csv
import json

import pytest

import labkit as lk
from labkit.forecasts import sweeps

SMALL = ["--dataset", "moons", "--hidden", "4", "--updates", "20", "--seeds", "1"]


@pytest.fixture
def known(tmp_path, monkeypatch):
    """The file of a calibration."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    costs = lk.Costs(lk.WorkCost(1e-3), send=lk.Linear(1e-5), receive=lk.Linear(1e-5), cores=2)
    return lk.Calibration(costs, "moons", (22, 32, 88), 100, (10, 1000), (1, 100)).save(tmp_path / "cluster.json")


def test_forecasts_for_every_strategy_and_size(labkit, known, tmp_path):
    files = ["--csv", tmp_path / "p.csv", "--figure", tmp_path / "p.png"]
    result = labkit(
        "forecast", "async-ps", "sync-ps", "--calibration", known, "--workers", "1,4", *SMALL, "--json", *files
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [(run["strategy"], run["workers"]) for run in found["runs"]] == [
        ("AsyncPS", 1), ("AsyncPS", 4), ("SyncPS", 1), ("SyncPS", 4)
    ]  # fmt: skip
    one, four = (run["gradients_per_second"] for run in found["runs"][:2])
    assert 1.5 * one < four < 2.1 * one  # two cores
    with open(tmp_path / "p.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_slow_worker_of_the_largest_size_is_allowed_in_any_order(labkit, known):
    rates = []
    for sizes in ("2,4", "4,2"):
        result = labkit(
            "forecast", "async-ps", "--calibration", known, "--workers", sizes, "--slow", "worker-3:3", *SMALL, "--json"
        )  # fmt: skip
        assert result.exit_code == 0, result.stderr
        rates.append([run["gradients_per_second"] for run in json.loads(result.stdout)["runs"]])
    assert rates[0] == rates[1]


def test_options_of_clusters_reach_the_simulated_clusters(labkit, known):
    def rate(*words):
        names = ("async-ps", "ring-all-reduce")
        result = labkit("forecast", *names, "--calibration", known, "--workers", "2", *SMALL, "--json", *words)
        assert result.exit_code == 0, result.stderr
        return [run["gradients_per_second"] for run in json.loads(result.stdout)["runs"]]

    plain = rate()
    assert max(rate("--pace", "0.1")) <= 20.0  # two workers, 0.1 s for each gradient
    assert rate("--hosts", "2", "--latency", "0.01")[1] < plain[1] / 2  # every step crosses the link between the hosts
    assert rate("--servers", "2")[1] == plain[1]  # a ring has no servers
    assert rate("--slow", "worker-1:10")[1] < plain[1] / 4


def test_an_interrupted_forecast_says_what_is_kept(labkit, known, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    train = sweeps.train
    monkeypatch.setattr(sweeps, "train", interrupted)
    file = tmp_path / "p.jsonl"
    words = ("forecast", "async-ps", "--calibration", known, "--workers", "1,2,4", *SMALL, "--out", file)
    result = labkit(*words)
    assert result.exit_code == 130
    assert "Interrupted. 1 of 3 runs are in" in result.stderr
    assert labkit(*words).exit_code == 0
    assert len(calls) == 4  # the interrupted run, and the two that had not ended


def test_calibrate_has_no_options_without_effect(labkit):
    for option in ("--updates", "--learning-rate", "--fault", "--compute", "--pace", "--servers"):
        result = labkit("calibrate", option, "1")
        assert (result.exit_code, f"has no option '{option}'" in result.stderr) == (2, True)


def test_refusals(labkit, known):
    for words, message in [
        ([], "forecast takes at least one strategy"),
        (["async-ps", "--workers", "two"], "give numbers of workers"),
        (["async-ps", "--workers", "0"], "workers=0"),
        (["async-ps", "--hosts", "0"], "hosts=0"),
        (["asink-ps"], "async-ps"),
        (["async-ps", "--fault", "kill:worker-1@2"], "has no option '--fault'"),
        (["async-ps", "--compute", "0.1"], "has no option '--compute'"),
        (["ring-all-reduce", "--workers", "2", "--servers", "2"], "servers"),
    ]:
        result = labkit("forecast", *words, "--calibration", known, *SMALL)
        assert result.exit_code == 2, result.stderr
        assert message in result.stderr, (words, message)


def test_a_file_that_is_no_calibration_is_refused(labkit, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    result = labkit("forecast", "async-ps", "--calibration", tmp_path / "x.json", *SMALL)
    assert (result.exit_code, "is not a calibration" in result.stderr) == (2, True)


@pytest.mark.dask
@pytest.mark.slow
def test_a_cluster_is_calibrated_and_the_file_forecasts(labkit_process, tmp_path):
    file = tmp_path / "cluster.json"
    result = labkit_process("calibrate", "--dataset", "moons", "--hidden", "4", "--for", "3", "--out", file)
    assert result.returncode == 0, result.stderr
    assert b"gradient" in result.stdout
    found = lk.Calibration.load(file)
    assert 0 < found.costs.gradient(22, 32) < 0.01
