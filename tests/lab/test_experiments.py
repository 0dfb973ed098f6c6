"""Calibrations, forecasts and sweeps of a lab: by methods, with buttons, at wrong times, and cancelled."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import labkit as lk
from labkit.lab import experiments
from labkit.lab.controls import Control, controls
from labkit.lab.experiments import default_values, settings_of_sweep, sweepable
from labkit.lab.page import content
from labkit.lab.settings import Settings
from tests.lab.conftest import COSTS

PROBLEM = lk.Problem("moons", hidden=(8,), timing_only=True)
CLUSTER = lk.SimulatedCluster(4, compute=None, costs=COSTS)


@pytest.fixture
def lab():
    """A lab on a simulated cluster with costs. No thread is left at its end."""
    before = threads()
    one = lk.Lab(PROBLEM, "async-ps", CLUSTER, lk.Budget(seconds=5))
    yield one
    one.close()
    assert threads() == before


def threads():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("labkit-"))


class Gate:
    """A function that waits until the test lets it go on. `entered`: it was called."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, result=None):
        self.entered.set()
        self.opened.wait()
        return result


@pytest.fixture
def slow_calibration(monkeypatch, calibration):
    """A gate in place of the probes of `calibrate`: progress 1 of 2, then the gate, then 2 of 2."""
    gate = Gate()

    def measured(cluster, problem, seconds, *, on_progress):
        on_progress(1, 2)
        gate()
        on_progress(2, 2)
        return calibration

    monkeypatch.setattr(experiments, "calibrate", measured)
    return gate


# calibration ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lab_measures_its_cluster_and_compares_its_runs(lab):
    assert lab.calibration is None
    assert lab.comparison is None
    assert lab.calibrate(seconds=1) is lab
    assert lab.calibration.costs.gradient(1000, 32) == pytest.approx(0.02, rel=0.01)
    lab.run().wait()
    names, *rows = [[row[0] for row in lab.comparison.cells()], *lab.comparison.cells()]
    assert names == ["gradients per second", "mean staleness"]
    assert all(row[3].endswith("%") for row in rows)
    assert lab.view().task.state == "over"


def test_a_calibration_can_be_set_saved_and_removed(lab, calibration, tmp_path):
    lab.calibration = calibration
    assert lab.calibration is calibration
    lab.calibration = calibration.save(tmp_path / "cluster.json")
    assert lab.calibration == calibration
    lab.calibration = str(tmp_path / "cluster.json")
    lab.calibration = None
    assert lab.calibration is None
    for wrong in (3, "no such file.json", [calibration]):
        with pytest.raises(lk.BadInput):
            lab.calibration = wrong
    assert "costs" not in lk.Lab.from_share_text(lk.Lab().share_text()).share_text()


def test_during_a_run_nothing_is_measured(lab):
    lab.run().pause()
    assert "calibrate" not in lab.view().available
    with pytest.raises(lk.BadInput, match=r"a run is active.*Press Stop first"):
        lab.calibrate()
    lab.stop()
    assert "calibrate" in lab.view().available
    with pytest.raises(lk.BadInput, match="seconds"):
        lab.calibrate(seconds=0)


def test_virtual_time_without_costs_has_nothing_to_measure():
    with lk.Lab(cluster=lk.SimulatedCluster(2)) as one:
        with pytest.raises(lk.BadInput, match=r"nothing to measure\. Choose the engine dask"):
            one.calibrate()
        button = next(b for b in content.toolbar(one.view(), {})["buttons"] if b["id"] == "calibrate")
        assert button["off"]
        assert "nothing to measure" in button["tip"]


def test_while_the_cluster_is_measured_no_run_starts_and_progress_is_shown(lab, slow_calibration):
    lab.press("calibrate")
    slow_calibration.entered.wait()
    view = lab.view()
    assert (view.task.kind, view.task.done, view.task.total, view.task.state) == ("calibrate", 1, 2, "running")
    assert {"cancel", "stop"} <= view.available
    assert not {"run", "calibrate", "sweep", "forecast"} & view.available
    shown = content.experiments(view, {})
    assert shown["task"]["text"].endswith("1 of 2")
    assert not shown["task"]["cancel"]["off"]
    lab.set(workers=3)  # settings of the next run can be changed
    for refused in (lab.run, lab.calibrate, lambda: lab.sweep("workers")):
        with pytest.raises(lk.BadInput, match="Cancel"):
            refused()
    lab.press("calibrate")  # as a second click: a message, and no second measurement
    lab.set(workers=4)  # after the press
    slow_calibration.opened.set()
    for thread in threading.enumerate():
        if thread.name == "labkit-lab-calibrate":
            thread.join()
    assert lab.calibration is not None
    assert "run" in lab.view().available


