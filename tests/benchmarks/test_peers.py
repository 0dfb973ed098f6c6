"""Peers in the benchmarks of training: each is listed, or reported as missing, and does the same work."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import labkit as lk

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"name", "side", "unit", "median", "low", "high", "repetitions", "skipped"}
SIDES = [
    "one NumPy process", "labkit AsyncPS", "PyTorch RPC server, NumPy", "PyTorch RPC server, PyTorch",
    "Dask actors, NumPy", "Ray's parameter server, NumPy", "labkit SyncPS", "Ray's parameter server, PyTorch",
    "labkit RingAllReduce", "PyTorch DDP on gloo", "mpi4py, NumPy",
]  # fmt: skip


@pytest.fixture
def b(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The modules of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import rows, subprocesses, throughput
    from benchmarks.peers import job, trainers

    return SimpleNamespace(subprocesses=subprocesses, rows=rows, throughput=throughput, job=job, trainers=trainers)


@pytest.fixture
def jobs(b: SimpleNamespace) -> list:
    make = partial(b.job.Job, learning_rate=0.1, warm_up=1.0, duration=2.0)
    return b.throughput.all_jobs(b.rows.Settings(), make)


def test_all_sides_are_listed(b: SimpleNamespace, jobs: list) -> None:
    assert [side.name for side in b.throughput.sides_of(jobs, "u", lambda job: 1.0)] == SIDES


def test_every_comparison_is_between_measured_sides(b: SimpleNamespace, jobs: list) -> None:
    shapes = {trainer.name: trainer.shapes for trainer in b.trainers.TRAINERS}
    names = {job.name: (job.rule, job.workers) for job in jobs}
    pairs = b.throughput.labkit_pairs(jobs)
    assert len(pairs) == len(b.throughput.NETS) * len(b.throughput.COMPARISONS)
    for pair in pairs:
        assert names[pair.under[1]] in shapes[pair.under[0]]
        assert pair.over[0] == b.throughput.labkit_name(names[pair.over[1]][0])


@pytest.mark.parametrize(
    ("lack", "why"),
    [
        ({"needs": ("no_such_module",)}, "not installed: no_such_module"),
        ({"programs": ("no-such-program",)}, "not installed: no-such-program"),
    ],
)
def test_an_absent_peer_and_its_ratios_have_skipped_rows(b: SimpleNamespace, jobs: list, lack: dict, why: str) -> None:
    sides = b.throughput.sides_of(jobs, "gradients/s", lambda job: 1.0)
    mine = [side for side in sides if side.name == "labkit AsyncPS"]
    theirs = [replace(side, **lack) for side in sides if side.name == b.trainers.DASK]
    pairs = [pair for pair in b.throughput.labkit_pairs(jobs) if pair.under[0] == b.trainers.DASK]
    made = b.rows.alternate(b.rows.Settings(), "throughput", mine + theirs, repetitions=1, pairs=pairs)
    skipped = [(row.side, row.skipped, row.median) for row in made if row.skipped]
    ratio = f"labkit AsyncPS / {b.trainers.DASK}"
    assert skipped == [(b.trainers.DASK, why, None), (ratio, why, None), (ratio, why, None)]


@pytest.mark.slow
def test_a_failing_peer_is_reported_and_the_others_are_measured(b: SimpleNamespace) -> None:
    def fail() -> dict:
        raise b.rows.Unmeasured("failed: exit code 1")

    sides = [b.rows.Side("failing", fail), b.rows.Side("working", lambda: {("net", "u"): 2.0})]
    pair = b.rows.Pair("pair", ("working", "net"), ("working", "net"), "u")
    made = b.rows.alternate(b.rows.Settings(), "title", sides, pairs=[pair])
    assert [(row.side, row.median, row.skipped) for row in made] == [
        ("working", 2.0, None),
        ("failing", None, "failed: exit code 1"),
        ("working / working", 1.0, None),
    ]


def command_line(process: psutil.Process) -> str:
    """Return the command of a process; "" if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_a_program_that_times_out_is_killed_with_its_descendants(b: SimpleNamespace) -> None:
    with pytest.raises(b.subprocesses.ProgramFailed, match=r"http\.server timed out after 1 s"):
        b.subprocesses.run_program("http.server", 0, timeout=1.0)
    children = psutil.Process().children(recursive=True)
    assert not [p for p in children if "http.server" in command_line(p)]


