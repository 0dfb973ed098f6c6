"""labkit: a visual laboratory for distributed training. `import labkit as lk`.

This module only exports names. Each is imported when it is first used, so that `import labkit` stays fast.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "problem": ["Problem"],
    "run": ["Run", "train"],
    "resume": ["resume"],
    "advisor": ["advise"],
    "advisor.checkpoints": ["daly", "segment_time", "young"],
    "advisor.scaling": ["Scalability", "amdahl", "fit_scalability", "gustafson"],
    "lab.lab": ["Lab"],
    "lab.prediction": ["Prediction"],
    "predictor": ["Predictor", "load"],
    "errors": ["BadInput", "ClusterError", "Deadlock", "LabkitError", "RoleError"],
    "options": ["option"],
    "data": ["ByLabel", "BySize", "ByWeight", "Even", "Shared", "from_arrays", "from_csv", "from_dask"],
    "nn.compensation": ["AdaptiveCompensation", "DelayCompensation"],
    "nn.codecs": ["Float16", "PowerSGD", "QSGD", "SignSGD", "TopK"],
    "nn": ["SGD", "Adagrad", "Adam", "Constant", "Cosine", "Momentum", "Nesterov", "Step", "Warmup"],
    "roles": [
        "Accumulator",
        "Ack",
        "Budget",
        "Chunk",
        "Context",
        "Gradient",
        "Layout",
        "Gate",
        "Joined",
        "Left",
        "Message",
        "Mix",
        "NewestWeights",
        "Parameters",
        "Pull",
        "Push",
        "RoleSpec",
        "Round",
        "Weights",
        "all_gather",
        "all_pushes",
        "all_reduce",
        "barrier",
        "broadcast",
        "first_pushes",
        "next_pushes",
        "post",
        "pull",
        "push",
        "push_pull",
        "reduce_scatter",
    ],
    "strategies": [
        "ADPSGD",
        "AsyncPS",
        "AsynchronousServer",
        "BackupWorkers",
        "DPSGD",
        "Downpour",
        "EASGD",
        "FSDP",
        "HalvingDoubling",
        "Hybrid",
        "KAsync",
        "KBatchAsync",
        "KBatchSync",
        "KSync",
        "LocalSGD",
        "PipeDream",
        "Pipeline",
        "RingAllReduce",
        "SSP",
        "ServerStrategy",
        "SparsePS",
        "Strategy",
        "SyncPS",
        "TensorParallel",
    ],
    "roles.sparse.placement": ["ConsistentHash", "HashPlacement", "RangePlacement"],
    "engines.dask": ["DaskCluster"],
    "engines.simulated": ["SimulatedCluster"],
    "engines.commands": ["Delay", "Drop", "Freeze", "Kill", "Slow"],
    "engines.faults": ["Partition", "Preempt"],
    "engines.distributions": [
        "Deterministic",
        "Exponential",
        "LogNormal",
        "Measured",
        "Pareto",
        "ShiftedExponential",
        "Uniform",
    ],
    "views": ["pictures"],
    "trace": ["Trace", "ledger"],
    "trace.exports": ["load_npz", "save_npz", "to_frames", "to_perfetto"],
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        import difflib

        close = difflib.get_close_matches(name, __all__, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else f" It has {', '.join(__all__)}."
        raise AttributeError(f"labkit has no {name!r}.{hint}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
