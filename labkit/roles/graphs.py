"""Communication graphs of decentralized strategies, and mixing weights of neighbours.

Mixing preserves the mean of all parameters if the matrix of weights is symmetric and its rows sum to 1 (doubly stochastic).
Metropolis's rule gives such weights on any graph: 1 / (1 + the larger of the two degrees) for a neighbour, the rest for the
worker itself.

Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import overload

from ..errors import nearest

GRAPHS = ("ring", "grid", "complete")


class Graph(Sequence[tuple[int, ...]]):
    """The neighbours of each worker: `graph[i]` is a sorted tuple of the numbers of worker i's neighbours. It is computed on
    access, because each worker needs only one entry and there may be 10,000 workers.
    """

    def __init__(self, name: str, workers: int):
        self._name, self._workers = name, workers
        self._columns = _columns(workers) if name == "grid" else 0

    def __len__(self) -> int:
        return self._workers

    @overload
    def __getitem__(self, worker: int) -> tuple[int, ...]: ...

    @overload
    def __getitem__(self, worker: slice) -> Sequence[tuple[int, ...]]: ...

    def __getitem__(self, worker: int | slice) -> tuple[int, ...] | Sequence[tuple[int, ...]]:
        if isinstance(worker, slice):
            return tuple(self[i] for i in range(*worker.indices(self._workers)))
        n = self._workers
        i = range(n)[worker]
        if self._name == "complete":
            return (*range(i), *range(i + 1, n))
        if self._name == "ring":
            found = {(i - 1) % n, (i + 1) % n} - {i}
        else:
            columns = self._columns
            left, right = [i - 1] if i % columns else [], [i + 1] if (i + 1) % columns else []
            found = {j for j in (i - columns, i + columns, *left, *right) if 0 <= j < n}
        return tuple(sorted(found))


def neighbours(graph: str, workers: int) -> Graph:
    """Return the graph of this name for `workers` workers.

    "grid": rows and columns as nearly equal as `workers` can be divided, edges not joined; a prime number gives a line.
    Raises `BadInput` for an unknown graph.
    """
    if graph not in GRAPHS:
        raise nearest("graph", graph, GRAPHS)
    return Graph(graph, workers)


@lru_cache(maxsize=4)  # called by every replica
def two_colouring(graph: str, workers: int) -> tuple[int, ...]:
    """Return a colour, 0 or 1, for each worker, such that the edges between different colours connect all workers. On a grid
    (coloured like a chess board), and on a ring of an even number of workers, all edges are between different colours.
    """
    columns = _columns(workers) if graph == "grid" else workers
    return tuple((i // columns + i % columns) % 2 for i in range(workers))


def _columns(workers: int) -> int:
    """Return the columns of the grid: the largest divisor of `workers` that is at most its square root."""
    return next(c for c in range(math.isqrt(workers), 0, -1) if workers % c == 0)


def metropolis(graph: Sequence[tuple[int, ...]], worker: int) -> tuple[float, ...]:
    """Return the weight of `worker` itself, then those of its neighbours in order; they sum to 1."""
    others = graph[worker]
    shares = [1 / (1 + max(len(others), len(graph[other]))) for other in others]
    return (1 - sum(shares), *shares)
