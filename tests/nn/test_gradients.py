"""Gradients compared with central differences of an independent loss; a sequence of stages equals the whole network."""

import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.nn import Dense, Network, ReLU, SoftmaxCrossEntropy, SquaredError, Tanh
from labkit.nn.objective import StageSequence
from tests.refusals import check_refused

EXACT = settings(max_examples=40, deadline=None)


def textbook(network_args, flat, x, y):
    """Mean loss by the textbook, layer by layer, and the distance of the nearest ReLU to its kink."""
    inputs, hidden, outputs, activation, loss = network_args
    h, at, kink = x, 0, np.inf
    widths = [inputs, *hidden, outputs]
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        weight, bias = flat[at : at + a * b].reshape(a, b), flat[at + a * b : at + a * b + b]
        at += a * b + b
        h = h @ weight + bias
        if i < len(hidden):
            if activation == "relu":
                kink = min(kink, np.abs(h).min())
            h = h * (h > 0) if activation == "relu" else 1 - 2 / (np.exp(2 * h) + 1)
    if loss == "squared-error":
        return ((h - y.reshape(h.shape)) ** 2).sum() / 2 / len(x), kink
    p = np.exp(h) / np.exp(h).sum(axis=1, keepdims=True)
    return float(np.mean([-np.log(p[i, label]) for i, label in enumerate(y)])), kink


@st.composite
def problems(draw):
    inputs, outputs, rows = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    hidden = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    activation, loss = (
        draw(st.sampled_from(["relu", "tanh"])),
        draw(st.sampled_from(["cross-entropy", "squared-error"])),
    )
    if loss == "cross-entropy":
        outputs += 1
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    x = rng.normal(size=(rows, inputs))
    y = rng.integers(0, outputs, rows) if loss == "cross-entropy" else rng.normal(size=(rows, outputs))
    net = Network.mlp(inputs, hidden, outputs, activation, loss, "float64")
    return (inputs, hidden, outputs, activation, loss), net, rng.normal(size=net.size), x, y


@EXACT
@given(problems())
def test_gradient_is_the_central_difference(problem):
    args, net, params, x, y = problem
    loss, kink = textbook(args, params, x, y)
    assume(kink > 1e-3)
    out = np.full(net.size, np.nan)
    value = net.gradient(params, x, y, out)
    expected = np.empty(net.size)
    for i in range(net.size):
        step = np.zeros(net.size)
        step[i] = 1e-5
        expected[i] = (textbook(args, params + step, x, y)[0] - textbook(args, params - step, x, y)[0]) / 2e-5
    assert value == pytest.approx(loss, rel=1e-12, abs=1e-12)
    assert net.evaluate(params, x, y)[0] == pytest.approx(loss, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


@EXACT
@given(problems(), st.data())
def test_stages_one_behind_the_other_are_the_whole(problem, data):
    _, net, params, x, y = problem
    blocks = len(net.stages)
    cuts = sorted({0, blocks, *data.draw(st.lists(st.integers(0, blocks), max_size=3))})
    stages = [StageSequence(net.stages[a:b]) for a, b in itertools.pairwise(cuts)]
    whole = np.empty(net.size)
    value = net.gradient(params, x, y, whole)

    h, kept = x, []
    for stage in stages:
        h, saved = stage.forward(params[stage.slice], h)
        kept.append(saved)
    dy = np.empty_like(h)
    assert net.loss.gradient(h, net.loss.check(y, len(x), net.outputs), dy) == value
    out = np.full(net.size, np.nan)
    for stage, saved in zip(reversed(stages), reversed(kept)):
        dy = stage.backward(params[stage.slice], saved, dy, out[stage.slice])
    np.testing.assert_array_equal(out, whole)
    assert dy.shape == x.shape


def test_dx_is_the_central_difference():
    rng = np.random.default_rng(3)
    net = Network.mlp(3, (4,), 2, "tanh", "squared-error", "float64")
    params, x, g = rng.normal(size=net.size), rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
    y, saved = net.forward(params, x)
    dx = net.backward(params, saved, g, np.empty(net.size))
    for i, j in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i, j] += 1e-5
        down[i, j] -= 1e-5
        slope = ((net.forward(params, up)[0] - net.forward(params, down)[0]) * g).sum() / 2e-5
        assert dx[i, j] == pytest.approx(slope, abs=1e-6)
    assert y.shape == (2, 2)