@pytest.mark.parametrize("how", ["cancel", "stop", "close"])
def test_a_measurement_can_be_cancelled(lab, monkeypatch, how):
    entered = threading.Event()

    def endless(cluster, problem, seconds, *, on_progress):
        while True:
            on_progress(1, 2)  # raises an exception after a cancellation
            entered.set()

    monkeypatch.setattr(experiments, "calibrate", endless)
    with ThreadPoolExecutor() as pool:
        measured = pool.submit(lab.calibrate)
        entered.wait()
        getattr(lab, how)()
        with pytest.raises(lk.LabkitError, match="The calibration was cancelled"):
            measured.result()
    assert lab.view().task.state == "cancelled"
    assert lab.session.calibration is None


def test_an_error_is_raised_by_the_method_and_shown_after_a_press(lab, monkeypatch):
    def fails(*arguments, **more):
        raise lk.ClusterError("the cluster is too slow to be measured.")

    monkeypatch.setattr(experiments, "calibrate", fails)
    with pytest.raises(lk.ClusterError, match="too slow"):
        lab.calibrate()
    assert "too slow" in lab.view().problem
    shown = content.experiments(lab.view(), {})["task"]
    assert shown["failed"]
    assert "too slow" in shown["text"]


def test_a_cell_that_runs_again_keeps_the_calibration(monkeypatch, calibration):
    import labkit.lab.cells as cells
    import labkit.lab.lab as module

    monkeypatch.setattr(module, "this_cell", lambda: ("cell", "1"))
    first = lk.Lab(PROBLEM, "async-ps", CLUSTER)
    first.calibration = calibration
    monkeypatch.setattr(module, "this_cell", lambda: ("cell", "2"))
    second = lk.Lab(PROBLEM, "async-ps", CLUSTER)
    assert second.calibration is calibration
    second.close()
    assert cells.stale(("cell", "3")) == []


# what if --------------------------------------------------------------------------------------------------------------


def test_another_number_of_workers_is_forecast_beside_the_present_one(lab, calibration, monkeypatch):
    monkeypatch.setattr(experiments, "forecast_runs", lambda *given, **more: given)
    lab.calibration = calibration
    runs, used, seeds = lab.forecast(32, hosts=2)
    assert (used, seeds) == (calibration, 3)
    clusters = [run.cluster for run in runs]
    assert [(each.workers, each.costs.hosts, each.compute) for each in clusters] == [(4, 2, None), (32, 2, None)]
    assert all((run.problem, run.strategy) == (lab.settings.problem, lab.settings.strategy) for run in runs)
    for workers, wrong in ((0, {}), (2.5, {}), (8, {"hosts": 0}), (8, {"seeds": 0})):
        with pytest.raises(lk.BadInput, match="whole number"):
            lab.forecast(workers, **wrong)
    lab.calibration = None
    with pytest.raises(lk.BadInput, match="no calibration"):
        lab.forecast(32)


def test_the_forecast_run_can_be_watched(lab, calibration):
    """Eight cores, nine processes at most: eight workers are about twice as fast as four."""
    lab.calibration = calibration
    lab.run().wait()
    first = lab.trace
    lab.play_forecast(8).wait()
    assert lab.trace.kinds.count("worker") == 8
    assert lab.session.reference is first
    assert lab.settings.value("workers") == 4  # of the next run
    assert lab.comparison is None  # it is the forecast itself
    rates = [row["gradients_per_second"] for row in lab.runs]
    assert 1.5 < rates[1] / rates[0] <= 2.1


# sweeps ---------------------------------------------------------------------------------------------------------------


def test_a_setting_is_swept_and_results_come_one_by_one(monkeypatch):
    """Mean staleness of asynchronous workers is N - 1."""
    counts = []
    made = experiments.Swept

    def swept(*arguments):
        counts.append(len(arguments[1]))
        return made(*arguments)

    monkeypatch.setattr(experiments, "Swept", swept)
    with lk.Lab(PROBLEM, "async-ps", lk.SimulatedCluster(4, compute=0.1), lk.Budget(updates=60)) as one:
        found = one.sweep("workers", [1, 2, 4], seeds=2)
        assert [round(value) for value in found.values("staleness")] == [0, 0, 1, 1, 3, 3]
        assert counts == [1, 2, 3, 4, 5, 6, 6]
        assert one.view().swept.note == "simulated without a calibration: gradient time 0.1 s"
        by_pace = one.sweep("pace", [0.05, 0.1], seeds=1)  # `compute` in `lk.sweep`, where it is a text
        assert by_pace.values("pace") == [0.05, 0.1]
        assert by_pace.values("gradients_per_second") == pytest.approx([80, 40], rel=0.02)
        assert by_pace.varied == ("pace",)
        one_value = one.sweep("learning_rate", ["0.3"], seeds=1)
        assert one_value.values("learning_rate") == [0.3]
        assert one.sweep("strategy", ["sync-ps", "async-ps"], seeds=1).values("staleness")[0] == 0


def test_with_a_calibration_a_sweep_has_its_costs(lab, calibration):
    lab.calibration = calibration
    found = lab.sweep("workers", [1, 4], seeds=1)
    one, four = found.values("gradients_per_second")
    assert one == pytest.approx(1 / 0.0213, rel=0.1)  # gradient, two messages, an update
    assert four / one == pytest.approx(4, rel=0.15)
    assert lab.view().swept.note == "simulated with the calibration"


