"""Simulation-only mode, for machines that are shared by many notebook sessions.

With the environment variable `LABKIT_LIGHT=1`, runs that would start processes on this machine are simulated instead, with the
same pace and layout, and the log of the run contains a note. A notebook session then needs no process except its kernel.
Clusters on an existing scheduler are used unchanged.
"""

from __future__ import annotations

import os

from .base import Cluster

ENVIRONMENT_VARIABLE = "LABKIT_LIGHT"


def is_simulation_only() -> bool:
    """Return whether simulation-only mode is on."""
    return os.environ.get(ENVIRONMENT_VARIABLE, "") not in ("", "0")


def to_simulated(cluster: Cluster) -> Cluster:
    """Return the cluster to use: `cluster` itself or, in simulation-only mode, a simulated cluster if `cluster` would start
    processes on this machine.
    """
    if not is_simulation_only() or not cluster.starts_processes:
        return cluster
    from .simulated import SimulatedCluster

    return SimulatedCluster.of(cluster.spec)
