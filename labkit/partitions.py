"""Partitions of the training data among workers: values of the option `partition` of a problem."""

from .data import ByLabel, BySize, ByWeight, Even, GlobalBatch, Shared

__all__ = ["ByLabel", "BySize", "ByWeight", "Even", "GlobalBatch", "Shared"]
