"""Errors of the formulas relative to the simulator: the largest errors found on a random grid.

`tests/advisor/test_accuracy.py` draws problems and clusters (a flat model, layers, an embedding table; 2 to 8 workers,
1 to 3 servers; free and busy links; server work), compares every forecast with a simulated run, and checks this table
against the result. With constant times most formulas are exact. With random times (exponential, shifted, uniform,
lognormal) most formulas forecast too short times, because the queueing of messages on busy links is not modelled completely:

- for asynchronous and synchronous servers by up to a tenth if links and workers are equally busy; for `KBatchSync`,
  whose late gradients congest the links, by a fifth;
- for `Downpour` by a fifth, also with constant times if links are free or workers few, because its pulls queue behind
  other pushes;
- for `Hybrid` by an eighth on busy links, because parts sent by a replica that is ahead delay the messages of a replica
  that is behind. On free links `Hybrid` is within 3%.
"""

from __future__ import annotations

from collections.abc import Mapping

# {strategy: (error with constant times, error with random times)}, as a share of the simulated time of a step. The
# numbers depend on the random draws of the grid.
ERRORS: Mapping[str, tuple[float, float]] = {
    "SyncPS": (0.0, 0.067), "AsyncPS": (0.0, 0.109), "Downpour": (0.192, 0.19), "SSP": (0.0, 0.071),
    "BackupWorkers": (0.0, 0.073),
    "KSync": (0.0, 0.077), "KBatchSync": (0.015, 0.202), "KAsync": (0.0, 0.101), "KBatchAsync": (0.024, 0.108),
    "EASGD": (0.0, 0.051), "RingAllReduce": (0.0, 0.014), "HalvingDoubling": (0.0, 0.049), "LocalSGD": (0.0, 0.032),
    "DPSGD": (0.003, 0.024), "ADPSGD": (0.006, 0.021), "FSDP": (0.0, 0.01), "TensorParallel": (0.0, 0.053),
    "Pipeline": (0.0, 0.009), "PipeDream": (0.013, 0.038), "Hybrid": (0.0, 0.131), "SparsePS": (0.011, 0.008),
}  # fmt: skip
