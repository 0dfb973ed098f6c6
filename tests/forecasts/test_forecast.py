"""Forecasts: intervals over seeds, what makes them doubtful, and their figure."""

import statistics
from dataclasses import replace

import pytest

import labkit as lk
from tests.models.own_models import Linear

pytestmark = pytest.mark.simulated

PROBLEM = lk.Problem("moons", hidden=(4,))
COSTS = lk.Costs(
    lk.WorkCost(1e-3), spread=lk.distributions.Uniform(0.5, 1.5), send=lk.Linear(2e-5), receive=lk.Linear(3e-5), cores=2
)  # fmt: skip
KNOWN = lk.Calibration(COSTS, "moons", (22, 32, 88), 100, (10, 1000), (1, 100), repeatability={"sharing": 0.01})
SHORT = lk.Budget(updates=60, accuracy=0.99)  # the accuracy is not reached


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)


def forecast(strategies="async-ps", calibration=KNOWN, **more):
    return lk.forecast(PROBLEM, strategies, calibration, **{"workers": (2, 4), "budget": SHORT, "seeds": 3} | more)


def test_every_quantity_has_its_range_over_the_seeds():
    made = forecast(budget=lk.Budget(seconds=20, accuracy=0.84))
    assert "median (smallest – largest) of 3 seeds" in str(made)
    names = ("gradients_per_second", "staleness", "time_to_accuracy")
    texts = (lambda v: f"{v:,.0f}", lambda v: f"{v:.2f}", lambda v: f"{v:.3g}")
    for workers, row in zip((2, 4), made.table().rows):
        assert row[0] == workers
        for cell, name, text in zip((row[1], row[2], row[4]), names, texts):
            values = made.sweep.values(name, workers=workers)
            assert cell == f"{text(statistics.median(values))} ({text(min(values))} – {text(max(values))})"


def test_a_forecast_is_repeatable(tmp_path):
    files = [forecast(seeds=2).sweep.to_csv(tmp_path / name).read_bytes() for name in ("a.csv", "b.csv")]
    assert files[0] == files[1]


def test_sizes_are_in_ascending_order_and_once():
    assert [row["workers"] for row in forecast(workers=[4, 2, 4], seeds=1).sweep.rows] == [2, 4]


def test_servers_are_for_strategies_that_use_them():
    rows = forecast(["async-ps", "ring-all-reduce"], workers=2, seeds=1, servers=2).sweep.rows
    assert [row["servers"] for row in rows] == [2, 0]


def doubts(**more):
    return " | ".join(forecast(**more).doubts)


def test_what_was_not_measured_is_doubtful():
    reached = {"budget": lk.Budget(updates=60)}
    assert doubts(**reached) == ""
    assert "8 and 16 workers on 2 cores; measured were at most 2 for each core" in doubts(workers=(8, 16), **reached)
    assert "4 hosts and the link between them; measured was 1 host" in doubts(hosts=4, latency=1e-4, **reached)
    assert "16 workers" not in doubts(workers=(8, 16), hosts=4, **reached)
    noisy = lk.Calibration(
        COSTS, "moons", (22, 32, 88), 100, (10, 1000), (1, 100), doubts=("the gradient differed by ± 50%",)
    )
    assert "the gradient differed by ± 50%" in doubts(calibration=noisy, **reached)
    assert "one seed has no range" in doubts(seeds=1, **reached)
    assert "Pipeline: the time of a part of the network was not measured" in doubts(
        strategies=["async-ps", "pipeline"], workers=2, **reached
    )


def test_the_gradient_of_an_own_model_was_not_measured_unless_its_time_is_given():
    own = lk.Problem("moons", model=Linear())  # of 6 parameters
    small = replace(KNOWN, parameters=(1, 1000))
    for pace, said in ((None, True), (0.05, False)):
        made = lk.forecast(own, "async-ps", small, 2, pace=pace, budget=lk.Budget(updates=60))
        assert any("the time of a gradient of Linear(scale=0.1)" in doubt for doubt in made.doubts) is said
    advice = lk.advise(own, small.cluster(2), ["async-ps"], calibration=small)
    assert any("Linear(scale=0.1)" in doubt for doubt in advice.doubts)


@pytest.mark.parametrize("option", [{"cores": 4}, {"evaluation_time": 0.1}])
def test_options_that_costs_contain_are_refused(option):
    with pytest.raises(lk.BadInput, match=f"{next(iter(option))}=.* has no effect with measured costs"):
        forecast(**option)


def test_without_a_probe_of_shared_cores_more_workers_than_cores_are_doubtful():
    alone = lk.Calibration(COSTS, "moons", (22, 32, 88), 100, (10, 1000), (1, 100))
    assert "4 workers on 2 cores; measured were at most 1 for each core" in doubts(calibration=alone)


