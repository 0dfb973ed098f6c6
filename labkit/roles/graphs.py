"""Who talks to whom when there is no server: graphs of workers, and the weights with which neighbours are mixed.

Mixing keeps the mean of all parameters if the weights of every worker add up to 1 and what i takes of j is what j takes
of i (a doubly stochastic matrix). Metropolis's rule gives such weights on any graph: 1 / (1 + the larger number of
neighbours) for a neighbour, the rest for oneself.

Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004.
"""

from __future__ import annotations

import math

from ..errors import nearest

__all__ = ["GRAPHS", "metropolis", "neighbours", "sides"]

GRAPHS = ("ring", "grid", "complete")


def neighbours(graph: str, workers: int) -> tuple[tuple[int, ...], ...]:
    """For each of `workers` workers the numbers of its neighbours, in order.

    "grid": rows and columns as nearly equal as `workers` can be divided, edges not joined; a prime number gives a line.
    Raises `BadInput` for an unknown graph.
    """
    if graph not in GRAPHS:
        raise nearest("graph", graph, GRAPHS)
    if graph == "complete":
        found = [[j for j in range(workers) if j != i] for i in range(workers)]
    elif graph == "ring":
        found = [[(i - 1) % workers, (i + 1) % workers] for i in range(workers)]
    else:
        columns = _columns(workers)
        found = [
            [i - columns, i + columns, *([i - 1] if i % columns else []), *([i + 1] if (i + 1) % columns else [])]
            for i in range(workers)
        ]
    return tuple(tuple(sorted({j for j in mine if 0 <= j < workers and j != i})) for i, mine in enumerate(found))


def sides(graph: str, workers: int) -> tuple[int, ...]:
    """0 or 1 for each worker, so that the edges between a 0 and a 1 still join everybody: those of a ring of an even
    number of workers and of a grid (coloured as a chess board) all are such edges.
    """
    columns = _columns(workers) if graph == "grid" else workers
    return tuple((i // columns + i % columns) % 2 for i in range(workers))


def _columns(workers: int) -> int:
    """Of the grid: the largest divisor of `workers` that is not above its root."""
    return next(c for c in range(math.isqrt(workers), 0, -1) if workers % c == 0)


def metropolis(graph: tuple[tuple[int, ...], ...], worker: int) -> tuple[float, ...]:
    """The weight of `worker` itself, then those of its neighbours in order; they add up to 1."""
    shares = [1 / (1 + max(len(graph[worker]), len(graph[other]))) for other in graph[worker]]
    return (1 - sum(shares), *shares)
