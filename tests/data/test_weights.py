"""Weights of classes and of samples: the gradient is that of the weighted losses, divided by the number of samples, for every
strategy.

The truth is a model in NumPy, which multiplies its own losses by weights that are computed by hand.
"""

from dataclasses import dataclass
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest

import labkit as lk
from labkit.serialization import fingerprint
from labkit.spec import RunSpec
from labkit.trace.header import RecordedProblem
from tests.models.own_models import MLP, Linear, StagedMLP
from tests.models.test_own_models import DATA_PARALLEL, trained
from tests.refusals import check_refused

pytestmark = [
    pytest.mark.simulated,
    pytest.mark.filterwarnings("ignore:Weighted. gradient returns the loss"),  # held-out losses are not weighted
]

GIVEN = {3: 5.0, 8: 0.5}
FACTORS = np.where(np.arange(10) == 3, 5.0, np.where(np.arange(10) == 8, 0.5, 1.0))
FACTORS /= FACTORS[lk.Problem("digits").dataset.y_train].mean()
PROBLEM = lk.Problem("digits", hidden=(16, 12), batch_size=8, dtype="float64", class_weights=GIVEN)


@dataclass(frozen=True)
class Weighted(MLP):
    """The gradient of a batch, put together from the gradients of the samples of each class."""

    def gradient(self, p, x, y, g):
        loss, part = 0.0, {name: np.empty_like(value) for name, value in g.items()}
        for value in g.values():
            value[...] = 0
        for label in np.unique(y):
            rows = y == label
            factor = FACTORS[label] * rows.sum() / len(y)
            loss += factor * super().gradient(p, x[rows], y[rows], part)
            for name, value in g.items():
                value += factor * part[name]
        return loss


DIGITS = lk.Problem("digits", dtype="float64").dataset
BY_SAMPLE = lk.Problem(
    lk.from_arrays(
        DIGITS.x_train, DIGITS.y_train, x_test=DIGITS.x_test, y_test=DIGITS.y_test, standardize=False, dtype="float64",
        sample_weights=17.0 * FACTORS[DIGITS.y_train],
    ),
    hidden=(16, 12), batch_size=8,
)  # fmt: skip
BY_HAND = lk.Problem("digits", model=Weighted(), batch_size=8, dtype="float64")


@pytest.mark.sample(4, slow=8)
@pytest.mark.parametrize(
    "strategy",
    [s for s in DATA_PARALLEL if "PowerSGD" not in str(s.describe())],
    ids=lambda s: f"{s.name}-{s.optimizer}",
)
def test_the_gradients_of_every_strategy_are_weighted(strategy):
    runs = [trained(problem, strategy) for problem in (PROBLEM, BY_HAND, BY_SAMPLE)]
    one, *others = (run.result().parameters for run in runs)
    assert max(np.abs(one - other).max() for other in others) < 1e-10
    assert (
        np.abs(
            one
            - trained(lk.Problem("digits", hidden=(16, 12), batch_size=8, dtype="float64"), strategy)
            .result()
            .parameters
        ).max()
        > 1e-3
    )
    # held-out values are those of the data as they are
    assert runs[0].summary()["loss"] == pytest.approx(runs[1].summary()["loss"], rel=1e-10)


@pytest.mark.parametrize(
    ("strategy", "workers", "shares"),
    [
        (lk.Pipeline(micro_batches=4), 3, 1), (lk.Pipeline(order="zb-h1", micro_batches=3), 3, 1), (lk.TensorParallel(), 2, 1),
        (lk.FSDP(), 3, 3), (lk.Hybrid(shape="2x3", micro_batches=2), 6, 2),
    ],
    ids=lambda value: str(getattr(value, "name", value)),
)  # fmt: skip
def test_a_divided_model_has_the_gradient_of_the_whole(strategy, workers, shares):
    objective, batches = BY_HAND.objective(), BY_HAND.batches(shares)
    params = objective.start(0)
    for _ in range(20):
        found = [np.empty_like(params) for _ in batches]
        for out, worker in zip(found, batches):
            batch = next(worker)
            objective.gradient(params, batch.x, batch.y, out)
        params = params - strategy.learning_rate * np.mean(found, axis=0)
    for problem in (
        PROBLEM,
        BY_SAMPLE,
        lk.Problem("digits", model=StagedMLP(), batch_size=8, dtype="float64", class_weights=GIVEN),
    ):
        if strategy.name != lk.TensorParallel().name or problem.model is None:
            run = trained(problem, strategy, workers, 20)
            assert np.abs(run.result().parameters - params).max() < 1e-10


def counts(*samples):
    y = np.repeat(np.arange(len(samples)), samples)
    return np.random.default_rng(0).normal(size=(len(y), 2)), y


