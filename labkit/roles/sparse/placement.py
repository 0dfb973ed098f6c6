"""Placement of the rows of a table on servers: three schemes, each a pure function of the row's id.

    range            server = id * servers // rows       neighbours stay together, and so do the most frequent ids (Zipf)
    hash             server = scrambled(id) mod servers  balanced for any ids; adding a server moves nearly all rows
    consistent-hash  servers have points on a ring; an id belongs to the server of the next point
                                                         removing a server moves only that server's rows

No scheme can divide one row: if the hottest id causes 8% of all traffic, its server has at least that share, for any number
of servers. With v points each, the shares of S servers on the ring have a coefficient of variation of sqrt((S-1)/(S v+1)),
9.35% for S = 8 and v = 100, if the points are random (an arc's share is then Beta distributed).

Karger et al., "Consistent hashing and random trees", STOC 1997; Li et al., OSDI 2014 (key ranges on a server).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import BadInput, nearest, shown
from ...nn.embedding import scramble
from ...nn.named_objects import make_by_name
from ...options import HasOptions, option

Servers = int | Sequence[int]


class Placement(HasOptions):
    """Base class of placements."""

    def owner(self, ids: np.ndarray, servers: Servers) -> np.ndarray:
        """Return the server of each row.

        Parameters
        ----------
        ids : ndarray of int
            The ids of rows, in any shape.
        servers : int or sequence of int
            How many servers there are, or their numbers.

        Returns
        -------
        ndarray of int64
            The numbers of the servers, in the shape of `ids`.
        """
        raise NotImplementedError

    def of_table(self, rows: int) -> Placement:
        """Return the placement for a table with this number of rows.

        Parameters
        ----------
        rows : int
            The number of rows.

        Returns
        -------
        Placement
            The placement.
        """
        return self


@dataclass(frozen=True)
class RangePlacement(Placement):
    """Contiguous ranges of ids, of equal length.

    See Also
    --------
    HashPlacement, ConsistentHash : The other placements.
    SparsePS : The strategy with the option placement.

    Examples
    --------
    >>> lk.placements.RangePlacement(rows=8).owner(np.arange(8), servers=2)
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """

    rows: int = option(0, low=0, high=2**40, help="ids in all; 0: the problem's")

    def owner(self, ids: np.ndarray, servers: Servers) -> np.ndarray:
        """Return the server of each id: id * servers // rows."""
        numbers = _numbers(servers)
        if self.rows < 1:
            raise BadInput("RangePlacement divides a table of known length: give rows, as RangePlacement(rows=1000).")
        return numbers[np.minimum(np.asarray(ids, np.int64), self.rows - 1) * len(numbers) // self.rows]

    def of_table(self, rows: int) -> RangePlacement:
        """Return the placement with the table's number of rows, unless it was given."""
        return self if self.rows else replace(self, rows=rows)


@dataclass(frozen=True)
class HashPlacement(Placement):
    """The remainder of a hash of the id.

    See Also
    --------
    RangePlacement, ConsistentHash : The other placements.
    SparsePS : The strategy with the option placement.

    Examples
    --------
    The servers own equally many rows, up to chance. Adding a fifth server moves four fifths of the rows.

    >>> ids = np.arange(10_000)
    >>> np.bincount(lk.placements.HashPlacement().owner(ids, servers=4))
    array([2478, 2551, 2426, 2545])
    >>> before, after = (lk.placements.HashPlacement().owner(ids, servers) for servers in (4, 5))
    >>> print(f"{np.mean(before != after):.2f}")
    0.80
    """

    seed: int = option(0, low=0, high=2**63 - 1, help="of the hash")

    def owner(self, ids: np.ndarray, servers: Servers) -> np.ndarray:
        """Return the server of each id: scrambled(id) mod servers."""
        numbers = _numbers(servers)
        return numbers[(scramble(self.seed, np.asarray(ids)) % np.uint64(len(numbers))).astype(np.int64)]


@dataclass(frozen=True)
class ConsistentHash(Placement):
    """Consistent hashing: a ring of 2^64 positions on which every server has `points` hashed positions.

    See Also
    --------
    RangePlacement, HashPlacement : The other placements.
    SparsePS : The strategy with the option placement.

    Examples
    --------
    Adding a fifth server moves about a fifth of the rows.

    >>> ids = np.arange(10_000)
    >>> before, after = (lk.placements.ConsistentHash().owner(ids, servers) for servers in (4, 5))
    >>> print(f"{np.mean(before != after):.2f}")
    0.22

    The servers' fractions of the ring differ. More points make them more equal.

    >>> lk.placements.ConsistentHash(points=100).shares(4).round(3)
    array([0.258, 0.283, 0.242, 0.217])
    """

    points: int = option(100, low=1, high=100_000, help="of each server on the ring; more: more even")
    seed: int = option(0, low=0, high=2**63 - 1, help="of the hash")

    def owner(self, ids: np.ndarray, servers: Servers) -> np.ndarray:
        """Return the server of the first point at or after the id's position on the ring."""
        places, owners = _ring(self.points, self.seed, tuple(_numbers(servers).tolist()))
        next_point = np.searchsorted(places, scramble(self.seed, np.asarray(ids)))
        return owners[next_point % len(owners)]

    def shares(self, servers: Servers) -> np.ndarray:
        """Return the fraction of the ring that each server owns.

        Parameters
        ----------
        servers : int or sequence of int
            How many servers there are, or their numbers.

        Returns
        -------
        ndarray of float64, shape (servers,)
            The fractions, in the order of the servers; their sum is 1.
        """
        numbers = _numbers(servers)
        if len(numbers) == 1:
            return np.ones(1)
        places, owners = _ring(self.points, self.seed, tuple(numbers.tolist()))
        arcs = np.diff(places, prepend=places[-1:])  # uint64: the first arc wraps around
        return np.array([arcs[owners == server].astype(np.float64).sum() for server in numbers]) / 2.0**64


@functools.lru_cache(maxsize=64)
def _ring(points: int, seed: int, servers: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return (sorted positions of all points, the server of each). A point's position depends only on its server."""
    numbers = np.repeat(np.array(servers, np.int64), points)
    # points are hashed with another key than ids, so that their positions are independent
    places = scramble(seed ^ 0x52494E47, numbers * 100_000 + np.tile(np.arange(points), len(servers)))
    order = np.argsort(places, kind="stable")
    return places[order], numbers[order]


def _numbers(servers: Servers) -> np.ndarray:
    numbers = np.arange(servers) if isinstance(servers, int) else np.array(servers, np.int64)
    if not len(numbers) or len(set(numbers.tolist())) < len(numbers) or numbers.min() < 0:
        raise BadInput(f"servers={shown(servers)}: give their number, at least 1, or their numbers, each once.")
    return numbers


PLACEMENTS: Mapping[str, type[Placement]] = {
    "range": RangePlacement, "hash": HashPlacement, "consistent-hash": ConsistentHash
}  # fmt: skip


def placement_of(given: Any) -> Placement:
    """Convert `"range"`, `"hash:3"` (seed) or `"consistent-hash:100"` (points) to a placement. A placement is returned
    unchanged. Raises `BadInput`, with the most similar name, if the name is unknown.
    """
    if isinstance(given, Placement):
        return given
    if isinstance(given, type) and issubclass(given, Placement):
        raise BadInput(f"placement=lk.placements.{given.__name__} is a class; write lk.placements.{given.__name__}().")
    if not isinstance(given, str):
        raise nearest("placement", given, PLACEMENTS)
    return make_by_name("placement", given, PLACEMENTS)
