"""The forecast of the displayed run: it follows the run's commands, and takes little time.

The run is simulated with known costs, and the calibration has the same costs, so forecast and run must agree.
"""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.forecasts.forecaster import Forecaster, can_forecast
from labkit.lab.settings import Settings, initial_settings
from tests.lab.conftest import COSTS
from tests.lab.test_session import pass_by, session, tick

PROBLEM = lk.Problem("moons", hidden=(8,))


@pytest.fixture(autouse=True)
def time_for_forecasts(monkeypatch):
    """The forecast before the start is complete, on a busy machine, too."""
    monkeypatch.setattr("labkit.lab.session.FORECAST_FIRST", 60.0)


def settings_of(strategy="async-ps", workers=4, costs=COSTS):
    return initial_settings(
        PROBLEM, strategy, lk.SimulatedCluster(workers, compute=None, costs=costs), lk.Budget(seconds=14), None
    )


def start(settings):
    return lk.train(settings.problem, settings.strategy, settings.cluster_on(None), settings.budget)


@pytest.mark.sample(2, slow=1)
@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "ssp", "ring-all-reduce", "bucketed-all-reduce"])
def test_run_and_forecast_agree(calibration, strategy):
    settings = settings_of(strategy)
    forecast, run = Forecaster(calibration, settings.spec), start(settings)
    assert forecast.value is None
    forecast.advance(60)
    assert forecast.done
    run.advance(8)
    forecast.follow(run)
    assert forecast.done  # there was no command
    now = run.trace.watermark()
    found, stale = forecast.value.throughput(run.trace, now), forecast.value.staleness(run.trace, now)
    assert found.forecast == pytest.approx(found.measured, rel=0.02)  # evaluations are not forecast
    assert stale.forecast == pytest.approx(stale.measured, abs=0.1)


def test_it_follows_slowdowns_and_live_options(calibration):
    settings = settings_of()
    forecast, run = Forecaster(calibration, settings.spec), start(settings)
    forecast.advance(60)
    run.advance(4).set(learning_rate=0.05)
    forecast.follow(run)
    assert forecast.done  # it changes no speed
    run.slow("worker-1", 4)
    run.advance(8)
    before = forecast.value
    forecast.follow(run)
    assert not forecast.done
    assert forecast.value is before
    forecast.advance(60)
    first, second = forecast.value.parts
    assert second.start == pytest.approx(4e9, abs=1)
    assert second.rate() == pytest.approx(first.rate() * (3 + 1 / 4) / 4, rel=0.02)
    found = forecast.value.throughput(run.trace, run.trace.watermark())
    assert found.forecast == pytest.approx(found.measured, rel=0.03)


def test_a_failure_is_not_forecast_and_makes_it_doubtful(calibration):
    settings = settings_of()
    forecast, run = Forecaster(calibration, settings.spec), start(settings)
    forecast.advance(60)
    run.advance(1).freeze("worker-2")
    forecast.follow(run)
    assert forecast.value.doubts == ("without the freeze of w2",)
    assert len(forecast.value.parts) == 1


def test_the_work_is_done_in_slices(calibration):
    times = iter(range(10**6))
    forecast = Forecaster(calibration, settings_of().spec, clock=lambda: next(times))
    forecast.advance(0.5)  # by this clock a look at it takes a second
    assert not forecast.done
    assert forecast.value is None
    for _ in range(10_000):
        forecast.advance(2)
        if forecast.done:
            break
    assert forecast.value is not None


def test_a_problem_outside_of_what_was_measured_is_doubtful(calibration):
    settings = settings_of().changed(batch_size=512)
    forecast = Forecaster(calibration, settings.spec)
    forecast.advance(60)
    assert any("512 samples in a batch" in doubt for doubt in forecast.value.doubts)


def test_runs_whose_times_are_settings_are_not_forecast():
    assert not can_forecast(Settings().cluster)  # simulated, without costs
    assert can_forecast(Settings().changed(engine="dask").cluster)
    assert can_forecast(settings_of().cluster)


# in the session -------------------------------------------------------------------------------------------------------


def test_the_session_forecasts_before_the_start_and_after_a_change(calibration):
    on, clock = session()
    on.next_run.settings = settings_of()
    on.calibration = calibration
    on.start()
    assert on.forecast is not None  # before the first tick
    pass_by(on, clock, 2.0)
    on.history.execute(lk.Slow("worker-1", 5))
    for _ in range(1000):
        pass_by(on, clock, 0.1)
        if len(on.forecast.parts) == 2:
            break
    assert on.forecast.parts[1].slow == {"worker-1": 5.0}
    on.reset()
    assert on.forecast is None


def test_a_calibration_that_is_set_later_forecasts_the_displayed_run_also_after_its_end(calibration):
    on, _ = session()
    on.next_run.settings = settings_of().changed(seconds=2)
    on.start()
    on.displayed.run.wait()
    tick(on)
    assert on.forecast is None
    on.calibration = calibration
    for _ in range(1000):
        if tick(on) is None:
            break
    assert on.forecast is not None
    on.calibration = None
    tick(on)
    assert on.forecast is None


def test_a_run_of_the_table_keeps_its_forecast(calibration):
    on, _ = session()
    on.next_run.settings, on.calibration = settings_of().changed(seconds=1), calibration
    on.start()
    on.displayed.run.wait()
    tick(on)
    first = on.forecast
    assert first is not None
    on.start()
    assert on.forecast is not first
    on.show_run(1)
    assert on.forecast is first


def test_no_forecast_without_costs_or_of_the_simulation_with_the_calibration_itself(calibration):
    on, _ = session()
    on.calibration = calibration
    on.start()
    assert on.forecast is None
    on.next_run.settings = settings_of(costs=calibration.costs)
    on.start()
    assert on.forecast is None
