"""Optimizers, schedules, clipping: compared with the published rules, implemented here for single numbers."""

import math
import tracemalloc

import numpy as np
import pytest

from labkit.errors import BadInput
from labkit.nn import (
    SGD,
    Adagrad,
    Adam,
    Constant,
    Cosine,
    Momentum,
    Nesterov,
    StepDecay,
    Warmup,
    clip_by_norm,
    decay_weights,
    optimizer_by_name,
    schedule_by_name,
)
from tests.refusals import check_refused

ALL = [SGD(), Momentum(0.8), Nesterov(0.8), Adagrad(1e-6), Adam(0.8, 0.95, 1e-7)]


def textbook(optimizer, w, gradients, rates):
    """One parameter (a Python float) through all updates."""
    v = s = m = 0.0
    gradient_point = w  # Nesterov: where the gradient is taken; the classical form keeps w and evaluates ahead of it
    for t, (g, r) in enumerate(zip(gradients, rates), 1):
        match optimizer:
            case SGD():
                w = w - r * g
            case Momentum(mu):
                v = mu * v + g
                w = w - r * v
            case Nesterov(mu):  # Sutskever et al. 2013, eq. 3 and 4, at a constant rate: velocity holds -r v
                v = mu * v - r * g
                w = w + v
                gradient_point = w + mu * v
            case Adagrad(epsilon):
                s += g**2
                w = w - r * g / (math.sqrt(s) + epsilon)
            case Adam(b1, b2, epsilon):
                m, s = b1 * m + (1 - b1) * g, b2 * s + (1 - b2) * g**2
                w = w - r * (m / (1 - b1**t)) / (math.sqrt(s / (1 - b2**t)) + epsilon)
    return gradient_point if isinstance(optimizer, Nesterov) else w


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_rule_is_the_published_one(optimizer):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=7), rng.normal(size=(12, 7))
    rates = [0.1] * 12 if isinstance(optimizer, Nesterov) else [0.1 / (1 + t) for t in range(12)]
    params, state = start.copy(), optimizer.state(7, np.float64)
    for step, (g, r) in enumerate(zip(gradients, rates), 1):
        before = g.copy()
        optimizer.apply(params, g, r, state, step)
        np.testing.assert_array_equal(g, before)
    expected = [textbook(optimizer, float(w), map(float, g), rates) for w, g in zip(start, gradients.T)]
    np.testing.assert_allclose(params, expected, rtol=1e-12)


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_shards_apart_are_the_whole_to_the_last_bit(optimizer):
    rng = np.random.default_rng(1)
    whole = rng.normal(size=101).astype(np.float32)
    parts = [whole[:37].copy(), whole[37:].copy()]
    state, states = optimizer.state(101, np.float32), [optimizer.state(len(p), np.float32) for p in parts]
    for step in range(1, 6):
        g = rng.normal(size=101).astype(np.float32)
        optimizer.apply(whole, g, 0.05, state, step)
        for part, own, piece in zip(parts, states, (g[:37], g[37:])):
            optimizer.apply(part, piece, 0.05, own, step)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert whole.dtype == np.float32


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_steady_state_allocates_nothing_of_parameter_size(optimizer):
    params, g = np.ones(50_000, np.float32), np.ones(50_000, np.float32)
    state = optimizer.state(params.size, params.dtype)
    optimizer.apply(params, g, 0.1, state, 1)

    def peak():
        tracemalloc.start()
        try:
            for step in range(2, 5):
                optimizer.apply(params, g, np.float64(0.1), state, step)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert min(peak() for _ in range(10)) < params.nbytes / 10  # other threads of the process allocate now and then


@pytest.mark.parametrize("optimizer", ALL, ids=repr)
def test_optimizer_states_without_scratch_arrays_restore_the_optimizer(optimizer):
    rng = np.random.default_rng(2)
    a, state = np.ones(5), optimizer.state(5, np.float64)
    for step in (1, 2):
        optimizer.apply(a, rng.normal(size=5), 0.1, state, step)
    b, restored = a.copy(), {k: v.copy() for k, v in state.items() if not k.startswith("_")}
    g = rng.normal(size=5)
    optimizer.apply(a, g, 0.1, state, 3)
    optimizer.apply(b, g, 0.1, restored, 3)
    np.testing.assert_array_equal(a, b)
    assert all(v.shape == (5,) for v in state.values())


