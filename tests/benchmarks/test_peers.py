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
    from benchmarks import children, rows, throughput
    from benchmarks.peers import job, trainers

    return SimpleNamespace(children=children, rows=rows, throughput=throughput, job=job, trainers=trainers)


@pytest.fixture
def jobs(b: SimpleNamespace) -> list:
    make = partial(b.job.Job, learning_rate=0.1, warm_up=1.0, length=2.0)
    return b.throughput.all_jobs(b.rows.Settings(), make)


def test_every_side_is_there_by_name(b: SimpleNamespace, jobs: list) -> None:
    assert [side.name for side in b.throughput.sides_of(jobs, "u", lambda job: 1.0)] == SIDES


def test_every_goal_compares_what_is_measured(b: SimpleNamespace, jobs: list) -> None:
    shapes = {trainer.name: trainer.shapes for trainer in b.trainers.TRAINERS}
    names = {job.name: (job.rule, job.workers) for job in jobs}
    pairs = b.throughput._pairs(jobs)
    assert len(pairs) == len(b.throughput.NETS) * len(b.throughput.GOALS)
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
def test_an_absent_peer_is_a_visible_row_and_so_are_its_ratios(
    b: SimpleNamespace, jobs: list, lack: dict, why: str
) -> None:
    sides = b.throughput.sides_of(jobs, "gradients/s", lambda job: 1.0)
    mine = [side for side in sides if side.name == "labkit AsyncPS"]
    theirs = [replace(side, **lack) for side in sides if side.name == b.trainers.DASK]
    pairs = [pair for pair in b.throughput._pairs(jobs) if pair.under[0] == b.trainers.DASK]
    made = b.rows.alternate(b.rows.Settings(), "throughput", mine + theirs, repetitions=1, pairs=pairs)
    skipped = [(row.side, row.skipped, row.median) for row in made if row.skipped]
    ratio = f"labkit AsyncPS / {b.trainers.DASK}"
    assert skipped == [(b.trainers.DASK, why, None), (ratio, why, None), (ratio, why, None)]


@pytest.mark.slow
def test_a_peer_that_fails_is_named_and_the_others_go_on(b: SimpleNamespace) -> None:
    def fail() -> dict:
        raise b.rows.Unmeasured("failed: it fell")

    sides = [b.rows.Side("falls", fail), b.rows.Side("stands", lambda: {("net", "u"): 2.0})]
    pair = b.rows.Pair("pair", ("stands", "net"), ("stands", "net"), "u")
    made = b.rows.alternate(b.rows.Settings(), "title", sides, pairs=[pair])
    assert [(row.side, row.median, row.skipped) for row in made] == [
        ("stands", 2.0, None),
        ("falls", None, "failed: it fell"),
        ("stands / stands", 1.0, None),
    ]


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(b: SimpleNamespace) -> None:
    with pytest.raises(b.children.ProgramFailed, match=r"http\.server was not through after 1 s"):
        b.children.fresh("http.server", 0, patience=1.0)
    assert not [p for p in psutil.Process().children(recursive=True) if "http.server" in " ".join(p.cmdline())]


def test_a_program_that_fails_says_its_last_words(b: SimpleNamespace) -> None:
    with pytest.raises(b.children.ProgramFailed, match="No module named"):
        b.children.fresh("no_such_module")


@pytest.fixture
def clock(b: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    hand = SimpleNamespace(now=100.0)
    monkeypatch.setattr(b.job.time, "perf_counter", lambda: hand.now)
    return hand


def test_a_rate_is_counted_from_the_warm_up_on(b: SimpleNamespace, clock: SimpleNamespace) -> None:
    score = b.job.Score(b.job.Job("alone", (4,), 1, 0.1, warm_up=1.0, length=2.0))
    score.begin()
    told = []
    for seconds, gradients in ((0.5, 1_000), (1.5, 1_100), (2.5, 1_200), (3.5, 1_500)):
        clock.now = 100.0 + seconds
        told.append(score.goes_on(gradients, lambda: np.empty(0)))
    assert told == [True, True, True, False]
    assert score.result == (1_500 - 1_100) / 2.0


def test_the_clock_stands_still_during_an_evaluation(b: SimpleNamespace, clock: SimpleNamespace) -> None:
    job = b.job.Job("alone", (4,), 1, 0.1, warm_up=0.0, length=9.0, accuracy=0.9)
    score, answers = b.job.Score(job), iter((0.5, 0.95))
    score.begin()

    def evaluate(weights: np.ndarray) -> float:
        clock.now += 5.0
        return next(answers)

    score._accuracy = evaluate
    clock.now += 1.0
    assert score.goes_on(10, lambda: job.start)
    clock.now += 2.0
    assert not score.goes_on(20, lambda: job.start)
    assert score.result == 3.0


def test_a_peer_gets_the_batches_that_labkits_workers_get(b: SimpleNamespace) -> None:
    job = b.job.Job("sync", (8,), 2, 0.1, 0.0, 1.0, seed=3)
    cluster, budget = lk.SimulatedCluster(workers=2, servers=1), lk.Budget(updates=20)
    run = lk.train(job.problem, lk.SyncPS(learning_rate=0.1), cluster, budget, checkpoint=False).wait()
    weights, gradient, batches = job.start, job.gradient(), [job.batches(n) for n in range(2)]
    for _ in range(20):
        weights -= np.float32(0.1) * sum(gradient(weights, next(own)).copy() for own in batches) / 2
    np.testing.assert_allclose(weights, run.engine.parameters, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_network_in_pytorch_is_labkits(b: SimpleNamespace) -> None:
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
@pytest.mark.parametrize("name", ["throughput", "accuracy"])
def test_a_quick_run_measures_what_is_installed_and_names_what_is_not(tmp_path: Path, name: str) -> None:
    file = tmp_path / "numbers.json"
    line = [sys.executable, "-m", "benchmarks", "--quick", "--only", name, "--json", str(file)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = json.loads(file.read_text())["benchmarks"]
    assert kept["error"] is None
    sides = {row["side"] for row in kept["rows"] if row["unit"] != "x"}
    assert set(SIDES) <= sides
    torch = importlib.util.find_spec("torch") is not None
    for row in kept["rows"]:
        assert row.keys() == FIELDS
        if row["skipped"]:
            assert row["skipped"].startswith("not installed: "), row
            assert not (torch and "DDP" in row["side"]), row
        else:
            assert 0 < row["low"] <= row["median"] <= row["high"]
