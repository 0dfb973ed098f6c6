"""The answers to three design questions, with numbers.

Dense or sparse? Server or all-reduce? Split the model?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..formatting import bytes_text
from .estimate import time_text as t
from .facts import Facts

__all__ = ["three_answers"]


def three_answers(f: Facts, rows: Sequence[Any]) -> tuple[str, str, str]:
    """(dense or sparse, server or all-reduce, split or whole), from predictions that are sorted."""
    return (
        "Dense or sparse? " + dense_or_sparse(f, rows),
        "Server or all-reduce? " + server_or_all_reduce(f, rows),
        "Split the model? " + split_or_whole(f, rows),
    )


def _first(rows: Iterable[Any], *names: str) -> Any:
    """The fastest row of these strategies."""
    return next((row for row in rows if row.strategy.name in names), None)


def _alike(one: Any, other: Any) -> bool:
    """Whether their steps take the same time, to 2%."""
    return bool(abs(one.step - other.step) < 0.02 * other.step)


def _leanest(rows: Iterable[Any]) -> Any:
    """The row that needs the least memory."""
    return min(rows, key=lambda row: row.memory)


def dense_or_sparse(f: Facts, rows: Sequence[Any]) -> str:
    """A sparse all-gather of (id, value) pairs beats the ring iff density < 1/N (RESULTS T4)."""
    if f.density >= 1:
        return "Dense: a batch's gradient touches every parameter (density 1)."
    sparse, dense = _first(rows, "SparsePS"), _first(rows, "RingAllReduce", "HalvingDoubling", "SyncPS")
    touched = f"a batch touches {f.density:.3g} of {bytes_text(f.model)}"
    if sparse is None or dense is None:
        side = "below" if f.density < 1 / f.n else "not below"
        return f"{touched}; pairs of number and value beat a ring below a density of 1/N = {1 / f.n:.3g}, and this is {side} it."
    verdict = "Either" if _alike(sparse, dense) else "Sparse" if sparse.step < dense.step else "Dense"
    return (
        f"{verdict}: {touched}; rows take {t(sparse.step)} a step ({bytes_text(sparse.bytes)} on the busiest link), the "
        f"whole {t(dense.step)} by {dense.label} ({bytes_text(dense.bytes)})."
    )


def server_or_all_reduce(f: Facts, rows: Sequence[Any]) -> str:
    """Compares synchronous strategies only, because they compute the same updates."""
    server, ring = _first(rows, "SyncPS"), _first(rows, "RingAllReduce", "HalvingDoubling")
    if server is None or ring is None:
        return f"Only one of them was asked about; the fastest is {rows[0].label}, {t(rows[0].step)} a step."
    verdict = "Either" if _alike(ring, server) else "All-reduce" if ring.step < server.step else "Server"
    said = (
        f"{verdict}: with everybody waiting {ring.label} takes {t(ring.step)} and SyncPS with {f.servers} server"
        f"{'s' if f.servers > 1 else ''} {t(server.step)} a step ({bytes_text(ring.bytes)} and {bytes_text(server.bytes)} on "
        "the busiest link)"
    )
    wait = f.c.slowest(f.n) / f.c.mean if f.c.mean else 1.0
    sparse = _first(rows, "SparsePS")
    if sparse is not None and sparse.step < min(ring.step, server.step) and not _alike(sparse, ring):
        rest = "an all-reduce" if sparse.strategy.dense == "all-reduce" else "the servers, too,"
        said = (
            f"Servers for the rows of the table, {rest} for the rest ({sparse.label}, {t(sparse.step)} a step); of "
            f"those that move the whole: {said[0].lower()}{said[1:]}"
        )
    free = _first(rows, "AsyncPS")
    if free is not None and wait > 1.05:
        said += (
            f"; the slowest of {f.n} takes {wait:.2f} times the mean, and without waiting it would be {t(free.step)}"
        )
    return said + "."


SPLIT = ("TensorParallel", "Pipeline", "PipeDream", "Hybrid", "FSDP")


def split_or_whole(f: Facts, rows: Sequence[Any]) -> str:
    """Splitting saves memory; it saves time only if summing whole gradients costs more than splitting their computation."""
    whole = next((row for row in rows if row.strategy.name not in SPLIT), None)
    parted = next((row for row in rows if row.strategy.name in SPLIT), None)
    if parted is None:
        return "This model cannot be split over these workers."
    if whole is None:
        return f"Only splits were asked about; the fastest is {parted.label}, {t(parted.step)} a step."
    if not whole.fits:  # then no unsplit strategy fits
        whole = _leanest(row for row in rows if row.strategy.name not in SPLIT)
        if not parted.fits:
            parted = _leanest(row for row in rows if row.strategy.name in SPLIT)
        best = f"{parted.label} needs {bytes_text(parted.memory)} and takes {t(parted.step)} a step"
        needs = f"the whole needs {bytes_text(whole.memory)} a node and there are {bytes_text(f.memory or 0)}"
        return f"Yes: {needs}; {best}." if parted.fits else f"It does not help: {needs}, and even {best}."
    room = (
        f"the whole fits ({bytes_text(whole.memory)} a node)"
        if f.memory
        else f"the whole needs {bytes_text(whole.memory)} a node"
    )
    if parted.step < whole.step:
        return f"Yes, for time: {room}, but {parted.label} takes {t(parted.step)} a step and {whole.label} {t(whole.step)}."
    return f"No: {room}, and {whole.label} takes {t(whole.step)} a step, {parted.label} {t(parted.step)}."
