"""Straggler detection: known durations give one line; noise gives none; reading in pieces equals reading at once."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.narrative import straggler_text
from labkit.trace import Recorder, Trace
from labkit.trace.schema import APPLY, COMPUTE, TRAINING, WAIT
from labkit.trace.stragglers import OutlierTest, Stragglers, stragglers
from tests.headers import header_of

pytestmark = pytest.mark.sample(12)

NANO = 10**9
MS = 10**6


def empty(workers=4, servers=1, engine="simulated", pace=None):
    """An empty trace of a parameter server."""
    names = [f"server-{i}" for i in range(servers)] + [f"worker-{i}" for i in range(workers)] + ["chief"]
    return Trace(header_of(*names, engine=engine, compute="deterministic:0.1" if engine == "simulated" else pace))


def turns(trace, name, computing, waiting=0.0, until=10.0, transit=0.0, since=0.0):
    """A worker that alternately computes and waits (ms each, or functions of the time in s), and gets a message each
    time.
    """
    role = trace.roles.index(name)
    recorder, now, step = Recorder(role), round(since * NANO), 0
    while now < until * NANO:
        for phase, much in ((COMPUTE, computing), (WAIT, waiting)):
            took = round((much(now / NANO) if callable(much) else much) * MS)
            recorder.span(phase, now, now + took, step if phase == COMPUTE else -1)
            now += took
        if transit:
            recorder.messages.extend((0, 1, TRAINING, 100, now - round(transit * MS), now))
        step += 1
    trace.append(recorder.take(round(until * NANO)))
    return trace


def made(slow, **more):
    trace = empty()
    for i in range(3):
        turns(trace, f"worker-{i}", 100.0)
    return turns(trace, "worker-3", slow, **more)


def lines(trace):
    return [f"{found.time / NANO:.2f} {straggler_text(trace, found)}" for found in stragglers(trace, trace.watermark())]


# reported lines -------------------------------------------------------------------------------------------------------


def test_a_straggler_is_named_when_it_has_been_slow_three_times_and_once_only():
    """From 4 s on each gradient takes 0.5 s: the third is over at 5.5 s."""
    assert lines(made(lambda t: 500.0 if t >= 4 else 100.0)) == [
        "5.50 straggler: w3, computing 0.50 s against a median of 0.10 s"
    ]


def test_the_end_of_a_straggler_is_reported():
    """At 7 s it is fast again: three gradients later that is certain."""
    assert lines(made(lambda t: 500.0 if 3.99 <= t < 6.99 else 100.0)) == [
        "5.50 straggler: w3, computing 0.50 s against a median of 0.10 s", "7.30 w3 is no longer a straggler",
    ]  # fmt: skip


@pytest.mark.parametrize("slow", [100.0, 150.0, 199.0])
def test_up_to_twice_as_slow_is_no_straggler(slow):
    assert lines(made(slow)) == []


def test_one_or_two_slow_gradients_are_no_straggler():
    assert lines(made(lambda t: 500.0 if 4 <= t < 4.9 else 100.0)) == []


def test_a_slow_worker_without_effect_on_its_turn_is_no_straggler():
    """Three times as long, but 3 ms of a turn of 100 ms."""
    trace = empty()
    for i in range(3):
        turns(trace, f"worker-{i}", 1.0, 99.0)
    assert lines(turns(trace, "worker-3", 3.0, 97.0)) == []


def test_outlier_detection_needs_two_workers():
    two = turns(turns(empty(workers=2), "worker-0", 100.0), "worker-1", 300.0)
    assert lines(two) == ["0.90 straggler: w1, computing 0.30 s against a median of 0.10 s"]
    assert lines(turns(empty(workers=1), "worker-0", lambda t: 900.0 if t > 4 else 100.0)) == []


def test_a_worker_that_waits_for_others_is_no_straggler():
    """All take half a second, four fifths of which three of them wait for the fourth."""
    trace = empty()
    for i in range(3):
        turns(trace, f"worker-{i}", 100.0, 400.0)
    assert lines(turns(trace, "worker-3", 500.0)) == ["1.50 straggler: w3, computing 0.50 s against a median of 0.10 s"]


def test_the_only_worker_that_waits_is_a_straggler():
    """Its turns end at 0.5, 0.9 and 1.3 s; the outlier tests are evaluated at the next gradient of the others."""
    assert lines(made(100.0, waiting=300.0)) == [
        "1.40 straggler: w3, waiting for others, a gradient every 0.40 s against a median of 0.10 s"
    ]


def test_the_network_is_blamed_for_messages_that_take_long():
    """Of 400 ms a message is in flight for 300: the third arrives after 1.2 s."""
    trace = empty()
    for i in range(3):
        turns(trace, f"worker-{i}", 100.0, 20.0, transit=20.0)
    found = lines(turns(trace, "worker-3", 100.0, 300.0, transit=300.0))
    assert found == ["1.30 straggler: w3, its messages take 0.300 s against a median of 0.020 s"]


def test_a_server_among_servers():
    trace = empty(servers=3)
    for i in range(4):
        turns(trace, f"worker-{i}", 100.0)
    for i, took in enumerate((10, 40, 10)):
        recorder = Recorder(trace.roles.index(f"server-{i}"))
        for k in range(100):
            recorder.span(APPLY, k * 100 * MS, (k * 100 + took) * MS)
        trace.append(recorder.take(10 * NANO))
    assert lines(trace) == ["0.30 straggler: s1, applying 40 ms against a median of 10 ms"]


# real time ------------------------------------------------------------------------------------------------------------


def real(slow, pace=None):
    """The others' gradients take 1 ms, with an occasional delay of 30 ms."""
    trace = empty(engine="dask", pace=pace)
    for i in range(4):
        rng = np.random.default_rng(i)
        factor = slow if i == 3 else lambda t: 1.0
        turns(trace, f"worker-{i}", lambda t, r=rng, f=factor: (30.0 if r.random() < 0.02 else 1.0) * f(t), until=6.0)
    return lines(trace)