def test_an_overflowing_step_raises_no_warning(recwarn):
    params = np.full(3, 1e38, np.float32)
    for optimizer in ALL:
        optimizer.apply(params, np.full(3, -1e38, np.float32), 10.0, optimizer.state(3, np.float32), 1)
    assert not np.isfinite(params).all()
    assert not recwarn.list


def test_optimizers_by_name_and_their_limits():
    assert [type(optimizer_by_name(n)) for n in ("sgd", "momentum", "nesterov", "adagrad", "adam")] == [
        type(o) for o in ALL
    ]
    assert optimizer_by_name("momentum:0.95") == Momentum(0.95)
    with pytest.raises(BadInput, match="Did you mean 'adam'"):
        optimizer_by_name("adamm")
    with pytest.raises(BadInput, match=r"momentum=1\.0 is not allowed"):
        Momentum(1.0)
    with pytest.raises(BadInput, match="write sgd"):
        optimizer_by_name("sgd:0.1")
    with pytest.raises(BadInput, match="does not fit"):
        SGD().apply(np.ones(3), np.ones(1), 0.1, {}, 1)
    with pytest.raises(BadInput, match="count from 1"):
        Adam().apply(np.ones(3), np.ones(3), 0.1, Adam().state(3, float), 0)


def test_schedules_have_the_factors_of_their_formulas():
    assert [Constant()(u) for u in (0, 7)] == [1, 1]
    assert [StepDecay(3, 0.5)(u) for u in (0, 2, 3, 5, 6)] == [1, 1, 0.5, 0.5, 0.25]
    np.testing.assert_allclose([Cosine(4, 0.2)(u) for u in (0, 1, 2, 4, 99)], [1, 0.4 * 0.5**0.5 + 0.6, 0.6, 0.2, 0.2])
    assert [Warmup(4)(u) for u in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [Warmup(2, StepDecay(1, 0.5))(u) for u in range(5)] == [0.5, 1, 1, 0.5, 0.25]


def test_schedules_by_name():
    assert schedule_by_name("constant") == Constant()
    assert schedule_by_name("step:100:0.1") == StepDecay(100, 0.1)
    assert schedule_by_name("step:100") == StepDecay(100, 0.5)
    assert schedule_by_name("Cosine:1000") == Cosine(1000)
    assert schedule_by_name("warmup:50") == Warmup(50)
    assert schedule_by_name("warmup:50+cosine:1000:0.1") == Warmup(50, Cosine(1000, 0.1))


def test_bad_schedules_are_refused():
    cases = [
        ("cosin:10", "Did you mean 'cosine'"),
        ("cosine", "write cosine:TOTAL"),
        ("step:1:2:3", r"write step:EVERY:\[FACTOR\]"),
        ("step:0", "every=0 is not allowed"),
        ("step:many", "a whole number"),
        ("cosine:10+constant", "only a warm-up"),
        ("warmup:5+", "no schedule ''"),
        ("", "no schedule ''"),
    ]
    check_refused((lambda text=text: schedule_by_name(text), message) for text, message in cases)


def test_warmup_needs_a_schedule_behind_it():
    with pytest.raises(BadInput, match="not a schedule"):
        Warmup(5, "cosine")


def test_clipping_limits_the_norm():
    g = np.array([3.0, 4.0], np.float32)
    assert clip_by_norm(g, 5.0) == 5.0
    assert g.tolist() == [3, 4]
    assert clip_by_norm(g, 1.0) == 5.0
    np.testing.assert_allclose(g, [0.6, 0.8], rtol=1e-6)
    broken = np.array([np.inf, 1.0])
    assert clip_by_norm(broken, 1.0) == np.inf
    assert broken.tolist() == [np.inf, 1.0]
    for bad in (0, -1, math.nan):
        with pytest.raises(BadInput, match="above 0"):
            clip_by_norm(g, bad)


def test_weight_decay_with_sgd_is_the_penalty():
    w, g = np.array([2.0, -3.0]), np.array([0.5, 0.25])
    expected = w - 0.1 * (g + 0.01 * w)
    decay_weights(w, 0.1, 0.01)
    SGD().apply(w, g, 0.1, {}, 1)
    np.testing.assert_allclose(w, expected, rtol=1e-14)
    with pytest.raises(BadInput, match="at least 0"):
        decay_weights(w, 0.1, -1.0)
