"""The table of runs: one line per run, and a file that a spreadsheet can open."""

from __future__ import annotations

import csv
import io

import pytest

import labkit as lk
from labkit.narrative import run_row, runs_csv
from labkit.narrative.table import COLUMNS
from labkit.strategies import STRATEGIES


def started(strategy=None, faults=(), budget=None, **more):
    problem = lk.Problem("digits", **{"hidden": (16,)} | more)
    cluster = lk.SimulatedCluster(workers=4, servers=2, compute=lk.distributions.Deterministic(0.05), latency=0.001)
    return lk.train(problem, strategy or lk.AsyncPS(), cluster, budget or lk.Budget(seconds=2.0), faults=faults)


def test_a_row_has_the_numbers_of_the_summary():
    run = started(budget=lk.Budget(accuracy=0.9, seconds=20)).wait()
    row, seen = run_row(run.trace), run.summary()
    assert row["strategy"] == "AsyncPS"
    assert (row["engine"], row["workers"], row["servers"], row["seed"]) == ("simulated", 4, 2, 0)
    assert (row["loss"], row["accuracy"], row["gradients"]) == (seen["loss"], seen["accuracy"], seen["gradients"])
    assert row["gradients_per_second"] == pytest.approx(seen["gradients"] / seen["seconds"])
    assert (row["staleness_mean"], row["staleness_p95"]) == (seen["staleness"]["mean"], seen["staleness"]["p95"])
    assert row["bytes_sent"] == sum(sum(kinds.values()) for kinds in seen["bytes_sent"].values())
    assert (row["goal"], row["time_to_accuracy"]) == (0.9, seen["time_to_accuracy"])
    assert (row["stopped_by"], row["seconds"]) == ("accuracy", seen["seconds"])


def test_settings_in_short_words():
    strategy = lk.SSP(s=2, learning_rate=0.05, optimizer=lk.Momentum(0.9))
    faults = [lk.Slow("worker-2", 5, at=0.5), lk.Slow("worker-2", 1, at=1.0)]
    run = started(strategy, faults, batch_size=16, partition="by-label:0.5").advance(1.5)
    run.set(learning_rate=0.01)
    row = run_row(run.trace)
    assert (row["rate"], row["batch"], row["pace"]) == (0.05, 16, "0.05")
    assert row["data"].startswith("digits, ByLabel")
    assert row["settings"] == "s=2, optimizer=Momentum(momentum=0.9), hidden=16, latency=0.001 s"
    assert row["commands"] == "w2 x5 at 0.5 s; w2 x1 at 1 s; learning_rate = 0.01 at 1.5 s"


def test_a_running_run_has_no_final_values_in_its_row():
    row = run_row(started().advance(0).trace)
    assert (row["stopped_by"], row["staleness_mean"], row["gradients"]) == (None, None, 0)
    assert row["gradients_per_second"] is None
    assert run_row(started(budget=lk.Budget(seconds=0.3)).wait().trace)["time_to_accuracy"] is None


def test_every_strategy_has_a_row():
    for name, made in STRATEGIES.items():
        problem = lk.Problem(**{"timing_only": True, "hidden": (16, 16, 16)} | made.suggested_problem)
        row = run_row(lk.train(problem, made(), lk.SimulatedCluster(), lk.Budget(updates=3)).wait().trace)
        assert ["run", *row] == list(COLUMNS), name
        assert (row["strategy"], row["settings"].count("hidden=")) == (made.__name__, 1), name


def test_a_file_has_the_same_columns_whatever_is_in_it():
    runs = [{"run": 1, **run_row(started().advance(0.5).trace)}, run_row(started(lk.SyncPS()).wait().trace)]
    rows = list(csv.reader(io.StringIO(runs_csv(runs), newline="")))
    assert rows[0] == list(COLUMNS.values())
    assert [len(row) for row in rows] == [len(COLUMNS)] * 3
    first, second = (dict(zip(COLUMNS, row)) for row in rows[1:])
    assert (first["run"], second["run"]) == ("1", "")
    assert (first["stopped_by"], second["stopped_by"]) == ("", "seconds")
    assert float(second["gradients_per_second"]) == runs[1]["gradients_per_second"]
    assert first["settings"] == "hidden=16, latency=0.001 s"
    assert runs_csv([]) == runs_csv(runs).split("\r\n")[0] + "\r\n"
    for heading in ("time to target accuracy (s)", "sent (bytes)", "batch (samples)", "gradients per second (1/s)"):
        assert heading in rows[0]
