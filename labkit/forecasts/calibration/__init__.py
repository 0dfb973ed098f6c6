"""Calibration: measure the costs of a cluster's processes, and forecast runs on clusters of any size.

`calibrate` runs short probes on a cluster (`probes`), fits the costs (`fits`) and returns a `Calibration`, whose `cluster` is a
`SimulatedCluster` with these costs. `forecast` simulates strategies on it.
"""

from __future__ import annotations

from .calibration import Calibration, calibrate
from .forecast import Forecasts, forecast

__all__ = ["Calibration", "Forecasts", "calibrate", "forecast"]
