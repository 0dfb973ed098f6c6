"""The engine of virtual time."""

from __future__ import annotations

from .cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
