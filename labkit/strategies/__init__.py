"""One algorithm, one file. Start with `async_ps`, then `sync_ps` (one loop differs), then `ring_all_reduce`."""

from __future__ import annotations

from ..errors import nearest
from .async_ps import AsyncPS
from .base import Strategy
from .ring_all_reduce import RingAllReduce
from .sync_ps import SyncPS

__all__ = ["STRATEGIES", "AsyncPS", "RingAllReduce", "Strategy", "SyncPS", "strategy_by_name"]

STRATEGIES: dict[str, type[Strategy]] = {"sync-ps": SyncPS, "async-ps": AsyncPS, "ring-all-reduce": RingAllReduce}


def strategy_by_name(name: str) -> type[Strategy]:
    """The strategy with this command-line name."""
    if name not in STRATEGIES:
        raise nearest("strategy", name, STRATEGIES)
    return STRATEGIES[name]
