"""Central differences, compared with derivatives that are known in closed form."""

import numpy as np

import labkit as lk
from labkit.lessons import central_differences


def test_the_derivatives_of_a_quadratic_function_are_exact():
    """f(w) = sum of a w²/2 has no third derivative, so there is no truncation error."""
    a, w = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([[3.0, -1.0, 0.5], [2.0, 0.0, -4.0]])
    kept = w.copy()
    found = central_differences(lambda v: float((a * v**2).sum() / 2), w, h=0.25)
    np.testing.assert_allclose(found, a * w, rtol=1e-12, atol=1e-12)
    some = central_differences(lambda v: float((a * v**2).sum() / 2), w, h=0.25, indices=[5, 0])
    np.testing.assert_allclose(some, [-24.0, 3.0], rtol=1e-12)
    assert np.array_equal(w, kept)


def test_a_function_may_change_its_argument():
    def cube(v):
        v **= 3
        return v.sum()

    np.testing.assert_allclose(central_differences(cube, np.array([1.0, 2.0])), [3, 12], rtol=1e-8)


def test_the_truncation_error_is_proportional_to_the_square_of_h():
    problem = lk.Problem("moons", hidden=(4,), activation="tanh", dtype="float64")
    data, objective = problem.dataset, problem.objective()
    w = objective.start(0)
    gradient = np.empty_like(w)
    objective.gradient(w, data.x_train, data.y_train, gradient)
    errors = [
        abs(central_differences(lambda v: objective.evaluate(v, data.x_train, data.y_train)[0], w, h) - gradient).max()
        for h in (0.1, 0.05)
    ]
    assert 3.8 < errors[0] / errors[1] < 4.2
