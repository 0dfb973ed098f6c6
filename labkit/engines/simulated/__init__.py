"""The engine for virtual time (simulation)."""

from __future__ import annotations

from .cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]
