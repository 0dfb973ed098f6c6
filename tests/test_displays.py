"""Displays of the public objects: one description as text and as HTML, at every stage of a run, on both engines."""

import html
import html.parser
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import labkit as lk
from labkit.description import Description
from labkit.engines.cluster_text import distribution_text

SIMULATED = pytest.mark.simulated


class Page(html.parser.HTMLParser):
    """Reads HTML: `lines`, the texts of elements, and `rows`, the cells of table rows. Checks that elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.lines, self.rows, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.lines.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(value):
    """The rows of name and value of a display. Checks that text and HTML show the same, and that `repr` is one line."""
    text, page = str(value), Page(value._repr_html_())
    assert "\n" not in repr(value) or repr(value) == text  # a summary is a table in any case
    for line in page.lines:
        assert line in text, line
    for name, cell in rows(value).items():
        assert re.search(rf"^{re.escape(name)} +{re.escape(cell)}$", text, re.MULTILINE), name
    return rows(value)


def rows(value):
    """The rows of name and value of a display of what continues: its text may already show other numbers."""
    return {row[0]: row[1] for row in Page(value._repr_html_()).rows if len(row) == 2}


def test_a_description_has_title_rows_tables_and_notes():
    made = Description("Title", (("a", "1"), ("long name", "2")), (lk.Table(["x"], [[3]]),), ("A note.",))
    assert str(made).splitlines() == ["Title", "a          1", "long name  2", "", "x", "3", "", "A note."]
    page = Page(made._repr_html_())
    assert page.lines == ["Title", "a", "1", "long name", "2", "x", "3", "A note."]
    assert str(Description(rows=(("a", "1"),))) == "a  1"


def test_descriptions_escape_markup():
    text = Description("<b>", (("<i>", "<u>"),), (), ("<s>",))._repr_html_()
    assert not re.search("<[bius]>", text)
    assert Page(text).lines == ["<b>", "<i>", "<u>", "<s>"]


# problems -------------------------------------------------------------------------------------------------------------


def test_a_problem_shows_data_network_and_batch():
    rows = shown(lk.Problem("digits", hidden=(64, 32), batch_size=50, partition="by-label:0.5", seed=3))
    assert rows == {
        "data set": "digits: 1,438 training and 359 held-out samples, 64 features (8 x 8 pixels), 10 classes",
        "network": "64-64-32-10, relu, cross-entropy: 6,570 parameters, 26.3 kB as float32",
        "batch": "50 samples per gradient; an epoch is 29 gradients",
        "partition": "by-label:0.5",
        "seed": "3",
    }  # 64 x 64 + 64 + 64 x 32 + 32 + 32 x 10 + 10 = 6,570; 1,438 / 50 = 28.8


@pytest.mark.parametrize(
    ("problem", "network"),
    [
        (lk.Problem("quadratic", options={"dimension": 3}), "quadratic function of 3 dimensions: 3 parameters, 24 B as float64"),
        (lk.Problem("linear-regression", hidden=()), "10-1, squared-error: 11 parameters, 44 B as float32"),
        (lk.Problem("clicks", hidden=(4,)), "embedding table 20,000 x 8, then 8-4-2, relu, cross-entropy: 160,046 parameters"),
        (lk.Problem("moons", timing_only=True, hidden=(4,)), "2-4-2, relu, cross-entropy: 22 parameters, 88 B as float32"),
    ],
    ids=["quadratic", "linear", "clicks", "timing only"],
)  # fmt: skip
def test_every_kind_of_network_has_a_text(problem, network):
    assert shown(problem)["network"].startswith(network)


def test_data_of_your_own():
    data = lk.from_arrays(np.arange(30.0).reshape(10, 3), np.arange(10) % 2, name="<mine>")
    assert shown(lk.Problem(data))["data set"].startswith(
        "<mine>: 8 training and 2 held-out samples, 3 features, 2 classes"
    )


def test_a_large_data_set_is_not_made_to_be_shown():
    problem = lk.Problem("moons", options={"samples": 10**7})
    rows = shown(problem)
    assert rows["data set"] == "moons, not made yet"
    assert rows["options"] == "samples=10000000"
    assert "dataset" not in problem.__dict__


# strategies, budgets, clusters ----------------------------------------------------------------------------------------


def test_a_strategy_shows_its_options_and_marks_the_changed_ones():
    page = Page(lk.SSP(s=5, learning_rate=0.05)._repr_html_())
    table = [row for row in page.rows if len(row) == 4]
    assert table[0] == ["option", "value", "changed from", "meaning"]
    changed = {name: (value, default) for name, value, default, _ in table[1:] if default}
    assert changed == {"s": ("5", "3"), "learning_rate": ("0.05", "0.1")}
    assert table[1][0] == "s"  # the strategy's own options are first
    assert "can change during a run" in {row[0]: row[3] for row in table}["learning_rate"]
    rows = shown(lk.SSP(s=5))
    assert rows["algorithm"] == "labkit/strategies/ssp.py"
    assert rows["one update"] == lk.SSP().one_update()


def test_a_strategy_with_default_options_marks_none():
    assert "changed from" not in str(lk.AsyncPS())
    assert str(lk.AsyncPS()).splitlines()[0] == "AsyncPS: parameter server without waiting; gradients are stale"


def test_a_strategy_of_your_own():
    class Mine(lk.AsyncPS):
        pass

    assert shown(Mine())["algorithm"] == __name__
    assert str(Mine()).startswith("Mine: ")


def test_a_budget_shows_its_limits():
    assert shown(lk.Budget(updates=1000)) == {"updates": "1,000 of the whole model"}
    rows = shown(lk.Budget(epochs=2.5, seconds=20, samples=10**6, accuracy=0.955))
    assert rows == {
        "samples": "1,000,000 in applied gradients", "epochs": "2.5 passes over the training data",
        "time": "20 s of engine time, without pauses", "accuracy": "95.5% on held-out data",
    }  # fmt: skip
    assert "95%" in shown(lk.Budget())["default"]


def test_a_simulated_cluster_shows_times_and_links():
    cluster = lk.SimulatedCluster(
        workers=8, servers=2, compute=lk.distributions.Exponential(0.1), server_time=0.001, latency=5e-5, bandwidth=125e6,
        slow={"worker-2": 5}, cores=2, replicas=1, restart_after=None, checkpoint_every=2.0,
    )  # fmt: skip
    assert shown(cluster) == {
        "roles": "8 workers, 2 servers, each with a backup",
        "gradient": "exponential, mean 100 ms",
        "server work": "1 ms",
        "slow": "worker-2 5x slower",
        "links": "latency 50 us, 125 MB/s in and out of a node",
        "cores": "2 per node",
        "lost roles": "lost after 5 s of silence, not restarted automatically",
        "checkpoints": "every 2 s",
    }


def test_distributions_have_units():
    for distribution, text in [
        (lk.distributions.Deterministic(0.01), "10 ms"),
        (lk.distributions.Deterministic(0), "0 s"),
        (lk.distributions.LogNormal(0.01, 0.5), "lognormal, mean 10 ms, sigma 0.5"),
        (lk.distributions.Uniform(0.1, 0.3), "uniform, low 100 ms, high 300 ms, mean 200 ms"),
        (lk.distributions.Pareto(0.005, 3.0), "pareto, minimum 5 ms, alpha 3, mean 7.5 ms"),
        (lk.distributions.Measured((0.1, 0.3)), "measured (2 durations, mean 0.2 s)"),
    ]:
        assert distribution_text(distribution) == text, (distribution, text)


def test_a_cluster_of_processes_is_shown_without_starting_it():
    with lk.DaskCluster(workers=3, servers=1, pace=0.1) as cluster:
        rows = shown(cluster)
        assert rows["roles"] == "3 workers, 1 server"
        assert rows["gradient"] == "100 ms (pace)"
        assert rows["processes"] == "not started; the first run starts them"
        assert not cluster.is_open
        assert repr(cluster) == "<DaskCluster 3 workers, 1 server, on this machine>"
    assert shown(cluster)["processes"] == "closed"


def test_an_existing_scheduler_is_not_contacted():
    with lk.DaskCluster("tcp://192.0.2.1:8786", workers=2, place="spread") as cluster:  # an address that never answers
        rows = shown(cluster)
        assert rows["processes"] == "not connected; the first run connects"
        assert rows["placement"] == "spread"
        assert "192.0.2.1" in str(cluster)


# runs in virtual time -------------------------------------------------------------------------------------------------


@SIMULATED
def test_a_simulated_run_at_each_stage():
    cluster = lk.SimulatedCluster(workers=4, compute=0.1)
    run = lk.train("digits", lk.SyncPS(), cluster, lk.Budget(updates=40, seconds=100))
    rows = shown(run)
    assert set(rows) == {"state", "budget"}
    assert rows["state"] == "not over; time passes in wait(), advance() and step()"
    assert rows["budget"] == "0%: 0 of 40 updates, 0.0 of 100 s"
    assert repr(run) == "<Run SyncPS on digits, simulated: 0 updates in 0.00 s, not over>"
    run.advance(1.0)  # a synchronous update takes 0.1 s
    rows = shown(run)
    assert rows["budget"] == "25%: 10 of 40 updates, 1.0 of 100 s"
    assert rows["updates"] == "10 in 1.00 s, 10 a second"
    run.wait()
    rows = shown(run)
    assert rows["state"] == "ended: 40 updates done"
    assert rows["budget"] == "100%: 40 of 40 updates, 4.0 of 100 s"
    summary = dict(run.summary().rows())
    assert {name: rows[name] for name in ("updates", "staleness", "accuracy", "ledger")}.items() <= summary.items()
    assert repr(run) == "<Run SyncPS on digits, simulated: 40 updates in 4.00 s, ended: 40 updates done>"
    assert str(run).splitlines()[0] == "Run of SyncPS on digits: 4 workers, 1 server, in virtual time"


@SIMULATED
def test_a_run_with_faults_names_the_roles():
    run = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=3, compute=0.1), lk.Budget(seconds=10)).advance(1)
    run.kill("worker-1", restart=False)
    run.advance(0.1)
    assert shown(run)["roles"] == "w1 is down"
    assert shown(run)["faults"] == "killed worker-1 at 1.00 s"


@SIMULATED
def test_a_failed_run_shows_its_error(monkeypatch):
    async def broken(self, ctx, model):
        raise ValueError("a <broken> worker")

    monkeypatch.setattr(lk.AsyncPS, "worker", broken)
    run = lk.train("moons", lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(seconds=10))
    with pytest.raises(lk.RoleError):
        run.wait()
    state = shown(run)["state"]
    assert state.startswith("ended: an error: ")
    assert "a <broken> worker" in state
    assert "<broken>" not in run._repr_html_()


@SIMULATED
def test_a_run_that_diverged():
    run = lk.train("quadratic", lk.SyncPS(learning_rate=10.0), lk.SimulatedCluster(workers=2), lk.Budget(updates=10**6))
    assert shown(run.wait())["state"].startswith("ended: diverged")


@SIMULATED
def test_a_timing_only_run_has_no_accuracy():
    problem = lk.Problem("digits", timing_only=True)
    rows = shown(lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=5)).wait())
    assert "accuracy" not in rows
    assert "loss" not in rows


@SIMULATED
def test_summary_trace_predictor_and_advice(tmp_path):
    cluster = lk.SimulatedCluster(workers=3, compute=0.1)
    run = lk.train("digits", lk.AsyncPS(), cluster, lk.Budget(updates=60)).wait()
    assert shown(run.summary()) == dict(run.summary().rows())

    rows = shown(run.trace)
    assert rows["roles"] == "1 server, 3 workers, 1 chief"
    assert rows["duration"] == f"{run.trace.now / 1e9:.3g} s of engine time, ended: updates"
    counts = {row[0]: row[1] for row in Page(run.trace._repr_html_()).rows if len(row) == 3}
    assert counts["applies"] == "60"
    assert counts["evaluations"] == str(len(run.trace.tables["evaluations"]))

    rows = shown(run.result())
    accuracy = run.summary()["accuracy"]
    assert rows["accuracy"] == f"{accuracy:.1%} held out"
    assert rows["size"] == "9,610 parameters, 38.4 kB as float32"
    assert rows["input"].startswith("samples, shape (n, 64)")
    assert shown(lk.load(run.result().save(tmp_path / "model.npz"))) == rows

    advice = lk.advise("digits", cluster, ["sync-ps", "async-ps", "pipeline"])
    table = [row for row in Page(advice._repr_html_()).rows if len(row) == 7]
    assert [row[0] for row in table] == ["strategy", *(row.label for row in advice.rows)]
    assert advice.best.label in repr(advice)
    assert "Pipeline" in str(advice)


def test_a_predictor_from_a_file_with_an_odd_description():
    objective = lk.Problem("moons", hidden=()).objective()
    about = {"data": "<x>", "accuracy": "high"}
    model = lk.Predictor(None, objective.start(0), network=objective, mean=np.zeros(2), scale=np.ones(2), about=about)
    assert "accuracy" not in shown(model)
    assert "<x>" not in model._repr_html_()


# runs on processes ----------------------------------------------------------------------------------------------------


@pytest.mark.dask
def test_a_run_on_processes_at_each_stage():
    with lk.DaskCluster(workers=2, servers=1, pace=0.02) as cluster:
        run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(seconds=600))
        assert rows(run)["state"] == "running"
        assert re.fullmatch("<Run AsyncPS on moons, dask: .*, running>", repr(run))
        assert rows(cluster)["processes"] == "4 of 4 are up"
        assert rows(cluster)["runs"] == "AsyncPS on moons"
        assert rows(run.pause())["state"] == "paused"
        run.resume().kill("worker-1", restart=False)
        assert rows(run)["roles"] == "w1 is down"
        run.stop()
        assert shown(run)["state"] == "ended: you stopped it"
        assert "runs" not in rows(cluster)
    assert shown(run)["state"] == "ended: you stopped it"
    assert shown(cluster)["processes"] == "closed"


@pytest.mark.dask
def test_a_run_whose_cluster_was_closed():
    cluster = lk.DaskCluster(workers=1, servers=1, pace=0.02)
    run = lk.train("moons", lk.AsyncPS(), cluster, lk.Budget(seconds=600))
    cluster.close()
    assert shown(run)["state"].startswith("ended: ")
    assert "ended" in repr(run)


# the same each time ---------------------------------------------------------------------------------------------------

# Shows everything once in a new process, as a notebook does, and prints {name: outputs}. Widgets have a new number each time.
SCRIPT = """
import io, json
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.capture import capture_output
import labkit as lk

