"""Checkpoint intervals and the mean time of a segment, measured with failures that are injected in virtual time.

One worker, a gradient of fixed length, a checkpoint that takes a minute, a restart that takes half a minute, and
preemptions at exponential times. The oracle: the closed form of the time of a segment, and Daly's interval.
"""

import numpy as np
import pytest

import labkit as lk

TIMING = lk.Problem("moons", hidden=(), timing_only=True)
WORK, COST, RESTART, MTBF = 1000.0, 60.0, 30.0, 10_000.0


def preempted(segments, work, cost=COST, restart=RESTART, mtbf=MTBF, steps=1, seed=0):
    """A run of so many segments: `steps` updates that take `work` seconds together, then a checkpoint."""
    cluster = lk.SimulatedCluster(
        workers=1,
        compute=work / steps,
        checkpoint_every=work,
        checkpoint_time=cost,
        restart_after=restart,
        record=False,
    )
    # long after the end: so many preemptions are planned
    end = 2 * segments * lk.lessons.segment_time(work, cost, restart, mtbf)
    faults = [lk.Preempt(1 / mtbf, roles="worker-0", until=end)]
    budget = lk.Budget(updates=segments * steps)
    run = lk.train(TIMING, lk.RingAllReduce(), cluster, budget, seed=seed, faults=faults).wait()
    assert run.engine.seconds < end
    return run


def events(run, kind):
    return [m.time / 1e9 for m in run.trace.events if m.kind == kind]


def by_hand(segments, work, cost, restart, kills):
    """When the last piece of work ends, by iterating over the kills, without the formula and without labkit."""
    begins, done, kills = 0.0, 0, [*kills, float("inf")]
    for kill in kills:
        if kill < begins:  # during a restart there is no process
            continue
        while begins + work <= kill:
            if done == segments - 1:
                return begins + work
            if begins + work + cost > kill:
                break
            begins, done = begins + work + cost, done + 1
        begins = kill + restart


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("case", [(WORK, COST, RESTART, MTBF), (100.0, 20.0, 60.0, 200.0)], ids=["rare", "often"])
def test_a_run_with_kills_takes_the_time_computed_by_hand(case, steps):
    """A kill costs the work since the last complete checkpoint; one during a checkpoint loses that."""
    work, cost, restart, _ = case
    run = preempted(100, *case, steps=steps)
    kills = events(run, "killed")
    assert len(kills) > 5
    assert run.engine.seconds == pytest.approx(by_hand(100, work, cost, restart, kills), abs=1e-6)


def test_exponential_failures_occur_at_the_given_rate():
    run = preempted(2000, WORK)
    gaps = np.diff([0.0, *events(run, "killed")])
    assert len(gaps) > 150
    assert abs(gaps.mean() - MTBF) < 4 * MTBF / np.sqrt(len(gaps))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.3)  # of an exponential distribution


@pytest.mark.slow
def test_a_segment_takes_the_mean_time_of_the_formula():
    segments = 5000  # 1% is four standard errors
    mean = preempted(segments, WORK).engine.seconds / segments
    assert lk.lessons.segment_time(WORK, COST, RESTART, MTBF) == pytest.approx(1121.6, abs=0.05)
    assert mean == pytest.approx(1121.6, rel=0.01)


@pytest.mark.slow
def test_a_segment_takes_the_mean_time_of_the_formula_if_failures_are_frequent():
    """Segments of 100 s, and a failure every 200 s: most of the time is lost, as much as the formula predicts, in which a failure
    during a restart begins it again: M e^(R/M) instead of M + R."""
    segments, case = 1500, (100.0, 20.0, 60.0, 200.0)
    mean = preempted(segments, *case).engine.seconds / segments
    restart, mtbf = case[2:]
    assert mean == pytest.approx(
        lk.lessons.segment_time(*case) * (1 + restart / mtbf) * np.exp(-restart / mtbf), rel=0.05
    )
    assert mean > 1.7 * 120


@pytest.mark.slow
def test_the_best_interval_is_near_dalys():
    """Of intervals a factor 2 apart, that of Daly has the least overhead; and the ones around it are close to each other."""
    cost, mtbf, total = 60.0, 7200.0, 1.5e6
    best = lk.lessons.daly(cost, mtbf)
    cheap = {}
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0):
        segments = round(total / (best * factor))
        cheap[factor] = preempted(segments, best * factor, cost, RESTART, mtbf).engine.seconds / (
            segments * best * factor
        )
    assert min(cheap, key=cheap.get) == 1.0
    assert cheap[0.25] > cheap[0.5] > cheap[1.0] < cheap[2.0] < cheap[4.0]
    for factor, measured in cheap.items():
        predicted = lk.lessons.segment_time(best * factor, cost, RESTART, mtbf) / (best * factor)
        assert measured == pytest.approx(predicted, rel=0.05)