def test_at_full_speed_a_straggler_is_reported_after_it_has_been_slow_for_long_enough():
    assert real(lambda t: 1.0) == []
    assert real(lambda t: 8.0 if 2 <= t < 2.3 else 1.0) == []
    assert real(lambda t: 8.0 if t >= 2 else 1.0) == ["3.50 straggler: w3, computing 8.0 ms against a median of 1.0 ms"]


def test_delays_of_messages_on_a_busy_machine_are_not_attributed_to_the_network():
    trace = empty(engine="dask")
    for i in range(4):
        turns(trace, f"worker-{i}", 1.0, 8.0 if i == 3 else 1.0, transit=8.0 if i == 3 else 1.0, until=6.0)
    assert lines(trace) == []


# noise ----------------------------------------------------------------------------------------------------------------

DISTRIBUTIONS = {
    "exponential": lk.distributions.Exponential(0.1), "uniform": lk.distributions.Uniform(0.0, 0.2),
    "wide": lk.distributions.LogNormal(0.1, 1.0),
    "usual": lk.distributions.LogNormal(0.1, 0.25), "tail": lk.distributions.Pareto(0.05, 3.0),
}  # fmt: skip


def durations(distribution, slow=1.0, workers=4, each=80, seed=0):
    """An outlier test fed `each` draws of every worker, the last one slow from the middle on, and its result."""
    rng, gauge, text = np.random.default_rng(seed), OutlierTest(range(workers)), set()
    drawn = distribution.draw(rng, workers * each).reshape(workers, each) * NANO
    drawn[-1, each // 2 :] *= slow
    ends = np.cumsum(drawn, axis=1)
    order = np.argsort(ends, axis=None)
    for block in np.array_split(order, each):
        role, number = np.unravel_index(block, ends.shape)
        gauge.take(role, ends[role, number], drawn[role, number], drawn[role, number])
        text |= set(gauge.find()[0])
    return text


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_random_variation_is_no_straggler(distribution):
    assert [durations(distribution, seed=seed) for seed in range(4)] == [set()] * 4


@pytest.mark.parametrize(
    "distribution",
    [lk.distributions.LogNormal(0.1, 0.25), lk.distributions.Pareto(0.05, 3.0), lk.distributions.LogNormal(0.1, 0.5)],
    ids=repr,
)
def test_a_straggler_is_found_among_random_times(distribution):
    assert [durations(distribution, 5.0, seed=seed) for seed in range(3)] == [{3}] * 3


def test_a_thousand_workers_and_one_of_them_slow():
    assert durations(lk.distributions.LogNormal(0.1, 0.25), 5.0, workers=1000, each=24) == {999}


# the same however it is read ------------------------------------------------------------------------------------------


def simulated(strategy, **cluster):
    faults = [lk.Slow("worker-2", 5, at=2.0, until=5.0)]
    problem = lk.Problem(**{"timing_only": True, "hidden": (16, 16, 16)} | strategy.suggested_problem)
    cluster = lk.SimulatedCluster(**{"workers": 4, "compute": lk.distributions.LogNormal(0.08, 0.25)} | cluster)
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=7.0), faults=faults)


