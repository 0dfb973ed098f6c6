"""Checkpoint intervals: the formulas compared with known numbers, with random failures, and with each other."""

import math

import numpy as np
import pytest

import labkit as lk

WORK, COST, RESTART, MTBF = 1000.0, 60.0, 30.0, 10_000.0


def drawn_segments(work, cost, restart, mtbf, segments, seed=0):
    """Durations of segments in which failures are drawn one by one, without the formula."""
    rng = np.random.default_rng(seed)
    spent, left = np.zeros(segments), np.full(segments, work + cost)
    going = np.arange(segments)
    while len(going):
        fails_after = rng.exponential(mtbf, len(going))
        done = fails_after >= left[going]
        spent[going] += np.where(done, left[going], fails_after)
        going = going[~done]
        left[going] = restart + work + cost  # all is lost, and it begins with a restart, which may fail, too
    return spent


def test_known_numbers():
    assert lk.lessons.young(60, 86_400) == pytest.approx(3219.94, abs=0.01)
    assert lk.lessons.daly(60, 86_400) == pytest.approx(3180.06, abs=0.01)
    assert lk.lessons.segment_time(WORK, COST, RESTART, MTBF) == pytest.approx(1121.6, abs=0.05)


@pytest.mark.parametrize(
    "case", [(WORK, COST, RESTART, MTBF), (300, 5, 100, 400), (50, 0, 0, 100), (900, 100, 10, 500)]
)
def test_the_segment_time_formula_equals_the_mean_over_drawn_failures(case):
    spent = drawn_segments(*case, segments=20_000)
    error = spent.std() / math.sqrt(len(spent))
    assert abs(spent.mean() - lk.lessons.segment_time(*case)) < 4 * error
    assert spent.mean() == pytest.approx(lk.lessons.segment_time(*case), rel=0.05)


@pytest.mark.parametrize(("cost", "mtbf"), [(60, 86_400), (5, 300), (0.05, 10), (30, 120)])
def test_the_best_interval_is_where_daly_says(cost, mtbf):
    """By search: time per unit of work with Daly's interval is within 0.1% of the least, and never worse than Young's."""
    works = np.geomspace(cost / 10, 10 * mtbf, 20_000)
    overhead = mtbf * np.exp(RESTART / mtbf) * np.expm1((works + cost) / mtbf) / works
    at = {
        rule: lk.lessons.segment_time(rule(cost, mtbf), cost, RESTART, mtbf) / rule(cost, mtbf)
        for rule in (lk.lessons.young, lk.lessons.daly)
    }
    assert at[lk.lessons.daly] <= 1.001 * overhead.min()
    assert at[lk.lessons.daly] <= at[lk.lessons.young]


def test_intervals_at_the_limits_of_their_formulas():
    assert lk.lessons.segment_time(100, 5, 3, 1e15) == pytest.approx(105)  # no failures
    assert lk.lessons.segment_time(1e9, 1, 1, 1) == math.inf
    assert lk.lessons.young(0, 100) == lk.lessons.daly(0, 100) == 0  # a checkpoint without cost is made all the time
    assert lk.lessons.daly(300, 100) == 100
    assert lk.lessons.daly(1e-6, 1e6) == pytest.approx(lk.lessons.young(1e-6, 1e6), rel=1e-5)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "60", None, True])
def test_invalid_times_are_refused(bad):
    for name in ("cost", "mtbf"):
        for rule in (lk.lessons.young, lk.lessons.daly):
            with pytest.raises(lk.BadInput, match=rf"{name}=.*: give a finite time"):
                rule(**({"cost": 60, "mtbf": 600} | {name: bad}))
    for name in ("work", "cost", "restart", "mtbf"):
        with pytest.raises(lk.BadInput, match=rf"{name}=.*: give a finite time"):
            lk.lessons.segment_time(**({"work": 1, "cost": 1, "restart": 1, "mtbf": 1} | {name: bad}))
    with pytest.raises(lk.BadInput, match="above 0"):
        lk.lessons.young(1, 0)


# reproduced by a run whose server fails -------------------------------------------------------------------------------


def failures(seed, until):
    """Times at which the server is killed, independent of its state: a Poisson process."""
    rng, at, found = np.random.default_rng(seed), 0.0, []
    while (at := at + rng.exponential(MTBF)) < until:
        found.append(at)
    return found


def by_hand(moments, segments):
    """When so many segments are done, if the machine fails at these moments."""
    now, left, done = 0.0, WORK + COST, 0
    for fails_at in [*moments, math.inf]:
        while done < segments and now + left <= fails_at:
            now, left, done = now + left, WORK + COST, done + 1
        if done == segments:
            return now
        now, left = fails_at, RESTART + WORK + COST
    raise AssertionError("the last moment is never")


def test_many_segments_by_hand_take_the_time_of_the_formula():
    segments = 20_000
    spent = by_hand(failures(1, 2 * segments * WORK), segments)
    assert spent / segments == pytest.approx(lk.lessons.segment_time(WORK, COST, RESTART, MTBF), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_time_of_a_run_with_failures_equals_the_formula(seed):
    """The engine, which implements checkpoints, restarts and lost updates but no formula, on the same failures."""
    gradient, segments = 4.0, 150  # while the server saves, its worker continues for one gradient: 0.4% of a segment
    cluster = lk.SimulatedCluster(
        workers=1, servers=1, compute=gradient, checkpoint_every=WORK, checkpoint_time=COST, restart_after=RESTART,
        record=False,
    )  # fmt: skip
    moments = failures(seed, 2 * segments * WORK)
    budget = lk.Budget(updates=round(segments * WORK / gradient) + 1)  # the one after the last checkpoint
    problem = lk.Problem("digits", hidden=(), timing_only=True)
    faults = [lk.Kill("server-0", at=at) for at in moments]
    run = lk.train(problem, lk.AsyncPS(eval_every=10**6), cluster, budget, faults=faults).wait(180)
    assert run.stopped_by == "updates"
    assert sum(m.kind == "killed" for m in run.trace.events) >= 10
    assert run.engine.seconds == pytest.approx(by_hand(moments, segments), rel=0.01)
