"""Placements of rows on servers: values of the option `placement` of `SparsePS`."""

from .roles.sparse.placement import ConsistentHash, HashPlacement, RangePlacement

__all__ = ["ConsistentHash", "HashPlacement", "RangePlacement"]