SOME = [lk.AsyncPS(), lk.SyncPS(), lk.RingAllReduce(), lk.Pipeline(), lk.FSDP(), lk.Hybrid(), lk.KSync()]


@pytest.mark.parametrize("strategy", SOME, ids=lambda s: s.name)
def test_read_in_pieces_is_read_at_once_and_the_past_does_not_change(strategy):
    run, memory, received = simulated(strategy), Stragglers(), []
    for t in np.arange(0.1, 9.0, 0.37):
        run.advance(t - run.engine.seconds)
        before, received = received, memory.until(run.trace, run.trace.watermark())
        assert received[: len(before)] == before
    whole = stragglers(run.trace, run.trace.watermark())
    assert received == whole
    for t in (0, 4 * NANO):
        past = [found for found in whole if found.time <= t]
        assert stragglers(run.trace, t) == memory.until(run.trace, t) == past
    if strategy.name == "KSync":
        assert whole == []  # its cancelled gradients took as long as the finished ones of others
    else:
        worker = run.trace.roles.index("worker-2")
        assert [(found.role, found.what is None) for found in whole] == [(worker, False), (worker, True)]
        text = [straggler_text(run.trace, found).partition(",")[0] for found in whole]
        assert text == ["straggler: w2", "w2 is no longer a straggler"]
        assert 2 * NANO < whole[0].time < 5 * NANO < whole[1].time


def test_split_models_are_compared_with_their_own_beginnings():
    """The stages' work differs, the last one's is small: no stage is reported as a straggler."""
    run = lk.train(
        lk.Problem("digits", timing_only=True, hidden=(64, 8, 8)), lk.Pipeline(),
        lk.SimulatedCluster(workers=4, compute=lk.distributions.Deterministic(0.1)), lk.Budget(seconds=6.0),
        faults=[lk.Slow("worker-1", 5, at=3.0)],
    ).wait()  # fmt: skip
    (found,) = stragglers(run.trace, run.trace.watermark())
    assert (found.role, found.what, found.against_start) == (run.trace.roles.index("worker-1"), "computing", True)
    line = straggler_text(run.trace, found)
    assert line.startswith("straggler: w1, computing ")
    assert line.endswith(" at the start")


def test_one_outlier_test_can_be_used_for_another_trace():
    memory, first, second = Stragglers(), made(300.0), made(100.0)
    assert len(memory.until(first, 10 * NANO)) == 1
    assert memory.until(second, 10 * NANO) == []
    assert len(memory.until(first, 10 * NANO)) == 1


def test_missing_rows_do_not_affect_the_outlier_test():
    trace = lk.train(
        "moons", lk.AsyncPS(), lk.SimulatedCluster(record=False, slow={"worker-1": 5}), lk.Budget(updates=50)
    ).wait().trace  # fmt: skip
    assert stragglers(trace, trace.watermark()) == []
    memory, small = Stragglers(), empty()
    small.tables["spans"].keep = 100
    for since in np.arange(0.0, 20.0, 1.0):
        for i in range(4):
            turns(small, f"worker-{i}", 500.0 if i == 3 else 100.0, since=since, until=since + 0.9999)
        memory.until(small, small.watermark())
    assert small.tables["spans"].spilled > 0
    assert [straggler_text(small, found) for found in memory.until(small, small.watermark())] == [
        "straggler: w3, computing 0.50 s against a median of 0.10 s"
    ]
