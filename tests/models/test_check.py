"""Every check of a model finds what it is for, also at the start of a run, and says what to change."""

import threading
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import labkit as lk
from labkit.models import check
from tests.models.own_models import CNN, MLP, DenseStage, Dropout, Linear, StagedMLP, softmax_loss
from tests.refusals import check_refused

BUFFER = np.zeros((8, 10))
COPIED = np.zeros((64, 10))
GENERATOR = np.random.default_rng(0)


class Start(Linear):
    """Its initial values are wrong in a way."""

    def init(self, p, rng):
        super().init(p, rng)
        self.spoil(p)


class UnseededStart(Start):
    def spoil(self, p):
        p["linear.weight"][...] = GENERATOR.normal(size=p["linear.weight"].shape)


class InfiniteStart(Start):
    def spoil(self, p):
        p["linear.weight"][0, 0] = np.inf


class HalfStart(Linear):
    def init(self, p, rng):
        p["linear.weight"][...] = 0


class Writes(Linear):
    def gradient(self, p, x, y, g):
        p["linear.bias"][...] -= 0.1
        return super().gradient(p, x, y, g)


class WritesX(Linear):
    def gradient(self, p, x, y, g):
        x -= x.mean(axis=0)
        return super().gradient(p, x, y, g)


class LeavesOut(Linear):
    def gradient(self, p, x, y, g):
        loss, d = softmax_loss(self.scores(p, x), y)
        g["linear.weight"][...] = x.T @ d
        return loss


class Rebinds(Linear):
    def gradient(self, p, x, y, g):
        loss, d = softmax_loss(self.scores(p, x), y)
        g["linear.weight"], g["linear.bias"] = x.T @ d, d.sum(axis=0)
        return loss


class Random(Linear):
    def gradient(self, p, x, y, g):
        kept = x * (GENERATOR.random(x.shape) < 0.5)
        return super().gradient(p, kept, y, g)


class Sums(Linear):
    def gradient(self, p, x, y, g):
        loss = super().gradient(p, x, y, g)
        for values in g.values():
            values *= len(x)
        return loss * len(x)


class SumsGradient(Linear):
    def gradient(self, p, x, y, g):
        loss = super().gradient(p, x, y, g)
        for values in g.values():
            values *= len(x)
        return loss


class WrongBias(Linear):
    def gradient(self, p, x, y, g):
        loss = super().gradient(p, x, y, g)
        g["linear.bias"] *= -1
        return loss


class WrongElement(Linear):
    """One small element is wrong, which only the derivative along a random direction shows."""

    def gradient(self, p, x, y, g):
        loss = super().gradient(p, x, y, g)
        g["linear.weight"][0, 0] += 0.01 * loss  # the first pixel of all digits is empty
        return loss


class Narrow(Linear):
    def scores(self, p, x):
        return super().scores(p, x)[:, :9]

    def gradient(self, p, x, y, g):
        loss, d = softmax_loss(super().scores(p, x), y)
        g["linear.weight"][...], g["linear.bias"][...] = x.T @ d, d.sum(axis=0)
        return loss


class Coupled(Linear):
    def scores(self, p, x):
        return super().scores(p, x - x.mean(axis=0))


class NoLoss(Linear):
    def gradient(self, p, x, y, g):
        super().gradient(p, x, y, g)


class Raises(Linear):
    def gradient(self, p, x, y, g):
        return super().gradient(p, x[:, :60], y, g)


@dataclass(frozen=True)
class Locked(Linear):
    lock: Any = None


class Shared(Linear):
    """The scores are computed in a buffer of the module."""

    def gradient(self, p, x, y, g):
        scores = BUFFER[: len(x)]
        np.matmul(x, p["linear.weight"], out=scores)
        threading.Event().wait(1e-5)  # others run
        scores += p["linear.bias"]
        loss, d = softmax_loss(scores, y)
        g["linear.weight"][...] = x.T @ d
        g["linear.bias"][...] = d.sum(axis=0)
        return loss


class SharedWeights(Linear):
    """The weights are copied to the module, which nothing shows as long as all threads have the same."""

    def gradient(self, p, x, y, g):
        COPIED[...] = p["linear.weight"]
        threading.Event().wait(1e-5)  # others run
        loss, d = softmax_loss(x @ COPIED + p["linear.bias"], y)
        g["linear.weight"][...] = x.T @ d
        g["linear.bias"][...] = d.sum(axis=0)
        return loss


class RandomStage(Dropout):
    def gradient(self, p, x, y, g, rng):
        return super().gradient(p, x, y, g, GENERATOR)


