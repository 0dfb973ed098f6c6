"""Class weights: the gradient is that of the weighted losses, divided by the number of samples, for every strategy.

The truth is a model in NumPy, which multiplies its own losses by weights that are computed by hand.
"""

from dataclasses import dataclass

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


BY_HAND = lk.Problem("digits", model=Weighted(), batch_size=8, dtype="float64")


@pytest.mark.parametrize(
    "strategy",
    [s for s in DATA_PARALLEL if "PowerSGD" not in str(s.describe())],
    ids=lambda s: f"{s.name}-{s.optimizer}",
)
def test_the_gradients_of_every_strategy_are_weighted(strategy):
    runs = [trained(problem, strategy) for problem in (PROBLEM, BY_HAND)]
    one, other = (run.result().parameters for run in runs)
    assert np.abs(one - other).max() < 1e-10
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
        lk.Problem("digits", model=StagedMLP(), batch_size=8, dtype="float64", class_weights=GIVEN),
    ):
        if strategy.name != lk.TensorParallel().name or problem is PROBLEM:
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
