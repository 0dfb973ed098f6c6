"""Calibration against a known truth: a simulated cluster with given costs; the probes must find these costs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import labkit as lk
from labkit.forecasts.calibration import calibration
from labkit.forecasts.calibration.fits import fit_linear, fit_work, quantiles, split_drift
from labkit.forecasts.calibration.probes import probe_cycle, variants
from tests.models.own_models import Linear

pytestmark = pytest.mark.simulated

PROBLEM = lk.Problem("digits", hidden=(32,), batch_size=16)
TRUTH = lk.Costs(
    gradient=lk.WorkCost(20e-6, 1e-9, 2e-9), spread=lk.distributions.Uniform(0.9, 1.1), update=lk.Linear(5e-6, 2e-10),
    evaluation=lk.WorkCost(0.0, 0.0, 1e-9), send=lk.Linear(15e-6, 1e-10), receive=lk.Linear(25e-6, 2e-10), polling=1e-3,
    wake=((0.002, 100e-6), (0.005, 150e-6), (0.02, 200e-6)), cores=4,
)  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return lk.calibrate(lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=TRUTH), PROBLEM, 1.0)


def test_the_costs_of_work_are_found(found):
    size = PROBLEM.objective().size
    for batch in (4, 16, 64):
        assert found.costs.gradient(size, batch) == pytest.approx(TRUTH.gradient(size, batch), rel=0.02)
    bytes_ = 4 * size
    assert found.costs.update(bytes_) == pytest.approx(TRUTH.update(bytes_), rel=0.02)
    samples = len(PROBLEM.dataset.x_test)
    assert found.costs.evaluation(size, samples) == pytest.approx(TRUTH.evaluation(size, samples), rel=0.05)


def test_the_costs_of_messages_are_found_by_size(found):
    for size in (1e3, 1e4, 1e5):
        assert found.costs.send(size) == pytest.approx(TRUTH.send(size), rel=0.05)
        assert found.costs.receive(size) == pytest.approx(TRUTH.receive(size), rel=0.05)


def test_the_delay_of_waking_up_is_found_by_the_time_of_waiting(found):
    for pace, delay in TRUTH.wake:
        assert found.costs.wake_delay(pace) == pytest.approx(delay, abs=10e-6)


def test_the_distribution_of_gradients_is_found(found):
    factors = np.array(found.costs.spread.durations)
    assert factors.mean() == pytest.approx(1.0, abs=0.005)
    np.testing.assert_allclose(np.quantile(factors, [0.1, 0.9]), [0.92, 1.08], atol=0.015)


@pytest.mark.slow
def test_a_problem_whose_size_has_no_variants():
    truth = lk.Costs(lk.WorkCost(1e-3), cores=2, speeds=(2.0, 1.0), hosts=2)
    made = lk.calibrate(lk.SimulatedCluster(compute=None, costs=truth), "quadratic", 1.0)
    assert len(made.costs.cold) == 1
    assert made.costs.speeds == (1.0, 0.5)


@pytest.mark.slow
def test_the_gradient_of_an_own_model_is_measured_without_that_of_networks(monkeypatch):
    """Its time is not that of a network of its size, as that of a convolution. Messages and updates are."""

    def measured(problem, *more):
        cycle = probe_cycle(problem, *more)
        return cycle if problem.model is None else replace(cycle, gradient=3e-3 * problem.batch_size)

    monkeypatch.setattr(calibration, "probe_cycle", measured)
    own = lk.Problem("moons", model=Linear(), batch_size=16)
    made = lk.calibrate(
        lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=replace(TRUTH, cores=32)), own, 1.0
    )
    size = own.objective().size
    for batch in (4, 16, 64):
        assert made.costs.gradient(size, batch) == pytest.approx(3e-3 * batch, rel=0.02)
    for each in (24, 200):
        assert made.costs.send(each) == pytest.approx(TRUTH.send(each), rel=0.05)
        assert made.costs.update(each) == pytest.approx(TRUTH.update(each), rel=0.05)
    spec = (lk.AsyncPS(), made.cluster(2).spec)
    others = [replace(own, model=Linear(scale=0.2)), replace(own, data="digits"), lk.Problem("moons", hidden=())]
    doubtful = [any("gradient of" in why for why in made.doubts_about(problem, [spec])) for problem in (own, *others)]
    assert doubtful == [False, True, True, True]
    assert "64 samples" not in str(made.doubts_about(replace(own, batch_size=64), [spec]))
    assert "128 samples in a batch; measured were 4 to 64" in made.doubts_about(replace(own, batch_size=128), [spec])
    assert lk.Calibration.from_dict(json.loads(json.dumps(made.to_dict()))).model == made.model == "Linear(scale=0.1)"
    assert "moons, Linear(scale=0.1), 6 parameters" in str(made)


@pytest.mark.slow
def test_the_additional_time_of_work_on_shared_cores_is_found():
    """Two workers per core; the probes with one worker do not show it."""
    small, large = (variants(PROBLEM)[i].objective().size * 4 for i in (0, 5))
    truth = replace(TRUTH, cores=2, cold=[(small, 0.5), (large, 0.8)])
    made = lk.calibrate(lk.SimulatedCluster(workers=4, servers=1, compute=None, costs=truth), PROBLEM, 3.0).costs
    assert [size for size, _ in made.cold] == [small, large]
    assert [more for _, more in made.cold] == pytest.approx([0.5, 0.8], abs=0.1)


@pytest.mark.sample(0, slow=0)  # a shorter calibration does not separate it from the variation of single gradients
def test_the_drift_of_the_speed_of_cores_is_found():
    """Half of the time a core needs 1.3 times as long, and 0.7 times in the other half."""
    truth = replace(
        TRUTH, spread=lk.distributions.Uniform(0.95, 1.05), drift=lk.distributions.Measured((0.7, 1.3)), drift_time=0.05
    )
    made = lk.calibrate(lk.SimulatedCluster(workers=1, servers=1, compute=None, costs=truth), PROBLEM, 8.0).costs
    assert np.std(made.drift.durations) == pytest.approx(0.3, abs=0.1)
    assert np.std(made.spread.durations) == pytest.approx(np.std(np.linspace(0.95, 1.05)), abs=0.02)


def test_without_drift_none_is_found(found):
    assert found.costs.drift == lk.distributions.Deterministic(1.0) or np.std(found.costs.drift.durations) < 0.02


@pytest.mark.slow
def test_the_link_between_hosts_is_found():
    truth = replace(TRUTH, hosts=3, polling=0.01, remote_send=lk.Linear(30e-6, 3e-10))
    cluster = lk.SimulatedCluster(workers=2, servers=1, compute=None, costs=truth, latency=200e-6, bandwidth=200e6)
    made = lk.calibrate(cluster, PROBLEM, 1.0)
    assert made.costs.hosts == 3
    assert made.latency == pytest.approx(200e-6, rel=0.1)
    assert made.bandwidth == pytest.approx(200e6, rel=0.05)
    assert made.costs.remote_send(10_000) == pytest.approx(33e-6, rel=0.05)
    assert made.costs.receive(10_000) == pytest.approx(TRUTH.receive(10_000), rel=0.1)
    remade = made.cluster(8, 1)
    assert (remade.latency, remade.bandwidth) == (made.latency, made.bandwidth)
    assert made.cluster(8, 1, hosts=1).latency == 0.0
    assert "link" in str(made)
    assert lk.Calibration.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.sample(2, slow=2)
@pytest.mark.parametrize("workers", [2, 6])
@pytest.mark.parametrize(
    "strategy", [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.BucketedAllReduce()], ids=lambda s: s.name
)
def test_forecast_runs_are_those_of_the_true_costs(found, strategy, workers):
    """Also with more roles than cores, which the probes have not seen."""
    budget = lk.Budget(updates=400)
    true = (
        lk.train(PROBLEM, strategy, lk.SimulatedCluster(workers=workers, compute=None, costs=TRUTH), budget)
        .wait()
        .summary()
    )
    made = lk.train(PROBLEM, strategy, found.cluster(workers), budget).wait().summary()
    assert made["gradients_per_second"] == pytest.approx(true["gradients_per_second"], rel=0.03)
    assert made["staleness"]["mean"] == pytest.approx(true["staleness"]["mean"], rel=0.05, abs=0.02)


def test_a_calibration_is_saved_and_loaded(found, tmp_path):
    again = lk.Calibration.load(found.save(tmp_path / "cluster.json"))
    assert again == found
    assert again.cluster(8, pace=0.01).spec == found.cluster(8, pace=0.01).spec


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"labkit_calibration": 1}', '{"labkit_calibration": 2}', "\x00", "[" * 100_000]
)
def test_other_files_are_refused(tmp_path, text):
    file = tmp_path / "cluster.json"
    file.write_text(text)
    with pytest.raises(lk.BadInput, match=r"not a calibration|made by an older labkit|cannot be read|not JSON"):
        lk.Calibration.load(file)


@pytest.mark.slow
def test_forecasts_have_the_pace_of_the_calibrated_cluster(tmp_path):
    """At a pace far above the costs, n workers compute n / (pace + server time) gradients a second."""
    pace = lk.distributions.Deterministic(0.05)
    paced = lk.SimulatedCluster(workers=1, servers=1, compute=pace, server_time=1e-2, costs=TRUTH, slow={"worker-0": 2})
    made = lk.calibrate(paced, PROBLEM, 1.0)
    assert made.costs.gradient(1000, 16) == pytest.approx(TRUTH.gradient(1000, 16), rel=0.05)  # at full speed
    assert "slow={'worker-0': 2.0} of the calibrated cluster" in made.doubts[0]
    read = lk.Calibration.load(made.save(tmp_path / "calibration.json"))
    assert (read.pace, read.server_time) == (pace, lk.distributions.Deterministic(1e-2))
    assert f"gradients paced: {pace.describe()}, updates of servers paced" in str(read)

    def rates(**given):
        given = {"workers": (1, 3), "budget": lk.Budget(updates=100), "seeds": 1, "progress": False} | given
        return lk.forecast(PROBLEM, "async-ps", read, **given).sweep.values("gradients_per_second")

    assert rates() == pytest.approx([1 / 0.06, 3 / 0.06], rel=0.05)
    assert rates(pace=0.1) == pytest.approx([1 / 0.11, 3 / 0.11], rel=0.05)
    assert min(rates(pace=None, server_time=None)) > 1000
    assert (read.constants()["compute"], read.constants()["server_time"]) == (0.05, 1e-2)


def test_it_shows_its_costs_and_its_doubts(found):
    assert found.doubts == ()
    lines = str(found).splitlines()
    assert lines[0] == "digits, 2,410 parameters, on 1 host with 4 cores"
    assert [line.split()[0] for line in lines[2:7]] == ["gradient", "send", "receive", "update", "evaluation"]
    larger = lk.Problem("digits", hidden=(4096,), batch_size=16)
    assert found.doubts_about(PROBLEM) == []
    assert "parameters; measured were" in found.doubts_about(larger)[0]
    assert len(found.figure().axes) == 2


def test_forecasts_have_a_row_for_each_size_and_say_what_is_doubtful(found, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    larger = lk.Problem("digits", hidden=(512,))
    made = lk.forecast(larger, ["async-ps", "sync-ps"], found, (2, 4), budget=lk.Budget(updates=50), seeds=2)
    assert len(made.sweep) == 8
    text = str(made)
    assert "Doubtful: 38,410 parameters; measured were" in text
    assert len(made.figure().axes) == 4


def test_arguments_are_checked():
    cluster = lk.SimulatedCluster(compute=None, costs=TRUTH)
    for arguments, message in (
        ((cluster, 3), "problem=3"), (("here", PROBLEM), "cluster='here'"), ((cluster, PROBLEM, 0.1), "seconds=0.1"),
    ):  # fmt: skip
        with pytest.raises(lk.BadInput, match=message):
            lk.calibrate(*arguments)
    with pytest.raises(lk.BadInput, match="calibration='x'"):
        lk.forecast(PROBLEM, "async-ps", "x")


def test_the_constants_of_the_network_model_are_those_of_the_costs():
    """A message of b bytes takes 20 + 30 us and (0.4 + 0.6) b ns; between hosts, 100 us and b / 1e9 s more."""
    costs = lk.Costs(
        lk.WorkCost(0.01), update=lk.Linear(1e-3), send=lk.Linear(2e-5, 4e-10), receive=lk.Linear(3e-5, 6e-10)
    )
    one = lk.Calibration(costs, "digits", (9610, 32, 38440), 0, (1, 10**6), (1, 100))
    assert one.constants() == pytest.approx({"compute": 0.01, "server_time": 1e-3, "latency": 5e-5, "bandwidth": 1e9})
    two = replace(one, latency=1e-4, bandwidth=1e9).constants()
    assert (two["latency"], two["bandwidth"]) == pytest.approx((1.5e-4, 0.5e9))
    free = replace(one, costs=lk.Costs(lk.WorkCost(0.01))).constants()
    assert (free["latency"], free["bandwidth"]) == (1e-6, 20e9)  # limits of what can be measured


# fits -----------------------------------------------------------------------------------------------------------------


def test_fits_are_exact_for_exact_data_and_never_negative():
    truth = lk.WorkCost(1e-5, 2e-9, 3e-9)
    points = [(p, n, truth(p, n)) for p, n in ((1000, 16), (1000, 64), (1000, 4), (4000, 16), (250, 16))]
    made = fit_work(points)
    assert made(10_000, 100) == pytest.approx(truth(10_000, 100), rel=1e-6)
    assert fit_linear([(10, 1.0), (20, 0.5)]).per_byte == 0.0
    assert fit_linear([(10, -1.0), (20, -2.0)]) == lk.Linear(0.0, 0.0)


def test_slow_and_fast_variations_are_separated():
    """Ten periods of 0.1 s with 20 durations each: the factor of the period is 0.8 or 1.2, that of a duration 0.9 or 1.1."""
    probe = [
        (period * 0.1 + i * 0.0049 + 0.0001, 0.01 * (0.8, 1.2)[period % 2] * (0.9, 1.1)[i % 2])
        for period in range(10) for i in range(20)
    ]  # fmt: skip
    slow, fast = split_drift([probe], 0.1)
    assert sorted(slow) == pytest.approx([0.8] * 5 + [1.2] * 5)
    assert sorted(fast) == pytest.approx([0.9] * 100 + [1.1] * 100)
    assert split_drift([probe[:20]], 0.1) == ([], [duration for _, duration in probe[:20]])  # one period tells nothing
    assert split_drift([[]], 0.1) == ([], [])


def test_quantiles_keep_the_mean_and_the_shape():
    values = np.random.default_rng(0).lognormal(0, 0.3, 5000)
    made = np.array(quantiles(values.tolist()))
    assert len(made) == 200
    assert made.mean() == pytest.approx(1, abs=0.01)
    assert np.quantile(made, 0.9) == pytest.approx(np.quantile(values, 0.9) / values.mean(), rel=0.02)
    assert quantiles([]) == (1.0,)


# advice ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["sync-ps", "async-ps"])
def test_advice_with_a_calibration_is_close_to_the_simulation_of_the_measured_costs(strategy):
    """Two workers on enough cores, without a spread, polling or wake-ups, which no formula contains."""
    costs = lk.Costs(lk.WorkCost(1e-3), update=lk.Linear(1e-4), send=lk.Linear(5e-5), receive=lk.Linear(5e-5), cores=8)
    calibration = lk.Calibration(costs, "digits", (2410, 16, 9640), 359, (1, 10**6), (1, 100))
    advice = lk.advise(PROBLEM, calibration.cluster(2, 1), [strategy])
    run = lk.train(PROBLEM, advice.best.strategy, calibration.cluster(2, 1), lk.Budget(updates=300)).wait()
    assert advice.best.gradients_per_second == pytest.approx(run.summary()["gradients_per_second"], rel=0.15)


def test_advice_with_a_calibration_has_the_measured_links_and_the_pace_of_servers():
    """Of the processes of two hosts, the server and the worker are on different ones: c + s + 2a + 2m."""
    costs = lk.Costs(lk.WorkCost(1e-3), cores=8, hosts=2)
    calibration = lk.Calibration(costs, "digits", (2410, 16, 9640), 359, (1, 10**6), (1, 100), 1e-3, 1e6)
    size = PROBLEM.objective().size * 4
    with lk.DaskCluster(workers=1, servers=1, server_time=2e-3) as processes:  # none is started
        row = lk.advise(PROBLEM, processes, ["async-ps"], calibration=calibration).best
    assert row.step == pytest.approx(1e-3 + 2e-3 + 2 * 1e-3 + 2 * size / 1e6, rel=0.01)


def test_advice_for_a_calibrated_cluster_uses_its_costs(found):
    with lk.DaskCluster(workers=16, servers=1) as processes:  # none is started
        plain = lk.advise(PROBLEM, processes, ["sync-ps"], calibration=found)
    assert lk.advise(PROBLEM, found.cluster(16, 1), ["sync-ps"]).best.step == plain.best.step
    fewer = lk.advise(PROBLEM, found.cluster(4, 1), ["sync-ps"])
    assert plain.best.step > 2 * fewer.best.step  # 16 workers share 4 cores