WRONG = [
    (UnseededStart, "UnseededStart: init returns other values for the same seed. Draw them from the given rng"),
    (InfiniteStart, "init writes infinite numbers to linear.weight"),
    (HalfStart, r"init has left linear.bias\[0\] out, .*p\[name\]\[...\] ="),
    (Writes, "Writes.gradient raised ValueError: .*read-only on 8 rows of 64 numbers .*write to g only"),
    (WritesX, "read-only.*must not be changed"),
    (LeavesOut, r"gradient has left linear.bias\[0\] out"),
    (Rebinds, r"gradient has left linear.weight\[0, 0\] out.*only replaces the entry"),
    (Random, "two calls of gradient with the same arguments differ .*needs stochastic = True"),
    (RandomStage, "two calls of gradient .* differ .*Draw random numbers from the given rng only"),
    (Sums, r"does not return the mean over the samples .*loss.*Divide the sums by len\(x\)"),
    (SumsGradient, "does not return the mean .*the loss is, but the gradient differs"),
    (WrongBias, r"the gradient is wrong at linear.bias\[\d\]: it is .*, but the difference quotient of the loss is"),
    (WrongElement, "the gradient is wrong at linear.weight"),
    (Narrow, r"Narrow.scores returned numbers of shape \(8, 9\); numbers of shape \(8, 10\) are needed"),
    (Coupled, "does not return the mean .*must not depend on the other samples"),
    (NoLoss, "NoLoss.gradient returned None; the mean loss is needed"),
    (Raises, r"Raises.gradient raised ValueError: matmul.* on 8 rows of 64 numbers \(own_models.py, line \d+\)"),
    (
        lambda: Locked(lock=threading.Lock()),
        "cannot be sent to other processes: TypeError: cannot pickle '_thread.lock'",
    ),
    (Shared, "computed at the same time in several threads disturb each other"),
    (SharedWeights, "computed at the same time in several threads disturb each other"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[getattr(make, "__name__", "") for make, _ in WRONG])
def test_what_is_wrong_is_found_and_a_run_does_not_begin(make, message):
    problem = lk.Problem("digits", model=make(), dtype="float64")
    check_refused(
        [
            (lambda: lk.check_model(problem), message),
            (lambda: lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=1)), message),
        ]
    )


@pytest.mark.parametrize("model", [Linear(), MLP(), StagedMLP(), Dropout(), CNN()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_right_passes(model, dtype):
    report = lk.check_model(lk.Problem("digits", model=model, dtype=dtype))
    assert report.title == f"{type(model).__name__} passes all checks"
    checked = dict(report.rows)
    derivatives = sum(min(3, size) + 1 for size in (np.prod(s) for s in shapes(model)))
    assert checked["derivatives"].startswith(f"{derivatives} of the loss")
    assert ("mean" in checked) == (not model.stochastic)


def shapes(model):
    return lk.Problem("digits", model=model).objective().layout.shapes.values()


def test_a_regression_is_checked_with_its_own_loss():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    for outputs in (1, 2):
        y = (x[:, :1] * np.arange(1, outputs + 1)).astype(np.float32)
        data = lk.from_arrays(x, y[:, 0] if outputs == 1 else y)
        problem = lk.Problem(data, model=Regression())
        assert lk.check_model(problem).notes == ()
        run = lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=2), lk.Budget(updates=300)).wait()
        objective, held_out = problem.objective(), (data.x_test, data.y_test)
        assert run.summary()["loss"] < objective.evaluate(objective.start(0), *held_out)[0] / 10
        assert run.result().predict(x[:5]).shape == y[:5].squeeze().shape


class Regression(lk.NumpyModel):
    def shapes(self, data):
        return {"linear.weight": (data.features, data.outputs)}

    def init(self, p, rng):
        p["linear.weight"][...] = 0

    def scores(self, p, x):
        return x @ p["linear.weight"]

    def gradient(self, p, x, y, g):
        wrong = self.scores(p, x) - y
        g["linear.weight"][...] = x.T @ wrong / len(x)
        return float((wrong**2).sum()) / (2 * len(x))


class Halved(Linear):
    """It trains another loss than cross-entropy."""

    def gradient(self, p, x, y, g):
        loss = super().gradient(p, x, y, g)
        for values in g.values():
            values /= 2
        return loss / 2


class HalvedEvaluated(Halved):
    def evaluate(self, p, x, y):
        return softmax_loss(self.scores(p, x), y)[0] / 2, None


