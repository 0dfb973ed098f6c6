"""`docs/one_page_labkit.py`, a second implementation of two strategies and of virtual time, against labkit's simulator.

The oracle has an event loop, roles, a shard and a trace of its own, in some 200 lines; it shares only the method by which random
streams are made from a seed. Updates are compared one by one: time (ns), worker, staleness, and the parameters bit for bit.
"""

import ast
import inspect
import sys
import textwrap

import numpy as np
import pytest

import labkit as lk
from docs import one_page_labkit as one_page

CASES = {
    "equal workers": {"compute": 0.1},
    "random times": {"compute": lk.distributions.Exponential(0.1)},
    "slow workers": {"compute": 0.1, "slow": {"worker-0": 5}},
    "slow workers whose gradients end together": {"compute": 0.1, "slow": {"worker-0": 2, "worker-1": 3}},
    "slow workers with random times": {
        "compute": lk.distributions.Exponential(0.1),
        "slow": {"worker-0": 1.7, "worker-1": 3},
    },
    "latency": {"compute": 0.1, "latency": 0.003},
    "latency as long as a gradient": {"compute": 0.1, "latency": 0.1, "slow": {"worker-0": 2}},
    "slow server": {"compute": 0.1, "server_time": 0.01, "slow": {"server-0": 2.5}},
    "saturated server": {"compute": lk.distributions.Exponential(0.1), "server_time": 0.1, "latency": 0.02},
    "all of them": {
        "compute": lk.distributions.Exponential(0.1),
        "server_time": 0.02,
        "latency": 0.01,
        "slow": {"worker-0": 5},
    },
}
STRATEGIES = [
    (one_page.AsyncPS(), lk.AsyncPS),
    (one_page.SyncPS(), lk.SyncPS),
    (one_page.SyncPS(reduce="sum"), lk.SyncPS),
    (one_page.SyncPS(accumulate=3), lk.SyncPS),
    (one_page.AsyncPS(accumulate=4), lk.AsyncPS),
]


class Parabola:
    """`lk.Problem("quadratic")` without noise: the gradient at w is w."""

    initial = np.ones(1)

    def batches(self, rng):
        while True:
            yield None

    def gradient(self, w, batch):
        return w


def both(strategy, kind, costs, workers, seed, updates=60):
    """The trace and the parameters of a run of each implementation."""
    costs = costs | {"slow": {k: v for k, v in costs.get("slow", {}).items() if k != "worker-1" or workers > 1}}
    run = lk.train(
        lk.Problem("quadratic"), kind(**vars(strategy)), lk.SimulatedCluster(workers, **costs),
        lk.Budget(updates=updates), seed=seed,
    ).wait()  # fmt: skip
    times = costs["compute"]
    if isinstance(times, lk.distributions.Exponential):
        costs = costs | {"compute": lambda rng: rng.exponential(times.mean)}
    cluster = one_page.Cluster(workers, **costs)
    return one_page.train(Parabola(), strategy, cluster, updates, seed), (run.trace, run.result().parameters)


def body(method):
    """The statements of a method, without docstring and annotations."""
    return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(method))).body[0].body[1:])


@pytest.mark.parametrize("name", ["AsyncPS", "SyncPS"])
@pytest.mark.parametrize("role", ["server", "worker"])
def test_the_roles_are_those_of_labkit_word_for_word(name, role):
    assert body(getattr(getattr(one_page, name), role)) == body(getattr(getattr(lk, name), role))


@pytest.mark.sample(4, slow=19)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("strategy", "kind"), STRATEGIES, ids=["async", "sync", "sync, sum", "sync, accumulated", "async, accumulated"]
)
def test_both_make_the_same_updates(strategy, kind, case):
    for workers, seed in [(1, 0), (2, 0), (3, 1), (8, 2)]:
        (rows, parameters), (trace, trained) = both(strategy, kind, CASES[case], workers, seed)
        expected = [(row.time, row.worker, row.staleness) for row in rows if row.what == "applied"]
        time, sender, staleness = trace.column("applies", "time", "sender", "staleness")
        names = [trace.roles[number] for number in sender]
        assert list(zip(time.tolist(), names, staleness.tolist())) == expected
        assert trained.tolist() == parameters.tolist()


@pytest.mark.parametrize(
    "case", [case for case, costs in CASES.items() if isinstance(costs["compute"], lk.distributions.Exponential)]
)
def test_both_have_the_same_ledger(case):
    """With random times nothing else happens at the instant of the last update, at which the run ends."""
    for workers, seed in [(1, 0), (2, 0), (3, 1), (8, 2), (8, 3)]:
        (rows, _), (trace, _) = both(one_page.AsyncPS(), lk.AsyncPS, CASES[case], workers, seed)
        labkit = lk.ledger(trace)
        in_flight = labkit["in_flight"] + labkit["dropped"].get("after the end", 0)
        expected = {"computed": labkit["computed"], "applied": labkit["applied"], "in flight": in_flight, "missing": 0}
        assert one_page.ledger(rows) == expected


def test_the_file_needs_only_the_standard_library_and_numpy():
    tree = ast.parse(inspect.getsource(one_page))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert "numpy" in names
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"numpy"}
