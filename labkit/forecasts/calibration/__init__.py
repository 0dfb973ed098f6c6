"""The measured costs of a cluster.

`calibrate` runs short probes on a cluster (`probes`), fits the costs (`fits`) and returns a `Calibration`, whose `cluster` is a
`SimulatedCluster` with these costs.
"""

from __future__ import annotations

from .calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