def test_stages_cover_the_vector_once_and_share_start_and_work():
    net = Network.mlp(5, (7, 6, 4), 3)
    stages = net.stages
    assert np.concatenate([np.arange(net.size)[s.slice] for s in stages]).tolist() == list(range(net.size))
    np.testing.assert_array_equal(np.concatenate([s.start(9) for s in stages]), net.start(9))
    assert [s.multiply_adds for s in stages] == [35, 42, 24, 12]
    assert net.multiply_adds == 113
    middle = StageSequence(stages[1:3])
    assert net.layout.layers_in(middle.slice) == [(1, stages[1].slice), (2, stages[2].slice)]
    assert (middle.size, middle.inputs, middle.outputs, middle.multiply_adds) == (7 * 6 + 6 + 6 * 4 + 4, 7, 4, 66)


def test_several_micro_batches_in_flight_keep_their_activations():
    rng = np.random.default_rng(0)
    net = Network.mlp(4, (5,), 3, dtype="float64")
    params, dy = net.start(0), rng.normal(size=(6, 3))
    batches = [rng.normal(size=(6, 4)) for _ in range(3)]
    alone = []
    for x in batches:
        alone.append(np.empty(net.size))
        net.backward(params, net.forward(params, x)[1], dy, alone[-1])
    flying = [net.forward(params, x)[1] for x in batches]
    net.gradient(params, batches[0], np.zeros(6, int), np.empty(net.size))
    before = dy.copy()
    for saved, expected in zip(flying, alone):
        out = np.empty(net.size)
        net.backward(params, saved, dy, out)
        np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(dy, before)


def test_a_stage_that_ends_with_an_activation_does_not_change_dy():
    net = Network.mlp(3, (4, 4), 2, "relu", dtype="float64")
    stage = StageSequence(net.stages[:2])
    params, x, dy = net.start(1)[stage.slice], np.ones((2, 3)), np.ones((2, 4))
    stage.backward(params, stage.forward(params, x)[1], dy, np.empty(stage.size))
    assert (dy == 1).all()


@pytest.mark.parametrize("layer", [Dense(3, 2), ReLU(), Tanh()])
def test_layers_can_be_used_alone(layer):
    rng = np.random.default_rng(1)
    size = 8 if isinstance(layer, Dense) else 0
    params, out, x = rng.normal(size=size), np.full(size, np.nan), rng.normal(size=(4, 3))
    x0 = x.copy()
    y, saved = layer.forward(params, x)
    dy = rng.normal(size=y.shape)
    dx = layer.backward(params, saved, dy, out)
    direction, step = rng.normal(size=x.shape), 1e-6
    moved = layer.forward(params, x + step * direction)[0] - layer.forward(params, x - step * direction)[0]
    assert (dx * direction).sum() == pytest.approx((moved * dy).sum() / (2 * step), abs=1e-6)
    np.testing.assert_array_equal(x, x0)
    if size:
        np.testing.assert_allclose(out, [*(x.T @ dy).ravel(), *dy.sum(axis=0)], rtol=1e-12)


def test_losses_by_hand():
    scores = np.log(np.array([[1.0, 3.0], [2.0, 2.0]]))
    out = np.empty((2, 2))
    assert SoftmaxCrossEntropy().gradient(scores, np.array([1, 0]), out) == pytest.approx(-np.log(0.75 * 0.5) / 2)
    np.testing.assert_allclose(out, [[0.125, -0.125], [-0.25, 0.25]], rtol=1e-12)
    assert SquaredError().gradient(np.array([[1.0], [5.0]]), np.array([[0.0], [2.0]]), out[:, :1].copy()) == 2.5
    loss = SoftmaxCrossEntropy().gradient(np.array([[1e4, 0.0]]), np.array([1]), np.empty((1, 2)))
    assert loss == 1e4  # no overflow, no log of 0


def test_nothing_of_parameter_size_is_allocated():
    net = Network.mlp(200, (300,), 10)
    params = net.start(0)
    out, x, y = np.empty_like(params), np.ones((4, 200), np.float32), np.arange(4)
    net.gradient(params, x, y, out)

    def peak():
        tracemalloc.start()
        try:
            for _ in range(3):
                net.gradient(params, x, y, out)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert min(peak() for _ in range(10)) < params.nbytes / 10  # other threads of the process allocate now and then


def test_answers_do_not_depend_on_batches_seen_before():
    net, fresh = Network.mlp(3, (4,), 2), Network.mlp(3, (4,), 2)
    rng = np.random.default_rng(0)
    params = net.start(0)
    for rows in (1, 5, 2, 9, 3, 7, 5):
        x, y = rng.normal(size=(rows, 3)).astype(np.float32), rng.integers(0, 2, rows)
        a, b = np.empty_like(params), np.empty_like(params)
        assert net.gradient(params, x, y, a) == Network.mlp(3, (4,), 2).gradient(params, x, y, b)
        np.testing.assert_array_equal(a, b)
    assert len(pickle.dumps(net)) == len(pickle.dumps(fresh))  # workspace arrays are not pickled


