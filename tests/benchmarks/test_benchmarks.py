"""The benchmarks run and print the expected text; speed is not asserted here."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"name", "side", "unit", "median", "low", "high", "repetitions", "skipped"}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    import benchmarks.rows

    return benchmarks.rows


@pytest.mark.slow
def test_sides_alternate_in_both_orders(rows: ModuleType) -> None:
    order: list[str] = []
    sides = [rows.Side(name, lambda name=name: order.append(name) or {("net", "s"): 1.0}) for name in "ab"]
    rows.alternate(rows.Settings(), "title", sides)
    assert "".join(order) == "abbaabbaab"


@pytest.mark.slow
def test_rows_are_medians_with_extremes_and_ratios_are_formed_within_turns(rows: ModuleType) -> None:
    fast, slow = count(10.0), count(1.0)  # 10, 11, ... against 1, 2, ...
    sides = [
        rows.Side("fast", lambda: {("net", "u/s"): next(fast)}),
        rows.Side("slow", lambda: {("net", "u/s"): next(slow)}),
    ]
    made = rows.alternate(rows.Settings(), "title", sides, baseline="slow")
    assert made == [
        rows.Row("net", "fast", "u/s", 12.0, 10.0, 14.0, 5),
        rows.Row("net", "slow", "u/s", 3.0, 1.0, 5.0, 5),
        rows.Row("net", "fast / slow", "x", 4.0, 14 / 5, 10.0, 5),
    ]


def test_a_side_that_is_not_installed_has_a_skipped_row(rows: ModuleType) -> None:
    sides = [rows.Side("there", lambda: {("net", "s"): 1.0}), rows.Side("absent", dict, needs=("no_such_module",))]
    made = rows.alternate(rows.Settings(quick=True), "title", sides, baseline="absent")
    assert [row.side for row in made] == ["there", "absent"]
    assert made[1].skipped == "not installed: no_such_module"
    assert made[1].median is None


@pytest.mark.slow
def test_a_quick_run_writes_all_fields_to_json(tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    done = command("--quick", "--only", "simulator", "--only", "round-trip", "--json", file)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads(file.read_text())
    assert {"cpu", "cores", "python", "numpy", "blas"} <= content["machine"].keys()
    assert content["quick"] is True
    assert [(b["name"], b["error"]) for b in content["benchmarks"]] == [("simulator", None), ("round-trip", None)]
    for benchmark in content["benchmarks"]:
        assert benchmark["rows"]
        for row in benchmark["rows"]:
            assert row.keys() == FIELDS
            if row["skipped"]:
                assert row["skipped"].startswith("not installed: ")
                assert row["low"] is row["median"] is row["high"] is None
            else:
                assert 0 < row["low"] <= row["median"] <= row["high"]
    rows = content["benchmarks"][1]["rows"]
    assert {"Ray actor", "PyTorch gloo", "PyTorch RPC"} <= {row["side"] for row in rows}  # measured, or skipped by name
    measured = {row["side"] for row in rows if not row["skipped"]}
    assert {"labkit transport", "raw TCP socket", "shared memory", "Dask actor"} <= measured
    assert {"labkit transport / raw TCP socket", "labkit transport / Dask actor"} <= measured
    assert "round-trip" in done.stdout


@pytest.mark.slow
def test_list_prints_all_benchmarks_and_an_unknown_name_is_refused_with_them() -> None:
    names = [line.split()[0] for line in command("--list").stdout.splitlines()]
    assert names == [
        "throughput",
        "accuracy",
        "recording",
        "watching",
        "simulator",
        "startup",
        "binder",
        "recovery",
        "round-trip",
        "slow-worker",
        "overlap",
        "torch-module",
        "forecast",
        "forecast-on-hosts",
    ]
    refused = command("--only", "speed")
    assert refused.returncode == 2
    assert "throughput" in refused.stderr
