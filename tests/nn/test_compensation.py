"""Delay compensation against the paper's formulas, written down in NumPy, and against Taylor's theorem."""

import numpy as np
import pytest

import labkit as lk
from labkit.nn.compensation import compensation_by_name

rng = np.random.default_rng(0)
G, NOW, THEN = rng.normal(size=(20, 7)), rng.normal(size=(20, 7)), rng.normal(size=(20, 7))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_strength_is_the_papers_formula(dtype):
    """g + lambda g g (w - w_bak)."""
    rule = lk.DelayCompensation(0.3)
    state = rule.state(7, dtype)
    for g, now, then in zip(G.astype(dtype), NOW.astype(dtype), THEN.astype(dtype)):
        kept = [a.copy() for a in (g, now, then)]
        made = rule.compensate(g, now, then, state)
        np.testing.assert_allclose(made, g + 0.3 * g * g * (now - then), atol=1e-6 if dtype == "float32" else 1e-14)
        assert made.dtype == dtype
        assert all(np.array_equal(a, b) for a, b in zip((g, now, then), kept))  # arguments are not modified
        assert not np.shares_memory(made, g)
    assert state == {}


def test_adaptive_strength_is_the_papers_formula():
    """MeanSquare(t) = m MeanSquare(t-1) + (1-m) g(t)^2;  lambda(t) = lambda_0 / sqrt(MeanSquare(t) + epsilon)."""
    rule = lk.AdaptiveCompensation(1.5, decay=0.8, epsilon=1e-3)
    state, mean = rule.state(7, "float64"), np.zeros(7)
    for g, now, then in zip(G, NOW, THEN):
        made = rule.compensate(g, now, then, state)
        mean = 0.8 * mean + 0.2 * g**2
        np.testing.assert_allclose(made, g + 1.5 / np.sqrt(mean + 1e-3) * g * g * (now - then), rtol=1e-13)
    np.testing.assert_allclose(state["mean_square"], mean, rtol=1e-13)


def test_adaptive_without_a_mean_takes_the_size_of_the_gradient():
    """decay = 0: the strength times |g|, which is what Multiverso's updater does."""
    rule = lk.AdaptiveCompensation(2.0, decay=0.0, epsilon=1e-16)
    made = rule.compensate(G[0], NOW[0], THEN[0], rule.state(7, "float64"))
    np.testing.assert_allclose(made, G[0] + 2.0 * np.abs(G[0]) * (NOW[0] - THEN[0]), rtol=1e-12)


def test_single_precision_stays_single():
    rule = lk.AdaptiveCompensation()
    state = rule.state(7, np.float32)
    made = rule.compensate(*(a[0].astype(np.float32) for a in (G, NOW, THEN)), state)
    assert made.dtype == state["mean_square"].dtype == np.float32


@pytest.mark.parametrize("rule", [lk.DelayCompensation(0.5), lk.AdaptiveCompensation()])
def test_fresh_gradients_and_zero_strength_are_not_corrected(rule):
    state = rule.state(7, "float64")
    assert np.array_equal(rule.compensate(G[0], NOW[0], NOW[0], state), G[0])
    weak = type(rule)(0.0)
    assert np.array_equal(weak.compensate(G[0], NOW[0], THEN[0], weak.state(7, "float64")), G[0])


def test_an_overflow_raises_no_warning(recwarn):
    huge = np.full(3, 1e200)
    made = lk.DelayCompensation(1e6).compensate(huge, huge, -huge, {})
    assert np.all(np.isinf(made))
    assert not recwarn.list


def test_one_step_of_a_logistic_loss_is_closer_with_compensation():
    """A function whose Hessian is the mean of g g at the optimum: g(w) = sigmoid(w) - y, y drawn with p = sigmoid(w)."""
    then, now = np.array([0.3]), np.array([0.5])
    p, q = 1 / (1 + np.exp(-then)), 1 / (1 + np.exp(-now))
    rule, stale, better, true = lk.DelayCompensation(1.0), 0.0, 0.0, 0.0
    for y, chance in ((1.0, p), (0.0, 1 - p)):  # the expectation over y
        stale += chance * (p - y)
        better += chance * rule.compensate(p - y, now, then, {})
        true += chance * (q - y)
    assert abs(better - true) < 0.1 * abs(stale - true)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("constant", lk.DelayCompensation(0.04)), ("constant:0.1", lk.DelayCompensation(0.1)),
        ("adaptive", lk.AdaptiveCompensation(2.0, 0.95)), ("adaptive:1:0.9", lk.AdaptiveCompensation(1.0, 0.9)),
    ],
)  # fmt: skip
def test_a_compensation_is_created_from_its_name(text, made):
    assert compensation_by_name(text) == made
    assert lk.AsyncPS(compensation=text).compensation == made


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("constan", "no delay compensation 'constan'.* Did you mean 'constant'"),
        ("constant:-1", "strength=-1.0 is not allowed; strength is a number from 0"),
        ("constant:1:2", "is not a delay compensation; write constant"),
        (0.04, r"compensation=0\.04: give lk\.DelayCompensation\(0\.04\), 'adaptive' or None"),
    ],
)
def test_invalid_compensations_are_refused(bad, message):
    for strategy in (lk.AsyncPS, lk.SSP, lk.KAsync, lk.KBatchAsync):
        with pytest.raises(lk.BadInput, match=message):
            strategy(compensation=bad)


def test_synchronous_strategies_have_no_such_option():
    for strategy in (lk.SyncPS, lk.KSync, lk.BackupWorkers, lk.LocalSGD, lk.DPSGD):
        with pytest.raises(TypeError, match="compensation"):
            strategy(compensation="constant")
