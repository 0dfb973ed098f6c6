"""Runs from the command line: the JSON contract, the same bytes for the same seed, files, tables, exit codes."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys

import pytest

import labkit as lk
from labkit.engines.simulated.run import SimulatedRun
from labkit.summary import Summary
from labkit.trace.exports import load_npz
from labkit.trace.header import RecordedBudget

KEYS = [
    "strategy", "engine", "workers", "servers", "seed", "updates", "gradients", "seconds", "wall_seconds",
    "updates_per_second", "gradients_per_second", "samples_per_second", "staleness", "loss", "accuracy",
    "validation_loss", "validation_accuracy", "baseline_accuracy", "time_to_accuracy", "bytes_sent", "ledger", "phases",
    "communication", "parameters_sha256", "stopped_by", "stopped_on",
]  # fmt: skip
SMALL = ("--dataset", "moons", "--hidden", "4", "--updates", "20")


def last_object(result):
    return json.loads(result.stdout.splitlines()[-1], parse_constant=pytest.fail)


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "ring-all-reduce"])
def test_json_output_is_one_object_with_the_documented_keys(labkit, strategy):
    result = labkit("simulate", "--strategy", strategy, "--workers", 3, "--json", *SMALL)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1
    summary = last_object(result)
    assert list(summary) == KEYS
    assert (summary["engine"], summary["workers"], summary["seed"], summary["updates"]) == ("simulated", 3, 0, 20)
    assert summary["wall_seconds"] is None
    assert {type(summary[k]) for k in ("seconds", "updates_per_second", "samples_per_second", "loss")} == {float}
    assert {type(summary[k]) for k in ("workers", "servers", "updates", "gradients")} == {int}
    assert {"mean", "max", "p50", "p95", "histogram"} <= summary["staleness"].keys()
    assert all(name.isdecimal() and type(n) is int for name, n in summary["staleness"]["histogram"].items())
    ledger = summary["ledger"]
    keys = ["computed", "applied", "partly_applied", "dropped", "lost", "rolled_back", "in_flight"]
    assert list(ledger) == [*keys, "missing", "closes"]
    assert (ledger["missing"], ledger["closes"]) == (0, True)
    dropped = sum(ledger["dropped"].values())
    parts = ("applied", "partly_applied", "lost", "rolled_back", "in_flight")
    assert ledger["computed"] == dropped + sum(ledger[part] for part in parts)
    assert len(summary["parameters_sha256"]) == 64
    assert "virtual time took" in result.stderr


def test_simulate_equals_train_with_the_simulated_engine(labkit):
    one, other = labkit("simulate", "--json", *SMALL), labkit("train", "--engine", "simulated", "--json", *SMALL)
    assert one.stdout == other.stdout


def test_evaluation_time_extends_the_run(labkit):
    words = ("simulate", "--json", "--updates", "20", "--compute", "deterministic:0.01", "--workers", "1")
    free, longer = (json.loads(labkit(*words, *more).stdout) for more in ((), ("--evaluation-time", "0.5")))
    # the first model's, and the last's
    assert (free["seconds"], longer["seconds"]) == (pytest.approx(0.2), pytest.approx(1.0))


@pytest.mark.slow
def test_equal_seeds_give_equal_bytes_on_any_number_of_cores_and_other_seeds_do_not(labkit_process, tmp_path):
    words = ("simulate", "--json", "--updates", "30", "--compute", "exponential:0.01", "--latency", "0.001", "--seed")
    pinned = ("taskset", "-c", "0") if shutil.which("taskset") else ()
    first = labkit_process(*words, 7, "--trace", tmp_path / "a.npz", PYTHONHASHSEED="1")
    second = labkit_process(*words, 7, "--trace", tmp_path / "b.npz", prefix=pinned, PYTHONHASHSEED="2")
    other = labkit_process(*words, 8, PYTHONHASHSEED="1")
    assert first.returncode == second.returncode == other.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert other.stdout != first.stdout


def test_all_requested_files_are_written(labkit, tmp_path):
    names = {"--trace": "run.npz", "--perfetto": "run.json", "--log": "run.txt", "--figure": "run.png"}
    files = [word for option, name in names.items() for word in (option, tmp_path / name)]
    result = labkit("simulate", "--json", *SMALL, "--slow", "worker-2:5", "--slow", "worker-1:2", *files)
    assert result.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names.values())
    summary = last_object(result)
    assert json.dumps(Summary.of(load_npz(tmp_path / "run.npz")).to_dict()) == json.dumps(summary)
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert "0.00 s you slowed w2 x5\n" in (tmp_path / "run.txt").read_text()
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_options_reach_problem_strategy_cluster_and_budget(labkit, tmp_path):
    words = "simulate --strategy async-ps --set staleness-aware=true --set eval-every=5 --optimizer momentum:0.8 " \
        "--learning-rate 0.02 --workers 3 --servers 2 --chief-works --dataset moons --hidden 8 --hidden 6 " \
        "--batch-size 16 --dtype float64 --partition by-label:0.5 --epochs 1 --seconds 9 --seed 5 " \
        "--compute lognormal:0.02:0.3 --server-time 0.001 --latency 0.002 --bandwidth 1e6"  # fmt: skip
    assert labkit(*words.split(), "--trace", tmp_path / "run.npz").exit_code == 0
    header = load_npz(tmp_path / "run.npz").header
    options, problem, cluster = header.strategy.options, header.problem, header.cluster
    assert (options["staleness_aware"], options["eval_every"], options["learning_rate"]) == (True, 5, 0.02)
    assert options["chief_works"] is True
    assert options["optimizer"] == "Momentum(momentum=0.8)"
    assert (problem.hidden, problem.batch_size, problem.dtype, problem.seed) == ((8, 6), 16, "float64", 5)
    assert "ByLabel" in problem.partition
    assert (cluster.workers, cluster.servers, cluster.latency, cluster.bandwidth) == (3, 2, 0.002, 1e6)
    assert (cluster.compute, cluster.server_time) == ("lognormal:0.02:0.3", "deterministic:0.001")
    assert (header.budget, header.seed) == (RecordedBudget(epochs=1.0, seconds=9.0), 5)


def test_bandwidth_accepts_inf(labkit):
    assert labkit("simulate", "--bandwidth", "inf", *SMALL).exit_code == 0


def test_timing_only_runs_have_neither_loss_nor_parameters(labkit):
    summary = last_object(labkit("simulate", "--timing-only", "--workers", 50, "--updates", 100, "--json"))
    assert (summary["updates"], summary["loss"], summary["accuracy"], summary["parameters_sha256"]) == (
        100,
        None,
        None,
        None,
    )


def test_a_run_prints_a_table_of_results(labkit):
    result = labkit("simulate", *SMALL)
    assert result.exit_code == 0
    assert [line.split("  ")[0] for line in result.stdout.splitlines()][:3] == ["strategy", "stopped by", "updates"]
    assert "closes" in result.stdout


def test_a_diverged_run_reports_it_writes_its_files_and_exits_with_1(labkit, tmp_path):
    words = ("--learning-rate", 10, "--optimizer", "momentum:0.99", "--updates", 400)
    result = labkit("simulate", *words, "--json", "--trace", tmp_path / "run.npz")
    assert result.exit_code == 1
    summary = last_object(result)
    assert (summary["stopped_by"], summary["loss"]) == ("diverged", None)
    assert "AsyncPS diverged: the loss is" in result.stderr
    assert load_npz(tmp_path / "run.npz").ending["stopped_by"] == "diverged"


def test_a_failed_run_prints_its_error_to_standard_error_only(labkit, monkeypatch, tmp_path):
    async def broken(self, ctx, model):
        raise ValueError("a broken worker")

    monkeypatch.setattr(lk.AsyncPS, "worker", broken)
    result = labkit("simulate", "--json", *SMALL, "--log", tmp_path / "log.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "worker-" in result.stderr
    assert "a broken worker" in result.stderr
    assert "s end: an error: worker-" in (tmp_path / "log.txt").read_text()


@pytest.fixture
def advance_until(monkeypatch):
    """`advance_until(act)`: simulated runs of the command line call `act` once they have passed 50 ms."""

    def install(act):
        wait = SimulatedRun.wait

        def act_then_wait(self, timeout=None):
            if timeout is not None and self.seconds > 0.05 and self.stopped_by is None:
                act(self)
            return wait(self, timeout)

        monkeypatch.setattr(SimulatedRun, "wait", act_then_wait)

    return install


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_prints_the_table_and_exits_with_130(labkit, advance_until, tmp_path, number):
    advance_until(lambda run: signal.raise_signal(number))
    before = signal.getsignal(number)
    result = labkit("simulate", "--updates", 10**9, "--log", tmp_path / "log.txt")
    assert result.exit_code == 130
    assert "interrupted" in result.stdout
    assert "closes" in result.stdout
    assert (tmp_path / "log.txt").read_text().endswith("s end: interrupted\n")
    assert signal.getsignal(number) is before
    result = labkit("simulate", "--updates", 10**9, "--json")
    assert (result.exit_code, result.stdout) == (130, "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_ignored_sigint_stays_ignored_and_is_reported(labkit, advance_until):
    """As in a job that a shell script starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        advance_until(lambda run: signal.raise_signal(signal.SIGINT))
        result = labkit("simulate", *SMALL, "--json")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 0
    assert last_object(result)["stopped_by"] == "updates"
    assert f"SIGINT (Ctrl-C) is ignored here; `kill {os.getpid()}` stops the run in an orderly way." in result.stderr


