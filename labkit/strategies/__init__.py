"""One algorithm, one file. Start with `async_ps`, then `sync_ps` (one loop differs), then `ring_all_reduce`.

`STRATEGIES` lists all by their command-line names: nine to begin with, then the rest by family. Every list, menu and
table is made from it.
"""

from __future__ import annotations

from ..errors import nearest
from .adpsgd import ADPSGD
from .async_ps import AsyncPS
from .backup_workers import BackupWorkers
from .base import AsynchronousServer, ServerStrategy, Strategy
from .dpsgd import DPSGD
from .easgd import EASGD
from .k_async import KAsync, KBatchAsync
from .k_sync import KBatchSync, KSync
from .local_sgd import LocalSGD
from .ring_all_reduce import RingAllReduce
from .ssp import SSP
from .sync_ps import SyncPS

__all__ = [
    "ADPSGD", "EASGD", "DPSGD", "FAMILIES", "SSP", "STRATEGIES", "AsyncPS", "AsynchronousServer", "BackupWorkers",
    "KAsync", "KBatchAsync", "KBatchSync", "KSync", "LocalSGD", "RingAllReduce", "ServerStrategy",
    "Strategy", "SyncPS", "strategy_by_name",
]  # fmt: skip

FIRST: dict[str, type[Strategy]] = {
    "sync-ps": SyncPS, "async-ps": AsyncPS, "ssp": SSP, "backup-workers": BackupWorkers,
    "ring-all-reduce": RingAllReduce, "local-sgd": LocalSGD,
}  # fmt: skip
FAMILIES: dict[str, dict[str, type[Strategy]]] = {
    "to begin with": FIRST,
    "waiting for some": {
        "k-sync": KSync, "k-batch-sync": KBatchSync, "k-async": KAsync, "k-batch-async": KBatchAsync,
    },
    "talking less often": {"easgd": EASGD},
    "no server": {"dpsgd": DPSGD, "adpsgd": ADPSGD},
}  # fmt: skip
STRATEGIES: dict[str, type[Strategy]] = {name: made for family in FAMILIES.values() for name, made in family.items()}


def strategy_by_name(name: str) -> type[Strategy]:
    """The strategy with this command-line name."""
    if name not in STRATEGIES:
        raise nearest("strategy", name, STRATEGIES)
    return STRATEGIES[name]