def test_a_slowdown_of_a_worker_that_does_not_exist_is_left_out(lab):
    lab.slow("worker-3", 5)
    assert len(lab.sweep("workers", [1, 4], seeds=1)) == 2


def test_a_sweep_can_be_cancelled_between_two_runs(lab, monkeypatch):
    gate = Gate()

    def executed(cells, seeds, *, on_result):
        gate()
        on_result(1, len(cells) * seeds, {"workers": 1})
        raise AssertionError("it was not cancelled")

    monkeypatch.setattr(experiments, "execute", executed)
    with ThreadPoolExecutor() as pool:
        swept = pool.submit(lab.sweep, "learning_rate")
        gate.entered.wait()
        lab.cancel()
        gate.opened.set()
        with pytest.raises(lk.LabkitError, match="The sweep was cancelled"):
            swept.result()


def test_wrong_settings_and_values_of_a_sweep_are_refused(lab):
    for setting, values, text in (
        ("foo", None, "foo"), ("workers", [], "at least one"), ("workers", 3, "list of values"), ("workers", [0], "workers"),
        ("workers", [2, 2], "twice"), ("data", None, "give values"), ("learning_rate", ["x"], "learning_rate"),
    ):  # fmt: skip
        with pytest.raises(lk.BadInput, match=text):
            lab.sweep(setting, values)
    with pytest.raises(lk.BadInput, match="seeds"):
        lab.sweep("workers", seeds=0)
    assert lab.view().task is None


def test_default_values_are_from_the_range_of_the_setting():
    known = sweepable(Settings())
    assert default_values(known["workers"]) == [1, 2, 4, 8, 16, 32]
    assert default_values(known["learning_rate"]) == [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3]
    assert default_values(Control("x", "x", "more", "slider", 0.5, low=0.0, high=1.0)) == [0, 0.25, 0.5, 0.75, 1]
    assert "strategy" not in known
    assert "seed" not in known
    for control in known.values():
        values = default_values(control)
        assert 1 < len(values) <= 7
        assert values == sorted(set(values))
        for value in values:
            Settings().changed(**{control.name: value})


def test_every_setting_with_a_range_has_values_that_are_allowed_with_every_strategy():
    found = {
        (strategy, name): len(settings_of_sweep(settings, name, None))
        for strategy in ("ssp", "local-sgd", "k-async", "easgd", "backup-workers")
        for settings in [Settings().changed(strategy=strategy)]
        for name in sweepable(settings)
    }
    assert len(found) > 30
    assert [setting for setting, count in found.items() if count < 2] == []


# the page -------------------------------------------------------------------------------------------------------------


def test_settings_that_can_be_swept_have_a_button(calibration):
    with lk.Lab(PROBLEM, "async-ps", CLUSTER) as one:
        one.calibration = replace(calibration, doubts=("the gradient differed by ± 30%",))
        view = one.view()
        swept = content.sweep_values(view.settings)
        sections = content.controls(controls(view.settings), frozenset(), {}, swept)
        assert {c["name"] for c in sections if c["sweep"]} == set(swept)
        assert swept["workers"] == "1, 2, 4, 8, 16, 32"
        shown = content.experiments(view, swept)
        assert [row[0] for row in shown["calibrate"]["table"]["rows"]][:4] == ["gradient", "send", "receive", "update"]
        assert shown["calibrate"]["doubts"] == ["Doubtful: the gradient differed by ± 30%."]
        assert shown["calibrate"]["button"]["label"] == "Calibrate again"
        button = next(b for b in content.toolbar(view, {})["buttons"] if b["id"] == "calibrate")
        assert (button["label"], button["action"], button["off"]) == ("Forecast", "forecast", False)


def test_the_time_of_an_update_and_the_links_remain_in_forecasts(calibration):
    """They are settings of the cluster, which a calibration does not replace."""
    cluster = lk.SimulatedCluster(2, compute=None, server_time=0.05, costs=COSTS)
    with lk.Lab(PROBLEM, "async-ps", cluster, lk.Budget(seconds=20)) as one:
        one.calibration = calibration
        one.run()
        one.wait()
        assert one.comparison.cells()[0][3] in ("+0.0%", "\u22120.0%")
        slower, same = one.sweep("server_time", [0.1, 0.05], seeds=1).values("gradients_per_second")
        assert same == pytest.approx(2 * slower, rel=0.05)


def test_a_sweep_of_one_value_that_is_no_number_has_its_text(lab):
    found = lab.sweep("slow", [{"worker-1": 3.0}], seeds=1)
    assert found.values("slow") == ["worker-1:3.0"]
    assert lab.view().swept is not None


@pytest.mark.parametrize("setting", ["accuracy", "seconds", "updates"])
def test_a_setting_that_is_also_a_result_is_not_swept(lab, setting):
    with pytest.raises(lk.BadInput, match=f"{setting} is also a result of every run; use lk.sweep"):
        lab.sweep(setting, [1, 2])
