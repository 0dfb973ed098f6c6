"""Graphs of workers, and mixing weights that keep the mean, for any graph and any number of workers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit.roles.graphs import GRAPHS, metropolis, neighbours, two_colouring

graphs = st.sampled_from(GRAPHS)
sizes = st.integers(1, 40)


def matrix(graph):
    """The mixing matrix, row by row."""
    w = np.zeros((len(graph), len(graph)))
    for i, near in enumerate(graph):
        own, *others = metropolis(graph, i)
        w[i, i] = own
        w[i, list(near)] = others
    return w


def reached(edges, workers):
    """Workers that worker 0 can reach over any number of edges."""
    found, fresh = {0}, {0}
    while fresh:
        fresh = {j for i in fresh for j in edges[i]} - found
        found |= fresh
    return found == set(range(workers))


@given(graphs, sizes)
def test_neighbours_are_mutual_and_the_graph_is_connected(name, workers):
    graph = neighbours(name, workers)
    assert len(graph) == workers
    for i, near in enumerate(graph):
        assert list(near) == sorted(set(near) - {i})
        assert all(0 <= j < workers and i in graph[j] for j in near)
    assert reached(graph, workers)


@given(graphs, sizes)
def test_metropolis_weights_are_doubly_stochastic(name, workers):
    w = matrix(neighbours(name, workers))
    np.testing.assert_allclose(w.sum(axis=0), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(w.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert np.array_equal(np.triu(w, 1), np.tril(w, -1).T)  # the matrix is symmetric to the bit
    assert w.min() >= 0
    assert np.all(np.diag(w) > 0)


@given(st.integers(2, 12), st.data())
def test_metropolis_on_any_graph_at_all(workers, data):
    pairs = [(i, j) for i in range(workers) for j in range(i)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    graph = tuple(tuple(sorted({a + b - i for a, b in chosen if i in (a, b)})) for i in range(workers))
    w = matrix(graph)
    np.testing.assert_allclose(w.sum(axis=0), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(w, w.T, rtol=0, atol=0)
    assert w.min() >= -1e-15


@given(graphs, sizes)
def test_the_edges_between_the_two_colours_connect_the_graph(name, workers):
    """AD-PSGD sends requests only between the two colours. Restricted to these edges the graph must stay connected: else its
    components would never agree.
    """
    graph, side = neighbours(name, workers), two_colouring(name, workers)
    assert len(side) == workers
    assert set(side) <= {0, 1}
    assert reached([[j for j in near if side[j] != side[i]] for i, near in enumerate(graph)], workers)


@given(st.integers(1, 20))
def test_two_colourings_keep_all_edges_of_even_rings_and_grids(half):
    for name, workers in (("ring", 2 * half), ("grid", half), ("grid", 2 * half)):
        side = two_colouring(name, workers)
        assert all(side[i] != side[j] for i, near in enumerate(neighbours(name, workers)) for j in near)


def test_graphs_by_hand():
    assert tuple(neighbours("ring", 1)) == tuple(neighbours("complete", 1)) == tuple(neighbours("grid", 1)) == ((),)
    assert tuple(neighbours("ring", 2)) == ((1,), (0,))  # one neighbour, not the same one twice
    assert tuple(neighbours("ring", 4)) == ((1, 3), (0, 2), (1, 3), (0, 2))
    assert tuple(neighbours("grid", 6)) == ((1, 2), (0, 3), (0, 3, 4), (1, 2, 5), (2, 5), (3, 4))  # 3 rows of 2
    assert neighbours("grid", 9)[4] == (1, 3, 5, 7)
    assert tuple(neighbours("grid", 5)) == ((1,), (0, 2), (1, 3), (2, 4), (3,))  # a prime number: a line
    assert tuple(neighbours("complete", 3)) == ((1, 2), (0, 2), (0, 1))


@pytest.mark.parametrize("workers", [3, 4, 5, 8, 16])
def test_second_eigenvalues_known_in_closed_form(workers):
    """Ring: (1 + 2 cos(2 pi / N)) / 3 (N > 2); complete graph: 0, all agree after one step."""
    ring, complete = (np.sort(np.linalg.eigvalsh(matrix(neighbours(g, workers)))) for g in ("ring", "complete"))
    assert ring[-2] == pytest.approx((1 + 2 * np.cos(2 * np.pi / workers)) / 3, abs=1e-12)
    assert np.abs(complete[:-1]).max() < 1e-12


def test_an_unknown_graph_is_refused_with_those_that_there_are():
    with pytest.raises(lk.BadInput, match=r"no graph 'rings'\. Did you mean 'ring'\? Allowed: complete, grid, ring"):
        neighbours("rings", 4)
