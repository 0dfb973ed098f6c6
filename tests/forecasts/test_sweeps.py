"""Sweeps: which runs a grid has, their results, the file from which an interrupted sweep continues, tables and figures."""

import csv
import itertools
import json
import math
import os
import resource
import signal
import statistics
from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.forecasts.sweeps import RESULTS

pytestmark = pytest.mark.simulated

PROBLEM = lk.Problem("moons", hidden=(4,))
SHORT = lk.Budget(updates=20)


def cluster(workers, **more):
    return lk.SimulatedCluster(workers=workers, compute=lk.distributions.Exponential(0.01), **more)


def small(**more):
    given = {
        "strategies": ["sync-ps", "async-ps"],
        "clusters": [cluster(1), cluster(2)],
        "budgets": SHORT,
        "seeds": [3, 5],
    }
    return lk.sweep(PROBLEM, **given | more)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Execute simulated runs in this process, as on a machine with one core."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.fixture(scope="module")
def done():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 1)
        return small()


def test_a_sweep_is_the_product_of_its_parts_in_their_order(done):
    wanted = [(s, w, seed) for s in ("SyncPS", "AsyncPS") for w in (1, 2) for seed in (3, 5)]
    assert [(row["strategy"], row["workers"], row["seed"]) for row in done.rows] == wanted
    assert len(done) == 8
    assert done.varied == ("strategy", "workers")


def test_every_row_has_the_results_of_its_run(done):
    for row in done.rows:
        strategy = {"SyncPS": lk.SyncPS(), "AsyncPS": lk.AsyncPS()}[row["strategy"]]
        run = lk.train(PROBLEM, strategy, cluster(row["workers"]), SHORT, seed=row["seed"]).wait()
        summary = run.summary()
        for name in ("updates", "gradients", "seconds", "gradients_per_second", "accuracy", "loss", "stopped_by"):
            assert row[name] == summary[name]
        assert row["staleness"] == summary["staleness"]["mean"]
        assert row["ledger_closes"] is True
        assert row["error"] is None


def test_medians_are_over_the_seeds(done):
    (line,) = [m for m in done.medians("seconds") if (m["strategy"], m["workers"]) == ("AsyncPS", 2)]
    values = [row["seconds"] for row in done.rows if (row["strategy"], row["workers"]) == ("AsyncPS", 2)]
    assert line["seconds"] == statistics.median(values)
    assert (line["seconds_low"], line["seconds_high"], line["runs"]) == (min(values), max(values), 2)


def test_a_number_of_seeds_counts_from_the_seed_of_the_problem():
    found = lk.sweep(lk.Problem("moons", hidden=(4,), seed=7), "async-ps", cluster(2), SHORT, seeds=3)
    assert [row["seed"] for row in found.rows] == [7, 8, 9]
    assert found.varied == ()


def test_an_option_of_one_strategy_is_a_column_and_empty_for_the_others():
    found = small(strategies=[lk.SSP(s=1), lk.SSP(s=3), lk.AsyncPS()], clusters=cluster(2), seeds=[0])
    assert [(row["strategy"], row["s"]) for row in found.rows] == [("SSP", 1), ("SSP", 3), ("AsyncPS", None)]
    assert found.varied == ("strategy", "s")


def test_budgets_and_problems_are_varied_too():
    problems = [PROBLEM, lk.Problem("moons", hidden=(4,), batch_size=8)]
    found = lk.sweep(problems, "async-ps", cluster(2), [SHORT, lk.Budget(seconds=0.05)], seeds=[0])
    assert [row["batch_size"] for row in found.rows] == [problems[0].batch_size] * 2 + [8, 8]
    assert [row["budget_seconds"] for row in found.rows] == [None, 0.05] * 2
    assert [row["stopped_by"] for row in found.rows] == ["updates", "seconds"] * 2


def test_a_run_that_fails_is_a_row_with_its_error_and_is_executed_again(tmp_path):
    stuck = lk.SimulatedCluster(workers=2, compute=0.01, restart_after=None)

    class Broken(lk.AsyncPS):
        async def worker(self, ctx, model):
            raise ValueError("no data today")

    file, seen = tmp_path / "sweep.jsonl", []
    for runs in (2, 1):  # of the second sweep, only the failed run is executed again
        found = lk.sweep(
            PROBLEM,
            [Broken(), lk.AsyncPS()],
            stuck,
            SHORT,
            seeds=[0],
            path=file,
            on_result=lambda *row: seen.append(row[0]),
        )
        assert "no data today" in found.rows[0]["error"]
        assert found.rows[1]["error"] is None
        assert "failed" in str(found).splitlines()[0]
        assert len(seen) == runs
        seen.clear()
    assert len(lk.Sweep.load(file)) == 2


