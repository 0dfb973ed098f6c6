"""The strategies, one file for each algorithm. Start with `async_ps`, then `sync_ps` (one loop differs), then
`ring_all_reduce`.

`STRATEGIES` contains all strategies by command-line name: first nine basic strategies, then the other strategies by family. All
lists, menus and tables are generated from it.
"""

from __future__ import annotations

from ..errors import nearest
from .adpsgd import ADPSGD
from .async_ps import AsyncPS
from .backup_workers import BackupWorkers
from .base import AsynchronousServer, MixedReplicas, ServerStrategy, Strategy
from .bucketed_all_reduce import BucketedAllReduce
from .downpour import Downpour
from .dpsgd import DPSGD
from .easgd import EASGD
from .fsdp import FSDP
from .halving_doubling import HalvingDoubling
from .hybrid import Hybrid
from .k_async import KAsync, KBatchAsync
from .k_sync import KBatchSync, KSync
from .local_sgd import LocalSGD
from .pipedream import PipeDream
from .pipeline import Pipeline
from .ring_all_reduce import RingAllReduce
from .sparse_ps import SparsePS
from .ssp import SSP
from .sync_ps import SyncPS
from .tensor_parallel import TensorParallel

__all__ = [
    "ADPSGD", "DPSGD", "EASGD", "FAMILIES", "FIRST", "FSDP", "SSP", "STRATEGIES", "AsyncPS", "AsynchronousServer",
    "BackupWorkers", "BucketedAllReduce", "Downpour", "HalvingDoubling", "Hybrid", "KAsync", "KBatchAsync", "KBatchSync", "KSync",
    "LocalSGD", "MixedReplicas", "PipeDream", "Pipeline", "RingAllReduce", "ServerStrategy", "SparsePS", "Strategy",
    "SyncPS", "TensorParallel", "strategy_by_name",
]  # fmt: skip

FIRST: dict[str, type[Strategy]] = {
    "sync-ps": SyncPS, "async-ps": AsyncPS, "ssp": SSP, "backup-workers": BackupWorkers,
    "ring-all-reduce": RingAllReduce, "local-sgd": LocalSGD, "tensor-parallel": TensorParallel, "pipeline": Pipeline,
    "hybrid": Hybrid,
}  # fmt: skip
FAMILIES: dict[str, dict[str, type[Strategy]]] = {
    "basic strategies": FIRST,
    "partial synchronization": {
        "k-sync": KSync, "k-batch-sync": KBatchSync, "k-async": KAsync, "k-batch-async": KBatchAsync,
    },
    "less communication": {"downpour": Downpour, "easgd": EASGD},
    "no server": {
        "halving-doubling": HalvingDoubling, "bucketed-all-reduce": BucketedAllReduce, "dpsgd": DPSGD, "adpsgd": ADPSGD,
    },
    "sparse models": {"sparse-ps": SparsePS},
    "model parallel": {"pipedream": PipeDream},
    "sharded state": {"fsdp": FSDP},
}  # fmt: skip
STRATEGIES: dict[str, type[Strategy]] = {name: made for family in FAMILIES.values() for name, made in family.items()}


def strategy_by_name(name: str) -> type[Strategy]:
    """Return the class of the strategy with this command-line name. Raises `BadInput` if there is none."""
    if name not in STRATEGIES:
        raise nearest("strategy", name, STRATEGIES)
    return STRATEGIES[name]
