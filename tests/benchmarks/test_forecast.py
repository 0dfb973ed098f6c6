"""The benchmark of forecasts: its grid, its windows, and the distribution of its errors."""

import pytest

import labkit as lk
from benchmarks import forecast, forecast_on_hosts
from benchmarks.forecast import Point, Rate, forecast_rate, grid, hosts_grid, summarized

pytestmark = pytest.mark.unit

COSTS = lk.Costs(gradient=lk.WorkCost(1e-3), cores=8)
CALIBRATION = lk.Calibration(COSTS, "digits", (9610, 32, 38440), 0, (1, 10**6), (1, 100))


def rows_by_name(rows):
    return {(row.name, row.side): row for row in rows}


def test_the_grid_covers_strategies_workers_servers_nets_paces_and_a_slow_worker():
    points = grid()
    assert len(set(points)) == len(points)
    assert {point.strategy for point in points} == set(forecast.STRATEGIES)
    assert {point.workers for point in points} == {1, 2, 4, 8}
    assert {point.servers for point in points if point.strategy == "AsyncPS"} == {1, 2}
    assert {(point.hidden, point.pace, point.slow) for point in points if point.strategy == "SSP"} == {
        (hidden, pace, slow) for hidden in forecast.NETS for pace in forecast.PACES for slow in (1.0, 3.0)
    }
    assert all(point.slow == 1.0 for point in points if point.workers == 1)
    assert all(point.pace for point in hosts_grid())


def test_every_point_can_be_planned():
    points = [point for point in grid(workers=(2,)) if point.hidden == (128,)]
    assert len(points) > 30
    for point in points:
        options = point.options()
        cluster = CALIBRATION.cluster(options.pop("workers"), options.pop("servers"), pace=point.pace, **options)
        assert point.make_strategy().layout(point.problem(), cluster).roles, f"{point.kind} {point.name}"


@pytest.mark.slow
def test_a_forecast_counts_gradients_and_staleness_within_its_window():
    """Without any cost but the gradient of 1 ms, four asynchronous workers compute 4,000 gradients per second."""
    found = forecast_rate(CALIBRATION, Point("AsyncPS", 4, 1, (128,)))
    assert found.rate == pytest.approx(4000, rel=0.01)
    assert found.staleness == pytest.approx(3, rel=0.01)


def test_errors_are_those_of_the_medians():
    """Errors of +20%, -10% and 0%; the repeated measurements of the first run differ from their median by 0, 10 and 10%."""
    points = [Point("AsyncPS", n, 1, (128,)) for n in (1, 2, 4)]
    measured = {
        points[0]: [Rate(90, 0), Rate(100, 0), Rate(110, 0)], points[1]: [Rate(200, 1.0)], points[2]: [Rate(300, 3.0)],
    }  # fmt: skip
    made = {points[0]: [Rate(120, 0)], points[1]: [Rate(180, 1.1)], points[2]: [Rate(300, 3.0)]}
    rows = rows_by_name(summarized(measured, made))
    throughput, stale = "throughput, error of 3 runs", "staleness, error of 2 runs"
    assert rows["full speed", f"{throughput}: median"].median == pytest.approx(10)
    assert rows["full speed", f"{throughput}: 90th percentile"].median == pytest.approx(18)
    assert rows["full speed", f"{throughput}: with sign"].low == pytest.approx(-10)
    assert rows["full speed", f"{stale}: median"].median == pytest.approx(5)
    repeated = rows["full speed", "throughput, repeated measurements of a run"]
    assert (repeated.low, repeated.median, repeated.high) == pytest.approx((0, 10, 10))


def test_times_to_accuracy_that_were_not_reached_are_left_out():
    points = [Point("SyncPS", n, 1, (128,), pace="0.02") for n in (2, 4)]
    times, guesses = {points[0]: [1.0, 3.0], points[1]: []}, {points[0]: [2.2], points[1]: [1.0]}
    rows = rows_by_name(summarized({}, {}, times, guesses))
    assert rows["paced", "time to 95%, error of 1 runs: median"].median == pytest.approx(10)


def test_rows_of_several_hosts_are_made_from_what_their_program_prints():
    point = {"strategy": "AsyncPS", "workers": 2, "servers": 1, "hidden": [128], "pace": "0.02", "slow": 1.0}
    rate = {"rate": 100.0, "staleness": 1.0, "foreign": 0.0}
    lines = [
        {"latency": 2e-4, "bandwidth": 1e7},
        {"point": point, "measured": rate, "forecast": rate | {"rate": 90.0}},
    ]
    rows = rows_by_name(forecast_on_hosts.rows_of(lines))
    assert rows["link", "latency found"].median == pytest.approx(2e-4)
    assert rows["paced", "throughput, error of 1 runs: median"].median == pytest.approx(10)


@pytest.mark.slow
@pytest.mark.sample(0, slow=0)
@pytest.mark.processes
def test_a_quick_run_measures_and_forecasts():
    rows = forecast.run(forecast.Settings(quick=True))
    assert {row.unit for row in rows} >= {"gradients/s", "%"}
    assert all(row.median is not None and row.median > 0 for row in rows if row.unit == "gradients/s")
