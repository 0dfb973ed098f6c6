"""Peers of the round-trip benchmark and the simulated browser: they reply, end, and report why they did not start."""

from __future__ import annotations

import importlib
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
