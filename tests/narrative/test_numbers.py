"""The numbers under the pictures: numbers of the past equal those shown then, current numbers are exact."""

from __future__ import annotations

import numpy as np
import pytest

import labkit as lk
from labkit.formatting import durations, listed, percent, rate, speed
from labkit.narrative import numbers, state
from labkit.strategies import STRATEGIES
from labkit.trace import Trace, ledger, staleness, summary
from tests.headers import header_of

NANO = 10**9
PIECES = ("tensor-parallel", "pipeline", "hybrid", "pipedream", "fsdp")


def simulated(strategy, seconds=2.0, **cluster):
    problem = lk.Problem(**{"timing_only": True, "hidden": (16, 16, 16)} | strategy.suggested_problem)
    cluster = lk.SimulatedCluster(
        **{"workers": 4, "compute": lk.distributions.LogNormal(0.05, 0.3), "latency": 0.001} | cluster
    )
    return lk.train(problem, strategy, cluster, lk.Budget(seconds=seconds))


def test_current_numbers_equal_the_ledger_and_the_counters():
    trace = simulated(lk.AsyncPS(), compute=lk.distributions.Deterministic(0.05)).wait().trace
    entries, stale, shown = ledger(trace), staleness(trace), dict(numbers(trace))
    assert shown["applied"] == str(entries["applied"])
    assert shown["in flight"] == str(entries["in_flight"])
    assert shown["dropped"] == str(sum(entries["dropped"].values()))
    assert shown["ledger"] == "complete ✓"
    assert [shown[name] for name in ("staleness mean", "p95", "max")] == [
        f"{stale['mean']:.2f}", str(stale["p95"]), str(stale["max"]),
    ]  # fmt: skip
    sent = sum(count for kinds in summary(trace)["bytes_sent"].values() for count in kinds.values())
    assert shown["sent"] == f"{sent / 1e6:.3g} MB"
    assert shown["simulated"] == "0.05 s"
    assert list(shown)[:3] == ["applied", "in flight", "dropped"]


def test_past_numbers_of_a_finished_run_equal_those_shown_at_the_time():
    """A run at time t gives from its counters the same numbers as a finished run gives for t from its rows."""
    for name, strategy in STRATEGIES.items():
        whole, going = simulated(strategy()).wait().trace, simulated(strategy())
        for t in (0.0, 0.4321, 1.2345):
            going.advance(t - going.engine.seconds)
            then, now = dict(numbers(whole, round(t * NANO))), dict(numbers(going.trace))
            if t == 0:  # a role counts what it sends from before anything has happened
                then.pop("sent"), now.pop("sent")
            if whole.header.layout.replication == "local":  # rows do not contain which gradients all replicas have
                now = {shown: value for shown, value in now.items() if shown in then}
            if name in PIECES:  # nor in which piece an unfinished gradient was
                assert abs(int(then.pop("in flight")) - int(now.pop("in flight"))) <= 1, (name, t)
            assert then == now, (name, t)
            assert then["ledger"] == "still counting", (name, t)
        assert state(whole, round(1.2345 * NANO)) == state(going.trace) == "1.2 s", name
        assert state(whole).endswith("s, ended: seconds"), name


def test_numbers_that_need_missing_rows_are_left_out():
    trace = simulated(lk.AsyncPS()).wait().trace
    exact = numbers(trace)
    for name in ("applies", "messages", "spans"):
        trace.tables[name].skipped = 1
    assert numbers(trace) == exact
    then = dict(numbers(trace, NANO))
    assert then["staleness mean"].startswith("~")
    assert "sent" not in then
    assert "in flight" not in then


def test_a_ledger_that_does_not_balance_is_shown():
    trace = simulated(lk.AsyncPS()).wait().trace
    trace.counters[trace.roles.index("worker-1")].computed += 3
    trace.counters[trace.roles.index("worker-1")].released += 3
    assert dict(numbers(trace))["ledger"] == "INCOMPLETE, 3 missing"


@pytest.mark.parametrize(
    ("engine", "compute", "last"),
    [
        ("simulated", "exponential:0.01", ("simulated", "exponential:0.01")),
        ("dask", "deterministic:0.1", ("paced", "0.1 s")),
        ("dask", None, ("pace", "none, full speed")),
    ],
)
def test_the_clock_of_a_run_is_always_shown(engine, compute, last):
    trace = Trace(header_of("server-0", "worker-0", engine=engine, compute=compute))
    assert numbers(trace)[-1] == last


def test_durations_and_shares_are_written_with_equal_precision():
    assert durations(5e8, 1e8) == ("0.50 s", "0.10 s")
    assert durations(5e8, 2.5e7) == ("0.500 s", "0.025 s")
    assert durations(12e9, 2e9) == ("12.0 s", "2.0 s")
    assert durations(4.2e6) == ("4.2 ms",)
    assert durations(80e3) == ("80 us",)
    assert durations(5e8, 0.0) == ("0.50 s", "0.00 s")
    assert [percent(x) for x in (0.2, 1.0, 0.001, 0.0)] == ["20%", "100%", "<1%", "0%"]
    assert [rate(x) for x in (31.4, 9.96, 2.13, 12000.0)] == ["31", "10", "2.1", "12,000"]
    assert [speed(x) for x in (5.0, 1.5, 0.25)] == ["5x slower", "1.5x slower", "4x faster"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert np.all([durations(ns)[0].endswith(("s", "ms", "us")) for ns in np.logspace(0, 12, 50)])