def test_a_slow_worker_is_slow_at_the_sizes_that_have_it():
    rows = {
        row["workers"]: row["gradients_per_second"]
        for row in forecast(["sync-ps"], seeds=1, slow={"worker-3": 5}).sweep.rows
    }
    alone = {row["workers"]: row["gradients_per_second"] for row in forecast(["sync-ps"], seeds=1).sweep.rows}
    assert rows[2] == alone[2]
    assert rows[4] < 0.7 * alone[4]
    assert "There is no role 'worker-7'" in doubts(slow={"worker-7": 5})


def test_an_accuracy_that_is_not_reached_is_doubtful_and_shown():
    made = forecast(["async-ps", "sync-ps"])
    assert (
        "runs did not reach the accuracy within the budget: AsyncPS (2 and 4 workers), SyncPS (2 and 4 workers)"
        in made.doubts
    )
    assert [row[-1] for row in made.table().rows] == ["not reached"] * 4
    panels = [[text.get_text() for text in axes.texts] for axes in made.figure().axes]
    assert panels[3] == ["no run reached 99% of held-out samples"]


def test_a_wide_range_is_doubtful():
    heavy = lk.Costs(lk.WorkCost(1e-3), spread=lk.distributions.LogNormal(1.0, 2.5), cores=8)
    found = doubts(calibration=lk.Calibration(heavy, "moons", (22, 32, 88), 100, (10, 1000), (1, 100)), seeds=5,
                   budget=lk.Budget(updates=20))  # fmt: skip
    assert "the throughput differs between seeds by more than 50%: 2 and 4 workers" in found


def test_a_failed_run_is_doubtful():
    class Broken(lk.AsyncPS):
        async def worker(self, ctx, model):
            raise ValueError("no data today")

    assert "runs failed: 2 and 4 workers (" in doubts(strategies=Broken())


def test_the_figure_has_every_quantity_and_the_doubts():
    made = forecast(["async-ps", "sync-ps"], budget=lk.Budget(seconds=20, accuracy=0.84), workers=(2, 16))
    figure = made.figure()
    titles = [text.get_text() for text in figure.texts]
    assert {"Throughput", "Staleness", "Bytes sent", "Time to accuracy"} <= set(titles)
    assert any(text.startswith("Doubtful: 16 workers on 2 cores") for text in titles)
    assert len(figure.axes) == 4
    for axes, name in zip(figure.axes, ("gradients_per_second", "staleness", "bytes_per_gradient", "time_to_accuracy")):
        for line, strategy in zip(axes.lines, ("AsyncPS", "SyncPS")):
            wanted = [[n, statistics.median(made.sweep.values(name, workers=n, strategy=strategy))] for n in (2, 16)]
            assert line.get_xydata().tolist() == wanted


@pytest.mark.parametrize(("change", "message"), [
    ({"workers": ()}, "give at least one number of workers"),
    ({"workers": None}, "workers=None"),
    ({"workers": "four"}, "workers"),
    ({"workers": 0}, "workers=0"),
    ({"workers": (2, 2.5)}, "workers=2.5"),
    ({"hosts": 0}, "hosts=0"),
    ({"seeds": 0}, "seeds=0"),
    ({"budget": 3}, "budget=3: give a lk.Budget"),
    ({"strategies": []}, "give at least one"),
    ({"strategies": "ring-all-reduce", "servers": 2}, "RingAllReduce uses no servers"),
    ({"progress": "yes"}, "progress='yes'"),
])  # fmt: skip
def test_arguments_are_checked(change, message):
    with pytest.raises(lk.BadInput, match=message):
        forecast(**change)


def test_advice_says_that_costs_were_measured_and_what_is_doubtful():
    cluster = KNOWN.cluster(8)
    crowded = "8 workers on 2 cores; measured were at most 2 for each core"
    for calibration, doubts in ((None, ()), (KNOWN, (crowded,))):
        advice = lk.advise(PROBLEM, cluster, ["sync-ps"], calibration=calibration)
        assert ": 8 workers share 2 cores." in advice.inputs
        assert advice.doubts == doubts
    larger = lk.Problem("moons", hidden=(400,))
    text = str(lk.advise(larger, cluster, ["sync-ps"], calibration=KNOWN))
    assert "Doubtful: 2,002 parameters; measured were 10 to 1,000." in text


def check_advice(strategy, workers):
    """Compare the advised rate with that of a forecast's simulated run."""
    (simulated,) = forecast(strategy, KNOWN, workers=workers, seeds=1, budget=lk.Budget(samples=32 * 1280)).sweep.rows
    advised = lk.advise(PROBLEM, KNOWN.cluster(workers), [strategy]).best
    assert advised.gradients_per_second == pytest.approx(simulated["gradients_per_second"], rel=0.04)


ADVISED = ["sync-ps", "async-ps", "ring-all-reduce", "bucketed-all-reduce"]


@pytest.mark.sample(1, slow=3)
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("strategy", ADVISED)
def test_advice_agrees_with_forecasts(workers, strategy):
    check_advice(strategy, workers)


@pytest.mark.sample(0, slow=0)
@pytest.mark.parametrize("strategy", ADVISED)
def test_advice_for_16_workers_agrees_with_forecasts(strategy):
    check_advice(strategy, 16)
