"""The engine of real time: Dask places, watches and ends roles; tensors travel from process to process."""

from __future__ import annotations

from typing import Any

__all__ = ["DaskCluster"]


def __getattr__(name: str) -> Any:
    if name == "DaskCluster":
        from .cluster.handle import DaskCluster

        return DaskCluster
    raise AttributeError(name)
