"""Sweeps: which runs a grid has, their results, the file from which an interrupted sweep continues, tables and figures."""

import csv
import json
import statistics

import pandas
import pytest
from distributed import Client, LocalCluster

import labkit as lk
from labkit.sweeps import RESULTS

pytestmark = pytest.mark.simulated

PROBLEM = lk.Problem("moons", hidden=(4,))
SHORT = lk.Budget(updates=20)


def cluster(workers, **more):
    return lk.SimulatedCluster(workers=workers, compute=lk.Exponential(0.01), **more)


def small(**more):
    given = {"strategies": ["sync-ps", "async-ps"], "clusters": [cluster(1), cluster(2)], "budgets": SHORT, "seeds": [3, 5]}
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


def test_a_run_that_fails_is_a_row_with_its_error():
    stuck = lk.SimulatedCluster(workers=2, compute=0.01, restart_after=None)

    class Broken(lk.AsyncPS):
        async def worker(self, ctx, model):
            raise ValueError("no data today")

    found = lk.sweep(PROBLEM, [Broken(), lk.AsyncPS()], stuck, SHORT, seeds=[0])
    assert "no data today" in found.rows[0]["error"]
    assert found.rows[1]["error"] is None
    assert "failed" in str(found).splitlines()[0]


@pytest.mark.parametrize(("change", "message"), [
    ({"seeds": 0}, "seeds=0 is not allowed"),
    ({"seeds": []}, "0 seeds"),
    ({"seeds": None}, "seeds=None is not allowed"),
    ({"seeds": [1, 1]}, "twice"),
    ({"strategies": []}, "give at least one"),
    ({"strategies": ["asink-ps"]}, "async-ps"),
    ({"strategies": [3]}, "give a lk.Strategy or its name"),
    ({"clusters": ["here"]}, "give a lk.SimulatedCluster or a lk.DaskCluster"),
    ({"budgets": 3}, "give a lk.Budget"),
    ({"strategies": ["async-ps", "async-ps"]}, "AsyncPS with the same settings and seed 3 twice"),
    ({"path": ""}, "give a path"),
    ({"path": "/nowhere/at/all.jsonl"}, "cannot be written"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_runs(change, message):
    ran = []
    with pytest.raises(lk.BadInput, match=message):
        small(on_result=lambda *row: ran.append(row), **change)
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
    assert [{**row, "wall_seconds": 0} for row in found.rows] == [{**row, "wall_seconds": 0} for row in done.rows]
    assert small(path=file, on_result=after(9)).rows == found.rows  # nothing is executed again
    assert len(lk.Sweep.load(file)) == 8


def test_a_file_may_be_used_for_a_larger_grid(tmp_path):
    file = tmp_path / "sweep.jsonl"
    small(path=file, seeds=[3])
    seen = []
    found = small(path=file, seeds=[3, 5], on_result=lambda done, total, row: seen.append(row["seed"]))
    assert seen == [5] * 4
    assert len(found) == 8


@pytest.mark.parametrize(("text", "message"), [
    ("hello\n", "is not a file of a sweep"),
    ('{"labkit_sweep": 1, "labkit": "0.0.1"}\n', "was written by labkit 0.0.1"),
    ("\xff", "is not a file of a sweep"),
])  # fmt: skip
def test_other_files_are_refused_and_not_changed(tmp_path, text, message):
    file = tmp_path / "other"
    file.write_text(text)
    for use in (lambda: small(path=file), lambda: lk.Sweep.load(file)):
        with pytest.raises(lk.BadInput, match=message):
            use()
    assert file.read_text() == text


def test_a_damaged_line_is_named(tmp_path):
    file = tmp_path / "sweep.jsonl"
    small(path=file, seeds=[3])
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], "{}", *lines[3:], ""]))
    with pytest.raises(lk.BadInput, match="line 3: this is not the result of a run"):
        lk.Sweep.load(file)


# tables and figures ---------------------------------------------------------------------------------------------------


def test_csv_and_data_frame_have_one_row_per_run(tmp_path, done):
    with open(done.to_csv(tmp_path / "sweep.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["updates"]) for row in rows] == [20] * 8
    frame = done.frame()
    assert list(frame.columns) == list(rows[0]) == ["data", "strategy", "engine", "workers", "servers", "seed", *RESULTS]
    assert frame.groupby("strategy")["gradients"].sum()["AsyncPS"] == 80


def test_parquet_holds_the_data_frame(tmp_path, done):
    assert pandas.read_parquet(done.to_parquet(tmp_path / "sweep.parquet")).equals(done.frame())


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
    points = [(m["gradients_per_second"], 100 * m["accuracy"]) for m in done.medians("gradients_per_second", "accuracy")]
    front = [tuple(p) for p in done.plot.pareto().axes[0].lines[0].get_xydata()]
    for point in points:
        beaten = any(q != point and q[0] >= point[0] and q[1] >= point[1] for q in points)
        assert (point in front) != beaten


def test_a_figure_without_values_says_so(done):
    assert "no run has a time to accuracy" in texts(done.plot.time_to_accuracy())


def test_a_setting_without_numbers_is_no_axis(done):
    with pytest.raises(lk.BadInput, match="x='strategy': give a setting whose values are numbers and differ: workers"):
        done.plot.throughput(x="strategy")


# other processes ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_runs_on_all_cores_are_the_same_runs(monkeypatch, done):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [{**row, "wall_seconds": 0} for row in small().rows] == [{**row, "wall_seconds": 0} for row in done.rows]


@pytest.mark.slow
def test_runs_on_a_dask_cluster_of_the_user(done):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as processes,
        Client(processes, set_as_default=False) as client,
    ):
        for where in (client, client.scheduler.address):
            found = small(client=where)
            assert [{**row, "wall_seconds": 0} for row in found.rows] == [{**row, "wall_seconds": 0} for row in done.rows]
        assert client.status == "running"


@pytest.mark.slow
def test_runs_on_processes_are_part_of_a_sweep():
    with lk.DaskCluster(workers=1, pace=0.005) as real:
        clusters = [real, real.resized(workers=2), cluster(2)]
        found = lk.sweep(PROBLEM, "async-ps", clusters, SHORT, seeds=[0])
    rows = [(row["engine"], row["workers"], row["updates"]) for row in found.rows]
    assert rows == [("dask", 1, 20), ("dask", 2, 20), ("simulated", 2, 20)]
    assert json.loads(json.dumps(found.rows)) == list(map(dict, found.rows))