def test_a_diverged_network_returns_a_non_finite_loss_without_a_warning(recwarn):
    net = Network.mlp(3, (4,), 2)
    params = net.start(0) * np.float32(1e30)
    value = net.gradient(params, np.ones((2, 3), np.float32), np.array([0, 1]), np.empty_like(params))
    assert not np.isfinite(value)
    assert not recwarn.list


def test_training_lowers_the_loss_and_predicts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)
    net = Network.mlp(2, (16,), 2, "tanh")
    params = net.start(0)
    out = np.empty_like(params)
    for _ in range(800):
        net.gradient(params, x, y, out)
        params -= out
    loss, accuracy = net.evaluate(params, x, y)
    assert loss < 0.1
    assert accuracy == (net.predict(params, x) == y).mean() > 0.97
    p = net.predict_proba(params, x)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(p.argmax(axis=1), net.predict(params, x))


def test_one_regression_output():
    net = Network.mlp(2, (), 1, loss="squared-error", dtype="float64")
    params, x = np.array([2.0, -1.0, 0.5]), np.array([[1.0, 1.0], [0.0, 3.0]])
    assert net.predict(params, x).tolist() == [[1.5], [-2.5]]
    assert net.evaluate(params, x, np.array([1.5, -0.5])) == (1.0, None)
    with pytest.raises(BadInput, match="no classes"):
        net.predict_proba(params, x)


def test_evaluation_in_pieces_is_evaluation():
    rng = np.random.default_rng(0)
    net = Network.mlp(2, (3,), 2, dtype="float64")
    params, x, y = net.start(0), rng.normal(size=(9000, 2)), rng.integers(0, 2, 9000)
    halves = [net.evaluate(params, x[i : i + 3000], y[i : i + 3000]) for i in (0, 3000, 6000)]
    np.testing.assert_allclose(net.evaluate(params, x, y), np.mean(halves, axis=0), rtol=1e-12)


def test_initial_weights_have_the_standard_deviations_of_he_and_glorot():
    he, glorot = Network.mlp(400, (300,), 10, "relu"), Network.mlp(400, (300,), 10, "tanh")
    a, b = he.start(5), glorot.start(5)
    assert a.dtype == np.float32
    assert he.layout.view(a, "dense1.weight").std() == pytest.approx(np.sqrt(2 / 400), rel=0.02)
    limit = np.sqrt(6 / 700)
    assert 0.99 * limit < np.abs(glorot.layout.view(b, "dense1.weight")).max() <= np.float32(limit)
    assert np.abs(he.layout.view(a, "output.weight")).max() <= np.float32(np.sqrt(6 / 310))
    assert not he.layout.view(a, "dense1.bias").any()
    np.testing.assert_array_equal(a, Network.mlp(400, (300,), 10, dtype="float64").start(5).astype(np.float32))
    assert (he.start(6) != a).any()
    twins = Network.mlp(4, (4, 4), 2)
    first, second = (twins.layout.view(twins.start(0), f"dense{i}.weight") for i in (1, 2))
    assert (first != second).all()


def test_impossible_networks_are_refused():
    check_refused(
        [
            (lambda: Network.mlp(3, (4,), 2, "rel"), "Did you mean 'relu'"),
            (lambda: Network.mlp(3, (4,), 2, loss="cross_entropy"), "Did you mean 'cross-entropy'"),
            (lambda: Network.mlp(3, (0,), 2), "outputs=0 is not allowed"),
            (lambda: Network.mlp(3, (), 1), "at least 2 outputs"),
            (lambda: Network.mlp(3, (), 2, dtype="float16"), "float32, float64"),
            (lambda: Network.mlp(3, (4,), 2).start(-1), "at least 0"),
        ]
    )


def test_bad_arrays_are_refused():
    net = Network.mlp(3, (), 2)
    good = {"params": net.start(0), "x": np.ones((2, 3), np.float32), "y": np.array([0, 1])}
    good["out"] = np.empty_like(good["params"])
    net.gradient(**good)
    cases = [
        ({"params": np.zeros(3, np.float32)}, r"params: a float32 vector of shape \(8,\)"),
        ({"params": np.zeros(8)}, "not float64"),
        ({"out": np.zeros(16, np.float32)[::2]}, "contiguous"),
        ({"x": np.ones((2, 4), np.float32)}, r"shape \(batch, 3\)"),
        ({"x": np.ones((0, 3), np.float32)}, "at least one row"),
        ({"y": np.array([0, 2])}, "labels go from 0 to 1; found 0 to 2"),
        ({"y": np.array([0, -1], np.int8)}, "found -1 to 0"),
        ({"y": np.array([0.0, 1.0])}, "whole-number labels"),
        ({"y": np.array([0])}, "one a row"),
    ]
    check_refused((lambda change=change: net.gradient(**{**good, **change}), message) for change, message in cases)