@pytest.mark.parametrize(
    ("given", "ratios"),
    [
        ("balanced", (1 / 12, 1 / 24, 1 / 4)),
        ((1, 2, 3), (1, 2, 3)),
        ([0.0, 1e-3, 0.0], (0, 1, 0)),
        (np.float32([2, 1, 1]), (2, 1, 1)),
        ({"red": 4}, (1, 1, 4)),
        ({"blue": 0, "red": np.int64(7)}, (0, 1, 7)),
    ],
)
@pytest.mark.parametrize("source", ["arrays", "dask"])
def test_the_mean_factor_of_the_training_samples_is_one(given, ratios, source):
    x, y = counts(12, 24, 4)
    if source == "arrays":
        words = np.array(["blue", "green", "red"])
        data = lk.from_arrays(x, words[y], x_test=x[:2], y_test=words[y[:2]])
        training = y
    else:
        names = ["blue", "green", "red"]
        data = lk.from_dask(da.from_array(x, chunks=(8, 2)), da.from_array(y, chunks=8), classes=names)
        training = data.gathered().y_train
        ratios = 1 / np.bincount(training) if isinstance(given, str) else ratios
    factors = np.array(lk.Problem(data, class_weights=given).objective().loss.class_weights)
    assert factors[training].mean() == pytest.approx(1)
    assert factors / factors.sum() == pytest.approx(np.array(ratios) / np.sum(ratios))


def test_weights_find_the_samples_of_a_rare_class():
    rng = np.random.default_rng(1)
    y = (np.arange(4000) % 33 == 0).astype(int)
    data = lk.from_arrays(rng.normal(size=(4000, 2)) + 1.2 * y[:, None], y, stratify=True)
    recalls = []
    for weights in (None, "balanced"):
        run = trained(lk.Problem(data, hidden=(), class_weights=weights), lk.SyncPS(learning_rate=0.5), updates=200)
        answers = run.result().predict(data.raw(data.x_test))
        recalls.append((answers[data.y_test == 1] == 1).mean())
    assert recalls[0] < 0.35
    assert recalls[1] > 0.6


@pytest.mark.parametrize("given", ["balanced", (1.0, 2.5), {"0": 1.5, "1": 2.0}], ids=str)
def test_weights_identify_the_problem_and_have_a_text(given):
    problem, plain = lk.Problem("moons", class_weights=given), lk.Problem("moons")
    spec = RunSpec(problem)
    assert RunSpec.from_dict(spec.to_dict()).problem == problem
    assert lk.Problem("moons", class_weights=spec.read("class_weights", spec.write("class_weights"))) == problem
    assert fingerprint(problem) != fingerprint(plain)
    assert "class weights" in str(problem)
    header = trained(problem, lk.SyncPS(), 2, 5).trace.header
    assert RecordedProblem.from_dict(header.problem.to_dict()) == header.problem
    assert header.problem.class_weights == spec.write("class_weights")
    assert plain.describe().keys() == problem.describe().keys() - {"class_weights"}


def test_weights_that_are_refused():
    check_refused(
        [
            (
                lambda: lk.Problem("moons", class_weights="equal"),
                "class_weights='equal' is not allowed; it is 'balanced'",
            ),
            (lambda: lk.Problem("moons", class_weights=(1, -1)), "finite numbers from 0 on"),
            (lambda: lk.Problem("moons", class_weights=(0, 0)), "one above 0"),
            (lambda: lk.Problem("moons", class_weights={1: float("inf")}), "finite numbers"),
            (lambda: lk.Problem("moons", class_weights={}), "is not allowed"),
            (lambda: lk.Problem("moons", class_weights=3), "is not allowed"),
            (lambda: lk.Problem("moons", class_weights=(1, 2, 3)).objective(), "3 numbers for 2 classes"),
            (lambda: lk.Problem(lk.from_arrays(*counts(5, 5)), class_weights={"2": 1}), "no class '2'"),
            (lambda: lk.Problem("quadratic", class_weights="balanced").objective(), "its targets are numbers"),
            (
                lambda: lk.Problem("digits", model=Linear(), class_weights="balanced").objective(),
                r"Linear.gradient computes its own loss.*give it `stages` instead",
            ),
            (
                lambda: lk.Problem(lk.from_arrays(*counts(5, 5), classes=3), class_weights=(0, 0, 1)).objective(),
                "no training sample has a class with a weight above 0",
            ),
        ]
    )


