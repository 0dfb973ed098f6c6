"""Textbook formulas of the time of a step of N gradients, each of one mini-batch, with the condition under which it holds.
They are texts, to compare with what the simulation finds; no number of an advice comes from them.

    c  time of a gradient, c* of the slowest of N, c(k) of the k-th of N to finish    s  server work, an update
    a  latency of a message    m  the model over one link    N, S  workers, servers    L  layers    M, P  micro-batches, stages

For exponential times with mean c, c(k) = c (H_N - H_(N-k)) with H_n = 1 + 1/2 + ... + 1/n, and c* = c(N).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import strategies as known

CONSTANT = "constant times"
FREE = "links free or constant times"
FORMULAS: Mapping[type, tuple[str, str]] = {
    known.SyncPS: ("c* + s + 2a + m (1 + N/S)", FREE),
    known.AsyncPS: ("max(c + s + 2a + m (1 + 1/S), N m/S, N s)", CONSTANT),
    known.SSP: ("max(c + s + 2a + m (1 + 1/S), N m/S, N s)", "constant times, equal workers"),
    known.Downpour: ("c + N s", "constant times, free links, n_push = n_fetch = 1"),
    known.BackupWorkers: ("N/k (c(k) + s + 2a + m (1 + k/S)), k = N - b", FREE + ", links not busy with late gradients"),
    known.KSync: ("N/K (c(K) + s + 2a + m (1 + K/S))", FREE + ", links not busy with late gradients"),
    known.KBatchSync: ("N/K x the time of the K-th gradient: c for exponential times", "free links, no server work"),
    known.RingAllReduce: ("c* + s + 2(N-1) a + 2(N-1)/N m", "a start when the slowest is ready"),
    known.HalvingDoubling: ("c* + s + 2 log2(N) a + 2(N-1)/N m", "N a power of 2, a start when the slowest is ready"),
    known.LocalSGD: ("(c*(H) + 2(N-1) a + 2(N-1)/N m)/H + s, c*(H): the largest of N sums of H", "a ring"),
    known.DPSGD: ("max(c, a + d m) + s, d neighbours", CONSTANT),
    known.ADPSGD: ("N / (q/(c + s + 2a + 2m) + (N - q)/(c + s)), q active replicas", CONSTANT),
    known.FSDP: ("c* + s + 3 L (N-1) a + 3(N-1)/N m", "a start when the slowest is ready"),
    known.TensorParallel: ("c + N (s + 4 L (N-1) a) + 2(N-1) of the activations", "constant times, equal shares"),
    known.Pipeline: ("N c (M + P - 1)/(M P)", "equal stages, constant times, free links"),
    known.PipeDream: ("N c/P", "equal stages, constant times, free links"),
}  # fmt: skip


def theory_text(strategy: Any) -> str:
    """Return the formula of a strategy and its condition, or "" if it has none, as with accumulated gradients."""
    found = FORMULAS.get(type(strategy)) if getattr(strategy, "accumulate", 1) == 1 else None
    return "" if found is None else f"{found[0]}, if: {found[1]}"
