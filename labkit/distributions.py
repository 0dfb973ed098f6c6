"""Distributions of durations: the `compute` and `server_time` of a cluster, and the `pace` of a `DaskCluster`."""

from .engines.distributions import Deterministic, Exponential, LogNormal, Measured, Pareto, ShiftedExponential, Uniform

__all__ = ["Deterministic", "Exponential", "LogNormal", "Measured", "Pareto", "ShiftedExponential", "Uniform"]