def test_compare_passes_each_strategy_the_options_that_it_has(labkit, tmp_path):
    names = ("sync-ps", "async-ps", "ring-all-reduce")
    more = ("--servers", 2, "--set", "reduce=sum", "--learning-rate", "0.05", "--figure", tmp_path / "all.png")
    result = labkit("compare", *names, "--engine", "simulated", *SMALL, *more, "--json")
    assert result.exit_code == 0, result.stderr
    summary = last_object(result)
    assert list(summary) == ["runs"]
    assert [run["strategy"] for run in summary["runs"]] == ["SyncPS", "AsyncPS", "RingAllReduce"]
    assert [run["servers"] for run in summary["runs"]] == [2, 2, 0]
    assert all(list(run) == KEYS for run in summary["runs"])
    assert (tmp_path / "all.png").exists()
    alone = labkit("simulate", "--strategy", "async-ps", "--servers", 2, "--learning-rate", "0.05", *SMALL, "--json")
    assert last_object(alone) == summary["runs"][1]


def test_fault_options_are_injected_at_their_times(labkit, tmp_path):
    faults = ("--fault", "kill:worker-1@0.05", "--fault", "drop:worker:server:0.2@0.02-0.1")
    result = labkit("simulate", *SMALL, "--updates", 60, *faults, "--log", tmp_path / "log.txt", "--json")
    assert result.exit_code == 0, result.stderr
    summary, lines = last_object(result), (tmp_path / "log.txt").read_text()
    assert (summary["updates"], summary["ledger"]["lost"]) == (60, 1)  # the gradient that w1 was computing
    assert "0.05 s w1 was killed\n" in lines
    assert "20% of messages between w0, w1" in lines
    result = labkit("compare", "sync-ps", "async-ps", "--engine", "simulated", *SMALL, *faults, "--json")
    assert result.exit_code == 0, result.stderr
    assert [run["updates"] for run in last_object(result)["runs"]] == [20, 20]


def test_compare_explains_the_meaning_of_an_update(labkit):
    result = labkit("compare", "sync-ps", "async-ps", "--engine", "simulated", *SMALL)
    assert "SyncPS: one update is the mean of one gradient of every worker." in result.stdout
    assert "AsyncPS: one update is one gradient, applied at the full rate." in result.stdout


@pytest.mark.slow
@pytest.mark.dask
def test_train_on_dask_prints_the_same_json_keys(labkit_process):
    importlib.import_module("labkit.engines.dask.cluster.dask_cluster")
    result = labkit_process("train", "--workers", 2, "--chief-works", "--json", *SMALL)
    assert result.returncode == 0, result.stderr.decode()
    summary = json.loads(result.stdout.decode().splitlines()[-1])
    assert list(summary) == KEYS
    assert (summary["engine"], summary["updates"], summary["stopped_by"]) == ("dask", 20, "updates")
    assert summary["wall_seconds"] > summary["seconds"]
