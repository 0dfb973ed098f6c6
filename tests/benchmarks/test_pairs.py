"""Peers of the round-trip benchmark and the simulated browser: they reply, end, and report why they did not start."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = {"shared_memory": None, "gloo_round_trip": "torch", "torch_rpc_round_trip": "torch", "ray_actor": "ray",
         "dask_actor_round_trip": None, "raw_socket": None}  # fmt: skip


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_a_pair_makes_round_trips_of_any_size_and_ends_its_processes(peer: str) -> None:
    if PEERS[peer]:
        pytest.importorskip(PEERS[peer])
    module = importlib.import_module(f"benchmarks.peers.{peer}")
    before = set(psutil.Process().children(recursive=True))
    with module.open_pair() as trip:
        started = set(psutil.Process().children(recursive=True)) - before
        for nbytes in (4, 40_000, 1_000_000, 8):
            seconds = trip(nbytes, 3)
            assert len(seconds) == 3
            assert min(seconds) > 0
    assert started
    psutil.wait_procs(started, timeout=180)
    assert not [process for process in started if process.is_running()]


@pytest.mark.slow
def test_a_pair_that_does_not_start_raises_an_error_with_its_last_output() -> None:
    pairs = importlib.import_module("benchmarks.peers.pairs")
    with pytest.raises(RuntimeError, match="no_such_peer"), pairs.run_peer("benchmarks.no_such_peer"):
        pass


@pytest.mark.slow
def test_round_trip_lists_peers_that_are_not_installed() -> None:
    code = (
        "import sys, json; sys.modules['torch'] = sys.modules['ray'] = None\n"
        "from dataclasses import asdict; from benchmarks import round_trip; from benchmarks.rows import Settings\n"
        "print(json.dumps([asdict(row) for row in round_trip.run(Settings(quick=True))]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    times = {row["side"] for row in rows if row["unit"] == "us"}
    assert times == {"labkit transport", "raw TCP socket", "shared memory", "Dask actor"}
    assert {"labkit transport / raw TCP socket", "labkit transport / Dask actor"} <= {
        r["side"] for r in rows if r["unit"] == "x"
    }
    skipped = {row["side"]: row["skipped"] for row in rows if row["skipped"]}
    assert skipped["Ray actor"] == "not installed: ray"
    assert skipped["PyTorch gloo"] == skipped["PyTorch RPC"] == "not installed: torch"
    assert all(0 < row["low"] <= row["median"] <= row["high"] for row in rows if not row["skipped"])


@pytest.mark.slow
def test_the_simulated_browser_receives_frames_and_reports_a_failing_cell() -> None:
    front_end = importlib.import_module("benchmarks.front_end")
    with front_end.open_kernel() as browser:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            browser.run("1 / 0")
        browser.run(
            "import labkit as lk\n"
            "run = lk.train(lk.Problem('digits'), lk.AsyncPS(), lk.SimulatedCluster(), lk.Budget(seconds=1))\n"
            "watch = run.watch(panels='staleness')"
        )
        assert browser.run("watch.wait(); watch.close()", "run.stopped_by") == "seconds"
    assert browser.frames == sorted(browser.frames)
    assert browser.frames
