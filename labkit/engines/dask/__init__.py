"""The real-time engine: Dask starts, monitors and ends roles; tensors are sent directly between their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster.dask_cluster import DaskCluster

__all__ = ["DaskCluster"]


def __getattr__(name: str) -> Any:
    if name == "DaskCluster":
        from .cluster.dask_cluster import DaskCluster

        return DaskCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