def test_another_loss_than_the_evaluated_one_is_a_warning():
    with pytest.warns(UserWarning, match="gradient returns the loss .* another loss is trained"):
        lk.train(
            lk.Problem("digits", model=Halved()), lk.SyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=1)
        )
    own = lk.Problem("digits", model=HalvedEvaluated())
    assert lk.check_model(own).notes == ()
    run = lk.train(own, lk.SyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=1)).wait()
    whole, data = lk.Problem("digits", model=Linear()).objective(), own.dataset
    loss, accuracy = whole.evaluate(run.result().parameters, data.x_test, data.y_test)
    assert run.summary()["loss"] == pytest.approx(loss / 2, rel=1e-5)
    assert run.summary()["accuracy"] is None
    assert accuracy > 0


class Slow(Linear):
    """Another class than `Linear`, which other tests have checked already."""


def test_what_takes_too_long_at_the_start_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(check, "AT_START", 0.0)
    problem = lk.Problem("digits", model=Slow())
    with pytest.warns(UserWarning, match=r"Slow: Left out, to begin in time: .*threads"):
        lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=1))


STARTED = []


class Counted(Linear):
    def init(self, p, rng):
        STARTED.append(self)
        super().init(p, rng)


def test_equal_models_are_checked_once():
    counts = []
    for model in (Counted(), Counted(), Counted(scale=0.2)):
        STARTED.clear()
        problem = lk.Problem("digits", model=model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lk.train(problem, lk.SyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=1)).wait()
        counts.append(len(STARTED))
    assert counts[1] == 1  # the initial values of the run
    assert counts[0] == counts[2] > 1


@dataclass(frozen=True)
class Shapes(Linear):
    given: Any = None

    def shapes(self, data):
        return self.given


@dataclass(frozen=True)
class Stages(StagedMLP):
    given: Any = ()

    def stages(self, data):
        return self.given


class StagedAndScores(StagedMLP):
    def scores(self, p, x):
        return x


class StagedAndRandom(StagedMLP):
    stochastic = True


class WithAttributes(Linear):
    def __init__(self):
        object.__setattr__(self, "channels", 8)


class WrongStage(DenseStage):
    def forward(self, p, x):
        return super().forward(p, x)[0]


def stages(*widths, kind=DenseStage):
    names = ("dense1", "dense2", "output")
    return [kind(layers=(name,), outputs=width) for name, width in zip(names, widths)]


def test_arrays_and_stages_that_are_not_allowed():
    def made(model, data="digits", **more):
        return lambda: lk.check_model(lk.Problem(data, model=model, **more))

    check_refused([
        (made(Shapes(given=None)), r"Shapes.shapes returned None; names and shapes are needed, as \{'conv.weight': \(9, 8\)\}"),
        (made(Shapes(given={"w": 3})), "names and shapes are needed"),
        (made(Shapes(given={})), "no array with numbers"),
        (made(Shapes(given={"w": (-1,)})), "extents are whole numbers"),
        (made(Shapes(given={"a.w": (2,), "b.w": (2,), "a.b": (2,)})), "'a' must stand next to each other"),
        (made(lk.NumpyModel()), r"has to define shapes, init, scores, gradient \(or stages instead of"),
        (made(Stages()), r"Stages.stages returned \(\); a list of lk.NumpyStage objects is needed"),
        (made(Stages(given=[1])), r"Stages.stages returned \(1,\)"),
        (made(Stages(given=stages(16, 12))), "have the layers dense1, dense2. Together they need .* dense1, dense2, output"),
        (made(Stages(given=stages(16, 12, 9))), "The last stage of Stages has 9 outputs; the data need 10"),
        (made(Stages(given=stages(16, 11, 10))), r"DenseStage.forward returned numbers of shape \(8, 12\)"),
        (made(Stages(given=stages(16, 12, 10, kind=WrongStage))), r"WrongStage.forward returned .*\(y, saved\) is needed"),
        (made(StagedAndScores()), "has stages and scores. .*leave out one of both"),
        (made(StagedAndRandom()), "has stages and stochastic = True"),
        (made(WithAttributes()), "has channels, not declared as options .*@dataclass.frozen=True. above `class WithAttributes`"),
        (made(Linear(), hidden=(64,)), "with hidden: these describe labkit's network"),
        (made(Linear(), activation="tanh"), "with activation"),
        (made(Linear(), "clicks"), "'clicks' has ids of an embedding table"),
        (made(Linear(), "quadratic"), "'quadratic' has no samples"),
        (made(Linear), "is a class; write Linear()"),
        (made(3), "model=3 is not allowed"),
        (lambda: lk.check_model(lk.Problem("digits")), "give a problem with a model of your own"),
        (lambda: lk.check_model("digits"), "give a problem with a model of your own"),
    ])  # fmt: skip
