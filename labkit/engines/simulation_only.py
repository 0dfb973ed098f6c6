"""The light mode: where thirty sessions share a machine, nobody starts processes.

With `LABKIT_LIGHT=1` in its environment a session plays in virtual time what was meant for processes of labkit's own, at the
same pace and with the same shape; the run says so, in its log. A session then costs a kernel and no more. Clusters
that were given (a scheduler that all share) are used as they are.
"""

from __future__ import annotations

import os

from .base import Cluster

__all__ = ["LIGHT", "is_light", "lightened"]

LIGHT = "LABKIT_LIGHT"


def is_light() -> bool:
    """Whether this session starts no processes."""
    return os.environ.get(LIGHT, "") not in ("", "0")


def lightened(cluster: Cluster) -> Cluster:
    """The cluster on which a run is really played: `cluster` itself, or, in the light mode, one of its shape on paper."""
    if not is_light() or not cluster.starts_processes:
        return cluster
    from .simulated import SimulatedCluster

    return SimulatedCluster.of(cluster.spec)