@pytest.mark.parametrize(("change", "message"), [
    ({"seeds": 0}, "seeds=0 is not allowed"),
    ({"seeds": []}, "0 seeds"),
    ({"seeds": None}, "seeds=None is not allowed"),
    ({"seeds": [1, 1]}, "twice"),
    ({"strategies": []}, "give at least one"),
    ({"strategies": ["asink-ps"]}, "async-ps"),
    ({"strategies": [3]}, "give a lk.Strategy, as"),
    ({"clusters": ["here"]}, "give a lk.SimulatedCluster or a lk.DaskCluster"),
    ({"budgets": 3}, "give a lk.Budget"),
    ({"strategies": ["async-ps", "async-ps"]}, "AsyncPS with the same settings and seed 3 twice"),
    ({"path": ""}, "give a path"),
    ({"progress": 1}, "progress=1 is not allowed"),
    ({"client": 3}, "client=3: give a distributed.Client"),
    ({"on_result": 3}, "on_result=3: give a function"),
    ({"path": "/nowhere/at/all.jsonl"}, "cannot be written"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_runs(change, message):
    ran = []
    with pytest.raises(lk.BadInput, match=message):
        small(**{"on_result": lambda *row: ran.append(row)} | change)
    assert not ran


# the file -------------------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def after(count):
    def on_result(done, total, row):
        if done == count:
            raise Interrupted

    return on_result


def test_an_interrupted_sweep_continues_where_it_was(tmp_path, done):
    file = tmp_path / "sweep.jsonl"
    with pytest.raises(Interrupted):
        small(path=file, on_result=after(3))
    assert len(lk.Sweep.load(file)) == 3
    with open(file, "ab") as half:
        half.write(b'{"key": "012')  # the program was killed while it wrote
    seen = []
    found = small(path=file, on_result=lambda done, total, row: seen.append((done, total)))
    assert seen == [(n, 8) for n in range(4, 9)]
    assert found.rows == done.rows
    assert small(path=file, on_result=after(9)).rows == found.rows  # nothing is executed again
    assert len(lk.Sweep.load(file)) == 8


def test_ctrl_c_says_what_is_kept(tmp_path):
    def interrupt(done, total, row):
        if done == 3:
            raise KeyboardInterrupt

    file = tmp_path / "sweep.jsonl"
    for path, message in (
        (None, "3 of 8 runs had ended; their results are lost"),
        (file, f"3 of 8 runs are in {file}"),
    ):
        with pytest.raises(KeyboardInterrupt) as interrupted:
            small(path=path, on_result=interrupt)
        assert message in interrupted.value.__notes__[0]


def test_two_sweeps_do_not_write_to_one_file(tmp_path):
    file, refused = tmp_path / "sweep.jsonl", []

    def second(done, total, row):
        if done == 1:
            with pytest.raises(lk.BadInput, match="is being written by another sweep"):
                small(path=file)
            refused.append(row)

    small(path=file, on_result=second)
    assert refused
    assert len(small(path=file, seeds=[3, 5])) == 8  # the file is complete, so it is not written to


def test_results_before_a_full_disk_are_kept(tmp_path):
    file, before = tmp_path / "sweep.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(done, total, row):
        if done == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100, before[1]))

    try:
        with pytest.raises(lk.BadInput, match="cannot be written: File too large"):
            small(path=file, on_result=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(lk.Sweep.load(file)) == 3
    assert len(small(path=file)) == 8


def test_a_file_may_be_used_for_a_larger_grid(tmp_path):
    file = tmp_path / "sweep.jsonl"
    small(path=file, seeds=[3])
    seen = []
    found = small(path=file, seeds=[3, 5], on_result=lambda done, total, row: seen.append(row["seed"]))
    assert seen == [5] * 4
    assert len(found) == 8


@pytest.mark.parametrize(("text", "message"), [
    ("hello\n", "not a file of a sweep"),
    ('{"labkit_sweep": 1, "labkit": "0.0.1"}\n', "was written by labkit 0.0.1"),
    ('{"labkit_sweep": 2, "labkit": "9.0"}\n', "has format 2, made by a newer labkit; this one reads format 1"),
    ("\xff", "not a file of a sweep"),
])  # fmt: skip
def test_other_files_are_refused_and_not_changed(tmp_path, text, message):
    file = tmp_path / "other"
    file.write_text(text)
    for use in (lambda: small(path=file), lambda: lk.Sweep.load(file)):
        with pytest.raises(lk.BadInput, match=message):
            use()
    assert file.read_text() == text


# tables and figures ---------------------------------------------------------------------------------------------------


def test_csv_and_data_frame_have_one_row_per_run(tmp_path, done):
    with open(done.to_csv(tmp_path / "sweep.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["updates"]) for row in rows] == [20] * 8
    frame = done.frame()
    assert (
        list(frame.columns) == list(rows[0]) == ["data", "strategy", "engine", "workers", "servers", "seed", *RESULTS]
    )
    assert frame.groupby("strategy")["gradients"].sum()["AsyncPS"] == 80


def test_the_same_sweep_gives_the_same_bytes(tmp_path, done):
    assert small().to_csv(tmp_path / "a.csv").read_bytes() == done.to_csv(tmp_path / "b.csv").read_bytes()


def test_the_table_has_a_row_for_each_setting(done):
    lines = str(done).splitlines()
    assert " ".join(lines[0].split()) == "strategy workers runs gradients/s staleness accuracy time to accuracy (s)"
    assert len(lines) == 5
    assert done._repr_html_().count("<tr>") >= 4


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("name", ["throughput", "efficiency", "staleness", "pareto", "overview"])
def test_figures_name_every_line(done, name):
    written = texts(getattr(done.plot, name)())
    assert {"SyncPS", "AsyncPS"} <= set(written)


def test_a_line_is_the_median_and_its_band_the_range(done):
    (axes,) = done.plot.throughput().axes
    line = axes.lines[1].get_xydata()
    wanted = {m["workers"]: m for m in done.medians("gradients_per_second") if m["strategy"] == "AsyncPS"}
    assert line.tolist() == [[w, m["gradients_per_second"]] for w, m in wanted.items()]
    band = axes.collections[1].get_paths()[0].vertices
    assert band[:, 1].min() == min(m["gradients_per_second_low"] for m in wanted.values())
    assert band[:, 1].max() == max(m["gradients_per_second_high"] for m in wanted.values())


def test_no_setting_of_the_front_is_beaten(done):
    points = [
        (m["gradients_per_second"], 100 * m["accuracy"]) for m in done.medians("gradients_per_second", "accuracy")
    ]
    front = [tuple(p) for p in done.plot.pareto().axes[0].lines[0].get_xydata()]
    for point in points:
        beaten = any(q != point and q[0] >= point[0] and q[1] >= point[1] for q in points)
        assert (point in front) != beaten


def test_a_figure_without_values_says_why(done):
    assert "the budget has no accuracy" in texts(done.plot.time_to_accuracy())
    found = lk.sweep(PROBLEM, "async-ps", [cluster(1), cluster(2)], lk.Budget(updates=5, accuracy=0.99), seeds=1)
    assert "no run reached 99% of held-out samples" in texts(found.plot.time_to_accuracy())
    assert str(found).count("not reached") == 2
    with pytest.raises(lk.BadInput, match="no runs"):
        lk.Sweep((), ()).plot.throughput()


def reached(workers, seed, seconds, strategy="AsyncPS"):
    """A row of a run that reached its accuracy after `seconds`, or did not (None)."""
    given = {
        "strategy": strategy,
        "workers": workers,
        "servers": 1,
        "seed": seed,
        "target_accuracy": 0.9,
        "accuracy": 0.9,
    }
    return (
        dict.fromkeys(RESULTS) | given | {"time_to_accuracy": seconds, "gradients_per_second": 100.0, "staleness": 1.0}
    )


def test_a_run_that_does_not_reach_the_accuracy_is_slower_than_all_others():
    times = {1: (1.0, 3.0, None), 2: (2.0, None, None), 4: (None, None, None), 8: (1.0, 2.0, 3.0)}
    rows = [reached(n, seed, each) for n, several in times.items() for seed, each in enumerate(several)]
    found = lk.Sweep(tuple(rows), ("workers",))
    lines = found.medians("time_to_accuracy")
    assert [line["time_to_accuracy"] for line in lines] == [3.0, None, None, 2.0]
    assert [line["time_to_accuracy_high"] for line in lines] == [math.inf, math.inf, None, 3.0]
    assert [found.time_text(line) for line in lines] == ["3, 2 of 3 runs", "reached by 1 of 3 runs", "not reached", "2"]
    points = found.plot.time_to_accuracy().axes[0].lines[0].get_xydata()
    np.testing.assert_array_equal(points, [[1, 3], [2, np.nan], [4, np.nan], [8, 2]])


def test_lines_with_the_same_values_are_both_visible():
    rows = [reached(n, 0, float(n), name) for name in ("AsyncPS", "SSP", "SyncPS") for n in (1, 2)]
    rows[-1]["time_to_accuracy"] = 5.0
    (axes,) = lk.Sweep(tuple(rows), ("strategy", "workers")).plot.time_to_accuracy().axes
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "-"]
    assert axes.lines[1].get_markersize() < axes.lines[0].get_markersize()


def test_times_that_differ_much_are_drawn_on_a_logarithmic_axis():
    for slowest, scale in ((10.0, "linear"), (100.0, "log")):
        found = lk.Sweep((reached(1, 0, 1.0), reached(2, 0, slowest)), ("workers",))
        assert found.plot.time_to_accuracy().axes[0].get_yscale() == scale


def test_servers_are_no_setting_if_they_follow_from_the_strategy():
    found = small(strategies=["async-ps", "ring-all-reduce"], clusters=cluster(2), seeds=[0])
    assert [row["servers"] for row in found.rows] == [1, 0]
    assert found.varied == ("strategy",)
    more = small(strategies="async-ps", clusters=[cluster(2, servers=1), cluster(2, servers=2)], seeds=[0])
    assert more.varied == ("servers",)


def test_names_and_ticks_of_a_figure_do_not_overlap():
    rows = [reached(n, 0, 1.0 + k / 100, f"Strategy{k}") for k in range(14) for n in (30, 31, 32, 33, 64)]
    figure = lk.Sweep(tuple(rows), ("strategy", "workers")).plot.time_to_accuracy()
    (axes,) = figure.axes
    renderer = figure.canvas.get_renderer()
    for several in (axes.texts, axes.get_xticklabels()):
        boxes = [text.get_window_extent(renderer) for text in several]
        assert len(boxes) >= 3
        assert not any(a.shrunk(0.9, 0.5).overlaps(b.shrunk(0.9, 0.5)) for a, b in itertools.combinations(boxes, 2))
        assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_a_setting_without_numbers_is_no_axis(done):
    with pytest.raises(lk.BadInput, match="x='strategy': give a setting whose values are numbers and differ: workers"):
        done.plot.throughput(x="strategy")


# other processes ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.processes
def test_runs_on_all_cores_are_the_same_runs(monkeypatch, done):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("labkit.forecasts.sweeps.ALONE_S", 0.0)
    assert small().rows == done.rows


@pytest.mark.processes
@pytest.mark.slow
def test_runs_on_a_dask_cluster_of_the_user(done):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as processes,
        Client(processes, set_as_default=False) as client,
    ):
        for where in (client, client.scheduler.address):
            found = small(client=where)
            assert found.rows == done.rows
        assert client.status == "running"


class Dies(lk.AsyncPS):
    """Its process dies, as one that needs more memory than there is."""

    async def worker(self, ctx, model):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.processes
def test_a_run_that_takes_its_process_with_it_is_a_row_with_an_error(monkeypatch, done):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("labkit.forecasts.sweeps.ALONE_S", 0.0)
    found = small(strategies=[Dies(), "async-ps"], clusters=cluster(2), seeds=[3])
    assert "was lost" in found.rows[0]["error"]
    assert found.rows[1] in done.rows


@pytest.mark.processes
@pytest.mark.slow
def test_a_cluster_that_is_gone_is_an_error(monkeypatch):
    monkeypatch.setattr("labkit.engines.dask.cluster.tasks.RETURN_S", 0.5)
    monkeypatch.setattr("labkit.engines.dask.cluster.tasks.LOOK_S", 0.1)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as processes,
        Client(processes, set_as_default=False) as client,
    ):
        events = {1: lambda: processes.scale(0)}
        with pytest.raises(lk.ClusterError, match="All Dask workers of the cluster are gone"):
            small(client=client, on_result=lambda done, *_: events.get(done, int)(), budgets=lk.Budget(updates=300))


@pytest.mark.slow
@pytest.mark.processes
def test_runs_on_processes_are_part_of_a_sweep():
    with lk.DaskCluster(workers=1, pace=0.005) as real:
        clusters = [real, real.resized(workers=2), cluster(2)]
        found = lk.sweep(PROBLEM, "async-ps", clusters, SHORT, seeds=[0])
    rows = [(row["engine"], row["workers"], row["updates"]) for row in found.rows]
    assert rows == [("dask", 1, 20), ("dask", 2, 20), ("simulated", 2, 20)]
    assert json.loads(json.dumps(found.rows)) == list(map(dict, found.rows))


# code and data in the key ---------------------------------------------------------------------------------------------


def scaled(factor):
    """A strategy whose server scales the learning rate by `factor`, which is only in a closure."""

    @dataclass(frozen=True)
    class Scaled(lk.AsyncPS):
        async def server(self, ctx, shard):
            async for request in ctx.inbox(lk.Push, lk.Pull):
                if isinstance(request, lk.Push):
                    await ctx.compute(shard.apply, request, factor * self.learning_rate)
                ctx.send(request.sender, shard.weights())

    return Scaled()


def with_schedule(factor):
    return lk.SyncPS(schedule=lambda update: factor)


def with_arrays(column):
    x = np.random.default_rng(0).normal(size=(200, 3))
    return lk.Problem(lk.from_arrays(x, (x[:, column] > 0).astype(int)), hidden=())


def with_dask(column):
    x = da.random.default_rng(0).normal(size=(200, 3), chunks=(100, 3))
    return lk.Problem(lk.from_dask(x, (x[:, column] > 0).astype(int), classes=2), hidden=())


def slowed(factor):
    """A cluster with a user's distribution."""

    @dataclass(frozen=True)
    class Slowed(lk.distributions.Deterministic):
        def draw(self, rng, n):
            return np.full(n, 0.01 * (1 + factor))

    return lk.SimulatedCluster(workers=2, compute=Slowed(0.01))


CHANGES = {
    "code of a strategy": lambda i: (PROBLEM, scaled(float(i)), cluster(2)),
    "code of a schedule": lambda i: (PROBLEM, with_schedule(float(i)), cluster(2)),
    "data in NumPy": lambda i: (with_arrays(i), lk.SyncPS(), cluster(2)),
    "code of a distribution": lambda i: (PROBLEM, lk.SyncPS(), slowed(float(i))),
    "data in Dask": lambda i: (with_dask(i), lk.SyncPS(), cluster(2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_run_is_executed_again_and_an_unchanged_one_is_not(tmp_path, change):
    """The oracle is a sweep without a file."""
    file, executed = tmp_path / "sweep.jsonl", []

    def rows(i, **more):
        return lk.sweep(*CHANGES[change](i), SHORT, seeds=[0], progress=False, **more).rows

    for i in (0, 1, 0, 1):
        found = rows(i, path=file, on_result=lambda *row, i=i: executed.append(i))
        assert found == rows(i)
    assert executed == [0, 1]


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_with_changed_code_or_data_is_not_resumed(tmp_path, change):
    def parts(i):
        return dict(zip(("problem", "strategy", "cluster"), CHANGES[change](i)))

    run = lk.train(*CHANGES[change](0), SHORT, checkpoint=tmp_path)
    run.advance(0.05)
    state = run.summary()["updates"]
    del run
    with pytest.raises(
        lk.BadInput, match=r"has another one, (code\.)?sha256 .* instead of .* Only the same run can be resumed"
    ):
        lk.resume(tmp_path, **parts(1))
    assert lk.resume(tmp_path, **parts(0)).summary()["updates"] == state


def test_settings_that_differ_only_by_code_are_separate_rows():
    found = lk.sweep(PROBLEM, [with_schedule(1.0), with_schedule(0.0)], cluster(2), SHORT, seeds=[0, 1], progress=False)
    assert [row["strategy"] for row in found.rows] == ["SyncPS", "SyncPS", "SyncPS (2)", "SyncPS (2)"]
    assert [line["runs"] for line in found.medians("loss")] == [2, 2]