InteractiveShell.instance()  # so that displays are not only texts
problem, small = lk.Problem("digits", hidden=(16,)), lk.Problem("moons", hidden=(8,), timing_only=True)
cluster, budget = lk.SimulatedCluster(workers=4, compute=lk.distributions.Exponential(0.1)), lk.Budget(updates=60)
costs = lk.Costs(gradient=lk.WorkCost(1e-3), send=lk.Linear(1e-4), receive=lk.Linear(1e-4), update=lk.Linear(1e-4), cores=2)
run = lk.train(problem, lk.AsyncPS(), cluster, budget, faults=["slow:worker-2:5@0.5", "kill:worker-1@0.7"]).wait()
calibration = lk.calibrate(lk.SimulatedCluster(1, 1, compute=None, costs=costs), small, 1)
predictions = lk.forecast(small, ["async-ps"], calibration, workers=(2, 4), budget=lk.Budget(updates=40))
sweep = lk.sweep("moons", ["async-ps", "sync-ps"], cluster, lk.Budget(updates=40), seeds=[0, 1])
guess = lk.Guess("How many?", {"1": 1, "3": 3}).commit("3")
plots = ("overview", "timeline", "staleness", "topology", "throughput", "loss", "gradient_flow", "message_zoom", "ledger")

def lab(shown):
    return lambda: shown(lk.Lab(problem, lk.AsyncPS(), cluster, budget))