@pytest.mark.parametrize("kind", ["labels", "targets", "columns"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gradient_is_the_weighted_mean_of_those_of_single_samples(kind, dtype):
    rng = np.random.default_rng(2)
    x, given = rng.normal(size=(40, 3)), rng.integers(0, 4, 40) + rng.random(40) * (rng.random(40) < 0.5)
    y = {"labels": rng.integers(0, 3, 40), "targets": rng.normal(size=40), "columns": rng.normal(size=(40, 2))}[kind]
    more = {"class_weights": (1, 4, 2)} if kind == "labels" else {}
    data = lk.from_arrays(x, y, sample_weights=given, dtype=dtype, stratify=kind == "labels")
    plain = lk.from_arrays(x, y, dtype=dtype, stratify=kind == "labels")
    problem, same = lk.Problem(data, hidden=(5,), batch_size=16, **more), lk.Problem(plain, hidden=(5,), batch_size=16)
    objective, single = problem.objective(), same.objective()
    # the weights follow their samples through the split
    where = [int(np.argmin(np.abs(x - row).sum(axis=1))) for row in data.raw(data.x_train)]
    np.testing.assert_allclose(data.sample_weights, given[where] / given[where].mean(), rtol=1e-6)
    factors = data.sample_weights * (
        np.ones(32) if kind != "labels" else np.array(objective.loss.class_weights)[data.y_train]
    )
    params, batch = objective.start(0), next(problem.batches()[0])
    out, part, expected, loss = *(np.empty_like(params) for _ in range(2)), np.zeros(len(params)), 0.0
    for row, target in zip(batch.x, batch.y["y"]):
        factor = factors[np.flatnonzero((data.x_train == row).all(axis=1))[0]]
        loss += factor * single.gradient(params, row[None], target[None], part) / 16
        expected += factor * part / 16
    assert objective.gradient(params, batch.x, batch.y, out) == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-6)
    # held-out values have no weights
    assert objective.evaluate(params, data.x_test, data.y_test) == single.evaluate(params, plain.x_test, plain.y_test)


def of_npy(x, y, weights):
    for name, values in (("x", x), ("y", y), ("w", weights)):
        np.save(f"{name}.npy", values)
    return lk.from_npy("x.npy", "y.npy", sample_weights="w.npy", dtype="float64")


def of_csv(x, y, weights):
    lines = [f"{w!r},{a!r},{b!r},{label}" for w, (a, b), label in zip(weights.tolist(), x.tolist(), y)]
    Path("x.csv").write_text("weight,a,b,kind\n" + "\n".join(lines))
    return lk.from_csv("x.csv", sample_weights="weight", dtype="float64")


def of_dask(x, y, weights):
    arrays = (da.from_array(x, chunks=(9, 1)), da.from_array(y, chunks=7))
    return lk.from_dask(*arrays, classes=2, sample_weights=da.from_array(weights, chunks=10), dtype="float64")


@pytest.mark.parametrize("made", [of_npy, of_csv, of_dask])
def test_weights_of_every_source_stay_with_their_samples(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = counts(20, 12)
    given = np.where(np.arange(32) % 5, np.arange(32) * 1.5, 0.0)
    problem = lk.Problem(made(x, y, given), hidden=(3,), class_weights={"1": 2}, batch_size=8)
    data = problem.dataset.gathered() if made is of_dask else problem.dataset
    raw = data.raw(np.asarray(data.x_train))
    where = [int(np.argmin(np.abs(x - row).sum(axis=1))) for row in raw]
    np.testing.assert_allclose(data.sample_weights, given[where] / given[where].mean(), rtol=1e-12)
    np.testing.assert_array_equal(data.y_train, y[where])
    assert (data.features, data.y_test.dtype.names) == (2, None)
    assert "weighted samples" in str(problem)
    runs = [
        lk.train(each, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=10)).wait()
        for each in (
            problem,
            lk.Problem(
                lk.from_arrays(
                    raw, data.y_train, x_test=data.raw(np.asarray(data.x_test)), y_test=data.y_test,
                    sample_weights=given[where], dtype="float64",
                ),
                hidden=(3,), class_weights={"1": 2}, batch_size=8,
            ),
        )
    ]  # fmt: skip
    np.testing.assert_allclose(*(run.result().parameters for run in runs), rtol=1e-8)


def test_the_shares_of_a_cluster_have_weights_of_mean_one():
    x, y = counts(200, 120)
    given = np.arange(320.0)
    made = of_dask(x, y, given)
    for how, workers in (("even", 3), ("by-label:0.5", 3), ("shared", 1)):
        shares = dask.compute(*made.shares(workers, how))
        weights = np.concatenate([targets["weight"] for _, targets in shares])
        assert weights.mean() == pytest.approx(1)
        assert sorted({targets["y"].dtype for _, targets in shares}) == [np.int64]
    assert dask.compute(made.test())[0][1].dtype == np.int64


def test_a_sample_of_weight_two_is_a_sample_given_twice():
    x, y = counts(20, 12)
    twice = np.arange(32) % 3 == 0
    data = lk.from_arrays(x, y, x_test=x, y_test=y, sample_weights=1 + twice, standardize=False, dtype="float64")
    repeated = lk.from_arrays(
        np.r_[x, x[twice]], np.r_[y, y[twice]], x_test=x, y_test=y, standardize=False, dtype="float64"
    )
    gradients = []
    for each in (data, repeated):
        objective = lk.Problem(each).objective()
        out = np.empty(objective.size)
        loss = objective.gradient(objective.start(0), *each.training, out)
        gradients.append((loss, *out))
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-15)


