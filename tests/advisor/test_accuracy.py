"""Errors of the formulas of `lk.advise` relative to the simulator, measured on random problems and clusters.

`labkit.advisor.accuracy.ERRORS` lists, for every strategy, the largest errors found: with constant and with random times of
gradients. The test measures them again and compares the table with the result; `-m slow -s` prints it.
"""

from __future__ import annotations

import math
import random

import pytest

import labkit as lk
from labkit.advisor.accuracy import ERRORS
from labkit.advisor.advise import FORMULAS
from tests.advisor.test_advise import CLICKS, FLAT, LAYERS, simulated

DISTRIBUTIONS = (
    lambda mean: lk.Exponential(mean),
    lambda mean: lk.ShiftedExponential(mean / 2, mean / 2),
    lambda mean: lk.Uniform(mean / 2, 1.5 * mean),
    lambda mean: lk.LogNormal(mean, 0.5),
)


def random_case(number, random_times):
    """The problem and the cluster with this number."""
    rng = random.Random(f"advise {number} {random_times}")
    mean = 10 ** rng.uniform(-3, -1)
    with_network = rng.random() < 0.7
    problem = (FLAT, LAYERS, LAYERS, CLICKS)[number % 4]
    cluster = lk.SimulatedCluster(
        workers=rng.choice([2, 4, 4, 6, 8]), servers=rng.choice([None, 1, 2, 3]),
        compute=rng.choice(DISTRIBUTIONS)(mean) if random_times else mean, server_time=rng.choice([None, mean / 20]),
        latency=mean * 10 ** rng.uniform(-3, -0.5) if with_network else 0.0,
        bandwidth=problem.objective().size * 4 / mean * 10 ** rng.uniform(-0.5, 1.5) if with_network else math.inf,
    )  # fmt: skip
    return problem, cluster


def relative_errors(random_times, numbers):
    """{strategy: [(relative error, cluster), ...]}."""
    found = {}
    for number in numbers:
        problem, cluster = random_case(number, random_times)
        for row in lk.advise(problem, cluster).rows:
            step = simulated(row.strategy, problem, cluster, row, rounds=150 if random_times else 40)
            found.setdefault(row.strategy.name, []).append((row.step / step - 1, number))
    return found


@pytest.mark.slow
@pytest.mark.sample(slow=1)
@pytest.mark.parametrize(
    ("random_times", "numbers"), [(False, range(12)), (True, (0, 1, 3, 5, 7))], ids=["constant", "random"]
)
def test_measured_errors_equal_the_documented_ones(random_times, numbers):
    worst = {}
    for name, errors in relative_errors(random_times, numbers).items():
        worst[name] = max(abs(error) for error, _ in errors)
        print(f"{name:16} {worst[name]:.3f}", *(f"{number}:{error:+.3f}" for error, number in errors))
    assert set(worst) == set(ERRORS) == {kind.__name__ for kind in FORMULAS}
    for name, error in worst.items():
        known = ERRORS[name][random_times]
        assert error <= known + 0.002, name
        assert error >= known / 2 - 0.002, (name, "the documented error is more than twice the measured one")