def test_the_error_of_a_failed_program_has_its_last_output(b: SimpleNamespace) -> None:
    with pytest.raises(b.subprocesses.ProgramFailed, match="No module named"):
        b.subprocesses.run_program("no_such_module")


@pytest.fixture
def clock(b: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(b.job.time, "perf_counter", lambda: time.now)
    return time


def test_the_rate_excludes_the_warm_up(b: SimpleNamespace, clock: SimpleNamespace) -> None:
    job_clock = b.job.JobClock(b.job.Job("single", (4,), 1, 0.1, warm_up=1.0, duration=2.0))
    job_clock.begin()
    continued = []
    for seconds, gradients in ((0.5, 1_000), (1.5, 1_100), (2.5, 1_200), (3.5, 1_500)):
        clock.now = 100.0 + seconds
        continued.append(job_clock.should_continue(gradients, lambda: np.empty(0)))
    assert continued == [True, True, True, False]
    assert job_clock.result == (1_500 - 1_100) / 2.0


def test_the_clock_is_stopped_during_evaluations(
    b: SimpleNamespace, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = b.job.Job("single", (4,), 1, 0.1, warm_up=0.0, duration=9.0, accuracy=0.9)
    initial = job.problem.objective()
    accuracies = iter((0.1, 0.5, 0.95))  # at construction, and of two checks

    class SlowObjective:
        start = initial.start

        def evaluate(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
            clock.now += 5.0
            return 0.0, next(accuracies)

    monkeypatch.setattr(lk.Problem, "objective", lambda self: SlowObjective())
    job_clock = b.job.JobClock(job)
    job_clock.begin()
    clock.now += 1.0
    assert job_clock.should_continue(10, lambda: job.start)
    clock.now += 2.0
    assert not job_clock.should_continue(20, lambda: job.start)
    assert job_clock.result == 3.0


def test_a_peer_has_the_batches_of_labkits_workers(b: SimpleNamespace) -> None:
    job = b.job.Job("sync", (8,), 2, 0.1, 0.0, 1.0, seed=3)
    cluster, budget = lk.SimulatedCluster(workers=2, servers=1), lk.Budget(updates=20)
    run = lk.train(job.problem, lk.SyncPS(learning_rate=0.1), cluster, budget, checkpoint=False).wait()
    weights, gradient, batches = job.start, job.gradient(), [job.batches(n) for n in range(2)]
    for _ in range(20):
        weights -= np.float32(0.1) * sum(gradient(weights, next(own)).copy() for own in batches) / 2
    np.testing.assert_allclose(weights, run.engine.parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_network_in_pytorch_has_labkits_weights_and_gradients(b: SimpleNamespace) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.peers.torch_net import flat, gradient_of, mlp

    job = b.job.Job("reduce", (8, 6), 1, 0.1, 0.0, 1.0)
    model, batch, threads = mlp(job), next(job.batches(0)), torch.get_num_threads()
    np.testing.assert_array_equal(flat(model), job.start)
    expected = job.gradient()(job.start, batch)
    gradient_of(model, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    np.testing.assert_allclose(flat(model), expected, rtol=1e-4, atol=1e-6)
    assert threads == 1


@pytest.mark.slow
@pytest.mark.dask
@pytest.mark.sample(0, slow=0)
@pytest.mark.parametrize("name", ["accuracy", "throughput"])
def test_a_quick_run_measures_installed_peers_and_lists_the_others(tmp_path: Path, name: str) -> None:
    file = tmp_path / "numbers.json"
    line = [sys.executable, "-m", "benchmarks", "--quick", "--only", name, "--json", str(file)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(file.read_text())["benchmarks"]
    assert result["error"] is None
    sides = {row["side"] for row in result["rows"] if row["unit"] != "x"}
    assert set(SIDES) <= sides
    torch = importlib.util.find_spec("torch") is not None
    for row in result["rows"]:
        assert row.keys() == FIELDS
        if row["skipped"]:
            assert row["skipped"].startswith("not installed: "), row
            assert not (torch and "DDP" in row["side"]), row
        else:
            # a busy machine may do nothing in one of the repetitions
            assert 0 <= row["low"] <= row["median"] <= row["high"]
            assert row["high"] > 0