def test_sample_weights_are_part_of_the_data():
    x, y = counts(20, 12)
    plain, weighted, other = (
        lk.from_arrays(x, y, sample_weights=weights) for weights in (None, np.arange(32), np.arange(32) ** 2)
    )
    prints = [fingerprint(lk.Problem(data))["sha256"] for data in (plain, weighted, other)]
    assert len(set(prints)) == 3
    assert "weighted samples" in str(lk.Problem(weighted))
    assert "weighted" not in str(lk.Problem(plain))
    by_label = lk.Problem(weighted, partition=lk.partitions.ByLabel(0.3))
    batches = [next(worker) for worker in by_label.batches(3)]
    assert {*batches[0].y.dtype.names} == {"y", "weight"}
    elastic = lk.SimulatedCluster(workers=2, max_workers=3)
    run = lk.train(by_label, lk.AsyncPS(), elastic, lk.Budget(updates=30)).wait(progress=False)
    assert run.summary()["ledger"]["closes"]


def test_sample_weights_that_are_refused(tmp_path, monkeypatch):
    x, y = counts(20, 12)

    def given(weights, **more):
        return lambda: lk.from_arrays(x, y, sample_weights=weights, **more)

    negative, missing = np.ones(32), np.ones(32)
    negative[5], missing[7] = -0.5, np.nan
    problem = lk.Problem(given(np.arange(32))(), model=Linear(), class_weights="balanced")

    def lazy(weights, chunks=8, keep=None):
        arrays = [da.from_array(x, chunks=(8, 2)), da.from_array(y, chunks=8)]
        weights = da.from_array(weights, chunks=chunks)
        if keep is not None:  # an unknown number of rows
            everywhere = da.ones(32, chunks=8) > 0
            arrays, weights = [array[everywhere] for array in arrays], weights[da.from_array(keep, chunks=chunks)]
        return lambda: lk.from_dask(*arrays, classes=2, sample_weights=weights)

    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b,w,kind\n" + "1,2,3,0\n2,1,0,1\n3,1,-1,1\n")

    def table(**columns):
        return lambda: lk.from_csv("x.csv", **columns)

    check_refused([
        (table(sample_weights="w"), "x.csv, line 4, 'w': -1 is not allowed; a weight is at least 0"),
        (table(sample_weights="weight"), "no column in x.csv 'weight'"),
        (table(sample_weights=7), "sample_weights=7 is not allowed; x.csv has columns 0 to 3"),
        (table(sample_weights="kind"), "target=-1 with sample_weights='kind' is not allowed; give one column or several"),
        (table(sample_weights="w", header=False), "sample_weights='w' is a name, but header=False"),
        (lambda: lk.from_dask(da.from_array(x), da.from_array(y), classes=2, sample_weights=np.ones(32)),
         "sample_weights is a ndarray; it must be a dask array"),
        (lazy(np.ones(31), 31), "x has 32 rows and sample_weights has 31"),
        (lazy(np.ones((32, 1)), (8, 1)), r"sample_weights has shape \(32, 1\)"),
        (lazy(negative), "At row 5 .* sample_weights is -0.5; a weight is at least 0"),
        (lazy(missing), "At row 7 .* sample_weights is nan"),
        (lazy(np.zeros(32)), "no training sample has a weight above 0"),
        (lazy(np.ones(32), keep=np.arange(32) != 9), r"block 1 .* x has 8 rows and sample_weights has 7"),
        (given(np.ones(31)), r"sample_weights has shape \(31,\); .* shape \(32,\)"),
        (given(negative), "sample_weights is -0.5 at row 5"),
        (given(missing), "sample_weights is nan at row 7"),
        (given(np.zeros(32)), "no training sample has a weight above 0"),
        (given("balanced"), "sample_weights"),
        (problem.objective, "class_weights='balanced' and sample_weights: Linear.gradient computes its own loss"),
    ])  # fmt: skip