def after_a_run(lab):
    display(lab)
    return lab.run().wait(fast=True).runs

shown = {
    "problem": lambda: problem, "strategy": lk.SSP, "budget": lambda: budget, "cluster": lambda: cluster,
    "a function of the user": lambda: lk.SyncPS(schedule=lambda update: 0.1),
    "processes": lambda: lk.DaskCluster(workers=3), "run": lambda: run, "a run at its start": lambda: run_at_start(),
    "summary": run.summary, "log": lambda: run.log, "stragglers": lambda: run.stragglers, "sentence": run.sentence,
    "trace": lambda: run.trace, "result": run.result, "ledger": lambda: lk.ledger(run.trace), "sweep": lambda: sweep,
    "calibration": lambda: calibration, "figure of a calibration": calibration.figure, "predictions": lambda: predictions,
    "figure of predictions": predictions.figure,
    "advice": lambda: lk.advise(problem, lk.SimulatedCluster(workers=8, compute=0.002)),
    "question": lambda: guess, "its result": lambda: guess.reveal(2.9), "table": lambda: lk.Table(["a"], [[1], [None]]),
    "lab": lab(lambda lab: lab), "lab after a run": lab(after_a_run), "picture of a lab": lab(lambda lab: lab.snapshot()),
    **{name: getattr(run.plot, name) for name in plots},
}

def run_at_start():
    return lk.train(problem, lk.SyncPS(), cluster)

def files(figure):
    for kind in ("svg", "pdf"):
        file = io.BytesIO()
        figure.savefig(file, format=kind)
        yield file.getvalue().hex()

found = {}
for name, make in shown.items():
    with capture_output() as output:
        made = make()
        display(made)
    data = [{kind: str(value) for kind, value in each.data.items() if "widget" not in kind} for each in output.outputs]
    found[name] = [data, output.stdout, list(files(made)) if name == "overview" else []]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_what_is_displayed_is_the_same_for_the_same_state():
    def shown(seed):
        command, environment = [sys.executable, "-W", "ignore", "-c", SCRIPT], os.environ | {"PYTHONHASHSEED": seed}
        return json.loads(subprocess.run(command, capture_output=True, check=True, text=True, env=environment).stdout)

    first, second = shown("1"), shown("2")
    assert [name for name in first if first[name] != second[name]] == []
    assert [name for name, (data, *_) in first.items() if not any(data)] == []
    assert len(first) > 30
