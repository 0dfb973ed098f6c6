"""Errors of the formulas of `lk.advise` relative to the simulator, measured on random problems and clusters.

`labkit.advice.errors.ERRORS` lists, for every strategy, the largest errors found: with constant and with random times of
gradients. The test measures them again and compares the table with the result; `-m slow -s` prints it.
"""

from __future__ import annotations

import math
import random

import pytest
from test_advise import CLICKS, FLAT, LAYERS, simulated

import labkit as lk
from labkit.advice.advise import FORMULAS
from labkit.advice.errors import ERRORS

DISTRIBUTIONS = (
    lambda mean: lk.Exponential(mean),
    lambda mean: lk.ShiftedExponential(mean / 2, mean / 2),
    lambda mean: lk.Uniform(mean / 2, 1.5 * mean),
    lambda mean: lk.LogNormal(mean, 0.5),
)


def drawn(number, chance):
    """The problem and the cluster with this number."""
    luck = random.Random(f"advise {number} {chance}")
    mean = 10 ** luck.uniform(-3, -1)
    wire = luck.random() < 0.7
    problem = (FLAT, LAYERS, LAYERS, CLICKS)[number % 4]
    cluster = lk.SimulatedCluster(
        workers=luck.choice([2, 4, 4, 6, 8]), servers=luck.choice([None, 1, 2, 3]),
        compute=luck.choice(DISTRIBUTIONS)(mean) if chance else mean, server_time=luck.choice([None, mean / 20]),
        latency=mean * 10 ** luck.uniform(-3, -0.5) if wire else 0.0,
        bandwidth=problem.objective().size * 4 / mean * 10 ** luck.uniform(-0.5, 1.5) if wire else math.inf,
    )  # fmt: skip
    return problem, cluster


def measured(chance, numbers):
    """{strategy: [(relative error, cluster), ...]}."""
    found = {}
    for number in numbers:
        problem, cluster = drawn(number, chance)
        for row in lk.advise(problem, cluster).rows:
            step = simulated(row.strategy, problem, cluster, row, rounds=150 if chance else 40)
            found.setdefault(row.strategy.name, []).append((row.step / step - 1, number))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chance", "numbers"), [(False, range(12)), (True, (0, 1, 3, 5, 7))], ids=["constant", "random"]
)
def test_errors_are_those_that_are_documented(chance, numbers):
    worst = {}
    for name, errors in measured(chance, numbers).items():
        worst[name] = max(abs(error) for error, _ in errors)
        print(f"{name:16} {worst[name]:.3f}", *(f"{number}:{error:+.3f}" for error, number in errors))
    assert set(worst) == set(ERRORS) == {kind.__name__ for kind in FORMULAS}
    for name, error in worst.items():
        known = ERRORS[name][chance]
        assert error <= known + 0.002, name
        assert error >= known / 2 - 0.002, (name, "the table says more than there is")
