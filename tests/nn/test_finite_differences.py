"""Central differences, compared with derivatives that are known in closed form."""

import numpy as np

import labkit as lk
from labkit.nn.finite_differences import central_differences


def test_derivatives_of_a_bowl_are_its_parameters():
    """f(w) = sum of w²/2: central differences of a quadratic function have no truncation error."""
    problem = lk.Problem("quadratic", options={"dimension": 5, "samples": 4, "curvature": (1.0, 2.0, 3.0, 4.0, 5.0)})
    data, objective = problem.dataset, problem.objective()
    w = np.array([3.0, -1.0, 0.5, 2.0, 0.0])
    curvature = np.asarray(data.extra["curvature"])
    found = central_differences(objective, w, data.x_train, data.y_train, [4, 0, 2], h=0.25)
    np.testing.assert_allclose(found, (curvature * w)[[4, 0, 2]], rtol=1e-12, atol=1e-12)
    assert w.tolist() == [3.0, -1.0, 0.5, 2.0, 0.0]  # unchanged


def test_the_truncation_error_is_proportional_to_the_square_of_h():
    problem = lk.Problem("moons", hidden=(4,), activation="tanh", dtype="float64")
    data, objective = problem.dataset, problem.objective()
    w = objective.start(0)
    gradient = np.empty_like(w)
    objective.gradient(w, data.x_train, data.y_train, gradient)
    errors = [
        abs(central_differences(objective, w, data.x_train, data.y_train, range(len(w)), h) - gradient).max() for h in (0.1, 0.05)
    ]
    assert 3.8 < errors[0] / errors[1] < 4.2
