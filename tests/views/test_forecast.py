"""The forecast of a run against the run: rates and staleness that follow from the times of gradients."""

from __future__ import annotations

from functools import cache

import pytest

import labkit as lk
from labkit.trace.schema import NANO
from labkit.views import make_panel, panel_figure
from labkit.views.forecast import ForecastPart, RunForecast, comparison_table, difference

PANELS = ("throughput", "staleness", "staleness_over_time")


@cache
def trace(gradient=0.1, workers=4, seconds=10, slow=()):
    """A run of `AsyncPS` without communication: each worker applies a gradient every `gradient` s, with staleness N - 1."""
    cluster = lk.SimulatedCluster(workers, compute=gradient, slow=dict(slow))
    problem = lk.Problem("digits", hidden=(8,), timing_only=True)
    return lk.train(problem, lk.AsyncPS(), cluster, lk.Budget(seconds=seconds)).wait().trace


def forecast(*parts, doubts=()):
    """A forecast of parts (start in seconds, trace, slow)."""
    steady = 2 * NANO, 8 * NANO
    made = [ForecastPart(round(start * NANO), of, steady, dict(slow)) for start, of, slow in parts]
    return RunForecast(tuple(made), doubts)


def test_the_difference_is_in_per_cent_of_the_measured_value():
    assert (difference(40, 50), difference(50, 40), difference(3, 3)) == ("+25.0%", "−20.0%", "+0.0%")


def test_rates_and_staleness_are_compared():
    run = trace(0.1)
    found = forecast((0, trace(0.08), ()))
    rates = found.throughput(run, run.watermark())
    assert (rates.measured, rates.forecast) == (pytest.approx(40), pytest.approx(50))  # 4 workers / 0.1 s, 4 / 0.08 s
    assert rates.difference == "+25.0%"
    stale = found.staleness(run, run.watermark())
    assert stale.forecast == pytest.approx(3)  # N - 1
    assert stale.measured == pytest.approx(3, abs=0.05)  # the first gradients are less stale
    assert comparison_table(found, run, run.watermark()).cells()[0][:4] == [
        "gradients per second",
        "40",
        "50",
        "+25.0%",
    ]
    assert comparison_table(None, run, run.watermark()) is None
    assert found.throughput(run, NANO // 100) is None  # no gradient yet


def test_from_a_change_on_another_part_holds():
    """One of four workers is twice as slow from 5 s on: 3.5/4 of the rate."""
    live = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(4, compute=0.1), lk.Budget(seconds=15))
    run = live.advance(5).slow("worker-1", 2).wait().trace
    found = forecast((0, trace(0.1), ()), (5, trace(0.1, slow=(("worker-1", 2.0),)), {"worker-1": 2.0}))
    assert found.throughput(run, 4 * NANO).forecast == pytest.approx(40)
    after = found.throughput(run, run.watermark())
    assert after.forecast == pytest.approx(35)
    assert after.measured == pytest.approx(35)
    panel = make_panel("throughput", None, found)
    panel_figure(panel, run)
    columns, rows = panel.table(run, run.watermark())
    curve = [(x, y) for name, x, y in rows if name == "forecast"]
    assert columns[0] == "curve"
    assert [x for x, _ in curve] == [0, 5, 5, 15]  # a step at the change, up to the end of the axis
    assert [y for _, y in curve] == pytest.approx([40, 40, 35, 35])


def test_the_forecast_histogram_weighs_parts_with_their_gradients():
    """Half of the time 4 workers at 40/s with staleness 3, half of it 2 workers at 20/s with staleness 1."""
    found = forecast((0, trace(0.1, workers=4), ()), (10, trace(0.1, workers=2), ())).histogram(20 * NANO)
    total = sum(found.values())
    assert found[3] / total == pytest.approx(2 / 3, abs=0.01)
    assert found[1] / total == pytest.approx(1 / 3, abs=0.01)
    assert total == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("name", PANELS)
def test_each_panel_draws_the_forecast_and_its_doubts(name):
    run, found = trace(0.1), forecast((0, trace(0.08), ()), doubts=("12,000 parameters; measured were 10 to 20",))
    panel = make_panel(name, None, found)
    figure = panel_figure(panel, run)
    figure.canvas.draw()
    caption = panel.caption(run)
    assert "forecast" in caption
    assert "(doubtful)" in caption
    assert caption.endswith("doubtful: 12,000 parameters; measured were 10 to 20")
    assert "forecast" not in make_panel(name).caption(run) if name == "throughput" else True


def test_captions_have_both_values_and_the_difference():
    run, found = trace(0.1), forecast((0, trace(0.08), ()))
    assert make_panel("throughput", None, found).caption(run).startswith("forecast 50/s (+25.0%), measured 40/s")
    assert make_panel("staleness", None, found).caption(run).startswith("dashes: forecast 3.00 (+")


def test_panels_without_a_forecast_ignore_it():
    run, found = trace(0.1), forecast((0, trace(0.08), ()))
    assert make_panel("timeline", None, found).caption(run) == make_panel("timeline").caption(run)


def test_a_run_without_gradients_has_no_comparison():
    run = lk.train("digits", lk.AsyncPS(), lk.SimulatedCluster(4, compute=0.1), lk.Budget(seconds=5)).advance(0.0).trace
    found = forecast((0, trace(0.08), ()))
    for name in PANELS:
        panel = make_panel(name, None, found)
        panel_figure(panel, run)
        assert "measured" not in panel.caption(run)
    assert found.staleness(run, 0) is None
